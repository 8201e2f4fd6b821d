//! A WebSocket on a connection (RFC 6455, RFC 7118): finds the SIP messages in the bytes of the
//! stream and frames messages to send. It does no I/O of its own.
//!
//! `tungstenite` decodes the frames, one at a time. Its state between two frames exists only while
//! a message has arrived in part, so that an idle connection holds no buffer.

mod upgrade;

use std::io::{self, Cursor, Read, Write};

use tidegate_sip::BYTES_MAX;
use tidegate_world::CloseCause;
use tungstenite::Bytes;
use tungstenite::error::Error;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame, FrameHeader};
use tungstenite::protocol::{Message, Role, WebSocketConfig, WebSocketContext};

pub use upgrade::Origins;
pub(crate) use upgrade::{Upgrade, UpgradeFailure};

/// Maximum number of bytes of a frame in addition to its payload (RFC 6455 §5.2).
pub(crate) const FRAME_HEADER_MAX: usize = 14;

/// Maximum number of fragments of a message. Without a limit, a peer could send empty ones without end.
const FRAGMENTS_MAX: usize = 1024;

/// Number of bytes that the decoder reads at once.
const DECODED_TOGETHER: usize = 4096;

/// The WebSocket state of a connection that a peer has opened.
#[derive(Debug)]
pub(crate) struct WebSocket {
    origins: Origins,
    /// True if the handshake is complete.
    is_open: bool,
    /// Number of decoded bytes at the front of the held bytes.
    taken: usize,
    /// The decoder, while it contains fragments of a message.
    decoder: Option<Box<WebSocketContext>>,
    /// Number of bytes of payloads in the decoder, and the number of their frames.
    fragments: usize,
    frames: usize,
}

/// The next item of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A SIP message.
    Message(Bytes),
    /// A fragment of a message, or an empty message.
    Nothing,
    /// A frame that shows that the peer is alive, and the frame to answer it, if one is needed.
    Alive(Vec<u8>),
    /// A frame has not arrived completely.
    Incomplete,
    /// The connection ends, after this frame is sent.
    End(Vec<u8>, CloseCause),
}

impl WebSocket {
    /// Creates the state of a connection on which a client is expected to begin the handshake.
    pub(crate) fn accept(origins: Origins) -> Self {
        Self { origins, is_open: false, taken: 0, decoder: None, fragments: 0, frames: 0 }
    }

    /// Returns whether the handshake is complete.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Takes a step of the handshake with the bytes that have arrived.
    pub(crate) fn upgrade(&mut self, held: &[u8]) -> Upgrade {
        let (upgrade, taken) = upgrade::upgrade(held, &self.origins);
        (self.is_open, self.taken) = (matches!(upgrade, Upgrade::Accepted(_)), taken);
        upgrade
    }

    /// Returns the number of bytes of fragments that the WebSocket keeps, less the bytes of `held`
    /// that it no longer needs.
    pub(crate) fn held(&self, held: usize) -> usize {
        held + self.fragments - self.taken
    }

    /// Returns whether fragments of a message have arrived, but not the last one.
    pub(crate) fn has_fragments(&self) -> bool {
        self.decoder.is_some()
    }

    /// Returns the number of bytes at the front of the held bytes that the WebSocket no longer
    /// needs. The caller removes them.
    pub(crate) fn release(&mut self) -> usize {
        std::mem::take(&mut self.taken)
    }

    /// Decodes the next frame. `held` begins at the same byte as in the last call, except that
    /// released bytes are gone.
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
            Err(error) => return failed(code_of(&error)),
        };
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= BYTES_MAX)
        else {
            return failed(CloseCode::Size);
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
        let decoder = self.decoder.get_or_insert_with(new_decoder);
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
            // RFC 6455 §5.5.1: a close is answered with a close, and then the server ends the connection.
            Ok(Message::Close(_)) => {
                let flushed = decoder.flush(&mut memory);
                debug_assert!(matches!(flushed, Err(Error::ConnectionClosed)));
                Next::End(memory.output, CloseCause::Ended)
            }
            Err(error) => failed(code_of(&error)),
        };
        match next {
            Next::Nothing if self.frames == FRAGMENTS_MAX => return failed(CloseCode::Size),
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
}

fn new_decoder() -> Box<WebSocketContext> {
    let config = WebSocketConfig::default()
        .read_buffer_size(DECODED_TOGETHER)
        .write_buffer_size(0)
        .max_frame_size(Some(BYTES_MAX))
        .max_message_size(Some(BYTES_MAX));
    Box::new(WebSocketContext::new(Role::Server, Some(config)))
}

/// Returns the code for an error of the peer (RFC 6455 §7.4.1).
fn code_of(error: &Error) -> CloseCode {
    match error {
        Error::Capacity(_) => CloseCode::Size,
        Error::Utf8(_) => CloseCode::Invalid,
        _ => CloseCode::Protocol,
    }
}

/// Ends the connection because of an error of the peer.
fn failed(code: CloseCode) -> Next {
    Next::End(close_frame(code), CloseCause::Garbled)
}

/// Returns the frame that informs the peer that the connection ends.
fn close_frame(code: CloseCode) -> Vec<u8> {
    let mut bytes = Vec::new();
    let frame = Frame::close(Some(CloseFrame { code, reason: "".into() }));
    frame.format(&mut bytes).expect("memory takes everything");
    bytes
}

/// Returns the frame that informs the peer that we close the connection.
pub(crate) fn going_away() -> Vec<u8> {
    close_frame(CloseCode::Away)
}

/// Returns the header of the frame that carries `message` to a client.
///
/// RFC 7118 §4.2: "If there is at least one non-UTF-8 symbol in the whole SIP message (including headers and
/// the body), then the whole message MUST be sent within a WebSocket binary message."
pub(crate) fn header_of(message: &[u8]) -> Vec<u8> {
    let is_text = std::str::from_utf8(message).is_ok();
    let opcode = OpCode::Data(if is_text { Data::Text } else { Data::Binary });
    let header = FrameHeader { opcode, ..FrameHeader::default() };
    let mut bytes = Vec::with_capacity(FRAME_HEADER_MAX);
    header.format(message.len() as u64, &mut bytes).expect("memory takes everything");
    bytes
}

/// The stream of a decoder: a frame to read, and the answer to it.
struct Memory<'a> {
    input: &'a [u8],
    output: Vec<u8>,
}

impl Read for Memory<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.input.read(buffer)? {
            // There will be more later.
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
