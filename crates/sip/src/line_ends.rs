//! Finds the ends of a message's lines, 64 bytes at a time, and checks that they are CRLF.

use wide::u8x16;

use crate::Malformed;

/// Number of bytes searched at a time.
const BLOCK: usize = 64;

/// A search for the line ends of a message, one after another.
///
/// One pass over the bytes finds the line feeds as bits of a word. A header line has about 40
/// bytes, so most lines end within bytes that were already searched for the previous line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineEnds<'a> {
    bytes: &'a [u8],
    /// The line feeds that were found and not returned yet, as bits from position `begin` on.
    found: u64,
    begin: usize,
    /// The first position that has not been searched.
    next: usize,
}

impl<'a> LineEnds<'a> {
    #[inline(always)]
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, found: 0, begin: 0, next: 0 }
    }

    /// Returns the position after the next line feed, or `None` if there is none.
    #[inline(always)]
    pub(crate) fn next_line_feed(&mut self) -> Option<usize> {
        let end = self.peek()?;
        self.pass();
        Some(end)
    }

    /// Returns the position after the next line feed without advancing, or `None` if there is none.
    /// [`pass`](Self::pass) advances.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Option<usize> {
        while self.found == 0 {
            self.begin = self.next;
            if let Some(block) = self.bytes.get(self.next..).and_then(<[u8]>::first_chunk) {
                self.found = line_feeds(block);
                self.next += BLOCK;
            } else {
                self.found = line_feeds_of_tail(self.bytes, self.next)?;
                self.next = self.bytes.len();
            }
        }
        Some(self.begin + self.found.trailing_zeros() as usize + 1)
    }

    /// Advances past the line feed that [`peek`](Self::peek) returned.
    #[inline(always)]
    pub(crate) fn pass(&mut self) {
        self.found &= self.found.wrapping_sub(1);
    }

    /// Returns the start of the next header line, after the continuation lines (folds) of the
    /// current one.
    ///
    /// RFC 3261 §7.3.1: "Header fields can be extended over multiple lines by preceding each extra
    /// line with at least one SP or horizontal tab".
    #[inline(always)]
    pub(crate) fn next_line(&mut self) -> Result<usize, Malformed> {
        loop {
            let end = self.next_line_feed().ok_or(Malformed::NoEnd)?;
            if !matches!(self.bytes.get(end), Some(b' ' | b'\t')) {
                return Ok(end);
            }
        }
    }
}

/// Returns the positions of the line feeds in a block as bits.
#[inline(always)]
fn line_feeds(block: &[u8; BLOCK]) -> u64 {
    let (chunks, _) = block.as_chunks::<16>();
    let bits = |i: usize| {
        let same = u8x16::new(chunks[i]).simd_eq(u8x16::splat(b'\n'));
        u64::from(same.to_bitmask()) << (16 * i)
    };
    bits(0) | bits(1) | bits(2) | bits(3)
}

/// Returns the positions of the line feeds from `at` on, as bits. Fewer than [`BLOCK`] bytes may be
/// left. Returns `None` if no bytes are left.
#[inline(never)]
fn line_feeds_of_tail(bytes: &[u8], at: usize) -> Option<u64> {
    let left = bytes.len() - at;
    if left == 0 {
        return None;
    }
    Some(match bytes.last_chunk() {
        Some(last) => line_feeds(last) >> (BLOCK - left),
        None => {
            let mut block = [0; BLOCK];
            block[..left].copy_from_slice(&bytes[at..]);
            line_feeds(&block)
        }
    })
}

/// Number of bytes that [`has_only_crlf`] compares at a time.
const LANES: usize = 16;

/// Returns whether each CR of a head is followed by an LF, and each LF follows a CR.
///
/// RFC 3261 §7: "The start-line, each message-header line, and the empty line MUST be terminated by
/// a carriage-return line-feed sequence (CRLF)." §25.1 allows a CR or an LF nowhere else in a head.
/// Some implementations end a line at a CR alone, some at an LF alone, and some at neither. Such a
/// line would therefore be one header here and two headers at the next hop, or the reverse, and a
/// sender could hide a header or the end of the head from one of them.
#[inline]
pub(crate) fn has_only_crlf(head: &[u8]) -> bool {
    let [first, behind @ ..] = head else { return true };
    let before = &head[..behind.len()];
    if *first == b'\n' || head.ends_with(b"\r") {
        return false;
    }
    let (Some(before_last), Some(behind_last)) = (before.last_chunk(), behind.last_chunk()) else {
        return before.iter().zip(behind).all(|(&cr, &lf)| (cr == b'\r') == (lf == b'\n'));
    };
    let (before, behind) = (before.as_chunks().0.iter(), behind.as_chunks().0.iter());
    // The last chunks overlap the chunks before them. The loop has no early exit, because nearly
    // all heads have only CRLFs and must be compared to the end anyway.
    let unpaired = before
        .zip(behind)
        .fold(unpaired(before_last, behind_last), |found, (cr, lf)| found | unpaired(cr, lf));
    unpaired.to_bitmask() == 0
}

/// Returns the positions where either a CR is in `before` or an LF is in `behind`, but not both.
#[inline(always)]
fn unpaired(before: &[u8; LANES], behind: &[u8; LANES]) -> u8x16 {
    let cr = u8x16::new(*before).simd_eq(u8x16::splat(b'\r'));
    cr ^ u8x16::new(*behind).simd_eq(u8x16::splat(b'\n'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 3261 §7: "The start-line, each message-header line, and the empty line MUST be terminated by
    /// a carriage-return line-feed sequence (CRLF)."
    #[test]
    fn a_cr_or_an_lf_alone_is_noticed_at_every_position() {
        assert!(has_only_crlf(b""));
        for length in 2..70 {
            let usual = "x".repeat(length - 2) + "\r\n";
            assert!(has_only_crlf(usual.as_bytes()), "{length}");
            for at in 0..length {
                for byte in [b'\r', b'\n'] {
                    let mut head = usual.clone().into_bytes();
                    head[at] = byte;
                    let is_same = head == usual.as_bytes();
                    assert_eq!(has_only_crlf(&head), is_same, "{byte} at {at} of {length}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn line_ends_are_compared_like_the_text_without_them(
            text in "([a-z]{0,20}(\r\n|\r\n|\r\n|\r|\n)){0,12}",
        ) {
            let expected = !text.replace("\r\n", "").contains(['\r', '\n']);
            prop_assert_eq!(has_only_crlf(text.as_bytes()), expected);
        }

        /// Texts of about one or two blocks of 64 bytes, with many or few lines.
        #[test]
        fn all_line_feeds_are_found_in_their_order(
            text in "[a-z\n]{0,70}|([a-z]{0,50}\r\n){0,4}|([a-z]{0,70}\r\n[ \t]?){0,20}",
        ) {
            let bytes = text.as_bytes();
            let expected: Vec<usize> =
                (1..=bytes.len()).filter(|&end| bytes[end - 1] == b'\n').collect();
            let mut ends = LineEnds::of(bytes);
            let found: Vec<usize> = std::iter::from_fn(|| ends.next_line_feed()).collect();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(ends.next_line_feed(), None);

            let is_folded = |end: &usize| matches!(bytes.get(*end), Some(b' ' | b'\t'));
            let mut ends = LineEnds::of(bytes);
            let found: Vec<usize> = std::iter::from_fn(|| ends.next_line().ok()).collect();
            let expected: Vec<usize> = expected.into_iter().filter(|end| !is_folded(end)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
