//! Tests of a client: its handshake, and the frames that it sends and receives.

use proptest::prelude::*;
use tidegate_sip::BYTES_MAX;
use tidegate_world::{CloseCause, Pool};
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};

use super::super::tests::{items_on, message};
use super::super::{DECODED_TOGETHER, Next, WebSocket};
use super::*;

const TEXT: OpCode = OpCode::Data(Data::Text);
const BINARY: OpCode = OpCode::Data(Data::Binary);
const CONTINUED: OpCode = OpCode::Data(Data::Continue);
const CLOSE: OpCode = OpCode::Control(Control::Close);
const PING: OpCode = OpCode::Control(Control::Ping);
const PONG: OpCode = OpCode::Control(Control::Pong);

fn plain() -> WebSocketClient {
    WebSocketClient::new("sip.example.com", "/", None).unwrap()
}

/// Returns a client that has sent its request, and the response of our server to it.
fn begun() -> (WebSocket, String) {
    let (websocket, request) = WebSocket::open(&plain());
    let Upgrade::Accepted(response) = WebSocket::accept(None).upgrade(&request) else {
        panic!("{}", String::from_utf8_lossy(&request))
    };
    (websocket, String::from_utf8(response).unwrap())
}

fn open() -> WebSocket {
    let (mut websocket, response) = begun();
    assert!(matches!(websocket.upgrade(response.as_bytes()), Upgrade::Accepted(_)));
    assert_eq!(websocket.release(), response.len());
    websocket
}

/// Returns a frame of a server.
fn frame(opcode: OpCode, is_final: bool, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader { is_final, opcode, ..FrameHeader::default() };
    let mut bytes = Vec::new();
    Frame::from_payload(header, payload.to_vec().into()).format(&mut bytes).unwrap();
    bytes
}

/// Splits a frame of a client into its opcode, its masking key and its payload.
fn unmasked(frame: &[u8]) -> (OpCode, [u8; 4], Vec<u8>) {
    let mut cursor = std::io::Cursor::new(frame);
    let (header, length) = FrameHeader::parse(&mut cursor).unwrap().expect("a header");
    let payload = &frame[cursor.position() as usize..];
    assert_eq!(payload.len() as u64, length);
    let key = header.mask.expect("a client masks its frames");
    let payload = payload.iter().enumerate().map(|(i, byte)| byte ^ key[i % 4]).collect();
    (header.opcode, key, payload)
}

type Change = Box<dyn Fn(&str) -> String>;

/// Returns a change that replaces the line of a response that begins with `name` by `other`.
fn instead(name: &'static str, other: &'static str) -> Change {
    Box::new(move |response| {
        let is_wanted =
            |line: &&str| line.get(..name.len()).is_some_and(|b| b.eq_ignore_ascii_case(name));
        let line = response.split_inclusive("\r\n").find(is_wanted);
        response.replace(line.expect("the response has the line"), other)
    })
}

/// Returns everything in a stream of a server, which arrives in these pieces.
fn items<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Next> {
    let (found, held) = items_on(open(), pieces);
    assert!(held == 0 || matches!(found.last(), Some(Next::End(..))), "{held} bytes");
    found
}

/// RFC 6455 §4.1: "The request MUST include a header field with the name |Sec-WebSocket-Key|. The value of
/// this header field MUST be a nonce consisting of a randomly selected 16-byte value that has been
/// base64-encoded".
///
/// RFC 7118 §4.1: "The client MUST include the value "sip" in the Sec-WebSocket-Protocol header in its
/// handshake request."
#[test]
fn a_request_is_that_of_a_browser() {
    let origin = Some("https://phone.example.com");
    let client = WebSocketClient::new("[2001:db8::1]:8443", "/ws?a=1", origin).unwrap();
    let mut keys = Vec::new();
    for _ in 0..2 {
        let request = String::from_utf8(WebSocket::open(&client).1).unwrap();
        assert!(request.starts_with("GET /ws?a=1 HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\n"), "{request}");
        for line in [
            "Host: [2001:db8::1]:8443",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: sip",
            "Origin: https://phone.example.com",
        ] {
            assert!(request.contains(&format!("\r\n{line}\r\n")), "{line}: {request}");
        }
        let (_, key) = request.split_once("\r\nSec-WebSocket-Key: ").unwrap();
        keys.push(key.split_once("\r\n").unwrap().0.to_owned());
    }
    assert!(keys[0] != keys[1] && keys.iter().all(|key| key.len() == 24 && key.ends_with("==")));
    let (_, request) = WebSocket::open(&plain());
    assert!(!String::from_utf8(request).unwrap().contains("Origin"));
}

#[test]
fn a_request_with_an_invalid_part_is_an_error() {
    let long = format!("/{}", "x".repeat(9000));
    for (host, path, origin) in [
        ("a.example", "ws", None),
        ("a.example", "", None),
        ("a.example", "/a b", None),
        ("a.example", "/#part", None),
        ("a.example", long.as_str(), None),
        ("", "/", None),
        ("a b", "/", None),
        ("a.example", "/", Some("a\r\nb")),
    ] {
        let refused = WebSocketClient::new(host, path, origin);
        assert!(refused.is_err(), "{host} {path} {origin:?}");
    }
}

/// RFC 7118 §4.2: "SIP WebSocket Clients and SIP WebSocket Servers MUST accept both text and binary frames."
#[test]
fn a_response_opens_the_websocket() {
    let (mut websocket, response) = begun();
    for end in 0..response.len() {
        let step = websocket.upgrade(&response.as_bytes()[..end]);
        assert!(matches!(step, Upgrade::Incomplete), "{end}");
        assert!(!websocket.is_open());
    }
    let early = [frame(TEXT, true, b"early"), frame(BINARY, true, b"too")].concat();
    let stream = [response.as_bytes(), &early].concat();
    let step = websocket.upgrade(&stream);
    assert!(matches!(step, Upgrade::Accepted(answer) if answer.is_empty()) && websocket.is_open());
    assert_eq!(websocket.next(&stream), message(b"early"));
    assert_eq!(websocket.next(&stream), message(b"too"));
    // Connection is a list.
    let (mut websocket, response) = begun();
    let response = instead("Connection", "Connection: keep-alive, upgrade\r\n")(&response);
    assert!(matches!(websocket.upgrade(response.as_bytes()), Upgrade::Accepted(_)));
}

/// RFC 6455 §4.1: the client fails the WebSocket connection.
#[test]
fn any_other_response_is_rejected_with_its_reason() {
    use UpgradeFailure::{Protocol, Status, Subprotocol};
    let long = format!("\r\nX: {}", "x".repeat(9000));
    let wrong = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    let extended = "\r\nSec-WebSocket-Extensions: x\r\n\r\n";
    let changes: [(Change, UpgradeFailure); 16] = [
        (instead("HTTP", "HTTP/1.1 404 Not Found\r\n"), Status),
        (instead("HTTP", "HTTP/1.1 401 Unauthorized\r\n"), Status),
        (instead("HTTP", "HTTP/1.1 200 OK\r\n"), Status),
        (instead("HTTP", "HTTP/1.0 101 Switching Protocols\r\n"), Protocol),
        (instead("HTTP", "SIP/2.0 400 Bad Request\r\n"), Protocol),
        (instead("Upgrade", ""), Protocol),
        (instead("Upgrade", "Upgrade: h2c\r\n"), Protocol),
        (instead("Connection", ""), Protocol),
        (instead("Connection", "Connection: close\r\n"), Protocol),
        (instead("Sec-WebSocket-Accept", ""), Protocol),
        // RFC 6455 §1.3: the proof for another key.
        (instead("Sec-WebSocket-Accept", wrong), Protocol),
        (Box::new(move |response| response.replace("\r\n\r\n", extended)), Protocol),
        (Box::new(move |response| response.replace("\r\n\r\n", &long)), Protocol),
        (instead("Sec-WebSocket-Protocol", ""), Subprotocol),
        (instead("Sec-WebSocket-Protocol", "Sec-WebSocket-Protocol: chat\r\n"), Subprotocol),
        (instead("Sec-WebSocket-Protocol", "Sec-WebSocket-Protocol: sip, chat\r\n"), Subprotocol),
    ];
    for (change, expected) in changes {
        let (mut websocket, response) = begun();
        let changed = change(&response);
        assert_ne!(changed, response);
        match websocket.upgrade(changed.as_bytes()) {
            Upgrade::Rejected(failure, answer) => {
                assert_eq!((failure, &answer[..]), (expected, &b""[..]), "{changed}");
            }
            other => panic!("{other:?}: {changed}"),
        }
        assert!(!websocket.is_open());
    }
}

/// RFC 6455 §5.3: "When preparing a masked frame, the client MUST pick a fresh masking key from the set of
/// allowed 32-bit values."
#[test]
fn each_frame_to_a_server_has_a_mask_of_its_own() {
    let (client, pool) = (open(), Pool::new());
    let mut server = WebSocket::accept(None);
    let request = WebSocket::open(&plain()).1;
    assert!(matches!(server.upgrade(&request), Upgrade::Accepted(_)));
    assert_eq!(server.release(), request.len());
    let long = [0xff; BYTES_MAX];
    let mut keys = std::collections::BTreeSet::new();
    for (payload, opcode) in [
        (&b"BYE sip:a SIP/2.0\r\n\r\n"[..], TEXT),
        (b"BYE sip:a SIP/2.0\r\n\r\n", TEXT),
        (&[b'x'; 300], TEXT),
        (b"\xff\0", BINARY),
        (&long, BINARY),
    ] {
        let mut bytes = pool.copy(payload);
        let header = client.frame(&mut bytes);
        let sent = [&header, &bytes[..]].concat();
        let (found, key, clear) = unmasked(&sent);
        assert!(found == opcode && clear == payload);
        assert!(payload.len() < 20 || bytes[..] != *payload, "it is masked");
        keys.insert(key);
        assert!(server.next(&sent) == message(payload));
        assert_eq!(server.release(), sent.len());
    }
    keys.insert(unmasked(&client.going_away()).1);
    assert_eq!(keys.len(), 6, "two of six random keys are equal once in 300 million runs");
    // RFC 6455 §5.1: "The server MUST close the connection upon receiving a frame that is not masked."
    let ended = server.next(&frame(TEXT, true, b"x"));
    assert_eq!(ended, Next::End(vec![0x88, 2, 3, 0xea], CloseCause::Garbled));
}

#[test]
fn fragments_and_control_frames_of_a_server_are_read() {
    let stream = [
        frame(TEXT, false, b"12"),
        frame(PING, true, b"hi"),
        frame(CONTINUED, false, b""),
        frame(CONTINUED, true, b"34"),
        frame(PONG, true, b""),
        frame(BINARY, true, &[7; BYTES_MAX]),
    ]
    .concat();
    let check = |found: Vec<Next>| {
        let mut found = found.into_iter();
        assert_eq!(found.next(), Some(Next::Nothing));
        // RFC 6455 §5.5.3: "A Pong frame sent in response to a Ping frame must have identical
        // "Application data" as found in the message body of the Ping frame being replied to."
        let Some(Next::Alive(pong)) = found.next() else { panic!("no pong") };
        let (opcode, _, payload) = unmasked(&pong);
        assert_eq!((opcode, &payload[..]), (PONG, &b"hi"[..]));
        assert_eq!(found.next(), Some(Next::Nothing));
        assert_eq!(found.next(), Some(message(b"1234")));
        assert_eq!(found.next(), Some(Next::Alive(Vec::new())));
        assert!(found.next() == Some(message(&[7; BYTES_MAX])));
        assert_eq!(found.next(), None);
    };
    check(items([&stream[..]]));
    check(items(stream.chunks(7)));
}

/// RFC 6455 §5.5.1: "If an endpoint receives a Close frame and did not previously send a Close frame, the
/// endpoint MUST send a Close frame in response."
#[test]
fn the_end_of_a_server_is_answered_with_its_code() {
    for payload in [&b""[..], &[3, 0xe8], &[3, 0xe9, b'b', b'y', b'e']] {
        let found = items([&frame(CLOSE, true, payload)[..]]);
        let [Next::End(last, CloseCause::Ended)] = &found[..] else { panic!("{found:?}") };
        let (opcode, _, answer) = unmasked(last);
        assert_eq!((opcode, &answer[..]), (CLOSE, payload));
    }
}

/// RFC 6455 §5.1: "A client MUST close a connection if it detects a masked frame."
#[test]
fn a_server_that_breaks_the_protocol_is_told_why() {
    let mut masked = frame(TEXT, true, b"x");
    masked[1] |= 0x80;
    masked.splice(2..2, [1, 2, 3, 4]);
    let half = frame(BINARY, false, &[0; BYTES_MAX / 2 + 1]);
    let rest = frame(CONTINUED, true, &[0; BYTES_MAX / 2 + 1]);
    for (stream, code) in [
        (&masked[..], 1002_u16),
        (&frame(CONTINUED, true, b"x"), 1002),
        (&frame(PING, true, &[0; 126]), 1002),
        (&frame(TEXT, true, b"\xff"), 1007),
        // The header alone shows that the frame is too long.
        (&frame(BINARY, true, &[0; BYTES_MAX + 1])[..10], 1009),
        (&[half, rest].concat(), 1009),
    ] {
        let found = items([stream]);
        let Some(Next::End(last, CloseCause::Garbled)) = found.last() else { panic!("{code}") };
        let (opcode, _, payload) = unmasked(last);
        assert_eq!((opcode, &payload[..]), (CLOSE, &code.to_be_bytes()[..]));
    }
}

proptest! {
    /// No bytes of a server cause a panic, or take more memory than their own length and a decoder.
    #[test]
    fn any_bytes_are_no_response_or_end_the_connection(
        stream in prop::collection::vec(any::<u8>(), 0..400),
        end in 0..100_usize,
    ) {
        let (mut websocket, response) = begun();
        let begin = &response.as_bytes()[..end.min(response.len())];
        let stream = [begin, &stream].concat();
        prop_assert!(!matches!(websocket.upgrade(&stream), Upgrade::Accepted(_)));
        let mut opened = open();
        for _ in 0..stream.len() {
            if matches!(opened.next(&stream), Next::Incomplete | Next::End(..)) {
                break;
            }
        }
        prop_assert!(opened.held(stream.len()) <= stream.len() + DECODED_TOGETHER);
    }
}
