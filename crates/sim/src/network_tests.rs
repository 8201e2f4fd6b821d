//! Scripts of packets between nodes, and of their faults.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_world::{Pool, Shedding};

use super::*;
use crate::{Bandwidth, Fault, Trace};

const A: &str = "127.0.0.1:1";
const B: &str = "127.0.0.1:2";
const NOBODY: &str = "127.0.0.1:9";
const DELAY: Duration = Duration::from_millis(10);

/// A core that sends `left` packets, one second apart, to `to`. When none is left, it answers each
/// packet of the other core.
#[derive(Default)]
struct Ping {
    pool: Pool,
    own: Option<SocketAddr>,
    to: Option<SocketAddr>,
    left: u32,
    next: Timestamp,
    out: VecDeque<Transmit>,
    draining: bool,
    shedding: Shedding,
    seen: Seen,
}

/// The events that a `Ping` has seen. They are kept after its crash.
type Seen = Rc<RefCell<Vec<(Timestamp, What)>>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// A packet with this time of arrival.
    Got(Timestamp),
    Failed,
    Rang,
    Command,
    Drain,
}

impl Ping {
    fn new(own: &str, to: &str, left: u32) -> Self {
        let [own, to] = [own, to].map(|text| Some(text.parse().unwrap()));
        Self { own, to, left, ..Self::default() }
    }

    fn flow(&self) -> Flow {
        Flow::udp(self.own.unwrap(), self.to.unwrap())
    }

    fn see(&self, now: Timestamp, what: What) {
        self.seen.borrow_mut().push((now, what));
    }
}

impl Core for Ping {
    fn offer(&mut self, now: Timestamp, received: Received) {
        assert_eq!(received.flow, self.flow());
        self.see(now, What::Got(received.arrived));
        if self.left == 0 && &received.bytes[..] == b"INVI" {
            self.out.push_back(Transmit::new(received.flow, self.pool.copy(b"pong")));
        }
    }
    fn handle_timeout(&mut self, now: Timestamp) {
        self.see(now, What::Rang);
        self.left -= 1;
        self.next = now + Duration::from_secs(1);
        self.out.push_back(Transmit::new(self.flow(), self.pool.copy(b"INVI")));
    }
    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        let failed = [b"INVI", b"pong"].map(|b| Failure::new(self.flow(), Cause::Refused, b));
        assert!(failed.contains(&failure), "{failure:?}");
        self.see(now, What::Failed);
    }
    fn on_command(&mut self, now: Timestamp, command: &[u8]) {
        assert_eq!(command, b"faster");
        self.see(now, What::Command);
    }
    fn on_drain(&mut self, now: Timestamp) {
        self.see(now, What::Drain);
        self.draining = true;
    }
    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }
    fn poll_shedding(&self) -> &Shedding {
        &self.shedding
    }
    fn poll_timeout(&self) -> Option<Timestamp> {
        (self.left > 0 && !self.draining).then_some(self.next)
    }
    fn is_drained(&self) -> bool {
        true
    }
}

/// Two nodes: A sends a hundred pings, B answers.
struct Pair<T = Trace> {
    network: Network<Ping, T>,
    a: NodeId,
    b: NodeId,
    seen: [Seen; 2],
}

impl Pair {
    fn new(seed: u64, link: Link, target: &str) -> Self {
        Self::tapped(seed, link, target, Trace::new())
    }

    /// In each second, A sends a ping at 0 ms, B gets it at 10 ms, and A gets the answer at 20 ms.
    fn plain() -> Self {
        Self::new(1, Link::delaying(DELAY), B)
    }
}

impl<T: Tap> Pair<T> {
    fn tapped(seed: u64, link: Link, target: &str, tap: T) -> Self {
        let cores = [Ping::new(A, target, 100), Ping::new(B, A, 0)];
        let seen = [0, 1].map(|core: usize| Rc::clone(&cores[core].seen));
        let mut network = Network::new(Seed(seed), link, tap);
        let mut cores = cores.into_iter();
        let mut add = |at: &str| network.add(&[at.parse().unwrap()], cores.next().unwrap());
        let (a, b) = (add(A), add(B));
        Self { network, a, b, seen }
    }

    fn run(&mut self) -> Summary {
        let summary = self.network.run_until(Timestamp::NEVER);
        assert_eq!(summary.under_way, 0);
        assert_eq!(summary.sent + summary.copied, summary.delivered + summary.missing());
        summary
    }

    fn seen(&self, node: NodeId) -> Vec<(Timestamp, What)> {
        self.seen[node.index()].borrow().clone()
    }

    /// Returns the times at which a node got packets.
    fn got(&self, node: NodeId) -> Vec<Timestamp> {
        let seen = self.seen(node).into_iter();
        seen.filter(|(_, what)| matches!(what, What::Got(_))).map(|(now, _)| now).collect()
    }

    fn failed(&self, node: NodeId) -> Vec<Timestamp> {
        let seen = self.seen(node).into_iter();
        seen.filter(|(_, what)| *what == What::Failed).map(|(now, _)| now).collect()
    }

    fn apply(&mut self, when: Timestamp, fault: Fault) -> Option<Ping> {
        self.network.apply(when, &fault, |_| panic!("nobody restarts"))
    }
}

fn at(seconds: u64, ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(seconds * 1000 + ms)
}

/// Returns the time `ms` milliseconds into each of these seconds.
fn each(seconds: impl IntoIterator<Item = u64>, ms: u64) -> Vec<Timestamp> {
    seconds.into_iter().map(|second| at(second, ms)).collect()
}

#[test]
fn packets_take_exactly_the_delay_of_the_link() {
    let mut pair = Pair::plain();
    let summary = pair.run();
    assert_eq!((summary.sent, summary.delivered, summary.missing()), (200, 200, 0));
    assert_eq!(pair.got(pair.b), each(0..100, 10));
    assert_eq!(pair.got(pair.a), each(0..100, 20));
}

#[test]
fn each_direction_has_a_link_of_its_own() {
    let mut pair = Pair::plain();
    pair.network.connect(pair.b, pair.a, Link::delaying(3 * DELAY));
    pair.network.run_until(at(49, 500));
    pair.network.connect(pair.a, pair.b, Link::delaying(2 * DELAY));
    pair.run();
    assert_eq!(pair.got(pair.b), [each(0..50, 10), each(50..100, 20)].concat());
    assert_eq!(pair.got(pair.a), [each(0..50, 40), each(50..100, 50)].concat());
}

fn lossy() -> Link {
    Link { loss: 0.2, jitter: Duration::from_secs(3), ..Link::default() }
}

#[test]
fn one_seed_gives_one_trace() {
    let run = |seed| {
        let mut pair = Pair::new(seed, lossy(), B);
        (pair.run(), pair.network.tap().digest())
    };
    let (first, trace) = run(1);
    assert_eq!(run(1), (first, trace));
    assert_ne!(run(2).1, trace);
    // At most 200 packets are sent, and 20 % of them are lost: between 10 and 70 within six
    // standard deviations.
    assert!((10..70).contains(&first.lost), "{first:?}");
}

#[test]
fn the_random_numbers_of_a_link_do_not_affect_another() {
    let arrivals = |back| {
        let mut pair = Pair::new(1, lossy(), B);
        pair.network.connect(pair.b, pair.a, back);
        pair.run();
        pair.got(pair.b)
    };
    assert_eq!(arrivals(lossy()), arrivals(Link::default()));
}

#[test]
fn each_direction_of_each_pair_has_its_own_random_numbers() {
    // A sends to one of two nodes that answer.
    let lost = |to: &str, back: bool| {
        let mut pair = Pair::tapped(1, Link::default(), to, Noting::default());
        let third = pair.network.add(&[NOBODY.parse().unwrap()], Ping::new(NOBODY, A, 0));
        let other = if to == B { pair.b } else { third };
        let (from, to) = if back { (other, pair.a) } else { (pair.a, other) };
        pair.network.connect(from, to, Link { loss: 0.5, ..Link::default() });
        pair.run();
        let Noting(seen) = pair.network.into_parts().1;
        let lost = seen.into_iter().filter(|line| line.1 == "lost");
        lost.map(|(now, ..)| now).collect::<Vec<_>>()
    };
    let fates = [lost(B, false), lost(B, true), lost(NOBODY, false), lost(NOBODY, true)];
    for (index, fate) in fates.iter().enumerate() {
        assert!((25..75).contains(&fate.len()), "{fate:?}");
        assert!(!fates[..index].contains(fate), "number {index}");
    }
}

#[test]
fn a_packet_that_is_doubled_arrives_twice() {
    let mut pair = Pair::new(1, Link { duplicate: 1.0, ..Link::delaying(DELAY) }, B);
    let summary = pair.run();
    let got = [pair.b, pair.a].map(|node| pair.got(node).len());
    assert_eq!(got, [200, 400], "each ping is answered each time");
    assert_eq!((summary.delivered, summary.copied, summary.lost), (600, 300, 0));
}

#[test]
fn a_narrow_link_loses_what_its_queue_does_not_hold() {
    let mut pair = Pair::plain();
    // A ping of 4 bytes has 32 bytes on the wire, which take 1.6 s.
    let narrow = Bandwidth { bits_per_s: 160, queue_max_bytes: 64 };
    let link = Link { bandwidth: Some(narrow), ..Link::delaying(DELAY) };
    pair.network.connect(pair.a, pair.b, link);
    let summary = pair.run();
    assert!((30..=40).contains(&summary.overflowed), "{summary:?}");
    assert_eq!(pair.got(pair.b)[..3], [at(1, 610), at(3, 210), at(4, 810)]);
}

#[test]
fn an_unreachable_port_is_reported_after_a_round_trip() {
    let mut pair = Pair::new(1, Link::delaying(DELAY), NOBODY);
    assert_eq!(pair.run().undeliverable, 100);
    assert_eq!(pair.failed(pair.a), each(0..100, 20));
}

#[test]
fn requested_shedding_drops_arrivals_even_at_a_stalled_node() {
    let mut pair = Pair::plain();
    pair.network.run_until(at(49, 500));
    let banned = vec!["127.0.0.1".parse().unwrap()];
    pair.network.crash(pair.b, Silence::Silent);
    let choosy = Ping { shedding: Shedding { banned, ..Shedding::NONE }, ..Ping::new(B, A, 0) };
    pair.network.restart(pair.b, choosy);
    pair.network.stall(pair.b, at(60, 500));
    let summary = pair.run();
    assert_eq!((summary.filtered, summary.missing(), summary.stalled), (50, 50, 0));
    assert_eq!(pair.got(pair.a), each(0..50, 20));
}

#[test]
fn a_node_added_later_gets_later_packets() {
    let mut pair = Pair::new(1, Link::delaying(DELAY), NOBODY);
    pair.network.run_until(at(9, 500));
    let late = Ping::new(NOBODY, A, 0);
    let seen = Rc::clone(&late.seen);
    pair.network.add(&[NOBODY.parse().unwrap()], late);
    assert_eq!(pair.run().undeliverable, 10);
    assert_eq!(seen.borrow().len(), 90);
}

#[test]
fn a_run_stops_at_its_end_and_goes_on_from_there() {
    let mut pair = Pair::plain();
    let network = &mut pair.network;
    assert_eq!(network.run_until(at(2, 500)).delivered, 6);
    assert_eq!(network.now(), at(2, 500));
    assert_eq!(network.run_until(at(3, 5)).under_way, 1);
    assert!(!network.is_over());
    // No event is left after the last packet, so time stops there.
    assert_eq!(network.run_until(at(1000, 0)).delivered, 200);
    assert_eq!((network.now(), network.is_over()), (at(99, 20), true));
}

#[test]
fn the_cores_of_crashed_nodes_are_not_returned() {
    let mut pair = Pair::plain();
    pair.network.crash(pair.a, Silence::Silent);
    let (cores, _) = pair.network.into_parts();
    assert!(matches!(&cores[..], [None, Some(Ping { left: 0, .. })]));
}

/// A core with one timer, set for ten seconds. A packet sets it to a second after the packet.
struct Alarm {
    due: Option<Timestamp>,
    rang: Vec<Timestamp>,
}

impl Core for Alarm {
    fn offer(&mut self, now: Timestamp, _: Received) {
        self.due = Some(now + Duration::from_secs(1));
    }
    fn handle_timeout(&mut self, now: Timestamp) {
        self.due = None;
        self.rang.push(now);
    }
    fn on_drain(&mut self, _: Timestamp) {}
    fn poll_transmit(&mut self) -> Option<Transmit> {
        None
    }
    fn poll_timeout(&self) -> Option<Timestamp> {
        self.due
    }
    fn is_drained(&self) -> bool {
        true
    }
}

#[test]
fn a_timer_that_comes_nearer_fires_at_its_new_time_and_only_then() {
    let mut ping = Ping::new(A, B, 1);
    let mut alarm = Alarm { due: Some(at(10, 0)), rang: Vec::new() };
    let mut network = Network::<&mut dyn Core>::new(Seed(1), Link::delaying(DELAY), ());
    network.add(&[A.parse().unwrap()], &mut ping);
    network.add(&[B.parse().unwrap()], &mut alarm);
    network.run_until(Timestamp::NEVER);
    // Nothing happened at ten seconds.
    assert_eq!(network.now(), at(1, 10));
    assert_eq!(alarm.rang, [at(1, 10)]);
}

/// A tap that records the packets that it sees.
#[derive(Default)]
struct Noting(Vec<(Timestamp, &'static str, Who, String)>);

#[derive(Debug, PartialEq)]
enum Who {
    Node(NodeId),
    Loss(Loss),
}

impl Noting {
    fn note(&mut self, now: Timestamp, what: &'static str, who: Who, flow: Flow) {
        self.0.push((now, what, who, format!("{}-{}", flow.local.port(), flow.remote.port())));
    }
}

impl Tap for Noting {
    fn sent(&mut self, now: Timestamp, from: NodeId, flow: Flow, bytes: &[u8]) {
        assert_eq!(bytes.len(), 4);
        self.note(now, "sent", Who::Node(from), flow);
    }
    fn delivered(&mut self, now: Timestamp, to: NodeId, flow: Flow, _: &[u8]) {
        self.note(now, "delivered", Who::Node(to), flow);
    }
    fn lost(&mut self, now: Timestamp, why: Loss, flow: Flow, _: &[u8]) {
        self.note(now, "lost", Who::Loss(why), flow);
    }
}

#[test]
fn a_tap_sees_each_packet_where_it_is_sent_where_it_arrives_and_where_it_is_lost() {
    use Who::{Loss as Why, Node};
    let mut pair = Pair::tapped(1, Link::delaying(DELAY), B, (Noting::default(), Trace::new()));
    pair.network.run_until(at(0, 500));
    pair.network.crash(pair.b, Silence::Refused);
    pair.network.run_until(at(1, 500));
    pair.network.partition(pair.a, pair.b);
    pair.network.run_until(at(2, 500));
    let (a, b) = (pair.a, pair.b);
    let (_, (Noting(seen), trace)) = pair.network.into_parts();
    let line = |now, what, who, ports: &str| (now, what, who, ports.to_owned());
    let expected = [
        line(at(0, 0), "sent", Node(a), "1-2"),
        line(at(0, 10), "delivered", Node(b), "2-1"),
        line(at(0, 10), "sent", Node(b), "2-1"),
        line(at(0, 20), "delivered", Node(a), "1-2"),
        line(at(1, 0), "sent", Node(a), "1-2"),
        line(at(1, 10), "lost", Why(Loss::Down), "1-2"),
        line(at(2, 0), "sent", Node(a), "1-2"),
        line(at(2, 0), "lost", Why(Loss::Partition), "1-2"),
    ];
    assert_eq!(seen, expected);
    assert_ne!(trace.digest(), Trace::new().digest());
}

#[path = "network_fault_tests.rs"]
mod faults;
