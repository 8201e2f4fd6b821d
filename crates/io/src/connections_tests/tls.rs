//! Tests of connections over TLS, with blocking peers of rustls.

use std::thread::{self, JoinHandle};

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::{
    CipherSuiteCommon, ClientConfig, ClientConnection, Stream, SupportedCipherSuite,
    Tls12CipherSuite,
};

use super::*;

#[path = "certified.rs"]
mod certified;
#[path = "tls_opened.rs"]
mod opened;
use certified::certified_by;
pub use certified::{Certified, certified};

fn scene(limits: StreamLimits) -> (Scene, Arc<ClientConfig>) {
    let Certified { server, client } = certified("a.example");
    (Scene::with_tls(limits, Some(TlsServer::new(server)), Arc::new(|_| None)), client)
}

/// Runs a client in a thread of its own.
fn client<T: Send + 'static>(
    to: SocketAddr,
    config: Arc<ClientConfig>,
    run: impl FnOnce(&mut Stream<'_, ClientConnection, TcpStream>) -> T + Send + 'static,
) -> JoinHandle<T> {
    thread::spawn(move || {
        let mut session = ClientConnection::new(config, "a.example".try_into().unwrap()).unwrap();
        let mut socket = TcpStream::connect(to).unwrap();
        run(&mut Stream::new(&mut session, &mut socket))
    })
}

/// RFC 8446 §6.1: "Each party MUST send a "close_notify" alert before closing its write side of the
/// connection, unless it has already sent some error alert."
#[test]
fn messages_travel_over_tls_and_the_close_is_announced() {
    let (mut scene, config) = scene(StreamLimits::default());
    // This message takes several TLS records, and is longer than the socket takes at once.
    let long = vec![b'x'; 60_000];
    let expected = [MESSAGE, &long].concat();
    let peer = client(scene.local, config, |stream| {
        stream.write_all(&MESSAGE[..10]).unwrap();
        stream.write_all(&[&MESSAGE[10..], MESSAGE].concat()).unwrap();
        let mut read = Vec::new();
        // If the server sent no `close_notify`, this read would return an error.
        stream.read_to_end(&mut read).unwrap();
        read
    });
    let Some(StreamEvent::Connected(flow)) = scene.next() else { panic!("not accepted") };
    assert_eq!(flow.transport, Transport::Tls);
    assert_eq!(scene.message(), MESSAGE);
    assert_eq!(scene.message(), MESSAGE);
    scene.post(flow, MESSAGE);
    scene.post(flow, &long);
    scene.connections.close(flow.connection.unwrap());
    scene.connections.flush(scene.now);
    while scene.closed_or_none() != Some(CloseCause::Asked) {}
    assert_eq!(peer.join().unwrap(), expected);
    assert_eq!(scene.counters.tls_handshakes.get(), 1);
    assert_eq!(scene.counters.stream_cut_off.get(), 0);
}

/// RFC 8446 §6.1: "Each party MUST send a "close_notify" alert before closing its write side of the
/// connection, unless it has already sent some error alert."
#[test]
fn an_end_that_the_core_did_not_ask_for_is_announced_too() {
    for (last, ends, expected) in
        [(&b""[..], true, CloseCause::Ended), (b"\x16\x03\x01", false, CloseCause::Garbled)]
    {
        let (mut scene, config) = scene(StreamLimits::default());
        let peer = client(scene.local, config, move |stream| {
            stream.write_all(&[MESSAGE, last].concat()).unwrap();
            if ends {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
            // If the server sent no `close_notify`, this read would return an error.
            stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind())
        });
        let Some(StreamEvent::Connected(_)) = scene.next() else { panic!("not accepted") };
        assert_eq!(scene.message(), MESSAGE);
        assert_eq!(scene.closed(), expected);
        assert_eq!(peer.join().unwrap(), Ok(0), "{expected:?}");
    }
}

/// Returns a provider of TLS 1.2 only, whose keys encrypt at most `records` records.
fn limited(records: u64) -> CryptoProvider {
    let suite = cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let SupportedCipherSuite::Tls12(suite) = suite else { panic!("{suite:?} is not of TLS 1.2") };
    let common = CipherSuiteCommon { confidentiality_limit: records, ..suite.common };
    let limited: &'static Tls12CipherSuite =
        Box::leak(Box::new(Tls12CipherSuite { common, ..*suite }));
    CryptoProvider { cipher_suites: vec![limited.into()], ..default_provider() }
}

/// RFC 8446 §5.5: "There are cryptographic limits on the amount of plaintext which can be safely encrypted
/// under a given set of keys."
#[test]
fn a_connection_ends_before_its_keys_have_encrypted_too_much() {
    const POSTED: usize = 20;
    let Certified { server, client: config } = certified_by(limited(8), "a.example");
    let tls = Some(TlsServer::new(server));
    let mut scene = Scene::with_tls(StreamLimits::default(), tls, Arc::new(|_| None));
    let peer = client(scene.local, config, |stream| {
        stream.write_all(MESSAGE).unwrap();
        let mut read = Vec::new();
        // If the server sent no `close_notify`, this read would return an error.
        stream.read_to_end(&mut read).unwrap();
        read
    });
    let Some(StreamEvent::Connected(flow)) = scene.next() else { panic!("not accepted") };
    assert_eq!(scene.message(), MESSAGE);
    for _ in 0..POSTED {
        scene.post(flow, MESSAGE);
    }
    assert_eq!(scene.closed(), CloseCause::Other);
    // The message that did not fit, and those after it, are not sent.
    let unsent = 1 + scene.counters.stream_unconnected.get() as usize;
    assert!((2..POSTED).contains(&unsent), "{unsent}");
    assert_eq!(peer.join().unwrap(), MESSAGE.repeat(POSTED - unsent));
}

/// Begins a handshake. The socket does not block.
fn hello(to: SocketAddr, config: &Arc<ClientConfig>) -> (ClientConnection, TcpStream) {
    let name = "a.example".try_into().unwrap();
    let mut session = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_nodelay(true).unwrap();
    session.write_tls(&mut socket).unwrap();
    socket.set_nonblocking(true).unwrap();
    (session, socket)
}

/// Takes a turn after all bytes have arrived, and waits until the answers have arrived.
fn take_turn(scene: &mut Scene) {
    thread::sleep(Duration::from_millis(20));
    scene.connections.poll(scene.now).unwrap();
    thread::sleep(Duration::from_millis(20));
}

/// Takes a turn in which one of the clients gets an answer, and removes that client.
fn answered(
    scene: &mut Scene,
    clients: &mut Vec<(ClientConnection, TcpStream)>,
) -> (ClientConnection, TcpStream) {
    take_turn(scene);
    let is_answered = |(_, socket): &(_, TcpStream)| socket.peek(&mut [0; 8]).is_ok();
    let index = clients.iter().position(is_answered).expect("one is answered");
    clients.remove(index)
}

/// Completes the handshake of a client that is answered.
fn finish(client: (ClientConnection, TcpStream)) -> (ClientConnection, TcpStream) {
    let (mut session, mut socket) = client;
    while session.is_handshaking() {
        session.read_tls(&mut socket).unwrap();
        session.process_new_packets().unwrap();
    }
    session.write_tls(&mut socket).unwrap();
    (session, socket)
}

/// Connects a client and completes its handshake.
fn connected(scene: &mut Scene, config: &Arc<ClientConfig>) -> (ClientConnection, TcpStream) {
    let mut clients = vec![hello(scene.local, config)];
    let client = finish(answered(scene, &mut clients));
    assert!(matches!(scene.next(), Some(StreamEvent::Connected(_))));
    client
}

#[test]
fn a_handshake_that_has_begun_is_completed_before_others_begin() {
    let (mut scene, config) = scene(StreamLimits { handshakes: 1, ..StreamLimits::default() });
    let mut clients = (0..4).map(|_| hello(scene.local, &config)).collect();
    let _client = finish(answered(&mut scene, &mut clients));
    take_turn(&mut scene);
    assert_eq!(scene.counters.tls_handshakes.get(), 1);
}

#[test]
fn a_client_that_gives_up_while_it_waits_costs_no_handshake() {
    let (mut scene, config) = scene(StreamLimits { handshakes: 1, ..StreamLimits::default() });
    let mut clients = (0..4).map(|_| hello(scene.local, &config)).collect();
    let _first = answered(&mut scene, &mut clients);
    drop(clients);
    take_turn(&mut scene);
    assert_eq!(scene.counters.tls_failed_closed.get(), 3);
    assert_eq!(scene.counters.stream_connections.get(), 1);
}

/// Many clients that give up early must not delay the other clients.
#[test]
fn clients_that_gave_up_take_no_step_of_a_turn() {
    let (mut scene, config) = scene(StreamLimits { handshakes: 1, ..StreamLimits::default() });
    let mut clients: Vec<_> = (0..5).map(|_| hello(scene.local, &config)).collect();
    let _first = answered(&mut scene, &mut clients);
    let last = clients.pop().expect("five clients");
    drop(clients);
    let _last = answered(&mut scene, &mut vec![last]);
    assert_eq!(scene.counters.tls_failed_closed.get(), 3);
}

/// Returns a record that is not encrypted by the keys of any session. Its receiver sends an alert.
fn foreign_record() -> Vec<u8> {
    let mut record = vec![0x17, 3, 3, 0, 32];
    record.resize(5 + 32, 0);
    record
}

#[test]
fn an_alert_after_a_message_is_no_failed_handshake() {
    let (mut scene, config) = scene(StreamLimits::default());
    let (mut session, mut socket) = connected(&mut scene, &config);
    session.writer().write_all(MESSAGE).unwrap();
    session.write_tls(&mut socket).unwrap();
    assert_eq!(scene.message(), MESSAGE);
    session.read_tls(&mut &foreign_record()[..]).unwrap();
    assert!(session.process_new_packets().is_err());
    session.write_tls(&mut socket).unwrap();
    assert_eq!(scene.closed(), CloseCause::Insecure);
    assert_eq!((scene.counters.tls_handshakes.get(), scene.counters.tls_failed()), (1, 0));
}

/// Peers repeat no message over TLS. So a BYE that is not read is lost.
#[test]
fn messages_before_an_error_of_tls_are_received() {
    for is_open in [true, false] {
        let (mut scene, config) = scene(StreamLimits::default());
        let (mut session, mut socket) = connected(&mut scene, &config);
        if is_open {
            take_turn(&mut scene);
            scene.settle();
        }
        let mut bytes = Vec::new();
        session.writer().write_all(&MESSAGE.repeat(2)).unwrap();
        session.write_tls(&mut bytes).unwrap();
        bytes.extend(foreign_record());
        socket.write_all(&bytes).unwrap();
        for _ in 0..2 {
            assert_eq!(scene.message(), MESSAGE);
        }
        assert_eq!(scene.closed(), CloseCause::Garbled);
        assert_eq!((scene.counters.stream_garbled.get(), scene.connections.held), (1, 0));
        thread::sleep(Duration::from_millis(20));
        session.read_tls(&mut socket).unwrap();
        let alert = session.process_new_packets();
        assert!(matches!(alert, Err(rustls::Error::AlertReceived(_))), "{alert:?}");
    }
}

/// A session that has failed encrypts no answer to a ping.
#[test]
fn an_error_of_tls_while_a_pong_waits_ends_the_websocket() {
    const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Protocol: sip\r\nSec-WebSocket-Version: 13\r\n\r\n";
    // A WebSocket ping whose masking key is 0.
    const PING_OF_CLIENT: &[u8] = &[0x89, 0x81, 0, 0, 0, 0, b'7'];
    let Certified { server, client: config } = certified("a.example");
    let (limits, tls) = (StreamLimits::default(), Some(TlsServer::new(server)));
    let mut scene = Scene::over(Transport::Wss, limits, tls, Arc::new(|_| None));
    let (mut session, mut socket) = connected(&mut scene, &config);
    session.writer().write_all(UPGRADE).unwrap();
    session.write_tls(&mut socket).unwrap();
    take_turn(&mut scene);
    scene.settle();
    assert_eq!(scene.counters.websocket_handshakes.get(), 1);
    session.writer().write_all(PING_OF_CLIENT).unwrap();
    session.write_tls(&mut socket).unwrap();
    // The pong is sent at the end of the turn.
    assert_eq!(scene.message(), PONG);
    socket.write_all(&foreign_record()).unwrap();
    assert_eq!(scene.closed(), CloseCause::Garbled);
    assert_eq!(scene.counters.stream_garbled.get(), 1);
    thread::sleep(Duration::from_millis(20));
    session.read_tls(&mut socket).unwrap();
    let alert = session.process_new_packets();
    assert!(matches!(alert, Err(rustls::Error::AlertReceived(_))), "{alert:?}");
}

/// Messages wait in encrypted form too. Otherwise each peer that sends requests and reads no
/// response would take a window of the core.
#[test]
fn messages_over_tls_that_a_peer_does_not_read_have_a_limited_memory() {
    const BLOCK: usize = STREAM_WINDOW / 2;
    let (mut scene, config) = scene(StreamLimits { held_max: 2 * BLOCK, ..Default::default() });
    let (mut session, mut socket) = connected(&mut scene, &config);
    session.writer().write_all(MESSAGE).unwrap();
    session.write_tls(&mut socket).unwrap();
    let Some(StreamEvent::Received(received)) = scene.next() else { panic!("no message") };
    scene.settle();
    scene.fill(received.flow);
    assert_eq!(scene.connections.unsent, BLOCK, "it is encrypted");
    scene.post(received.flow, &[b'x'; BLOCK]);
    assert_eq!(scene.connections.unsent, 2 * BLOCK);
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    scene.post(received.flow, &[b'x'; BLOCK]);
    match scene.connections.next_event(scene.now, &mut 64) {
        Some(StreamEvent::Closed(id, CloseCause::Other)) => {
            assert_eq!(Some(id), received.flow.connection);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((scene.counters.stream_held_full.get(), scene.connections.unsent), (1, 0));
}

/// Without a time limit, a peer could keep 16 KiB of memory for as long as a connection may be
/// idle, an hour by default.
#[test]
fn a_record_that_has_not_arrived_counts_and_has_a_time_limit() {
    let limits = StreamLimits::default();
    let (mut scene, config) = scene(limits);
    let (mut session, mut socket) = connected(&mut scene, &config);
    session.writer().write_all(MESSAGE).unwrap();
    session.write_tls(&mut socket).unwrap();
    assert_eq!(scene.message(), MESSAGE);
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    assert_eq!(scene.connections.held, 0);
    // The header of a TLS record, and two of its bytes.
    socket.write_all(&[0x17, 3, 3, 0x41, 0, 0, 0]).unwrap();
    take_turn(&mut scene);
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    assert_eq!(scene.connections.held, 7);
    let due = scene.now + limits.message;
    while scene.counters.stream_slow.get() == 0 && scene.connections.due() <= due {
        scene.now = scene.connections.due();
        scene.connections.poll(scene.now).unwrap();
    }
    assert_eq!((scene.now, scene.closed()), (due, CloseCause::TimedOut));
    assert_eq!(scene.connections.held, 0);
}

/// Without a limit, a peer could keep 64 KiB of memory until the time limit of the handshake.
#[test]
fn the_messages_of_a_handshake_have_a_limited_memory() {
    let (mut scene, _) = scene(StreamLimits { held_max: 40_000, ..StreamLimits::default() });
    // A record with the first quarter of a ClientHello.
    let mut record = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0];
    record.resize(5 + (1 << 14), 0);
    let _clients = [(); 3].map(|()| {
        let mut client = TcpStream::connect(scene.local).unwrap();
        client.write_all(&record).unwrap();
        client
    });
    let mut flows = Vec::new();
    let closed = loop {
        match scene.next() {
            Some(StreamEvent::Connected(flow)) => flows.push(flow),
            Some(StreamEvent::Closed(id, CloseCause::Garbled)) => break id,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((flows.len(), Some(closed)), (3, flows[0].connection));
    assert_eq!(scene.counters.stream_held_full.get(), 1);
    assert!(scene.connections.held <= 40_000);
}

/// By default, the time limit of the handshake is longer than the limit for messages in this test.
#[test]
fn a_short_time_limit_for_messages_applies_from_the_beginning() {
    let limits = StreamLimits { message: Duration::from_secs(2), ..StreamLimits::default() };
    assert!(limits.message < limits.handshake);
    let (mut scene, config) = scene(limits);
    let (_session, mut socket) = connected(&mut scene, &config);
    // The header of a TLS record, and two of its bytes.
    socket.write_all(&[0x17, 3, 3, 0x41, 0, 0, 0]).unwrap();
    take_turn(&mut scene);
    scene.settle();
    let began = scene.now;
    scene.now = scene.connections.due();
    assert_eq!(scene.now, began + limits.message);
    assert_eq!(scene.closed(), CloseCause::TimedOut);
    assert_eq!((scene.counters.stream_slow.get(), scene.counters.tls_failed_slow.get()), (1, 0));
}

#[test]
fn a_turn_serves_a_limited_number_of_handshakes() {
    let (mut scene, config) = scene(StreamLimits { handshakes: 2, ..StreamLimits::default() });
    let clients: Vec<_> = (0..5).map(|_| hello(scene.local, &config)).collect();
    // The first turn accepts all clients, and each client has sent its first message.
    thread::sleep(Duration::from_millis(20));
    for expected in [2, 4, 5] {
        scene.connections.poll(scene.now).unwrap();
        thread::sleep(Duration::from_millis(20));
        let answered = clients.iter().filter(|(_, socket)| socket.peek(&mut [0; 8]).is_ok());
        assert_eq!(answered.count(), expected);
    }
}

/// In the end, all handshakes are completed, although messages wait all the time.
#[test]
fn handshakes_wait_for_the_processor_while_messages_wait() {
    const CLIENTS: usize = 60;
    let (mut scene, config) = scene(StreamLimits { handshakes: 1024, ..StreamLimits::default() });
    scene.connections.set_behind(true);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            client(scene.local, Arc::clone(&config), |stream| {
                stream.write_all(MESSAGE).unwrap();
                // The connection lasts until the scene ends.
                let _ = stream.read(&mut [0]);
            })
        })
        .collect();
    let mut received = 0;
    while received < CLIENTS {
        match scene.next() {
            Some(StreamEvent::Received(_)) => received += 1,
            Some(StreamEvent::Connected(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(scene.counters.tls_handshakes.get(), CLIENTS as u64);
    assert!(scene.counters.limited_handshakes.get() > 0);
    assert!(scene.counters.handshake_cpu_ns.get() > 0);
    drop(scene);
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn connections_of_peers_without_tls_and_of_silent_peers_are_closed() {
    let (mut scene, _) = scene(StreamLimits::default());
    let mut garbage = TcpStream::connect(scene.local).unwrap();
    garbage.write_all(MESSAGE).unwrap();
    assert!(matches!(scene.next(), Some(StreamEvent::Connected(_))));
    assert_eq!(scene.closed(), CloseCause::Insecure);
    let silent = TcpStream::connect(scene.local).unwrap();
    assert!(matches!(scene.next(), Some(StreamEvent::Connected(_))));
    scene.now = scene.connections.due();
    assert_eq!(scene.now, Timestamp::from_nanos(1) + StreamLimits::default().handshake);
    assert_eq!(scene.closed(), CloseCause::TimedOut);
    let counted = [&scene.counters.tls_failed_protocol, &scene.counters.tls_failed_slow];
    assert_eq!(counted.map(|counter| counter.get()), [1, 1]);
    drop((garbage, silent));
}
