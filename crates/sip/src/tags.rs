//! Finds the tags of From and To in a message without reading its other headers.

use memchr::memrchr2;

use crate::field::{Line, first_line};
use crate::lexical::find;
use crate::start::skip_blank;
use crate::{HeaderName, NameAddr, Params};

/// Returns the tags of the first From and the first To of a message, in this order. An absent tag
/// is empty.
///
/// RFC 3261 §12.1.1: "A UAS MUST be prepared to receive a request without a tag in the From
/// field, in which case the tag is considered to have a value of null."
///
/// Returns `None` if one of the two headers is missing or cannot be searched for a tag. A line that
/// violates the grammar is skipped, because it is no header.
pub fn dialog_tags(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let message = skip_blank(message).ok()?;
    let (_, mut at, mut ends) = first_line(message).ok()?;
    let (mut from, mut to) = (None, None);
    loop {
        let letter = message.get(at)? | 0x20;
        if letter.is_ascii_lowercase() && !matches!(letter, b'f' | b't') {
            at = ends.next_line().ok()?;
            continue;
        }
        let Ok(line) = Line::next(message, at, &mut ends) else {
            at = ends.next_line().ok()?;
            continue;
        };
        let line = line?;
        let begin = std::mem::replace(&mut at, line.end());
        let seen = match line.name {
            HeaderName::From => &mut from,
            HeaderName::To => &mut to,
            _ => continue,
        };
        if seen.is_none() {
            *seen = Some(tag_of(&message[begin..at])?);
        }
        if let (Some(from), Some(to)) = (from, to) {
            return Some((from, to));
        }
    }
}

/// Returns the tag in this From or To line, or an empty text if there is none. Returns `None` if
/// the line cannot be searched for a tag.
pub(crate) fn tag_of(line: &[u8]) -> Option<&[u8]> {
    // If only a tag without quotes and brackets follows the first bracket, this bracket closes the
    // URI.
    if let Some(bracket) = find(b'>', line)
        && let Some(params) = line[bracket + 1..].strip_suffix(b"\r\n")
        && let Some(tag) = Params::new(params).only_tag()
    {
        return Some(tag.unwrap_or_default());
    }
    // If no quote follows the last bracket, this bracket closes the URI.
    let params = match memrchr2(b'>', b'"', line) {
        Some(bracket) if line[bracket] == b'>' => &line[bracket + 1..],
        _ => NameAddr::parse(Line::read(line, 0).ok()??.value(line))?.params.text(),
    };
    Some(Params::new(params).usual(b";tag=", "tag").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Passage;

    fn tags(headers: &str) -> Option<(String, String)> {
        let message =
            format!("SIP/2.0 180 Ringing\r\nVia: x\r\n{headers}CSeq: 1 INVITE\r\n\r\nf: b\r\n");
        let text = |tag: &[u8]| String::from_utf8(tag.to_vec()).unwrap();
        let found = dialog_tags(message.as_bytes());
        assert_eq!(found, dialog_tags(format!("\r\n{message}").as_bytes()));
        let passed = message.replacen("Via: x", "Via: SIP/2.0/UDP x\r\ni: 1", 1);
        assert_eq!(found, Passage::parse(passed.as_bytes()).unwrap().dialog_tags());
        found.map(|(from, to)| (text(from), text(to)))
    }

    #[test]
    fn the_first_from_and_the_first_to_in_any_order_and_form() {
        let both = |from: &str, to: &str| Some((from.to_owned(), to.to_owned()));
        assert_eq!(tags("From: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n"), both("1", "2"));
        assert_eq!(
            tags("t: sip:c@d ; x ; TAG = 2\r\nFrom:\r\n \"T\" <sip:a@b>;tag=1\r\nTo: y\r\n"),
            both("1", "2")
        );
        assert_eq!(tags("Timestamp: 1\r\nTo: <sip:c@d;tag=uri>\r\nf: <sip:a@b>\r\n"), both("", ""));
        let usual = "From: <sip:a@b>;tag=1\r\nTo: y;tag=2\r\n";
        assert_eq!(tags(usual), both("1", "2"));
        assert_eq!(tags(&format!("{usual}To: z;tag=3\r\n")), both("1", "2"));
        assert_eq!(tags(&format!("TO : z;tag=3\r\n{usual}")), both("1", "3"));
        assert_eq!(tags(&format!("Timestamp 54\r\nTo\r\n{usual}")), both("1", "2"));
    }

    #[test]
    fn missing_or_malformed_headers_have_no_tags() {
        assert_eq!(tags("From: <sip:a@b>;tag=1\r\n"), None);
        assert_eq!(tags("From: <sip:a@b>;tag=1\r\nTo: <\r\n"), None);
        assert_eq!(dialog_tags(b""), None);
    }
}
