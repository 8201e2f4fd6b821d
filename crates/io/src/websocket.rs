//! A WebSocket on a connection (RFC 6455, RFC 7118): finds the SIP messages in the bytes of the
//! stream and frames messages to send. It does no I/O of its own.
//!
//! The roles of client and server differ in the handshake and in masking: only a client masks its
//! frames.
//!
//! `tungstenite` decodes the frames, one at a time. Its state between two frames exists only while
//! a message has arrived in part, so that an idle connection holds no buffer.

mod opening;
mod upgrade;

use std::io::{self, Cursor, Read, Write};

use tidegate_sip::BYTES_MAX;
use tidegate_world::{Buffer, CloseCause};
use tungstenite::Bytes;
use tungstenite::error::Error;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame, FrameHeader};
use tungstenite::protocol::{Message, Role, WebSocketConfig, WebSocketContext};

use opening::Opening;

pub use opening::WebSocketClient;
pub use upgrade::Origins;
pub(crate) use upgrade::{Upgrade, UpgradeFailure};

/// Maximum number of bytes of a frame in addition to its payload (RFC 6455 §5.2).
pub(crate) const FRAME_HEADER_MAX: usize = 14;

/// Maximum number of fragments of a message. Without a limit, a peer could send an endless series
/// of empty fragments.
const FRAGMENTS_MAX: usize = 1024;

/// Number of bytes that the decoder reads at once. Its buffer has this size.
const DECODED_TOGETHER: usize = 4096;

/// The WebSocket state of a connection.
#[derive(Debug)]
pub(crate) struct WebSocket {
    role: Role,
    handshake: Handshake,
    /// Number of decoded bytes at the front of the bytes that the connection holds.
    taken: usize,
    /// The decoder, while it contains fragments of a message.
    decoder: Option<Box<WebSocketContext>>,
    /// Number of payload bytes of the fragments in the decoder. `frames` is the number of
    /// fragments.
    fragments: usize,
    frames: usize,
}

/// The state of the opening handshake.
#[derive(Debug)]
enum Handshake {
    /// We are the server and wait for the request of a client. If the client is a browser, its page
    /// must have one of these origins.
    Awaited(Origins),
    /// We are the client, and the response of the server has not arrived completely.
    Begun(Opening),
    /// The handshake is complete.
    Complete,
}

/// The result of decoding the next frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A SIP message.
    Message(Bytes),
    /// A fragment of a message, or an empty message.
    Nothing,
    /// A ping or a pong, with the frame to send as the answer. The answer is empty if none is
    /// needed.
    Alive(Vec<u8>),
    /// A frame has not arrived completely.
    Incomplete,
    /// The connection ends, after this frame is sent.
    End(Vec<u8>, CloseCause),
}

impl WebSocket {
    /// Creates the state of a connection on which a client is expected to begin the handshake.
    pub(crate) fn accept(origins: Origins) -> Self {
        Self::new(Role::Server, Handshake::Awaited(origins))
    }

    /// Creates the state of a connection on which we begin the handshake with a server. Also returns
    /// the request that begins it.
    pub(crate) fn open(client: &WebSocketClient) -> (Self, Vec<u8>) {
        let (opening, request) = Opening::begin(client);
        (Self::new(Role::Client, Handshake::Begun(opening)), request)
    }

    fn new(role: Role, handshake: Handshake) -> Self {
        Self { role, handshake, taken: 0, decoder: None, fragments: 0, frames: 0 }
    }

    /// Returns whether the handshake is complete.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.handshake, Handshake::Complete)
    }

    /// Takes a step of the handshake with the bytes that have arrived.
    pub(crate) fn upgrade(&mut self, held: &[u8]) -> Upgrade {
        let (upgrade, taken) = match &self.handshake {
            Handshake::Awaited(origins) => upgrade::upgrade(held, origins),
            Handshake::Begun(opening) => opening.read(held),
            Handshake::Complete => unreachable!("a handshake has no step after its end"),
        };
        self.taken = taken;
        if matches!(upgrade, Upgrade::Accepted(_)) {
            self.handshake = Handshake::Complete;
        }
        upgrade
    }

    /// Returns the number of bytes that are kept: the `held` bytes of the connection that are not
    /// decoded yet, and the decoder with the fragments in it. While there is a decoder, this number
    /// is above 0, even if the fragments have no payload.
    pub(crate) fn held(&self, held: usize) -> usize {
        let decoder = if self.has_fragments() { DECODED_TOGETHER } else { 0 };
        held + decoder + self.fragments - self.taken
    }

    /// Returns whether fragments of a message have arrived, but not the last one.
    pub(crate) fn has_fragments(&self) -> bool {
        self.decoder.is_some()
    }

    /// Returns the number of bytes at the front of the connection's held bytes that the WebSocket
    /// no longer needs. The caller removes these bytes.
    pub(crate) fn release(&mut self) -> usize {
        std::mem::take(&mut self.taken)
    }

    /// Decodes the next frame. `held` begins at the same byte as in the last call of this function,
    /// except that [released](Self::release) bytes are gone.
    ///
    /// RFC 7118 §5: "Each SIP message MUST be carried within a single WebSocket message, and a WebSocket
    /// message MUST NOT contain more than one SIP message."
    ///
    /// RFC 7118 §4.2: "Therefore, SIP WebSocket Clients and SIP WebSocket Servers MUST accept both text and
    /// binary frames."
    pub(crate) fn next(&mut self, held: &[u8]) -> Next {
        let bytes = &held[self.taken..];
        let mut cursor = Cursor::new(bytes);
        let length = match FrameHeader::parse(&mut cursor) {
            Ok(Some((_, length))) => length,
            Ok(None) => return Next::Incomplete,
            Err(error) => return self.failed(code_of(&error)),
        };
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= BYTES_MAX)
        else {
            return self.failed(CloseCode::Size);
        };
        let Some(frame) = bytes.get(..cursor.position() as usize + length) else {
            return Next::Incomplete;
        };
        self.taken += frame.len();
        self.decode(frame, length)
    }

    /// Decodes a complete frame, whose payload has `length` bytes.
    fn decode(&mut self, frame: &[u8], length: usize) -> Next {
        let mut memory = Memory { input: frame, output: Vec::new() };
        let decoder = self.decoder.get_or_insert_with(|| new_decoder(self.role));
        let next = match decoder.read(&mut memory) {
            Ok(Message::Text(text)) => Next::Message(text.into()),
            Ok(Message::Binary(bytes)) => Next::Message(bytes),
            // The frame was a fragment.
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Next::Nothing,
            // RFC 6455 §5.5.2: a ping is answered with a pong. The decoder has prepared it.
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {
                let flushed = decoder.flush(&mut memory);
                debug_assert!(flushed.is_ok(), "memory takes everything");
                Next::Alive(memory.output)
            }
            // RFC 6455 §5.5.1: a close is answered with a close, and then the server ends the
            // connection. A client may do so, too (§7.1.1).
            Ok(Message::Close(_)) => {
                let flushed = decoder.flush(&mut memory);
                debug_assert!(matches!(flushed, Ok(()) | Err(Error::ConnectionClosed)));
                Next::End(memory.output, CloseCause::Ended)
            }
            Err(error) => self.failed(code_of(&error)),
        };
        match next {
            Next::Nothing if self.frames == FRAGMENTS_MAX => return self.failed(CloseCode::Size),
            Next::Nothing => {
                self.fragments += length;
                self.frames += 1;
            }
            Next::Message(_) => (self.fragments, self.frames) = (0, 0),
            _ => {}
        }
        if self.frames == 0 {
            self.decoder = None;
        }
        match next {
            Next::Message(bytes) if bytes.is_empty() => Next::Nothing,
            next => next,
        }
    }

    /// Ends the connection because of an error of the peer.
    fn failed(&self, code: CloseCode) -> Next {
        Next::End(self.close_frame(code), CloseCause::Garbled)
    }

    /// Returns the frame that informs the peer that we close the connection.
    pub(crate) fn going_away(&self) -> Vec<u8> {
        self.close_frame(CloseCode::Away)
    }

    /// Returns the frame that informs the peer that the connection ends.
    fn close_frame(&self, code: CloseCode) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut frame = Frame::close(Some(CloseFrame { code, reason: "".into() }));
        frame.header_mut().mask = self.new_mask();
        frame.format(&mut bytes).expect("memory takes everything");
        bytes
    }

    /// Turns `message` into the payload of a frame, which a client masks. Returns the header of the
    /// frame.
    ///
    /// RFC 7118 §4.2: "If there is at least one non-UTF-8 symbol in the whole SIP message (including headers
    /// and the body), then the whole message MUST be sent within a WebSocket binary message."
    pub(crate) fn frame(&self, message: &mut Buffer) -> Vec<u8> {
        let is_text = std::str::from_utf8(message).is_ok();
        let opcode = OpCode::Data(if is_text { Data::Text } else { Data::Binary });
        let (mask, length) = (self.new_mask(), message.len());
        let header = FrameHeader { opcode, mask, ..FrameHeader::default() };
        let mut bytes = Vec::with_capacity(FRAME_HEADER_MAX);
        header.format(length as u64, &mut bytes).expect("memory takes everything");
        if let Some(key) = mask {
            apply(key, &mut message.room_mut()[..length]);
        }
        bytes
    }

    /// Returns a masking key for a frame to send, or `None` if we are the server.
    ///
    /// RFC 6455 §5.3: "When preparing a masked frame, the client MUST pick a fresh masking key from the set of
    /// allowed 32-bit values. The masking key needs to be unpredictable; thus, the masking key MUST be derived
    /// from a strong source of entropy".
    fn new_mask(&self) -> Option<[u8; 4]> {
        let random = || getrandom::u32().expect("the system has random numbers").to_ne_bytes();
        (self.role == Role::Client).then(random)
    }
}

/// Masks a payload.
///
/// RFC 6455 §5.3: "Octet i of the transformed data ("transformed-octet-i") is the XOR of octet i of the
/// original data ("original-octet-i") with octet at index i modulo 4 of the masking key".
fn apply(key: [u8; 4], payload: &mut [u8]) {
    for four in payload.chunks_mut(key.len()) {
        for (byte, mask) in four.iter_mut().zip(key) {
            *byte ^= mask;
        }
    }
}

fn new_decoder(role: Role) -> Box<WebSocketContext> {
    let config = WebSocketConfig::default()
        .read_buffer_size(DECODED_TOGETHER)
        .write_buffer_size(0)
        .max_frame_size(Some(BYTES_MAX))
        .max_message_size(Some(BYTES_MAX));
    Box::new(WebSocketContext::new(role, Some(config)))
}

/// Returns the code for an error of the peer (RFC 6455 §7.4.1).
fn code_of(error: &Error) -> CloseCode {
    match error {
        Error::Capacity(_) => CloseCode::Size,
        Error::Utf8(_) => CloseCode::Invalid,
        _ => CloseCode::Protocol,
    }
}

/// The stream of a decoder: a frame to read, and the answer to it.
struct Memory<'a> {
    input: &'a [u8],
    output: Vec<u8>,
}

impl Read for Memory<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.input.read(buffer)? {
            // More frames may arrive later, so this is not the end of the stream.
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "websocket_tests.rs"]
mod tests;
