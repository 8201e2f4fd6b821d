//! The bytes of long messages that wait.
//!
//! Queues are bounded by the number of messages. Ordinary ones fit into small buffers; of those
//! that do not, each of which may take 64 KiB, the bytes are bounded as well. So a flood of long
//! messages takes neither the memory nor the place of ordinary ones.

use tidegate_world::{Received, SMALL};

/// The bytes of the buffers of long messages that wait.
pub(crate) struct LargeBuffers {
    bytes: usize,
    bytes_max: usize,
}

impl LargeBuffers {
    /// Bounds them to `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max }
    }

    /// Returns whether a message may wait. New work may take half of what there is: the rest is for
    /// calls in progress.
    #[inline]
    pub(crate) fn has_room(&self, received: &Received, is_new: bool) -> bool {
        let bytes = bytes_of(received);
        let bytes_max = if is_new { self.bytes_max / 2 } else { self.bytes_max };
        bytes == 0 || self.bytes + bytes <= bytes_max
    }

    /// A message that takes so many [bytes](bytes_of) waits from now on.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// A message does not wait any longer.
    #[inline]
    pub(crate) fn remove(&mut self, received: &Received) {
        self.bytes -= bytes_of(received);
    }
}

/// Bytes that the buffer of a message takes, if it is longer than an ordinary one.
#[inline]
pub(crate) fn bytes_of(received: &Received) -> usize {
    Some(received.bytes.capacity()).filter(|&bytes| bytes > SMALL).unwrap_or(0)
}
