//! Tests of the table with arbitrary sequences of actions of its owner and the driver.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use tidegate_world::{Pool, STREAM_WINDOW, Transport};

use super::*;

const LIMITS: ConnectionLimits = ConnectionLimits {
    opened_max: 4,
    accepted_max: 5,
    per_remote_max: 3,
    waiting_max: 4,
    waiting_bytes_max: 100_000,
    total_bytes_max: 150_000,
    connect: Duration::from_secs(4),
    first: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    yields_after: Duration::from_secs(30),
    stall: Duration::from_secs(20),
};

#[derive(Clone, Debug)]
enum Step {
    /// The owner sends a message to a peer. The fields are the peer and the number of bytes.
    Send(u8, usize),
    /// The owner sends a response whose own connection has ended. The fields are those of `Send`.
    Respond(u8, usize),
    /// The owner sends a request to a peer that is a stranger. The fields are those of `Send`.
    SendToStranger(u8, usize),
    /// The owner opens a connection under an id that it chooses, and sends a message on it. The
    /// fields are the peer, the number of the id, and the number of bytes.
    Open(u8, u8, usize),
    /// The owner sends a message on a connection that the driver knows. The second field is the
    /// number of bytes.
    Answer(Index, usize),
    Accept(u8),
    Connected(Index),
    Closed(Index, CloseCause),
    Writable(Index),
    Received(Index),
    Close(Index),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![8..200usize, 8..60_000usize];
    let index = any::<Index>;
    prop_oneof![
        5 => (0..8u8, bytes()).prop_map(|(peer, bytes)| Step::Send(peer, bytes)),
        3 => (0..8u8, bytes()).prop_map(|(peer, bytes)| Step::Respond(peer, bytes)),
        3 => (0..8u8, bytes()).prop_map(|(peer, bytes)| Step::SendToStranger(peer, bytes)),
        2 => (0..8u8, 0..4u8, bytes())
            .prop_map(|(peer, name, bytes)| Step::Open(peer, name, bytes)),
        3 => (index(), bytes()).prop_map(|(at, bytes)| Step::Answer(at, bytes)),
        2 => (0..8u8).prop_map(Step::Accept),
        3 => index().prop_map(Step::Connected),
        2 => (index(), prop::sample::select(&CloseCause::ALL[..]))
            .prop_map(|(at, cause)| Step::Closed(at, cause)),
        3 => index().prop_map(Step::Writable),
        2 => index().prop_map(Step::Received),
        1 => index().prop_map(Step::Close),
        3 => (0..30u64).prop_map(Step::Pass),
    ]
}

/// A connection as the driver knows it.
#[derive(Debug)]
struct Known {
    flow: Flow,
    connected: bool,
    closing: bool,
    /// Bytes handed out since the connection was last writable.
    handed_out: usize,
    /// Bytes of the last message that was handed out.
    last: usize,
}

/// The table under test, and the state of its owner and of the driver.
struct World {
    table: ConnectionTable,
    pool: Pool,
    now: Timestamp,
    alive: BTreeMap<ConnectionId, Known>,
    next_accepted: ConnectionId,
    next_message: u64,
    /// Messages that the table accepted and has neither handed out nor returned as unsent.
    held: BTreeSet<u64>,
    /// The last message of each connection, to check the order.
    last_sent: BTreeMap<ConnectionId, u64>,
}

fn peer(number: u8) -> SocketAddr {
    // Each address has two peers, at different ports.
    SocketAddr::from(([198, 51, 100, number / 2], 5060 + u16::from(number % 2)))
}

/// Returns a flow to a peer. The flow has no connection id.
fn unnamed(number: u8) -> Flow {
    let (transport, remote) = (Transport::Tcp, peer(number));
    Flow { transport, local: listener(), remote, connection: None }
}

fn listener() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 5060))
}

impl World {
    fn pick(&self, at: Index) -> Option<ConnectionId> {
        let ids: Vec<_> = self.alive.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[at.index(ids.len())])
    }

    fn send(&mut self, flow: Flow, bytes: usize, by: Use) {
        let number = self.next_message;
        self.next_message += 1;
        let mut text = vec![0; bytes];
        text[..8].copy_from_slice(&number.to_le_bytes());
        let is_new_work = by == Use::Any && number.is_multiple_of(2);
        let transmit = Transmit { is_new_work, ..Transmit::new(flow, self.pool.copy(&text)) };
        match self.table.send_as(self.now, transmit, by) {
            Ok(()) => assert!(self.held.insert(number)),
            Err(unsent) => {
                assert_eq!(unsent.transmit.flow, flow);
                assert!(is_new_work || unsent.why != WhyUnsent::BackedUp);
            }
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Send(number, bytes) => self.send(unnamed(number), bytes, Use::Any),
            Step::Respond(number, bytes) => self.send(unnamed(number), bytes, Use::Response),
            Step::SendToStranger(number, bytes) => self.send(unnamed(number), bytes, Use::Stranger),
            Step::Open(number, name, bytes) => {
                // The table may choose the same ids for its own connections.
                let id = ConnectionId::new(2 * u32::from(name) + 1).expect("it is not zero");
                let (transport, local, remote) = (Transport::Tcp, listener(), peer(number));
                let connect = Connect { id, transport, local, remote };
                let was_in_use = self.table.state(id).is_some();
                let opens = self.table.open(self.now, connect);
                assert!(!(opens && was_in_use));
                if opens {
                    self.send(Flow::connected(transport, local, remote, id), bytes, Use::Any);
                }
            }
            Step::Answer(at, bytes) => {
                if let Some(id) = self.pick(at) {
                    self.send(self.alive[&id].flow, bytes, Use::Any);
                }
            }
            Step::Accept(number) => {
                let (id, remote) = (self.next_accepted, peer(number));
                self.next_accepted = id.next();
                let flow = Flow::connected(Transport::Tcp, listener(), remote, id);
                let known = Known { flow, connected: true, closing: false, handed_out: 0, last: 0 };
                self.alive.insert(id, known);
                self.table.on_connected(self.now, flow);
            }
            Step::Connected(at) => {
                if let Some(id) = self.pick(at)
                    && let Some(known) = self.alive.get_mut(&id)
                    && !known.connected
                    && !known.closing
                {
                    known.connected = true;
                    self.table.on_connected(self.now, known.flow);
                }
            }
            Step::Closed(at, cause) => {
                if let Some(id) = self.pick(at) {
                    self.closed(id, cause);
                }
            }
            Step::Writable(at) => {
                if let Some(id) = self.pick(at)
                    && let Some(known) = self.alive.get_mut(&id)
                    && known.handed_out >= STREAM_WINDOW / 2
                {
                    known.handed_out = 0;
                    self.table.on_writable(self.now, id);
                }
            }
            Step::Received(at) => {
                if let Some(id) = self.pick(at)
                    && self.alive[&id].connected
                {
                    self.table.on_received(self.now, id);
                }
            }
            Step::Close(at) => {
                if let Some(id) = self.pick(at) {
                    self.table.close(id);
                }
            }
            Step::Pass(seconds) => {
                self.now = self.now + Duration::from_secs(seconds);
                self.table.handle_timeout(self.now);
                assert!(self.table.poll_timeout().is_none_or(|due| due > self.now));
            }
        }
        self.drain();
    }

    fn closed(&mut self, id: ConnectionId, cause: CloseCause) {
        self.alive.remove(&id);
        self.last_sent.remove(&id);
        self.table.on_closed(id, cause);
        assert_eq!(self.table.state(id), None);
    }

    /// Performs the actions of the driver and the owner after each input.
    fn drain(&mut self) {
        while let Some(Transmit { flow, bytes, .. }) = self.table.poll_transmit() {
            let id = flow.connection.expect("a stream");
            let known = self.alive.get_mut(&id).expect("a connection that is alive");
            assert!(known.connected && !known.closing && known.flow == flow);
            assert!(known.handed_out < STREAM_WINDOW, "the window was open");
            (known.handed_out, known.last) = (known.handed_out + bytes.len(), bytes.len());
            let number = number_of(&bytes);
            assert!(self.held.remove(&number), "it comes out once");
            let before = self.last_sent.insert(id, number);
            assert!(before.is_none_or(|before| before < number), "in order");
        }
        while let Some(connect) = self.table.poll_connect() {
            let flow =
                Flow::connected(connect.transport, connect.local, connect.remote, connect.id);
            let known = Known { flow, connected: false, closing: false, handed_out: 0, last: 0 };
            assert!(self.alive.insert(connect.id, known).is_none(), "a name is given twice");
        }
        while let Some(id) = self.table.poll_close() {
            let known = self.alive.get_mut(&id).expect("a connection that is alive");
            assert!(!std::mem::replace(&mut known.closing, true), "it is closed once");
        }
        while let Some(unsent) = self.table.poll_unsent() {
            assert!(self.held.remove(&number_of(&unsent.transmit.bytes)), "it comes out once");
        }
    }

    fn check(&self) {
        for (target, id) in &self.table.by_target {
            assert_eq!(self.table.connections[id].target.as_deref(), Some(target));
        }
        let is_found = |c: &&Connection| c.target.is_some() && !c.is_named;
        let found = self.table.connections.values().filter(is_found).count();
        assert_eq!(found, self.table.by_target.len());
        let is_accepted = |(id, connection): &(&ConnectionId, &Connection)| {
            !id.is_opened() && connection.state != ConnectionState::Closing
        };
        let accepted = self.table.connections.iter().filter(is_accepted).count();
        assert_eq!(self.table.accepted.len(), accepted);
        let opened = |id: &&ConnectionId| id.is_opened();
        let kept: Vec<_> =
            self.alive.iter().filter(|(id, _)| self.table.state(**id).is_some()).collect();
        assert_eq!(kept.len(), self.table.len());
        let count = kept.iter().map(|(id, _)| *id).filter(opened).count();
        assert!(count <= LIMITS.opened_max && kept.len() - count <= LIMITS.accepted_max);
        for address in 0..4 {
            let ip = peer(2 * address).ip();
            let is_its = |(id, known): &&(&ConnectionId, &Known)| {
                !id.is_opened() && known.flow.remote.ip() == ip
            };
            let of = kept.iter().filter(is_its).count();
            assert!(of <= LIMITS.per_remote_max);
        }
        assert!(self.table.limited.len() <= LIMITS.opened_max / 2);
        for by in [Use::Response, Use::Stranger] {
            let serves = |c: &&Connection| c.serves == by && c.state != ConnectionState::Closing;
            let count = self.table.connections.values().filter(serves).count();
            assert_eq!(self.table.limited.count(by), count, "{by:?}");
        }
        assert!(self.table.waiting_bytes() <= LIMITS.total_bytes_max);
        assert!(self.held.len() <= kept.len() * LIMITS.waiting_max);
        assert_eq!(self.held.is_empty(), self.table.waiting_bytes() == 0);
        for (id, known) in kept {
            let backed_up = self.table.state(*id) == Some(ConnectionState::BackedUp);
            let is_full = known.connected && !known.closing && known.handed_out >= STREAM_WINDOW;
            assert_eq!(backed_up, is_full, "{id:?} {known:?}");
        }
    }
}

fn number_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

proptest! {
    #[test]
    fn limits_hold_and_every_message_comes_out_once(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut world = World {
            table: ConnectionTable::new(LIMITS, Arc::default()),
            pool: Pool::new(),
            now: Timestamp::ZERO,
            alive: BTreeMap::new(),
            next_accepted: ConnectionId::FIRST_ACCEPTED,
            next_message: 0,
            held: BTreeSet::new(),
            last_sent: BTreeMap::new(),
        };
        for step in steps {
            world.take(step);
            world.check();
        }
        // At the end no state is left.
        while let Some((&id, _)) = world.alive.first_key_value() {
            world.closed(id, CloseCause::Reset);
            world.drain();
        }
        prop_assert!(world.held.is_empty());
        let ConnectionTable { connections, by_target, remotes, opened, recency, bytes, .. } =
            &world.table;
        prop_assert!(world.table.limited.is_empty());
        prop_assert_eq!(world.table.accepted.len(), 0);
        prop_assert!(connections.is_empty() && by_target.is_empty() && remotes.is_empty());
        prop_assert_eq!((*opened, recency.len(), bytes.total()), (0, 0, 0));
    }
}
