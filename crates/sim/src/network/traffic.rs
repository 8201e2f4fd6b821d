//! Carries messages on the connections of a network, in segments, and offers them to the cores.
//!
//! This module does the driver's part of the contract of [`Core`] (section "Connections"): it opens
//! and closes connections, cuts streams into messages, and buffers bytes that the operating system
//! does not take. The core decides which message travels on which connection.

use std::time::Duration;

use tidegate_world::{CloseCause, Core, Flow, Received, Timestamp, Transmit};

use super::node::Input;
use super::reader::Read;
use super::streams::{End, EndState, Key, Side};
use super::{Event, Network};
use crate::node_id::{NodeId, Silence};
use crate::tap::{Loss, Tap};

/// Returns the size of a TCP segment without payload, in bytes: a TCP header of 20, and an IP
/// header of 20 (IPv4) or 40 (IPv6).
pub(super) fn header(flow: Flow) -> usize {
    if flow.remote.is_ipv4() { 40 } else { 60 }
}

/// Maximum number of bytes that a slow driver reads at a time.
const SLOW_READ: usize = 512;

/// An event on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnStream {
    /// The opener requests the connection, for the first time or again.
    Syn,
    /// The request for the connection arrives at the remote address, where a node may listen.
    SynArrived,
    /// The answer to the request for the connection arrives at the opener: the connection is open.
    Established,
    /// An end tries again to send bytes, after a loss or because the receive window has opened.
    Wake(Side),
    /// The operating system of an end may have taken all bytes that its core has handed out.
    Writable(Side),
    /// A segment with this many bytes from an end arrives at the other end.
    Segment(Side, u64),
    /// Bytes from an end have arrived at the other end, where the connection no longer exists.
    Stray(Side),
    /// The FIN of an end, which sends no more bytes, arrives at the other end.
    Fin(Side),
    /// An end learns that the connection has ended.
    Broken(Side, CloseCause),
    /// The slow driver of an end reads some of the arrived bytes.
    Read(Side),
    /// An end repeats an acknowledgement that was lost.
    RepeatAck(Side),
    /// The time is over in which a closing end may still send bytes
    /// ([`StreamSettings::linger`](crate::StreamSettings::linger)).
    Lingered(Side),
}

impl<N: Core, T: Tap> Network<N, T> {
    /// Puts a message that a node sends on a stream into the buffer of its connection.
    pub(super) fn post(&mut self, from: NodeId, Transmit { flow, bytes, .. }: Transmit) {
        self.summary.sent += 1;
        let place = flow.connection.and_then(|id| self.streams.by_name.get(&(from, id)).copied());
        let open = place.and_then(|(key, side)| {
            let connection = self.streams.connections.get_mut(&key)?;
            (connection.ends[side as usize].state == EndState::Open)
                .then_some((key, side, connection))
        });
        let Some((key, side, connection)) = open else {
            self.tap.sent(self.now, from, flow, &bytes);
            return self.lose(Loss::Unconnected, flow, &bytes);
        };
        let end = connection.end(side);
        let flow = end.seen;
        if &bytes[..] == b"\r\n\r\n" {
            end.reader.expect_pong();
        }
        self.tap.sent(self.now, from, flow, &bytes);
        self.summary.under_way += 1;
        let severs =
            connection.nodes_from(side).is_some_and(|way| self.streams.severed.remove(&way));
        let pipe = connection.pipe_from(side);
        if let Some(unread) = pipe.hand(bytes) {
            self.lose_on_the_way(flow, &unread);
        } else if severs {
            pipe.break_last();
        }
        self.pump(key, side);
    }

    pub(super) fn on_stream(&mut self, key: Key, event: OnStream) {
        match event {
            OnStream::Syn => self.send_syn(key),
            OnStream::SynArrived => self.syn_arrived(key),
            OnStream::Established => self.established(key),
            OnStream::Wake(side) => {
                if let Some(connection) = self.streams.connections.get_mut(&key) {
                    connection.pipe_from(side).is_woken = false;
                    self.pump(key, side);
                }
            }
            OnStream::Writable(side) => self.tell_writable(key, side),
            OnStream::Stray(from) => self.turn_away(key, from),
            OnStream::Segment(from, bytes) => self.segment_comes(key, from, bytes),
            OnStream::Fin(from) => {
                if let Some(connection) = self.streams.connections.get_mut(&key) {
                    connection.pipe_from(from).has_ended = true;
                    self.read(key, from.other());
                }
            }
            OnStream::Broken(side, cause) => self.end(key, side, cause),
            OnStream::Read(side) => {
                if let Some(connection) = self.streams.connections.get_mut(&key) {
                    connection.end(side).will_read = false;
                    self.read_up_to(key, side, SLOW_READ);
                    self.read(key, side);
                }
            }
            OnStream::RepeatAck(side) => {
                if let Some(connection) = self.streams.connections.get_mut(&key) {
                    connection.pipe_from(side.other()).will_repeat_ack = false;
                    self.acknowledge(key, side);
                }
            }
            OnStream::Lingered(side) => {
                if let Some(connection) = self.streams.connections.get_mut(&key)
                    && connection.end(side).state == EndState::Closing
                {
                    self.abort(key, side, CloseCause::Asked);
                }
            }
        }
    }

    /// Reads the arrived bytes on all connections of a node.
    pub(super) fn read_all(&mut self, node: NodeId) {
        for (key, side) in self.streams.ends_of(node) {
            self.read(key, side);
        }
    }

    /// Lets a node that has finished other work read from its streams. Its connections take turns:
    /// the first is the one after the connection from which it last read a message.
    pub(super) fn read_on(&mut self, node: NodeId) {
        let this = &mut self.nodes[node.index()];
        this.has_unread = false;
        let last_read = this.last_read;
        let mut ends = self.streams.ends_of(node);
        let next = ends.partition_point(|&(key, _)| key <= last_read);
        ends.rotate_left(next);
        for (key, side) in ends {
            self.read(key, side);
            if self.nodes[node.index()].has_unread {
                return;
            }
        }
    }

    /// Sends as many of the waiting bytes of an end as its buffer and the receive window allow.
    pub(super) fn pump(&mut self, key: Key, side: Side) {
        let settings = self.streams.settings;
        loop {
            let Some(connection) = self.streams.connections.get_mut(&key) else { return };
            let state = connection.end(side).state;
            let Some((from, to)) = connection.nodes_from(side) else { return };
            if !matches!(state, EndState::Open | EndState::Closing) {
                return;
            }
            let flow = connection.end(side).flow;
            let pipe = connection.pipe_from(side);
            pipe.take(self.now, &settings);
            if pipe.breaks() {
                return self.sever(key, side);
            }
            let next = pipe.segment(&settings);
            let ends = state == EndState::Closing && !pipe.is_held_up();
            if pipe.is_woken && (next.is_some() || ends) && pipe.tries > 0 {
                // The segment was lost, and will be retransmitted.
                return;
            }
            let bytes = match next {
                Some(bytes) => bytes,
                None if ends => 0,
                None => break,
            };
            let way = self.ways.between(Some(from), Some(to));
            match self.ways.carry(way, self.now, header(flow) + bytes as usize) {
                Ok(carried) => {
                    pipe.tries = 0;
                    let at = pipe.depart(self.now, bytes, carried.first.after);
                    if bytes == 0 {
                        self.enter(at, key, OnStream::Fin(side));
                        return self.end(key, side, CloseCause::Asked);
                    }
                    self.enter(at, key, OnStream::Segment(side, bytes));
                }
                Err(_) => {
                    pipe.tries += 1;
                    let Some(after) = settings.retry_after(pipe.tries) else {
                        return self.abort(key, side, CloseCause::TimedOut);
                    };
                    pipe.is_woken = true;
                    self.enter(self.now + after, key, OnStream::Wake(side));
                    break;
                }
            }
        }
        self.tell_when_writable(key, side);
        self.wake_when_open(key, side);
    }

    /// Schedules [`OnStream::Writable`] if the core at an end may send more and must be told. The
    /// event comes after all current outputs of the core were taken.
    fn tell_when_writable(&mut self, key: Key, side: Side) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let pipe = connection.pipe_from(side);
        if pipe.is_writable_due() && !std::mem::replace(&mut pipe.will_tell, true) {
            self.enter(self.now, key, OnStream::Writable(side));
        }
    }

    /// Tells the core at an end that it may send more on a connection. Does so only if the
    /// simulated operating system has taken all bytes that the core has handed out, and the core
    /// has handed out at least half a [`STREAM_WINDOW`](tidegate_world::STREAM_WINDOW) since it was
    /// last told.
    fn tell_writable(&mut self, key: Key, side: Side) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let End { state, node, flow, .. } = *connection.end(side);
        let pipe = connection.pipe_from(side);
        pipe.will_tell = false;
        if let (EndState::Open, Some(node), Some(id)) = (state, node, flow.connection)
            && pipe.is_writable_due()
        {
            pipe.tell_writable();
            self.give(node, Input::Writable(id));
        }
    }

    /// Schedules [`OnStream::Wake`] for the time at which the receive window opens, if the end
    /// `side` has bytes that wait for it.
    fn wake_when_open(&mut self, key: Key, side: Side) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let pipe = connection.pipe_from(side);
        if pipe.is_held_up()
            && !pipe.is_woken
            && let Some(at) = pipe.opens_at()
        {
            pipe.is_woken = true;
            self.enter(at.max(self.now), key, OnStream::Wake(side));
        }
    }

    fn segment_comes(&mut self, key: Key, from: Side, bytes: u64) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        connection.pipe_from(from).arrive(bytes);
        let to = from.other();
        if connection.is_alive(to) {
            return self.read(key, to);
        }
        self.turn_away(key, from);
    }

    /// Answers bytes from the end `from` for a connection that no longer exists. The machine of the
    /// receiver sends a reset if it is up (RFC 9293 §3.10.7.1).
    fn turn_away(&mut self, key: Key, from: Side) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let Some((sender, receiver)) = connection.nodes_from(from) else { return };
        let flow = connection.end(from).flow;
        // A machine that is down sends no reset, so the sender's timers end the connection.
        if let Err(Silence::Silent) = self.nodes[receiver.index()].core {
            let at = self.now + self.streams.settings.gives_up_after();
            return self.enter(at, key, OnStream::Broken(from, CloseCause::TimedOut));
        }
        // RFC 9293 §3.10.7.1: a segment for a connection that does not exist is answered by a
        // reset. Without an answer it is sent again.
        let way = self.ways.between(Some(receiver), Some(sender));
        match self.ways.carry(way, self.now, header(flow)) {
            Ok(carried) => {
                let at = self.now + carried.first.after;
                self.enter(at, key, OnStream::Broken(from, CloseCause::Reset));
            }
            Err(_) => {
                let pipe = connection.pipe_from(from);
                pipe.tries += 1;
                match self.streams.settings.retry_after(pipe.tries) {
                    Some(after) => self.enter(self.now + after, key, OnStream::Stray(from)),
                    None => self.end(key, from, CloseCause::TimedOut),
                }
            }
        }
    }

    /// Reads the bytes that have arrived at an end: all at once, or little by little if its driver
    /// reads slowly.
    pub(super) fn read(&mut self, key: Key, side: Side) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let (EndState::Open, Some(node)) = (connection.end(side).state, connection.end(side).node)
        else {
            return;
        };
        let Some(&bytes_per_s) = self.streams.slow_readers.get(&node) else {
            return self.read_up_to(key, side, usize::MAX);
        };
        let readable = connection.pipe_from(side.other()).readable();
        if readable == 0 {
            return self.read_up_to(key, side, 0);
        }
        let end = connection.end(side);
        if !std::mem::replace(&mut end.will_read, true) {
            let takes = readable.min(SLOW_READ) as u64 * 1_000_000_000 / bytes_per_s.max(1);
            let at = self.now + Duration::from_nanos(takes);
            self.enter(at, key, OnStream::Read(side));
        }
    }

    fn read_up_to(&mut self, key: Key, side: Side, most: usize) {
        let (mut budget, reads) = (most, self.reads);
        loop {
            let Some(connection) = self.streams.connections.get_mut(&key) else { return };
            let [opener, acceptor] = &mut connection.pipes;
            let pipe = if side == Side::Opener { acceptor } else { opener };
            let end = &mut connection.ends[side as usize];
            let (EndState::Open, Some(node)) = (end.state, end.node) else { return };
            let this = &mut self.nodes[node.index()];
            if self.now < this.stalled_until {
                return;
            }
            if this.core.as_ref().is_ok_and(|core| !reads(core)) {
                this.has_unread = true;
                return;
            }
            let read = end.reader.next(pipe, &self.streams.pool, &mut budget);
            let is_report_due = pipe.is_report_due();
            let framed = end.reader.framed();
            let delivered = std::iter::from_fn(|| pipe.deliver(framed)).count() as u64;
            let (flow, seen) = (end.flow, end.seen);
            self.summary.under_way -= delivered;
            self.summary.delivered += delivered;
            if is_report_due {
                self.acknowledge(key, side);
            }
            match read {
                Read::Message(bytes) => {
                    self.nodes[node.index()].last_read = key;
                    self.tap.delivered(self.now, node, seen, &bytes);
                    self.offer(node, Received::new(self.now, flow, bytes));
                }
                Read::End(CloseCause::Garbled) => {
                    return self.abort(key, side, CloseCause::Garbled);
                }
                Read::End(cause) => return self.end(key, side, cause),
                Read::Nothing => break,
            }
        }
        self.wake_when_open(key, side.other());
    }

    /// Reports to the sender which bytes the end `side` has read. If the acknowledgement is lost,
    /// only the acknowledgement is repeated, because the bytes have arrived. A real sender would
    /// retransmit the bytes until it gives up.
    fn acknowledge(&mut self, key: Key, side: Side) {
        let settings = self.streams.settings;
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let Some((reader, sender)) = connection.nodes_from(side) else { return };
        let flow = connection.end(side).flow;
        let is_alive = connection.is_alive(side);
        let pipe = connection.pipe_from(side.other());
        if !is_alive || !pipe.lacks_ack() {
            return;
        }
        let way = self.ways.between(Some(reader), Some(sender));
        match self.ways.carry(way, self.now, header(flow)) {
            Ok(carried) => {
                pipe.acknowledge(self.now, carried.first.after);
                self.wake_when_open(key, side.other());
            }
            Err(_) if pipe.will_repeat_ack => {}
            Err(_) => {
                pipe.ack_tries += 1;
                let Some(after) = settings.retry_after(pipe.ack_tries) else {
                    return self.abort(key, side.other(), CloseCause::TimedOut);
                };
                pipe.will_repeat_ack = true;
                self.enter(self.now + after, key, OnStream::RepeatAck(side));
            }
        }
    }

    /// Schedules an input for a node at the current time. The node gets it after the network has
    /// taken all outputs of the input that the node handles now.
    pub(super) fn give_soon(&mut self, node: NodeId, input: Input) {
        let life = self.nodes[node.index()].life;
        self.calendar.push(self.now, Event::Given { node, life, input });
    }

    pub(super) fn enter(&mut self, at: Timestamp, key: Key, event: OnStream) {
        self.calendar.push(at, Event::Stream(key, event));
    }
}
