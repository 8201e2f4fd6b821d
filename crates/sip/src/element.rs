//! Comma-separated lists in header values (RFC 3261 §7.3.1).

use memchr::memchr3;

use crate::lexical::{find, quoted_end, trim};

/// An iterator over the trimmed elements of a header value. A broken element is returned as `None`,
/// and ends the iteration. An element is broken if it is empty, or if a quote or bracket is not
/// closed, so that it is unclear whether a comma separates elements.
#[derive(Clone, Debug)]
pub(crate) struct Elements<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Elements<'a> {
    pub(crate) fn of(value: &'a [u8]) -> Self {
        Self { rest: Some(value) }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Option<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Some((element, rest)) = split_element(self.rest.take()?) else { return Some(None) };
        self.rest = rest;
        Some(Some(element))
    }
}

/// Returns the first element of `text`, trimmed. If a comma follows it, also returns the text after
/// the comma. Returns `None` if the element is broken.
#[inline]
pub(crate) fn split_element(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let end = element_end(text)?;
    let element = trim(&text[..end]);
    (!element.is_empty()).then(|| (element, text.get(end + 1..)))
}

/// Returns the end of the first element of `text`: a comma outside quotes and angle brackets, or
/// the end of the text. Returns `None` if a quote or bracket in the first element is never closed,
/// and `text` contains a comma.
#[inline]
fn element_end(text: &[u8]) -> Option<usize> {
    match find(b',', text) {
        None => Some(text.len()),
        Some(_) => element_end_among_commas(text),
    }
}

fn element_end_among_commas(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(step) = memchr3(b',', b'"', b'<', &text[at..]) {
        at += step;
        match text[at] {
            b',' => return Some(at),
            b'"' => at += quoted_end(&text[at..])?,
            _ => at += find(b'>', &text[at..])?,
        }
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(value: &str) -> Vec<Option<String>> {
        Elements::of(value.as_bytes())
            .map(|e| e.map(|e| String::from_utf8(e.to_vec()).unwrap()))
            .collect()
    }

    fn all(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|t| Some((*t).to_owned())).collect()
    }

    #[test]
    fn commas_in_quotes_and_brackets_do_not_separate() {
        assert_eq!(elements("a, b\r\n , c"), all(&["a", "b", "c"]));
        assert_eq!(
            elements(r#""Bell, \"A\"" <sip:a,b@c> , <sip:d>;x=",""#),
            all(&[r#""Bell, \"A\"" <sip:a,b@c>"#, r#"<sip:d>;x=",""#])
        );
    }

    #[test]
    fn a_broken_element_ends_the_list() {
        assert_eq!(elements(""), [None]);
        assert_eq!(elements("a,,b"), [Some("a".into()), None]);
        assert_eq!(elements("a,"), [Some("a".into()), None]);
        assert_eq!(elements("a, \"b, c"), [Some("a".into()), None]);
        assert_eq!(elements("a, <b, c"), [Some("a".into()), None]);
        assert_eq!(elements("\"a"), all(&["\"a"]));
    }
}
