//! Reads bytes from the socket of a connection, and cuts them into messages.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use tidegate_sip::{BYTES_MAX, Next};
use tidegate_world::{Buffer, CloseCause, Pool, Timestamp};

use super::{Connection, PING, PONG, READ, cause_of};
use crate::clock::Stamps;
use crate::stream_read;
use crate::websocket::FRAME_HEADER_MAX;

/// The work of a connection since it came to the front of the queue of connections to read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Number of messages passed on in this turn. A keep-alive counts as a whole turn of messages.
    pub(crate) messages: u32,
    /// True if the turn has already made a system call to read bytes. A turn makes at most one.
    has_read: bool,
}

/// The result of one attempt to read a message.
pub(crate) enum Step {
    /// A message, a ping or a pong was read.
    Message(Buffer),
    /// More messages or bytes may follow. The connection continues after the other connections.
    More,
    /// There are no bytes to read now.
    Nothing,
    /// The connection has ended.
    End(CloseCause),
}

/// The reason why no bytes were read.
pub(super) enum Unfilled {
    /// There are no bytes now.
    Empty,
    /// TLS has failed, for example because of an alert of the peer or an invalid certificate.
    Tls(rustls::Error),
    /// The connection has ended.
    Ended(CloseCause),
}

impl Connection {
    /// Reads the next message. A [`Turn`] makes at most one system call to read bytes, and passes
    /// on at most `messages_max` messages. If the connection has become readable in this turn, it
    /// had nothing to read at the time `quiet_until`. `spare` is an empty buffer, which is used if
    /// the connection holds no bytes.
    pub(crate) fn read(
        &mut self,
        now: Timestamp,
        quiet_until: Timestamp,
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
        match self.fill(now, quiet_until) {
            Ok(()) => self.frame(pool).unwrap_or(Step::More),
            Err(Unfilled::Empty) => self.nothing(spare),
            // A peer does not repeat the messages before the error, so they are still read.
            Err(Unfilled::Tls(error)) => {
                let cause = self.fail(&error);
                self.frame(pool).unwrap_or(Step::End(cause))
            }
            Err(Unfilled::Ended(cause)) => Step::End(self.failure.unwrap_or(cause)),
        }
    }

    /// Stops sending because of a TLS error, and tells the peer the reason if the socket takes
    /// bytes now. Returns the cause with which the connection ends once all messages before the
    /// error have been passed on.
    pub(super) fn fail(&mut self, error: &rustls::Error) -> CloseCause {
        let cause = match error {
            // RFC 8446 §4.4.2: a client learns only after its handshake that its certificate is not
            // accepted.
            rustls::Error::AlertReceived(_) => CloseCause::Insecure,
            _ => {
                // A session that has failed encrypts no messages, and no answer to a ping.
                self.out.clear();
                self.pong = None;
                let _ = self.send();
                CloseCause::Garbled
            }
        };
        let cause = self.failure.unwrap_or(cause);
        self.stop_sending(cause);
        cause
    }

    /// Reads bytes from the socket with one system call, decrypts them if the connection uses TLS,
    /// and appends them to the held bytes.
    pub(super) fn fill(&mut self, now: Timestamp, quiet_until: Timestamp) -> Result<(), Unfilled> {
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
        match stream_read::read(self.stream.as_fd(), &mut bytes[..wanted]) {
            Ok(([], _)) => Err(ended()),
            Ok((bytes, stamp)) => {
                // If the call returned fewer bytes than there was room for, the socket is empty
                // now.
                self.is_readable = bytes.len() >= wanted;
                let received = Stamps::at(now).arrived(stamp).max(quiet_until);
                self.record_read(now, bytes.len(), received);
                match &mut self.tls {
                    None => self.held.extend_from_slice(bytes),
                    Some(tls) => {
                        tls.open(bytes, &mut self.held).map_err(Unfilled::Tls)?;
                        self.is_readable |= tls.is_ended();
                    }
                }
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_readable = false;
                Err(Unfilled::Empty)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(Unfilled::Ended(cause_of(&error))),
        }
    }

    /// Sets the arrival time of the `count` bytes that were just read, and of the bytes left in the
    /// socket.
    ///
    /// `received` is the time at which the kernel received the last of these bytes. If the shard
    /// has found the socket empty since then, `received` is the later time. The reason: if segments
    /// arrive out of order, the kernel can receive the end of a message long before its beginning,
    /// and reports the time of the end. The present time would be too late, because a busy shard
    /// learns late that a connection has bytes.
    ///
    /// The bytes left in the socket count as having arrived now, even if several further system
    /// calls are needed to read them. Otherwise the messages of a standing queue would seem to have
    /// waited only since the last system call.
    fn record_read(&mut self, now: Timestamp, count: usize, received: Timestamp) {
        self.arrived = self.readable_since.min(received);
        self.marked = if self.is_readable { self.marked.saturating_sub(count) } else { 0 };
        if self.marked > 0 {
            return;
        }
        self.readable_since = now;
        if self.is_readable {
            // This system call cannot fail on a connection. Without a number, the socket counts as
            // empty.
            self.marked = rustix::io::ioctl_fionread(&self.stream).unwrap_or(0) as usize;
        }
    }

    /// Cuts the next message out of the held bytes. Returns `None` if no message is complete.
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
