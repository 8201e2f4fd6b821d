//! Keep-alives on the connections of users (RFC 5626 §4.4.1).

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_world::{ConnectionId, Flow, Timestamp, Transmit};

use super::{BURST, Registrant, RegistrantConfig};

/// A ping: the server answers with one CRLF.
const PING: &[u8] = b"\r\n\r\n";

/// The open connections and the times of their next pings.
#[derive(Debug)]
pub(super) struct KeepAlives {
    interval: Duration,
    /// The connections with the times of their next pings. They are in the order of these times,
    /// because the interval is always the same.
    due: VecDeque<(Timestamp, ConnectionId)>,
}

impl KeepAlives {
    /// Creates an empty schedule of pings at this interval.
    pub fn new(interval: Duration) -> Self {
        Self { interval, due: VecDeque::new() }
    }

    /// Schedules the next ping on a connection.
    pub fn schedule(&mut self, now: Timestamp, id: ConnectionId) {
        self.due.push_back((now + self.interval, id));
    }

    /// Returns the time of the next ping, or `None` if there is no connection.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.front().map(|&(at, _)| at)
    }

    /// Removes and returns a connection whose ping is due, if there is one. The connection may have
    /// ended meanwhile.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<ConnectionId> {
        self.due.pop_front_if(|&mut (at, _)| at <= now).map(|(_, id)| id)
    }
}

impl Registrant {
    /// Sends the pings that are due on connections that are still open.
    //
    // RFC 5626 §4.4.1: "The client "pings" by sending a double-CRLF".
    pub(super) fn keep_alive(&mut self, now: Timestamp) {
        let Some(keep_alives) = &mut self.keep_alives else { return };
        for _ in 0..BURST {
            let Some(id) = keep_alives.pop_due(now) else { return };
            if !self.connections.has(id) {
                continue;
            }
            keep_alives.schedule(now, id);
            self.stats.pings += 1;
            let RegistrantConfig { transport, local, target, .. } = self.config;
            let flow = Flow::connected(transport, local, target, id);
            self.out.push_back(Transmit::new(flow, self.pool.copy(PING)));
        }
    }
}
