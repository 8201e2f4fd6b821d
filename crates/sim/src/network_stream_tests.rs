//! Scripts of messages on streams, and of their faults.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_world::{CloseCause, ConnectionId, STREAM_WINDOW, Transport};

use super::*;
use crate::check::Checkers;
use crate::{Fault, Link, StreamSettings, Trace};

#[path = "network_stream_peer.rs"]
mod peer;

use peer::{Heard, Peer, What, Wish, request};

const MS: Duration = Duration::from_millis(1);
const DELAY: Duration = Duration::from_millis(10);
const A: &str = "192.0.2.1:5060";
const B: &str = "192.0.2.2:5060";

fn a() -> NodeId {
    NodeId::new(0)
}

/// Returns the node that listens.
fn b() -> NodeId {
    NodeId::new(1)
}

/// Two peers. B listens for everything.
struct Scene {
    network: Network<Peer, (Trace, Checkers)>,
    heard: [Heard; 2],
}

impl Scene {
    fn new(seed: u64, link: Link) -> Self {
        let heard = [Heard::default(), Heard::default()];
        let tap = (Trace::new(), Checkers::new());
        let mut network = Network::new(Seed(seed), link, tap);
        for (own, other, heard) in [(A, B, &heard[0]), (B, A, &heard[1])] {
            network.add(&[own.parse().unwrap()], Peer::new(own, other, heard));
        }
        for transport in [Transport::Tcp, Transport::Tls, Transport::Ws] {
            network.listen(b(), transport, B.parse().unwrap());
        }
        Self { network, heard }
    }

    fn wish(&mut self, node: NodeId, wish: Wish) {
        let command = match wish {
            Wish::Connect(transport) => format!("connect {transport}"),
            Wish::Send(count, body) => format!("send {count} {body}"),
            Wish::Raw(text) => format!("raw {text}"),
            Wish::Close => "close".to_owned(),
            Wish::ReadOne => "read".to_owned(),
        };
        self.network.command(node, command.as_bytes());
    }

    fn apply(&mut self, at_ms: u32, fault: Fault) {
        let heard = self.heard.clone();
        self.network.apply(at(at_ms), &fault, |node| match node.index() {
            0 => Peer::new(A, B, &heard[0]),
            _ => Peer::new(B, A, &heard[1]),
        });
    }

    /// Connects A with B, and clears the record.
    fn connected(seed: u64, link: Link) -> Self {
        let mut scene = Self::new(seed, link);
        scene.wish(a(), Wish::Connect(Transport::Tcp));
        scene.apply(100, Fault::Resolves);
        assert_eq!((scene.network.connections(), scene.network.summary().sent), (1, 0));
        for heard in &scene.heard {
            assert!(matches!(heard.take()[..], [(_, What::Connected(_))]));
        }
        scene
    }

    /// Runs to the end. Everything sent has arrived, or is lost.
    fn finish(&mut self) -> Summary {
        let summary = self.network.run_until(Timestamp::NEVER);
        assert_eq!(summary.under_way, 0, "{summary:?}");
        assert_eq!(summary.sent, summary.delivered + summary.missing());
        let checkers = std::mem::take(&mut self.network.tap_mut().1);
        let report = checkers.finish(self.network.now(), true, &[]);
        assert_eq!(report.violations, []);
        summary
    }

    fn heard(&self, node: NodeId) -> Vec<(Duration, What)> {
        self.heard[node.index()].take()
    }

    /// Returns the messages of a node, and the ends of its connections.
    fn results(&self, node: NodeId) -> (Vec<String>, Vec<CloseCause>) {
        let (mut got, mut closed) = (Vec::new(), Vec::new());
        for (_, what) in self.heard(node) {
            match what {
                What::Got(_, text) => got.push(text),
                What::Closed(_, cause) => closed.push(cause),
                What::Connected(_) | What::Writable => {}
            }
        }
        (got, closed)
    }
}

fn at(ms: u32) -> Timestamp {
    Timestamp::ZERO + ms * MS
}

fn link() -> Link {
    Link::delaying(DELAY)
}

fn requests(numbers: std::ops::Range<usize>, body: usize) -> Vec<String> {
    numbers.map(|number| request(number, body)).collect()
}

#[test]
fn a_connection_opens_in_a_round_trip_and_messages_travel_both_ways() {
    let mut scene = Scene::new(1, link());
    scene.network.streams_mut().setup = 5 * MS;
    scene.wish(a(), Wish::Send(1, 3000));
    scene.wish(a(), Wish::Connect(Transport::Tls));
    let summary = scene.finish();
    assert_eq!((summary.sent, summary.delivered), (2, 2));
    let [by_a, by_b] = [scene.heard(a()), scene.heard(b())];
    let (What::Connected(of_a), What::Connected(of_b)) = (&by_a[0].1, &by_b[0].1) else { panic!() };
    assert_eq!((of_a.remote, of_b.local), (B.parse().unwrap(), B.parse().unwrap()));
    assert_eq!((of_a.local, of_a.transport), (of_b.remote, of_b.transport));
    let ids = [of_a, of_b].map(|flow| flow.connection.unwrap());
    assert_eq!(ids.map(ConnectionId::is_opened), [true, false]);
    assert_eq!(of_a.local.ip(), A.parse::<SocketAddr>().unwrap().ip());
    assert_eq!([by_a[0].0, by_b[0].0], [25 * MS, 10 * MS]);
    assert_eq!(by_b[1..], [(35 * MS, What::Got(ids[1], request(0, 3000)))]);
    let answer = "SIP/2.0 200 OK\r\nl: 0\r\n\r\n";
    assert_eq!(by_a[1..], [(45 * MS, What::Got(ids[0], answer.into()))]);
}

#[test]
fn a_connection_to_a_closed_port_is_refused() {
    for crash in [false, true] {
        let mut scene = Scene::new(1, link());
        match crash {
            true => drop(scene.network.crash(b(), Silence::Refused)),
            false => scene.network.stop_listening(Transport::Tcp, B.parse().unwrap()),
        }
        scene.wish(a(), Wish::Connect(Transport::Tcp));
        scene.finish();
        let refused = What::Closed(ConnectionId::FIRST_OPENED, CloseCause::Refused);
        assert_eq!(scene.heard(a()), [(20 * MS, refused)]);
        assert_eq!(scene.network.connections(), 0);
    }
}

#[test]
fn unanswered_attempts_are_repeated_and_then_given_up() {
    // Seven retransmissions: the first after 200 ms, each later one after twice the interval before
    // it.
    let gives_up = 25_400 * MS;
    for back in [false, true] {
        let mut scene = Scene::new(1, link());
        scene.network.partition(a(), b());
        scene.wish(a(), Wish::Connect(Transport::Tcp));
        if back {
            scene.apply(1000, Fault::Heal { a: a(), b: b() });
        }
        scene.finish();
        let heard = scene.heard(a());
        match back {
            true => assert!(matches!(heard[..], [(at, What::Connected(_))] if at == 1420 * MS)),
            false => {
                let timed_out = What::Closed(ConnectionId::FIRST_OPENED, CloseCause::TimedOut);
                assert_eq!(heard, [(gives_up, timed_out)]);
            }
        }
    }
}

#[test]
fn on_a_stream_loss_and_reordering_only_cause_delay() {
    let bad = Link { loss: 0.2, reorder: 0.2, duplicate: 0.2, jitter: DELAY, ..link() };
    let run = |seed| {
        let mut scene = Scene::new(seed, bad);
        scene.wish(a(), Wish::Send(300, 700));
        scene.wish(a(), Wish::Connect(Transport::Tcp));
        let summary = scene.finish();
        assert_eq!((summary.sent, summary.delivered), (600, 600));
        assert_eq!(scene.results(b()).0, requests(0..300, 700));
        assert_eq!(scene.results(a()).0.len(), 300);
        (scene.network.now(), scene.network.tap().0.digest())
    };
    let first = run(1);
    assert!(first.0 > at(1000), "{first:?}");
    assert_eq!(first, run(1), "one seed gives one run");
    assert_ne!(first, run(2));
}

#[test]
fn a_slow_reader_makes_the_sender_wait() {
    let mut scene = Scene::connected(1, link());
    scene.apply(200, Fault::ReadSlowly { node: b(), bytes_per_s: 100_000 });
    scene.wish(a(), Wish::Send(1000, 1000));
    scene.network.run_until(at(3000));
    let begun = scene.network.summary();
    // 280 kB of a megabyte are read, and a window of each kind is filled.
    let got = scene.heard[1].borrow().len();
    let handed_out = (begun.sent as usize - got) * 1044;
    let settings = StreamSettings::default();
    let most = 280_000 + settings.window + settings.buffer + STREAM_WINDOW + 2000;
    assert!((280_000..most).contains(&handed_out), "{handed_out}, {got} read");
    let writables = |scene: &Scene| {
        scene.heard[0].borrow().iter().filter(|(_, what)| *what == What::Writable).count()
    };
    assert!((2..8).contains(&writables(&scene)), "{}", writables(&scene));
    scene.apply(3500, Fault::ReadAtOnce { node: b() });
    let summary = scene.finish();
    assert_eq!((summary.delivered, summary.missing()), (2000, 0));
    assert_eq!(scene.results(b()).0, requests(0..1000, 1000));
    assert!(scene.network.now() < at(5000), "{:?}", scene.network.now());
}

#[test]
fn messages_to_a_stalled_node_wait_in_the_stream() {
    let mut scene = Scene::connected(1, link());
    scene.apply(200, Fault::Stall { node: b(), lasts: 800 * MS });
    scene.wish(a(), Wish::Send(500, 1000));
    scene.network.run_until(at(999));
    assert_eq!(scene.network.summary().delivered, 0);
    // One window is in flight. The core has handed out a second one, a little more than the
    // operating system accepts. So the core is not told to send more.
    let sent = scene.network.summary().sent as usize * request(0, 1000).len();
    assert!((2 * STREAM_WINDOW..2 * STREAM_WINDOW + 4000).contains(&sent), "{sent}");
    let summary = scene.finish();
    assert_eq!((summary.delivered, summary.missing()), (1000, 0));
    let (first, _) = &scene.heard[1].borrow()[0];
    assert_eq!(*first, 1000 * MS);
}

#[test]
fn a_node_that_does_not_read_makes_the_sender_wait_and_loses_nothing() {
    let mut scene = Scene::connected(1, link());
    scene.network.read_while(Peer::is_reading);
    scene.wish(b(), Wish::ReadOne);
    scene.wish(a(), Wish::Send(500, 1000));
    scene.network.run_until(at(2000));
    assert_eq!(scene.network.summary().delivered, 2, "one, and its answer");
    // The bytes that follow wait in the node, in the receive window and in the sender's buffer.
    let sent = scene.network.summary().sent as usize * request(0, 1000).len();
    assert!((2 * STREAM_WINDOW..4 * STREAM_WINDOW + 4000).contains(&sent), "{sent}");
    for _ in 1..500 {
        scene.wish(b(), Wish::ReadOne);
        scene.network.run_until(scene.network.now() + 100 * MS);
    }
    let summary = scene.finish();
    assert_eq!((summary.delivered, summary.missing()), (1000, 0));
    assert_eq!(scene.results(b()).0, requests(0..500, 1000));
}

#[test]
fn connections_take_turns_at_a_node_that_reads_little() {
    let mut scene = Scene::connected(1, link());
    scene.network.read_while(Peer::is_reading);
    scene.wish(b(), Wish::ReadOne);
    scene.wish(a(), Wish::Send(3, 100));
    scene.wish(a(), Wish::Connect(Transport::Tcp));
    scene.apply(200, Fault::Resolves);
    scene.wish(a(), Wish::Send(3, 100));
    for at_ms in 3..8 {
        scene.apply(at_ms * 100, Fault::Resolves);
        scene.wish(b(), Wish::ReadOne);
    }
    scene.finish();
    let turns = [0, 3, 1, 4, 2, 5].map(|number| request(number, 100));
    assert_eq!(scene.results(b()).0, turns);
}

#[test]
fn a_connection_that_breaks_within_a_message_loses_that_and_what_follows() {
    let mut scene = Scene::connected(1, link());
    scene.wish(a(), Wish::Send(2, 100));
    scene.apply(200, Fault::Sever { from: a(), to: b() });
    scene.wish(a(), Wish::Send(3, 5000));
    let summary = scene.finish();
    // Two requests and their answers have arrived.
    assert_eq!((summary.sent, summary.delivered, summary.closed), (7, 4, 3));
    assert_eq!(scene.results(b()), (requests(0..2, 100), vec![CloseCause::Reset]));
    assert_eq!(scene.results(a()).1, [CloseCause::Reset]);
    assert_eq!(scene.network.connections(), 0);
    // The connection breaks only once.
    scene.wish(a(), Wish::Connect(Transport::Tcp));
    scene.wish(a(), Wish::Send(1, 5000));
    scene.finish();
    assert_eq!(scene.results(b()).0, requests(5..6, 5000));
}

#[test]
fn a_reset_ends_both_ends_at_once() {
    let mut scene = Scene::connected(1, link());
    scene.wish(a(), Wish::Send(2, 100));
    scene.apply(105, Fault::Reset { a: b(), b: a() });
    let summary = scene.finish();
    assert_eq!((summary.sent, summary.closed), (2, 2));
    for node in [a(), b()] {
        assert_eq!(scene.results(node), (vec![], vec![CloseCause::Reset]));
    }
    // Its later messages name a connection that no longer exists.
    scene.wish(a(), Wish::Raw("late".into()));
    assert_eq!(scene.finish().unconnected, 1);
}

#[test]
fn messages_in_transit_arrive_before_a_connection_is_closed() {
    let mut scene = Scene::connected(1, link());
    scene.wish(a(), Wish::Send(60, 1000));
    scene.wish(a(), Wish::Close);
    scene.wish(a(), Wish::Raw("too late".into()));
    let summary = scene.finish();
    assert_eq!(summary.unconnected, 1);
    assert_eq!(scene.results(b()), (requests(0..60, 1000), vec![CloseCause::Ended]));
    // Nothing reads the answers.
    assert_eq!(scene.results(a()), (vec![], vec![CloseCause::Asked]));
    assert_eq!((summary.delivered, summary.closed), (60, 60));
    assert_eq!(scene.network.connections(), 0);
}

#[test]
fn a_peer_that_does_not_read_does_not_prevent_closing() {
    let mut scene = Scene::connected(1, link());
    scene.apply(200, Fault::ReadSlowly { node: b(), bytes_per_s: 100 });
    scene.wish(a(), Wish::Send(100, 1400));
    scene.wish(a(), Wish::Close);
    scene.network.run_until(at(6000));
    let closed = What::Closed(ConnectionId::FIRST_OPENED, CloseCause::Asked);
    assert_eq!(scene.heard(a()).last(), Some(&(5200 * MS, closed)));
    scene.finish();
    assert_eq!(scene.results(b()).1, [CloseCause::Reset]);
}

/// The delay of an acknowledgement is that of the link back, not that of the link of the data.
#[test]
fn the_way_back_delays_the_next_window() {
    let mut scene = Scene::connected(1, Link::delaying(MS));
    scene.network.connect(b(), a(), Link::delaying(200 * MS));
    // Three messages are longer than a window.
    scene.wish(a(), Wish::Send(3, 30_000));
    scene.finish();
    let got = scene.heard(b()).into_iter();
    let times: Vec<Duration> = got.map(|(at, _)| at - 100 * MS).collect();
    assert_eq!(times, [MS, MS, 202 * MS]);
}

/// A stream whose way back is cut must not work forever.
#[test]
fn a_sender_without_acknowledgements_gives_up() {
    let answer = "SIP/2.0 200 OK\r\nl: 0\r\n\r\n";
    for heals in [true, false] {
        let mut scene = Scene::connected(1, link());
        scene.network.connect(b(), a(), Link { cut: true, ..link() });
        scene.wish(a(), Wish::Raw(answer.to_owned()));
        scene.apply(1100, Fault::Resolves);
        assert_eq!(scene.results(b()), (vec![answer.to_owned()], vec![]), "the way there works");
        if heals {
            scene.network.connect(b(), a(), link());
        }
        scene.finish();
        let gives_up = 110 * MS + StreamSettings::default().gives_up_after();
        let ended = (gives_up, What::Closed(ConnectionId::FIRST_OPENED, CloseCause::TimedOut));
        assert_eq!(scene.heard(a()), if heals { vec![] } else { vec![ended] });
    }
}

#[test]
fn a_stream_that_ends_within_a_message_is_cut_off() {
    for (text, cause) in [
        ("MESSAGE sip:a SIP/2.0\r\nl: 5\r\n\r\n1234", CloseCause::CutOff),
        ("\r\n", CloseCause::Ended),
        ("HTTP/1.1 200 OK\r\n", CloseCause::Garbled),
        ("MESSAGE sip:a SIP/2.0\r\n\r\n", CloseCause::Garbled),
    ] {
        let mut scene = Scene::connected(1, link());
        scene.wish(a(), Wish::Raw(text.into()));
        scene.wish(a(), Wish::Close);
        let summary = scene.finish();
        assert_eq!(scene.results(b()), (vec![], vec![cause]), "{text:?}");
        assert_eq!((summary.delivered, summary.closed), (0, 1));
    }
}

#[test]
fn a_garbled_stream_is_reset() {
    let mut scene = Scene::connected(1, link());
    scene.wish(a(), Wish::Send(1, 10));
    scene.wish(a(), Wish::Raw("\u{16}\u{3}\u{1}".into()));
    scene.finish();
    assert_eq!(scene.results(b()), (requests(0..1, 10), vec![CloseCause::Garbled]));
    assert_eq!(scene.results(a()).1, [CloseCause::Reset]);
}

/// RFC 5626 §4.4.1.
#[test]
fn pings_and_pongs_are_messages() {
    let mut scene = Scene::connected(1, link());
    scene.wish(a(), Wish::Raw("\r\n\r\n".into()));
    scene.wish(a(), Wish::Send(1, 0));
    assert_eq!(scene.finish().delivered, 4);
    assert_eq!(scene.results(b()).0, ["\r\n\r\n".to_owned(), request(0, 0)]);
    assert_eq!(scene.results(a()).0[0], "\r\n");
}

/// RFC 7118 §5: each SIP message is a WebSocket message, and needs no Content-Length.
#[test]
fn over_websocket_each_message_comes_as_one() {
    let mut scene = Scene::new(1, link());
    scene.wish(a(), Wish::Connect(Transport::Ws));
    scene.network.run_until(at(100));
    let text = "INFO sip:a SIP/2.0\r\nTo: b\r\n\r\nbody".to_owned();
    scene.wish(a(), Wish::Raw(text.clone()));
    scene.wish(a(), Wish::Send(3, 3000));
    assert_eq!(scene.finish().delivered, 7);
    let expected = [vec![text], requests(0..3, 3000)].concat();
    assert_eq!(scene.results(b()).0, expected);
}

#[test]
fn a_crash_is_reported_to_the_peers_of_a_node_but_not_to_its_new_core() {
    let mut scene = Scene::connected(1, link());
    scene.apply(200, Fault::Crash { node: b(), silence: Silence::Refused });
    scene.apply(200, Fault::Restart { node: b() });
    scene.finish();
    let reset = What::Closed(ConnectionId::FIRST_OPENED, CloseCause::Reset);
    assert_eq!(scene.heard(a()), [(210 * MS, reset)]);
    assert_eq!((scene.heard(b()), scene.network.connections()), (vec![], 0));
}

#[test]
fn peers_of_a_vanished_machine_notice_it_when_they_send() {
    for (restarts, cause, after) in
        [(false, CloseCause::TimedOut, 25_410), (true, CloseCause::Reset, 20)]
    {
        let mut scene = Scene::connected(1, link());
        scene.apply(200, Fault::Crash { node: b(), silence: Silence::Silent });
        if restarts {
            scene.apply(300, Fault::Restart { node: b() });
        }
        scene.network.run_until(at(60_000));
        assert_eq!(scene.heard(a()), []);
        let sent_at = scene.network.now().since(Timestamp::ZERO);
        scene.wish(a(), Wish::Send(1, 100));
        assert_eq!(scene.finish().closed, 1);
        let closed = What::Closed(ConnectionId::FIRST_OPENED, cause);
        assert_eq!(scene.heard(a()), [(sent_at + after * MS, closed)], "{cause:?}");
    }
}

#[test]
fn a_partition_delays_a_stream_and_breaks_it_if_it_lasts() {
    for (heals_ms, cause) in [(2000, None), (60_000, Some(CloseCause::TimedOut))] {
        let mut scene = Scene::connected(1, link());
        scene.apply(200, Fault::Partition { a: a(), b: b() });
        scene.wish(a(), Wish::Send(5, 100));
        scene.apply(heals_ms, Fault::Heal { a: a(), b: b() });
        let summary = scene.finish();
        let lost = if cause.is_some() { 5 } else { 0 };
        assert_eq!((summary.closed, summary.partitioned), (lost, 0));
        assert_eq!(scene.results(a()).1, Vec::from_iter(cause));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wish(bool, Wish),
    Fault(Fault),
    Pass(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let [a, b] = [a(), b()];
    let transport = prop::sample::select(&[Transport::Tcp, Transport::Tls, Transport::Ws][..]);
    let lasts = 300 * MS;
    let faults = [
        Fault::Reset { a, b },
        Fault::Sever { from: a, to: b },
        Fault::Sever { from: b, to: a },
        Fault::ReadSlowly { node: b, bytes_per_s: 20_000 },
        Fault::ReadAtOnce { node: b },
        Fault::Stall { node: b, lasts },
        Fault::Crash { node: b, silence: Silence::Refused },
        Fault::Crash { node: b, silence: Silence::Silent },
        Fault::Restart { node: b },
        Fault::Restart { node: b },
        Fault::Partition { a, b },
        Fault::Heal { a, b },
        Fault::Heal { a, b },
    ];
    let wish = prop_oneof![
        2 => transport.prop_map(Wish::Connect),
        4 => (1..40usize, 0..3000usize).prop_map(|(count, body)| Wish::Send(count, body)),
        1 => Just(Wish::Raw("\r\n\r\n".into())),
        1 => Just(Wish::Close),
    ];
    prop_oneof![
        5 => (any::<bool>(), wish).prop_map(|(of_b, wish)| Step::Wish(of_b, wish)),
        2 => prop::sample::select(faults.to_vec()).prop_map(Step::Fault),
        4 => (0..500u32).prop_map(Step::Pass),
    ]
}

/// Runs the steps. Returns the inputs of each node, and the trace.
fn run(seed: u64, steps: &[Step]) -> ([Vec<(Duration, What)>; 2], u128) {
    let bad = Link { loss: 0.05, jitter: DELAY, ..link() };
    let mut scene = Scene::new(seed, bad);
    let mut now = 0;
    for step in steps {
        match step {
            Step::Wish(of_b, wish) => {
                // B listens, A does not, and the client pings (RFC 5626 §3.5.1).
                let of_client = matches!(wish, Wish::Connect(_) | Wish::Raw(_));
                scene.wish(if *of_b && !of_client { b() } else { a() }, wish.clone());
            }
            Step::Fault(fault) => scene.apply(now, *fault),
            Step::Pass(ms) => {
                now += ms;
                scene.network.run_until(at(now));
            }
        }
    }
    scene.network.run_until(at(now));
    scene.network.heal(a(), b());
    scene.finish();
    ([scene.heard(a()), scene.heard(b())], scene.network.tap().0.digest())
}

proptest! {
    /// Whatever the faults are, a message is lost or arrives once and in order, and every
    /// connection ends at most once. The same seed gives the same run.
    #[test]
    fn any_faults_leave_messages_in_order_and_end_a_connection_once(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let (heard, digest) = run(seed, &steps);
        for heard in &heard {
            // The last number that came on each connection, or `None` for one that has ended.
            let mut lives = BTreeMap::new();
            for (_, what) in heard {
                match what {
                    What::Connected(flow) => {
                        let before = lives.insert(flow.connection.unwrap(), Some(0));
                        prop_assert!(before.is_none(), "{:?} begins twice", flow);
                    }
                    What::Closed(id, _) => {
                        prop_assert!(lives.insert(*id, None) != Some(None), "{:?} ends twice", id);
                    }
                    What::Got(id, text) => {
                        let last = lives.get_mut(id).and_then(Option::as_mut);
                        let last = last.expect("a connection that is open");
                        let rest = text.strip_prefix("MESSAGE sip:");
                        if let Some((number, _)) = rest.and_then(|rest| rest.split_once(' ')) {
                            let number = 1 + number.parse::<usize>().unwrap();
                            prop_assert!(*last < number, "{} behind {}", number, last);
                            *last = number;
                        }
                    }
                    What::Writable => {}
                }
            }
        }
        prop_assert_eq!(run(seed, &steps), (heard, digest));
    }
}
