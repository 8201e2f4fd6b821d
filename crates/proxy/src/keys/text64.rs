//! Base64 with the URL and filename safe alphabet (RFC 4648 §5), without padding. Our branches,
//! tags and tokens are written in it.
//!
//! Each forwarded message contains one or two texts in Base64, whose lengths are known. For them
//! this code needs half as many instructions as a general library.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The value of a byte that is not in the alphabet. Values of valid bytes do not have this bit.
const NONE: u32 = 1 << 31;

/// The bits of each character at each of the four positions in a group.
static VALUES: [[u32; 256]; 4] = {
    let mut values = [[NONE; 256]; 4];
    let mut i = 0;
    while i < 4 * ALPHABET.len() {
        let (place, value) = (i % 4, i / 4);
        values[place][ALPHABET[value] as usize] = (value as u32) << (18 - 6 * place);
        i += 1;
    }
    values
};

/// Returns the number of characters that encode `bytes` bytes.
pub(crate) const fn text_len(bytes: usize) -> usize {
    (bytes * 8).div_ceil(6)
}

/// Encodes `bytes`, 6 bits a character, and writes the characters at the beginning of `text`, which
/// must have room for them. Returns the number of characters.
pub(crate) fn encode(bytes: &[u8], text: &mut [u8]) -> usize {
    let length = text_len(bytes.len());
    let letter = |bits: u32| ALPHABET[bits as usize & 0x3f];
    let (groups, rest) = bytes.as_chunks::<3>();
    let (places, last) = text[..length].as_chunks_mut::<4>();
    for ([a, b, c], place) in groups.iter().zip(places) {
        let bits = u32::from_be_bytes([0, *a, *b, *c]);
        *place = [letter(bits >> 18), letter(bits >> 12), letter(bits >> 6), letter(bits)];
    }
    if rest.is_empty() {
        return length;
    }
    let mut bits = [0; 4];
    bits[1..][..rest.len()].copy_from_slice(rest);
    let bits = u32::from_be_bytes(bits);
    for (place, shift) in last.iter_mut().zip([18, 12, 6]) {
        *place = letter(bits >> shift);
    }
    length
}

/// Decodes `text` into the beginning of `bytes` and returns the number of decoded bytes. Returns
/// `None` if the text is invalid, or too long for `bytes`.
///
/// RFC 4648 §3.5: "When fewer than 24 input bits are available in an input group, bits with value
/// zero are added (on the right) to form an integral number of 6-bit groups." A text whose added
/// bits are not zero is invalid, because each sequence of bytes must have only one text.
pub(crate) fn decode(text: &[u8], bytes: &mut [u8]) -> Option<usize> {
    let length = text.len() * 6 / 8;
    let (places, last) = bytes.get_mut(..length)?.as_chunks_mut::<3>();
    let (groups, rest) = text.as_chunks::<4>();
    let value = |place: usize, letter: u8| VALUES[place][usize::from(letter)];
    let mut seen = 0;
    for ([a, b, c, d], place) in groups.iter().zip(places) {
        let bits = value(0, *a) | value(1, *b) | value(2, *c) | value(3, *d);
        seen |= bits;
        let [_, bytes @ ..] = bits.to_be_bytes();
        *place = bytes;
    }
    if rest.is_empty() {
        return (seen & NONE == 0).then_some(length);
    }
    let bits = rest.iter().enumerate().fold(0, |bits, (at, &letter)| bits | value(at, letter));
    seen |= bits;
    let [_, whole @ ..] = bits.to_be_bytes();
    let (used, unused) = whole.split_at(last.len());
    last.copy_from_slice(used);
    let is_whole = rest.len() != 1 && unused.iter().all(|&byte| byte == 0);
    (is_whole && seen & NONE == 0).then_some(length)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    use super::*;

    fn decoded(text: &[u8], room: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; room];
        let length = decode(text, &mut bytes)?;
        bytes.truncate(length);
        Some(bytes)
    }

    proptest! {
        #[test]
        fn bytes_are_written_as_the_general_library_does(bytes: Vec<u8>) {
            let mut text = vec![0; text_len(bytes.len())];
            prop_assert_eq!(encode(&bytes, &mut text), text.len());
            let expected = URL_SAFE_NO_PAD.encode(&bytes);
            prop_assert_eq!(&text, expected.as_bytes());
            prop_assert_eq!(decoded(&text, bytes.len()), Some(bytes));
        }

        #[test]
        fn text_is_read_or_not_as_the_general_library_does(text in "[AQgw_-]{0,9}|[ -~]{0,4}") {
            let expected = URL_SAFE_NO_PAD.decode(&text).ok();
            prop_assert_eq!(decoded(text.as_bytes(), text.len()), expected);
        }
    }

    #[test]
    fn too_long_text_is_not_decoded() {
        assert_eq!(decoded(b"AAAA", 3), Some(vec![0; 3]));
        assert_eq!(decoded(b"AAAA", 2), None);
        assert_eq!(decoded(b"A", 9), None);
        assert_eq!(decoded(b"AB", 9), None, "bits that no byte has");
        assert_eq!(decoded(b"AAA=", 9), None);
    }
}
