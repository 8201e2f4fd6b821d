//! Tests of connections with WebSockets, with blocking peers of tungstenite.

use std::thread::{self, JoinHandle};

use tungstenite::client::IntoClientRequest;
use tungstenite::error::Error;
use tungstenite::handshake::server::{Request, Response};
use tungstenite::http::HeaderValue;
use tungstenite::{Message, WebSocket};

use super::memory::{BUFFERS_MAX, buffers_of_window};
use super::tls::{Certified, certified};
use super::*;
use crate::TlsPeer;

fn scene(limits: StreamLimits) -> Scene {
    Scene::over(Transport::Ws, limits, None, Arc::new(|_| None))
}

/// Runs a client in a thread of its own.
fn client<T: Send + 'static>(
    to: SocketAddr,
    run: impl FnOnce(&mut WebSocket<TcpStream>) -> T + Send + 'static,
) -> JoinHandle<T> {
    thread::spawn(move || {
        let mut request = format!("ws://{to}/").into_client_request().unwrap();
        request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static("sip"));
        let (mut websocket, _) =
            tungstenite::client(request, TcpStream::connect(to).unwrap()).unwrap();
        run(&mut websocket)
    })
}

fn accepted(scene: &mut Scene) -> Flow {
    let Some(StreamEvent::Connected(flow)) = scene.next() else { panic!("not accepted") };
    assert_eq!(flow.transport, Transport::Ws);
    flow
}

/// Takes events until the client has ended.
fn serve<T>(scene: &mut Scene, client: JoinHandle<T>) -> T {
    while !client.is_finished() {
        scene.connections.poll(scene.now).unwrap();
        while scene.connections.next_event(scene.now, &mut 64).is_some() {}
        scene.connections.flush(scene.now);
    }
    client.join().unwrap()
}

/// RFC 7118 §5: "Because the WebSocket transport preserves message boundaries, the use of the Content-Length
/// header in SIP messages is not necessary".
#[test]
fn messages_travel_both_ways_without_content_length() {
    const REQUEST: &str = "OPTIONS sip:a@b SIP/2.0\r\n\r\nhi";
    let mut scene = scene(StreamLimits::default());
    let peer = client(scene.local, |websocket| {
        websocket.write(Message::text(REQUEST)).unwrap();
        websocket.write(Message::binary(REQUEST.as_bytes())).unwrap();
        websocket.send(Message::Ping("7".into())).unwrap();
        let mut read = Vec::new();
        let error = loop {
            match websocket.read() {
                Ok(message) => read.push(message),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::ConnectionClosed), "{error}");
        read
    });
    let flow = accepted(&mut scene);
    assert_eq!(scene.message(), REQUEST.as_bytes());
    assert_eq!(scene.message(), REQUEST.as_bytes());
    // The core gets the ping of the WebSocket as a keep-alive.
    assert_eq!(scene.message(), PONG);
    scene.post(flow, MESSAGE);
    let long = vec![0xff; 60_000];
    scene.post(flow, &long);
    scene.connections.close(flow.connection.unwrap());
    scene.connections.flush(scene.now);
    let text = std::str::from_utf8(MESSAGE).unwrap();
    while scene.closed_or_none() != Some(CloseCause::Asked) {}
    let mut read = peer.join().unwrap().into_iter();
    assert_eq!(read.next(), Some(Message::text(text)));
    assert_eq!(read.next(), Some(Message::Pong("7".into())));
    assert!(read.next() == Some(Message::Binary(long.into())));
    // RFC 6455 §7.4.1: 1001, "going away".
    let Some(Message::Close(Some(last))) = read.next() else { panic!("no close") };
    assert_eq!(u16::from(last.code), 1001);
    assert_eq!(read.next(), None);
    assert_eq!(scene.counters.websocket_handshakes.get(), 1);
    assert_eq!(scene.counters.stream_cut_off.get(), 0);
    assert_eq!(scene.connections.held, 0);
}

#[test]
fn the_peer_may_close() {
    let mut scene = scene(StreamLimits::default());
    let peer = client(scene.local, |websocket| {
        websocket.close(None).unwrap();
        [(); 2].map(|()| websocket.read())
    });
    accepted(&mut scene);
    assert_eq!(scene.closed(), CloseCause::Ended);
    let [answer, end] = peer.join().unwrap();
    assert_eq!(answer.unwrap(), Message::Close(None));
    assert!(matches!(end, Err(Error::ConnectionClosed)));
    assert_eq!(scene.counters.stream_garbled.get(), 0);
}

#[test]
fn a_message_that_is_too_long_ends_its_connection() {
    let mut scene = scene(StreamLimits::default());
    let peer = client(scene.local, |websocket| {
        // Sending may fail, because the server ends the connection before it has read all bytes.
        let _ = websocket.send(Message::binary(vec![0; 100_000]));
        websocket.read()
    });
    accepted(&mut scene);
    assert_eq!(scene.closed(), CloseCause::Garbled);
    assert_eq!(scene.counters.stream_garbled.get(), 1);
    match serve(&mut scene, peer) {
        Ok(Message::Close(Some(last))) => assert_eq!(u16::from(last.code), 1009),
        // The operating system may discard the last bytes of the server.
        Err(Error::Io(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// A peer that sends pings and reads nothing gets one answer when it reads.
#[test]
fn pings_do_not_fill_the_memory() {
    let mut scene = scene(StreamLimits::default());
    let peer = client(scene.local, |websocket| {
        for _ in 0..1000 {
            websocket.send(Message::Ping(vec![1; 100].into())).unwrap();
        }
        let answer = websocket.read();
        websocket.get_ref().set_nonblocking(true).unwrap();
        assert!(websocket.read().is_err(), "one answer is enough");
        answer
    });
    let flow = accepted(&mut scene);
    let id = flow.connection.unwrap();
    let mut pings = 0;
    while pings < 1000 {
        match scene.next() {
            Some(StreamEvent::Received(received)) => assert_eq!(&received.bytes[..], PONG),
            other => panic!("{other:?}"),
        }
        pings += 1;
        assert!(scene.connections.connections[&id].has_pong());
    }
    scene.connections.flush(scene.now);
    assert!(!scene.connections.connections[&id].has_pong());
    assert_eq!(peer.join().unwrap().unwrap(), Message::Pong(vec![1; 100].into()));
    assert!(scene.next().is_some_and(|event| matches!(event, StreamEvent::Closed(..))));
}

/// RFC 6455 §5.4: "Control frames (see Section 5.5) MAY be injected in the middle of a fragmented message."
#[test]
fn a_ping_gives_the_rest_of_a_message_no_more_time() {
    let mut scene = scene(StreamLimits::default());
    let peer = client(scene.local, |websocket| websocket.get_ref().try_clone().unwrap());
    accepted(&mut scene);
    let mut socket = serve(&mut scene, peer);
    // A text that is not complete, and a ping, both with a mask of zeros.
    socket.write_all(&[0x01, 0x81, 0, 0, 0, 0, b'O']).unwrap();
    let ping = [0x89, 0x80, 0, 0, 0, 0];
    socket.write_all(&ping).unwrap();
    assert_eq!(scene.message(), PONG);
    let began = scene.now;
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    scene.now = began + StreamLimits::default().message / 2;
    socket.write_all(&ping).unwrap();
    assert_eq!(scene.message(), PONG);
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    scene.now = began + StreamLimits::default().message;
    assert_eq!(scene.closed(), CloseCause::TimedOut);
}

/// Without a time limit, a peer could keep the memory of a decoder until the idle limit.
#[test]
fn a_fragment_without_payload_takes_memory_and_has_a_time_limit() {
    let mut scene = scene(StreamLimits::default());
    let peer = client(scene.local, |websocket| websocket.get_ref().try_clone().unwrap());
    accepted(&mut scene);
    let mut socket = serve(&mut scene, peer);
    // A complete text, and then a fragment without payload. Both have a mask of zeros.
    socket.write_all(&[0x81, 0x81, 0, 0, 0, 0, b'O']).unwrap();
    assert_eq!(scene.message(), b"O");
    socket.write_all(&[0x01, 0x80, 0, 0, 0, 0]).unwrap();
    while scene.connections.held == 0 {
        scene.connections.poll(scene.now).unwrap();
        assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    }
    scene.now = scene.now + StreamLimits::default().message;
    assert_eq!(scene.closed(), CloseCause::TimedOut);
    assert_eq!((scene.counters.stream_slow.get(), scene.connections.held), (1, 0));
}

/// The header of a frame shares the buffer of its message.
#[test]
fn short_messages_for_a_peer_that_does_not_read_share_buffers() {
    let mut scene = scene(StreamLimits::default());
    let peer = client(scene.local, |websocket| websocket.get_ref().try_clone().unwrap());
    let flow = accepted(&mut scene);
    let _socket = serve(&mut scene, peer);
    scene.fill(flow);
    let buffers = buffers_of_window(&mut scene, flow, 2);
    // Each message of two bytes has a frame header of two bytes.
    assert!(buffers <= 2 * BUFFERS_MAX, "{buffers} buffers");
}

/// The handshake of a WebSocket has the same time limit as that of TLS.
#[test]
fn connections_of_peers_without_a_handshake_and_of_silent_peers_are_closed() {
    let mut scene = scene(StreamLimits::default());
    let mut garbage = TcpStream::connect(scene.local).unwrap();
    garbage.write_all(MESSAGE).unwrap();
    accepted(&mut scene);
    assert_eq!(scene.closed(), CloseCause::Garbled);
    let mut answer = String::new();
    garbage.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let mut gone = TcpStream::connect(scene.local).unwrap();
    gone.write_all(b"GET / HT").unwrap();
    accepted(&mut scene);
    drop(gone);
    assert_eq!(scene.closed(), CloseCause::Garbled);
    let silent = TcpStream::connect(scene.local).unwrap();
    accepted(&mut scene);
    scene.now = scene.connections.due();
    assert_eq!(scene.now, Timestamp::from_nanos(1) + StreamLimits::default().handshake);
    assert_eq!(scene.closed(), CloseCause::TimedOut);
    let counters = &scene.counters;
    let counted = [
        &counters.websocket_failed_protocol,
        &counters.websocket_failed_closed,
        &counters.websocket_failed_slow,
        &counters.stream_garbled,
        &counters.tls_failed_slow,
    ];
    assert_eq!(counted.map(|counter| counter.get()), [1, 1, 1, 0, 0]);
    assert_eq!(scene.connections.held, 0);
    drop(silent);
}

/// A browser accepts no connections. So a core opens none, unless its driver is a client.
#[test]
fn no_connection_to_a_browser_is_opened() {
    let mut scene = scene(StreamLimits::default());
    let remote = scene.local;
    scene.open(Transport::Ws, remote);
    assert_eq!(scene.closed(), CloseCause::Other);
}

/// A scene whose core may open WebSockets.
fn client_scene() -> Scene {
    let mut scene = scene(StreamLimits::default());
    scene.connections.websocket_client = plain();
    scene
}

fn plain() -> Option<WebSocketClient> {
    Some(WebSocketClient::new("a.example", "/", None).unwrap())
}

/// Runs a server for one connection in a thread of its own.
fn server<T: Send + 'static>(
    run: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (address, thread::spawn(move || run(listener.accept().unwrap().0)))
}

/// RFC 7118 §4.1: "The 101 reply from the server MUST contain "sip" in its corresponding
/// Sec-WebSocket-Protocol header."
#[test]
#[allow(clippy::result_large_err)] // The error type of the closure is that of tungstenite.
fn a_client_opens_a_websocket_and_both_sides_send() {
    let (address, peer) = server(|stream| {
        let accept = |request: &Request, mut response: Response| {
            let offered = request.headers()["Sec-WebSocket-Protocol"].clone();
            response.headers_mut().insert("Sec-WebSocket-Protocol", offered);
            Ok(response)
        };
        let mut websocket = tungstenite::accept_hdr(stream, accept).unwrap();
        websocket.write(Message::text("first")).unwrap();
        websocket.send(Message::Ping("7".into())).unwrap();
        // Reading fails if a frame of the client has no mask.
        let read = [(); 3].map(|()| websocket.read().unwrap());
        websocket.close(None).unwrap();
        (read, websocket.read())
    });
    let mut scene = client_scene();
    scene.open(Transport::Ws, address);
    let Some(StreamEvent::Connected(flow)) = scene.next() else { panic!("not opened") };
    assert_eq!((flow.transport, flow.remote), (Transport::Ws, address));
    assert_ne!(flow.local.port(), 0);
    assert_eq!(scene.message(), b"first");
    assert_eq!(scene.message(), PONG);
    let long = vec![0xff; 65_535];
    scene.post(flow, MESSAGE);
    scene.post(flow, &long);
    while scene.closed_or_none() != Some(CloseCause::Ended) {}
    let (read, end) = peer.join().unwrap();
    let text = std::str::from_utf8(MESSAGE).unwrap();
    let mut read = read.into_iter();
    let mut found = |wanted: Message| assert!(read.any(|message| message == wanted), "{wanted:?}");
    found(Message::text(text));
    found(Message::Pong("7".into()));
    found(Message::Binary(long.into()));
    assert_eq!(end.unwrap(), Message::Close(None));
    assert_eq!(scene.counters.websocket_handshakes.get(), 1);
    assert_eq!(scene.connections.held, 0);
}

/// RFC 7118 §4.1: "In case there is no HTTP 101 response during the WebSocket handshake, it is considered a
/// transaction error".
#[test]
fn a_server_that_does_not_open_the_websocket_is_counted() {
    let mut scene = client_scene();
    for answer in ["HTTP/1.1 503 Busy\r\n\r\n", "SIP/2.0 200 OK\r\n\r\n", "HTTP/1.1 101 Swi"] {
        let (address, peer) = server(move |mut stream| {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        scene.open(Transport::Ws, address);
        assert_eq!(scene.closed(), CloseCause::Garbled);
        peer.join().unwrap();
    }
    let counters = &scene.counters;
    let counted = [
        &counters.websocket_failed_status,
        &counters.websocket_failed_protocol,
        &counters.websocket_failed_closed,
        &counters.websocket_handshakes,
    ];
    assert_eq!(counted.map(|counter| counter.get()), [1, 1, 1, 0]);
    assert_eq!(scene.connections.held, 0);
}

/// Tidegate plays both sides. The client verifies the certificate before it sends its request.
#[test]
fn a_secure_websocket_is_opened_to_the_right_peer_only() {
    for (name, is_right) in [("a.example", true), ("b.example", false)] {
        let Certified { server, client } = certified("a.example");
        let peer = TlsPeer { config: client, name: name.try_into().unwrap() };
        let peers: TlsPeers = Arc::new(move |_| Some(peer.clone()));
        let (limits, tls) = (StreamLimits::default(), Some(TlsServer::new(server)));
        let mut scene = Scene::over(Transport::Wss, limits, tls, peers);
        scene.connections.websocket_client = plain();
        let remote = scene.local;
        scene.open(Transport::Wss, remote);
        let mut flows = Vec::new();
        while flows.len() < 2 {
            match scene.next() {
                Some(StreamEvent::Connected(flow)) => flows.push(flow),
                Some(StreamEvent::Closed(_, cause)) => {
                    assert!(!is_right && cause == CloseCause::Insecure, "{cause:?}");
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(scene.counters.websocket_handshakes.get(), 2 * u64::from(is_right));
        assert_eq!(scene.counters.tls_failed_certificate.get(), u64::from(!is_right));
        if is_right {
            for flow in flows {
                scene.post(flow, MESSAGE);
                assert_eq!(scene.message(), MESSAGE);
            }
        }
    }
}
