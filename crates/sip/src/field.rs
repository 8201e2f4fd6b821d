//! Header fields and their lines (RFC 3261 §7.3.1).

use crate::lexical::{is_token, run, trim_end, trim_start};
use crate::line_ends::LineEnds;
use crate::{HeaderName, Malformed};

/// Maximum number of header lines in a message. A request with more gets a 513.
///
/// Up to 96 lines need no heap, and real messages have no more. If a message has more, each line
/// takes 10 bytes of heap while the message is read.
pub const FIELDS_MAX: usize = 1024;

/// Number of header lines that are indexed without using the heap.
pub(crate) const FIELDS_INLINE: usize = 96;

/// A header field as it is written in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name of the field.
    pub name: HeaderName,
    /// The name as written in the message.
    pub raw_name: &'a [u8],
    /// The trimmed value. Line breaks inside it (folds) are kept.
    pub value: &'a [u8],
    /// The whole header line, with its continuation lines and its line end.
    pub line: &'a [u8],
}

/// The position of a header field, in bytes from the start line. Sixteen bits are enough, because
/// no message is longer than [`BYTES_MAX`](crate::BYTES_MAX). So the positions of
/// [`FIELDS_INLINE`] header fields take less than one kilobyte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) name: HeaderName,
    name_len: u8,
    start: u16,
    value: u16,
    value_end: u16,
    end: u16,
}

impl Line {
    /// Reads the header line that begins at `at`. Returns `None` at the empty line after the
    /// headers.
    #[inline]
    pub(crate) fn read(bytes: &[u8], at: usize) -> Result<Option<Self>, Malformed> {
        let mut ends = LineEnds::of(&bytes[at..]);
        Ok(Named::read(bytes, at, || Ok(at + ends.next_line()?))?.map(|named| named.line(bytes)))
    }

    /// Reads the header line that begins at `at` and ends at the next of `ends`. Returns `None` at
    /// the empty line after the headers.
    #[inline(always)]
    pub(crate) fn next(
        bytes: &[u8],
        at: usize,
        ends: &mut LineEnds<'_>,
    ) -> Result<Option<Self>, Malformed> {
        if let Some(line) = Self::usual(bytes, at, ends) {
            ends.pass();
            return Ok(Some(line));
        }
        if bytes[at..].starts_with(b"\r\n") {
            return Ok(None);
        }
        // `ends` is passed by value, so that the compiler can keep it in registers while it reads
        // usual lines.
        let Some((line, behind)) = Self::unusual(bytes, at, *ends)? else { return Ok(None) };
        *ends = behind;
        Ok(Some(line))
    }

    /// Reads the header line that begins at `at`, if it has the most frequent form: a
    /// [usual](HeaderName::at_start) name, a colon, spaces, a value without folds, CRLF. Returns
    /// `None` for any other line. `ends` does not advance past the end of this line.
    #[inline(always)]
    fn usual(bytes: &[u8], at: usize, ends: &mut LineEnds<'_>) -> Option<Self> {
        let (name, colon) = HeaderName::at_start(bytes.get(at..)?)?;
        let end = ends.peek()?;
        // A space follows the colon. Some senders use several spaces to align numbers.
        let mut value = at + colon + 2;
        while *bytes.get(value)? == b' ' {
            value += 1;
        }
        // Compares four bytes at once: the last byte of the value, CRLF, and the first byte of the
        // next line.
        let around = u32::from_le_bytes(*bytes.get(end.wrapping_sub(3)..)?.first_chunk()?);
        let [last, _, _, behind] = around.to_le_bytes();
        let is_trimmed = bytes[value] > b' ' && last > b' ';
        let ends_here = around & 0x00ff_ff00 == 0x000a_0d00 && !matches!(behind, b' ' | b'\t');
        (is_trimmed && ends_here && value < end - 2).then(|| Self {
            name,
            name_len: colon as u8,
            start: at as u16,
            value: value as u16,
            value_end: (end - 2) as u16,
            end: end as u16,
        })
    }

    #[inline(never)]
    fn unusual<'a>(
        bytes: &[u8],
        at: usize,
        mut ends: LineEnds<'a>,
    ) -> Result<Option<(Self, LineEnds<'a>)>, Malformed> {
        let named = Named::read(bytes, at, || ends.next_line())?;
        Ok(named.map(|named| (named.line(bytes), ends)))
    }

    /// Returns the offset of the line after the line at `at`. The content of the line at `at` is
    /// not checked.
    #[inline]
    pub(crate) fn skip(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
        Ok(at + LineEnds::of(&bytes[at..]).next_line()?)
    }

    /// Returns the offset of the start of the line.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        usize::from(self.start)
    }

    /// Returns the offset of the start of the next line.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        usize::from(self.end)
    }

    /// Returns the offset of the start of the trimmed value.
    #[inline]
    pub(crate) fn value_start(&self) -> usize {
        usize::from(self.value)
    }

    #[inline]
    pub(crate) fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[usize::from(self.value)..usize::from(self.value_end)]
    }

    /// Returns the offset of the end of the trimmed value.
    #[inline]
    pub(crate) fn value_end(&self) -> usize {
        usize::from(self.value_end)
    }

    /// Returns the line from its name to the end of its value.
    #[inline]
    pub(crate) fn content<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[usize::from(self.start)..usize::from(self.value_end)]
    }

    #[inline]
    pub(crate) fn field<'a>(&self, bytes: &'a [u8]) -> Field<'a> {
        let line = &bytes[usize::from(self.start)..self.end()];
        let raw_name = &line[..usize::from(self.name_len)];
        Field { name: self.name, raw_name, value: self.value(bytes), line }
    }
}

/// A header line for which only the name and the end of the line are known.
pub(crate) struct Named {
    pub(crate) name: HeaderName,
    name_len: usize,
    start: usize,
    colon: usize,
    end: usize,
}

impl Named {
    /// Reads the name of the header line that begins at `at`. `end` finds the end of the line.
    /// Returns `None` at the empty line after the headers.
    #[inline(always)]
    pub(crate) fn read(
        bytes: &[u8],
        at: usize,
        end: impl FnOnce() -> Result<usize, Malformed>,
    ) -> Result<Option<Self>, Malformed> {
        let here = &bytes[at..];
        let (name, name_len, colon) = match HeaderName::at_start(here) {
            Some((name, colon)) => (name, colon, colon),
            None => match any_name(here) {
                Some(any) => any,
                None if line_end(here) > 0 => return Ok(None),
                // The remaining bytes may be the beginning of a name.
                None if run(here, is_token) == here.len() => return Err(Malformed::NoEnd),
                None => return Err(Malformed::Header { offset: at as u16 }),
            },
        };
        Ok(Some(Self { name, name_len, start: at, colon: at + colon, end: end()? }))
    }

    /// Returns the start of the next line, as an offset in the message.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Finds the value of the line, and returns the line with its position.
    #[inline(always)]
    pub(crate) fn line(&self, bytes: &[u8]) -> Line {
        let text = &bytes[self.colon + 1..self.end - 1];
        let text = trim_end(text.strip_suffix(b"\r").unwrap_or(text));
        let value_end = self.colon + 1 + text.len();
        let text = trim_start(text.strip_prefix(b" ").unwrap_or(text));
        Line {
            name: self.name,
            name_len: self.name_len as u8,
            start: self.start as u16,
            value: (value_end - text.len()) as u16,
            value_end: value_end as u16,
            end: self.end as u16,
        }
    }
}

/// Returns the name at the beginning of a line, its length and the position of its colon.
fn any_name(here: &[u8]) -> Option<(HeaderName, usize, usize)> {
    if here.first().is_some_and(u8::is_ascii_alphabetic)
        && let Some((name, colon)) = HeaderName::usual_at_start(here)
    {
        return Some((name, colon, colon));
    }
    let len = run(here, is_token);
    // RFC 3261 §7.3.1: white space may stand before the colon, but not a fold.
    let colon = len + run(&here[len..], |b| matches!(b, b' ' | b'\t'));
    let fits = (1..=usize::from(u8::MAX)).contains(&len) && here.get(colon) == Some(&b':');
    fits.then(|| (HeaderName::from_bytes(&here[..len]), len, colon))
}

/// Returns the length of the line end at the beginning of `text`, or 0 if there is none. A bare LF
/// counts as a line end, so that a request that contains one can be answered.
/// [`Message::check`](crate::Message::check) rejects the request.
#[inline]
pub(crate) fn line_end(text: &[u8]) -> usize {
    match text {
        [b'\r', b'\n', ..] => 2,
        [b'\n', ..] => 1,
        _ => 0,
    }
}

/// Returns the first line of `bytes` without its line end, the start of the next line, and the ends
/// of the lines from there on.
#[inline(always)]
pub(crate) fn first_line(bytes: &[u8]) -> Result<(&[u8], usize, LineEnds<'_>), Malformed> {
    let mut ends = LineEnds::of(bytes);
    let end = ends.next_line_feed().ok_or(Malformed::StartLine)?;
    let line = &bytes[..end - 1];
    Ok((line.strip_suffix(b"\r").unwrap_or(line), end, ends))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The fast path for usual lines gives the same result as the path for all lines.
        #[test]
        fn usual_lines_are_read_like_all_others(
            text in "(Via|From|Subject|X-Y|v|CSeq)[ ]?:?[ \t]{0,2}[a\u{1} ]{0,3}(\r\n|\n|\r)[ \t]{0,2}(To: a)?(\r\n){0,2}[a-z]{0,20}",
        ) {
            let bytes = text.as_bytes();
            let mut ends = LineEnds::of(bytes);
            let fields = |line: Option<Line>| line.map(|line| line.field(bytes));
            let next = Line::next(bytes, 0, &mut ends).map(fields);
            prop_assert_eq!(next, Line::read(bytes, 0).map(fields));
            if let Ok(Some(field)) = next {
                let after = LineEnds::of(&bytes[field.line.len()..]).next_line_feed();
                prop_assert_eq!(ends.next_line_feed(), after.map(|end| end + field.line.len()));
            }
        }
    }

    fn read(bytes: &str) -> Result<Option<Field<'_>>, Malformed> {
        Ok(Line::read(bytes.as_bytes(), 0)?.map(|line| line.field(bytes.as_bytes())))
    }

    fn value(bytes: &str) -> &str {
        std::str::from_utf8(read(bytes).unwrap().unwrap().value).unwrap()
    }

    /// RFC 3261 §7.3.1 shows these as equivalent.
    #[test]
    fn white_space_around_the_colon() {
        for line in [
            "Subject:            lunch\r\n",
            "Subject      :      lunch\r\n",
            "Subject            :lunch\r\n",
            "Subject: lunch\r\n",
            "SUBJECT\t:\tlunch \t\r\n",
            "Subject: lunch\n",
            "Subject:\r\n lunch\r\n",
        ] {
            let bytes = format!("{line}\r\n");
            let field = read(&bytes).unwrap().unwrap();
            assert_eq!((field.name, field.value), (HeaderName::Subject, &b"lunch"[..]), "{line:?}");
            assert_eq!(field.line, line.as_bytes());
            assert!(field.raw_name.eq_ignore_ascii_case(b"subject"));
        }
    }

    #[test]
    fn folds_stay_inside_the_value() {
        assert_eq!(
            value("s: I know you're there,\r\n   pick up\r\n\tnow\r\nTo: x\r\n"),
            "I know you're there,\r\n   pick up\r\n\tnow"
        );
        assert_eq!(value("s:\r\n"), "");
        assert_eq!(value("s: \r\n \r\n"), "");
        assert_eq!(value("s: a\r\n \r\n b \r\n\r\n"), "a\r\n \r\n b");
    }

    #[test]
    fn the_empty_line_ends_the_headers() {
        assert_eq!(read("\r\nTo: x\r\n"), Ok(None));
        assert_eq!(read("\n"), Ok(None));
    }

    #[test]
    fn not_a_header_line() {
        let bad = Err(Malformed::Header { offset: 0 });
        let long = format!("{}: x\r\n", "n".repeat(256));
        for line in [
            "no colon\r\n",
            ": x\r\n",
            " To: x\r\n",
            "\rTo: x\r\n",
            "T\0: x\r\n",
            "To\r\n : x\r\n",
            "To\r\n",
            &long,
        ] {
            assert_eq!(read(line), bad, "{line:?}");
        }
        for cut in ["", "To", "To:", "To: x", "To: x\r"] {
            assert_eq!(read(cut), Err(Malformed::NoEnd), "{cut:?}");
        }
    }
}
