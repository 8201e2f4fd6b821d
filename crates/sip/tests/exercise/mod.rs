//! Checks of invariants that hold for arbitrary bytes: all ways of reading agree, the edits of a
//! message have their stated effect, and the parts of a header are consistent. Proptest runs these
//! checks here, and the fuzzer in `fuzz/` runs them too.

#![allow(dead_code, reason = "each driver uses a part of it")]

use tidegate_sip::{
    ALGORITHMS_MAX, BYTES_MAX, FIELDS_MAX, HeaderName, Host, Malformed, Message, NameAddr,
    OverloadControl, Param, Params, Passage, Reply, ScanStart, Splice, StartLine, Uri, Via,
    forward, glance, reply_target, response_target, scan, top_via, write_overload_control,
    write_reply,
};

use crate::alike::{acknowledged_alike, rejected_alike};

/// Reads the bytes in every available way, from the glance to the whole message.
pub fn readings(bytes: &[u8]) {
    rejected_alike(bytes);
    acknowledged_alike(bytes);
    let (glanced, scanned) = (glance(bytes), scan(bytes));
    if let Ok(scan) = &scanned {
        assert_eq!(glanced, Ok(scan.start));
    }
    let head = Message::parse_head(bytes);
    let parsed = Message::parse(bytes);
    let Ok(message) = parsed else {
        assert!(!parsed.unwrap_err().to_string().is_empty());
        return;
    };
    assert_same_start(glanced.expect("Message reads it"), message.start());
    assert_eq!(head.expect("parse is stricter").start(), message.start());
    if message.check().is_ok() {
        agree(&message);
    }
    if !message.is_request() {
        passes_as_it_is_spliced(&message);
    }
}

/// Asserts that `scan` finds the values of a checked message.
pub fn agree(message: &Message<'_>) {
    let scan = scan(message.bytes()).expect("scan accepts what check accepts");
    let via = message.top_via().unwrap();
    assert_eq!(top_via(message.bytes()), Some(via));
    assert_eq!((scan.via, scan.branch, scan.sent_by), (via.element, via.branch(), via.sent_by));
    assert_eq!(Ok(scan.call_id), message.call_id());
    let cseq = message.cseq().unwrap();
    assert_eq!((scan.cseq, scan.cseq_method), (cseq.number, cseq.method));
    assert_eq!(scan.to_tag, message.to().unwrap().tag());
    assert_same_start(scan.start, message.start());
}

fn assert_same_start(short: ScanStart<'_>, long: StartLine<'_>) {
    match (short, long) {
        (
            ScanStart::Request { method, method_name, uri },
            StartLine::Request { method: m, method_name: n, uri: u },
        ) => assert_eq!((method, method_name, uri), (m, n, u)),
        (ScanStart::Response { status }, StartLine::Response { status: s, .. }) => {
            assert_eq!(status, s);
        }
        (short, long) => panic!("{short:?} is not {long:?}"),
    }
}

/// Asserts that a passage and a splice write the same response.
fn passes_as_it_is_spliced(message: &Message<'_>) {
    let passage = Passage::parse(message.bytes());
    let (Some(status), Ok(cseq), Ok(call_id)) =
        (message.status(), message.cseq(), message.call_id())
    else {
        return;
    };
    let mut vias = message.vias();
    let (Some(Ok(top)), next) = (vias.next(), vias.next()) else { return };
    if matches!(next, Some(Err(_))) {
        assert!(passage.is_err());
        return;
    }
    // A response of another version is not forwarded.
    if passage.as_ref().is_err_and(|why| *why == Malformed::Version) {
        assert!(!message.bytes().trim_ascii_start().starts_with(b"SIP/2.0 "));
        return;
    }
    // A response in which another reader may find other lines, other parameters of a Via, or
    // another end of the body, is not forwarded either.
    let is_ambiguous = |why: &Malformed| {
        let bad_via = Malformed::BadHeader(HeaderName::Via);
        matches!(why, Malformed::LineEnd | Malformed::DuplicateHeader(_)) || *why == bad_via
    };
    if passage.as_ref().is_err_and(is_ambiguous) {
        assert!(message.check().is_err());
        return;
    }
    let passage = passage.expect("Message accepts it");
    assert_eq!((passage.status, passage.cseq.number), (status, cseq.number));
    assert_eq!((passage.call_id, passage.branch), (call_id, top.branch()));
    let next = next.and_then(Result::ok);
    assert_eq!(passage.next.map(|via| via.element), next.map(|via| via.element));
    let mut passed = Vec::new();
    passage.write_to(&mut passed).unwrap();
    let mut splice = Splice::new(message);
    assert!(forward::remove_top_via(&mut splice, message));
    assert_eq!(String::from_utf8_lossy(&passed), String::from_utf8_lossy(&written(&splice)));
}

/// Calls every accessor of a message, then forwards and answers it.
pub fn message(bytes: &[u8]) {
    let Ok(message) = Message::parse(bytes) else { return };
    let whole = message.bytes();
    let inside = |part: &[u8]| assert_eq!(&whole[message.span(part)], part);
    let mut after = None;
    for field in message.fields() {
        inside(field.raw_name);
        inside(field.value);
        let line = message.span(field.line);
        assert!(after.is_none_or(|end| end == line.start), "lines without a gap");
        after = Some(line.end);
    }
    inside(message.body());
    message.request_uri().into_iter().for_each(inside);
    for via in message.vias().flatten() {
        ask_via(&via, inside);
    }
    let addresses = message.routes().chain(message.record_routes()).chain(message.contacts());
    for address in addresses.flatten().chain(message.to()).chain(message.from()) {
        ask_address(&address, inside);
    }
    let numbers = [message.max_forwards(), message.max_breadth(), message.expires()];
    assert!(numbers[0].is_ok_and(|n| n.is_none_or(|n| n <= 255)) || numbers[0].is_err());
    if let Ok(Some(length)) = message.content_length() {
        assert_eq!(message.body().len(), length as usize);
    }
    reply(&message);
    edit(&message);
    strip(&message);
    if message.check().is_ok() {
        hop(&message);
    }
}

fn ask_via(via: &Via<'_>, inside: impl Fn(&[u8])) {
    [via.element, via.sent_by, via.transport_name].into_iter().for_each(&inside);
    ask_params(via.params, &inside);
    assert!(via.branch().is_none_or(|branch| !branch.is_empty()));
    via.maddr().into_iter().chain(via.received()).for_each(&inside);
    let _ = (response_target(via), via.rport(), via.has_magic_cookie());
    let found = OverloadControl::in_via(via.element);
    assert!(found.is_none_or(|found| found.algorithms().count() <= ALGORITHMS_MAX));
    assert!(via.may_have_overload_control() || !has_overload_control(via.params));
}

fn has_overload_control(params: Params<'_>) -> bool {
    let is = |name: &[u8]| {
        ["oc", "oc-algo", "oc-validity", "oc-seq"]
            .iter()
            .any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    };
    params.into_iter().any(|param| is(param.name))
}

/// Removes the overload control parameters from a message, and asserts that no Via has one and that
/// nothing else has changed.
fn strip(message: &Message<'_>) {
    let mut out = Vec::new();
    let written = write_overload_control(message.bytes(), 0, b"", &mut out);
    if !written.expect("a Vec takes everything") {
        assert!(message.check().is_err(), "a Via violates the grammar");
        return;
    }
    let vias: Option<Vec<_>> = message.vias().map(Result::ok).collect();
    let Some(vias) = vias else { return };
    let after = Message::parse(&out).expect("the lines are the same");
    assert_eq!(after.body(), message.body());
    assert_eq!(after.fields().count(), message.fields().count());
    for (now, before) in after.vias().zip(&vias) {
        let now = now.expect("its grammar is the same");
        assert!(before.may_have_overload_control() || now.element == before.element);
        assert_eq!(
            (now.sent_by, now.port, now.transport),
            (before.sent_by, before.port, before.transport)
        );
        assert!(!has_overload_control(now.params));
    }
}

fn ask_address(address: &NameAddr<'_>, inside: impl Fn(&[u8])) {
    [address.element, address.uri].into_iter().for_each(&inside);
    address.display.into_iter().chain(address.tag()).for_each(&inside);
    ask_params(address.params, &inside);
    if let Ok(uri) = address.parse_uri() {
        ask_uri(&uri, inside);
    }
}

fn ask_params(params: Params<'_>, inside: impl Fn(&[u8])) {
    inside(params.text());
    for Param { name, value, text } in params {
        assert!(!text.is_empty() && text.starts_with(name));
        inside(text);
        inside(name);
        value.into_iter().for_each(&inside);
    }
}

fn ask_uri(uri: &Uri<'_>, inside: impl Fn(&[u8])) {
    inside(uri.text);
    let parts = [uri.user, uri.password, uri.headers, uri.transport(), uri.maddr()];
    parts.into_iter().flatten().for_each(&inside);
    ask_params(uri.params, &inside);
    let _ = (uri.lr(), uri.port_or_default(), uri.to_string());
}

fn written(splice: &Splice<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    splice.write_to(&mut out).expect("a Vec takes everything");
    out
}

/// Forwards any message and asserts that nothing panics.
fn edit(message: &Message<'_>) {
    let source = forward::Source::new("192.0.2.1:5060".parse().expect("an address"));
    let mut splice = Splice::new(message);
    splice.insert(forward::top_of_headers(message), b"Via: SIP/2.0/UDP a\r\n");
    if let Ok(via) = message.top_via() {
        forward::record_source(&mut splice, message, &via, &source);
    }
    forward::set_max_forwards(&mut splice, message, b"1");
    forward::remove_first_route(&mut splice, message, 2);
    if message.is_request() {
        forward::set_request_uri(&mut splice, message, b"sip:b");
    }
    written(&splice);
    let mut splice = Splice::new(message);
    forward::remove_top_via(&mut splice, message);
    written(&splice);
}

fn reply(message: &Message<'_>) {
    let answer = Reply { to_tag: Some(b"t"), source: "[::1]:9".parse().ok(), ..Reply::new(400) };
    let mut out = Vec::new();
    write_reply(message, &answer, &mut out).expect("a Vec takes everything");
    assert!(out.ends_with(b"\r\nContent-Length: 0\r\n\r\n"));
    if message.is_request() && message.check().is_ok() && out.len() <= BYTES_MAX {
        let response = Message::parse(&out).expect("an answer is a message");
        let (before, after) = (message.to().unwrap(), response.to().unwrap());
        assert_eq!(after.tag(), before.tag().or(Some(b"t")));
        assert_eq!((response.status(), response.call_id()), (Some(400), message.call_id()));
        assert_eq!(response.vias().count(), message.vias().count());
    }
}

/// Forwards a well-formed request as a proxy does. Asserts that every edit appears in the output
/// and the rest is unchanged.
fn hop(message: &Message<'_>) {
    let routes: Option<Vec<_>> = message.routes().map(Result::ok).collect();
    let vias: Option<Vec<_>> = message.vias().map(Result::ok).collect();
    let (Some(routes), Some(vias), true) = (routes, vias, message.is_request()) else { return };
    let source = "192.0.2.1:5062".parse().expect("an address");
    let noted = forward::Source::new(source);
    let length = message.body().len().to_string();
    let mut splice = Splice::new(message);
    let own = b"Via: SIP/2.0/UDP us.example:5070;branch=z9hG4bKours\r\n";
    splice.insert(forward::top_of_headers(message), own);
    forward::record_source(&mut splice, message, &vias[0], &noted);
    forward::set_max_forwards(&mut splice, message, b"41");
    forward::set_max_breadth(&mut splice, message, b"7");
    forward::set_content_length(&mut splice, message, length.as_bytes());
    forward::set_request_uri(&mut splice, message, b"sip:next@example.net");
    // A sender may write any number of Route lines that name a proxy.
    let removed = forward::remove_first_route(&mut splice, message, routes.len() / 2 + 1);
    assert_eq!(removed, routes.len().min(routes.len() / 2 + 1));

    let out = written(&splice);
    let Ok(after) = Message::parse(&out) else {
        // With the added lines, the message may exceed a limit.
        assert!(message.fields().count() + 4 > FIELDS_MAX || out.len() > BYTES_MAX);
        return;
    };
    after.check().expect("edits keep a request well-formed");
    assert_eq!(after.request_uri(), Some(&b"sip:next@example.net"[..]));
    assert_eq!((after.max_forwards(), after.max_breadth()), (Ok(Some(41)), Ok(Some(7))));
    assert_eq!(after.body(), message.body());
    let left: Vec<_> = after.routes().map(|route| route.unwrap().element).collect();
    let expected: Vec<_> = routes.iter().skip(removed).map(|route| route.element).collect();
    assert_eq!(left, expected);
    let hops: Vec<_> = after.vias().map(Result::unwrap).collect();
    assert_eq!(hops.len(), vias.len() + 1);
    assert_eq!(hops[0].branch(), Some(&b"z9hG4bKours"[..]));
    assert_eq!((hops[1].branch(), hops[1].sent_by), (vias[0].branch(), vias[0].sent_by));
    for (now, before) in hops[2..].iter().zip(&vias[1..]) {
        assert_eq!(now.element, before.element);
    }
    let target = reply_target(&vias[0], source);
    assert_eq!(response_target(&hops[1]), Some(target).filter(|target| target.port() != 0));
}

/// Parses the bytes as a URI, as a host, and as the value of a To and of a Via.
pub fn parts(bytes: &[u8]) {
    if let Ok(uri) = Uri::parse(bytes) {
        assert_eq!(uri.text, bytes);
        let begin = bytes.as_ptr() as usize;
        ask_uri(&uri, |part| {
            let at = part.as_ptr() as usize;
            assert!(at >= begin && at + part.len() <= begin + bytes.len());
        });
        in_message(b"To: <", bytes, b">", |message| {
            assert_eq!(message.to().map(|to| to.uri), Ok(bytes));
        });
    }
    if let Some(host) = Host::parse(bytes) {
        assert!(host.eq_ignore_case(&Host::parse(&bytes.to_ascii_uppercase()).unwrap()));
        in_message(b"Via: SIP/2.0/UDP ", bytes, b":5070;branch=a", |message| {
            let via = message.top_via().expect("a host makes a Via");
            assert_eq!((via.host, via.port, via.branch()), (host, Some(5070), Some(&b"a"[..])));
        });
    }
    for name in ["To: ", "From: ", "Via: ", "Route: ", "Contact: ", "Via: SIP/2.0/UDP "] {
        in_message(name.as_bytes(), bytes, b"", |whole| message(whole.bytes()));
    }
}

/// Calls `look` with a request whose first header is this one, if the request parses.
fn in_message(name: &[u8], value: &[u8], end: &[u8], look: impl FnOnce(&Message<'_>)) {
    let rest = b"\r\nVia: SIP/2.0/UDP b;branch=c\r\nTo: <sip:d>\r\nFrom: <sip:e>;tag=f\r\n\
        Call-ID: g\r\nCSeq: 1 OPTIONS\r\n\r\n";
    let bytes = [b"OPTIONS sip:a SIP/2.0\r\n", name, value, end, rest].concat();
    if let Ok(message) = Message::parse(&bytes) {
        look(&message);
    }
}
