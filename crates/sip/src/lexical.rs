//! The basic rules of RFC 3261 §25.1, on bytes.
//!
//! A header's value may hold folds (CRLF followed by white space), which stand for
//! white space; so CR and LF count as white space wherever a value is read.

/// Bytes of `token`.
static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = matches!(
            b as u8,
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z'
                | b'-' | b'.' | b'!' | b'%' | b'*' | b'_' | b'+' | b'`' | b'\'' | b'~'
        );
        b += 1;
    }
    table
};

/// True for a byte of `token`.
#[inline]
pub(crate) fn is_token(b: u8) -> bool {
    TOKEN[usize::from(b)]
}

/// True for SP, HTAB and the bytes of a fold.
#[inline]
pub(crate) fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

/// How many bytes at the beginning of `text` satisfy `test`.
#[inline]
pub(crate) fn run(text: &[u8], test: impl Fn(u8) -> bool) -> usize {
    text.iter().position(|&b| !test(b)).unwrap_or(text.len())
}

/// `text` without the white space at its beginning.
#[inline]
pub(crate) fn trim_start(text: &[u8]) -> &[u8] {
    &text[run(text, is_space)..]
}

/// `text` without the white space at its end.
#[inline]
pub(crate) fn trim_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&b| !is_space(b)).map_or(0, |last| last + 1);
    &text[..end]
}

/// `text` without the white space around it.
#[inline]
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    trim_end(trim_start(text))
}

/// The token at the beginning of `text` and what follows it; `None` if there is none.
#[inline]
pub(crate) fn split_token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    match run(text, is_token) {
        0 => None,
        end => Some(text.split_at(end)),
    }
}

/// The end of the quoted string that `text` begins with, past its closing quote;
/// `None` if it is never closed.
pub(crate) fn quoted_end(text: &[u8]) -> Option<usize> {
    debug_assert_eq!(text.first(), Some(&b'"'));
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The value of `1*DIGIT`; `None` if `text` is anything else or exceeds `max`.
#[inline]
pub(crate) fn decimal(text: &[u8], max: u32) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &b in text {
        if !b.is_ascii_digit() {
            return None;
        }
        // Leading zeros are legal in any number (RFC 4475 §3.1.1.1), so the length
        // says nothing; the value stays below 2^36 between two rounds.
        value = value * 10 + u64::from(b - b'0');
        if value > u64::from(max) {
            return None;
        }
    }
    Some(value as u32)
}

/// A `port`, 0 to 65,535.
#[inline]
pub(crate) fn port(text: &[u8]) -> Option<u16> {
    decimal(text, u32::from(u16::MAX)).map(|port| port as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_section_25_1() {
        assert_eq!(split_token(b"!interesting-Method0123456789_*+`.%indeed'~ x").unwrap().1, b" x");
        for b in b"()<>@,;:\\\"/[]?={} \t\x00\x7f\xc3#$&^|" {
            assert!(!is_token(*b), "{:?}", *b as char);
        }
        assert_eq!(split_token(b":x"), None);
    }

    #[test]
    fn white_space_includes_folds() {
        assert_eq!(trim(b" \r\n\t a b \r\n "), b"a b");
        assert_eq!(trim(b" \t"), b"");
        assert_eq!(trim(b""), b"");
    }

    #[test]
    fn a_quoted_string_ends_at_the_first_quote_that_is_not_escaped() {
        assert_eq!(quoted_end(br#""a\"b\\";x"#), Some(8));
        assert_eq!(quoted_end(br#""a\""#), None);
        assert_eq!(quoted_end(br#""\"#), None);
        assert_eq!(quoted_end(br#"""#), None);
        assert_eq!(quoted_end(br#""""#), Some(2));
    }

    #[test]
    fn numbers_are_bounded_and_may_have_leading_zeros() {
        assert_eq!(decimal(b"0000000000000000000000000000000009", 10), Some(9));
        assert_eq!(decimal(b"4294967295", u32::MAX), Some(u32::MAX));
        assert_eq!(decimal(b"4294967296", u32::MAX), None);
        assert_eq!(decimal(b"36893488147419103232", u32::MAX), None);
        for bad in [&b""[..], b"-1", b"+1", b" 1", b"1x", b"0x1"] {
            assert_eq!(decimal(bad, u32::MAX), None);
        }
        assert_eq!(port(b"65535"), Some(65_535));
        assert_eq!(port(b"65536"), None);
    }
}
