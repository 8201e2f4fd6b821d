//! One connection: its socket, the bytes read that do not form a message yet, and the bytes to
//! send.

mod handshake;
mod websocket;

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;

use rustix::buffer::spare_capacity;
use tidegate_sip::{BYTES_MAX, Framer, Next};
use tidegate_world::{Buffer, CloseCause, Flow, Pool, STREAM_WINDOW, Timestamp};

use crate::tls::Tls;
use crate::websocket::{FRAME_HEADER_MAX, WebSocket};
pub(crate) use handshake::Shaken;

/// Maximum number of bytes that one system call reads.
pub(crate) const READ: usize = 16 * 1024;

/// Maximum number of buffers that one system call sends.
const SENT_TOGETHER: usize = 64;

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
    /// Whether the socket may have bytes to read.
    pub(crate) is_readable: bool,
    /// Whether the connection is in the queue of connections to read.
    pub(crate) is_queued: bool,
    /// Whether the connection is in the list of connections to send on.
    pub(crate) is_dirty: bool,
    /// Whether the kernel will report when the socket takes more bytes.
    pub(crate) waits_for_room: bool,
    /// The start of the current wait: for the handshake, for the rest of a message, or for the end
    /// of a connection that is being closed.
    pub(crate) since: Timestamp,
    /// Whether a timer of the connection is set.
    pub(crate) is_timed: bool,
    out: VecDeque<Buffer>,
    /// Number of bytes of the first buffer that have been sent.
    sent: usize,
    /// Bytes handed to this connection since it opened, or since the core was last told that all
    /// bytes are sent.
    handed_out: usize,
}

/// The result of one attempt to read a message.
pub(crate) enum Step {
    /// A message, a ping or a pong was read.
    Message(Buffer),
    /// Some bytes were read, and more may follow.
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

/// The result of an attempt to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All bytes are sent. `tells` is true if the core has to be told that it may hand out more.
    All { tells: bool },
    /// The socket takes no more bytes now.
    Blocked,
    /// The connection has ended.
    End(CloseCause),
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
            is_readable: false,
            is_queued: false,
            is_dirty: false,
            waits_for_room: false,
            since: Timestamp::NEVER,
            is_timed: false,
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
        match &self.websocket {
            None => self.held.len(),
            Some(websocket) => websocket.held(self.held.len()),
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

    /// Returns whether messages may be handed to the connection.
    pub(crate) fn takes_messages(&self) -> bool {
        match self.state {
            State::Open => true,
            // Messages follow the TLS handshake. The handshake of a WebSocket is a message of its
            // own.
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
            self.out.push_back(pool.copy(&websocket.frame(&mut bytes)));
        } else if &bytes[..] == PING {
            self.framer.expect_pong();
        }
        self.handed_out += bytes.len();
        self.out.push_back(bytes);
    }

    /// Reads the next message. Makes at most one call to read bytes. `spare` is an empty buffer,
    /// which is used if no bytes are held.
    pub(crate) fn read(&mut self, pool: &Pool, spare: &mut Vec<u8>) -> Step {
        if let Some(step) = self.frame(pool) {
            return step;
        }
        if !self.is_readable {
            return self.rest(spare, Step::Nothing);
        }
        let kept = self.held.len();
        if kept == 0 && self.held.capacity() < READ {
            std::mem::swap(&mut self.held, spare);
        }
        match self.fill() {
            Ok(()) => self.frame(pool).unwrap_or(Step::More),
            Err(Unfilled::Empty) => self.rest(spare, Step::Nothing),
            // RFC 8446 §4.4.2: a client learns only after its handshake that its certificate is not
            // accepted.
            Err(Unfilled::Tls(rustls::Error::AlertReceived(_))) => Step::End(CloseCause::Insecure),
            Err(Unfilled::Tls(_)) => {
                let _ = self.send();
                Step::End(CloseCause::Garbled)
            }
            Err(Unfilled::Ended(cause)) => Step::End(cause),
        }
    }

    /// Reads bytes from the socket with one call, and appends the plaintext in them to the held
    /// bytes.
    fn fill(&mut self) -> Result<(), Unfilled> {
        let (is_between, held_max) = match &self.websocket {
            None => (self.framer.is_between_messages(), BYTES_MAX),
            Some(_) => (self.held() == 0, BYTES_MAX + FRAME_HEADER_MAX),
        };
        let ended = || match is_between {
            true => Unfilled::Ended(CloseCause::Ended),
            false => Unfilled::Ended(CloseCause::CutOff),
        };
        let (read, wanted) = match &mut self.tls {
            None => {
                let wanted = READ.min(held_max - self.held.len());
                self.held.reserve(wanted);
                (rustix::io::read(&self.stream, spare_capacity(&mut self.held)), wanted)
            }
            // RFC 8446 §6.1: "If a transport-level close is received prior to a "close_notify", the
            // receiver cannot know that all the data that was sent has been received." This does no
            // harm, because each SIP message states its length.
            Some(tls) if tls.is_ended() => return Err(ended()),
            Some(tls) => {
                let mut sealed = [MaybeUninit::uninit(); READ];
                match rustix::io::read(&self.stream, &mut sealed) {
                    Ok((sealed, _)) => {
                        tls.open(sealed, &mut self.held).map_err(Unfilled::Tls)?;
                        (Ok(sealed.len()), READ)
                    }
                    Err(error) => (Err(error), READ),
                }
            }
        };
        match read {
            Ok(0) => Err(ended()),
            Ok(count) => {
                // Fewer bytes than there was room for mean that the socket is empty.
                self.is_readable =
                    count >= wanted || self.tls.as_ref().is_some_and(|tls| tls.is_ended());
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

    /// Frees memory that reading no longer needs. An idle connection keeps no memory. A connection
    /// that waits for the rest of a message keeps the bytes that it has.
    fn rest(&mut self, spare: &mut Vec<u8>, step: Step) -> Step {
        if self.held.is_empty() && self.held.capacity() > 0 {
            *spare = std::mem::take(&mut self.held);
        } else if self.held.capacity() > 2 * self.held.len() {
            let own = self.held.as_slice().to_vec();
            *spare = std::mem::replace(&mut self.held, own);
            spare.clear();
        }
        step
    }

    /// Sends as many bytes as the socket takes.
    pub(crate) fn send(&mut self) -> Sent {
        // RFC 6455 §5.5.3: only the last of several pings needs an answer. So a peer that reads
        // nothing cannot fill the memory.
        self.out.extend(self.pong.take());
        if let Some(ended) = self.send_sealed() {
            return ended;
        }
        while !self.out.is_empty() && self.tls.is_none() {
            let mut slices = [IoSlice::new(&[]); SENT_TOGETHER];
            let mut count = 0;
            for (slice, bytes) in slices.iter_mut().zip(&self.out) {
                let from = if count == 0 { self.sent } else { 0 };
                *slice = IoSlice::new(&bytes[from..]);
                count += 1;
            }
            match (&self.stream).write_vectored(&slices[..count]) {
                Ok(taken) => self.advance(taken),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Blocked,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Sent::End(cause_of(&error)),
            }
        }
        // An idle connection keeps no memory for buffers to send.
        if self.out.capacity() > 0 {
            self.out = VecDeque::new();
        }
        let tells = self.state == State::Open && self.handed_out >= STREAM_WINDOW / 2;
        if tells {
            self.handed_out = 0;
        }
        Sent::All { tells }
    }

    /// Sends over TLS as many bytes as the socket takes. If not everything is sent, returns the
    /// result.
    fn send_sealed(&mut self) -> Option<Sent> {
        let tls = self.tls.as_mut()?;
        loop {
            while tls.has_output() {
                match tls.write(&self.stream) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Some(Sent::Blocked);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Some(Sent::End(cause_of(&error))),
                }
            }
            if tls.is_handshaking() {
                return Some(Sent::All { tells: false });
            }
            if !self.out.is_empty() {
                tls.seal(&mut self.out);
            } else if self.state == State::Closing {
                tls.end();
            }
            if !tls.has_output() {
                return None;
            }
        }
    }

    /// Removes the first `taken` bytes, which are sent, from the buffers.
    fn advance(&mut self, mut taken: usize) {
        while let Some(first) = self.out.front() {
            let left = first.len() - self.sent;
            if taken < left {
                self.sent += taken;
                return;
            }
            taken -= left;
            self.sent = 0;
            self.out.pop_front();
        }
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
