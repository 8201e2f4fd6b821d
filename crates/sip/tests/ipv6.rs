//! The torture messages of RFC 5118: SIP over IPv6.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use tidegate_sip::{Host, Malformed, Message, Uri, response_target};

fn load(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/rfc5118").join(name);
    fs::read(path.with_extension("dat")).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

fn request_uri<'a>(message: &Message<'a>) -> Result<Uri<'a>, Malformed> {
    Uri::parse(message.request_uri().unwrap())
}

/// RFC 5118 §4.1 to §4.4: IPv6 references in URIs and Vias, with and without a port.
#[test]
fn references_and_ports() {
    let bytes = load("ipv6-good");
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.check(), Ok(()));
    assert_eq!(request_uri(&message).unwrap().host.unwrap().ip(), ip("2001:db8::10"));
    assert_eq!(message.top_via().unwrap().host.ip(), ip("2001:db8::9:1"));
    let contact = message.contacts().next().unwrap().unwrap().parse_uri().unwrap();
    assert_eq!(contact.host.unwrap().ip(), ip("2001:db8::1"));

    let bytes = load("ipv6-bad");
    assert_eq!(request_uri(&Message::parse(&bytes).unwrap()), Err(Malformed::Uri));

    let bytes = load("port-ambiguous");
    let uri = request_uri(&Message::parse(&bytes).unwrap()).unwrap();
    assert_eq!((uri.host.unwrap().ip(), uri.port), (ip("2001:db8::10:5070"), None));

    let bytes = load("port-unambiguous");
    let uri = request_uri(&Message::parse(&bytes).unwrap()).unwrap();
    assert_eq!((uri.host.unwrap().ip(), uri.port), (ip("2001:db8::10"), Some(5070)));
}

/// RFC 5118 §4.5: `received` with brackets and without.
#[test]
fn received_with_and_without_brackets() {
    for name in ["via-received-param-with-delim", "via-received-param-no-delim"] {
        let bytes = load(name);
        let via = Message::parse(&bytes).unwrap().top_via().unwrap();
        let target = response_target(&via).unwrap();
        assert_eq!(Some(target.ip()), ip("2001:db8::9:255"), "{name}");
    }
}

/// RFC 5118 §4.6 to §4.9: headers with addresses of both families. The parser does not read the
/// bodies.
#[test]
fn both_families_in_one_message() {
    let bytes = load("mult-ip-in-header");
    let hosts: Vec<_> =
        Message::parse(&bytes).unwrap().vias().map(|v| v.unwrap().host.ip()).collect();
    assert_eq!(hosts, [ip("2001:db8::9:1"), ip("192.0.2.1"), ip("2001:db8::9:255")]);
    for name in ["ipv6-in-sdp", "mult-ip-in-sdp", "ipv4-mapped-ipv6"] {
        let bytes = load(name);
        let message = Message::parse_head(&bytes).unwrap();
        assert_eq!(message.check(), Ok(()), "{name}");
        assert!(message.contacts().all(|c| c.unwrap().parse_uri().is_ok()), "{name}");
    }
}

/// RFC 5118 §4.10: "an implementation must tolerate both".
#[test]
fn a_third_colon_before_an_ipv4_part() {
    let host = |name: &str| {
        let bytes = load(name);
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.check(), Ok(()));
        request_uri(&message).unwrap().host.unwrap().ip()
    };
    assert_eq!(host("ipv6-bug-abnf-3-colons"), ip("2001:db8::192.0.2.1"));
    assert_eq!(host("ipv6-correct-abnf-2-colons"), ip("2001:db8::192.0.2.1"));
    assert!(matches!(Host::parse(b"[2001:db8::192.0.2.1]"), Some(Host::V6(_))));
}
