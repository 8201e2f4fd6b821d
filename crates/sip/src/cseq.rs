//! The CSeq header (RFC 3261 §20.16).

use crate::Method;
use crate::lexical::{split_decimal, split_token, trim_start};

/// The value of a CSeq header: a sequence number, and the method of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CSeq<'a> {
    /// The sequence number, below 2^31 (RFC 3261 §8.1.1.5).
    pub number: u32,
    /// The method of the request.
    pub method: Method,
    /// The name of the method as written.
    pub method_name: &'a [u8],
}

impl<'a> CSeq<'a> {
    /// Parses a trimmed header value. Returns `None` if it does not follow the grammar.
    #[inline]
    pub(crate) fn parse(value: &'a [u8]) -> Option<Self> {
        // RFC 3261 §8.1.1.5: "a 32-bit unsigned integer and MUST be less than 2**31".
        let (number, rest) = split_decimal(value, (1 << 31) - 1)?;
        let method_name = trim_start(rest);
        let method = Method::from_bytes(method_name);
        let is_token = method != Method::Other || split_token(method_name)?.1.is_empty();
        let apart = method_name.len() < rest.len();
        (is_token && apart).then_some(Self { number, method, method_name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_methods() {
        let c = CSeq::parse(b"0009\r\n  INVITE").unwrap();
        assert_eq!((c.number, c.method), (9, Method::Invite));
        let c = CSeq::parse(b"2147483647 NewMethod").unwrap();
        assert_eq!(
            (c.number, c.method, c.method_name),
            (i32::MAX as u32, Method::Other, &b"NewMethod"[..])
        );
        for bad in [
            "",
            "1",
            "INVITE",
            "1INVITE",
            "-1 INVITE",
            "1 ",
            "1 IN VITE",
            "1 @",
            "2147483648 ACK",
            "36893488147419103232 REGISTER",
        ] {
            assert_eq!(CSeq::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
