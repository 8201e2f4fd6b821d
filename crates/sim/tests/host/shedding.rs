//! Tests of datagrams that a core wants dropped before they are read.

use tidegate_emulate::{Host, HostSettings};
use tidegate_world::{Core, Pool, Received, Shedding, Timestamp};

use crate::echo::{Echo, Seen, flow};
use crate::{at, fifo};

/// Returns a host whose core wants this share of INVITEs shed, and has got a reading of the load.
fn shedding(share: f64, settings: &HostSettings) -> Host<Echo> {
    let mut echo = Echo::new();
    echo.shedding = Shedding { shares: [share; 2], ..Shedding::NONE };
    let mut host = Host::new(echo, settings);
    host.on_failed(at(0), failure());
    host
}

/// Returns an INVITE whose bytes differ from those with other numbers.
fn invite(number: u32) -> String {
    format!("INVITE 0 {number:08}{:60}", "")
}

fn failure() -> tidegate_world::Failure {
    tidegate_world::Failure::new(flow(), tidegate_world::Cause::Other, b"")
}

fn offer(host: &mut Host<Echo>, now: Timestamp, text: &str, handoffs: u8) {
    let bytes = Pool::new().copy(text.as_bytes());
    host.offer(now, Received { handoffs, ..Received::new(now, flow(), bytes) });
}

/// Returns the texts that the core was offered.
fn offered(host: &Host<Echo>) -> Vec<String> {
    let text = |(_, seen): &(Timestamp, Seen)| match seen {
        Seen::Offer(text) => Some(text.clone()),
        _ => None,
    };
    host.core().seen.iter().filter_map(text).collect()
}

#[test]
fn dropping_the_share_of_invites_costs_nothing_and_is_not_overflow() {
    const SENT: u32 = 10_000;
    let mut host = shedding(0.3, &fifo(0, 1, 0));
    for number in 0..SENT {
        offer(&mut host, at(u64::from(number) * 10), &invite(number), 0);
        offer(&mut host, at(u64::from(number) * 10), "BYE 0", 0);
    }
    host.serve(at(10_000_000));
    let filtered = host.filtered().get();
    // The standard error is sqrt(10,000 * 0.3 * 0.7) = 46, and five of them are allowed.
    assert!((filtered as f64 - 3_000.0).abs() < 230.0, "{filtered}");
    let texts = offered(&host);
    assert_eq!(texts.iter().filter(|text| *text == "BYE 0").count(), SENT as usize);
    assert_eq!(texts.len() as u64 + filtered, 2 * u64::from(SENT));
    assert_eq!(host.overflow().get(), 0);
    // The processor is busy for a microsecond for each served datagram. The load is read every two
    // hundred INVITEs.
    let (_, last) = *host.core().loads().last().unwrap();
    assert!(last.busy.as_micros() <= texts.len() as u128);
    assert!(last.filtered > filtered - 150 && last.filtered <= filtered, "{last:?}");
}

#[test]
fn retransmissions_of_dropped_work_are_dropped() {
    let mut host = shedding(0.5, &fifo(0, 0, 0));
    (0..200).for_each(|n| offer(&mut host, at(n.into()), &invite(n), 0));
    let first = offered(&host);
    (0..200).for_each(|n| offer(&mut host, at(200 + u64::from(n)), &invite(n), 0));
    assert_eq!(offered(&host), [&first[..], &first[..]].concat());
}

#[test]
fn messages_that_were_handed_off_are_not_shed_again() {
    let mut host = shedding(1.0, &fifo(0, 0, 0));
    offer(&mut host, at(1), "INVITE 0 own", 0);
    offer(&mut host, at(1), "INVITE 0 over", 1);
    assert_eq!((offered(&host), host.filtered().get()), (vec!["INVITE 0 over".to_string()], 1));
}

#[test]
fn the_host_applies_the_shedding_and_passes_none_to_the_driver() {
    let mut host = shedding(1.0, &fifo(0, 1_500, 0));
    assert_eq!(*Core::poll_shedding(&host), Shedding::NONE);
    offer(&mut host, at(1), "INVITE 0", 0);
    assert!(offered(&host).is_empty());
    let mut open = shedding(0.0, &fifo(0, 1_500, 0));
    for ms in 0..4 {
        offer(&mut open, at(ms * 1_500), "INVITE 0", 0);
    }
    assert_eq!(offered(&open).len(), 4);
}

#[test]
fn only_the_overflow_of_the_buffer_for_invites_is_reported_to_the_core() {
    for (split, text, reported) in
        [(true, "BYE 0", 0), (true, "INVITE 0", 990), (false, "BYE 0", 990)]
    {
        let settings = HostSettings { split, buffer_max: 10, ..fifo(0, 1_000, 0) };
        let mut host = shedding(0.0, &settings);
        (0..1_000).for_each(|_| offer(&mut host, at(1), text, 0));
        host.serve(at(1_000_000));
        host.on_failed(at(2_000_000), failure());
        let (_, last) = *host.core().loads().last().unwrap();
        let counted = host.overflow().get();
        assert!(counted >= 989 && last.overflow.abs_diff(reported) <= 1, "{split} {text} {last:?}");
    }
}

#[test]
fn a_full_buffer_drops_datagrams_that_were_not_shed() {
    let settings = HostSettings { buffer_max: 10, ..fifo(0, 1_000, 0) };
    let mut host = shedding(0.5, &settings);
    (0..1_000).for_each(|n| offer(&mut host, at(1), &invite(n), 0));
    let (filtered, overflow) = (host.filtered().get(), host.overflow().get());
    assert!((400..600).contains(&filtered) && overflow > 380, "{filtered} {overflow}");
    host.serve(at(1_000_000));
    assert_eq!(offered(&host).len() as u64 + filtered + overflow, 1_000);
}
