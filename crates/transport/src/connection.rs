//! A connection: its state, its window for sending, and its queue of waiting messages.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::{Flow, STREAM_WINDOW, Timestamp, Transmit, Transport};

use crate::limits::ConnectionLimits;

/// Time for which a connection may be [backed up](ConnectionState::BackedUp) before it takes no
/// more new work. In a busy turn of its shard, a core can hand out more than a window of bytes
/// before the driver sends any. So a connection may be backed up for a few turns although its peer
/// reads everything at once.
pub(crate) const NEW_WORK_WAIT: Duration = Duration::from_millis(100);

/// The key by which a request finds a connection: the transport and both addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) transport: Transport,
    /// The address of the listener that the request leaves from.
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl Target {
    pub(crate) fn of(flow: Flow) -> Self {
        Self { transport: flow.transport, local: flow.local, remote: flow.remote }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// The connection is being opened. Messages for the connection wait.
    Connecting,
    /// The connection accepts messages.
    Open,
    /// The driver was given at least [`STREAM_WINDOW`] bytes since it last reported that it had
    /// sent all bytes. Further messages wait.
    BackedUp,
    /// The connection is being closed and accepts no messages.
    Closing,
}

/// The kind of message for which the table looks up or opens a connection. The kind of an opened
/// connection is the highest kind of the messages that were sent on it. The lower its kind, the
/// earlier a connection is closed to make room for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// A response to a request whose own connection has ended or is not known.
    Response,
    /// A request [to a stranger](Transmit::is_to_stranger).
    Stranger,
    /// Any other message.
    Any,
}

/// A connection in the table.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The flow of the connection, with its id. While the connection is being opened, the local
    /// address is that of the listener.
    pub(crate) flow: Flow,
    /// The address of the listener for which the connection was opened, or that accepted it. The
    /// local end of an opened connection has another port.
    pub(crate) listener: SocketAddr,
    /// The target by which the table finds the connection for a request. It is set from the opening
    /// of the connection until the table closes it. It is `None` for an accepted connection. The
    /// table does not look up a [named](Self::is_named) connection by its target.
    pub(crate) target: Option<Box<Target>>,
    pub(crate) state: ConnectionState,
    /// The time from which the time limit of the `state` counts. For an open connection, it is the
    /// time of the last message or keep-alive in either direction, or of the opening. On a
    /// connection to a stranger, keep-alives do not count. On a connection for responses, it is the
    /// time of the last message that we have sent. While the peer of an accepted connection has
    /// sent no message, it is the time at which the connection was accepted.
    pub(crate) since: Timestamp,
    /// The time at which the timer of the connection fires, or `NEVER` if no timer is set.
    pub(crate) armed: Timestamp,
    /// True if the owner of the table opened the connection and chose its id. Only messages with
    /// this id in their flow use the connection.
    pub(crate) is_named: bool,
    /// True while the connection is being opened for a response, because the connection on which
    /// the request came has ended or is not known.
    pub(crate) opens_for_response: bool,
    /// The kind of messages for which we use this connection. If these are only responses to
    /// requests whose own connections have ended, messages and keep-alives from the peer do not
    /// count as a use of the connection. Otherwise a peer could keep it open with a ping every
    /// second. If these are also requests to a stranger, messages count and keep-alives do not,
    /// because a provisional response shows that a transaction continues.
    pub(crate) serves: Use,
    /// True if a message has arrived on the connection. A keep-alive is not a message.
    pub(crate) has_spoken: bool,
    /// True if the connection is being closed because no message arrived in time.
    pub(crate) is_idle: bool,
    /// True if another shard has sent a request on this connection.
    pub(crate) serves_others: bool,
    /// True if a request was handed to the driver to be sent on this connection.
    pub(crate) has_carried_request: bool,
    /// Bytes handed to the driver for this connection since it last reported that it had sent all
    /// bytes.
    handed_out: usize,
    waiting: VecDeque<Transmit>,
    waiting_bytes: usize,
    /// The time at which the connection became backed up. If the driver has sent all bytes but
    /// messages still wait, the time stays the same. `NEVER` while no message has had to wait.
    blocked_since: Timestamp,
}

impl Connection {
    /// Creates a connection. The local address of `flow` is that of the listener.
    pub(crate) fn new(now: Timestamp, flow: Flow, state: ConnectionState) -> Self {
        Self {
            flow,
            listener: flow.local,
            target: None,
            state,
            since: now,
            armed: Timestamp::NEVER,
            is_named: false,
            opens_for_response: false,
            serves: Use::Any,
            has_spoken: false,
            is_idle: false,
            serves_others: false,
            has_carried_request: false,
            handed_out: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            blocked_since: Timestamp::NEVER,
        }
    }

    /// Returns whether a message to `remote` whose flow has the id of this connection may use the
    /// connection. Ids are reused after many connections. If the IP addresses differ, the
    /// connection that the sender means has ended and its id is reused: no other host must get the
    /// message. The ports may differ, because the port in a Via can be the one at which its sender
    /// listens.
    pub(crate) fn leads_to(&self, remote: SocketAddr) -> bool {
        let is_same = self.flow.remote.ip().to_canonical() == remote.ip().to_canonical();
        is_same && self.state != ConnectionState::Closing
    }

    /// Returns whether messages wait in the queue of the connection.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    pub(crate) fn has_room(&self, bytes: usize, limits: &ConnectionLimits) -> bool {
        self.waiting.len() < limits.waiting_max
            && self.waiting_bytes + bytes <= limits.waiting_bytes_max
    }

    /// Returns whether the peer reads too slowly for new work: the window is used up, and for
    /// [`NEW_WORK_WAIT`] each message has had to wait. A peer also reads too slowly if it reads a
    /// window from time to time, but never empties the queue.
    pub(crate) fn is_blocked(&self, now: Timestamp) -> bool {
        let is_backed_up = self.state == ConnectionState::BackedUp;
        is_backed_up && now >= self.blocked_since + NEW_WORK_WAIT
    }

    pub(crate) fn push(&mut self, transmit: Transmit) {
        self.waiting_bytes += transmit.bytes.len();
        self.waiting.push_back(transmit);
    }

    /// Returns the next waiting message with the flow of this connection, if the connection is open
    /// and its window is not used up.
    pub(crate) fn hand_out(&mut self, now: Timestamp) -> Option<Transmit> {
        if self.state != ConnectionState::Open {
            return None;
        }
        let transmit = self.waiting.pop_front()?;
        self.waiting_bytes -= transmit.bytes.len();
        if self.waiting.is_empty() {
            // Free the memory of the queue, because most connections have no waiting messages.
            self.waiting = VecDeque::new();
        }
        Some(self.hand_out_now(now, transmit))
    }

    /// Returns the message with the flow of this connection, and counts its bytes in the window.
    /// The connection must be open.
    pub(crate) fn hand_out_now(&mut self, now: Timestamp, transmit: Transmit) -> Transmit {
        self.has_carried_request |= is_request(&transmit.bytes);
        self.renew(now);
        self.hand_out_pong(now, transmit)
    }

    /// Returns the pong with the flow of this connection, and counts its bytes in the window. The
    /// connection must be open. Unlike a message ([`hand_out_now`](Self::hand_out_now)), a pong
    /// does not count as a use of the connection.
    pub(crate) fn hand_out_pong(&mut self, now: Timestamp, pong: Transmit) -> Transmit {
        debug_assert_eq!(self.state, ConnectionState::Open);
        if self.waiting.is_empty() {
            self.blocked_since = Timestamp::NEVER;
        }
        self.handed_out += pong.bytes.len();
        if self.handed_out >= STREAM_WINDOW {
            self.state = ConnectionState::BackedUp;
            self.blocked_since = self.blocked_since.min(now);
            self.renew(now);
        }
        Transmit { flow: self.flow, ..pong }
    }

    /// Records that a message or a keep-alive has arrived. Returns false if the connection is still
    /// being opened.
    pub(crate) fn receive(&mut self, now: Timestamp, is_message: bool) -> bool {
        self.has_spoken |= is_message;
        match self.state {
            ConnectionState::Open => {
                let is_use = match self.serves {
                    Use::Response => false,
                    Use::Stranger => is_message,
                    Use::Any => true,
                };
                if is_use {
                    self.renew(now);
                }
                true
            }
            // A peer that sends may still not read. So its messages do not extend the time limit of
            // a stalled connection.
            ConnectionState::BackedUp | ConnectionState::Closing => true,
            ConnectionState::Connecting => false,
        }
    }

    /// Records `now` as the time of the last message or keep-alive in either direction. Does
    /// nothing for an accepted connection whose peer has sent no message.
    fn renew(&mut self, now: Timestamp) {
        if !self.flow_is_silent() {
            self.since = now;
        }
    }

    /// Begins a new window for sending, because the driver has sent all bytes of the last one.
    /// Returns whether the connection is open.
    pub(crate) fn reopen(&mut self, now: Timestamp) -> bool {
        self.handed_out = 0;
        if self.state == ConnectionState::BackedUp {
            self.state = ConnectionState::Open;
            self.renew(now);
        }
        self.state == ConnectionState::Open
    }

    /// Empties the queue of waiting messages, and returns the messages unchanged.
    pub(crate) fn give_up(&mut self) -> VecDeque<Transmit> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Returns the time at which the connection is closed unless it is used before.
    pub(crate) fn deadline(&self, limits: &ConnectionLimits) -> Timestamp {
        let limit = match self.state {
            ConnectionState::Connecting => limits.connect,
            ConnectionState::BackedUp => limits.stall,
            ConnectionState::Open if self.flow_is_silent() => limits.first,
            ConnectionState::Open => limits.idle,
            // The driver reports the end of the connection.
            ConnectionState::Closing => Duration::MAX,
        };
        self.since + limit
    }

    fn flow_is_silent(&self) -> bool {
        let accepted = self.flow.connection.is_some_and(|id| !id.is_opened());
        accepted && !self.has_spoken
    }
}

/// Returns whether a message is a request, not a response or a keep-alive.
pub(crate) fn is_request(bytes: &[u8]) -> bool {
    !is_response(bytes) && !bytes.starts_with(b"\r\n")
}

/// Returns whether a message is a response. The version may be in lower case, because a proxy
/// forwards it as the callee wrote it.
///
/// RFC 3261 §7.1: "The SIP-Version string is case-insensitive, but implementations MUST send
/// upper-case."
pub(crate) fn is_response(bytes: &[u8]) -> bool {
    const VERSION: &[u8] = b"SIP/2.0 ";
    bytes.get(..VERSION.len()).is_some_and(|start| start.eq_ignore_ascii_case(VERSION))
}

#[cfg(test)]
mod tests {
    use tidegate_world::{ConnectionId, Pool};

    use super::*;

    /// RFC 3261 §7.1: "The SIP-Version string is case-insensitive, but implementations MUST send
    /// upper-case."
    #[test]
    fn a_message_is_a_request_or_a_response_or_a_keep_alive() {
        for (text, kinds) in [
            ("SIP/2.0 200 OK\r\n", (false, true)),
            ("sip/2.0 200 OK\r\n", (false, true)),
            ("BYE sip:a@b SIP/2.0\r\n", (true, false)),
            ("BYE", (true, false)),
            ("\r\n\r\n", (false, false)),
        ] {
            let bytes = text.as_bytes();
            assert_eq!((is_request(bytes), is_response(bytes)), kinds, "{text}");
        }
    }

    #[test]
    fn a_connection_without_waiting_messages_uses_little_memory() {
        let ends = ["192.0.2.1:5060", "198.51.100.7:40000"].map(|end| end.parse().unwrap());
        let id = ConnectionId::FIRST_ACCEPTED;
        let flow = Flow::connected(Transport::Tcp, ends[0], ends[1], id);
        let mut connection = Connection::new(Timestamp::ZERO, flow, ConnectionState::Connecting);
        let pool = Pool::new();
        for text in [b"one", b"two"] {
            connection.push(Transmit::new(flow, pool.copy(text)));
        }
        connection.state = ConnectionState::Open;
        let sent = std::iter::from_fn(|| connection.hand_out(Timestamp::ZERO));
        assert!(sent.map(|transmit| transmit.bytes.to_vec()).eq([b"one", b"two"]));
        assert_eq!(connection.waiting.capacity(), 0);
        let size = size_of::<Connection>();
        assert!(size <= 192, "{size} bytes");
    }
}
