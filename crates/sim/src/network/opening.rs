//! Opens the connections of a network.

use std::net::SocketAddr;

use tidegate_world::{CloseCause, Connect, Core, Flow, Transport};

use super::Network;
use super::node::Input;
use super::streams::{EndState, Key, Side};
use super::traffic::{OnStream, header};
use crate::node_id::{NodeId, Silence};
use crate::stream::StreamSettings;
use crate::tap::Tap;

impl<N: Core, T: Tap> Network<N, T> {
    /// Makes a node accept connections over `transport` at `address`.
    ///
    /// # Panics
    /// Panics if another node already accepts connections there.
    pub fn listen(&mut self, node: NodeId, transport: Transport, address: SocketAddr) {
        let before = self.streams.listeners.insert((transport, address), node);
        assert!(before.is_none_or(|before| before == node), "{address} is taken");
    }

    /// Makes the address refuse connections over `transport` from now on.
    #[cfg(test)]
    pub(crate) fn stop_listening(&mut self, transport: Transport, address: SocketAddr) {
        self.streams.listeners.remove(&(transport, address));
    }

    /// Returns the settings of all streams. Change them only before the first connection is opened.
    pub fn streams_mut(&mut self) -> &mut StreamSettings {
        &mut self.streams.settings
    }

    /// Makes nodes read from streams only while `reads` returns true for their core. Unread bytes
    /// fill the receive window, until their senders have to wait. By default, nodes read everything
    /// at once.
    pub fn read_while(&mut self, reads: fn(&N) -> bool) {
        self.reads = reads;
    }

    /// Returns the number of connections that are open at least at one end, or are being opened.
    pub fn connections(&self) -> usize {
        self.streams.connections.len()
    }

    /// Starts to open the connection that the core of `node` has asked for.
    pub(super) fn open(&mut self, node: NodeId, connect: Connect) {
        let Connect { id, transport, local, remote } = connect;
        let flow = Flow { transport, local, remote, connection: Some(id) };
        let key = self.streams.open(node, id, flow);
        self.send_syn(key);
    }

    pub(super) fn send_syn(&mut self, key: Key) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let opener = connection.end(Side::Opener);
        let (EndState::Opening, Some(node)) = (opener.state, opener.node) else { return };
        let flow = opener.flow;
        let listener = self.streams.listeners.get(&(flow.transport, flow.remote)).copied();
        let way = match listener {
            Some(listener) => self.ways.between(Some(node), Some(listener)),
            None => self.ways.find(node, flow.remote),
        };
        match self.ways.carry(way, self.now, header(flow)) {
            Ok(carried) => self.enter(self.now + carried.first.after, key, OnStream::SynArrived),
            Err(_) => self.resend_syn(key),
        }
    }

    fn resend_syn(&mut self, key: Key) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        connection.tries += 1;
        match self.streams.settings.retry_after(connection.tries) {
            Some(after) => self.enter(self.now + after, key, OnStream::Syn),
            None => self.abort(key, Side::Opener, CloseCause::TimedOut),
        }
    }

    pub(super) fn syn_arrived(&mut self, key: Key) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let opener = connection.end(Side::Opener);
        let (EndState::Opening, Some(from), flow) = (opener.state, opener.node, opener.flow) else {
            return;
        };
        let listener = self.streams.listeners.get(&(flow.transport, flow.remote)).copied();
        let silence = listener.map(|node| self.nodes[node.index()].core.as_ref().err().copied());
        let accepts = match silence {
            Some(Some(Silence::Silent)) => return self.resend_syn(key),
            None | Some(Some(Silence::Refused)) => false,
            Some(None) => true,
        };
        let way = match listener {
            Some(listener) => self.ways.between(Some(listener), Some(from)),
            None => self.ways.between(None, Some(from)),
        };
        let answer = self.ways.carry(way, self.now, header(flow));
        let after = answer.map(|carried| carried.first.after);
        if !accepts {
            let refused = OnStream::Broken(Side::Opener, CloseCause::Refused);
            return match after {
                Ok(after) => self.enter(self.now + after, key, refused),
                Err(_) => self.resend_syn(key),
            };
        }
        let is_accepted = self.streams.connections[&key].ends[1].node.is_some();
        match after {
            Ok(after) => {
                let at = self.now + after + self.streams.settings.setup;
                self.enter(at, key, OnStream::Established);
            }
            Err(_) => self.resend_syn(key),
        }
        if !is_accepted
            && let Some(node) = listener
            && let Some(flow) = self.streams.accept(key, node)
        {
            self.give(node, Input::Connected(flow));
        }
    }

    pub(super) fn established(&mut self, key: Key) {
        let Some(connection) = self.streams.connections.get_mut(&key) else { return };
        let opener = connection.end(Side::Opener);
        let (EndState::Opening, Some(node)) = (opener.state, opener.node) else { return };
        opener.state = EndState::Open;
        let flow = opener.flow;
        self.give(node, Input::Connected(flow));
        self.read(key, Side::Opener);
    }
}
