//! The messages of a WebSocket on a connection.

use tidegate_world::Pool;

use super::{Connection, PONG, State, Step};
use crate::websocket::Next;

impl Connection {
    /// Decodes the next frame of a WebSocket.
    pub(super) fn next_of_websocket(&mut self, pool: &Pool) -> Option<Step> {
        let websocket = self.websocket.as_mut()?;
        Some(match websocket.next(&self.held) {
            Next::Message(bytes) => Step::Message(pool.copy(&bytes)),
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
