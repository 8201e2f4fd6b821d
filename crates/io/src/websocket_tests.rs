use proptest::prelude::*;
use tidegate_world::Pool;
use tungstenite::protocol::frame::coding::Control;

use super::*;

const REQUEST: &str = "GET /sip?a=1 HTTP/1.1\r\nHost: sip.example.com\r\nUpgrade: websocket\r\n\
    Connection: keep-alive, Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Origin: https://www.example.com\r\nCookie: session=1\r\nSec-WebSocket-Protocol: sip\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";
const TEXT: OpCode = OpCode::Data(Data::Text);
const BINARY: OpCode = OpCode::Data(Data::Binary);
const CONTINUED: OpCode = OpCode::Data(Data::Continue);
const PING: OpCode = OpCode::Control(Control::Ping);

/// Returns a frame of a client.
fn frame(opcode: OpCode, is_final: bool, payload: &[u8]) -> Vec<u8> {
    let header =
        FrameHeader { is_final, opcode, mask: Some([1, 2, 3, 4]), ..FrameHeader::default() };
    let mut bytes = Vec::new();
    let frame = Frame::from_payload(header, payload.to_vec().into());
    frame.format(&mut bytes).unwrap();
    bytes
}

fn open() -> WebSocket {
    let mut websocket = WebSocket::accept(None);
    let upgrade = websocket.upgrade(REQUEST.as_bytes());
    assert!(matches!(upgrade, Upgrade::Accepted(_)) && websocket.is_open());
    assert_eq!(websocket.release(), REQUEST.len());
    websocket
}

/// Returns everything in the stream of a client that arrives in these pieces, except incomplete
/// frames. Also returns the number of bytes that are held at its end.
fn items<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Next>, usize) {
    items_on(open(), pieces)
}

/// Returns everything that a WebSocket finds in a stream that arrives in these pieces, except
/// incomplete frames. Also returns the number of bytes that it holds at the end.
pub(super) fn items_on<'a>(
    mut websocket: WebSocket,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Next>, usize) {
    let (mut held, mut found) = (Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            match websocket.next(&held) {
                Next::Incomplete => break,
                Next::End(last, cause) => {
                    found.push(Next::End(last, cause));
                    return (found, websocket.held(held.len()));
                }
                next => found.push(next),
            }
        }
        held.drain(..websocket.release());
    }
    (found, websocket.held(held.len()))
}

pub(super) fn message(bytes: &[u8]) -> Next {
    Next::Message(Bytes::copy_from_slice(bytes))
}

/// Returns the status code of the Close frame that ends this stream.
fn code_at_end(stream: &[u8]) -> u16 {
    match items([stream]).0.pop() {
        Some(Next::End(last, CloseCause::Garbled)) => {
            assert_eq!(last[..2], [0x88, 2]);
            u16::from_be_bytes([last[2], last[3]])
        }
        other => panic!("{other:?}"),
    }
}

/// RFC 7118 §4.1: "The client MUST include the value "sip" in the Sec-WebSocket-Protocol header in its
/// handshake request. The 101 reply from the server MUST contain "sip" in its corresponding
/// Sec-WebSocket-Protocol header."
#[test]
fn a_handshake_is_accepted_for_the_subprotocol_of_sip() {
    for offered in ["sip", "chat, sip", "chat,sip,x", "x\r\nSec-WebSocket-Protocol: sip"] {
        let request =
            REQUEST.replace("Protocol: sip\r\n", &format!("Protocol: {offered}\r\n")).into_bytes();
        for end in 0..request.len() {
            let mut websocket = WebSocket::accept(None);
            assert!(matches!(websocket.upgrade(&request[..end]), Upgrade::Incomplete), "{end}");
            assert!(!websocket.is_open());
        }
        let Upgrade::Accepted(response) = WebSocket::accept(None).upgrade(&request) else {
            panic!("{offered}")
        };
        let response = String::from_utf8(response).unwrap().to_ascii_lowercase();
        assert!(response.starts_with("http/1.1 101 switching protocols\r\n"), "{response}");
        assert!(response.contains("\r\nsec-websocket-protocol: sip\r\n"), "{response}");
        // RFC 6455 §1.3, the example.
        assert!(response.contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"));
        assert!(response.ends_with("\r\n\r\n"));
    }
    let mut websocket = WebSocket::accept(None);
    let stream = [REQUEST.as_bytes(), &frame(TEXT, true, b"early")].concat();
    assert!(matches!(websocket.upgrade(&stream), Upgrade::Accepted(_)));
    assert_eq!(websocket.next(&stream), message(b"early"));
}

#[test]
fn any_other_request_gets_an_http_error() {
    let long = format!("GET / HTTP/1.1\r\nCookie: {}", "x".repeat(9000));
    let without = |line: &str| REQUEST.replace(line, "");
    for (request, status, header, failure) in [
        (REQUEST.replace("GET", "POST"), "405", "Allow: GET", UpgradeFailure::Protocol),
        (without("Upgrade: websocket\r\n"), "426", "Upgrade: websocket", UpgradeFailure::Protocol),
        (without(", Upgrade"), "426", "Upgrade: websocket", UpgradeFailure::Protocol),
        (
            REQUEST.replace("Version: 13", "Version: 8"),
            "426",
            "Sec-WebSocket-Version: 13",
            UpgradeFailure::Protocol,
        ),
        (REQUEST.replace("HTTP/1.1", "HTTP/1.0"), "400", "", UpgradeFailure::Protocol),
        (REQUEST.replace("dGhl", ""), "400", "", UpgradeFailure::Protocol),
        (without("Host: sip.example.com\r\n"), "400", "", UpgradeFailure::Protocol),
        (without("Sec-WebSocket-Protocol: sip\r\n"), "400", "", UpgradeFailure::Subprotocol),
        (REQUEST.replace(": sip\r\n", ": sips\r\n"), "400", "", UpgradeFailure::Subprotocol),
        ("OPTIONS sip:a@b SIP/2.0\r\n\r\n".to_owned(), "400", "", UpgradeFailure::Protocol),
        ("\u{16}\u{3}\u{1}".to_owned(), "400", "", UpgradeFailure::Protocol),
        (long, "431", "", UpgradeFailure::Protocol),
    ] {
        let Upgrade::Rejected(found, response) =
            WebSocket::accept(None).upgrade(request.as_bytes())
        else {
            panic!("{request}")
        };
        let response = String::from_utf8(response).unwrap();
        assert_eq!(found, failure, "{request}");
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
        assert!(response.contains(&format!("\r\n{header}")), "{response}");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{response}");
    }
}

/// RFC 6455 §10.2: the origin protects only the users of browsers.
#[test]
fn pages_of_other_sites_may_not_connect() {
    let origins: Origins = Some(["https://www.example.com".to_owned()].into());
    for (origin, is_allowed) in [
        ("Origin: https://www.example.com\r\n", true),
        ("Origin: https://WWW.example.com\r\n", true),
        ("", true),
        ("Origin: http://www.example.com\r\n", false),
        ("Origin: https://www.example.com:8443\r\n", false),
        ("Origin: null\r\n", false),
    ] {
        let request = REQUEST.replace("Origin: https://www.example.com\r\n", origin);
        match WebSocket::accept(origins.clone()).upgrade(request.as_bytes()) {
            Upgrade::Accepted(_) => assert!(is_allowed, "{origin}"),
            Upgrade::Rejected(failure, response) => {
                assert!(!is_allowed, "{origin}");
                assert_eq!(failure, UpgradeFailure::Origin);
                assert!(response.starts_with(b"HTTP/1.1 403 "));
            }
            Upgrade::Incomplete => panic!("{origin}"),
        }
    }
}

/// RFC 7118 §4.2: "Therefore, SIP WebSocket Clients and SIP WebSocket Servers MUST accept both text and
/// binary frames."
///
/// RFC 7118 §5: "Each SIP message MUST be carried within a single WebSocket message, and a WebSocket message
/// MUST NOT contain more than one SIP message."
#[test]
fn each_message_comes_as_one_however_its_frames_arrive() {
    let stream = [
        frame(TEXT, true, "grüße".as_bytes()),
        frame(BINARY, true, b"\xff\0"),
        // A ping between the fragments, one of which ends within a character.
        frame(TEXT, false, &"ü".as_bytes()[..1]),
        frame(PING, true, b"hi"),
        frame(CONTINUED, false, b""),
        frame(CONTINUED, true, &"ü".as_bytes()[1..]),
        frame(TEXT, true, b"\r\n\r\n"),
        frame(TEXT, true, b""),
        frame(OpCode::Control(Control::Pong), true, b""),
        frame(BINARY, true, &[7; 300]),
        frame(BINARY, true, &[8; BYTES_MAX]),
    ];
    let expected = [
        message("grüße".as_bytes()),
        message(b"\xff\0"),
        Next::Nothing,
        Next::Alive(b"\x8a\x02hi".to_vec()),
        Next::Nothing,
        message("ü".as_bytes()),
        message(b"\r\n\r\n"),
        Next::Nothing,
        Next::Alive(Vec::new()),
        message(&[7; 300]),
        message(&[8; BYTES_MAX]),
    ];
    let whole = stream.concat();
    assert_eq!(items([&*whole]), (Vec::from(expected), 0));
    let short = stream[..10].concat();
    assert_eq!(items(short.chunks(1)), items([&*short]));
    for at in 0..short.len() {
        let (one, other) = short.split_at(at);
        assert_eq!(items([one, other]), items([&*short]), "{at}");
    }
}

/// The bytes of an incomplete message count, and no bytes are held between messages.
#[test]
fn incomplete_messages_are_held_and_counted() {
    let mut websocket = open();
    let first = frame(TEXT, false, b"1234");
    let stream = [&first[..], &frame(PING, true, b""), &frame(CONTINUED, true, b"5")].concat();
    assert_eq!(websocket.next(&stream[..first.len() - 1]), Next::Incomplete);
    assert_eq!(websocket.held(first.len() - 1), first.len() - 1);
    assert_eq!(websocket.next(&stream), Next::Nothing);
    // The decoder keeps the payload of the fragment.
    let rest = stream.len() - first.len();
    assert_eq!(websocket.held(stream.len()), rest + 4 + DECODED_TOGETHER);
    assert!(matches!(websocket.next(&stream), Next::Alive(_)));
    assert!(websocket.decoder.is_some());
    assert_eq!(websocket.next(&stream), message(b"12345"));
    assert_eq!(websocket.held(stream.len()), 0);
    assert!(websocket.decoder.is_none());
}

/// RFC 6455 §5 and §7.4.1.
#[test]
fn a_peer_that_breaks_the_protocol_is_told_why() {
    let unmasked = [0x81, 1, b'x'];
    let mut reserved = frame(TEXT, true, b"x");
    reserved[0] |= 0x40;
    let too_long = frame(BINARY, true, &[0; BYTES_MAX + 1]);
    let half = frame(BINARY, false, &[0; BYTES_MAX / 2 + 1]);
    let rest = frame(CONTINUED, true, &[0; BYTES_MAX / 2 + 1]);
    let huge = [0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    for (stream, code) in [
        (&unmasked[..], 1002),
        (&reserved, 1002),
        (&frame(OpCode::Data(Data::Reserved(3)), true, b""), 1002),
        (&frame(CONTINUED, true, b"x"), 1002),
        (&[frame(TEXT, false, b"x"), frame(TEXT, true, b"y")].concat(), 1002),
        (&frame(PING, false, b""), 1002),
        (&frame(PING, true, &[0; 126]), 1002),
        (&frame(TEXT, true, b"\xff"), 1007),
        (&frame(TEXT, true, &"ü".as_bytes()[..1]), 1007),
        // The header alone shows that the frame is too long.
        (&too_long[..14], 1009),
        (&huge, 1009),
        (&[half, rest].concat(), 1009),
    ] {
        let begin = &stream[..stream.len().min(20)];
        assert_eq!(code_at_end(stream), code, "{begin:x?}");
    }
}

/// RFC 6455 §5.5.1: "If an endpoint receives a Close frame and did not previously send a Close frame,
/// the endpoint MUST send a Close frame in response."
#[test]
fn a_close_is_answered() {
    for (payload, answer) in [
        (&b""[..], &b"\x88\x00"[..]),
        (&[0x03, 0xe8], &[0x88, 2, 0x03, 0xe8]),
        (&[0x03, 0xe9, b'b', b'y', b'e'], &[0x88, 5, 0x03, 0xe9, b'b', b'y', b'e']),
    ] {
        let stream = frame(OpCode::Control(Control::Close), true, payload);
        assert_eq!(items([&*stream]).0, [Next::End(answer.to_vec(), CloseCause::Ended)]);
    }
}

/// RFC 7118 §4.2: "If there is at least one non-UTF-8 symbol in the whole SIP message (including headers and
/// the body), then the whole message MUST be sent within a WebSocket binary message."
#[test]
fn messages_are_sent_as_text_if_they_are_text() {
    for (bytes, is_text) in
        [(&b"BYE sip:a SIP/2.0\r\n\r\n"[..], true), (&[b'x'; 300], true), (&[0xff; 65_535], false)]
    {
        let mut message = Pool::new().copy(bytes);
        let input = [&open().frame(&mut message), &message[..]].concat();
        let mut memory = Memory { input: &input, output: Vec::new() };
        let mut client = WebSocketContext::new(Role::Client, None);
        let read = client.read(&mut memory).unwrap();
        assert_eq!(read.is_text(), is_text);
        assert_eq!(&read.into_data()[..], bytes);
    }
}

/// Empty fragments take no further memory, but a message with very many of them would never end.
#[test]
fn a_message_has_a_limited_number_of_fragments() {
    let empty = frame(CONTINUED, false, b"");
    let stream = |fragments: usize| {
        [frame(TEXT, false, b"1"), empty.repeat(fragments - 1), frame(CONTINUED, true, b"2")]
            .concat()
    };
    let (found, held) = items([&*stream(FRAGMENTS_MAX)]);
    assert_eq!((found.last(), held), (Some(&message(b"12")), 0));
    assert_eq!(code_at_end(&stream(FRAGMENTS_MAX + 1)), 1009);
}

/// A message in fragments, with control frames between them.
fn fragmented() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let fragment = (prop::collection::vec(any::<u8>(), 0..40), 0..3_usize);
    prop::collection::vec(fragment, 1..5).prop_map(|fragments| {
        let (mut stream, mut whole) = (Vec::new(), Vec::new());
        for (i, (payload, pings)) in fragments.iter().enumerate() {
            let opcode = if i == 0 { BINARY } else { CONTINUED };
            stream.extend(frame(opcode, i + 1 == fragments.len(), payload));
            (0..*pings).for_each(|_| stream.extend(frame(PING, true, payload)));
            whole.extend(payload);
        }
        (stream, whole)
    })
}

proptest! {
    /// The messages and the answers do not depend on the division of the stream into pieces, and
    /// nothing is held at the end.
    #[test]
    fn messages_do_not_depend_on_how_the_stream_is_divided(
        messages in prop::collection::vec(fragmented(), 0..6),
        sizes in prop::collection::vec(1..50_usize, 1..20),
    ) {
        let stream: Vec<u8> = messages.iter().flat_map(|(stream, _)| stream.clone()).collect();
        let mut pieces = Vec::new();
        let mut rest = &stream[..];
        for size in sizes.iter().cycle() {
            let (piece, more) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece);
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        let (found, held) = items(pieces);
        let found: Vec<_> = found
            .into_iter()
            .filter_map(|next| match next {
                Next::Message(bytes) => Some(bytes.to_vec()),
                _ => None,
            })
            .collect();
        let sent: Vec<_> =
            messages.into_iter().map(|(_, whole)| whole).filter(|whole| !whole.is_empty()).collect();
        prop_assert_eq!(found, sent);
        prop_assert_eq!(held, 0);
    }

    /// No bytes of a peer cause a panic, or take more memory than their own length and a decoder.
    #[test]
    fn any_bytes_are_read_or_end_the_connection(stream in prop::collection::vec(any::<u8>(), 0..400)) {
        let (_, held) = items(stream.chunks(7));
        prop_assert!(held <= stream.len() + DECODED_TOGETHER);
        let mut websocket = WebSocket::accept(None);
        let _ = websocket.upgrade(&stream);
    }
}
