//! Tests that other drivers send the same bytes as a run over real sockets, if they get its
//! recorded inputs.

#[path = "recorded/live.rs"]
mod live;
#[path = "recorded/scripted.rs"]
mod scripted;
#[path = "recorded/simulated.rs"]
mod simulated;

use std::time::Duration;

use live::{CALLS, Sent, Topology, proxy};
use tidegate_world::{Entry, Flow, Input, Pool, Timestamp, replay};

fn played(log: &[Entry], topology: Topology) -> Sent {
    let mut sent = Vec::new();
    replay(log.to_vec(), &mut proxy(topology), &Pool::new(), |_, t| {
        sent.push((t.flow, t.bytes.to_vec()));
    });
    sent
}

#[test]
fn the_replay_of_a_real_run_sends_the_same_bytes() {
    let live::Run { topology, log, sent } = live::run(false);
    assert!(sent.len() >= CALLS as usize, "{} packets", sent.len());
    assert!(log.iter().any(|entry| matches!(entry.input, Input::Load(_))), "the law saw the load");
    let again = played(&log, topology);
    assert_eq!(again.len(), sent.len());
    for (i, (again, sent)) in again.iter().zip(&sent).enumerate() {
        assert_eq!(again, sent, "packet {i}");
    }
    // Check that the comparison can fail: without the first packet the result differs.
    let first = log.iter().position(|entry| matches!(entry.input, Input::Offer(..)));
    let mut less = log.clone();
    less.remove(first.unwrap());
    assert_ne!(played(&less, topology), sent);
}

/// A datagram, its arrival and its flow.
#[derive(Clone, Debug)]
pub struct Arrival {
    at: Timestamp,
    flow: Flow,
    bytes: Vec<u8>,
}

/// Returns the datagrams of a log, each at a different time.
///
/// A driver of sockets may read several datagrams before it serves one. Every driver serves a
/// datagram that arrives alone before it reads the next one.
fn arrivals(log: &[Entry]) -> Vec<Arrival> {
    let mut arrivals: Vec<_> = log
        .iter()
        .filter_map(|entry| match &entry.input {
            Input::Offer(at, flow, bytes, _) => {
                Some(Arrival { at: *at, flow: *flow, bytes: bytes.clone() })
            }
            _ => None,
        })
        .collect();
    arrivals.sort_by_key(|arrival| arrival.at);
    let mut last = Timestamp::ZERO;
    for arrival in &mut arrivals {
        arrival.at = arrival.at.max(last + Duration::from_nanos(1));
        last = arrival.at;
    }
    arrivals
}

/// Packets sent, with time and flow.
type Timed = Vec<(Timestamp, Flow, Vec<u8>)>;

/// Asserts that a driver of sockets and simulated time send the same packets.
fn assert_alike(topology: Topology, arrivals: &[Arrival], end: Timestamp) -> Timed {
    let driven = scripted::run(proxy(topology), arrivals, end);
    let simulated = simulated::run(proxy(topology), topology, arrivals, end);
    for (i, (driven, simulated)) in driven.iter().zip(&simulated).enumerate() {
        assert_eq!(driven, simulated, "packet {i}");
    }
    assert_eq!(driven.len(), simulated.len());
    driven
}

fn both_drivers_give_the_same_bytes(transactions: bool) {
    let live::Run { topology, log, sent } = live::run(transactions);
    let arrivals = arrivals(&log);
    let end = arrivals.last().unwrap().at + Duration::from_secs(60);
    let driven = assert_alike(topology, &arrivals, end);
    // The real run may have more packets, because it rejects some calls on a busy machine. These
    // drivers reject no call.
    assert!(driven.len() + 100 >= sent.len(), "{} packets, then {}", sent.len(), driven.len());

    // Without the responses of the callees, timers cause packets for another half minute.
    let silent: Vec<_> = arrivals
        .iter()
        .filter(|arrival| !topology.backends.contains(&arrival.flow.remote))
        .cloned()
        .collect();
    let unanswered = assert_alike(topology, &silent, end);
    let late = unanswered.iter().filter(|(at, ..)| *at > silent.last().unwrap().at).count();
    assert_eq!(late > CALLS as usize, transactions, "{late} packets by timers alone");

    // Check that the comparison can fail: with one datagram less, or a datagram a microsecond
    // earlier, the result differs.
    let less = simulated::run(proxy(topology), topology, &arrivals[1..], end);
    assert_ne!(less, driven);
    let mut earlier = arrivals.clone();
    earlier[0].at = arrivals[0].at - Duration::from_micros(1);
    assert_ne!(simulated::run(proxy(topology), topology, &earlier, end), driven);
}

#[test]
fn real_sockets_and_simulated_time_give_the_same_bytes_with_transactions() {
    both_drivers_give_the_same_bytes(true);
}

#[test]
fn real_sockets_and_simulated_time_give_the_same_bytes_without_transactions() {
    both_drivers_give_the_same_bytes(false);
}
