//! Tests of the connections over TLS that the proxy opens to servers.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustls::{ServerConfig, ServerConnection};

use super::*;
use crate::TlsPeer;

/// Runs a server that accepts `count` connections, one after the other, in a thread of its own.
/// Returns its address.
fn server(
    config: &Arc<ServerConfig>,
    count: usize,
    serve: impl Fn(&mut ServerConnection, &mut TcpStream) + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let config = Arc::clone(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        for _ in 0..count {
            let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let (mut socket, _) = listener.accept().unwrap();
            serve(&mut session, &mut socket);
        }
    });
    (remote, serving)
}

/// Sends the message of a client back, if the client completes the handshake.
fn echo(session: &mut ServerConnection, socket: &mut TcpStream) {
    let mut stream = Stream::new(session, socket);
    let mut read = [0; MESSAGE.len()];
    if stream.read_exact(&mut read).is_ok() {
        stream.write_all(&read).unwrap();
        // Waits until the other side closes the connection.
        let _ = stream.read(&mut read);
    }
}

/// Returns the peers of a proxy for which each server must be `a.example`.
fn peers(client: &Arc<ClientConfig>) -> TlsPeers {
    let peer = TlsPeer { config: Arc::clone(client), name: "a.example".try_into().unwrap() };
    Arc::new(move |_| Some(peer.clone()))
}

/// A connection that Tidegate opens is usable once the peer has proved its identity.
#[test]
fn a_connection_is_opened_to_the_right_peer_only() {
    let Certified { server: config, client } = certified("a.example");
    let (remote, serving) = server(&config, 2, echo);
    for (name, is_right) in [("a.example", true), ("b.example", false)] {
        let peer = TlsPeer { config: Arc::clone(&client), name: name.try_into().unwrap() };
        let peers: TlsPeers = Arc::new(move |to| (to == remote).then(|| peer.clone()));
        let mut scene = Scene::with_tls(StreamLimits::default(), None, peers);
        let id = scene.open(Transport::Tls, remote);
        if is_right {
            let Some(StreamEvent::Connected(flow)) = scene.next() else { panic!("not opened") };
            scene.post(flow, MESSAGE);
            assert_eq!(scene.message(), MESSAGE);
            scene.connections.close(id);
            scene.connections.flush(scene.now);
            assert_eq!(scene.closed(), CloseCause::Asked);
        } else {
            assert_eq!(scene.closed(), CloseCause::Insecure);
            assert_eq!(scene.counters.tls_failed_certificate.get(), 1);
        }
        let error = scene.counters.tls_errors.last(remote).and_then(|(_, error)| error);
        assert_eq!(error.is_some_and(|error| error.contains("not valid for name")), !is_right);
        // The identity of a peer at another address cannot be verified.
        scene.open(Transport::Tls, "127.0.0.1:9".parse().unwrap());
        assert_eq!(scene.closed(), CloseCause::Insecure);
    }
    serving.join().unwrap();
}

/// Many callers must not delay the connections to back ends.
#[test]
fn handshakes_with_back_ends_come_before_those_of_clients() {
    let Certified { server: config, client } = certified("a.example");
    let (remote, serving) = server(&config, 1, |session, socket| {
        session.complete_io(socket).unwrap();
    });
    let limits = StreamLimits { handshakes: 1, ..StreamLimits::default() };
    let tls = Some(TlsServer::new(config));
    let mut scene = Scene::with_tls(limits, tls, peers(&client));
    let _clients: Vec<_> = (0..8).map(|_| hello(scene.local, &client)).collect();
    take_turn(&mut scene);
    let id = scene.open(Transport::Tls, remote);
    take_turn(&mut scene);
    take_turn(&mut scene);
    let mut events = std::iter::from_fn(|| scene.connections.next_event(scene.now, &mut 64));
    let is_it =
        |event| matches!(event, StreamEvent::Connected(flow) if flow.connection == Some(id));
    assert!(events.any(is_it));
    serving.join().unwrap();
}

/// Returns the error of the last TLS handshake with `remote`.
fn last_error(scene: &Scene, remote: SocketAddr) -> String {
    let last = scene.counters.tls_errors.last(remote);
    last.and_then(|(_, error)| error).expect("a handshake that failed")
}

/// RFC 8446 §4.4.2: a client learns only after its handshake that its certificate is not accepted.
#[test]
fn a_server_that_rejects_us_after_the_handshake_is_counted() {
    let Certified { server: config, client } = certified("a.example");
    let (remote, serving) = server(&config, 1, |session, socket| {
        session.complete_io(socket).unwrap();
        session.read_tls(&mut &foreign_record()[..]).unwrap();
        assert!(session.process_new_packets().is_err());
        while session.wants_write() {
            session.write_tls(socket).unwrap();
        }
        // Waits until the other side closes the connection.
        let _ = socket.read(&mut [0]);
    });
    let mut scene = Scene::with_tls(StreamLimits::default(), None, peers(&client));
    scene.open(Transport::Tls, remote);
    assert!(matches!(scene.next(), Some(StreamEvent::Connected(_))));
    assert_eq!(scene.closed(), CloseCause::Insecure);
    assert_eq!(scene.counters.tls_failed_rejected.get(), 1);
    let error = last_error(&scene, remote);
    assert!(error.starts_with("received fatal alert: "), "{error}");
    serving.join().unwrap();
}

/// The core limits the time for opening a connection.
#[test]
fn a_handshake_that_the_core_gives_up_is_counted() {
    let Certified { client, .. } = certified("a.example");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = silent.local_addr().unwrap();
    let mut scene = Scene::with_tls(StreamLimits::default(), None, peers(&client));
    let id = scene.open(Transport::Tls, remote);
    while scene.connections.connections[&id].state != State::Handshaking {
        scene.connections.poll(scene.now).unwrap();
    }
    scene.connections.close(id);
    assert_eq!(scene.closed(), CloseCause::Asked);
    assert_eq!((scene.counters.tls_failed_slow.get(), scene.counters.tls_failed()), (1, 1));
    assert_eq!(last_error(&scene, remote), TIMED_OUT);
}

#[test]
fn a_handshake_that_succeeds_replaces_the_error_of_the_last_one() {
    let Certified { server: config, client } = certified("a.example");
    let (remote, serving) = server(&config, 2, |session, socket| {
        // Waits until the handshake fails, or the other side closes the connection.
        let _ = Stream::new(session, socket).read(&mut [0]);
    });
    let is_right = Arc::new(AtomicBool::new(false));
    let chosen = Arc::clone(&is_right);
    let peers: TlsPeers = Arc::new(move |_| {
        let name = if chosen.load(Relaxed) { "a.example" } else { "b.example" };
        Some(TlsPeer { config: Arc::clone(&client), name: name.try_into().unwrap() })
    });
    let mut scene = Scene::with_tls(StreamLimits::default(), None, peers);
    scene.open(Transport::Tls, remote);
    assert_eq!(scene.closed(), CloseCause::Insecure);
    assert!(last_error(&scene, remote).contains("not valid for name"));
    is_right.store(true, Relaxed);
    scene.now = scene.now + Duration::from_secs(1);
    scene.open(Transport::Tls, remote);
    assert!(matches!(scene.next(), Some(StreamEvent::Connected(_))));
    assert_eq!(scene.counters.tls_errors.last(remote), Some((scene.now, None)));
    drop(scene);
    serving.join().unwrap();
}

/// On the wire, fragments of a handshake message look like session tickets. A session keeps the
/// fragments until the message is complete, so many records without plaintext must count.
#[test]
fn records_without_plaintext_count_if_they_are_many() {
    let Certified { server: config, client } = certified("a.example");
    let mut config = (*config).clone();
    config.send_tls13_tickets = 300;
    let (remote, serving) = server(&Arc::new(config), 1, echo);
    let mut scene = Scene::with_tls(StreamLimits::default(), None, peers(&client));
    let id = scene.open(Transport::Tls, remote);
    let Some(StreamEvent::Connected(flow)) = scene.next() else { panic!("not opened") };
    take_turn(&mut scene);
    scene.settle();
    take_turn(&mut scene);
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    assert!(scene.connections.held > 8192, "{}", scene.connections.held);
    assert_ne!(scene.connections.due(), Timestamp::NEVER);
    scene.post(flow, MESSAGE);
    assert_eq!(scene.message(), MESSAGE);
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    assert_eq!(scene.connections.held, 0);
    scene.connections.close(id);
    scene.connections.flush(scene.now);
    serving.join().unwrap();
}
