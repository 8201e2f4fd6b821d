//! The time limits of connections: for the rest of a message, for a handshake, and for closing.

use tidegate_world::{CloseCause, ConnectionId, Timestamp};

use super::Connections;
use crate::connection::State;

impl Connections {
    /// Sets the time limit of a connection that holds an incomplete message.
    pub(super) fn wait_for_rest(&mut self, now: Timestamp, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        // A connection that is being closed has a time limit of its own.
        if connection.state != State::Open {
            return;
        }
        if connection.is_between_messages() {
            connection.since = Timestamp::NEVER;
            return;
        }
        if connection.since == Timestamp::NEVER {
            connection.since = now;
        }
        let due = connection.since + self.limits.message;
        self.limit_held(id);
        self.arm(id, due);
    }

    /// Sets the timer of a connection, unless an earlier one is set. A timer that fires too early is
    /// set again.
    fn arm(&mut self, id: ConnectionId, due: Timestamp) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if due < connection.timer {
            connection.timer = due;
            self.timers.push(due, id);
        }
    }

    /// Sets the time limit of a connection that is being closed.
    pub(super) fn wait_for_close(&mut self, now: Timestamp, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.state == State::Closing && connection.since == Timestamp::NEVER {
            connection.since = now;
            self.arm(id, now + self.limits.linger);
            self.wait_for_room(id, true);
        }
    }

    /// Closes connections whose time limit has passed.
    pub(super) fn end_late(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.timers.pop(now) {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            if connection.timer != at {
                continue;
            }
            connection.timer = Timestamp::NEVER;
            if connection.since == Timestamp::NEVER {
                continue;
            }
            let (limit, counter, cause) = match connection.state {
                State::Closing => {
                    (self.limits.linger, &self.counters.stream_cut_off, connection.end_cause())
                }
                State::Handshaking => {
                    (self.limits.handshake, connection.late(&self.counters), CloseCause::TimedOut)
                }
                State::Open | State::Opening => {
                    (self.limits.message, &self.counters.stream_slow, CloseCause::TimedOut)
                }
            };
            let due = connection.since + limit;
            if due > now {
                self.arm(id, due);
                continue;
            }
            counter.add(1);
            self.end(id, cause);
        }
    }
}
