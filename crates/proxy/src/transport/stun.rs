//! STUN binding requests on the SIP port: RFC 5626 §3.5.2 and §8, with the messages of RFC 5389.
//!
//! A phone behind address translation sends these requests over UDP to keep its binding open. The
//! response contains the address from which the request came, so the phone notices when the binding
//! has changed. The response needs no state. It is at most two and a half times as long as the
//! request. So an attacker that forges source addresses gains no more from it than from a SIP
//! response.

use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;

/// The length in bytes of the longest response, which has a header and an IPv6 address. An error
/// with [`UNKNOWN_MAX`] unknown attributes is shorter.
const RESPONSE_MAX: usize = HEADER + 4 + 20;
const _: () = assert!(HEADER + 8 + 4 + 2 * UNKNOWN_MAX <= RESPONSE_MAX);
/// Length in bytes of the header of a message: type, length, magic cookie and transaction ID (RFC
/// 5389 §6).
const HEADER: usize = 20;
const COOKIE: u32 = 0x2112_a442;
const BINDING_REQUEST: u16 = 0x0001;
const BINDING_RESPONSE: u16 = 0x0101;
const BINDING_ERROR: u16 = 0x0111;
const ERROR_CODE: u16 = 0x0009;
const UNKNOWN_ATTRIBUTES: u16 = 0x000a;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
/// Attributes for credentials, which a server without credentials ignores: USERNAME,
/// MESSAGE-INTEGRITY, REALM and NONCE.
const IGNORED: [u16; 4] = [0x0006, 0x0008, 0x0014, 0x0015];
/// Attributes with this type or a higher one need not be understood (RFC 5389 §15).
const OPTIONAL: u16 = 0x8000;
/// Maximum number of unknown attributes that an error response lists. The number is even, so that
/// no padding is needed.
const UNKNOWN_MAX: usize = 4;

/// A STUN response.
pub(crate) type Response = ArrayVec<u8, RESPONSE_MAX>;

/// Returns whether a datagram is a STUN message rather than SIP: its first byte is 0 or 1, and the
/// magic cookie is where RFC 5389 §6 puts it.
///
/// RFC 5626 §8: "It is easy to distinguish STUN and SIP packets sent over UDP, because the first
/// octet of a STUN Binding method has a value of 0 or 1, while the first octet of a SIP message is
/// never a 0 or 1."
#[inline]
pub(crate) fn is_stun(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|&first| first <= 1)
        && bytes.len() >= HEADER
        && bytes[4..8] == COOKIE.to_be_bytes()
}

/// Returns the response to a binding request from `remote`, or `None` if the message is not a valid
/// binding request.
///
/// RFC 5626 §8: "The UAS, proxy, or registrar responds to a valid Binding Request with a Binding
/// Response that MUST include the XOR-MAPPED-ADDRESS attribute."
pub(crate) fn answer(request: &[u8], remote: SocketAddr) -> Option<Response> {
    let (header, attributes) = request.split_first_chunk::<HEADER>()?;
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let is_whole = usize::from(number(2)) == attributes.len() && attributes.len() % 4 == 0;
    if number(0) != BINDING_REQUEST || !is_whole || !is_stun(request) {
        return None;
    }
    let unknown = unknown_in(attributes)?;
    let mut response = Response::new();
    let kind = if unknown.is_empty() { BINDING_RESPONSE } else { BINDING_ERROR };
    response.extend(kind.to_be_bytes());
    response.extend([0; 2]);
    response.extend(header[4..].iter().copied());
    if unknown.is_empty() {
        put_address(&mut response, remote, &header[4..]);
    } else {
        // RFC 5389 §7.3.1: "the server replies with an error response with an error code of 420
        // (Unknown Attribute), and includes an UNKNOWN-ATTRIBUTES attribute in the response that
        // lists the unknown comprehension-required attributes".
        put_attribute(&mut response, ERROR_CODE, &[0, 0, 4, 20]);
        let codes: ArrayVec<u8, { 2 * UNKNOWN_MAX }> =
            unknown.iter().flat_map(|code| code.to_be_bytes()).collect();
        put_attribute(&mut response, UNKNOWN_ATTRIBUTES, &codes);
    }
    let length = (response.len() - HEADER) as u16;
    response[2..4].copy_from_slice(&length.to_be_bytes());
    Some(response)
}

/// Returns the attributes of a request that must be understood but are not known here, padded to an
/// even number, or `None` if the attributes are malformed.
fn unknown_in(mut attributes: &[u8]) -> Option<ArrayVec<u16, UNKNOWN_MAX>> {
    let mut unknown = ArrayVec::new();
    while let Some((&[a, b, c, d], rest)) = attributes.split_first_chunk() {
        let (kind, length) = (u16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])));
        attributes = rest.get(length.next_multiple_of(4)..)?;
        if kind < OPTIONAL && !IGNORED.contains(&kind) && !unknown.is_full() {
            unknown.push(kind);
        }
    }
    // RFC 5389 §15.9: an odd number is padded, here by repeating the last one as in RFC 3489.
    if unknown.len() % 2 == 1
        && let Some(&last) = unknown.last()
    {
        unknown.push(last);
    }
    Some(unknown)
}

fn put_attribute(response: &mut Response, kind: u16, value: &[u8]) {
    response.extend(kind.to_be_bytes());
    response.extend((value.len() as u16).to_be_bytes());
    response.extend(value.iter().copied());
}

/// Writes the address from which the request came, XORed with the cookie and the transaction ID
/// (RFC 5389 §15.2), so that no NAT on the way recognizes and rewrites it.
fn put_address(response: &mut Response, remote: SocketAddr, mask: &[u8]) {
    let ip = remote.ip().to_canonical();
    let family = if ip.is_ipv4() { 1 } else { 2 };
    let mut value = ArrayVec::<u8, { 4 + 16 }>::from_iter([0, family]);
    let masked = |bytes: &[u8], value: &mut ArrayVec<u8, 20>| {
        value.extend(bytes.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
    };
    masked(&remote.port().to_be_bytes(), &mut value);
    match ip {
        IpAddr::V4(ip) => masked(&ip.octets(), &mut value),
        IpAddr::V6(ip) => masked(&ip.octets(), &mut value),
    }
    put_attribute(response, XOR_MAPPED_ADDRESS, &value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The transaction ID of RFC 5769 §2.2 and §2.3.
    const ID: [u8; 12] = [0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae];

    fn message(kind: u16, attributes: &[u8]) -> Vec<u8> {
        let length = (attributes.len() as u16).to_be_bytes();
        [&kind.to_be_bytes()[..], &length, &COOKIE.to_be_bytes(), &ID, attributes].concat()
    }

    /// RFC 5626 §8: "The UAS, proxy, or registrar responds to a valid Binding Request with a
    /// Binding Response that MUST include the XOR-MAPPED-ADDRESS attribute." The addresses and
    /// their texts are those of RFC 5769.
    #[test]
    fn a_binding_request_is_answered_with_the_address_of_its_sender() {
        let request = message(BINDING_REQUEST, &[]);
        let v4 = [0, 0x20, 0, 8, 0, 1, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43];
        let v6 = [
            0, 0x20, 0, 20, 0, 2, 0xa1, 0x47, 0x01, 0x13, 0xa9, 0xfa, 0xa5, 0xd3, 0xf1, 0x79, 0xbc,
            0x25, 0xf4, 0xb5, 0xbe, 0xd2, 0xb9, 0xd9,
        ];
        let answers = |remote: &str| answer(&request, remote.parse().unwrap()).unwrap().to_vec();
        assert_eq!(answers("192.0.2.1:32853"), message(BINDING_RESPONSE, &v4));
        assert_eq!(answers("[::ffff:192.0.2.1]:32853"), message(BINDING_RESPONSE, &v4));
        let remote = "[2001:db8:1234:5678:11:2233:4455:6677]:32853";
        assert_eq!(answers(remote), message(BINDING_RESPONSE, &v6));
    }

    fn remote() -> SocketAddr {
        "[2001:db8::1]:5060".parse().unwrap()
    }

    #[test]
    fn attributes_that_must_be_understood_are_listed_in_an_error() {
        let software = [0x80, 0x22, 0, 3, b'x', b'y', b'z', 0];
        let user = [0, 6, 0, 1, b'a', 0, 0, 0];
        let of = |attributes: &[u8]| answer(&message(BINDING_REQUEST, attributes), remote());
        let kind = |attributes: &[u8]| of(attributes).unwrap()[..2].to_vec();
        assert_eq!(kind(&[&software[..], &user].concat()), BINDING_RESPONSE.to_be_bytes());
        let unknown = [0x7f, 0xff, 0, 0];
        let error = of(&[&software[..], &unknown].concat()).unwrap();
        let listed = [0, 9, 0, 4, 0, 0, 4, 20, 0, 10, 0, 4, 0x7f, 0xff, 0x7f, 0xff];
        assert_eq!(error[..], message(BINDING_ERROR, &listed));
        assert_eq!(of(&unknown.repeat(1000)).unwrap().len(), HEADER + 8 + 4 + 2 * UNKNOWN_MAX);
    }

    #[test]
    fn anything_else_gets_no_answer() {
        let request = message(BINDING_REQUEST, &[]);
        let mut other_cookie = request.clone();
        other_cookie[5] = 0;
        let responses = [BINDING_RESPONSE, BINDING_ERROR, 0x0011, 0x0003].map(|k| message(k, &[]));
        for bytes in responses.iter().chain([&other_cookie, &request[..19].to_vec(), &Vec::new()]) {
            assert_eq!(answer(bytes, remote()), None, "{bytes:?}");
        }
        for attributes in [&[0, 1][..], &[0, 1, 0, 4], &[0x80, 0x22, 0, 9, 0, 0, 0, 0]] {
            assert_eq!(answer(&message(BINDING_REQUEST, attributes), remote()), None);
        }
        let short = [request, vec![0; 4]].concat();
        assert_eq!(answer(&short, remote()), None, "its length says otherwise");
        for sip in ["INVITE sip:a@b SIP/2.0\r\n", "SIP/2.0 200 OK\r\n", "\r\n\r\n", ""] {
            assert!(!is_stun(sip.as_bytes()));
        }
    }

    proptest! {
        /// An attacker who forges source addresses gains little from a response.
        #[test]
        fn a_response_is_at_most_two_and_a_half_times_as_long(attributes: Vec<u8>) {
            let request = message(BINDING_REQUEST, &attributes);
            if let Some(response) = answer(&request, remote()) {
                prop_assert!(2 * response.len() <= 5 * request.len());
            }
        }
    }
}
