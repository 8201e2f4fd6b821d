//! The opened connections that peers can cause: those for responses and those to strangers.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::{ConnectionId, Timestamp};

use crate::connection::{Connection, Use};
use crate::recency::Recency;
use crate::remotes::Remotes;

/// A [connection for responses](Use::Response) may be closed to make room for another one when the
/// table has sent no response on it for this time. No response is lost: the driver sends all bytes
/// it has before it closes a connection.
const RESPONSES_YIELD_AFTER: Duration = Duration::from_secs(1);

/// At most 1/32 of the limited connections may be in the process of opening to one remote address
/// for responses. Otherwise a peer whose Via headers name ports without a listener could use up all
/// limited connections.
const OPENING_PART: usize = 32;

/// The opened connections for [responses](Use::Response) and to [strangers](Use::Stranger), except
/// those that are being closed. Peers choose the addresses of these connections, in a Via or a
/// Contact.
///
/// Their number is limited, so that the table always has room for connections to back ends. At most
/// half of them are for responses, so that these cannot keep out all requests to strangers. Each
/// stranger, and each site of strangers, has a share: at most as many connections as are still free
/// for strangers. So the first of n strangers has at most half of the connections, and each further
/// stranger at most half of the rest.
#[derive(Debug, Default)]
pub(super) struct LimitedConnections {
    /// The connections that carry only responses, to requests whose own connections have ended.
    for_responses: Recency,
    /// Counts of connections that are being opened for responses, per remote address.
    opening_for_responses: Remotes,
    to_strangers: Recency,
    /// Counts of the connections in `to_strangers`, per remote address.
    strangers: Remotes,
}

impl LimitedConnections {
    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.for_responses.len() + self.to_strangers.len()
    }

    /// Returns whether one more of the `max` connections may have this use.
    pub(super) fn has_place(&self, by: Use, max: usize) -> bool {
        let responses_max = (max / 2).max(1);
        self.len() < max && (by != Use::Response || self.for_responses.len() < responses_max)
    }

    /// Counts a connection that is to be opened to `remote`. Returns false, and does not count the
    /// connection, if the remote address has its share of the `max` connections.
    pub(super) fn admit(&mut self, remote: SocketAddr, by: Use, max: usize) -> bool {
        match by {
            Use::Any => true,
            Use::Stranger => {
                let share = max.saturating_sub(self.to_strangers.len());
                self.strangers.admit(remote, share, share)
            }
            Use::Response => {
                let opening_max = (max / OPENING_PART).max(1);
                self.opening_for_responses.admit(remote, opening_max, usize::MAX)
            }
        }
    }

    /// Adds a connection that was [admitted](Self::admit) for this use.
    pub(super) fn add(&mut self, now: Timestamp, id: ConnectionId, by: Use) {
        match by {
            Use::Any => {}
            Use::Stranger => self.to_strangers.add(now, id),
            Use::Response => self.for_responses.add(now, id),
        }
    }

    /// Changes the use of an opened connection to a higher one. If the remote address of a
    /// connection for responses has its share of the connections to strangers, the use stays the
    /// same, and the connection may be closed early.
    pub(super) fn promote(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: ConnectionId,
        by: Use,
        max: usize,
    ) {
        let remote = connection.flow.remote;
        if self.admit(remote, by, max) {
            self.remove(id, remote);
            self.add(now, id, by);
            connection.serves = by;
        }
    }

    /// Returns the connection to close when there is no room for a message of the kind `by`: the
    /// least recently used connection for responses, unless it was used within
    /// [`RESPONSES_YIELD_AFTER`]. If there is none, and the message is not a response, returns the
    /// least recently used connection to a stranger, unless it was used within `yields_after`.
    /// `last_use` returns the time of a connection's last use.
    pub(super) fn oldest(
        &mut self,
        now: Timestamp,
        by: Use,
        yields_after: Duration,
        last_use: impl Fn(ConnectionId) -> Timestamp,
    ) -> Option<ConnectionId> {
        let for_responses = self.for_responses.oldest(now, RESPONSES_YIELD_AFTER, &last_use);
        if for_responses.is_some() || by == Use::Response {
            return for_responses;
        }
        self.to_strangers.oldest(now, yields_after, &last_use)
    }

    /// Records that a connection for responses to `remote` is open, or could not be opened.
    pub(super) fn forget_opening(&mut self, remote: SocketAddr) {
        self.opening_for_responses.forget(remote);
    }

    /// Removes a connection to `remote`, if it is one of the limited connections.
    pub(super) fn remove(&mut self, id: ConnectionId, remote: SocketAddr) {
        self.for_responses.remove(id);
        if self.to_strangers.remove(id) {
            self.strangers.forget(remote);
        }
    }

    /// Returns the number of connections with this use.
    #[cfg(test)]
    pub(super) fn count(&self, by: Use) -> usize {
        match by {
            Use::Any => 0,
            Use::Stranger => self.to_strangers.len(),
            Use::Response => self.for_responses.len(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0 && self.strangers.is_empty() && self.opening_for_responses.is_empty()
    }
}
