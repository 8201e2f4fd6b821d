//! The torture messages of RFC 4475, section by section: valid ones are read, invalid ones are
//! rejected for the reason the section gives, and nothing panics.

use std::fs;
use std::path::PathBuf;

use tidegate_sip::{
    CSeq, HeaderName, Host, Malformed, Message, Method, Scheme, StartLine, Uri, ViaTransport, scan,
};

fn load(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/rfc4475").join(name);
    fs::read(path.with_extension("dat")).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns the result of `parse` and `check` for a message. Asserts that `scan` accepts each
/// message that they accept.
fn verdict(name: &str) -> Result<(), Malformed> {
    let bytes = load(name);
    let scanned = scan(&bytes);
    let checked = Message::parse(&bytes).and_then(|message| message.check());
    if checked.is_ok() {
        assert!(scanned.is_ok(), "{name}: scan rejects what check accepts");
    }
    checked
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn every_valid_message_is_accepted() {
    let valid = "wsinv intmeth esc01 escnull esc02 lwsdisp longreq dblreq semiuri transports mpart01 \
                 unreason noreason unkscm novelsc unksm2 bext01 invut regaut01 bcast zeromf cparam01 \
                 cparam02 regescrt sdp01 inv2543";
    for name in valid.split_whitespace() {
        assert_eq!(verdict(name), Ok(()), "{name}");
    }
}

#[test]
fn invalid_messages_are_rejected_for_their_reason() {
    use HeaderName::{CSeq, ContentLength, To, Via};
    use Malformed::{BadHeader, DuplicateHeader, MissingHeader, StartLine, Version};
    for (name, reason) in [
        ("badinv01", BadHeader(Via)),              // §3.1.2.1
        ("clerr", Malformed::ContentLength),       // §3.1.2.2
        ("ncl", BadHeader(ContentLength)),         // §3.1.2.3
        ("scalar02", BadHeader(CSeq)),             // §3.1.2.4
        ("scalarlg", BadHeader(CSeq)),             // §3.1.2.5
        ("quotbal", BadHeader(To)),                // §3.1.2.6
        ("lwsruri", StartLine),                    // §3.1.2.8
        ("lwsstart", StartLine),                   // §3.1.2.9
        ("trws", StartLine),                       // §3.1.2.10
        ("baddn", BadHeader(To)),                  // §3.1.2.15
        ("badvers", Version),                      // §3.1.2.16
        ("mismatch01", BadHeader(CSeq)),           // §3.1.2.17
        ("mismatch02", BadHeader(CSeq)),           // §3.1.2.18
        ("bigcode", StartLine),                    // §3.1.2.19
        ("insuf", MissingHeader(To)),              // §3.3.1
        ("multi01", DuplicateHeader(CSeq)),        // §3.3.8
        ("mcl01", DuplicateHeader(ContentLength)), // §3.3.9
    ] {
        assert_eq!(verdict(name), Err(reason), "{name}");
    }
}

/// Asserts that a fault passes if it is outside the parts that a proxy inspects (RFC 3261
/// §16.3(1)). The fault is reported when the caller reads the part.
#[test]
fn faults_in_parts_that_a_proxy_ignores_pass() {
    // §3.1.2.7: the Request-URI is in angle brackets.
    let bytes = load("ltgtruri");
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(Uri::parse(message.request_uri().unwrap()), Err(Malformed::Uri));

    // §3.1.2.11: headers in the Request-URI, which must not be forwarded.
    let bytes = load("escruri");
    let message = Message::parse(&bytes).unwrap();
    let uri = Uri::parse(message.request_uri().unwrap()).unwrap();
    assert_eq!(uri.headers, Some(&b"Route=%3Csip:example.com%3E"[..]));

    // §3.1.2.4: values out of range in headers other than the CSeq.
    let bytes = load("scalar02");
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.max_forwards(), Err(Malformed::BadHeader(HeaderName::MaxForwards)));
    assert_eq!(message.expires(), Err(Malformed::BadHeader(HeaderName::Expires)));

    // §3.1.2.12 to §3.1.2.14: a wrong time zone, a bare URI with headers, spaces inside brackets.
    for name in ["baddate", "regbadct", "badaspec"] {
        assert_eq!(verdict(name), Ok(()), "{name}");
    }
    let bytes = load("badaspec");
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(text(message.to().unwrap().uri), "sip:t.watson@example.org");
}

/// Reads the message of RFC 4475 §3.1.1.1.
#[test]
fn a_short_tortuous_invite() {
    let bytes = load("wsinv");
    let message = Message::parse(&bytes).unwrap();
    let uri = Uri::parse(message.request_uri().unwrap()).unwrap();
    assert_eq!(uri.params.get("unknownparam"), Some(None));
    assert_eq!(text(message.to().unwrap().tag().unwrap()), "1918181833n");
    let from = message.from().unwrap();
    assert_eq!(text(from.display.unwrap()), r#"J Rosenberg \\\""#);
    assert_eq!((text(from.uri), text(from.tag().unwrap())), ("sip:jdrosen@example.com", "98asjd8"));
    assert_eq!(message.max_forwards(), Ok(Some(68)));
    assert_eq!(text(message.call_id().unwrap()), "wsinv.ndaksdj@192.0.2.1");
    assert_eq!(message.content_length(), Ok(Some(150)));
    assert_eq!(message.body().len(), 150);
    let cseq = CSeq { number: 9, method: Method::Invite, method_name: b"INVITE" };
    assert_eq!(message.cseq(), Ok(cseq));

    let vias: Vec<_> = message.vias().map(Result::unwrap).collect();
    let seen: Vec<_> =
        vias.iter().map(|v| (v.transport, text(v.sent_by), text(v.branch().unwrap()))).collect();
    assert_eq!(
        seen,
        [
            (ViaTransport::Udp, "192.0.2.2", "390skdjuw"),
            (ViaTransport::Tcp, "spindle.example.com", "z9hG4bK9ikj8"),
            (ViaTransport::Udp, "192.168.255.111", "z9hG4bK30239"),
        ]
    );
    assert!(!vias[0].has_magic_cookie() && vias[1].has_magic_cookie());

    let route = message.routes().next().unwrap().unwrap();
    let uri = route.parse_uri().unwrap();
    assert!(uri.lr());
    assert_eq!(uri.params.get("unknownwith"), Some(Some(&b"value"[..])));
    assert_eq!(uri.params.get("unknown-no-value"), Some(None));
    let contact = message.contacts().next().unwrap().unwrap();
    assert_eq!(text(contact.display.unwrap()), r#"Quoted string \"\""#);
    let params: Vec<_> = contact.params.iter().map(|p| (text(p.name), p.value.map(text))).collect();
    assert_eq!(
        params,
        [("newparam", Some("newvalue")), ("secondparam", None), ("q", Some("0.33"))]
    );
    assert_eq!(message.field(HeaderName::Subject).unwrap().value, b"");
    let other = message.fields().find(|f| f.raw_name == b"NewFangledHeader").unwrap();
    assert_eq!(text(other.value), "newfangled value\r\n continued newfangled value");
}

/// Reads the message of RFC 4475 §3.1.1.2.
#[test]
fn a_wide_range_of_valid_characters() {
    let bytes = load("intmeth");
    let message = Message::parse(&bytes).unwrap();
    let StartLine::Request { method, method_name, uri } = message.start() else { panic!() };
    assert_eq!(
        (method, text(method_name)),
        (Method::Other, "!interesting-Method0123456789_*+`.%indeed'~")
    );
    let uri = Uri::parse(uri).unwrap();
    assert_eq!(text(uri.user.unwrap()), "1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*");
    assert_eq!(text(uri.password.unwrap()), "&it+has=1,weird!*pas$wo~d_too.(doesn't-it)");
    assert_eq!(uri.host, Some(Host::Name(b"example.com")));
    assert_eq!(message.to().unwrap().display, Some(&b"BEL:\\\x07 NUL:\\\x00 DEL:\\\x7f"[..]));
    let from = message.from().unwrap();
    assert_eq!(text(from.display.unwrap()), "token1~` token2'+_ token3*%!.-");
    assert_eq!(text(from.params.get("fromParam''~+*_!.-%").unwrap().unwrap()), "работающий");
    assert_eq!(text(from.tag().unwrap()), "_token~1'+`*%!-.");
    assert_eq!(text(message.call_id().unwrap()), r#"intmeth.word%ZK-!.*_+'@word`~)(><:\/"][?}{"#);
    assert_eq!(text(message.top_via().unwrap().branch().unwrap()), "z9hG4bK-.!%66*_+`'~");
}

/// Reads the message of RFC 4475 §3.1.1.7.
#[test]
fn long_values_and_many_vias() {
    let bytes = load("longreq");
    let message = Message::parse(&bytes).unwrap();
    let hosts: Vec<_> = message.vias().map(|v| text(v.unwrap().sent_by).to_owned()).collect();
    let expected: Vec<_> = (1..=33).rev().map(|i| format!("sip{i}.example.com")).collect();
    assert_eq!(hosts[..33], expected);
    assert_eq!(hosts[33..], ["host.example.com"]);
}

/// RFC 4475 §3.1.1.8: bytes behind the body are not part of the message.
#[test]
fn extra_trailing_octets() {
    let bytes = load("dblreq");
    let message = Message::parse(&bytes).unwrap();
    assert_eq!((message.method(), message.body()), (Some(Method::Register), &b""[..]));
    assert!(message.bytes().ends_with(b"Content-Length: 0\r\n\r\n"));
}

/// RFC 4475 §3.1.1.3 to §3.1.1.5 and §3.1.1.9: the parser splits a URI with escapes, and does not
/// unescape it.
#[test]
fn semicolons_and_escapes_in_uris() {
    let bytes = load("semiuri");
    let message = Message::parse(&bytes).unwrap();
    let uri = Uri::parse(message.request_uri().unwrap()).unwrap();
    assert_eq!(text(uri.user.unwrap()), "user;par=u%40example.net");

    let bytes = load("esc01");
    let message = Message::parse(&bytes).unwrap();
    let uri = Uri::parse(message.request_uri().unwrap()).unwrap();
    assert_eq!(text(uri.user.unwrap()), "sips%3Auser%40example.com");

    let bytes = load("esc02");
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.method(), Some(Method::Other));
    let contacts: Vec<_> = message.contacts().map(|c| text(c.unwrap().uri).to_owned()).collect();
    // `C%6Fntact` is not Contact, because nothing is unescaped in a name.
    assert_eq!(contacts, ["sip:alias1@host1.example.com", "sip:alias3@host3.example.com"]);
}

/// Reads the message of RFC 4475 §3.1.1.6.
#[test]
fn no_white_space_before_the_bracket() {
    let bytes = load("lwsdisp");
    let from = Message::parse(&bytes).unwrap().from().unwrap();
    assert_eq!((text(from.display.unwrap()), text(from.uri)), ("caller", "sip:caller@example.com"));
}

/// Reads the message of RFC 4475 §3.1.1.10.
#[test]
fn transports_known_and_unknown() {
    let bytes = load("transports");
    let message = Message::parse(&bytes).unwrap();
    let transports: Vec<_> = message.vias().map(|v| v.unwrap().transport).collect();
    use ViaTransport::*;
    assert_eq!(transports, [Udp, Sctp, Tls, Other, Tcp]);
}

/// Reads the messages of RFC 4475 §3.1.1.11 to §3.1.1.13.
#[test]
fn binary_bodies_and_unusual_reasons() {
    let bytes = load("mpart01");
    let message = Message::parse(&bytes).unwrap();
    assert!(message.body().contains(&0) && message.body().ends_with(b"--7a9cbec02ceef655--\r\n"));

    let bytes = load("unreason");
    let StartLine::Response { status, reason } = Message::parse(&bytes).unwrap().start() else {
        panic!()
    };
    assert_eq!((status, text(reason)), (200, "= 2**3 * 5**2 но сто девяносто девять - простое"));

    let bytes = load("noreason");
    let start = Message::parse(&bytes).unwrap().start();
    assert_eq!(start, StartLine::Response { status: 100, reason: b"" });
}

/// RFC 4475 §3.2.1, §3.3.2, §3.3.3, §3.3.10 and §3.4.1: messages that are well-formed, although an
/// element may have to reject them.
#[test]
fn semantics_that_the_grammar_leaves_alone() {
    let bytes = load("badbranch");
    assert_eq!(scan(&bytes).unwrap().branch, Some(&b"z9hG4bK"[..]));
    for (name, scheme) in [("unkscm", "nobodyKnowsThisScheme"), ("novelsc", "soap.beep")] {
        let bytes = load(name);
        let uri = Uri::parse(Message::parse(&bytes).unwrap().request_uri().unwrap()).unwrap();
        assert_eq!(uri.scheme, Scheme::Other);
        assert!(uri.text.starts_with(scheme.as_bytes()));
    }
    let bytes = load("bcast");
    let second = Message::parse(&bytes).unwrap().vias().nth(1).unwrap().unwrap();
    assert_eq!(second.host, Host::V4([255, 255, 255, 255].into()));
    let bytes = load("inv2543");
    let scanned = scan(&bytes).unwrap();
    assert_eq!((scanned.branch, scanned.to_tag), (None, None));
}

/// A server can answer a request that it rejects (RFC 4475 §3.1.2.2, §3.1.2.3, §3.1.2.8 to
/// §3.1.2.10, §3.1.2.16).
#[test]
fn rejected_messages_can_still_be_answered() {
    let rejected = "clerr ncl lwsruri lwsstart trws badvers mcl01 insuf quotbal";
    for name in rejected.split_whitespace() {
        let bytes = load(name);
        let message = Message::parse_head(&bytes).unwrap();
        assert!(message.top_via().is_ok(), "{name}");
    }
}
