//! Editing by cutting and inserting.

use std::io::{self, Write};
use std::ops::Range;

use arrayvec::ArrayVec;

use crate::Message;

/// Edits of one message at the most.
pub const EDITS_MAX: usize = 16;

/// Edits to a message, applied while it is written out: what no edit touches is
/// copied byte for byte.
///
/// How many edits there are, and that none overlap, is decided by the code that makes
/// them and by nothing a peer sends; so both limits are assertions.
#[derive(Clone, Debug)]
pub struct Splice<'a> {
    bytes: &'a [u8],
    /// Sorted by position; at one position insertions come before a cut.
    edits: ArrayVec<Edit<'a>, EDITS_MAX>,
}

#[derive(Clone, Debug)]
struct Edit<'a> {
    cut: Range<usize>,
    text: &'a [u8],
}

impl<'a> Splice<'a> {
    /// No edits yet.
    pub fn new(message: &Message<'a>) -> Self {
        Self { bytes: message.bytes(), edits: ArrayVec::new() }
    }

    /// Inserts `text` before the byte at `at`. Of several insertions at one place the
    /// first made comes first.
    ///
    /// # Panics
    /// If `at` lies outside the message or inside a cut, or beyond [`EDITS_MAX`] edits.
    pub fn insert(&mut self, at: usize, text: &'a [u8]) {
        self.replace(at..at, text);
    }

    /// Cuts `range` out.
    ///
    /// # Panics
    /// If `range` lies outside the message or overlaps an edit, or beyond
    /// [`EDITS_MAX`] edits.
    pub fn remove(&mut self, range: Range<usize>) {
        self.replace(range, b"");
    }

    /// Puts `text` in the place of `range`.
    ///
    /// # Panics
    /// If `range` lies outside the message or overlaps an edit, or beyond
    /// [`EDITS_MAX`] edits.
    pub fn replace(&mut self, range: Range<usize>, text: &'a [u8]) {
        assert!(range.start <= range.end && range.end <= self.bytes.len(), "outside the message");
        let key = |cut: &Range<usize>| (cut.start, !cut.is_empty());
        let place = self.edits.iter().rposition(|edit| key(&edit.cut) <= key(&range));
        let place = place.map_or(0, |before| before + 1);
        let fits_before = place == 0 || self.edits[place - 1].cut.end <= range.start;
        let fits_after = self.edits.get(place).is_none_or(|next| range.end <= next.cut.start);
        assert!(fits_before && fits_after, "edits overlap");
        self.edits.insert(place, Edit { cut: range, text });
    }

    /// The length of the edited message, in bytes.
    pub fn output_len(&self) -> usize {
        self.edits.iter().fold(self.bytes.len(), |len, edit| len - edit.cut.len() + edit.text.len())
    }

    /// Writes the edited message.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.write_part(0..self.bytes.len(), out)
    }

    /// Writes what the edits make of `part`, insertions at both its ends included.
    ///
    /// # Panics
    /// If `part` lies outside the message.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn write_part(
        &self,
        part: Range<usize>,
        out: &mut (impl Write + ?Sized),
    ) -> io::Result<()> {
        let mut from = part.start;
        for Edit { cut, text } in &self.edits {
            if cut.start < part.start || part.end < cut.end {
                continue;
            }
            if from < cut.start {
                out.write_all(&self.bytes[from..cut.start])?;
            }
            out.write_all(text)?;
            from = cut.end;
        }
        out.write_all(&self.bytes[from..part.end])
    }
}
