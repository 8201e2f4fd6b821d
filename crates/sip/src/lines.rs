//! Finds the header lines of one name without reading the other lines.

use crate::HeaderName;
use crate::field::{Line, first_line};
use crate::start::skip_blank;

/// The values of a message's header lines of one name, in long or compact form.
///
/// A header that violates the grammar ends the list.
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
            let line = Line::read(self.message, self.at).ok()??;
            self.at = line.end();
            if line.name == self.name {
                return Some(line.value(self.message));
            }
        }
    }
}
