//! SIP messages on a stream.

use std::io::{self, Read, Write};

use super::Message;

/// A stream that carries one message after the other.
pub struct TextStream<S> {
    stream: S,
    held: String,
}

impl<S: Read + Write> TextStream<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, held: String::new() }
    }

    /// Sends bytes. The server may have closed the connection.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
    }

    /// Returns the next message.
    ///
    /// # Errors
    /// Returns an error if the connection ends before the next message is complete.
    pub fn next(&mut self) -> io::Result<Message> {
        loop {
            if let Some(end) = self.held.find("\r\n\r\n") {
                let head = &self.held[..end + 4];
                let length = Message(head.to_owned()).field("Content-Length").parse().unwrap_or(0);
                if self.held.len() >= end + 4 + length {
                    let rest = self.held.split_off(end + 4 + length);
                    return Ok(Message(std::mem::replace(&mut self.held, rest)));
                }
            }
            let mut bytes = [0; 8192];
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.held += std::str::from_utf8(&bytes[..count]).expect("text"),
            }
        }
    }
}
