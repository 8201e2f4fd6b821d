//! One connection: its socket, the bytes read that do not form a message yet, and the bytes to
//! send.

mod handshake;
mod sending;
mod websocket;

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::net::TcpStream;

use rustix::event::epoll::EventFlags;
use tidegate_sip::{BYTES_MAX, Framer, Next};
use tidegate_world::{Buffer, CloseCause, Flow, Pool, Timestamp};

use crate::tls::Tls;
use crate::websocket::{FRAME_HEADER_MAX, WebSocket};
pub(crate) use handshake::Shaken;
pub(crate) use sending::Sent;

/// Maximum number of bytes that one system call reads.
pub(crate) const READ: usize = 16 * 1024;

/// A ping and its answer (RFC 5626 §4.4.1).
const PING: &[u8] = b"\r\n\r\n";
const PONG: &[u8] = b"\r\n";

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The connection is being opened.
    Opening,
    /// The connection is open, but a handshake of TLS or of a WebSocket is not complete.
    Handshaking,
    /// Messages can be sent and received.
    Open,
    /// The connection ends after everything that was handed out is sent.
    Closing,
}

/// A connection of the driver.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) flow: Flow,
    pub(crate) state: State,
    stream: TcpStream,
    tls: Option<Box<Tls>>,
    websocket: Option<Box<WebSocket>>,
    /// The answer to the last ping of a WebSocket, until it is sent.
    pong: Option<Buffer>,
    framer: Framer,
    /// Bytes that are read but not cut into messages yet.
    held: Vec<u8>,
    /// Number of steps that the handshake has taken.
    pub(crate) steps: u8,
    /// Whether the socket may have bytes to read.
    pub(crate) is_readable: bool,
    /// The earliest time at which the bytes in the socket may have arrived.
    pub(crate) readable_since: Timestamp,
    /// The arrival of the bytes that were read last.
    pub(crate) arrived: Timestamp,
    /// Whether the connection is in the queue of connections to read.
    pub(crate) is_queued: bool,
    /// The work that the connection has done since it came to the front of that queue.
    pub(crate) turn: Turn,
    /// Whether the connection is in the list of connections to send on.
    pub(crate) is_dirty: bool,
    /// Whether the kernel will report when the socket takes more bytes.
    pub(crate) waits_for_room: bool,
    /// The events of the socket that the kernel reports.
    pub(crate) watched: EventFlags,
    /// The start of the current wait: for the handshake, for the rest of a message, or for the end
    /// of a connection that is being closed.
    pub(crate) since: Timestamp,
    /// Whether a timer of the connection is set.
    pub(crate) is_timed: bool,
    /// The reason why nothing more can be sent. The connection ends when all bytes of the peer have
    /// been read.
    failure: Option<CloseCause>,
    out: VecDeque<Buffer>,
    /// Number of bytes of the first buffer that have been sent.
    sent: usize,
    /// Bytes handed to this connection since it opened, or since the core was last told that all
    /// bytes are sent.
    handed_out: usize,
}

/// The work of a connection since it came to the front of the queue of connections to read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Number of messages that it passed on.
    pub(crate) messages: u32,
    /// True if the connection has read bytes.
    has_read: bool,
}

/// The result of one attempt to read a message.
pub(crate) enum Step {
    /// A message, a ping or a pong was read.
    Message(Buffer),
    /// More messages or bytes may follow, but the other connections come first.
    More,
    /// There are no bytes to read now.
    Nothing,
    /// The connection has ended.
    End(CloseCause),
}

/// The reason why no bytes were read.
enum Unfilled {
    /// There are no bytes now.
    Empty,
    /// The peer violates the protocol.
    Tls(rustls::Error),
    /// The connection has ended.
    Ended(CloseCause),
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
            arrived: Timestamp::NEVER,
            is_queued: false,
            turn: Turn::default(),
            is_dirty: false,
            waits_for_room: false,
            watched: EventFlags::empty(),
            since: Timestamp::NEVER,
            is_timed: false,
            failure: None,
            out: VecDeque::new(),
            sent: 0,
            handed_out: 0,
        }
    }

    /// Creates a connection that we open. `websocket` has the request that begins its handshake.
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

    /// Returns the number of bytes that TLS keeps until more have arrived.
    fn sealed(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.pending())
    }

    /// Returns whether no message has begun. Line ends between messages belong to none.
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

    /// Returns whether a message has arrived in part in frames of a WebSocket. Other frames may come
    /// before the rest of the message.
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
            State::Opening | State::Closing => false,
        }
    }

    /// Returns whether a ping is not answered yet.
    pub(crate) fn has_pong(&self) -> bool {
        self.pong.is_some()
    }

    /// Returns whether nothing is left to send before it can be closed.
    pub(crate) fn is_sent(&self) -> bool {
        self.out.is_empty() && self.tls.is_none() && self.websocket.is_none()
    }

    /// Begins to close the connection. It ends after everything that was handed out on it is sent.
    pub(crate) fn close(&mut self, pool: &Pool) {
        if self.state == State::Open
            && let Some(websocket) = &self.websocket
        {
            self.out.push_back(pool.copy(&websocket.going_away()));
        }
        self.state = State::Closing;
    }

    /// Takes a message to send.
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

    /// Reads the next message. Makes at most one call to read bytes in a [`Turn`], which has at most
    /// `messages_max` messages. `spare` is an empty buffer, which is used if no bytes are held.
    pub(crate) fn read(
        &mut self,
        now: Timestamp,
        messages_max: u32,
        pool: &Pool,
        spare: &mut Vec<u8>,
    ) -> Step {
        if self.turn.messages >= messages_max {
            return Step::More;
        }
        if let Some(step) = self.frame(pool) {
            return step;
        }
        if !self.is_readable {
            return self.nothing(spare);
        }
        if std::mem::replace(&mut self.turn.has_read, true) {
            return Step::More;
        }
        let kept = self.held.len();
        if kept == 0 && self.held.capacity() < READ {
            std::mem::swap(&mut self.held, spare);
        }
        match self.fill(now) {
            Ok(()) => self.frame(pool).unwrap_or(Step::More),
            Err(Unfilled::Empty) => self.nothing(spare),
            // RFC 8446 §4.4.2: a client learns only after its handshake that its certificate is not
            // accepted.
            Err(Unfilled::Tls(rustls::Error::AlertReceived(_))) => Step::End(CloseCause::Insecure),
            Err(Unfilled::Tls(_)) => {
                let _ = self.send();
                Step::End(CloseCause::Garbled)
            }
            Err(Unfilled::Ended(cause)) => Step::End(self.failure.unwrap_or(cause)),
        }
    }

    /// Reads bytes from the socket with one call, and appends the plaintext in them to the held
    /// bytes.
    fn fill(&mut self, now: Timestamp) -> Result<(), Unfilled> {
        let held_max = BYTES_MAX + if self.is_websocket() { FRAME_HEADER_MAX } else { 0 };
        let is_between = self.is_between_messages();
        let ended = || match is_between {
            true => Unfilled::Ended(CloseCause::Ended),
            false => Unfilled::Ended(CloseCause::CutOff),
        };
        // RFC 8446 §6.1: "If a transport-level close is received prior to a "close_notify", the
        // receiver cannot know that all the data that was sent has been received." This does no
        // harm, because each SIP message states its length.
        if self.tls.as_ref().is_some_and(|tls| tls.is_ended()) {
            return Err(ended());
        }
        let wanted = match &self.tls {
            None => READ.min(held_max - self.held.len()),
            Some(_) => READ,
        };
        let mut bytes = [MaybeUninit::<u8>::uninit(); READ];
        match rustix::io::read(&self.stream, &mut bytes[..wanted]) {
            Ok(([], _)) => Err(ended()),
            Ok((bytes, _)) => {
                // Fewer bytes than there was room for mean that the socket is empty.
                self.is_readable = bytes.len() >= wanted;
                // The socket was not empty since then. Further bytes may have come since this call.
                self.arrived = std::mem::replace(&mut self.readable_since, now);
                match &mut self.tls {
                    None => self.held.extend_from_slice(bytes),
                    Some(tls) => {
                        tls.open(bytes, &mut self.held).map_err(Unfilled::Tls)?;
                        self.is_readable |= tls.is_ended();
                    }
                }
                Ok(())
            }
            Err(rustix::io::Errno::AGAIN) => {
                self.is_readable = false;
                Err(Unfilled::Empty)
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Unfilled::Ended(cause_of(&error.into()))),
        }
    }

    /// Cuts the next message out of the bytes read.
    fn frame(&mut self, pool: &Pool) -> Option<Step> {
        if self.websocket.is_some() {
            return self.next_of_websocket(pool);
        }
        let message = match self.framer.next(&self.held) {
            Next::Message(range) => pool.copy(&self.held[range]),
            Next::Ping => pool.copy(PING),
            Next::Pong => pool.copy(PONG),
            Next::Broken(_) => return Some(Step::End(CloseCause::Garbled)),
            Next::Incomplete { .. } => {
                let done = self.framer.release();
                self.held.drain(..done);
                return None;
            }
        };
        Some(Step::Message(message))
    }

    /// Frees memory that reading no longer needs, because there is nothing to read now. An idle
    /// connection keeps no memory. A connection that waits for the rest of a message keeps the bytes
    /// that it has.
    fn nothing(&mut self, spare: &mut Vec<u8>) -> Step {
        if self.held.is_empty() && self.held.capacity() > 0 {
            *spare = std::mem::take(&mut self.held);
        } else if self.held.capacity() > 2 * self.held.len() {
            let own = self.held.as_slice().to_vec();
            *spare = std::mem::replace(&mut self.held, own);
            spare.clear();
        }
        self.failure.map_or(Step::Nothing, Step::End)
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
