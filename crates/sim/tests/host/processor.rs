//! Tests of processors with several cores, with background load, and with varying costs.

use std::time::Duration;

use tidegate_emulate::{Costs, Distribution, HostSettings, Quota, Variation};
use tidegate_world::{Load, Purpose, Seed, Timestamp};

use crate::driver::Run;
use crate::echo::Seen;
use crate::{at, fifo, serving, span};

fn datagrams(list: &[(u64, &str)]) -> Vec<(Timestamp, String)> {
    list.iter().map(|&(us, text)| (at(us), text.to_string())).collect()
}

fn served(text: &str) -> Seen {
    Seen::Serve(text.into())
}

/// Returns services and idle polls, with their starts.
fn services(seen: Vec<(Timestamp, Seen)>) -> Vec<(Timestamp, Seen)> {
    let services = seen.into_iter();
    services.filter(|(_, seen)| matches!(seen, Seen::Serve(_) | Seen::Idle)).collect()
}

#[test]
fn each_core_takes_the_next_message_when_it_is_free() {
    let settings = HostSettings { cores: 2, ..serving(&[10, 30, 5]) };
    let three = datagrams(&[(0, "A 0"), (0, "B 1"), (0, "C 2")]);
    let outcome = Run::new(settings, &three).go();
    let expected = [
        (at(0), served("A 0")),
        (at(0), served("B 1")),
        (at(10), served("C 2")),
        (at(15), Seen::Idle),
    ];
    assert_eq!(services(outcome.seen), expected);
    assert_eq!(outcome.sent, datagrams(&[(10, "A 0"), (15, "C 2"), (30, "B 1")]));
}

#[test]
fn a_core_that_is_free_asks_for_no_more_than_was_offered() {
    let settings = HostSettings { cores: 2, ..fifo(2, 10, 0) };
    let outcome = Run::new(settings, &datagrams(&[(0, "A 0"), (5, "B 0")])).go();
    // If the core were asked again at 2, it would count no time for A.
    let expected = [(at(2), served("A 0")), (at(7), served("B 0")), (at(17), Seen::Idle)];
    assert_eq!(services(outcome.seen), expected);
    assert_eq!(outcome.sent, datagrams(&[(12, "A 0"), (17, "B 0")]));
}

#[test]
fn a_timer_is_not_kept_waiting_by_the_work_of_several_cores() {
    let settings = HostSettings { cores: 2, ..fifo(0, 10, 0) };
    let one = datagrams(&[(0, "A 0")]);
    let outcome = Run { timers: vec![at(3)], ..Run::new(settings, &one) }.go();
    assert_eq!(outcome.sent, datagrams(&[(3, "timer"), (10, "A 0")]));
}

#[test]
fn time_taken_by_other_programs_is_measured_and_has_effect() {
    let settings = HostSettings { background: 0.75, ..fifo(0, 1000, 0) };
    let outcome = Run::new(settings, &datagrams(&[(8_000, "A 0"), (20_000, "B 0")])).go();
    assert_eq!(outcome.sent, datagrams(&[(12_000, "A 0"), (24_000, "B 0")]));
    // Of the first 8 ms, other processes took 6. Then the processor was busy for 4 ms: its own work
    // of 1 ms and the other processes left no idle time.
    let expected = [(8_000, 6_000, 0), (12_000, 10_000, 1_000), (20_000, 16_000, 1_000)];
    assert_eq!(loads(outcome.seen)[..3], expected.map(|(now, b, c)| (at(now), span(b), span(c))));
}

#[test]
fn time_for_which_a_quota_interrupts_work_is_busy_time_but_not_cpu_time() {
    let quota = Some(Quota { period: span(1000), runtime: span(20), tick: span(0) });
    let settings = HostSettings { quota, ..fifo(0, 30, 0) };
    let outcome = Run::new(settings, &datagrams(&[(0, "A 0"), (5_000, "B 0")])).go();
    assert_eq!(outcome.sent, datagrams(&[(1_010, "A 0"), (6_010, "B 0")]));
    let expected = [(at(0), span(0), span(0)), (at(5_000), span(1_010), span(30))];
    assert_eq!(loads(outcome.seen)[..2], expected);
}

/// Returns the readings of the load: their times, busy times and CPU times.
fn loads(seen: Vec<(Timestamp, Seen)>) -> Vec<(Timestamp, Duration, Duration)> {
    let load = |(now, seen)| match seen {
        Seen::Load(Load { busy, cpu, .. }) => Some((now, busy, cpu)),
        _ => None,
    };
    seen.into_iter().filter_map(load).collect()
}

#[test]
fn a_limit_in_bytes_counts_as_in_the_kernel() {
    // The kernel charges 832 bytes for each datagram. While the first is served, two fit and two
    // are lost.
    let settings = HostSettings { buffer_bytes: Some(2 * 832), ..fifo(0, 10, 0) };
    let burst = datagrams(&[(1, "A 0"), (2, "B 0"), (3, "C 0"), (4, "D 0"), (5, "E 0")]);
    let outcome = Run::new(settings, &burst).go();
    assert_eq!(outcome.overflow, 2);
    assert_eq!(outcome.sent.len(), 3);
}

#[test]
fn only_a_datagram_that_finds_the_processor_idle_wakes_it() {
    let base = fifo(0, 10, 0);
    let costs = Costs { wake: span(5), ..base.costs.clone() };
    let three = datagrams(&[(1, "A 0"), (2, "B 0"), (100, "C 0")]);
    let outcome = Run::new(HostSettings { costs, ..base }, &three).go();
    assert_eq!(outcome.sent, datagrams(&[(16, "A 0"), (26, "B 0"), (115, "C 0")]));
}

#[test]
fn a_server_that_reads_one_by_one_leaves_the_others_in_the_buffer() {
    let burst = datagrams(&[(1, "A 0"), (2, "B 0"), (3, "C 0"), (12, "D 0"), (13, "E 0")]);
    let overflow = |batch| {
        let settings = HostSettings { batch, buffer_max: 2, ..fifo(0, 10, 0) };
        Run::new(settings, &burst).go().overflow
    };
    // With a batch of 1, the host reads only B at 11. C stays in the buffer, so only D still fits.
    // Without a batch, the host reads B and C.
    assert_eq!((overflow(Some(1)), overflow(None)), (1, 0));
    let settings = |batch| HostSettings { batch, ..fifo(4, 10, 0) };
    let left = |batch| Run::new(settings(batch), &burst).go().sent;
    assert_eq!(left(Some(1))[..2], datagrams(&[(15, "A 0"), (29, "B 0")]));
    assert_eq!(left(Some(3))[..2], datagrams(&[(23, "A 0"), (33, "B 0")]));
}

#[test]
fn a_turn_takes_all_ordinary_datagrams_and_then_a_batch_of_invites() {
    let mut list = vec![(0, "A 0")];
    list.extend(["INVITE 0", "INVITE 0", "B 0", "C 0", "D 0"].map(|text| (1, text)));
    let list = datagrams(&list);
    // Returns the steps: small letters for offers, and capital letters for services.
    let steps = |batch| {
        let settings = HostSettings { split: true, batch: Some(batch), ..fifo(10, 10, 0) };
        let step = |(_, seen): (Timestamp, Seen)| match seen {
            Seen::Offer(text) => Some(text[..1].to_lowercase()),
            Seen::Serve(text) => Some(text[..1].to_owned()),
            _ => None,
        };
        Run::new(settings, &list).go().seen.into_iter().filter_map(step).collect::<String>()
    };
    assert_eq!(steps(1), "abcdiABCDIiI");
    assert_eq!(steps(2), "abcdiiABCDII");
}

#[test]
fn datagrams_wait_while_a_quota_keeps_the_processor_from_running() {
    let quota = Some(Quota { period: span(1000), runtime: span(20), tick: span(0) });
    let settings = HostSettings { quota, batch: Some(1), buffer_max: 3, ..fifo(0, 10, 0) };
    let list = [1, 2, 3, 4, 500, 501, 502].map(|us| (us, "A 0"));
    let outcome = Run::new(settings, &datagrams(&list)).go();
    // From 21 on the host serves the third datagram, and the last one does not fit into the buffer.
    let times: Vec<_> = outcome.sent.iter().map(|(left, _)| *left).collect();
    assert_eq!(times, [11, 21, 1010, 1020, 2010, 2020].map(at));
    assert_eq!(outcome.overflow, 1);
}

/// Returns the mean time from arrival to departure, in µs, of 100,000 datagrams of a Poisson
/// process at half of the capacity of `cores` cores, each of which takes 100 µs on average.
fn mean_sojourn_us(cores: u16, distribution: &Distribution) -> f64 {
    let mut arrivals = Seed(1).stream(Purpose::Arrivals, 0);
    let mut now = Timestamp::ZERO;
    let arrivals: Vec<_> = (0..100_000)
        .map(|number| {
            now = now + Duration::from_secs_f64(arrivals.exponential(200e-6 / f64::from(cores)));
            (now, format!("A 0 {number}"))
        })
        .collect();
    let variation = Variation { distribution: distribution.clone(), seed: Seed(1), element: 0 };
    let settings = HostSettings { cores, variation, buffer_max: 100_000, ..fifo(0, 100, 0) };
    let outcome = Run::new(settings, &arrivals).go();
    let sojourn = outcome.sent.iter().map(|(left, text)| {
        let number: usize = text.rsplit(' ').next().unwrap().parse().unwrap();
        left.since(arrivals[number].0).as_secs_f64()
    });
    assert_eq!(outcome.sent.len(), arrivals.len());
    sojourn.sum::<f64>() * 1e6 / arrivals.len() as f64
}

#[test]
fn at_half_its_capacity_messages_stay_as_long_as_queueing_theory_says() {
    use Distribution::{Constant, Exponential, Hyperexponential, Lognormal};
    // M/M/1: s / (1 - ρ). M/M/2: s / (1 - ρ²). M/G/1, by Pollaczek and Khinchine:
    // s + ρ s (1 + CV²) / 2 (1 - ρ). The CV² of the log-normal distribution is exp(σ²) - 1.
    let lognormal = 100.0 + 50.0 * 0.64_f64.exp();
    for (cores, distribution, expected) in [
        (1, Exponential, 200.0),
        (1, Constant, 150.0),
        (1, Hyperexponential { scv: 3.0 }, 300.0),
        (1, Lognormal { sigma: 0.8 }, lognormal),
        (2, Exponential, 400.0 / 3.0),
    ] {
        let mean = mean_sojourn_us(cores, &distribution);
        // There are 100,000 samples, but about ten in a row depend on each other. So the standard
        // error is about 1 %, and about 3 % with a CV² of 3.
        let allowed = if distribution == (Hyperexponential { scv: 3.0 }) { 0.15 } else { 0.05 };
        let error = (mean / expected - 1.0).abs();
        assert!(error < allowed, "{cores} {distribution}: {mean}");
    }
}
