//! Tests of packets and timers under faults.

use super::*;

#[test]
fn a_dead_process_causes_icmp_errors_and_its_successor_answers() {
    let mut pair = Pair::plain();
    // A ping is in flight to the node, and arrives after the crash.
    let crash = Fault::Crash { node: pair.b, silence: Silence::Refused };
    assert!(pair.apply(at(10, 5), crash).is_some());
    assert!(!pair.network.is_up(pair.b));
    pair.network.run_until(at(20, 15));
    // While this ICMP report is in flight, the node gets a new core.
    pair.network.restart(pair.b, Ping { seen: Rc::clone(&pair.seen[1]), ..Ping::new(B, A, 0) });
    assert_eq!(pair.run().down, 11);
    assert_eq!(pair.got(pair.b), each((0..10).chain(21..100), 10));
    assert_eq!(pair.failed(pair.a), each(10..21, 20));
    assert_eq!(pair.got(pair.a), each((0..10).chain(21..100), 20));
}

#[test]
fn a_machine_that_is_down_sends_no_reports() {
    let mut pair = Pair::plain();
    pair.apply(at(10, 5), Fault::Crash { node: pair.b, silence: Silence::Silent });
    assert_eq!(pair.run().down, 90);
    assert_eq!(pair.failed(pair.a), []);
}

#[test]
fn packets_sent_before_a_crash_arrive_and_timers_are_gone() {
    let mut pair = Pair::plain();
    let crashed = pair.apply(at(10, 5), Fault::Crash { node: pair.a, silence: Silence::Refused });
    assert_eq!(crashed.unwrap().left, 89);
    let summary = pair.run();
    assert_eq!(pair.got(pair.b), each(0..11, 10));
    // The last answer was undeliverable. The timer that the node had set for 11 s before its crash
    // had no effect.
    assert_eq!((summary.down, pair.network.now()), (1, at(10, 30)));
    assert_eq!(pair.failed(pair.b), [at(10, 30)]);

    pair.network.restart(pair.a, Ping::new(A, B, 1));
    assert_eq!(pair.run().delivered, 10 * 2 + 1 + 2);
}

#[test]
fn an_icmp_report_is_lost_on_a_cut_link() {
    let mut pair = Pair::plain();
    pair.network.crash(pair.b, Silence::Refused);
    pair.network.connect(pair.b, pair.a, Link { cut: true, ..Link::default() });
    assert_eq!(pair.run().down, 100);
    assert_eq!(pair.failed(pair.a), []);
}

#[test]
fn a_stalled_node_later_gets_all_packets_at_once_with_their_arrival_times() {
    let mut pair = Pair::plain();
    let stall = |node, seconds| Fault::Stall { node, lasts: Duration::from_secs(seconds) };
    pair.apply(at(10, 5), stall(pair.b, 3));
    // A second stall that ends before the first one changes nothing.
    pair.apply(at(11, 5), stall(pair.b, 1));
    assert_eq!(pair.run().missing(), 0);
    let waited = (10..13).map(|second| (at(13, 5), What::Got(at(second, 10))));
    let seen: Vec<_> = waited.chain([(at(13, 10), What::Got(at(13, 10)))]).collect();
    assert_eq!(pair.seen(pair.b)[10..14], seen);
    // After the stall, packets travel as usual.
    assert_eq!(
        pair.got(pair.a)[9..14],
        [at(9, 20), at(13, 15), at(13, 15), at(13, 15), at(13, 20)]
    );
}

#[test]
fn timers_and_drains_of_a_stalled_node_are_late() {
    let mut pair = Pair::plain();
    pair.apply(at(10, 5), Fault::Stall { node: pair.a, lasts: Duration::from_millis(2500) });
    pair.network.run_until(at(13, 600));
    let seen = [
        (at(10, 0), What::Rang),
        (at(12, 505), What::Got(at(10, 20))),
        (at(12, 505), What::Rang),
        (at(12, 525), What::Got(at(12, 525))),
        (at(13, 505), What::Rang),
    ];
    assert_eq!(pair.seen(pair.a)[20..25], seen);

    pair.apply(at(14, 0), Fault::Stall { node: pair.a, lasts: Duration::from_millis(100) });
    pair.apply(at(14, 50), Fault::Drain { node: pair.a });
    pair.network.command(pair.a, b"faster");
    pair.run();
    let seen = [(at(14, 100), What::Drain), (at(14, 100), What::Command)];
    assert!(pair.seen(pair.a).ends_with(&seen));
    pair.network.crash(pair.b, Silence::Silent);
    pair.network.command(pair.b, b"nobody hears it");
}

#[test]
fn a_stalled_node_that_crashes_loses_what_waited_for_it() {
    let mut pair = Pair::plain();
    pair.apply(at(10, 5), Fault::Stall { node: pair.b, lasts: Duration::from_secs(30) });
    pair.apply(at(20, 5), Fault::Crash { node: pair.b, silence: Silence::Silent });
    pair.network.restart(pair.b, Ping { seen: Rc::clone(&pair.seen[1]), ..Ping::new(B, A, 0) });
    pair.run();
    // The core after the restart is not stalled.
    assert_eq!(pair.got(pair.b), each((0..10).chain(20..100), 10));
}

#[test]
fn a_stalled_node_keeps_as_many_packets_as_it_has_room_for() {
    let link = Link { duplicate: 1.0, ..Link::delaying(DELAY) };
    let mut pair = Pair::new(1, link, B);
    let burst = Ping { left: 5000, ..Ping::new("127.0.0.1:3", B, 0) };
    // B accepts packets only from A. So the node that sends the burst gets the address of A.
    pair.network.crash(pair.a, Silence::Silent);
    pair.network.restart(pair.a, Ping { own: pair.network.core(pair.b).to, ..burst });
    pair.network.stall(pair.b, at(4000, 0));
    let summary = pair.network.run_until(at(3999, 0));
    assert_eq!(pair.got(pair.b), []);
    assert_eq!(summary.delivered, STALL_BUFFER as u64);
    assert_eq!(summary.stalled, 2 * 3999 - STALL_BUFFER as u64);
    let stalled = pair.network.run_until(at(4000, 5)).stalled;
    assert_eq!(pair.got(pair.b), vec![at(4000, 0); STALL_BUFFER]);
    // The buffers have room again.
    pair.network.stall(pair.b, at(4010, 0));
    assert_eq!(pair.network.run_until(at(4009, 500)).stalled, stalled);
}

#[test]
fn a_partition_lets_nothing_through_either_way_and_heals() {
    let mut pair = Pair::plain();
    let (a, b) = (pair.a, pair.b);
    // A ping that is in flight arrives. The answer to it does not.
    pair.apply(at(10, 5), Fault::Partition { a, b });
    // A change of the link during the partition has no effect on the partition.
    pair.network.connect(a, b, Link::delaying(2 * DELAY));
    pair.apply(at(20, 5), Fault::Heal { a: b, b: a });
    assert_eq!(pair.run().partitioned, 11);
    let got = [each(0..11, 10), each(21..100, 20)].concat();
    assert_eq!(pair.got(b), got);
    assert_eq!(pair.got(a), [each(0..10, 20), each(21..100, 30)].concat());
    assert_eq!(pair.failed(a), []);
}

#[test]
fn a_link_is_impaired_one_way_and_restored() {
    let mut pair = Pair::plain();
    let (from, to) = (pair.b, pair.a);
    pair.apply(at(10, 0), Fault::Impair { from, to, link: Link::delaying(4 * DELAY) });
    pair.apply(at(20, 0), Fault::Restore { from, to });
    pair.run();
    assert_eq!(pair.got(to), [each(0..10, 20), each(10..20, 50), each(20..100, 20)].concat());
}

#[test]
fn an_impossible_fault_has_no_effect() {
    let mut pair = Pair::plain();
    let node = pair.b;
    let restarted = pair.network.apply(at(1, 0), &Fault::Restart { node }, |_| panic!("it is up"));
    assert!(restarted.is_none());
    let crash = Fault::Crash { node, silence: Silence::Silent };
    assert!(pair.apply(at(2, 0), crash).is_some());
    assert!(pair.apply(at(3, 0), crash).is_none());
    pair.apply(at(3, 0), Fault::Stall { node, lasts: DELAY });
    pair.apply(at(3, 0), Fault::Drain { node });
    pair.network.apply(at(4, 0), &Fault::Restart { node }, |_| Ping::new(B, A, 0));
    assert_eq!(pair.run().down, 2);
}

#[test]
fn a_fault_comes_at_its_time_even_if_nothing_else_happens() {
    let mut pair = Pair::plain();
    pair.apply(at(500, 0), Fault::Drain { node: pair.b });
    assert_eq!(pair.seen(pair.b).last(), Some(&(at(500, 0), What::Drain)));
}

fn link() -> impl Strategy<Value = Link> {
    let share = prop_oneof![Just(0.0), 0.0..1.0f64];
    (0..3000u64, share.clone(), share, any::<bool>(), prop::option::of(20..200usize)).prop_map(
        |(jitter, loss, duplicate, cut, queue)| Link {
            jitter: Duration::from_millis(jitter),
            loss,
            duplicate,
            cut,
            bandwidth: queue.map(|queue_max_bytes| Bandwidth { bits_per_s: 200, queue_max_bytes }),
            ..Link::delaying(DELAY)
        },
    )
}

fn fault() -> impl Strategy<Value = Fault> {
    let node = (0..2usize).prop_map(NodeId::new);
    let ends = || (0..2usize).prop_map(|from| (NodeId::new(from), NodeId::new(1 - from)));
    let silence = prop_oneof![Just(Silence::Refused), Just(Silence::Silent)];
    prop_oneof![
        (node.clone(), silence).prop_map(|(node, silence)| Fault::Crash { node, silence }),
        node.clone().prop_map(|node| Fault::Restart { node }),
        (node, 0..5000u64)
            .prop_map(|(node, ms)| Fault::Stall { node, lasts: Duration::from_millis(ms) }),
        ends().prop_map(|(a, b)| Fault::Partition { a, b }),
        ends().prop_map(|(a, b)| Fault::Heal { a, b }),
        (ends(), link()).prop_map(|((from, to), link)| Fault::Impair { from, to, link }),
        ends().prop_map(|(from, to)| Fault::Restore { from, to }),
    ]
}

proptest! {
    /// Whatever the faults are, each packet and each copy is counted exactly once.
    #[test]
    fn every_packet_is_accounted_for(
        link in link(),
        faults in prop::collection::vec((0..20u64, fault()), 0..20),
    ) {
        let mut pair = Pair::tapped(1, link, B, Noting::default());
        let mut now = Timestamp::ZERO;
        for (wait, fault) in faults {
            now = now + Duration::from_millis(500 * wait);
            let Pair { network, seen, .. } = &mut pair;
            network.apply(now, &fault, |node| {
                let seen = Rc::clone(&seen[node.index()]);
                let core = if node.index() == 0 { Ping::new(A, B, 9) } else { Ping::new(B, A, 0) };
                Ping { seen, ..core }
            });
        }
        let summary = pair.run();
        let (_, Noting(tapped)) = pair.network.into_parts();
        let count = |what| tapped.iter().filter(|line| line.1 == what).count() as u64;
        prop_assert_eq!(count("sent"), summary.sent);
        prop_assert_eq!(count("delivered"), summary.delivered);
        prop_assert_eq!(count("lost"), summary.missing());
    }
}
