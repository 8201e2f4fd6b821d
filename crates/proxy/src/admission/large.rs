//! Limit on the memory of long messages that wait in queues.
//!
//! Queues are bounded by the number of messages. Ordinary messages fit into small buffers, but a
//! long message may take 64 KiB. So the total size of long messages is bounded too, and a flood of
//! long messages cannot use up the memory.

use tidegate_world::{Received, SMALL};

/// Total size in bytes of the buffers of waiting long messages, and its limit.
pub(crate) struct LargeBuffers {
    bytes: usize,
    bytes_max: usize,
}

impl LargeBuffers {
    /// Creates a total of zero bytes with the limit `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max }
    }

    /// Returns true if the limit permits a message to wait. An ordinary message is always
    /// permitted. Long messages that request new work are permitted up to half of the limit, and
    /// the other half is reserved for messages of existing calls.
    #[inline]
    pub(crate) fn has_room(&self, received: &Received, is_new: bool) -> bool {
        let bytes = bytes_of(received);
        let bytes_max = if is_new { self.bytes_max / 2 } else { self.bytes_max };
        bytes == 0 || self.bytes + bytes <= bytes_max
    }

    /// Adds the size of the buffer of a message that begins to wait, as [`bytes_of`] returns it.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Subtracts the size of the buffer of a message that no longer waits.
    #[inline]
    pub(crate) fn remove(&mut self, received: &Received) {
        self.bytes -= bytes_of(received);
    }
}

/// Returns the size in bytes of the buffer of a long message, or 0 for an ordinary message.
#[inline]
pub(crate) fn bytes_of(received: &Received) -> usize {
    Some(received.bytes.capacity()).filter(|&bytes| bytes > SMALL).unwrap_or(0)
}
