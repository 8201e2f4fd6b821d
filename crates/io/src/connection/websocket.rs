//! The messages of a WebSocket on a connection.

use tidegate_world::Pool;

use super::{Connection, PONG, State, Step};
use crate::websocket::Next;

impl Connection {
    /// Decodes the next frame of a WebSocket.
    pub(super) fn next_of_websocket(&mut self, pool: &Pool) -> Option<Step> {
        let websocket = self.websocket.as_mut()?;
        Some(match websocket.next(&self.held) {
            Next::Message(bytes) => Step::Message(pool.copy(from_start_line(&bytes))),
            Next::Nothing => Step::More,
            // RFC 7118 §6: pings keep a WebSocket open, as empty lines keep another stream open.
            // The core gets the same message as for a pong.
            Next::Alive(answer) => {
                if !answer.is_empty() {
                    self.pong = Some(pool.copy(&answer));
                }
                Step::Message(pool.copy(PONG))
            }
            Next::Incomplete => {
                let done = websocket.release();
                self.held.drain(..done);
                return None;
            }
            Next::End(last, cause) => {
                self.out.push_back(pool.copy(&last));
                self.send_last();
                Step::End(cause)
            }
        })
    }

    /// Sends the last bytes of the connection. If the socket takes no bytes now, the peer does not
    /// get them.
    pub(super) fn send_last(&mut self) {
        self.state = State::Closing;
        let _ = self.send();
    }
}

/// Returns a message without the line ends before its start line. On a connection without a
/// WebSocket, the framer skips these line ends.
///
/// RFC 3261 §7.5: "Implementations processing SIP messages over stream-oriented transports MUST ignore any
/// CRLF appearing before the start-line".
fn from_start_line(bytes: &[u8]) -> &[u8] {
    match bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')) {
        Some(start) => &bytes[start..],
        // A keep-alive.
        None => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_before_a_message_are_skipped() {
        for (message, expected) in [
            (&b"INVITE sip:a@b SIP/2.0\r\n\r\n"[..], &b"INVITE sip:a@b SIP/2.0\r\n\r\n"[..]),
            (b"\r\n\n\rINVITE sip:a@b SIP/2.0\r\n", b"INVITE sip:a@b SIP/2.0\r\n"),
            (b"\r\n\r\n", b"\r\n\r\n"),
            (b"", b""),
        ] {
            assert_eq!(from_start_line(message), expected);
        }
    }
}
