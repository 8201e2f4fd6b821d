//! A network of cores in simulated time.

mod closing;
mod faults;
mod node;
mod opening;
mod reader;
mod streams;
mod summary;
mod traffic;
mod ways;

use std::net::SocketAddr;

use tidegate_world::{
    Buffer, Calendar, Cause, Core, Failure, Flow, Query, QueryAnswer, QueryId, Received, Seed,
    Timestamp, Transmit,
};

use crate::NodeId;
use crate::Silence;
use crate::channel::{Carried, on_the_wire};
use crate::link::Link;
use crate::tap::{Loss, Tap};
use crate::zone::Zone;
pub use node::STALL_BUFFER;
use node::{Input, Node};
use streams::{Key, Streams};
pub use summary::Summary;
use traffic::OnStream;
use ways::Ways;

/// A simulated network: [`Core`]s with addresses, a link between any two of them, and a tap that
/// sees every packet.
///
/// All cores have one type `N`: an enum, a `Box<dyn Core>`, or a `&mut dyn Core` if they are
/// borrowed. A seed always gives the same run, because events have a total order: by time, and then
/// by the order in which they were entered.
///
/// Work takes no time in the network: a core handles its inputs at once, in the order of arrival. A
/// core whose work takes time is put on a `Host` of `tidegate-emulate`.
///
/// # When the outcome of a packet is decided
///
/// When a packet is sent, the link decides whether the packet is lost and when it arrives. If the
/// link is changed, cut or partitioned later, or if the sender crashes, packets in flight still
/// arrive. The receiver must be up only at the time of arrival, so a receiver that was restarted in
/// the meantime gets the packet.
///
/// Packets that a node's core wants to [shed](Core::poll_shedding) are dropped when they arrive,
/// even while the node is stalled.
///
/// A datagram causes an ICMP report if no node has its destination address, or if only the process
/// of the receiver has ended ([`Silence::Refused`]). The sender gets [`Core::on_failed`] with
/// [`Cause::Refused`] after the delay of the link back, unless that link loses the report.
///
/// The [zone](Self::zone_mut) answers the [queries](Core::poll_query) of a core. No link is
/// involved, so partitions have no effect on queries. A node that has crashed since its query gets
/// no answer.
///
/// # Streams
///
/// A node [listens](Self::listen) for connections at addresses of its own choice. The network opens
/// and closes connections when a core asks for it ([`poll_connect`](Core::poll_connect),
/// [`poll_close`](Core::poll_close)). The core decides which message travels on which connection. A
/// message that is sent on a stream but names no open connection is lost ([`Loss::Unconnected`]). A
/// message on a connection that ended before the message was read is lost too ([`Loss::Closed`]).
///
/// Bytes arrive in order, and a loss causes only delay. If a receiver does not read, the sender's
/// core has to wait for [`on_writable`](Core::on_writable). Acknowledgements of read bytes use the
/// link back. While that link is cut, a sender sends no more than a window, and its connection
/// fails with [`CloseCause::TimedOut`](tidegate_world::CloseCause::TimedOut).
///
/// A tap sees messages, not segments. For a tap, the opener of a connection has the address at
/// which it listens, without the port that the operating system has chosen for the connection.
pub struct Network<N, T = ()> {
    nodes: Vec<Node<N>>,
    ways: Ways,
    streams: Streams,
    zone: Zone,
    calendar: Calendar<Event>,
    tap: T,
    now: Timestamp,
    summary: Summary,
    /// A function that returns whether a node with this core reads from its streams now.
    reads: fn(&N) -> bool,
}

enum Event {
    /// A packet arrives. The flow is given as the receiver sees it.
    Arrival {
        way: u32,
        flow: Flow,
        bytes: Buffer,
    },
    Timer {
        node: NodeId,
    },
    /// A node gets an ICMP report about a packet that it has sent.
    Failed {
        node: NodeId,
        failure: Failure,
    },
    /// A node gets the answer to its query, unless it has crashed since the query.
    Answered {
        node: NodeId,
        life: u32,
        id: QueryId,
        answer: QueryAnswer,
    },
    /// A stalled node gets the processor again.
    Resumed {
        node: NodeId,
    },
    /// A node has time again to read from streams.
    ReadOn {
        node: NodeId,
    },
    Stream(Key, OnStream),
    /// A node gets an input, unless it has crashed since the event was scheduled.
    Given {
        node: NodeId,
        life: u32,
        input: Input,
    },
}

/// Size of an ICMP report in bytes: the ICMP header, the IP and UDP headers of the reported packet,
/// and eight further bytes.
const ICMP: usize = 8 + 28 + 8;

impl<N: Core, T: Tap> Network<N, T> {
    /// Creates an empty network at time zero. Any two nodes have `link` between them, unless
    /// [`connect`](Self::connect) sets another one. Links draw their random numbers from `seed`.
    pub fn new(seed: Seed, link: Link, tap: T) -> Self {
        Self {
            nodes: Vec::new(),
            ways: Ways::new(seed, link),
            streams: Streams::new(),
            zone: Zone::new(seed),
            calendar: Calendar::new(),
            tap,
            now: Timestamp::ZERO,
            summary: Summary::default(),
            reads: |_| true,
        }
    }

    /// Adds a node with this core, at these addresses.
    ///
    /// # Panics
    /// Panics if another node has one of these addresses, or if there are already 65,535 nodes.
    pub fn add(&mut self, addresses: &[SocketAddr], core: N) -> NodeId {
        let node = NodeId::new(self.nodes.len());
        for &address in addresses {
            self.ways.name(address, node);
        }
        self.nodes.push(Node::new(core));
        self.settle(node);
        node
    }

    /// Sets the link for packets from `from` to `to` from now on. The other direction does not
    /// change.
    pub fn connect(&mut self, from: NodeId, to: NodeId, link: Link) {
        self.ways.channel(from, to).link = Some(Box::new(link));
    }

    /// Returns the core of a node.
    ///
    /// # Panics
    /// Panics if the node has crashed.
    pub fn core(&self, node: NodeId) -> &N {
        self.nodes[node.index()].core.as_ref().expect("a node that is up")
    }

    /// Returns whether a node is up. A crashed node is not up until it is restarted.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.nodes[node.index()].core.is_ok()
    }

    /// Returns the zone, which answers the queries of cores. It is empty at first.
    pub fn zone_mut(&mut self) -> &mut Zone {
        &mut self.zone
    }

    /// Returns the tap for reading.
    pub fn tap(&self) -> &T {
        &self.tap
    }

    /// Returns the tap for changing it.
    pub fn tap_mut(&mut self) -> &mut T {
        &mut self.tap
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns whether the run is over, because no scheduled event has an effect any more.
    pub fn is_over(&mut self) -> bool {
        let is_stale = |(at, event)| self.is_stale(at, event);
        if self.calendar.peek().is_some_and(is_stale) {
            // Taking stale events out one by one would advance the time of the calendar. An event
            // that is entered later for an earlier time would then be late.
            let mut calendar = std::mem::take(&mut self.calendar);
            calendar.retain(|at, event| !self.is_stale(at, event));
            self.calendar = calendar;
        }
        self.calendar.is_empty()
    }

    /// Runs the network until no events are left, or until `end`. Returns the packet counts so far.
    pub fn run_until(&mut self, end: Timestamp) -> Summary {
        while let Some((at, event)) = self.calendar.pop_by(end) {
            if !self.is_stale(at, &event) {
                self.now = at;
                self.happen(event);
            }
        }
        // If events are left, the run was cut at `end`. Otherwise time stops at the last event.
        if !self.is_over() {
            self.now = self.now.max(end);
        }
        self.summary
    }

    /// Returns the packet counts so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the cores in the order of their nodes, with `None` for a crashed node, and the tap.
    pub fn into_parts(self) -> (Vec<Option<N>>, T) {
        (self.nodes.into_iter().map(|node| node.core.ok()).collect(), self.tap)
    }

    /// Returns whether a scheduled event no longer has an effect. Examples are a timer that was
    /// moved to an earlier time, and a timer whose node has crashed.
    fn is_stale(&self, at: Timestamp, event: &Event) -> bool {
        match event {
            Event::Timer { node } => self.nodes[node.index()].armed != Some(at),
            Event::Resumed { node } => self.nodes[node.index()].stalled_until != at,
            Event::Answered { node, life, .. } => self.nodes[node.index()].life != *life,
            Event::Given { node, life, .. } => self.nodes[node.index()].life != *life,
            Event::Stream(key, _) => !self.streams.connections.contains_key(key),
            Event::Arrival { .. } | Event::Failed { .. } | Event::ReadOn { .. } => false,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival { way, flow, bytes } => self.arrive(way, flow, bytes),
            Event::Timer { node } => self.fire(node),
            Event::Failed { node, failure } => self.give(node, Input::Failure(failure)),
            Event::Answered { node, id, answer, .. } => self.give(node, Input::Answer(id, answer)),
            Event::Resumed { node } => self.resume(node),
            Event::ReadOn { node } => self.read_on(node),
            Event::Stream(key, event) => self.on_stream(key, event),
            Event::Given { node, input, .. } => self.give(node, input),
        }
    }

    fn arrive(&mut self, way: u32, flow: Flow, bytes: Buffer) {
        self.summary.under_way -= 1;
        let Some(to) = self.ways.way(way).to else {
            return self.bounce(way, Loss::Nobody, flow, &bytes);
        };
        let received = Received::new(self.now, flow, bytes);
        let node = &self.nodes[to.index()];
        let why = match &node.core {
            Err(Silence::Silent) => Loss::Down,
            Err(Silence::Refused) => {
                return self.bounce(way, Loss::Down, flow, &received.bytes);
            }
            Ok(core) if core.poll_shedding().drops(flow.remote.ip(), &received.bytes) => {
                Loss::Filtered
            }
            Ok(_) if node.is_full(self.now) => Loss::Stalled,
            Ok(_) => {
                self.summary.delivered += 1;
                self.tap.delivered(self.now, to, flow, &received.bytes);
                return self.offer(to, received);
            }
        };
        self.lose(why, back(flow), &received.bytes);
    }

    /// Gives a packet to a node: at once, or, if the node is stalled, when it is resumed.
    fn offer(&mut self, id: NodeId, received: Received) {
        let node = &mut self.nodes[id.index()];
        let Ok(core) = &mut node.core else { return };
        if self.now < node.stalled_until {
            node.keep(Input::Packet(received));
            return;
        }
        core.offer(self.now, received);
        while core.serve(self.now) {}
        self.settle(id);
    }

    /// Gives an input to a node: at once, or, if the node is stalled, when it is resumed. A crashed
    /// node gets nothing.
    fn give(&mut self, id: NodeId, input: Input) {
        let node = &mut self.nodes[id.index()];
        let Ok(core) = &mut node.core else { return };
        if self.now < node.stalled_until {
            node.keep(input);
            return;
        }
        match input {
            Input::Packet(received) => return self.offer(id, received),
            Input::Failure(failure) => core.on_failed(self.now, failure),
            Input::Command(command) => {
                core.on_command(self.now, &command);
                // Waiting messages may be served now.
                while core.serve(self.now) {}
            }
            Input::Answer(id, answer) => {
                core.on_answer(self.now, id, answer);
                while core.serve(self.now) {}
            }
            Input::Connected(flow) => core.on_connected(self.now, flow),
            Input::Closed(id, cause) => {
                core.on_closed(self.now, id, cause);
                while core.serve(self.now) {}
            }
            Input::Writable(id) => {
                core.on_writable(self.now, id);
                while core.serve(self.now) {}
            }
            Input::Drain => core.on_drain(self.now),
        }
        self.settle(id);
    }

    /// Fires the timer of a node's core if it is due now, unless the node is stalled or has
    /// crashed.
    fn fire(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        node.armed = None;
        if let Ok(core) = &mut node.core
            && self.now >= node.stalled_until
            && core.poll_timeout().is_some_and(|at| at <= self.now)
        {
            core.handle_timeout(self.now);
            while core.serve(self.now) {}
        }
        self.settle(id);
    }

    /// Takes all outputs of a node's core, and arms its next timer.
    fn settle(&mut self, id: NodeId) {
        let index = id.index();
        while let Ok(core) = &mut self.nodes[index].core
            && let Some(transmit) = core.poll_transmit()
        {
            self.send(id, transmit);
        }
        while let Ok(core) = &mut self.nodes[index].core
            && let Some(query) = core.poll_query()
        {
            self.ask(id, query);
        }
        while let Ok(core) = &mut self.nodes[index].core
            && let Some(connect) = core.poll_connect()
        {
            self.open(id, connect);
        }
        while let Ok(core) = &mut self.nodes[index].core
            && let Some(connection) = core.poll_close()
        {
            self.shut(id, connection);
        }
        let node = &mut self.nodes[index];
        let Ok(core) = &mut node.core else { return };
        // There are no other shards.
        while core.poll_handoff().is_some() {
            self.summary.handoffs += 1;
        }
        if node.has_unread && (self.reads)(core) {
            node.has_unread = false;
            self.calendar.push(self.now, Event::ReadOn { node: id });
        }
        if let Some(at) = core.poll_timeout() {
            let at = at.max(self.now).max(node.stalled_until);
            if node.armed.is_none_or(|armed| at < armed) {
                node.armed = Some(at);
                self.calendar.push(at, Event::Timer { node: id });
            }
        }
    }

    fn ask(&mut self, node: NodeId, Query { id, question }: Query) {
        let life = self.nodes[node.index()].life;
        if let Some((after, answer)) = self.zone.answer(&question) {
            self.calendar.push(self.now + after, Event::Answered { node, life, id, answer });
        }
    }

    fn send(&mut self, from: NodeId, transmit: Transmit) {
        if transmit.flow.transport.is_reliable() {
            return self.post(from, transmit);
        }
        let Transmit { flow, bytes, .. } = transmit;
        self.summary.sent += 1;
        self.tap.sent(self.now, from, flow, &bytes);
        let number = self.ways.find(from, flow.remote);
        let Carried { first, copy } =
            match self.ways.carry(number, self.now, on_the_wire(flow, bytes.len())) {
                Ok(carried) => carried,
                Err(why) => return self.lose(why, flow, &bytes),
            };
        if let Some(copy) = copy {
            self.summary.copied += 1;
            self.under_way(number, self.now + copy.after, flow, bytes.clone());
        }
        self.under_way(number, self.now + first.after, flow, bytes);
    }

    fn under_way(&mut self, way: u32, at: Timestamp, flow: Flow, bytes: Buffer) {
        self.summary.under_way += 1;
        self.calendar.push(at, Event::Arrival { way, flow: back(flow), bytes });
    }

    /// Records an undeliverable packet as lost, and reports it to its sender, unless the link back
    /// to the sender loses the report.
    fn bounce(&mut self, way: u32, why: Loss, flow: Flow, bytes: &[u8]) {
        let flow = back(flow);
        self.lose(why, flow, bytes);
        let (from, to) = (self.ways.way(way).from, self.ways.way(way).to);
        let node = from.expect("a packet has a sender");
        let way_back = self.ways.between(to, from);
        if let Ok(carried) = self.ways.carry(way_back, self.now, ICMP) {
            let failure = Failure::new(flow, Cause::Refused, bytes);
            self.calendar.push(self.now + carried.first.after, Event::Failed { node, failure });
        }
    }

    fn lose(&mut self, why: Loss, flow: Flow, bytes: &[u8]) {
        self.summary.count(why);
        self.tap.lost(self.now, why, flow, bytes);
    }
}

/// Returns the flow with source and destination exchanged, as the other end sees it.
fn back(flow: Flow) -> Flow {
    Flow { local: flow.remote, remote: flow.local, ..flow }
}

#[cfg(test)]
#[path = "network_stream_tests.rs"]
mod stream_tests;
#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
