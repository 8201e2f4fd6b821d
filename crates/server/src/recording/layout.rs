//! The positions of the slots in a recording's file.

use super::block::{HEADER, PAYLOAD_MAX};

/// Number of slots in a recording. When all slots are full, the oldest one is overwritten. So all
/// slots but one always contain the latest inputs.
pub const SLOTS: u64 = 16;

/// Minimum total size of the slots of a recording, in bytes.
pub const SIZE_MIN: u64 = 16 << 20;

/// The positions of the slots in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Offset of the first slot in the file, in bytes.
    pub first: u64,
    /// Size of each slot in bytes.
    pub slot: u64,
}

impl Layout {
    /// Returns the layout of slots of `slot` bytes each after a head of `head` bytes. Returns
    /// `None` if `slot` is too small or too large.
    pub fn of(head: usize, slot: u64) -> Option<Self> {
        const PAGE: u64 = 4096;
        let fits = (SIZE_MIN / SLOTS..1 << 40).contains(&slot);
        fits.then_some(Self { first: (head as u64).next_multiple_of(PAGE), slot })
    }

    /// Returns the offset of slot `index` in the file, in bytes.
    pub fn offset(&self, index: u64) -> u64 {
        self.first + index * self.slot
    }
}

const _: () = assert!((HEADER + PAYLOAD_MAX) as u64 <= SIZE_MIN / SLOTS, "a block fits a slot");
