//! Reads messages from a stream, as a driver on real sockets does.

use tidegate_sip::{BYTES_MAX, Framer, Next};
use tidegate_world::{Buffer, CloseCause, Pool, Transport};

use crate::stream::Pipe;

/// A reader that cuts the bytes that arrive at one end of a connection into messages.
///
/// TCP and TLS streams are cut by a [`Framer`]. Over WebSocket, each message arrives as a whole
/// (RFC 7118 §5).
#[derive(Debug)]
pub(super) struct Reader {
    framer: Option<Framer>,
    held: Vec<u8>,
    /// Offset in the stream of the first byte in `held`.
    base: u64,
    /// Offset in the stream of the end of the last item read: a message, a ping or a pong.
    framed: u64,
}

/// The result of [`Reader::next`].
pub(super) enum Read {
    /// A message, a ping or a pong.
    Message(Buffer),
    /// The connection has ended, for this reason.
    End(CloseCause),
    /// There is nothing to read now.
    Nothing,
}

impl Reader {
    pub fn new(transport: Transport) -> Self {
        let framer = match transport {
            Transport::Tcp | Transport::Tls => Some(Framer::default()),
            Transport::Ws | Transport::Wss | Transport::Udp => None,
        };
        Self { framer, held: Vec::new(), base: 0, framed: 0 }
    }

    /// Treats the next CRLF as a pong.
    pub fn expect_pong(&mut self) {
        if let Some(framer) = &mut self.framer {
            framer.expect_pong();
        }
    }

    /// Returns the offset in the stream of the end of the last item read.
    pub fn framed(&self) -> u64 {
        self.framed
    }

    /// Reads the next message, ping or pong. Takes at most `budget` bytes from `pipe`, and
    /// subtracts their number from `budget`.
    pub fn next(&mut self, pipe: &mut Pipe, pool: &Pool, budget: &mut usize) -> Read {
        let Some(framer) = &mut self.framer else {
            *budget -= pipe.skip(*budget);
            return match pipe.front() {
                Some((bytes, end)) => {
                    self.framed = end;
                    Read::Message(pool.copy(bytes))
                }
                None if !pipe.has_ended || pipe.readable() > 0 => Read::Nothing,
                None if pipe.is_within_message() => Read::End(CloseCause::CutOff),
                None => Read::End(CloseCause::Ended),
            };
        };
        loop {
            let bytes = match framer.next(&self.held) {
                Next::Message(range) => pool.copy(&self.held[range]),
                Next::Ping => pool.copy(b"\r\n\r\n"),
                Next::Pong => pool.copy(b"\r\n"),
                Next::Broken(_) => return Read::End(CloseCause::Garbled),
                Next::Incomplete { .. } => {
                    let done = framer.release();
                    self.held.drain(..done);
                    self.base += done as u64;
                    let room = BYTES_MAX - self.held.len();
                    let read = pipe.read(room.min(*budget), &mut self.held);
                    *budget -= read;
                    match read {
                        0 if !pipe.has_ended || pipe.readable() > 0 => return Read::Nothing,
                        0 if framer.is_between_messages() => return Read::End(CloseCause::Ended),
                        0 => return Read::End(CloseCause::CutOff),
                        _ => continue,
                    }
                }
            };
            self.framed = self.base + framer.consumed() as u64;
            return Read::Message(bytes);
        }
    }
}
