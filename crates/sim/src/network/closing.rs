//! Closes the connections of a network.

use tidegate_world::{Buffer, CloseCause, ConnectionId, Core, Flow};

use super::Network;
use super::node::Input;
use super::streams::{EndState, Key, Side};
use super::traffic::{OnStream, header};
use crate::node_id::{NodeId, Silence};
use crate::stream::Pipe;
use crate::tap::{Loss, Tap};

impl<N: Core, T: Tap> Network<N, T> {
    /// Closes a connection as soon as all bytes that the core of `node` has handed out are sent.
    pub(super) fn shut(&mut self, node: NodeId, id: ConnectionId) {
        let Some(&(key, side)) = self.streams.by_name.get(&(node, id)) else { return };
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let end = connection.end(side);
        match end.state {
            EndState::Opening => self.abort(key, side, CloseCause::Asked),
            EndState::Open => {
                end.state = EndState::Closing;
                let linger = self.streams.settings.linger;
                self.enter(self.now + linger, key, OnStream::Lingered(side));
                self.pump(key, side);
            }
            EndState::Closing | EndState::Closed => {}
        }
    }

    /// Ends the connections of a crashed node. If the machine of the node is still up, it resets
    /// the connections, so that the peers learn that they have ended.
    pub(super) fn break_all(&mut self, node: NodeId, silence: Silence) {
        for (key, side) in self.streams.ends_of(node) {
            match silence {
                Silence::Refused => self.abort(key, side, CloseCause::Reset),
                Silence::Silent => self.end(key, side, CloseCause::Reset),
            }
        }
    }

    pub(super) fn reset_between(&mut self, a: NodeId, b: NodeId) {
        for (key, side) in self.streams.ends_of(a) {
            let connection = self.streams.connections.get(&key);
            if connection.is_some_and(|connection| connection.nodes_from(side) == Some((a, b))) {
                self.end(key, side, CloseCause::Reset);
                self.end(key, side.other(), CloseCause::Reset);
            }
        }
    }

    /// Breaks a connection at both ends. The bytes that the end `side` has already sent still
    /// arrive.
    pub(super) fn sever(&mut self, key: Key, side: Side) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let pipe = connection.pipe_from(side);
        let (at, back) = (pipe.last_arrival.max(self.now), self.now + pipe.trip);
        self.enter(at, key, OnStream::Broken(side.other(), CloseCause::Reset));
        self.enter(back, key, OnStream::Broken(side, CloseCause::Reset));
    }

    /// Ends a connection at one end, and resets it at the other end unless the link loses the
    /// reset.
    pub(super) fn abort(&mut self, key: Key, side: Side, cause: CloseCause) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let flow = connection.end(side).flow;
        if let Some((from, to)) = connection.nodes_from(side)
            && connection.is_alive(side.other())
        {
            let last_arrival = connection.pipe_from(side).last_arrival;
            let way = self.ways.between(Some(from), Some(to));
            if let Ok(carried) = self.ways.carry(way, self.now, header(flow)) {
                let at = last_arrival.max(self.now + carried.first.after);
                self.enter(at, key, OnStream::Broken(side.other(), CloseCause::Reset));
            }
        }
        self.end(key, side, cause);
    }

    /// Ends a connection at one end. The messages that this end has not read, and those that it has
    /// not sent, are lost.
    pub(super) fn end(&mut self, key: Key, side: Side, cause: CloseCause) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        if !connection.is_alive(side) {
            return;
        }
        let end = connection.end(side);
        end.state = EndState::Closed;
        let (node, id) = (end.node, end.flow.connection);
        self.lose_all(key, side.other(), Pipe::drop_unread);
        self.lose_all(key, side, Pipe::drop_unsent);
        if let (Some(node), Some(id)) = (node, id) {
            self.streams.by_name.remove(&(node, id));
            self.give_soon(node, Input::Closed(id, cause));
        }
        if let Some(connection) = self.streams.connections.get(&key)
            && ![Side::Opener, Side::Acceptor].iter().any(|&side| connection.is_alive(side))
        {
            for side in [Side::Opener, Side::Acceptor] {
                self.lose_all(key, side, Pipe::drop_unread);
            }
            self.streams.connections.remove(&key);
        }
    }

    /// Removes messages that the end `from` has sent, by calling `drop`, and records them as lost.
    fn lose_all(&mut self, key: Key, from: Side, drop: impl Fn(&mut Pipe) -> Option<Buffer>) {
        while let Some(connection) = self.streams.connections.get_mut(&key)
            && let Some(bytes) = drop(connection.pipe_from(from))
        {
            let flow = connection.end(from).seen;
            self.lose_on_the_way(flow, &bytes);
        }
    }

    pub(super) fn lose_on_the_way(&mut self, flow: Flow, bytes: &[u8]) {
        self.summary.under_way -= 1;
        self.lose(Loss::Closed, flow, bytes);
    }
}
