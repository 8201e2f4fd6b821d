use super::*;
use crate::ViaTransport;

const INVITE: &str = "INVITE sip:bob@biloxi.com SIP/2.0\r\n\
    Via: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bKnashds8\r\n\
    Max-Forwards: 70\r\n\
    To: Bob <sip:bob@biloxi.com>\r\n\
    From: Alice <sip:alice@atlanta.com>;tag=1928301774\r\n\
    Call-ID: a84b4c76e66710\r\n\
    CSeq: 314159 INVITE\r\n\
    Contact: <sip:alice@pc33.atlanta.com>\r\n\
    Content-Length: 4\r\n\r\nbody";

/// The message is F1 of RFC 3261 §24.2.
#[test]
fn an_invite_is_read() {
    let m = Message::parse(INVITE.as_bytes()).unwrap();
    assert_eq!(m.check(), Ok(()));
    assert_eq!((m.is_request(), m.method(), m.status()), (true, Some(Method::Invite), None));
    assert_eq!((m.request_uri(), m.version()), (Some(&b"sip:bob@biloxi.com"[..]), &b"SIP/2.0"[..]));
    let via = m.top_via().unwrap();
    assert_eq!((via.transport, via.port), (ViaTransport::Udp, None));
    assert_eq!(m.to().unwrap().display, Some(&b"Bob"[..]));
    assert_eq!(m.from().unwrap().tag(), Some(&b"1928301774"[..]));
    assert_eq!(m.contacts().count(), 1);
    assert_eq!((m.routes().count(), m.record_routes().count()), (0, 0));
    assert_eq!((m.max_forwards(), m.expires()), (Ok(Some(70)), Ok(None)));
    assert_eq!((m.body(), m.bytes()), (&b"body"[..], INVITE.as_bytes()));
    let names: Vec<_> = m.fields().map(|f| f.name).collect();
    use HeaderName::*;
    assert_eq!(names, [Via, MaxForwards, To, From, CallId, CSeq, Contact, ContentLength]);
}

/// RFC 3261 §18.3 defines where the body ends.
#[test]
fn the_body_ends_where_content_length_says() {
    let with = |length: &str| INVITE.replace("Content-Length: 4\r\n", length);
    let parse = |text: &str| Message::parse(text.as_bytes()).map(|m| m.body().to_vec());
    assert_eq!(parse(&with("l: 3\r\n")), Ok(b"bod".to_vec()));
    assert_eq!(parse(&with("l: 0\r\n")), Ok(b"".to_vec()));
    assert_eq!(parse(&with("")), Ok(b"body".to_vec()));
    assert_eq!(parse(&with("l: 5\r\n")), Err(Malformed::ContentLength));
    assert_eq!(parse(&with("l: 4294967295\r\n")), Err(Malformed::ContentLength));
    let bad = Err(Malformed::BadHeader(HeaderName::ContentLength));
    for length in ["l: 4294967296\r\n", "l: -1\r\n", "l:\r\n", "l: five\r\n", "l: 4 4\r\n"] {
        assert_eq!(parse(&with(length)), bad, "{length}");
    }
    let cut = with("l: 5\r\n");
    let head = Message::parse_head(cut.as_bytes()).unwrap();
    assert_eq!((head.check(), head.body()), (Ok(()), &b"body"[..]));
}

#[test]
fn line_ends_before_the_start_line_are_no_part_of_it() {
    let padded = format!("\r\n\r\n{INVITE}");
    let m = Message::parse(padded.as_bytes()).unwrap();
    assert_eq!(m.bytes(), INVITE.as_bytes());
    assert_eq!(m.span(m.request_uri().unwrap()), 7..25);
}

#[test]
fn not_a_message() {
    let parse = |bytes: &[u8]| Message::parse(bytes).map(|_| ()).unwrap_err();
    assert_eq!(parse(b"\r\n\r\n"), Malformed::Keepalive);
    assert_eq!(parse(b"INVITE sip:a SIP/2.0"), Malformed::StartLine);
    assert_eq!(parse(b"hello\r\n\r\n"), Malformed::StartLine);
    assert_eq!(parse(b"INVITE sip:a SIP/2.0\r\n"), Malformed::NoEnd);
    assert_eq!(parse(b"INVITE sip:a SIP/2.0\r\nTo: x\r\n"), Malformed::NoEnd);
    assert_eq!(parse(b"INVITE sip:a SIP/2.0\r\nTo x\r\n\r\n"), Malformed::Header { offset: 22 });
    assert_eq!(parse(b"INVITE sip:a SIP/2.0\r\n folded\r\n\r\n"), Malformed::Header { offset: 22 });
}

#[test]
fn length_and_number_of_lines_are_limited() {
    let lines = |n: usize| format!("INVITE sip:a SIP/2.0\r\n{}\r\n", "X: y\r\n".repeat(n));
    assert!(Message::parse(lines(FIELDS_MAX).as_bytes()).is_ok());
    let many = lines(FIELDS_MAX + 1);
    assert_eq!(Message::parse(many.as_bytes()).err(), Some(Malformed::TooManyHeaders));
    // `parse_head` still reads the message, so that it can be answered.
    assert_eq!(Message::parse_head(many.as_bytes()).unwrap().fields().count(), FIELDS_MAX + 1);
    let mut long = lines(1).into_bytes();
    long.resize(BYTES_MAX, b'x');
    assert_eq!(Message::parse(&long).unwrap().body().len(), BYTES_MAX - 30);
    long.push(b'x');
    assert_eq!(Message::parse(&long).err(), Some(Malformed::TooLong));
    // The offsets of the last line fit in 16 bits too.
    let last = format!("INVITE sip:a SIP/2.0\r\nS: {}\r\nTo: x\r\n\r\n", "y".repeat(65_499));
    assert_eq!(last.len(), BYTES_MAX);
    assert_eq!(Message::parse(last.as_bytes()).unwrap().field(HeaderName::To).unwrap().value, b"x");
}

/// RFC 3261 §8.1.1 lists the mandatory headers, and §16.3(1) requires that they are well-formed.
#[test]
fn mandatory_headers_are_there_once_and_well_formed() {
    use HeaderName::*;
    use Malformed::{BadHeader, DuplicateHeader, MissingHeader};
    let check = |from: &str, to: &str| {
        let bytes = INVITE.replace(from, to);
        assert_ne!(bytes, INVITE);
        Message::parse(bytes.as_bytes()).unwrap().check()
    };
    for (line, name) in
        [("Via", Via), ("To", To), ("From", From), ("Call-ID", CallId), ("CSeq", CSeq)]
    {
        assert_eq!(check(&format!("\r\n{line}:"), "\r\nX-Other:"), Err(MissingHeader(name)));
        assert_eq!(check(&format!("\r\n{line}:"), &format!("\r\n{line}: ;")), Err(BadHeader(name)));
    }
    for (line, name) in [
        ("t: <sip:b>", To),
        ("From: x", From),
        ("i: 1", CallId),
        ("CSeq: 1 INVITE", CSeq),
        ("Max-Forwards: 1", MaxForwards),
        ("max-breadth: 1", MaxBreadth),
        ("Content-Length: 4", ContentLength),
    ] {
        let twice = format!("\r\n{line}\r\n{line}\r\nContact:");
        assert_eq!(check("\r\nContact:", &twice), Err(DuplicateHeader(name)));
    }
    assert_eq!(check("\r\nContact:", "\r\nVia: SIP/2.0/UDP b\r\nContact: x\r\nContact:"), Ok(()));
    assert_eq!(check("314159 INVITE", "314159 ACK"), Err(BadHeader(CSeq)));
    assert_eq!(check("SIP/2.0\r\n", "SIP/3.0\r\n"), Err(Malformed::Version));
    assert_eq!(check("Max-Forwards", "X-Forwards"), Ok(()));
}

/// A regression: a request of a B2BUA with two User-Agent lines got 400.
///
/// RFC 3261 §16.3: "Any other components, well-formed or not, SHOULD be ignored and remain
/// unchanged when the message is forwarded."
#[test]
fn headers_that_a_proxy_does_not_use_may_be_repeated() {
    for line in [
        "User-Agent: FPBX",
        "S: lunch",
        "Organization: x",
        "Date: Sat, 13 Nov 2010 23:29:00 GMT",
        "Reply-To: <sip:a@b>",
        "Priority: urgent",
        "Expires: 1",
        "x: 90",
        "c: application/sdp",
        "MIME-Version: 1.0",
        "SIP-ETag: 1",
    ] {
        let twice = INVITE.replace("\r\nContact:", &format!("\r\n{line}\r\n{line}\r\nContact:"));
        assert_ne!(twice, INVITE);
        assert_eq!(Message::parse(twice.as_bytes()).unwrap().check(), Ok(()), "{line}");
    }
}

/// Found by fuzzing. A proxy appends a `received` parameter to a Via, or a tag to a To. No parser
/// finds a parameter that is appended to one of these values.
#[test]
fn content_that_hides_an_appended_header_is_malformed() {
    let check = |from: &str, to: &str| {
        let text = INVITE.replacen(from, to, 1);
        assert_ne!(text, INVITE);
        Message::parse(text.as_bytes()).unwrap().check()
    };
    let (via, to) = (HeaderName::Via, HeaderName::To);
    assert_eq!(check(";branch", ";x=\"y;branch"), Err(Malformed::BadHeader(via)));
    assert_eq!(check(";branch", ";received=\"y\" z;branch"), Err(Malformed::BadHeader(via)));
    assert_eq!(check(";branch", ";received=<y;x,z>;branch"), Err(Malformed::BadHeader(via)));
    assert_eq!(check(";branch", ";x=\"y\";branch"), Ok(()));
    for tag in [";tag=", ";tag", "; tag = ;x", ";x=\"y"] {
        let whole = format!("<sip:bob@biloxi.com>{tag}\r\n");
        assert_eq!(
            check("<sip:bob@biloxi.com>\r\n", &whole),
            Err(Malformed::BadHeader(to)),
            "{tag:?}"
        );
    }
}

/// RFC 3261 §8.1.1.7, §25.1: every Via is checked, because the next server parses the lower Vias.
#[test]
fn every_via_is_well_formed_and_of_sip_2() {
    let bad = Err(Malformed::BadHeader(HeaderName::Via));
    let check = |via: &str| {
        let top = "Via: SIP/2.0/UDP top;branch=z9hG4bK1";
        // The Via is on a line of its own, in the list of the first line, or the first Via.
        let places = [format!("{top}\r\nVia: {via}"), format!("{top}, {via}"), format!("v: {via}")];
        let checks = places.map(|lines| {
            let (start, rest) = INVITE.split_once("\r\n").unwrap();
            let (_, rest) = rest.split_once("\r\n").unwrap();
            Message::parse(format!("{start}\r\n{lines}\r\n{rest}").as_bytes()).unwrap().check()
        });
        assert!(checks.iter().all(|check| *check == checks[0]), "{via:?}: {checks:?}");
        checks[0]
    };
    for via in [
        "",
        "nonsense",
        "SIP/3.0/UDP b;branch=x",
        "HTTP/2.0/UDP b;branch=x",
        "SIP/2.0/UDP",
        "SIP/2.0/UDP ;branch=x",
        "SIP/2.0/UDP b:x",
        "SIP/2.0/UDP b:70000",
        "SIP/2.0/UDP b c",
        "SIP/2.0/UDP [::1",
        "SIP/2.0/UDP b;;branch=x",
        "SIP/2.0/UDP b;branch=x;",
        "SIP/2.0/UDP b;branch=",
        "SIP/2.0/UDP b;=x",
        "SIP/2.0/UDP b;a b",
        "SIP/2.0/UDP b;x=\"y",
        "SIP/2.0/UDP b;branch=z9hG4bK1 z",
        "SIP/2.0/UDP b;branch=x;branch=y",
        "SIP/2.0/UDP b;branch=x;y=z;BRANCH=y",
        "SIP/2.0/UDP b;rport;branch=x;rport=1",
        "SIP/2.0/UDP b;received=192.0.2.1;received=192.0.2.2",
        "SIP/2.0/UDP b,",
        ",SIP/2.0/UDP b",
        "SIP/2.0/UDP b, , SIP/2.0/UDP c",
    ] {
        assert_eq!(check(via), bad, "{via:?}");
    }
    for via in [
        "SIP/2.0/UDP b",
        "sip/2.0/TCP b:5060;rport=;x=\"\"",
        "SIP / 2.0\r\n / UDP b_c : 5060 ; branch = x ; lr",
        "SIP/2.0/OTHER [2001:db8::1]:1;received=192.0.2.1,SIP/2.0/UDP c",
    ] {
        assert_eq!(check(via), Ok(()), "{via:?}");
    }
}

/// RFC 3261 §25.1. Kamailio 5.6 silently drops a message with malformed parameters when it parses
/// them. §7.3.1: "Even though an arbitrary number of parameter pairs may be attached to a header
/// field value, any given parameter-name MUST NOT appear more than once." Kamailio and PJSIP read
/// the last tag of several.
#[test]
fn parameters_of_from_and_to_follow_the_grammar() {
    for (from, name) in
        [("sip:bob@biloxi.com>", HeaderName::To), ("sip:alice@atlanta.com>", HeaderName::From)]
    {
        let bad = [";;x", ";x;", ";=x", ";x y", ";x=y z", ";x=\x01", ";x=y\0;z"];
        let two_tags = [";tag=a;tag=b", ";tag=a;tag=", ";tag=a;TAG", ";x=y;tag=a;tag=b"];
        let good = [";x=y", ";x=\";tag=b\";tag=a", "; x = y ;\r\n tag=a"];
        let bad = bad.into_iter().chain(two_tags).map(|params| (params, false));
        for (params, is_well_formed) in bad.chain(good.map(|params| (params, true))) {
            let text = INVITE.replacen(";tag=1928301774", "", 1);
            let text = text.replacen(&format!("<{from}"), &format!("<{from}{params}"), 1);
            let checked = Message::parse(text.as_bytes()).unwrap().check();
            let expected = if is_well_formed { Ok(()) } else { Err(Malformed::BadHeader(name)) };
            assert_eq!(checked, expected, "{name} {params}");
        }
    }
}

/// RFC 3261 §7: "The start-line, each message-header line, and the empty line MUST be terminated by a
/// carriage-return line-feed sequence (CRLF)."
///
/// Without this check, this parser would read a bare CR as part of a value, and other parsers as a
/// line end. So a stranger could add unchecked headers, such as a P-Asserted-Identity.
#[test]
fn a_cr_or_an_lf_outside_a_crlf_is_malformed() {
    let check = |text: &str| Message::parse(text.as_bytes()).unwrap().check();
    for line in [
        "Subject: x\rP-Asserted-Identity: <sip:boss@example.com>",
        "Subject: x\r",
        "Subject: x\r\r\n y",
        "Subject: \rx",
        "X: \"a\\\rb\"",
        "X: a\nRoute: <sip:victim>",
        "X: a\n b",
    ] {
        let text = INVITE.replacen("\r\nCSeq:", &format!("\r\n{line}\r\nCSeq:"), 1);
        assert_eq!(check(&text), Err(Malformed::LineEnd), "{line:?}");
    }
    // Every line end counts, from the start line to the empty line.
    let (head, body) = INVITE.split_at(INVITE.len() - "body".len());
    for (at, _) in head.match_indices('\r') {
        let text = [&head[..at], &head[at + 1..], body].concat();
        assert_eq!(check(&text), Err(Malformed::LineEnd), "{at}");
    }
    // Line ends in a body are not checked.
    assert_eq!(check(&INVITE.replace("body", "a\rb\n")), Ok(()));
    assert_eq!(check(&INVITE.replace("\r\nCSeq:", "\r\nX: a\r\n b\r\nCSeq:")), Ok(()));
}

#[test]
fn the_cseq_of_a_response_may_name_any_method() {
    let response = INVITE.replace("INVITE sip:bob@biloxi.com SIP/2.0", "SIP/2.0 200 OK");
    assert_eq!(Message::parse(response.as_bytes()).unwrap().check(), Ok(()));
}

#[test]
fn max_forwards_and_expires_have_their_ranges() {
    let parse = |line: &str| {
        let bytes = format!("INVITE sip:a SIP/2.0\r\n{line}\r\n\r\n").into_bytes();
        let m = Message::parse(&bytes).unwrap();
        (m.max_forwards(), m.expires())
    };
    assert_eq!(parse("Max-Forwards: 255"), (Ok(Some(255)), Ok(None)));
    assert_eq!(parse("Max-Forwards: 256").0, Err(Malformed::BadHeader(HeaderName::MaxForwards)));
    assert_eq!(parse("Expires: 4294967295").1, Ok(Some(u32::MAX)));
    assert_eq!(parse("Expires: soon").1, Err(Malformed::BadHeader(HeaderName::Expires)));
}

// RFC 3261 §20.33, and values that are not delta-seconds.
#[test]
fn retry_after_is_read_without_its_comment() {
    let parse = |line: &str| {
        let bytes = format!("SIP/2.0 503 No\r\n{line}\r\n\r\n").into_bytes();
        Message::parse(&bytes).unwrap().retry_after()
    };
    assert_eq!(parse("Retry-After: 18000;duration=3600"), Ok(Some(18_000)));
    assert_eq!(parse("Retry-After: 120 (I'm in a meeting)"), Ok(Some(120)));
    assert_eq!(parse("Retry-After: 0"), Ok(Some(0)));
    assert_eq!(parse("Server: x"), Ok(None));
    for wrong in ["", "soon", "12x", "-1", "4294967296"] {
        let wrong = parse(&format!("Retry-After: {wrong}"));
        assert_eq!(wrong, Err(Malformed::BadHeader(HeaderName::RetryAfter)));
    }
}

#[test]
#[should_panic(expected = "not a part of this message")]
fn the_span_of_something_else_is_a_bug() {
    Message::parse(INVITE.as_bytes()).unwrap().span(b"something else");
}
