//! Header fields and the lines they stand on (RFC 3261 §7.3.1).

use crate::lexical::{find, is_token, run, trim_end, trim_start};
use crate::{HeaderName, Malformed};

/// Maximum number of header lines in a message; a request with more is answered 513.
///
/// The lines of real messages fit into [`FIELDS_INLINE`]; each further line takes 10 bytes of the
/// heap while the message is read.
pub const FIELDS_MAX: usize = 1024;

/// Number of header lines that are indexed without the heap.
pub(crate) const FIELDS_INLINE: usize = 96;

/// A header field as it stands in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name.
    pub name: HeaderName,
    /// The name as written.
    pub raw_name: &'a [u8],
    /// The value, trimmed; folds inside it are kept.
    pub value: &'a [u8],
    /// The whole line with its folds and its line end.
    pub line: &'a [u8],
}

/// The position of a header field, in bytes from the start line. Sixteen bits suffice, because no
/// message is longer than [`BYTES_MAX`](crate::BYTES_MAX), and keep a message's index within one
/// kilobyte.
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
    /// Reads the header line that begins at `at`; returns `None` at the empty line.
    #[inline(always)]
    pub(crate) fn read(bytes: &[u8], at: usize) -> Result<Option<Self>, Malformed> {
        Ok(Named::read(bytes, at)?.map(|named| named.line(bytes)))
    }

    /// Returns the start of the line after the one at `at`, whatever that line contains. Returns
    /// the start of the line.
    #[inline]
    pub(crate) fn skip(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
        Ok(at + lines_end(&bytes[at..])?)
    }

    /// Where it begins.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        usize::from(self.start)
    }

    /// Returns the start of the next line.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        usize::from(self.end)
    }

    /// Returns the start of the trimmed value.
    #[inline]
    pub(crate) fn value_start(&self) -> usize {
        usize::from(self.value)
    }

    /// Returns the trimmed value.
    #[inline]
    pub(crate) fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[usize::from(self.value)..usize::from(self.value_end)]
    }

    /// Returns the end of the trimmed value.
    #[inline]
    pub(crate) fn value_end(&self) -> usize {
        usize::from(self.value_end)
    }

    /// Returns the line up to the end of its value.
    #[inline]
    pub(crate) fn content<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[usize::from(self.start)..usize::from(self.value_end)]
    }

    /// Returns the field in its public form.
    #[inline]
    pub(crate) fn field<'a>(&self, bytes: &'a [u8]) -> Field<'a> {
        let line = &bytes[usize::from(self.start)..self.end()];
        let raw_name = &line[..usize::from(self.name_len)];
        Field { name: self.name, raw_name, value: self.value(bytes), line }
    }
}

/// A header line of which only the name and the end are known.
pub(crate) struct Named {
    pub(crate) name: HeaderName,
    name_len: usize,
    start: usize,
    colon: usize,
    end: usize,
}

impl Named {
    /// Reads the name of the header line that begins at `at`, and finds the line's end; returns
    /// `None` at the empty line.
    #[inline(always)]
    pub(crate) fn read(bytes: &[u8], at: usize) -> Result<Option<Self>, Malformed> {
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
        let end = at + colon + lines_end(&here[colon..])?;
        Ok(Some(Self { name, name_len, start: at, colon: at + colon, end }))
    }

    /// Returns the start of the next line.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Returns the line with its value.
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
    // RFC 3261 §7.3.1: white space may stand before the colon, but no fold.
    let colon = len + run(&here[len..], |b| matches!(b, b' ' | b'\t'));
    let fits = (1..=usize::from(u8::MAX)).contains(&len) && here.get(colon) == Some(&b':');
    fits.then(|| (HeaderName::from_bytes(&here[..len]), len, colon))
}

/// Returns the length of the line that `text` begins with, including folds and line end.
#[inline(always)]
fn lines_end(text: &[u8]) -> Result<usize, Malformed> {
    let mut end = 0;
    loop {
        end += 1 + find(b'\n', &text[end..]).ok_or(Malformed::NoEnd)?;
        // RFC 3261 §7.3.1: "Header fields can be extended over multiple lines by
        // preceding each extra line with at least one SP or horizontal tab".
        if !matches!(text.get(end), Some(b' ' | b'\t')) {
            return Ok(end);
        }
    }
}

/// Returns the length of the line end that `text` begins with, 0 if it begins with none. A bare LF
/// counts as a line end: some senders use it, and it is not a legal character elsewhere in the
/// headers.
#[inline]
pub(crate) fn line_end(text: &[u8]) -> usize {
    match text {
        [b'\r', b'\n', ..] => 2,
        [b'\n', ..] => 1,
        _ => 0,
    }
}

/// Returns the first line of `bytes` without its line end, and the start of the next one.
#[inline]
pub(crate) fn first_line(bytes: &[u8]) -> Result<(&[u8], usize), Malformed> {
    let end = find(b'\n', bytes).ok_or(Malformed::StartLine)?;
    let line = &bytes[..end];
    Ok((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_no_header_line() {
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
