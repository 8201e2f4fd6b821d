//! Properties of the grammar on random input: nothing panics, planted values are found, the scan
//! agrees with the whole message, edits have their stated effect.

mod alike;
mod exercise;
mod planted;

use std::ops::Range;

use alike::rejected_alike;
use exercise::agree;
use planted::{Address, Planted, planted, planted_request};
use proptest::prelude::*;
use tidegate_sip::{
    Malformed, Message, NameAddr, Reply, Splice, StartLine, Uri, forward, reply_target,
    response_target, write_reply,
};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Calls every function on `bytes` and asserts the invariants that hold for any input.
fn exercise(bytes: &[u8]) {
    exercise::readings(bytes);
    exercise::message(bytes);
    exercise::parts(bytes);
}

fn sip_like() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(
        &[
            "INVITE sip:a@b SIP/2.0",
            "SIP/2.0 200 OK",
            "Via",
            "v",
            "To",
            "From",
            "Call-ID",
            "CSeq",
            "Route",
            "Contact",
            "Max-Forwards",
            "Content-Length",
            "l",
            ":",
            "\r\n",
            "\n",
            "\r\n ",
            " ",
            "SIP/2.0/UDP ",
            "a.example",
            "[::1]",
            "[",
            "]",
            ";",
            ",",
            "=",
            "\"",
            "\\",
            "<",
            ">",
            "@",
            "?",
            "sip:",
            "tag",
            "branch=z9hG4bK",
            "rport",
            ";oc",
            ";oc-algo=\"loss,rate\"",
            ";oc-seq=1.5",
            "received",
            "1 INVITE",
            "70",
            "*",
            "\0",
            "\u{fc}",
            "tel:+1",
            "urn:x",
            ":::",
            "4294967296",
        ][..],
    );
    prop::collection::vec(pieces, 0..60).prop_map(|pieces| pieces.concat().into_bytes())
}

#[derive(Clone, Debug)]
enum Mutation {
    Set(u8),
    Insert(&'static str),
    Delete(usize),
    Cut,
    Repeat(usize),
}

fn mutation() -> impl Strategy<Value = (prop::sample::Index, Mutation)> {
    let kind = prop_oneof![
        any::<u8>().prop_map(Mutation::Set),
        prop::sample::select(
            &["\r\n", "\n", " ", ",", ";", "\"", "<", ">", ":", "\0", "\r", "="][..]
        )
        .prop_map(Mutation::Insert),
        (1usize..8).prop_map(Mutation::Delete),
        Just(Mutation::Cut),
        (1usize..80).prop_map(Mutation::Repeat),
    ];
    (any::<prop::sample::Index>(), kind)
}

fn mutate(bytes: &mut Vec<u8>, at: prop::sample::Index, mutation: &Mutation) {
    if bytes.is_empty() {
        return;
    }
    let at = at.index(bytes.len());
    let end = |n: usize, len: usize| (at + n).min(len);
    match *mutation {
        Mutation::Set(b) => bytes[at] = b,
        Mutation::Insert(text) => drop(bytes.splice(at..at, text.bytes())),
        Mutation::Delete(n) => drop(bytes.drain(at..end(n, bytes.len()))),
        Mutation::Cut => bytes.truncate(at),
        Mutation::Repeat(n) => {
            let piece = bytes[at..end(n, bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

fn assert_address(found: Result<NameAddr<'_>, Malformed>, planted: &Address) {
    let found = found.expect("well-formed");
    assert_eq!(text(found.uri), planted.uri);
    assert_eq!(found.tag().map(text), planted.tag.as_deref());
    let display = found.display.map(text).filter(|d| !d.is_empty());
    assert_eq!(display, planted.display.as_deref());
    found.parse_uri().expect("a well-formed URI");
}

fn assert_planted(planted: &Planted) {
    let message = Message::parse(&planted.bytes).expect("well-formed");
    message.check().expect("well-formed");
    match (message.start(), &planted.start) {
        (StartLine::Request { method_name, uri, .. }, Ok((method, request_uri))) => {
            assert_eq!((text(method_name), text(uri)), (&**method, &**request_uri));
            Uri::parse(uri).expect("a well-formed URI");
        }
        (StartLine::Response { status, reason }, Err((planted, phrase))) => {
            assert_eq!((status, text(reason)), (*planted, &**phrase));
        }
        (found, planted) => panic!("{found:?} is not {planted:?}"),
    }
    let vias: Vec<_> = message.vias().map(Result::unwrap).collect();
    assert_eq!(vias.len(), planted.vias.len());
    for (found, (branch, sent_by)) in vias.iter().zip(&planted.vias) {
        assert_eq!(found.branch().map(text), branch.as_deref());
        assert_eq!(text(found.sent_by), sent_by);
    }
    let routes: Vec<_> = message.routes().map(|r| text(r.unwrap().uri)).collect();
    assert_eq!(routes, planted.routes);
    assert_address(message.to(), &planted.to);
    assert_address(message.from(), &planted.from);
    assert_eq!(message.call_id().map(text), Ok(&*planted.call_id));
    let cseq = message.cseq().unwrap();
    assert_eq!((cseq.number, text(cseq.method_name)), (planted.cseq.0, &*planted.cseq.1));
    assert_eq!(message.max_forwards(), Ok(planted.max_forwards));
    assert_eq!(message.body(), planted.body);
    agree(&message);
}

/// Returns the Vias and Routes of an edited message, by branch and URI.
fn lists(bytes: &[u8]) -> (Vec<Option<String>>, Vec<String>) {
    let message = Message::parse(bytes).expect("edits keep a message well-formed");
    message.check().expect("edits keep a message well-formed");
    let branch = |b: &[u8]| text(b).to_owned();
    (
        message.vias().map(|v| v.unwrap().branch().map(branch)).collect(),
        message.routes().map(|r| text(r.unwrap().uri).to_owned()).collect(),
    )
}

/// Messages of maximum length. Their text makes a careless parser search the same bytes again and
/// again. If any step took quadratic time, this test would take minutes.
#[test]
fn the_longest_and_worst_messages_are_read_through() {
    let head = "INVITE sip:a SIP/2.0\r\nTo: <sip:b>\r\nFrom: <sip:c>\r\nCall-ID: d\r\nCSeq: 1 INVITE\r\n\
                Via: SIP/2.0/UDP e\r\n";
    for name in ["Via", "Route", "Contact", "X"] {
        for piece in [
            ",",
            ";",
            "a,",
            "<",
            "<,",
            "<,>",
            "<>,",
            "\"",
            "\",",
            "\\\"",
            "\";\",",
            ";a=",
            ";a=\"",
            ";a=\";\"",
            "\r\n ",
            " ",
            ":",
            "[",
            "=",
            "SIP/2.0/UDP a;b=\",\",",
            "<sip:a;lr>,",
            "\0",
            "\u{ff}",
        ] {
            let room = tidegate_sip::BYTES_MAX - head.len() - name.len() - 8;
            let value = piece.repeat(room / piece.len());
            let bytes = format!("{head}{name}: {value}\r\n\r\n").into_bytes();
            exercise(&bytes);
            assert!(Message::parse(&bytes).is_ok(), "{name}: {piece:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_value_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise(&bytes);
    }

    #[test]
    fn anything_made_of_sip_words_is_a_value_or_malformed(bytes in sip_like()) {
        exercise(&bytes);
        for method in ["OPTIONS", "ACK"] {
            let start = [method.as_bytes(), b" sip:a SIP/2.0\r\n", &bytes, b"\r\n\r\n"].concat();
            exercise(&start);
        }
    }

    #[test]
    fn a_damaged_message_is_a_value_or_malformed(
        planted in planted(),
        mutations in prop::collection::vec(mutation(), 1..5),
    ) {
        let mut bytes = planted.bytes;
        for (at, mutation) in &mutations {
            mutate(&mut bytes, *at, mutation);
        }
        exercise(&bytes);
    }

    #[test]
    fn planted_values_are_found(planted in planted()) {
        assert_planted(&planted);
        exercise(&planted.bytes);
        assert_eq!(rejected_alike(&planted.bytes), planted.start.is_ok());
    }

    #[test]
    fn a_request_cut_anywhere_in_its_headers_has_no_end(planted in planted(), at in any::<prop::sample::Index>()) {
        let body = planted.body.len();
        let head = &planted.bytes[..planted.bytes.len() - body];
        // A message without its last LF, or its last CRLF, already lacks the empty line.
        let cut = &head[..at.index(head.len())];
        prop_assert!(Message::parse(cut).is_err());
    }

    #[test]
    fn a_hop_removes_the_first_via_and_its_routes(planted in planted(), n in 0usize..4) {
        let message = Message::parse(&planted.bytes).unwrap();
        let mut splice = Splice::new(&message);
        splice.insert(forward::top_of_headers(&message), b"Via: SIP/2.0/UDP us;branch=z9hG4bKus\r\n");
        let removed = forward::remove_first_route(&mut splice, &message, n);
        prop_assert_eq!(removed, n.min(planted.routes.len()));
        let mut sent = Vec::new();
        splice.write_to(&mut sent).unwrap();
        let (branches, routes) = lists(&sent);
        prop_assert_eq!(&branches[0], &Some("z9hG4bKus".to_owned()));
        let planted_branches: Vec<_> = planted.vias.iter().map(|v| v.0.clone()).collect();
        prop_assert_eq!(&branches[1..], &planted_branches[..]);
        prop_assert_eq!(&routes[..], &planted.routes[removed..]);

        // Removing our Via again restores the message except for its routes.
        let message = Message::parse(&sent).unwrap();
        let mut splice = Splice::new(&message);
        prop_assert!(forward::remove_top_via(&mut splice, &message));
        let mut back = Vec::new();
        splice.write_to(&mut back).unwrap();
        prop_assert_eq!(back == planted.bytes, removed == 0);
        if planted.vias.len() > 1 {
            // Removing the sender's Via leaves the other hops.
            let message = Message::parse(&planted.bytes).unwrap();
            let mut splice = Splice::new(&message);
            prop_assert!(forward::remove_top_via(&mut splice, &message));
            let mut rest = Vec::new();
            splice.write_to(&mut rest).unwrap();
            prop_assert_eq!(&lists(&rest).0[..], &planted_branches[1..]);
        }
    }

    #[test]
    fn responses_come_back_to_the_noted_source(planted in planted(), v6 in any::<bool>(), port in 1u16..) {
        let address = if v6 { format!("[2001:db8::7]:{port}") } else { format!("192.0.2.77:{port}") };
        let source = forward::Source::new(address.parse().unwrap());
        let message = Message::parse(&planted.bytes).unwrap();
        let asked = message.top_via().unwrap().params.get("rport").is_some();
        let mut splice = Splice::new(&message);
        forward::record_source(&mut splice, &message, &message.top_via().unwrap(), &source);
        let mut noted = Vec::new();
        splice.write_to(&mut noted).unwrap();
        let via = Message::parse(&noted).unwrap().top_via().unwrap();
        let target = response_target(&via);
        let replied = reply_target(&message.top_via().unwrap(), address.parse().unwrap());
        prop_assert!(target == Some(replied) || replied.port() == 0);
        let expected: std::net::SocketAddr = address.parse().unwrap();
        if asked {
            prop_assert_eq!(target, Some(expected));
        } else if let Some(target) = target {
            prop_assert_eq!(target.ip(), expected.ip());
        } else {
            prop_assert_eq!(via.port, Some(0));
        }
        // Recording the source a second time changes nothing.
        let message = Message::parse(&noted).unwrap();
        let mut splice = Splice::new(&message);
        forward::record_source(&mut splice, &message, &message.top_via().unwrap(), &source);
        let mut again = Vec::new();
        splice.write_to(&mut again).unwrap();
        prop_assert_eq!(&again, &noted);
    }

    #[test]
    fn a_reply_is_a_response_to_its_request(planted in planted_request(), status in 100u16..700) {
        let message = Message::parse(&planted.bytes).unwrap();
        let mut out = Vec::new();
        let reply = Reply { to_tag: Some(b"ours"), headers: &[("Retry-After", b"5")], ..Reply::new(status) };
        write_reply(&message, &reply, &mut out).unwrap();
        let response = Message::parse(&out).unwrap();
        response.check().unwrap();
        prop_assert_eq!(response.status(), Some(status));
        prop_assert_eq!(response.call_id(), message.call_id());
        prop_assert_eq!(response.cseq(), message.cseq());
        prop_assert_eq!(response.from().unwrap().element, message.from().unwrap().element);
        let tag = planted.to.tag.as_deref().unwrap_or("ours");
        prop_assert_eq!(response.to().unwrap().tag().map(text), Some(tag));
        let elements = |m: &Message<'_>| m.vias().map(|v| v.unwrap().element.to_vec()).collect::<Vec<_>>();
        prop_assert_eq!(elements(&response), elements(&message));
    }

    #[test]
    fn a_splice_is_the_edit_it_says(
        cuts in prop::collection::vec((0usize..12, 0usize..6, "[a-z]{0,5}"), 0..40),
        order in any::<prop::sample::Index>(),
    ) {
        let bytes = b"OPTIONS sip:a SIP/2.0\r\nSubject: 0123456789012345678901234567890123456789\r\n\r\n";
        let message = Message::parse(bytes).unwrap();
        // Adjacent edits that do not overlap, made in another order than their positions.
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        let mut at = 0;
        for (gap, len, text) in cuts {
            let start = (at + gap).min(bytes.len());
            let end = (start + len).min(bytes.len());
            edits.push((start..end, text));
            at = end;
        }
        let mut naive = bytes.to_vec();
        for (range, text) in edits.iter().rev() {
            naive.splice(range.clone(), text.bytes());
        }
        // Insertions at the same place keep the order in which they are made. Rotating must not
        // change it, so only edits at different places are rotated.
        let distinct = edits.windows(2).all(|pair| pair[0].0.start < pair[1].0.start);
        if distinct && !edits.is_empty() {
            let middle = order.index(edits.len());
            edits.rotate_left(middle);
        }
        let mut splice = Splice::new(&message);
        for (range, text) in &edits {
            splice.replace(range.clone(), text.as_bytes());
        }
        let mut out = Vec::new();
        splice.write_to(&mut out).unwrap();
        prop_assert_eq!(out, naive);
    }
}
