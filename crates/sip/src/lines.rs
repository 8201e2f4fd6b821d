//! Finds the header lines of one name without reading the other lines.

use crate::HeaderName;
use crate::field::{Line, first_line};
use crate::start::skip_blank;

/// Returns the value of a message's first header line of this name, or `None` if there is none.
/// Lines that do not begin with the first letter of the name are skipped without parsing.
pub fn first_value(message: &[u8], name: HeaderName) -> Option<&[u8]> {
    Lines::of(message, name).next()
}

/// An iterator over the values of a message's header lines of one name, in long or compact form.
///
/// A line that violates the grammar is skipped, because it is no header.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a> {
    message: &'a [u8],
    at: usize,
    name: HeaderName,
    /// The first letters that a line with this name may have, in lower case.
    letters: [u8; 2],
}

impl<'a> Lines<'a> {
    pub(crate) fn of(message: &'a [u8], name: HeaderName) -> Self {
        let message = skip_blank(message).unwrap_or_default();
        let at = first_line(message).map_or(message.len(), |(_, at, _)| at);
        let first = name.text().as_bytes()[0].to_ascii_lowercase();
        Self { message, at, name, letters: [first, name.compact().unwrap_or(first)] }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let letter = self.message.get(self.at)?.to_ascii_lowercase();
            if letter.is_ascii_lowercase() && !self.letters.contains(&letter) {
                self.at = Line::skip(self.message, self.at).ok()?;
                continue;
            }
            let Ok(line) = Line::read(self.message, self.at) else {
                self.at = Line::skip(self.message, self.at).ok()?;
                continue;
            };
            let line = line?;
            self.at = line.end();
            if line.name == self.name {
                return Some(line.value(self.message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_name_is_found_among_odd_lines() {
        let with = |odd: &str| {
            format!("SIP/2.0 200 OK\r\nServer x\r\n{odd}t : a\r\nTo: b\r\n\r\ni: c\r\n")
        };
        for odd in ["", ": y\r\n", "Timestamp 54\r\n", "To\r\n", "To <sip:b>\r\n x: y\r\n"] {
            let text = with(odd);
            let value = |name| first_value(text.as_bytes(), name);
            assert_eq!(value(HeaderName::To), Some(&b"a"[..]), "{odd:?}");
            assert_eq!(value(HeaderName::CallId), None, "{odd:?}: it is in the body");
        }
    }
}
