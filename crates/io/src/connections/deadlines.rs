//! The time limits of connections: for the rest of a message, for a handshake, and for closing.

use tidegate_world::{CloseCause, ConnectionId, Timestamp};

use super::Connections;
use crate::connection::State;

impl Connections {
    /// Sets the time limit of a connection that holds an incomplete message. If the memory for
    /// incomplete messages is used up, closes the connection if it holds more than its share. So a
    /// peer that fills the memory does not cause the connections of others to be closed.
    pub(super) fn wait_for_rest(&mut self, now: Timestamp, id: ConnectionId) {
        let (held, limits) = (self.held, self.limits);
        let share = limits.held_max / self.connections.len().max(1);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        // A connection that is being closed has a time limit of its own.
        if connection.state != State::Open {
            return;
        }
        if connection.is_between_messages() {
            connection.since = Timestamp::NEVER;
            return;
        }
        if held > limits.held_max && connection.held() > share {
            self.counters.stream_held_full.add(1);
            return self.end(id, CloseCause::Garbled);
        }
        if connection.since == Timestamp::NEVER {
            connection.since = now;
        }
        if !std::mem::replace(&mut connection.is_timed, true) {
            self.timers.push(connection.since + limits.message, id);
        }
    }

    /// Sets the time limit of a connection that is being closed.
    pub(super) fn wait_for_close(&mut self, now: Timestamp, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.state == State::Closing && connection.since == Timestamp::NEVER {
            connection.since = now;
            connection.is_timed = true;
            let due = now + self.limits.linger;
            self.timers.push(due, id);
            self.wait_for_room(id, true);
        }
    }

    /// Closes connections whose time limit has passed.
    pub(super) fn end_late(&mut self, now: Timestamp) {
        while let Some((_, id)) = self.timers.pop(now) {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.is_timed = false;
            if connection.since == Timestamp::NEVER {
                continue;
            }
            let (limit, counter, cause) = match connection.state {
                State::Closing => {
                    (self.limits.linger, &self.counters.stream_cut_off, CloseCause::Asked)
                }
                State::Handshaking => {
                    (self.limits.handshake, connection.late(&self.counters), CloseCause::TimedOut)
                }
                State::Open | State::Opening => {
                    (self.limits.message, &self.counters.stream_slow, CloseCause::TimedOut)
                }
            };
            if connection.since + limit > now {
                connection.is_timed = true;
                self.timers.push(connection.since + limit, id);
                continue;
            }
            counter.add(1);
            self.end(id, cause);
        }
    }
}
