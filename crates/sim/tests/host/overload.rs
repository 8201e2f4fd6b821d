//! Tests of an overloaded host.

use std::time::Duration;

use crate::driver::{Outcome, Run};
use crate::echo::Seen;
use crate::{at, fifo};
use tidegate_emulate::HostSettings;
use tidegate_world::{Load, Timestamp};

const SECOND: u64 = 1_000_000;

/// Returns one datagram every `gap_us` µs, for ten seconds.
fn steady(text: &str, gap_us: u64) -> Vec<(Timestamp, String)> {
    (0..10 * SECOND).step_by(gap_us as usize).map(|us| (at(us), text.to_string())).collect()
}

/// Runs for ten seconds and not a nanosecond more.
fn ten_seconds(settings: HostSettings, datagrams: &[(Timestamp, String)]) -> Outcome {
    Run { end: at(10 * SECOND), ..Run::new(settings, datagrams) }.go()
}

fn count(outcome: &Outcome, word: &str) -> usize {
    outcome.sent.iter().filter(|(_, text)| text.starts_with(word)).count()
}

#[test]
fn at_twice_its_capacity_it_completes_its_capacity() {
    let datagrams = steady("BYE 0", 1_000);
    assert_eq!(ten_seconds(fifo(0, 2_000, 0), &datagrams).sent.len(), 5_000);
    let slower = HostSettings { cost_factor: 2.0, ..fifo(0, 2_000, 0) };
    assert_eq!(ten_seconds(slower, &datagrams).sent.len(), 2_500);
    // The processor spends a fifth of the time on offered datagrams.
    let looking = ten_seconds(fifo(200, 2_000, 0), &datagrams).sent.len();
    assert!((3_999..=4_000).contains(&looking), "{looking}");
}

#[test]
fn at_half_its_capacity_everything_is_complete_after_its_cost() {
    let datagrams = steady("BYE 0", 4_000);
    let outcome = Run::new(fifo(500, 1_500, 0), &datagrams).go();
    let delays: Vec<_> =
        outcome.sent.iter().zip(&datagrams).map(|(sent, came)| sent.0.since(came.0)).collect();
    assert_eq!(delays, vec![Duration::from_millis(2); 2_500]);
}

#[test]
fn a_flood_of_rejected_work_leaves_half_for_service() {
    // The work for twenty seconds waits from the start. Rejecting the flood would take two and a
    // half times the capacity.
    let mut datagrams: Vec<_> = (0..2_000).map(|_| (at(0), "BYE 0".to_string())).collect();
    datagrams.extend(steady("NO 0", 400));
    let outcome = ten_seconds(fifo(0, 10_000, 1_000), &datagrams);
    let (served, rejected) = (count(&outcome, "BYE"), count(&outcome, "NO"));
    // Services and rejections take 5 s each, except for a burst of 64 ms and a service of 10 ms.
    assert!((493..=501).contains(&served), "{served} served, {rejected} rejected");
    assert!((4_990..=5_064).contains(&rejected), "{served} served, {rejected} rejected");
    assert!(outcome.overflow > 15_000, "{}", outcome.overflow);
}

#[test]
fn service_without_waiting_work_creates_no_debt() {
    let mut datagrams: Vec<_> = (0..2_000).map(|_| (at(0), "BYE 0".to_string())).collect();
    let flood = steady("NO 0", 400).into_iter().filter(|(since, _)| *since >= at(5 * SECOND));
    datagrams.extend(flood);
    let outcome = ten_seconds(fifo(0, 10_000, 1_000), &datagrams);
    let (served, rejected) = (count(&outcome, "BYE"), count(&outcome, "NO"));
    // Service gets all of the first five seconds, and half of the last five.
    assert!((743..=751).contains(&served), "{served} served, {rejected} rejected");
    assert!((2_490..=2_564).contains(&rejected), "{served} served, {rejected} rejected");
}

#[test]
fn without_work_to_serve_the_core_is_asked_only_after_each_burst() {
    let outcome = ten_seconds(fifo(0, 10_000, 1_000), &steady("NO 0", 400));
    let asked = outcome.seen.iter().filter(|(_, seen)| *seen == Seen::Idle).count();
    // Ten thousand datagrams are rejected. The core is asked for work after every 65 of them.
    assert_eq!((count(&outcome, "NO"), asked), (10_000, 10_000 / 65));
}

#[test]
fn a_full_buffer_drops_the_newest_and_counts_it() {
    let burst: Vec<_> = (0..10).map(|i| (at(0), format!("NO 0 {i}"))).collect();
    let outcome = Run::new(HostSettings { buffer_max: 4, ..fifo(0, 0, 1_000) }, &burst).go();
    // The first is being rejected, and four wait in the buffer.
    let texts: Vec<_> = outcome.sent.iter().map(|(_, text)| text.clone()).collect();
    assert_eq!(texts, ["NO 0 0", "NO 0 1", "NO 0 2", "NO 0 3", "NO 0 4"]);
    assert_eq!(outcome.overflow, 5);
}

#[test]
fn the_reported_load_is_that_of_the_model() {
    let read = |gap_us| -> Vec<(Timestamp, Load)> {
        let outcome = ten_seconds(
            HostSettings { buffer_max: 10, ..fifo(0, 0, 1_000) },
            &steady("NO 0", gap_us),
        );
        let load = |(at, seen)| match seen {
            Seen::Load(load) => Some((at, load)),
            _ => None,
        };
        outcome.seen.into_iter().filter_map(load).collect()
    };
    for (gap_us, busy) in [(4_000, 0.25), (1_250, 0.8), (500, 1.0)] {
        let readings = read(gap_us);
        assert!(readings.len() > 2_400, "{}", readings.len());
        assert!(readings.windows(2).all(|pair| {
            let passed = pair[1].0.since(pair[0].0);
            let busy = pair[1].1.busy - pair[0].1.busy;
            pair[1].1.cpu == pair[1].1.busy && passed >= tidegate_emulate::SAMPLE && busy <= passed
        }));
        let (last, load) = readings[readings.len() - 1];
        let occupancy = load.busy.as_secs_f64() / last.as_secs_f64();
        assert!((occupancy - busy).abs() < 0.001, "{occupancy} at a gap of {gap_us}");
        // At a reading, a datagram that arrives at the same time may still be in the buffer.
        let expected = if busy < 1.0 { 0.0..=0.1 } else { 1.0..=1.0 };
        assert!(expected.contains(&load.socket_fill), "{load:?} at a gap of {gap_us}");
    }
}
