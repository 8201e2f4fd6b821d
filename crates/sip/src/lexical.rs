//! Functions for the basic grammar rules of RFC 3261 §25.1, on bytes.
//!
//! A header value may contain folds (CRLF followed by white space), which mean white space. So CR
//! and LF count as white space wherever a value is read. A message with a CR or an LF outside a CRLF
//! is rejected as a whole ([`Malformed::LineEnd`](crate::Malformed::LineEnd)).

use wide::u8x16;

/// The bytes allowed in a `token`.
pub(crate) static TOKEN: [bool; 256] = {
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

/// Returns a word with all its bytes equal to `b`.
const fn every(b: u8) -> u64 {
    u64::from_ne_bytes([b; 8])
}

/// Returns whether any byte of `text` satisfies `test`.
///
/// Tests 16 bytes at a time. The loop over these bytes has no early exit, so the compiler can
/// replace it by vector instructions, provided that `test` has no branches.
#[inline]
pub(crate) fn any(text: &[u8], test: impl Fn(u8) -> bool) -> bool {
    let (chunks, rest) = text.as_chunks::<16>();
    let (halves, rest) = rest.as_chunks::<8>();
    chunks.iter().any(|chunk| chunk.iter().fold(false, |some, &b| some | test(b)))
        || halves.iter().any(|half| half.iter().fold(false, |some, &b| some | test(b)))
        || rest.iter().any(|&b| test(b))
}

/// Number of bytes that are compared at a time.
const LANES: usize = 16;

/// Returns the first position of `b` in `text`, or `None` if `b` does not occur.
///
/// For the usual distances in a header, inlined vector code is cheaper than a call of `memchr`.
#[inline(always)]
pub(crate) fn find(b: u8, text: &[u8]) -> Option<usize> {
    let same = |chunk: &[u8; LANES]| u8x16::new(*chunk).simd_eq(u8x16::splat(b)).to_bitmask();
    let mut at = 0;
    while let Some(chunk) = text[at..].first_chunk() {
        let found = same(chunk);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize);
        }
        at += LANES;
    }
    find_in_tail(b, text)
}

/// Returns the first position of `b` in the last [`LANES`] bytes of `text`, or in the whole `text`
/// if it is shorter.
fn find_in_tail(b: u8, text: &[u8]) -> Option<usize> {
    let Some(last) = text.last_chunk::<LANES>() else { return find_by_words(b, text) };
    let found = u8x16::new(*last).simd_eq(u8x16::splat(b)).to_bitmask();
    // The bytes that overlap the previous chunk were already searched without a match.
    (found != 0).then(|| text.len() - LANES + found.trailing_zeros() as usize)
}

/// Returns the first position of `b` in `text`. The result is that of [`find`]. For short texts,
/// this function is faster.
#[inline]
pub(crate) fn find_by_words(b: u8, text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = text[at..].first_chunk() {
        // A byte that equals `b` is zero here. In the next step, the lowest zero byte is the lowest
        // byte with its high bit set.
        let zero_at_b = u64::from_le_bytes(*word) ^ every(b);
        let found = zero_at_b.wrapping_sub(every(1)) & !zero_at_b & every(0x80);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    Some(at + text[at..].iter().position(|&other| other == b)?)
}

/// Returns whether `text` has no space and no control character (0 to 0x20, 0x7f).
#[inline]
pub(crate) fn is_visible(text: &[u8]) -> bool {
    is_visible_but([], text)
}

/// Returns whether `text` is [visible](is_visible) and contains none of the bytes in `others`.
#[inline]
pub(crate) fn is_visible_but<const N: usize>(others: [u8; N], text: &[u8]) -> bool {
    let Some(last) = text.last_chunk::<LANES>() else {
        let is_other = |b| others.iter().fold(false, |is, &other| is | (b == other));
        return !any(text, |b| (b <= b' ') | (b == 0x7f) | is_other(b));
    };
    // The last chunk may overlap the chunk before it.
    text.as_chunks().0.iter().chain([last]).all(|chunk| {
        let bytes = u8x16::new(*chunk);
        let mut found = bytes.simd_le(u8x16::splat(b' ')) | bytes.simd_eq(u8x16::splat(0x7f));
        for other in others {
            found |= bytes.simd_eq(u8x16::splat(other));
        }
        found.to_bitmask() == 0
    })
}

/// Returns whether `b` is allowed in a `token`.
#[inline]
pub(crate) fn is_token(b: u8) -> bool {
    TOKEN[usize::from(b)]
}

/// Returns how many bytes at the beginning of `text` are in `table`. `table` must contain all
/// letters, the underscore, and all bytes from the hyphen to the colon, which include the digits.
/// Gives the same result as [`run_of`], but tests many of these bytes at a time.
#[inline]
pub(crate) fn run_of_words(table: &[bool; 256], text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let bytes = u8x16::new(match rest.first_chunk::<LANES>() {
            Some(chunk) => *chunk,
            None => padded(rest),
        });
        let letter = (bytes | u8x16::splat(0x20)) - u8x16::splat(b'a');
        let digit = bytes - u8x16::splat(b'-');
        let is_in = letter.simd_le(u8x16::splat(b'z' - b'a'))
            | digit.simd_le(u8x16::splat(b':' - b'-'))
            | bytes.simd_eq(u8x16::splat(b'_'));
        let words = is_in.to_bitmask().trailing_ones() as usize;
        at += words;
        if words < LANES {
            break;
        }
    }
    match text.get(at) {
        Some(&b) if table[usize::from(b)] => at + run(&text[at..], |b| table[usize::from(b)]),
        _ => at,
    }
}

/// Returns a text of less than 16 bytes, followed by zeros up to 16 bytes.
#[inline(always)]
fn padded(text: &[u8]) -> [u8; LANES] {
    // For a text of 4 to 15 bytes, the first and the last bytes may overlap, where they are equal.
    let ends = |first: u64, last: u64, length: usize| {
        u128::from(first) | u128::from(last) << (8 * (text.len() - length))
    };
    let word = match (text.first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) => ends(u64::from_le_bytes(*first), u64::from_le_bytes(*last), 8),
        _ => match (text.first_chunk(), text.last_chunk()) {
            (Some(first), Some(last)) => {
                let [first, last] = [first, last].map(|four| u32::from_le_bytes(*four).into());
                ends(first, last, 4)
            }
            _ => text.iter().rev().fold(0, |word, &b| word << 8 | u128::from(b)),
        },
    };
    word.to_le_bytes()
}

/// Returns whether `b` is SP, HTAB, CR or LF. CR and LF are parts of a fold.
#[inline]
pub(crate) fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

/// Returns how many bytes at the beginning of `text` satisfy `test`.
#[inline]
pub(crate) fn run(text: &[u8], test: impl Fn(u8) -> bool) -> usize {
    text.iter().position(|&b| !test(b)).unwrap_or(text.len())
}

/// Returns how many bytes at the beginning of `text` are in `table`. This is faster than [`run`]
/// for long texts.
#[inline]
pub(crate) fn run_of(table: &[bool; 256], text: &[u8]) -> usize {
    let is_in = |b: &u8| table[usize::from(*b)];
    let mut at = 0;
    while let Some(chunk) = text[at..].first_chunk::<8>()
        && chunk.iter().fold(true, |all, b| all & is_in(b))
    {
        at += chunk.len();
    }
    at + run(&text[at..], |b| is_in(&b))
}

#[inline]
pub(crate) fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_space(*first)
    {
        text = rest;
    }
    text
}

#[inline]
pub(crate) fn trim_end(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., last] = text
        && is_space(*last)
    {
        text = rest;
    }
    text
}

#[inline]
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    trim_end(trim_start(text))
}

/// Returns the token at the beginning of `text` and the text that follows it, or `None` if `text`
/// does not begin with a token.
#[inline]
pub(crate) fn split_token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    match run(text, is_token) {
        0 => None,
        end => Some(text.split_at(end)),
    }
}

/// Returns the offset after the closing quote of the quoted string with which `text` begins, or
/// `None` if the string is never closed.
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

/// Returns the value of `1*DIGIT`, or `None` if `text` is anything else or exceeds `max`.
#[inline]
pub(crate) fn decimal(text: &[u8], max: u32) -> Option<u32> {
    split_decimal(text, max).and_then(|(value, rest)| rest.is_empty().then_some(value))
}

/// Returns the value of the `1*DIGIT` at the beginning of `text` and the text that follows it, or
/// `None` if there is no digit or the value exceeds `max`.
#[inline]
pub(crate) fn split_decimal(text: &[u8], max: u32) -> Option<(u32, &[u8])> {
    if let Some((value, rest)) = split_few_digits(text) {
        return (value <= max).then_some((value, rest));
    }
    let mut value = 0u64;
    let mut rest = text;
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        // Leading zeros are legal in any number (RFC 4475 §3.1.1.1), so the number of digits is not
        // limited. The value stays below 2^36 between two steps.
        value = value * 10 + u64::from(digit - b'0');
        if value > u64::from(max) {
            return None;
        }
        rest = after;
    }
    (rest.len() < text.len()).then_some((value as u32, rest))
}

/// Returns the value of one to seven digits at the beginning of `text`, and the text that follows
/// them. Returns `None` if there are more digits or none, or if `text` has less than eight bytes.
#[inline(always)]
fn split_few_digits(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = u64::from_le_bytes(*text.first_chunk()?) ^ every(b'0');
    // The lowest byte that is not a digit is the lowest byte whose highest bit is set here.
    let others = (digits.wrapping_add(every(0x80 - 10)) | digits) & every(0x80);
    let length = others.trailing_zeros() / 8;
    if !(1..8).contains(&length) {
        return None;
    }
    // The shift moves the last digit to the highest byte and puts zeros before the first digit. The
    // next steps combine the eight digits into four numbers below 100, then into two numbers below
    // 10,000, and then into the value.
    let digits = digits << (64 - 8 * length);
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let every_fourth = 0x0000_00ff_0000_00ff;
    let high = (pairs & every_fourth).wrapping_mul(1_000_000 << 32 | 100);
    let low = (pairs >> 16 & every_fourth).wrapping_mul(10_000 << 32 | 1);
    let value = (high.wrapping_add(low) >> 32) as u32;
    Some((value, &text[length as usize..]))
}

/// Parses a `port`, 0 to 65,535.
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
    fn spaces_and_controls_are_invisible_wherever_they_stand() {
        for (b, len) in (0..=u8::MAX).flat_map(|b| [1, 9, 15, 16, 17, 40].map(|len| (b, len))) {
            for at in 0..len {
                let mut text = vec![b'x'; len];
                text[at] = b;
                assert_eq!(is_visible(&text), b > b' ' && b != 0x7f, "{b:#x} at {at} of {len}");
                text.fill(0xff);
                text[at] = b;
                assert_eq!(is_visible(&text), b > b' ' && b != 0x7f, "{b:#x} at {at} of {len}");
            }
        }
        assert!(is_visible(b""));
    }

    #[test]
    fn a_byte_is_found_where_it_first_stands() {
        for len in 0..90 {
            for at in 0..len {
                for other in [b',' - 1, b',' + 1, b',' | 0x80, 0, 0xff] {
                    let mut text = vec![other; len];
                    assert_eq!(find(b',', &text), None);
                    text[at] = b',';
                    text[len - 1] = b',';
                    assert_eq!(find(b',', &text), Some(at), "{other:#x}, {at} of {len}");
                    assert!(any(&text, |b| b == b',') && !any(&text, |b| b == b';'));
                }
            }
        }
        assert_eq!(find(b',', b""), None);
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
    fn runs_of_words_are_runs() {
        let mut table = TOKEN;
        b"/:@[]".iter().for_each(|&b| table[usize::from(b)] = true);
        for (b, at) in (0..=u8::MAX).flat_map(|b| (0..40).map(move |at| (b, at))) {
            let mut text = *b"aZ09-._:/@![]~+*%'`x0123456789abcdefghijkl";
            text[at] = b;
            for text in [&text[..], &text[..at + 1]] {
                assert_eq!(run_of_words(&table, text), run_of(&table, text), "{b:#x} at {at}");
            }
        }
    }

    #[test]
    fn few_digits_are_read_like_many() {
        for length in 0..12 {
            for behind in [0, b' ', b'/', b':', b';', 0x80, 0xff] {
                let mut text = b"90817263540000000000"[..length].to_vec();
                text.extend([behind; 9]);
                let digits = std::str::from_utf8(&text[..length]).unwrap();
                let expected = digits.parse().ok().map(|value| (value, &text[length..]));
                assert_eq!(split_decimal(&text, u32::MAX), expected, "{length} {behind:#x}");
            }
        }
        assert_eq!(split_decimal(b"65536;xx", u16::MAX.into()), None);
        assert_eq!(split_decimal(b"65535;xx", u16::MAX.into()), Some((65_535, &b";xx"[..])));
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
