//! A network of cores in simulated time.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::net::SocketAddr;

use siphasher::sip128::{Hasher128, SipHasher13};
use tidegate_world::{
    Cause, Core, Failure, Path, Purpose, Received, Seed, Stream, Timestamp, Transmit,
};

use crate::calendar::Calendar;
use crate::link::{Carried, Link, Trip};

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Packets that arrived.
    pub delivered: u64,
    /// Packets that the link lost.
    pub lost: u64,
    /// Packets to an address where nobody is, and messages for other shards.
    pub undeliverable: u64,
    /// Hash over every packet sent: its time, its addresses, its bytes.
    pub trace: u128,
}

enum Event {
    Arrival { node: usize, path: Path, bytes: tidegate_world::Buffer },
    Timer { node: usize },
    Failed { node: usize, failure: Failure },
}

struct Node<'a> {
    core: &'a mut dyn Core,
    /// The earliest timer entered in the calendar for it.
    armed: Option<Timestamp>,
}

/// Cores with addresses, and a link between any two of them.
///
/// Work takes no time here: what a core is given it handles at once, in the order of
/// arrival. One that is to take time is put on a [`Host`](crate::Host).
pub struct Network<'a> {
    nodes: Vec<Node<'a>>,
    addresses: BTreeMap<SocketAddr, usize>,
    calendar: Calendar<Event>,
    link: Link,
    stream: Stream,
    now: Timestamp,
    trace: SipHasher13,
    delivered: u64,
    lost: u64,
    undeliverable: u64,
}

impl<'a> Network<'a> {
    /// An empty network at time zero, whose link draws from `seed`.
    pub fn new(seed: Seed, link: Link) -> Self {
        Self {
            nodes: Vec::new(),
            addresses: BTreeMap::new(),
            calendar: Calendar::new(),
            link,
            stream: seed.stream(Purpose::Link, 0),
            now: Timestamp::ZERO,
            trace: SipHasher13::new(),
            delivered: 0,
            lost: 0,
            undeliverable: 0,
        }
    }

    /// Puts a core at these addresses.
    ///
    /// # Panics
    /// If somebody is at one of them already.
    pub fn add(&mut self, addresses: &[SocketAddr], core: &'a mut dyn Core) {
        let node = self.nodes.len();
        for &address in addresses {
            assert!(self.addresses.insert(address, node).is_none(), "{address} is taken");
        }
        self.nodes.push(Node { core, armed: None });
        self.settle(node);
    }

    /// The time reached.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Nothing is left to happen.
    pub fn is_over(&mut self) -> bool {
        self.next().is_none()
    }

    /// Lets things happen until nothing is left to happen, or until `end`.
    pub fn run_until(&mut self, end: Timestamp) -> Summary {
        while self.next().is_some_and(|at| at <= end) {
            let Some((at, event)) = self.calendar.pop() else { break };
            self.now = at;
            self.happen(event);
        }
        // With events left the run was cut at `end`; else time stands at the last one.
        if !self.is_over() {
            self.now = self.now.max(end);
        }
        Summary {
            delivered: self.delivered,
            lost: self.lost,
            undeliverable: self.undeliverable,
            trace: self.trace.finish128().as_u128(),
        }
    }

    /// When something happens next. A timer that came nearer has left its later entry behind,
    /// at which nothing happens: it is dropped here.
    fn next(&mut self) -> Option<Timestamp> {
        loop {
            let (at, event) = self.calendar.peek()?;
            match event {
                Event::Timer { node } if self.nodes[*node].armed != Some(at) => {
                    self.calendar.pop();
                }
                _ => return Some(at),
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        let node = match event {
            Event::Arrival { node, path, bytes } => {
                self.delivered += 1;
                let core = &mut self.nodes[node].core;
                core.offer(now, Received::new(now, path, bytes));
                while core.serve(now) {}
                node
            }
            Event::Failed { node, failure } => {
                self.nodes[node].core.on_failed(now, failure);
                node
            }
            Event::Timer { node } => {
                let entry = &mut self.nodes[node];
                entry.armed = None;
                if entry.core.poll_timeout().is_some_and(|at| at <= now) {
                    entry.core.handle_timeout(now);
                    while entry.core.serve(now) {}
                }
                node
            }
        };
        self.settle(node);
    }

    /// Carries away what a node sends, and arms its next timer.
    fn settle(&mut self, node: usize) {
        while let Some(transmit) = self.nodes[node].core.poll_transmit() {
            self.send(node, transmit);
        }
        // There are no other shards.
        while self.nodes[node].core.poll_crossing().is_some() {
            self.undeliverable += 1;
        }
        let entry = &mut self.nodes[node];
        if let Some(at) = entry.core.poll_timeout() {
            let at = at.max(self.now);
            if entry.armed.is_none_or(|armed| at < armed) {
                entry.armed = Some(at);
                self.calendar.push(at, Event::Timer { node });
            }
        }
    }

    fn send(&mut self, from: usize, Transmit { path, bytes }: Transmit) {
        self.note(path, &bytes);
        let Some(Carried { first, copy }) = self.link.carry(&mut self.stream) else {
            self.lost += 1;
            return;
        };
        match self.addresses.get(&path.remote) {
            Some(&node) => {
                let path = Path { local: path.remote, remote: path.local, ..path };
                if let Some(Trip { after, .. }) = copy {
                    let bytes = bytes.clone();
                    self.calendar.push(self.now + after, Event::Arrival { node, path, bytes });
                }
                self.calendar.push(self.now + first.after, Event::Arrival { node, path, bytes });
            }
            None => {
                // What a machine answers for a port where nobody listens: ICMP.
                self.undeliverable += 1;
                let failure = Failure { path, cause: Cause::Refused };
                self.calendar.push(self.now + first.after, Event::Failed { node: from, failure });
            }
        }
    }

    fn note(&mut self, path: Path, bytes: &[u8]) {
        self.trace.write_u64(self.now.as_nanos());
        for address in [path.local, path.remote] {
            match address.ip() {
                std::net::IpAddr::V4(ip) => self.trace.write(&ip.octets()),
                std::net::IpAddr::V6(ip) => self.trace.write(&ip.octets()),
            }
            self.trace.write_u16(address.port());
        }
        self.trace.write_usize(bytes.len());
        self.trace.write(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use tidegate_world::Pool;

    use super::*;

    /// Sends `left` packets a second apart to `to`, and returns what it gets once.
    struct Ping {
        pool: Pool,
        own: SocketAddr,
        to: SocketAddr,
        left: u32,
        next: Timestamp,
        got: Vec<Timestamp>,
        failed: Vec<Timestamp>,
        out: VecDeque<Transmit>,
    }

    impl Ping {
        fn new(own: &str, to: &str, left: u32) -> Self {
            Self {
                pool: Pool::new(),
                own: own.parse().unwrap(),
                to: to.parse().unwrap(),
                left,
                next: Timestamp::ZERO,
                got: Vec::new(),
                failed: Vec::new(),
                out: VecDeque::new(),
            }
        }
    }

    impl Core for Ping {
        fn offer(&mut self, now: Timestamp, received: Received) {
            assert_eq!(received.path, Path::udp(self.own, self.to));
            self.got.push(now);
            if self.left == 0 && &received.bytes[..] == b"ping" {
                self.out
                    .push_back(Transmit { path: received.path, bytes: self.pool.copy(b"pong") });
            }
        }
        fn serve(&mut self, _: Timestamp) -> bool {
            false
        }
        fn handle_timeout(&mut self, now: Timestamp) {
            self.left -= 1;
            self.next = now + Duration::from_secs(1);
            let path = Path::udp(self.own, self.to);
            self.out.push_back(Transmit { path, bytes: self.pool.copy(b"ping") });
        }
        fn on_failed(&mut self, now: Timestamp, failure: Failure) {
            assert_eq!(failure.path, Path::udp(self.own, self.to));
            self.failed.push(now);
        }
        fn on_drain(&mut self, _: Timestamp) {}
        fn poll_transmit(&mut self) -> Option<Transmit> {
            self.out.pop_front()
        }
        fn poll_timeout(&self) -> Option<Timestamp> {
            (self.left > 0).then_some(self.next)
        }
        fn is_drained(&self) -> bool {
            true
        }
    }

    fn run(seed: u64, link: Link, target: &str) -> (Summary, Ping, Ping) {
        let mut a = Ping::new("127.0.0.1:1", target, 100);
        let mut b = Ping::new("127.0.0.1:2", "127.0.0.1:1", 0);
        let mut network = Network::new(Seed(seed), link);
        network.add(&["127.0.0.1:1".parse().unwrap()], &mut a);
        network.add(&["127.0.0.1:2".parse().unwrap()], &mut b);
        let summary = network.run_until(Timestamp::NEVER);
        (summary, a, b)
    }

    fn at(seconds: u64, ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(seconds * 1000 + ms)
    }

    #[test]
    fn packets_take_the_links_time_and_nothing_else() {
        let (summary, a, b) = run(1, Link::delaying(Duration::from_millis(10)), "127.0.0.1:2");
        assert_eq!((summary.delivered, summary.lost, summary.undeliverable), (200, 0, 0));
        assert_eq!(b.got, (0..100).map(|k| at(k, 10)).collect::<Vec<_>>());
        assert_eq!(a.got, (0..100).map(|k| at(k, 20)).collect::<Vec<_>>());
    }

    #[test]
    fn one_seed_gives_one_trace() {
        let link = Link { loss: 0.2, jitter: Duration::from_secs(3), ..Link::default() };
        let (first, ..) = run(1, link, "127.0.0.1:2");
        let (again, ..) = run(1, link, "127.0.0.1:2");
        let (other, ..) = run(2, link, "127.0.0.1:2");
        assert_eq!(first, again);
        assert_ne!(first.trace, other.trace);
        // 200 or fewer packets at 20 %: between 10 and 70 lost, six sigma.
        assert!((10..70).contains(&first.lost), "{first:?}");
    }

    #[test]
    fn a_packet_that_is_doubled_arrives_twice() {
        let link = Link { duplicate: 1.0, ..Link::delaying(Duration::from_millis(10)) };
        let (summary, a, b) = run(1, link, "127.0.0.1:2");
        assert_eq!((b.got.len(), a.got.len()), (200, 400), "each ping is answered each time");
        assert_eq!((summary.delivered, summary.lost), (600, 0));
    }

    #[test]
    fn nobody_there_is_reported_to_the_sender() {
        let (summary, a, _) = run(1, Link::delaying(Duration::from_millis(10)), "127.0.0.1:9");
        assert_eq!(summary.undeliverable, 100);
        assert_eq!(a.failed, (0..100).map(|k| at(k, 10)).collect::<Vec<_>>());
    }

    #[test]
    fn a_run_stops_at_its_end_and_goes_on_from_there() {
        let mut a = Ping::new("127.0.0.1:1", "127.0.0.1:2", 100);
        let mut b = Ping::new("127.0.0.1:2", "127.0.0.1:1", 0);
        let mut network = Network::new(Seed(1), Link::delaying(Duration::from_millis(10)));
        network.add(&["127.0.0.1:1".parse().unwrap()], &mut a);
        network.add(&["127.0.0.1:2".parse().unwrap()], &mut b);
        assert_eq!(network.run_until(at(2, 500)).delivered, 6);
        assert_eq!(network.now(), at(2, 500));
        // Nothing is left to happen after the last packet: time stands there.
        assert_eq!(network.run_until(at(1000, 0)).delivered, 200);
        assert_eq!(network.now(), at(99, 20));
    }

    /// Is to ring at ten seconds, or a second after a packet.
    struct Alarm {
        due: Option<Timestamp>,
        rang: Vec<Timestamp>,
    }

    impl Core for Alarm {
        fn offer(&mut self, now: Timestamp, _: Received) {
            self.due = Some(now + Duration::from_secs(1));
        }
        fn serve(&mut self, _: Timestamp) -> bool {
            false
        }
        fn handle_timeout(&mut self, now: Timestamp) {
            self.due = None;
            self.rang.push(now);
        }
        fn on_failed(&mut self, _: Timestamp, _: Failure) {}
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
        let mut ping = Ping::new("127.0.0.1:1", "127.0.0.1:2", 1);
        let mut alarm = Alarm { due: Some(at(10, 0)), rang: Vec::new() };
        let mut network = Network::new(Seed(1), Link::delaying(Duration::from_millis(10)));
        network.add(&["127.0.0.1:1".parse().unwrap()], &mut ping);
        network.add(&["127.0.0.1:2".parse().unwrap()], &mut alarm);
        network.run_until(Timestamp::NEVER);
        // Nothing happened at ten seconds any more.
        assert_eq!(network.now(), at(1, 10));
        assert_eq!(alarm.rang, [at(1, 10)]);
    }
}
