//! Sends the bytes that wait in a connection to its peer.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;

use tidegate_world::{Buffer, CloseCause, STREAM_WINDOW, Timestamp};

use super::{Connection, READ, State, cause_of};

/// Maximum number of buffers that one system call sends.
const SENT_TOGETHER: usize = 64;

/// Maximum number of system calls that discard unread bytes of the peer before the connection is
/// closed.
const DISCARDED_READS: usize = 16;

/// The result of an attempt to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All bytes are sent. `tells` is true if the core has to be told that the connection is
    /// writable.
    All { tells: bool },
    /// The socket takes no more bytes now.
    Blocked,
    /// The connection has ended.
    End(CloseCause),
}

impl Connection {
    /// Appends bytes to send.
    ///
    /// A buffer takes 2 KiB, however few bytes it has. So while the socket takes no bytes, new
    /// bytes are copied into the last buffer if it has room. Otherwise a peer that sends pings and
    /// reads nothing could fill the memory.
    pub(super) fn append(&mut self, bytes: Buffer) {
        let last = self.out.back_mut().filter(|_| self.waits_for_room);
        match last.filter(|last| last.len() + bytes.len() <= last.capacity()) {
            Some(last) => last.push(&bytes).expect("the buffer has room"),
            None => self.out.push_back(bytes),
        }
    }

    /// Returns the memory of the messages that the socket has not taken, in bytes.
    pub(crate) fn unsent_bytes(&self) -> usize {
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.unsent());
        self.out.iter().map(Buffer::capacity).sum::<usize>() + sealed
    }

    /// Drops the bytes to send, because the socket takes no more bytes for the reason `cause`.
    pub(crate) fn stop_sending(&mut self, cause: CloseCause) {
        self.failure = Some(cause);
        (self.out, self.sent) = (VecDeque::new(), 0);
    }

    /// Sends as many bytes as the socket takes.
    pub(crate) fn send(&mut self) -> Sent {
        if self.failure.is_some() {
            self.out.clear();
            self.pong = None;
            return Sent::All { tells: false };
        }
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

    /// Sends over TLS as many bytes as the socket takes. Returns `None` if all bytes are sent, or
    /// if the connection has no TLS. Otherwise returns the result of the attempt.
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
            if self.out.is_empty() {
                if self.state == State::Closing {
                    tls.end();
                }
            } else if !tls.seal(&mut self.out) {
                // The core learns of the end, and opens another connection for the next message.
                tls.end();
                if !tls.has_output() {
                    return Some(Sent::End(CloseCause::Other));
                }
            }
            if !tls.has_output() {
                return None;
            }
        }
    }

    /// Keeps the connection open until all bytes are sent, if the peer has ended only its own side
    /// (`cause`), bytes are left to send, and the connection has neither TLS nor a WebSocket. In
    /// this case, discards the bytes that were read, because no more follow, and returns true.
    /// Otherwise does nothing and returns false: the connection ends at once.
    ///
    /// RFC 3261 §18.2.2: "the response MUST be sent using the existing connection to the source of
    /// the original request that created the transaction, if that connection is still open."
    pub(crate) fn finish(&mut self, cause: CloseCause) -> bool {
        let is_end_of_peer = matches!(cause, CloseCause::Ended | CloseCause::CutOff);
        let is_plain = self.tls.is_none() && self.websocket.is_none();
        if !is_end_of_peer || !is_plain || self.failure.is_some() || self.out.is_empty() {
            return false;
        }
        (self.state, self.ended, self.since) = (State::Closing, Some(cause), Timestamp::NEVER);
        self.held = Vec::new();
        true
    }

    /// Returns the cause with which a closing connection ends.
    pub(crate) fn end_cause(&self) -> CloseCause {
        self.ended.unwrap_or(CloseCause::Asked)
    }

    /// Removes `taken` bytes that have been sent from the front of the buffers.
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

    /// Tells the peer of a TLS connection that no more bytes follow, unless the peer was told
    /// already. There is only one attempt, because the connection ends now: if the socket takes no
    /// bytes, the peer is not told.
    pub(crate) fn announce_end(&mut self) {
        let is_possible = self.failure.is_none() && !self.has_tls_handshake();
        let Some(tls) = self.tls.as_mut().filter(|_| is_possible) else { return };
        tls.end();
        if tls.has_output() {
            let _ = tls.write(&self.stream);
        }
    }

    /// Ends our side of the connection, and discards the bytes that the peer has sent. If any of
    /// the peer's bytes stayed unread, the kernel would reset the connection and discard the bytes
    /// that it has not sent yet.
    pub(crate) fn part(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut bytes = [MaybeUninit::<u8>::uninit(); READ];
        for _ in 0..DISCARDED_READS {
            match rustix::io::read(&self.stream, &mut bytes) {
                Ok((read, _)) if !read.is_empty() => {}
                _ => return,
            }
        }
    }
}
