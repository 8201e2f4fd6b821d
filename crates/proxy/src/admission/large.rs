//! Limit on the memory that long messages in queues occupy.
//!
//! Queues are bounded by the number of messages. Ordinary messages fit into small buffers, but a
//! long message may take 64 KiB. So the total size of long messages is bounded too, and a flood of
//! long messages cannot use up the memory.

use tidegate_world::{Received, SMALL};

/// Total size in bytes of the buffers of waiting long messages, and its maximum.
pub(crate) struct LargeBuffers {
    bytes: usize,
    bytes_max: usize,
}

impl LargeBuffers {
    /// Creates the total for empty queues, with the limit `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max }
    }

    /// Returns whether a message may wait in a queue. An ordinary message always may. If the
    /// message is long and requests new work, all long messages together may take at most half of
    /// the limit. The other half is reserved for calls in progress.
    #[inline]
    pub(crate) fn has_room(&self, received: &Received, is_new: bool) -> bool {
        let bytes = bytes_of(received);
        let bytes_max = if is_new { self.bytes_max / 2 } else { self.bytes_max };
        bytes == 0 || self.bytes + bytes <= bytes_max
    }

    /// Records that a message with a buffer of this [size](bytes_of) waits in a queue.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Records that a message no longer waits in a queue.
    #[inline]
    pub(crate) fn remove(&mut self, received: &Received) {
        self.bytes -= bytes_of(received);
    }
}

/// Returns the size of the buffer of a long message, and 0 for an ordinary message.
#[inline]
pub(crate) fn bytes_of(received: &Received) -> usize {
    Some(received.bytes.capacity()).filter(|&bytes| bytes > SMALL).unwrap_or(0)
}
