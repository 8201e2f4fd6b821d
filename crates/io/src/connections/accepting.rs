//! Accepts connections, and closes those that have waited too long.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::epoll;
use rustix::net::RecvFlags;
use socket2::SockRef;
use tidegate_sip::{Method, ScanStart, is_emergency, scan};
use tidegate_world::{Flow, Timestamp};

use super::{Connections, queue};
use crate::connection::{Connection, State};
use crate::machine::StreamEvent;
use crate::sockopt::{self, Arrival};
use crate::stream_group::StreamListener;
use crate::tls::Tls;
use crate::websocket::WebSocket;

/// Minimum length of a period in which all accepted connections have waited too long. The shard
/// closes late connections only after such a period, so connections that wait during a short stall
/// of the process are still served.
pub(super) const LATE_FOR: Duration = Duration::from_millis(100);

/// If more than this time passes between two accepted connections that have waited too long, the
/// period of [`LATE_FOR`] begins again with the second one. The gap is long because a process with
/// a small quota of CPU time may accept nothing for a large part of a second.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(500);

/// Maximum number of connections that one turn closes because they have waited too long, as a
/// multiple of [`StreamLimits::accepts`](crate::StreamLimits::accepts). Closing costs far less than
/// serving.
const LATE_FOR_EACH: usize = 8;

/// Maximum number of calls of [`Connections::accept`] that empty the queue of a listener before the
/// shard leaves its address.
const LAST_TURNS: usize = 64;

/// Maximum number of bytes of a late connection that are examined before it is closed.
const EXAMINED: usize = 2048;

/// Maximum length of a tick of the kernel. The kernel reports the times of a connection with this
/// precision.
const TICK: Duration = Duration::from_millis(10);

/// Time for which no connection is accepted if the operating system had no room for another one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Connections {
    /// Stops accepting connections at the addresses that other processes share, so that these
    /// processes get all further connections. Returns whether the shard has left any address.
    pub(crate) fn leave(&mut self, now: Timestamp) -> bool {
        if std::mem::replace(&mut self.has_left, true) {
            return false;
        }
        let mut any = false;
        for index in 0..self.listeners.len() {
            if !self.listeners[index].is_shared() {
                continue;
            }
            match self.leave_one(now, index) {
                Ok(()) => any = true,
                Err(_) => self.counters.leave_errors.add(1),
            }
        }
        any
    }

    /// Accepts the connections that wait at a listener, and leaves its address.
    fn leave_one(&mut self, now: Timestamp, index: usize) -> io::Result<()> {
        for _ in 0..LAST_TURNS {
            if self.accept(now, index)? == Queue::Empty {
                break;
            }
        }
        self.listeners[index].leave()
    }

    pub(super) fn is_pausing(&self) -> bool {
        self.accepts_from > Timestamp::ZERO
    }

    /// Sets the events that the kernel reports for the listeners. Skips the listeners whose address
    /// the shard has left, because the kernel may no longer watch them.
    pub(super) fn watch_listeners(&self, flags: epoll::EventFlags) -> io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            if !self.has_left_address(listener) {
                self.watcher.modify_listener(index, listener, flags)?;
            }
        }
        Ok(())
    }

    /// Returns whether the shard accepts no more connections at the address of a listener.
    fn has_left_address(&self, listener: &StreamListener) -> bool {
        self.is_ending || self.has_left && listener.is_shared()
    }

    /// Accepts connections that wait at a listener, within the limits of a turn.
    ///
    /// If a shard cannot serve all connections that arrive, the kernel's queue fills. Then every
    /// connection waits for as long as the shard needs to accept a full queue, and peers get their
    /// responses too late. So the shard closes connections that have waited too long, and serves
    /// the others in time. The gate cannot do this, because it knows only requests that have been
    /// read. A connection that has waited too long is served nevertheless if its first message
    /// belongs to a call in progress or is an emergency call. Because anybody can forge such a
    /// message, these connections get at most half of a turn's limit.
    pub(super) fn accept(&mut self, now: Timestamp, index: usize) -> io::Result<Queue> {
        let (mut accepts, mut closes) = (self.limits.accepts, LATE_FOR_EACH * self.limits.accepts);
        let mut spared = self.limits.accepts.div_ceil(2);
        while accepts > 0 && closes > 0 {
            let accepted = self.listeners[index].socket.accept();
            let (stream, remote) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {
                        self.late[index] = Late::default();
                        return Ok(Queue::Empty);
                    }
                    Some(libc::EINTR) => return Ok(Queue::HasMore),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        self.counters.stream_accepts_paused.add(1);
                        self.accepts_from = now + ACCEPT_PAUSE;
                        // Connections that wait during this pause are no sign of overload.
                        self.late[index] = Late::default();
                        self.watch_listeners(epoll::EventFlags::empty())?;
                        return Ok(Queue::Empty);
                    }
                    // The listener was shut down, after the address was left.
                    Some(libc::EINVAL) if self.has_left_address(&self.listeners[index]) => {
                        self.watcher.remove_listener(&self.listeners[index])?;
                        return Ok(Queue::Empty);
                    }
                    // The connection has failed meanwhile (accept(2), "Error handling").
                    _ => {
                        self.counters.stream_accepts_failed.add(1);
                        accepts -= 1;
                        continue;
                    }
                },
            };
            let arrival = sockopt::arrival(stream.as_fd()).unwrap_or_default();
            if self.late[index].includes(now, arrival.waited > self.limits.accept_wait) {
                let is_spared = spared > 0 && arrival.has_bytes && is_spared(&stream);
                spared -= usize::from(is_spared);
                if !is_spared {
                    closes -= 1;
                    self.counters.stream_accepts_late.add(1);
                    reset(stream);
                    continue;
                }
            }
            accepts -= 1;
            if let Err(error) = self.take_over(now, index, stream, remote, arrival) {
                // Either the peer has ended the connection, or the system has no room for it.
                debug_assert!(error.raw_os_error() != Some(libc::EEXIST), "ids are unique");
                self.counters.stream_accepts_failed.add(1);
            }
        }
        Ok(Queue::HasMore)
    }

    /// Takes over an accepted connection. Bytes that have already arrived on it are read in this
    /// turn. They count as having arrived one [`TICK`] later than the kernel reports, because the
    /// reported time may be too early by a tick.
    fn take_over(
        &mut self,
        now: Timestamp,
        index: usize,
        stream: TcpStream,
        remote: SocketAddr,
        arrival: Arrival,
    ) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let StreamListener { transport, local, ref tls, ref origins, .. } = self.listeners[index];
        let tls = tls.as_ref().map(Tls::accept).transpose().map_err(io::Error::other)?;
        let websocket = transport.is_websocket().then(|| WebSocket::accept(origins.clone()));
        let local = if local.ip().is_unspecified() { stream.local_addr()? } else { local };
        while self.connections.contains_key(&self.next_id) {
            self.next_id = self.next_id.next_of(self.shard);
        }
        let id = self.next_id;
        // With RDHUP, the kernel reports a client that gives up before its handshake begins.
        let end = if tls.is_some() { epoll::EventFlags::RDHUP } else { epoll::EventFlags::empty() };
        let flags = epoll::EventFlags::IN | end;
        self.watcher.add(id, &stream, flags)?;
        self.next_id = id.next_of(self.shard);
        let flow = Flow::connected(transport, local, remote, id);
        // The core is told before the handshake, so that its limits apply from the beginning.
        let mut connection = Connection::accepted(stream, tls, websocket, flow);
        connection.watched = flags;
        if connection.state == State::Handshaking {
            (connection.since, connection.timer) = (now, now + self.limits.handshake);
            self.timers.push(connection.timer, id);
        }
        self.events.push_back(StreamEvent::Connected(flow));
        if arrival.has_bytes {
            let since = now - arrival.quiet.saturating_sub(TICK);
            queue(since, id, &mut connection, &mut self.readable, &mut self.shaking);
        }
        self.insert(id, connection);
        Ok(())
    }
}

/// The state of the kernel's queue of connections after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Empty,
    HasMore,
}

/// The period in which the connections at a listener have waited too long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// Time of the first connection that had waited too long.
    since: Timestamp,
    /// Time of the last connection that had waited too long.
    seen: Timestamp,
}

impl Default for Late {
    fn default() -> Self {
        Self { since: Timestamp::NEVER, seen: Timestamp::NEVER }
    }
}

impl Late {
    /// Records whether a connection `has_waited` too long. Returns whether the connection is late:
    /// all connections of the last [`LATE_FOR`], and this one, have waited too long.
    fn includes(&mut self, now: Timestamp, has_waited: bool) -> bool {
        if !has_waited {
            *self = Self::default();
            return false;
        }
        if self.seen == Timestamp::NEVER || now.since(self.seen) > FORGOTTEN_AFTER {
            self.since = now;
        }
        self.seen = now;
        now.since(self.since) >= LATE_FOR
    }
}

/// Returns whether the first message of a connection belongs to a dialog or to a transaction in
/// progress, or is an emergency call. A message in TLS or in a WebSocket cannot be recognized.
fn is_spared(stream: &TcpStream) -> bool {
    let mut bytes = [0; EXAMINED];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let Ok((count, _)) = rustix::net::recv(stream, &mut bytes[..], flags) else { return false };
    scan(&bytes[..count]).is_ok_and(|scan| match scan.start {
        // RFC 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a
        // connection to the IP address in the "received" parameter".
        ScanStart::Response { .. } => true,
        ScanStart::Request { method: Method::Ack | Method::Cancel, .. } => true,
        ScanStart::Request { uri, .. } => scan.to_tag.is_some() || is_emergency(uri),
    })
}

/// Closes a connection so that its peer gets a reset at once. The peer then knows that its request
/// was not served.
///
/// RFC 3261 §8.1.3.1: "If a fatal transport error is reported by the transport layer (generally, due to
/// fatal ICMP errors in UDP or connection failures in TCP), the condition MUST be treated as a 503 (Service
/// Unavailable) status code."
fn reset(stream: TcpStream) {
    // If this fails, the kernel sends a reset nevertheless if the connection has unread bytes.
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns, for each of these times in ms, whether a connection at this time is late. All
    /// connections have waited too long, except those at the times in `in_time`.
    fn late(times: &[u32], in_time: &[u32]) -> Vec<bool> {
        let mut late = Late::default();
        let mut includes = |ms| late.includes(Timestamp::ZERO + ms * MS, !in_time.contains(&ms));
        times.iter().map(|&ms| includes(ms)).collect()
    }

    #[test]
    fn connections_count_as_late_after_100_ms_until_one_is_in_time() {
        let expected = [false, false, true, true, false, false, false, true];
        assert_eq!(late(&[0, 99, 100, 600, 700, 701, 800, 801], &[700]), expected);
    }

    #[test]
    fn one_late_connection_long_ago_does_not_make_others_late() {
        assert_eq!(late(&[0, 501], &[]), [false, false]);
        assert_eq!(late(&[0, 500], &[]), [false, true]);
    }
}
