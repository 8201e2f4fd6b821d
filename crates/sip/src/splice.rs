//! Edits a message by cutting and inserting.

use std::io::{self, Write};
use std::ops::Range;

use smallvec::SmallVec;

use crate::Message;

/// Number of edits that need no heap. Usual messages need fewer.
const EDITS_INLINE: usize = 16;

/// Edits to a message, applied while it is written: bytes that no edit touches are copied
/// unchanged.
///
/// A peer determines the number of edits: for example, each Route line that a proxy removes is one
/// edit. So only the number of lines in the message limits the number of edits. The calling code
/// ensures that edits lie within the message and do not overlap. An edit outside the message or
/// with an overlap is left out, and then the message cannot be written.
#[derive(Clone, Debug)]
pub struct Splice<'a> {
    bytes: &'a [u8],
    /// The edits, sorted by position. At the same position, insertions come before a replacement.
    edits: SmallVec<[Edit<'a>; EDITS_INLINE]>,
    /// True if an edit was left out.
    is_broken: bool,
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
        Self { bytes, edits: SmallVec::new(), is_broken: false }
    }

    /// Inserts `text` before the byte at `at`. Insertions at the same place keep the order in which
    /// they were made.
    ///
    /// If `at` lies outside the message or inside a cut, the message can no longer be written.
    pub fn insert(&mut self, at: usize, text: &'a [u8]) {
        self.replace(at..at, text);
    }

    /// Removes `range`.
    ///
    /// If `range` lies outside the message or overlaps an edit, the message can no longer be
    /// written.
    pub fn remove(&mut self, range: Range<usize>) {
        self.replace(range, b"");
    }

    /// Replaces `range` with `text`.
    ///
    /// If `range` lies outside the message or overlaps an edit, the message can no longer be
    /// written.
    pub fn replace(&mut self, range: Range<usize>, text: &'a [u8]) {
        if range.start > range.end || range.end > self.bytes.len() {
            self.is_broken = true;
            return;
        }
        if self.edits.last().is_none_or(|last| last.cut.end <= range.start) {
            self.edits.push(Edit { cut: range, text });
            return;
        }
        let key = |cut: &Range<usize>| (cut.start, !cut.is_empty());
        let place = self.edits.iter().rposition(|edit| key(&edit.cut) <= key(&range));
        let place = place.map_or(0, |before| before + 1);
        let fits_before = place == 0 || self.edits[place - 1].cut.end <= range.start;
        let fits_after = self.edits.get(place).is_none_or(|next| range.end <= next.cut.start);
        if fits_before && fits_after {
            self.edits.insert(place, Edit { cut: range, text });
        } else {
            self.is_broken = true;
        }
    }

    /// Writes the edited message.
    ///
    /// # Errors
    /// Returns the errors of `out`, and [`InvalidInput`](io::ErrorKind::InvalidInput) if an edit was
    /// outside the message or overlapped another one.
    pub fn write_to(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.write_part(0..self.bytes.len(), out)
    }

    /// Writes the edited form of `part`, including insertions at its beginning and at its end.
    ///
    /// # Panics
    /// Panics if `part` lies outside the message.
    ///
    /// # Errors
    /// Returns the errors of [`write_to`](Self::write_to).
    pub(crate) fn write_part(
        &self,
        part: Range<usize>,
        out: &mut (impl Write + ?Sized),
    ) -> io::Result<()> {
        if self.is_broken {
            return Err(io::ErrorKind::InvalidInput.into());
        }
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

    /// A peer determines the number of edits, so it may be large.
    #[test]
    fn more_edits_than_have_room_in_place_are_made_too() {
        let mut splice = Splice::new(&Message::parse(BYTES).unwrap());
        for at in (0..=BYTES.len()).rev() {
            splice.insert(at, b"-");
            splice.insert(at, b"+");
        }
        let mut out = Vec::new();
        splice.write_to(&mut out).unwrap();
        assert_eq!(out.len(), 3 * BYTES.len() + 2);
        let kept = out.into_iter().filter(|byte| !b"-+".contains(byte));
        assert_eq!(kept.collect::<Vec<_>>(), BYTES);
    }

    /// A wrong edit is a bug of the calling code. A peer that triggers such a bug must not stop the
    /// process.
    #[test]
    fn a_wrong_edit_is_an_error_when_the_message_is_written() {
        let wrong = |edit: &dyn Fn(&mut Splice<'static>)| {
            let mut splice = Splice::new(&Message::parse(BYTES).unwrap());
            edit(&mut splice);
            splice.write_to(&mut Vec::new()).map_err(|error| error.kind())
        };
        let error = Err(io::ErrorKind::InvalidInput);
        let cut_over_a_later_edit = |s: &mut Splice<'static>| {
            s.insert(DIGITS + 1, b"x");
            s.remove(DIGITS..DIGITS + 2);
        };
        let insertion_into_a_cut = |s: &mut Splice<'static>| {
            s.remove(DIGITS..DIGITS + 2);
            s.insert(DIGITS + 1, b"x");
        };
        assert_eq!(wrong(&cut_over_a_later_edit), error);
        assert_eq!(wrong(&insertion_into_a_cut), error);
        assert_eq!(wrong(&|s| s.insert(BYTES.len() + 1, b"x")), error);
        assert_eq!(wrong(&|s| s.insert(BYTES.len(), b"x")), Ok(()));
    }
}
