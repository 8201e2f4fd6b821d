use std::time::Duration;

use proptest::prelude::*;
use tidegate_world::Pool;

use super::*;
use crate::Bandwidth;

const MS: Duration = Duration::from_millis(1);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn front() -> SocketAddr {
    address("127.0.0.1:1")
}

fn target() -> SocketAddr {
    address("127.0.0.1:9")
}

fn backs() -> Vec<SocketAddr> {
    vec![address("127.0.0.1:2"), address("127.0.0.1:3")]
}

/// A relay with two addresses at the back, and the time of its driver.
struct Script {
    relay: Relay,
    pool: Pool,
    now: Timestamp,
}

impl Script {
    fn new(towards: Link, back: Link, packets_max: usize, seed: u64) -> Self {
        let settings = RelaySettings {
            front: front(),
            backs: backs(),
            target: target(),
            towards,
            back,
            packets_max,
        };
        let relay = Relay::new(settings, Seed(seed));
        Self { relay, pool: Pool::new(), now: Timestamp::ZERO }
    }

    fn receive(&mut self, local: SocketAddr, remote: SocketAddr, text: &str) {
        let flow = Flow::udp(local, remote);
        let received = Received::new(self.now, flow, self.pool.copy(text.as_bytes()));
        self.relay.offer(self.now, received);
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.relay.handle_timeout(self.now);
    }

    /// Returns the packets sent: source, destination, and text.
    fn sent(&mut self) -> Vec<(SocketAddr, SocketAddr, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        std::iter::from_fn(|| self.relay.poll_transmit())
            .map(|Transmit { flow, bytes, .. }| (flow.local, flow.remote, text(&bytes)))
            .collect()
    }
}

#[test]
fn each_client_has_an_address_of_its_own_towards_the_target() {
    let mut script = Script::new(Link::default(), Link::default(), 10, 1);
    let [alice, bob, carol] = ["127.0.0.1:100", "127.0.0.1:200", "127.0.0.1:300"].map(address);
    let [to_alice, to_bob] = [backs()[0], backs()[1]];
    script.receive(front(), alice, "a");
    script.receive(front(), bob, "b");
    script.receive(front(), alice, "c");
    let sent = [(to_alice, target(), "a"), (to_bob, target(), "b"), (to_alice, target(), "c")]
        .map(|(from, to, text)| (from, to, text.to_owned()));
    assert_eq!(script.sent(), sent);

    script.receive(to_bob, target(), "d");
    script.receive(to_alice, target(), "e");
    let sent = [(front(), bob, "d".to_owned()), (front(), alice, "e".to_owned())];
    assert_eq!(script.sent(), sent);

    script.receive(front(), carol, "f");
    assert_eq!(script.sent(), []);
    let counts = script.relay.counts();
    assert_eq!((counts.clients, counts.no_room, counts.strays), (2, 1, 0));
}

#[test]
fn packets_of_strangers_and_of_the_target_to_the_front_are_dropped() {
    let mut script = Script::new(Link::default(), Link::default(), 10, 1);
    script.receive(front(), target(), "would come back to it");
    script.receive(backs()[0], target(), "for nobody yet");
    script.receive(front(), address("127.0.0.1:100"), "a");
    script.receive(backs()[0], address("127.0.0.1:400"), "not the target's");
    script.receive(backs()[1], target(), "for nobody yet");
    assert_eq!(script.sent().len(), 1);
    assert_eq!(script.relay.counts().strays, 4);
}

#[test]
fn a_packet_takes_the_delay_of_its_direction() {
    let mut script = Script::new(Link::delaying(10 * MS), Link::delaying(3 * MS), 10, 1);
    script.receive(front(), address("127.0.0.1:100"), "a");
    script.receive(backs()[0], target(), "b");
    assert_eq!(script.relay.poll_timeout(), Some(Timestamp::ZERO + 3 * MS));
    script.wait(3 * MS - Duration::from_nanos(1));
    assert_eq!(script.sent().len(), 0);
    script.wait(Duration::from_nanos(1));
    assert_eq!(script.sent()[0].2, "b");
    assert_eq!(script.relay.poll_timeout(), Some(Timestamp::ZERO + 10 * MS));
    script.wait(7 * MS);
    assert_eq!(script.sent()[0].2, "a");
    assert_eq!(script.relay.poll_timeout(), None);
}

/// Time spent in a socket's queue is part of the delay.
#[test]
fn the_delay_of_a_packet_counts_from_its_arrival() {
    let mut script = Script::new(Link::delaying(3 * MS), Link::default(), 10, 1);
    let flow = Flow::udp(front(), address("127.0.0.1:100"));
    let received = Received::new(Timestamp::ZERO, flow, script.pool.copy(b"a"));
    script.relay.offer(Timestamp::ZERO + 2 * MS, received);
    assert_eq!(script.relay.poll_timeout(), Some(Timestamp::ZERO + 3 * MS));
}

#[test]
fn each_direction_has_its_own_random_numbers() {
    let link = Link { loss: 0.5, ..Link::default() };
    let steps: Vec<(bool, u64)> = (0..64).map(|_| (true, 0)).collect();
    let back: Vec<(bool, u64)> = steps.iter().map(|_| (false, 0)).collect();
    let numbers = |sent: Vec<String>| -> Vec<String> {
        sent.iter().map(|text| text.split_once('-').unwrap().1.to_owned()).collect()
    };
    let [towards, back] = [&steps, &back].map(|steps| numbers(run([link; 2], 1, steps, None).0));
    assert_ne!(towards, back);
}

#[test]
fn a_packet_that_overtakes_arrives_before_those_in_transit() {
    let mut script = Script::new(Link::delaying(10 * MS), Link::default(), 10, 1);
    let client = address("127.0.0.1:100");
    script.receive(front(), client, "first");
    script.relay.settings.towards.reorder = 1.0;
    script.receive(front(), client, "second");
    script.wait(10 * MS);
    let order: Vec<String> = script.sent().into_iter().map(|(_, _, text)| text).collect();
    assert_eq!(order, ["second", "first"]);
    assert_eq!(script.relay.counts().towards.overtook, 1);
}

#[test]
fn packets_beyond_the_limit_are_lost_and_counted() {
    let twice = Link { duplicate: 1.0, ..Link::delaying(MS) };
    let mut script = Script::new(twice, Link::delaying(MS), 3, 1);
    let client = address("127.0.0.1:100");
    script.receive(front(), client, "a");
    script.receive(front(), client, "b");
    script.receive(backs()[0], target(), "c");
    script.wait(MS);
    assert_eq!(script.sent().len(), 3);
    let RelayCounts { towards, back, .. } = *script.relay.counts();
    assert_eq!((towards.received, towards.duplicated, towards.overflowed), (2, 2, 1));
    assert_eq!((back.received, back.overflowed, back.sent), (1, 1, 0));
}

#[test]
fn a_stopping_relay_delivers_packets_in_transit() {
    let mut script = Script::new(Link::delaying(MS), Link::default(), 10, 1);
    script.receive(front(), address("127.0.0.1:100"), "a");
    script.relay.on_drain(script.now);
    assert!(!script.relay.is_drained());
    script.receive(front(), address("127.0.0.1:100"), "b");
    script.wait(MS);
    assert_eq!(script.sent().len(), 1);
    assert!(script.relay.is_drained());
    assert_eq!(script.relay.counts().late, 1);
}

fn link() -> impl Strategy<Value = Link> {
    let share = || prop_oneof![Just(0.0), 0.0..0.5];
    let queue = prop::option::of(20..200usize);
    (share(), share(), share(), 0..30u64, 0..30u64, queue).prop_map(
        |(loss, reorder, duplicate, delay, jitter, queue)| Link {
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
            loss,
            reorder,
            duplicate,
            bandwidth: queue
                .map(|queue_max_bytes| Bandwidth { bits_per_s: 100_000, queue_max_bytes }),
            cut: false,
        },
    )
}

/// Sends packets at the given intervals in ms, in the direction `which`, or in both directions if
/// it is `None`. Returns the packets that the relay sent, and its counts.
fn run(
    links: [Link; 2],
    seed: u64,
    steps: &[(bool, u64)],
    which: Option<bool>,
) -> (Vec<String>, RelayCounts) {
    let mut script = Script::new(links[0], links[1], 50, seed);
    let client = address("127.0.0.1:100");
    // With this client, packets from the target can be relayed.
    script.relay.clients.push(client);
    let mut sent = Vec::new();
    for (i, &(towards, pause)) in steps.iter().enumerate() {
        script.wait(Duration::from_millis(pause));
        if which.is_none_or(|which| which == towards) {
            let (local, remote) = if towards { (front(), client) } else { (backs()[0], target()) };
            script.receive(local, remote, &format!("{towards}-{i}"));
        }
        sent.extend(script.sent());
    }
    script.wait(Duration::from_secs(1));
    sent.extend(script.sent());
    (sent.into_iter().map(|(_, _, text)| text).collect(), *script.relay.counts())
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for(
        links in [link(), link()],
        seed: u64,
        steps in prop::collection::vec((any::<bool>(), 0..10u64), 0..200),
    ) {
        let (sent, counts) = run(links, seed, &steps, None);
        for (towards, carriage) in [(true, counts.towards), (false, counts.back)] {
            let came = steps.iter().filter(|step| step.0 == towards).count() as u64;
            let went = sent.iter().filter(|text| text.starts_with(&towards.to_string())).count();
            prop_assert_eq!(carriage.received, came);
            prop_assert_eq!(carriage.sent, went as u64);
            let Carriage { received, lost, duplicated, overflowed, sent, .. } = carriage;
            prop_assert_eq!(received + duplicated, lost + overflowed + sent);
        }
    }

    /// One direction does not depend on traffic in the other.
    #[test]
    fn the_two_directions_do_not_affect_each_other(
        links in [link(), link()],
        seed: u64,
        steps in prop::collection::vec((any::<bool>(), 0..10u64), 0..40),
    ) {
        let (both, _) = run(links, seed, &steps, None);
        for towards in [true, false] {
            let (alone, _) = run(links, seed, &steps, Some(towards));
            let mine = both.iter().filter(|text| text.starts_with(&towards.to_string()));
            prop_assert_eq!(mine.cloned().collect::<Vec<_>>(), alone);
        }
    }
}
