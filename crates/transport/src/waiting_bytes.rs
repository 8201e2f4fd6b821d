//! Counts the bytes that wait to be sent on connections, and checks their limits.

use tidegate_world::ConnectionId;

use crate::limits::ConnectionLimits;

/// Counts of the bytes that wait to be sent on connections.
#[derive(Debug, Default)]
pub(crate) struct WaitingBytes {
    total: usize,
    /// Bytes among `total` that wait to be sent on accepted connections.
    accepted: usize,
}

impl WaitingBytes {
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Returns whether `bytes` more bytes may wait for the connection `id`. Accepted connections
    /// together may use at most half of [`total_bytes_max`](ConnectionLimits::total_bytes_max).
    pub(crate) fn has_room(
        &self,
        id: ConnectionId,
        bytes: usize,
        limits: &ConnectionLimits,
    ) -> bool {
        let max = limits.total_bytes_max;
        self.total + bytes <= max && (id.is_opened() || self.accepted + bytes <= max / 2)
    }

    pub(crate) fn add(&mut self, id: ConnectionId, bytes: usize) {
        self.total += bytes;
        self.accepted += if id.is_opened() { 0 } else { bytes };
    }

    pub(crate) fn remove(&mut self, id: ConnectionId, bytes: usize) {
        self.total -= bytes;
        self.accepted -= if id.is_opened() { 0 } else { bytes };
    }
}
