//! Opens connections, and performs the handshakes of opened and accepted connections.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use rustix::event::epoll;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tidegate_world::{Buffer, CloseCause, Connect, ConnectionId, Flow, Timestamp};

use super::Connections;
use crate::clock::thread_cpu;
use crate::connection::{Connection, Shaken, State, cause_of};
use crate::machine::StreamEvent;
use crate::sockopt;
use crate::stream_group::set_options;
use crate::tls::Tls;
use crate::websocket::WebSocket;

/// The layers of a connection above its socket: TLS, and a WebSocket with the request that begins
/// its handshake.
type Layers = (Option<Tls>, Option<(WebSocket, Buffer)>);

impl Connections {
    /// Opens a connection for the core.
    pub(crate) fn connect(&mut self, connect: Connect) {
        let Connect { id, transport, local, remote } = connect;
        let flow = Flow::connected(transport, local, remote, id);
        let opened = self.layers_toward(&flow).and_then(|layers| {
            let stream = open(local, remote).map_err(|error| cause_of(&error))?;
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
            self.watcher.add(id, &stream, flags).map_err(|error| cause_of(&error))?;
            Ok((stream, layers, flags))
        });
        match opened {
            Ok((stream, (tls, websocket), flags)) => {
                let mut connection = Connection::opened(stream, tls, websocket, flow);
                (connection.waits_for_room, connection.watched) = (true, flags);
                self.insert(id, connection);
            }
            Err(cause) => self.events.push_back(StreamEvent::Closed(id, cause)),
        }
    }

    /// Creates the layers that the transport of `flow` needs.
    fn layers_toward(&self, flow: &Flow) -> Result<Layers, CloseCause> {
        let websocket = match flow.transport.is_websocket() {
            false => None,
            true => {
                // A proxy has no such client, because browsers accept no connections.
                let client = self.websocket_client.as_ref().ok_or(CloseCause::Other)?;
                let (websocket, request) = WebSocket::open(client);
                Some((websocket, self.pool.copy(&request)))
            }
        };
        let tls = match flow.transport.is_secure() {
            false => None,
            true => {
                let peer = (self.tls_peers)(flow.remote).ok_or(CloseCause::Insecure)?;
                Some(Tls::connect(peer).map_err(|_| CloseCause::Insecure)?)
            }
        };
        Ok((tls, websocket))
    }

    /// Handles the result of opening a connection.
    pub(super) fn on_opened(&mut self, now: Timestamp, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let stream = connection.stream();
        let opened = match stream.take_error() {
            Ok(None) => stream.local_addr(),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        match opened {
            Ok(local) => {
                connection.flow.local = local;
                if connection.has_handshake() {
                    connection.state = State::Handshaking;
                    return self.send(now, id);
                }
                connection.state = State::Open;
                let flow = connection.flow;
                self.events.push_back(StreamEvent::Connected(flow));
                self.wait_for_room(id, false);
            }
            Err(error) => self.end(id, cause_of(&error)),
        }
    }

    /// Performs steps of handshakes, within the limit of a turn. While messages wait, handshakes
    /// also have a limited part of the processor time.
    pub(super) fn shake_hands(&mut self, now: Timestamp) {
        if self.shaking.is_empty() {
            return;
        }
        let mut steps = self.limits.handshakes;
        self.handshake_budget.earn(thread_cpu());
        for _ in 0..self.shaking.len() {
            if steps == 0 {
                return;
            }
            if !self.handshake_budget.allows_step() {
                self.counters.limited_handshakes.add(1);
                return;
            }
            let Some(id) = self.shaking.pop_front() else { return };
            // A connection that has ended takes no step.
            if !self.connections.contains_key(&id) {
                continue;
            }
            steps -= 1;
            self.take_handshake_step(now, id);
            let cost = self.handshake_budget.spend(thread_cpu());
            let cost_ns = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
            self.counters.handshake_cpu_ns.add(cost_ns);
        }
    }

    fn take_handshake_step(&mut self, now: Timestamp, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let held_before = connection.held();
        let had_tls_handshake = connection.has_tls_handshake();
        let shaken = connection.shake_hands(now, self.quiet_until, &self.pool);
        self.held = self.held + connection.held() - held_before;
        if had_tls_handshake && !connection.has_tls_handshake() {
            self.counters.tls_handshakes.add(1);
            if id.is_opened() {
                self.counters.tls_errors.record(now, connection.flow.remote, None);
            }
        }
        match shaken {
            Shaken::Done => {
                connection.state = State::Open;
                connection.since = Timestamp::NEVER;
                if connection.is_websocket() {
                    self.counters.websocket_handshakes.add(1);
                }
                if id.is_opened() {
                    self.events.push_back(StreamEvent::Connected(connection.flow));
                }
                // A message may have come with the end of the handshake.
                self.readable.push_back(id);
            }
            Shaken::More => {
                self.shaking.push_back(id);
                self.limit_held(id);
            }
            Shaken::Nothing => {
                connection.is_queued = false;
                self.limit_held(id);
            }
            Shaken::Failed(failure, error) => {
                // A later failure is not one of the TLS handshake, which is already counted as
                // completed.
                let is_of_tls = connection.has_tls_handshake() || connection.is_silent();
                if is_of_tls && id.is_opened() {
                    self.counters.tls_errors.record(now, connection.flow.remote, Some(&error));
                }
                let counter = match is_of_tls {
                    true => failure.counter(&self.counters),
                    false => connection.closed(&self.counters),
                };
                counter.add(1);
                return self.end(id, CloseCause::Insecure);
            }
            Shaken::Rejected(failure) => {
                failure.counter(&self.counters).add(1);
                return self.end(id, CloseCause::Garbled);
            }
        }
        self.send(now, id);
    }

    /// Records that a TLS handshake with a server failed. Does nothing if the connection has no such
    /// handshake, or if the peer has opened the connection.
    pub(super) fn record_tls_error(&self, now: Timestamp, id: ConnectionId, error: &str) {
        let connection = self.connections.get(&id);
        let connection = connection.filter(|found| id.is_opened() && found.has_tls_handshake());
        if let Some(connection) = connection {
            self.counters.tls_errors.record(now, connection.flow.remote, Some(error));
        }
    }
}

/// Begins to open a connection.
fn open(local: SocketAddr, remote: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    set_options(&socket)?;
    if !local.ip().is_unspecified() {
        // With this option the kernel chooses the port when it knows the peer, so one port can
        // serve many peers. Without it, the ports run out earlier.
        let _ = sockopt::set(socket.as_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        socket.bind(&SockAddr::from(SocketAddr::new(local.ip(), 0)))?;
    }
    match socket.connect(&SockAddr::from(remote)) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}
