//! One connection: its socket, the bytes read that do not form a message yet, and the bytes to
//! send.

mod handshake;
mod reading;
mod sending;
mod websocket;

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;

use rustix::event::epoll::EventFlags;
use tidegate_sip::Framer;
use tidegate_world::{Buffer, CloseCause, Flow, Pool, Timestamp};

use crate::tls::Tls;
use crate::websocket::WebSocket;
pub(crate) use handshake::Shaken;
pub(crate) use reading::{Step, Turn};
pub(crate) use sending::Sent;

/// Maximum number of bytes that one system call reads from a connection.
pub(crate) const READ: usize = 16 * 1024;

/// The keep-alive ping of RFC 5626 §4.4.1. [`PONG`] is the answer to it.
pub(crate) const PING: &[u8] = b"\r\n\r\n";
pub(crate) const PONG: &[u8] = b"\r\n";

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The connection is being opened.
    Opening,
    /// The connection is open, but a handshake of TLS or of a WebSocket is not complete.
    Handshaking,
    /// Messages can be sent and received.
    Open,
    /// The connection ends once all queued bytes are sent.
    Closing,
}

/// A TCP connection of a shard, which may use TLS and may carry a WebSocket.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) flow: Flow,
    pub(crate) state: State,
    stream: TcpStream,
    tls: Option<Box<Tls>>,
    websocket: Option<Box<WebSocket>>,
    /// The pong that answers the peer's latest WebSocket ping, until the pong is sent.
    pong: Option<Buffer>,
    framer: Framer,
    /// Bytes that were read from the socket but are not cut into messages yet.
    held: Vec<u8>,
    /// Number of steps that the handshake has taken.
    pub(crate) steps: u8,
    /// True if the socket may have bytes to read.
    pub(crate) is_readable: bool,
    /// Time at which the next bytes to read arrived, as far as the driver knows.
    pub(crate) readable_since: Timestamp,
    /// Number of bytes in the socket that were already there when `readable_since` was set. It is 0
    /// if the socket was empty before that time, because the number of bytes that then arrived is
    /// unknown.
    marked: usize,
    /// Time at which the most recently read bytes arrived.
    pub(crate) arrived: Timestamp,
    /// True if the connection waits in a queue for the driver to read it.
    pub(crate) is_queued: bool,
    /// The work that the connection has done since it came to the front of the queue of connections
    /// to read.
    pub(crate) turn: Turn,
    /// True if the connection is in the list of connections to send on.
    pub(crate) is_dirty: bool,
    /// True if the kernel will report when the socket takes more bytes.
    pub(crate) waits_for_room: bool,
    /// The events of the socket that the kernel reports.
    pub(crate) watched: EventFlags,
    /// Time since which the connection waits for the end of its handshake, for the rest of a
    /// message, or, while it is being closed, for its own end. It is `NEVER` if the connection
    /// waits for none of them.
    pub(crate) since: Timestamp,
    /// The time at which the timer of the connection fires, or `NEVER` if none is set.
    pub(crate) timer: Timestamp,
    /// The reason why nothing more can be sent. The connection ends when all bytes of the peer have
    /// been read.
    failure: Option<CloseCause>,
    /// The reason why nothing more arrives, if the peer has ended its side of the connection while
    /// bytes were left to send. The connection ends once these bytes are sent.
    ended: Option<CloseCause>,
    /// Bytes of memory that the unsent messages used when the driver last counted them. It is 0 for
    /// a connection that the core has opened.
    pub(crate) unsent: usize,
    /// Time since which `unsent` has been above 0, or `NEVER` if it is 0.
    pub(crate) unsent_since: Timestamp,
    out: VecDeque<Buffer>,
    /// Number of bytes of the first buffer in `out` that have been sent.
    sent: usize,
    /// Number of bytes handed to this connection since it opened, or since the core was last told
    /// that all bytes are sent.
    handed_out: usize,
}

impl Connection {
    fn new(stream: TcpStream, tls: Option<Tls>, flow: Flow, state: State) -> Self {
        Self {
            flow,
            state,
            stream,
            tls: tls.map(Box::new),
            websocket: None,
            pong: None,
            framer: Framer::default(),
            held: Vec::new(),
            steps: 0,
            is_readable: false,
            readable_since: Timestamp::NEVER,
            marked: 0,
            arrived: Timestamp::NEVER,
            is_queued: false,
            turn: Turn::default(),
            is_dirty: false,
            waits_for_room: false,
            watched: EventFlags::empty(),
            since: Timestamp::NEVER,
            timer: Timestamp::NEVER,
            failure: None,
            ended: None,
            unsent: 0,
            unsent_since: Timestamp::NEVER,
            out: VecDeque::new(),
            sent: 0,
            handed_out: 0,
        }
    }

    /// Creates a connection that the core opens. `websocket` comes with the request that begins the
    /// WebSocket handshake.
    pub(crate) fn opened(
        stream: TcpStream,
        tls: Option<Tls>,
        websocket: Option<(WebSocket, Buffer)>,
        flow: Flow,
    ) -> Self {
        let (websocket, request) = websocket.unzip();
        let (websocket, out) = (websocket.map(Box::new), request.into_iter().collect());
        Self { websocket, out, ..Self::new(stream, tls, flow, State::Opening) }
    }

    /// Creates a connection that a peer has opened.
    pub(crate) fn accepted(
        stream: TcpStream,
        tls: Option<Tls>,
        websocket: Option<WebSocket>,
        flow: Flow,
    ) -> Self {
        let is_open = tls.is_none() && websocket.is_none();
        let state = if is_open { State::Open } else { State::Handshaking };
        let websocket = websocket.map(Box::new);
        Self { websocket, ..Self::new(stream, tls, flow, state) }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns the number of bytes that are read but not cut into messages yet.
    pub(crate) fn held(&self) -> usize {
        let plain = match &self.websocket {
            None => self.held.len(),
            Some(websocket) => websocket.held(self.held.len()),
        };
        plain + self.sealed()
    }

    /// Returns the number of bytes that TLS keeps until further bytes have arrived.
    fn sealed(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.pending())
    }

    /// Returns whether the bytes read so far end between two messages. Line ends before a message
    /// are not part of the message.
    ///
    /// RFC 3261 §7.5: "Implementations processing SIP messages over stream-oriented transports MUST ignore
    /// any CRLF appearing before the start-line".
    pub(crate) fn is_between_messages(&self) -> bool {
        match &self.websocket {
            None => self.framer.is_between_messages() && self.sealed() == 0,
            Some(_) => self.held() == 0,
        }
    }

    /// Returns the bytes of memory that the connection uses, except those of TLS, of a WebSocket and
    /// of messages to send.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.held.capacity() + self.out.capacity() * size_of::<Buffer>()
    }

    pub(crate) fn is_websocket(&self) -> bool {
        self.websocket.is_some()
    }

    /// Returns whether only some of the WebSocket frames of a message have arrived. Control frames,
    /// such as pings, may come before the rest of the message.
    pub(crate) fn has_fragments(&self) -> bool {
        self.websocket.as_ref().is_some_and(|websocket| websocket.has_fragments())
    }

    /// Returns whether messages may be handed to the connection.
    pub(crate) fn takes_messages(&self) -> bool {
        match self.state {
            State::Open => self.failure.is_none(),
            // Messages are sent when the TLS handshake is complete. On a WebSocket, no message may
            // be sent before the response of its own handshake.
            State::Handshaking => self.websocket.is_none(),
            State::Closing => self.ended.is_some(),
            State::Opening => false,
        }
    }

    /// Returns whether a WebSocket pong waits to be sent.
    pub(crate) fn has_pong(&self) -> bool {
        self.pong.is_some()
    }

    /// Returns whether the connection can be closed at once: all bytes are sent, and neither TLS
    /// nor a WebSocket has to announce the end.
    pub(crate) fn is_sent(&self) -> bool {
        self.out.is_empty() && self.tls.is_none() && self.websocket.is_none()
    }

    /// Begins to close the connection, which ends once all queued bytes are sent.
    pub(crate) fn close(&mut self, pool: &Pool) {
        if self.state == State::Open
            && let Some(websocket) = &self.websocket
        {
            self.out.push_back(pool.copy(&websocket.going_away()));
        }
        self.state = State::Closing;
        self.ended = None;
    }

    /// Queues a message to send.
    ///
    /// RFC 7118 §4.1: "Messages other than SIP requests and responses MUST NOT be transmitted over this
    /// connection."
    pub(crate) fn push(&mut self, mut bytes: Buffer, pool: &Pool) {
        if let Some(websocket) = &self.websocket {
            let header = websocket.frame(&mut bytes);
            self.append(pool.copy(&header));
        } else if &bytes[..] == PING {
            self.framer.expect_pong();
        }
        self.handed_out += bytes.len();
        self.append(bytes);
    }
}

/// Returns the cause that corresponds to an error of the operating system.
pub(crate) fn cause_of(error: &io::Error) -> CloseCause {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => CloseCause::Refused,
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN) => {
            CloseCause::Unreachable
        }
        Some(libc::ETIMEDOUT) => CloseCause::TimedOut,
        Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => CloseCause::Reset,
        _ => CloseCause::Other,
    }
}
