//! Tests of connections over TLS, with blocking peers of rustls.

use std::thread::{self, JoinHandle};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, Stream,
};

use super::*;
use crate::TlsPeer;

/// A certificate for one host name, as both sides use it.
pub struct Certified {
    pub server: Arc<ServerConfig>,
    pub client: Arc<ClientConfig>,
}

pub fn certified(name: &str) -> Certified {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([name.to_owned()]).unwrap();
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    Certified { server: Arc::new(server), client: Arc::new(client) }
}

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
fn messages_travel_over_tls_and_the_end_is_told() {
    let (mut scene, config) = scene(StreamLimits::default());
    // Several records, and more than the socket takes at once.
    let long = vec![b'x'; 60_000];
    let expected = [MESSAGE, &long].concat();
    let peer = client(scene.local, config, |stream| {
        stream.write_all(&MESSAGE[..10]).unwrap();
        stream.write_all(&[&MESSAGE[10..], MESSAGE].concat()).unwrap();
        let mut read = Vec::new();
        // Without `close_notify` this is an error.
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

#[test]
fn a_turn_serves_a_limited_number_of_handshakes() {
    let (mut scene, config) = scene(StreamLimits { handshakes: 2, ..StreamLimits::default() });
    let clients: Vec<_> = (0..5)
        .map(|_| {
            let mut session =
                ClientConnection::new(Arc::clone(&config), "a.example".try_into().unwrap())
                    .unwrap();
            let mut socket = TcpStream::connect(scene.local).unwrap();
            session.write_tls(&mut socket).unwrap();
            socket.set_nonblocking(true).unwrap();
            (session, socket)
        })
        .collect();
    // The first turn accepts all, and all have something to read.
    thread::sleep(Duration::from_millis(20));
    for expected in [2, 4, 5] {
        scene.connections.poll(scene.now).unwrap();
        thread::sleep(Duration::from_millis(20));
        let answered = clients.iter().filter(|(_, socket)| socket.peek(&mut [0; 8]).is_ok());
        assert_eq!(answered.count(), expected);
    }
}

#[test]
fn a_peer_without_tls_and_a_silent_one_lose_their_connections() {
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

/// A connection that is opened exists once the peer has shown who it is.
#[test]
fn a_connection_is_opened_to_the_right_peer_only() {
    let Certified { server, client } = certified("a.example");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        for _ in 0..2 {
            let mut session = ServerConnection::new(Arc::clone(&server)).unwrap();
            let (mut socket, _) = listener.accept().unwrap();
            let mut stream = Stream::new(&mut session, &mut socket);
            let mut read = [0; MESSAGE.len()];
            if stream.read_exact(&mut read).is_ok() {
                stream.write_all(&read).unwrap();
                // Until the other side closes.
                let _ = stream.read(&mut read);
            }
        }
    });
    for (name, is_right) in [("a.example", true), ("b.example", false)] {
        let peer = TlsPeer { config: Arc::clone(&client), name: name.try_into().unwrap() };
        let peers: TlsPeers = Arc::new(move |to| (to == remote).then(|| peer.clone()));
        let mut scene = Scene::with_tls(StreamLimits::default(), None, peers);
        let (id, local) = (ConnectionId::FIRST_OPENED, scene.local);
        let connect = |remote| Connect { id, transport: Transport::Tls, local, remote };
        scene.connections.connect(connect(remote));
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
        // There is no way to tell who is at another address.
        scene.connections.connect(connect("127.0.0.1:9".parse().unwrap()));
        assert_eq!(scene.closed(), CloseCause::Insecure);
    }
    serving.join().unwrap();
}
