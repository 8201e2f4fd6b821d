//! Tests that `tidegate lab impair` treats real datagrams in the same way as simulated ones.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sim::{Link, Relay, RelayCounts, RelaySettings};
use tidegate_world::{Core, Flow, Pool, Received, Seed, Timestamp};

use crate::stage::{Impair, Peer, Stage, run_to_end};

const DATAGRAMS: usize = 1000;
/// Number of datagrams in transit at the same time. Together with their copies they fit into any
/// socket buffer.
const WINDOW: usize = 50;
const SEED: u64 = 7;

fn links() -> [Link; 2] {
    let delay = Duration::from_millis(2);
    let towards = Link { loss: 0.1, duplicate: 0.1, reorder: 0.2, ..Link::delaying(delay) };
    let back = Link { loss: 0.3, jitter: Duration::from_millis(5), ..Link::default() };
    [towards, back]
}

const OPTIONS: [&str; 12] = [
    "--loss",
    "10%,30%",
    "--duplicate",
    "10%,0%",
    "--reorder",
    "20%,0%",
    "--delay",
    "2ms,0ms",
    "--jitter",
    "0s,0.005s",
    "--seed",
    "7",
];

/// The same relay in simulated time. It provides the expected counts, and the expected datagrams of
/// each window in sorted order.
struct Model {
    relay: Relay,
    pool: Pool,
    ends: [Flow; 2],
    now: Timestamp,
}

impl Model {
    fn new() -> Self {
        let [front, back, target, client] = [1, 2, 3, 4].map(|port| ([127, 0, 0, 1], port).into());
        let [towards, link_back] = links();
        let settings = RelaySettings {
            front,
            backs: vec![back],
            target,
            towards,
            back: link_back,
            packets_max: DATAGRAMS,
        };
        Self {
            relay: Relay::new(settings, Seed(SEED)),
            pool: Pool::new(),
            ends: [Flow::udp(front, client), Flow::udp(back, target)],
            now: Timestamp::ZERO,
        }
    }

    fn carry(&mut self, end: usize, texts: &[String]) -> Vec<String> {
        for text in texts {
            let bytes = self.pool.copy(text.as_bytes());
            self.relay.offer(self.now, Received::new(self.now, self.ends[end], bytes));
        }
        self.now = self.now + Duration::from_secs(1);
        self.relay.handle_timeout(self.now);
        let arrived = std::iter::from_fn(|| self.relay.poll_transmit());
        sorted(arrived.map(|t| String::from_utf8(t.bytes.to_vec()).unwrap()).collect())
    }
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

fn receive(peer: &Peer, count: usize) -> (Vec<String>, Option<SocketAddr>) {
    let (mut texts, mut from) = (Vec::new(), None);
    for _ in 0..count {
        let (message, sender) = peer.receive_from();
        texts.push(message.0);
        assert!(from.is_none_or(|from| from == sender), "{from:?} and {sender}");
        from = Some(sender);
    }
    (sorted(texts), from)
}

#[test]
fn a_thousand_datagrams_have_the_outcomes_of_the_simulator() {
    let stage = Stage::new();
    let [client, target] = [(); 2].map(|()| Peer::new(stage.ip()));
    let impair = Impair::start(&stage, target.address(), &OPTIONS);
    let front = impair.address();
    let mut model = Model::new();
    let texts: Vec<String> = (0..DATAGRAMS).map(|i| format!("datagram {i}")).collect();
    for window in texts.chunks(WINDOW) {
        let send = |peer: &Peer, to: SocketAddr| {
            for text in window {
                peer.send_bytes(to, text.as_bytes());
            }
        };
        send(&client, front);
        let expected = model.carry(0, window);
        let (arrived, back) = receive(&target, expected.len());
        assert_eq!(arrived, expected);

        send(&target, back.expect("not all are lost"));
        let expected = model.carry(1, window);
        let (arrived, from) = receive(&client, expected.len());
        assert_eq!((arrived, from), (expected, Some(front)));
    }

    let told = impair.finish();
    let RelayCounts { towards, back, clients, .. } = *model.relay.counts();
    for (name, way) in [("towards", towards), ("back", back)] {
        let count = |what: &str| told[name][what].as_u64().unwrap();
        assert_eq!(count("received"), DATAGRAMS as u64);
        assert_eq!(
            (count("lost"), count("duplicated"), count("overtook"), count("sent")),
            (way.lost, way.duplicated, way.overtook, way.sent),
            "{name}"
        );
    }
    assert_eq!((told["clients"].as_u64().unwrap(), clients), (1, 1));
    assert_eq!(told["seed"].as_u64().unwrap(), SEED);
}

#[test]
fn impossible_options_are_usage_errors() {
    let stage = Stage::new();
    let target = stage.free_address().to_string();
    let listen = stage.ip().to_string();
    let ask = |more: &[&str]| {
        let first = ["lab", "impair", "--target", &target, "--listen"];
        run_to_end(&stage, &[&first, more].concat())
    };
    let (status, said) = ask(&[&listen, "--reorder", "1%"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("no datagram can overtake another"), "{said}");
    assert_eq!(ask(&["0.0.0.0"]).0, Some(2));
    assert_eq!(ask(&[&listen, "--loss", "101%"]).0, Some(2));
    assert_eq!(ask(&[&listen, "--clients", "16"]).0, Some(2));
}
