//! Edits a message by cutting and inserting.

use std::io::{self, Write};
use std::ops::Range;

use arrayvec::ArrayVec;

use crate::Message;

/// Maximum number of edits of one message.
pub const EDITS_MAX: usize = 16;

/// Edits to a message, applied while it is written: bytes that no edit touches are copied
/// unchanged.
///
/// The calling code determines the number of edits and ensures that they do not overlap. A peer
/// cannot influence either, so both conditions are assertions.
#[derive(Clone, Debug)]
pub struct Splice<'a> {
    bytes: &'a [u8],
    /// The edits, sorted by position. At the same position, insertions come before a cut.
    edits: ArrayVec<Edit<'a>, EDITS_MAX>,
}

#[derive(Clone, Debug)]
struct Edit<'a> {
    cut: Range<usize>,
    text: &'a [u8],
}

impl<'a> Splice<'a> {
    /// Creates a splice without edits.
    pub fn new(message: &Message<'a>) -> Self {
        Self::over(message.bytes())
    }

    /// Creates a splice without edits over a message that is not indexed.
    pub(crate) fn over(bytes: &'a [u8]) -> Self {
        Self { bytes, edits: ArrayVec::new() }
    }

    /// Inserts `text` before the byte at `at`. Insertions at the same place keep the order in which
    /// they were made.
    ///
    /// # Panics
    /// Panics if `at` lies outside the message or inside a cut, or if there are more than
    /// [`EDITS_MAX`] edits.
    pub fn insert(&mut self, at: usize, text: &'a [u8]) {
        self.replace(at..at, text);
    }

    /// Removes `range`.
    ///
    /// # Panics
    /// Panics if `range` lies outside the message or overlaps an edit, or if there are more than
    /// [`EDITS_MAX`] edits.
    pub fn remove(&mut self, range: Range<usize>) {
        self.replace(range, b"");
    }

    /// Replaces `range` with `text`.
    ///
    /// # Panics
    /// Panics if `range` lies outside the message or overlaps an edit, or if there are more than
    /// [`EDITS_MAX`] edits.
    pub fn replace(&mut self, range: Range<usize>, text: &'a [u8]) {
        assert!(range.start <= range.end && range.end <= self.bytes.len(), "outside the message");
        if self.edits.last().is_none_or(|last| last.cut.end <= range.start) {
            self.edits.push(Edit { cut: range, text });
            return;
        }
        let key = |cut: &Range<usize>| (cut.start, !cut.is_empty());
        let place = self.edits.iter().rposition(|edit| key(&edit.cut) <= key(&range));
        let place = place.map_or(0, |before| before + 1);
        let fits_before = place == 0 || self.edits[place - 1].cut.end <= range.start;
        let fits_after = self.edits.get(place).is_none_or(|next| range.end <= next.cut.start);
        assert!(fits_before && fits_after, "edits overlap");
        self.edits.insert(place, Edit { cut: range, text });
    }

    /// Writes the edited message.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn write_to(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.write_part(0..self.bytes.len(), out)
    }

    /// Writes the edited form of `part`, including insertions at its beginning and at its end.
    ///
    /// # Panics
    /// Panics if `part` lies outside the message.
    ///
    /// # Errors
    /// Returns the errors of `out`.
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

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: &[u8] = b"OPTIONS sip:a SIP/2.0\r\nTo: 0123456789\r\n\r\n";
    const DIGITS: usize = 27;

    fn spliced(edit: impl Fn(&mut Splice<'static>)) -> String {
        let mut splice = Splice::new(&Message::parse(BYTES).unwrap());
        edit(&mut splice);
        let mut out = Vec::new();
        splice.write_part(DIGITS..DIGITS + 10, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn edits_are_made_where_they_say() {
        assert_eq!(spliced(|_| ()), "0123456789");
        assert_eq!(
            spliced(|s| {
                s.replace(DIGITS + 7..DIGITS + 9, b"x");
                s.remove(DIGITS + 1..DIGITS + 3);
                s.insert(DIGITS + 5, b"abc");
            }),
            "034abc56x9"
        );
    }

    #[test]
    fn insertions_at_one_place_keep_their_order_and_come_before_a_cut() {
        assert_eq!(
            spliced(|s| {
                s.insert(DIGITS, b"a");
                s.replace(DIGITS..DIGITS + 2, b"c");
                s.insert(DIGITS, b"b");
                s.insert(DIGITS + 2, b"d");
            }),
            "abcd23456789"
        );
    }

    #[test]
    fn a_part_has_the_insertions_at_both_its_ends() {
        assert_eq!(
            spliced(|s| {
                s.insert(DIGITS, b"<");
                s.insert(DIGITS + 10, b">");
                s.insert(0, b"not here");
                s.remove(DIGITS + 11..DIGITS + 12);
            }),
            "<0123456789>"
        );
    }

    #[test]
    #[should_panic(expected = "edits overlap")]
    fn a_cut_over_a_later_edit_is_a_bug() {
        spliced(|s| {
            s.insert(DIGITS + 1, b"x");
            s.remove(DIGITS..DIGITS + 2);
        });
    }

    #[test]
    #[should_panic(expected = "edits overlap")]
    fn an_insertion_into_a_cut_is_a_bug() {
        spliced(|s| {
            s.remove(DIGITS..DIGITS + 2);
            s.insert(DIGITS + 1, b"x");
        });
    }

    #[test]
    #[should_panic(expected = "outside the message")]
    fn an_edit_past_the_end_is_a_bug() {
        spliced(|s| s.insert(BYTES.len() + 1, b"x"));
    }
}
