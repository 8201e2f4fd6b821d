//! The bytes that wait for connections, and who may add to them.

use tidegate_world::ConnectionId;

use crate::limits::ConnectionLimits;

/// A count of the bytes that wait for connections.
#[derive(Debug, Default)]
pub(crate) struct WaitingBytes {
    total: usize,
    /// Those for connections that were accepted.
    accepted: usize,
}

impl WaitingBytes {
    /// Returns the bytes that wait for all connections.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Returns whether so many bytes more may wait for a connection.
    pub(crate) fn has_room(
        &self,
        id: ConnectionId,
        bytes: usize,
        limits: &ConnectionLimits,
    ) -> bool {
        let max = limits.total_bytes_max;
        self.total + bytes <= max && (id.is_opened() || self.accepted + bytes <= max / 2)
    }

    /// Counts bytes that wait for a connection.
    pub(crate) fn add(&mut self, id: ConnectionId, bytes: usize) {
        self.total += bytes;
        self.accepted += if id.is_opened() { 0 } else { bytes };
    }

    /// Counts bytes that do not wait any more.
    pub(crate) fn remove(&mut self, id: ConnectionId, bytes: usize) {
        self.total -= bytes;
        self.accepted -= if id.is_opened() { 0 } else { bytes };
    }
}
