//! Tests of a shard with connections, mainly of its end.

#![allow(clippy::disallowed_methods)] // Tests wait for real sockets.

#[path = "../src/connections_tests/certified.rs"]
mod certified;
mod cores;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use certified::{Certified, certified};
use cores::{Echo, Seen, next, start_over, start_over_within};
use rustls::{ClientConnection, Stream};
use tidegate_io::*;
use tidegate_world::Transport;
use tungstenite::Message;
use tungstenite::client::IntoClientRequest;
use tungstenite::http::HeaderValue;

const REQUEST: &[u8] = b"OPTIONS sip:a@b SIP/2.0\r\nl: 0\r\n\r\n";

/// Starts an echo core with a listener for connections.
fn echo(transport: Transport) -> (cores::Running, SocketAddr) {
    echo_within(transport, Limits::default())
}

fn echo_within(transport: Transport, limits: Limits) -> (cores::Running, SocketAddr) {
    let group = listen(transport, false);
    (start_over(Echo::new().0, limits, vec![group.listener(0)]), group.local())
}

fn listen(transport: Transport, shared: bool) -> StreamGroup {
    listen_with(transport, shared, None)
}

fn listen_with(transport: Transport, shared: bool, tls: Option<TlsServer>) -> StreamGroup {
    let (address, origins) = ("127.0.0.1:0".parse().unwrap(), Origins::default());
    let listen = StreamListen { transport, address, shards: 1, shared, tls, origins };
    StreamGroup::open(&listen).unwrap()
}

/// RFC 6455 §7.4.1: "1001 indicates that an endpoint is "going away", such as a server going down".
#[test]
fn a_websocket_is_told_that_the_shard_ends() {
    let (running, address) = echo(Transport::Ws);
    let mut request = format!("ws://{address}/").into_client_request().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static("sip"));
    let stream = TcpStream::connect(address).unwrap();
    let (mut websocket, _) = tungstenite::client(request, stream).unwrap();
    websocket.send(Message::text("echo")).unwrap();
    assert_eq!(websocket.read().unwrap(), Message::text("echo"));
    running.end();
    match websocket.read() {
        Ok(Message::Close(Some(last))) => assert_eq!(u16::from(last.code), 1001),
        other => panic!("{other:?}"),
    }
}

/// A message that a turn leaves in a connection is not dropped. So INVITEs on connections need no
/// lower limit of their own.
#[test]
fn a_turn_reads_a_limited_number_of_messages_of_all_kinds_from_connections() {
    const COUNT: usize = 100;
    let limits = Limits::default();
    assert!(limits.invites < COUNT && COUNT < limits.streams / 2);
    for (streams, is_limited) in [(limits.streams, false), (COUNT / 10, true)] {
        let (running, address) = echo_within(Transport::Tcp, Limits { streams, ..limits });
        let mut client = TcpStream::connect(address).unwrap();
        let invites = "INVITE sip:a@b SIP/2.0\r\nl: 0\r\n\r\n".repeat(COUNT);
        client.write_all(invites.as_bytes()).unwrap();
        while running.counters.served.get() < COUNT as u64 {
            thread::sleep(Duration::from_millis(1));
        }
        let (_, counters) = running.end();
        assert_eq!(counters.limited_streams.get() > 0, is_limited, "{streams}");
    }
}

/// The responses of a shard that ends reach a peer that reads slowly.
#[test]
fn posted_messages_are_sent_before_the_shard_ends() {
    const COUNT: usize = 200;
    let (running, address) = echo(Transport::Tcp);
    let message = format!("SIP/2.0 200 OK\r\nl: 10000\r\n\r\n{}", "x".repeat(10_000));
    let mut client = TcpStream::connect(address).unwrap();
    for _ in 0..COUNT {
        client.write_all(message.as_bytes()).unwrap();
    }
    while running.counters.served.get() < COUNT as u64 {
        thread::sleep(Duration::from_millis(1));
    }
    running.stop.request();
    thread::sleep(Duration::from_millis(100));
    let mut read = Vec::new();
    client.read_to_end(&mut read).unwrap();
    assert_eq!(read.len(), COUNT * message.len());
    running.join();
}

/// Another process takes over the address. It does not get the connections that have arrived before.
#[test]
fn requests_on_connections_that_wait_at_a_shared_address_are_served_before_the_end() {
    let group = listen(Transport::Tcp, true);
    let (mut core, sight) = Echo::new();
    core.stall = Duration::from_millis(500);
    let running = start_over(core, Limits::default(), vec![group.listener(0)]);
    let connect = || {
        let mut client = TcpStream::connect(group.local()).unwrap();
        client.write_all(REQUEST).unwrap();
        client
    };
    let _first = connect();
    assert!(matches!(next(&sight), Seen::Offered { .. }));
    // The shard is still busy with the first request.
    let mut second = connect();
    running.stop.request();
    let mut answer = vec![0; REQUEST.len()];
    second.read_exact(&mut answer).unwrap();
    assert_eq!(answer, REQUEST);
    assert_eq!(running.join().0.ended, Ended::Drained);
    // The core was told to drain after it had got the request.
    let seen: Vec<_> = sight.try_iter().collect();
    let place = |is_it: fn(&Seen) -> bool| seen.iter().position(is_it);
    let offered = place(|seen| matches!(seen, Seen::Offered { .. })).expect("the second request");
    assert!(place(|seen| *seen == Seen::Drain).expect("a drain") > offered);
}

/// A turn takes a limited number of steps of handshakes, and reads no request before its handshake is
/// complete.
#[test]
fn requests_on_connections_whose_handshakes_wait_are_served_before_the_end() {
    const WAITING: usize = 4;
    let Certified { server, client: config } = certified("a.example");
    let server = TlsServer::new(server);
    let group = listen_with(Transport::Tls, true, Some(server));
    let (mut core, sight) = Echo::new();
    // This is longer than the time for which a shard reads an address that it has left.
    core.stall = Duration::from_millis(300);
    let limits = StreamLimits { handshakes: 1, ..StreamLimits::default() };
    let running = start_over_within(core, Limits::default(), limits, vec![group.listener(0)]);
    // The last message of the client's handshake is not sent yet.
    let mut clients = Vec::from_iter((0..=WAITING).map(|_| {
        let name = "a.example".try_into().unwrap();
        let mut session = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let mut socket = TcpStream::connect(group.local()).unwrap();
        session.write_tls(&mut socket).unwrap();
        while session.is_handshaking() {
            session.read_tls(&mut socket).unwrap();
            session.process_new_packets().unwrap();
        }
        (session, socket)
    }));
    let mut request = |client: usize| {
        let (session, socket) = &mut clients[client];
        session.writer().write_all(REQUEST).unwrap();
        session.write_tls(socket).unwrap();
        assert!(!session.wants_write());
    };
    request(0);
    assert!(matches!(next(&sight), Seen::Offered { .. }));
    // The shard is still busy with the first request.
    (1..=WAITING).for_each(&mut request);
    running.stop.request();
    for (session, socket) in &mut clients {
        let mut answer = vec![0; REQUEST.len()];
        Stream::new(session, socket).read_exact(&mut answer).unwrap();
        assert_eq!(answer, REQUEST);
    }
    assert_eq!(running.join().0.ended, Ended::Drained);
    // The core was told to drain after it had got all requests.
    let seen: Vec<_> = sight.try_iter().collect();
    let drain = seen.iter().position(|seen| *seen == Seen::Drain).expect("a drain");
    let is_offered = |seen: &&Seen| matches!(seen, Seen::Offered { .. });
    assert_eq!(seen[..drain].iter().filter(is_offered).count(), WAITING);
}

#[test]
fn a_peer_that_does_not_read_delays_the_end_for_a_second_at_most() {
    let (running, address) = echo(Transport::Tcp);
    let message = format!("SIP/2.0 200 OK\r\nl: 60000\r\n\r\n{}", "x".repeat(60_000));
    let mut client = TcpStream::connect(address).unwrap();
    for _ in 0..100 {
        client.write_all(message.as_bytes()).unwrap();
    }
    while running.counters.served.get() < 100 {
        thread::sleep(Duration::from_millis(1));
    }
    let began = Instant::now();
    let (_, counters) = running.end();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(counters.stream_cut_off.get(), 1);
}
