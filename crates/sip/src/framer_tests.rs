use super::*;

const OK: &str = "SIP/2.0 200 OK\r\nTo: a\r\nContent-Length: 2\r\n\r\nhi";
const BYE: &str = "BYE sip:a SIP/2.0\r\nl: 0\r\n\r\n";

/// Returns all items of a stream that a new framer gets at once.
fn all(stream: &str) -> Vec<Next> {
    all_of(&mut Framer::default(), stream)
}

fn all_of(framer: &mut Framer, stream: &str) -> Vec<Next> {
    let mut found = Vec::new();
    loop {
        let next = framer.next(stream.as_bytes());
        let ends = matches!(next, Next::Incomplete { .. } | Next::Broken(_));
        found.push(next);
        if ends {
            return found;
        }
    }
}

const NOTHING: Next = Next::Incomplete { need: 1 };

/// RFC 3261 §18.3: "the Content-Length header field indicates the size of the body."
#[test]
fn messages_end_where_their_content_length_says() {
    let stream = [OK, BYE, OK].concat();
    let ends = [OK.len(), OK.len() + BYE.len(), stream.len()];
    let messages = [0..ends[0], ends[0]..ends[1], ends[1]..ends[2]].map(Next::Message).into_iter();
    assert_eq!(all(&stream), messages.chain([NOTHING]).collect::<Vec<_>>());
}

#[test]
fn incomplete_messages_tell_the_missing_length() {
    let mut framer = Framer::default();
    let head = OK.len() - 2;
    for end in 0..=OK.len() {
        let held = &OK.as_bytes()[..end];
        let next = framer.next(held);
        assert_eq!(framer.is_between_messages(), end == 0 || end == OK.len(), "{end}");
        match end {
            _ if end < head => assert_eq!(next, NOTHING, "{end}"),
            _ if end < OK.len() => assert_eq!(next, Next::Incomplete { need: OK.len() - end }),
            _ => assert_eq!(next, Next::Message(0..OK.len())),
        }
    }
}

/// A receiver ignores line ends before a message (RFC 3261 §7.5), except that they can be pings and
/// pongs (RFC 5626 §4.4.1).
#[test]
fn line_ends_between_messages_are_pings_or_nothing() {
    let message = |at: usize| Next::Message(at..at + BYE.len());
    for (before, expected) in [
        ("", vec![message(0), NOTHING]),
        ("\r\n", vec![message(2), NOTHING]),
        ("\n\n", vec![message(2), NOTHING]),
        ("\r\n\r\n", vec![Next::Ping, message(4), NOTHING]),
        ("\r\n\r\n\r\n", vec![Next::Ping, message(6), NOTHING]),
        ("\n\r\n\r\n\r\n\r\n", vec![Next::Ping, Next::Ping, message(9), NOTHING]),
    ] {
        assert_eq!(all(&format!("{before}{BYE}")), expected, "{before:?}");
    }
    for begun in ["", "\r", "\r\n", "\r\n\r"] {
        assert_eq!(all(begun), [NOTHING], "{begun:?}");
    }
}

/// RFC 5626 §4.4.1: "The "ping" and "pong" need to be sent between SIP messages and cannot be sent
/// in the middle of a SIP message."
#[test]
fn line_ends_in_a_body_are_no_ping() {
    let stream = "SIP/2.0 200 OK\r\nl: 4\r\n\r\n\r\n\r\n";
    assert_eq!(all(stream), [Next::Message(0..stream.len()), NOTHING]);
}

#[test]
fn a_pong_is_the_first_line_end_after_a_ping_of_ours() {
    let stream = "\r\n\r\n\r\n\r\n";
    let mut framer = Framer::default();
    framer.expect_pong();
    assert_eq!(all_of(&mut framer, stream), [Next::Pong, Next::Ping, NOTHING]);
    // Two pongs are not a ping.
    framer = Framer::default();
    framer.expect_pong();
    framer.expect_pong();
    assert_eq!(all_of(&mut framer, "\r\n\r\n"), [Next::Pong, Next::Pong, NOTHING]);
    // Half a ping is a pong if one is expected.
    framer.expect_pong();
    assert_eq!(all_of(&mut framer, stream), [Next::Pong, NOTHING]);
}

#[test]
fn blank_lines_are_bounded() {
    let mut framer = Framer::new(FrameLimits { blank_max: 3, ..FrameLimits::default() });
    let fits = format!("\n\n\n{BYE}\n\n\n\r\n\r\n\n\n\n");
    let stream = format!("{fits}\n");
    let at = 3 + BYE.len();
    let expected = vec![Next::Message(3..at), Next::Ping, NOTHING];
    assert_eq!(all_of(&mut framer.clone(), &fits), expected);
    let expected = vec![Next::Message(3..at), Next::Ping, Next::Broken(FrameFault::BlankLines)];
    assert_eq!(all_of(&mut framer, &stream), expected);
}

/// RFC 3261 §7: "The start-line, each message-header line, and the empty line MUST be terminated by a
/// carriage-return line-feed sequence (CRLF)."
///
/// The sender and this framer could find different ends of such a head or of its body. A part of the
/// body would then be the next message here.
#[test]
fn the_end_of_a_head_with_a_cr_or_an_lf_outside_a_crlf_is_uncertain() {
    for head in [
        "OPTIONS sip:a SIP/2.0\nl: 0\r\n\r\n",
        "OPTIONS sip:a SIP/2.0\r\nl: 0\n\r\n",
        "OPTIONS sip:a SIP/2.0\r\nl: 0\r\n\n",
        "OPTIONS sip:a SIP/2.0\r\nl: 0\r\nX: a\rl: 9\r\n\r\n",
        "OPTIONS sip:a SIP/2.0\r\nl: 0\r\nX: a\r\r\n\r\n",
    ] {
        let expected = [Next::Message(0..BYE.len()), Next::Broken(FrameFault::LineEnd)];
        assert_eq!(all(&format!("{BYE}{head}{BYE}")), expected, "{head:?}");
    }
    let body = "OPTIONS sip:a SIP/2.0\r\nX: a\r\n b\r\nl: 2\r\n\r\n\n\r";
    assert_eq!(all(body), [Next::Message(0..body.len()), NOTHING]);
}

/// RFC 3261 §18.3: "The Content-Length header field MUST be used with stream oriented transports."
#[test]
fn without_one_content_length_the_stream_ends() {
    for (headers, fault) in [
        ("To: a\r\n", FrameFault::NoContentLength),
        ("Content-Length : x\r\n", FrameFault::BadContentLength),
        ("Content-Length: -1\r\n", FrameFault::BadContentLength),
        ("Content-Length: 4294967296\r\n", FrameFault::BadContentLength),
        ("l: 1, 1\r\n", FrameFault::BadContentLength),
        ("l: 1\r\nCONTENT-LENGTH: x\r\n", FrameFault::BadContentLength),
        ("l: 1\r\nContent-Length: 2\r\nl: x\r\n", FrameFault::TwoContentLengths),
        ("l: 65535\r\n", FrameFault::TooLong),
        // Not a header field: RFC 3261 §7.3.1 allows no fold before the colon.
        ("Content-Length\r\n : 0\r\n", FrameFault::NoContentLength),
        (" l: 0\r\n", FrameFault::NoContentLength),
    ] {
        for start in ["INVITE sip:a SIP/2.0", "INVITE sip:a b SIP/2.0", "SIP/2.0 200 OK"] {
            let stream = format!("\n{start}\r\n{headers}\r\nbody");
            assert_eq!(all(&stream), [Next::Broken(fault)], "{stream}");
        }
    }
}

#[test]
fn equal_content_lengths_and_folds_leave_no_doubt() {
    for headers in [
        "l: 2\r\nContent-Length: 2\r\n",
        "Content-Length \t:\r\n  002 \r\n",
        "L:2\r\n",
        "l: 2 \r\n",
    ] {
        let stream = format!("SIP/2.0 200 OK\r\n{headers}\r\nhi");
        assert_eq!(all(&stream), [Next::Message(0..stream.len()), NOTHING], "{headers:?}");
    }
}

#[test]
fn a_stream_of_something_else_ends_at_once() {
    for stream in [
        "\u{16}\u{3}\u{1}",
        " INVITE sip:a SIP/2.0\r\n",
        "\0\0\0\0",
        "\rx",
        "\r\n\rx",
        "GET / HTTP/1.1\r\n",
        "INVITE\r\n",
    ] {
        assert_eq!(all(stream), [Next::Broken(FrameFault::StartLine)], "{stream:?}");
    }
}

#[test]
fn head_and_body_are_bounded() {
    let head = BYE.len();
    let limits = FrameLimits { head_max: head, body_max: 3, ..FrameLimits::default() };
    let mut framer = Framer::new(limits);
    assert_eq!(framer.next(BYE.as_bytes()), Next::Message(0..head));
    let long = BYE.replace("l:", "l: ");
    let too_long = [Next::Broken(FrameFault::HeadTooLong)];
    assert_eq!(all_of(&mut Framer::new(limits), &long), too_long);
    assert_eq!(all_of(&mut Framer::new(limits), &"a".repeat(head)), too_long);
    assert_eq!(all_of(&mut Framer::new(limits), &"a".repeat(head - 1)), [NOTHING]);
    // The next byte would show whether the last header line is folded, but it exceeds the limit.
    let cut = BYE.replace("l: 0\r\n\r\n", "l: 0   \n");
    assert_eq!(all_of(&mut Framer::new(limits), &cut), too_long);
    let stream = |body: usize| format!("BYE sip:a SIP/2.0\r\nl: {body}\r\n\r\n");
    let most = BYTES_MAX - stream(BYTES_MAX).len();
    let room = |body: usize| Framer::default().next(stream(body).as_bytes());
    assert_eq!(room(most), Next::Incomplete { need: most });
    assert_eq!(room(most + 1), Next::Broken(FrameFault::TooLong));
    let three = stream(4);
    let found = all_of(&mut Framer::new(FrameLimits { body_max: 3, ..limits }), &three);
    assert_eq!(found, [Next::Broken(FrameFault::TooLong)]);
    assert_eq!(all_of(&mut Framer::new(limits), &stream(3)), [Next::Incomplete { need: 3 }]);
}

#[test]
fn only_the_last_byte_is_read_again() {
    let stream = format!(
        "INVITE sip:a SIP/2.0\r\nSubject: {}\r\n\t{}\r\n",
        "x".repeat(999),
        "y".repeat(999)
    );
    let mut framer = Framer::default();
    for end in 1..stream.len() {
        assert_eq!(framer.next(&stream.as_bytes()[..end]), NOTHING);
        assert!(framer.scanned + 1 >= end, "read up to {} of {end}", framer.scanned);
    }
}

#[test]
fn a_broken_stream_stays_broken_and_keeps_its_bytes() {
    let stream = format!("{BYE}x\r\n");
    let mut framer = Framer::default();
    let found = all_of(&mut framer, &stream);
    assert_eq!(found[1], Next::Broken(FrameFault::StartLine));
    assert_eq!(framer.release(), 0);
    assert_eq!(framer.next(stream.as_bytes()), found[1]);
    assert_eq!(framer.next(format!("{stream}{BYE}").as_bytes()), found[1]);
}

#[test]
fn positions_count_from_the_released_front() {
    let mut framer = Framer::default();
    let mut held = format!("{OK}{}", &OK[..20]).into_bytes();
    assert_eq!(framer.next(&held), Next::Message(0..OK.len()));
    assert_eq!(framer.next(&held), NOTHING);
    assert_eq!((framer.consumed(), framer.release(), framer.consumed()), (OK.len(), OK.len(), 0));
    held.drain(..OK.len());
    held.extend(&OK.as_bytes()[20..OK.len() - 1]);
    assert_eq!(framer.next(&held), NOTHING);
    assert_eq!(framer.release(), 0);
    held.push(b'i');
    assert_eq!(framer.next(&held), Next::Message(0..OK.len()));
    assert_eq!((framer.release(), framer.release()), (OK.len(), 0));
}

#[test]
#[should_panic(expected = "bytes were removed that were not released")]
fn removing_unreleased_bytes_is_a_bug() {
    let mut framer = Framer::default();
    framer.next(b"INVITE");
    framer.next(b"INV");
}
