use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use tidegate_world::{Connect, Flow, STREAM_WINDOW, Transport};

use super::accepting::LATE_FOR;
use super::*;
use crate::stream_group::StreamListen;
use crate::{Origins, StreamGroup, TlsServer};

#[path = "connections_tests/tls.rs"]
mod tls;
#[path = "connections_tests/websocket.rs"]
mod websocket;

const MESSAGE: &[u8] = b"OPTIONS sip:a@b SIP/2.0\r\nContent-Length: 2\r\n\r\nhi";

struct Scene {
    connections: Connections,
    counters: Arc<Counters>,
    local: SocketAddr,
    pool: Pool,
    now: Timestamp,
}

impl Scene {
    fn new(limits: StreamLimits) -> Self {
        Self::with_tls(limits, None, Arc::new(|_| None))
    }

    fn with_tls(limits: StreamLimits, tls: Option<TlsServer>, peers: TlsPeers) -> Self {
        let transport = if tls.is_some() { Transport::Tls } else { Transport::Tcp };
        Self::over(transport, limits, tls, peers)
    }

    /// Creates a scene at an address that other processes may share.
    fn shared() -> Self {
        let (limits, peers): (_, TlsPeers) = (StreamLimits::default(), Arc::new(|_| None));
        Self::listening(true, Transport::Tcp, limits, None, peers)
    }

    fn over(
        transport: Transport,
        limits: StreamLimits,
        tls: Option<TlsServer>,
        peers: TlsPeers,
    ) -> Self {
        Self::listening(false, transport, limits, tls, peers)
    }

    fn listening(
        shared: bool,
        transport: Transport,
        limits: StreamLimits,
        tls: Option<TlsServer>,
        peers: TlsPeers,
    ) -> Self {
        let (address, origins) = ("127.0.0.1:0".parse().unwrap(), Origins::default());
        let listen = StreamListen { transport, address, shards: 1, shared, tls, origins };
        let group = StreamGroup::open(&listen).unwrap();
        let (counters, pool) = (Arc::new(Counters::default()), Pool::new());
        let (listeners, local) = (vec![group.listener(0)], group.local());
        let connections =
            Connections::new(listeners, limits, peers, None, Arc::clone(&counters), pool.clone())
                .unwrap();
        Self { connections, counters, local, pool, now: Timestamp::from_nanos(1) }
    }

    /// Returns the next event, if there is one within a second of real time.
    fn next(&mut self) -> Option<StreamEvent> {
        for _ in 0..1000 {
            self.connections.poll(self.now).unwrap();
            if let Some(event) = self.connections.next_event(self.now, &mut 64) {
                return Some(event);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn accept(&mut self) -> (TcpStream, Flow) {
        let client = TcpStream::connect(self.local).unwrap();
        let Some(StreamEvent::Connected(flow)) = self.next() else { panic!("not accepted") };
        assert_eq!((flow.local, flow.remote), (self.local, client.local_addr().unwrap()));
        (client, flow)
    }

    fn message(&mut self) -> Vec<u8> {
        match self.next() {
            Some(StreamEvent::Received(received)) => received.bytes.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn closed(&mut self) -> CloseCause {
        match self.next() {
            Some(StreamEvent::Closed(_, cause)) => cause,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the cause of the next event, if it is the end of a connection.
    fn closed_or_none(&mut self) -> Option<CloseCause> {
        match self.next() {
            Some(StreamEvent::Closed(_, cause)) => Some(cause),
            Some(_) => None,
            None => panic!("nothing happens"),
        }
    }

    fn post(&mut self, flow: Flow, bytes: &[u8]) {
        self.connections.post(Transmit::new(flow, self.pool.copy(bytes)));
        self.connections.flush(self.now);
    }
}

/// RFC 3261 §18.3: a message ends where its Content-Length says, wherever the segments end.
#[test]
fn messages_are_cut_out_of_the_stream() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, _) = scene.accept();
    client.write_all(&[MESSAGE, b"\r\n\r\n", &MESSAGE[..20]].concat()).unwrap();
    assert_eq!(scene.message(), MESSAGE);
    assert_eq!(scene.message(), b"\r\n\r\n");
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    client.write_all(&MESSAGE[20..]).unwrap();
    assert_eq!(scene.message(), MESSAGE);
    client.write_all(b"\x16\x03\x01").unwrap();
    assert_eq!(scene.closed(), CloseCause::Garbled);
    assert_eq!(scene.counters.stream_garbled.get(), 1);
    assert_eq!(scene.connections.held, 0);
}

#[test]
fn the_end_between_messages_differs_from_that_within_one() {
    let mut scene = Scene::new(StreamLimits::default());
    let (client, _) = scene.accept();
    drop(client);
    assert_eq!(scene.closed(), CloseCause::Ended);
    let (mut client, _) = scene.accept();
    client.write_all(&MESSAGE[..20]).unwrap();
    drop(client);
    assert_eq!(scene.closed(), CloseCause::CutOff);
}

#[test]
fn a_connection_that_pauses_within_a_message_is_closed() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, _) = scene.accept();
    client.write_all(&[MESSAGE, &MESSAGE[..20]].concat()).unwrap();
    assert_eq!(scene.message(), MESSAGE);
    while scene.connections.timers.next().is_none() {
        scene.connections.poll(scene.now).unwrap();
        assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    }
    let due = scene.connections.due();
    assert_eq!(due, scene.now + StreamLimits::default().message);
    // A byte more does not help.
    client.write_all(&MESSAGE[20..21]).unwrap();
    scene.now = due;
    assert_eq!(scene.closed(), CloseCause::TimedOut);
    assert_eq!(scene.counters.stream_slow.get(), 1);
}

#[test]
fn incomplete_messages_have_a_limited_memory() {
    let mut scene = Scene::new(StreamLimits { held_max: 30, ..StreamLimits::default() });
    let clients = [(); 2].map(|()| {
        let (mut client, _) = scene.accept();
        client.write_all(&MESSAGE[..20]).unwrap();
        client
    });
    assert_eq!(scene.closed(), CloseCause::Garbled);
    assert_eq!(scene.counters.stream_held_full.get(), 1);
    assert_eq!((scene.connections.held, clients.len()), (20, 2));
}

/// [`Core`](tidegate_world::Core), "Connections", point 3.
#[test]
fn the_core_is_told_when_the_peer_has_read_a_window() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    scene.post(flow, b"short");
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    let block = vec![b'x'; STREAM_WINDOW / 2];
    // Until the sockets of both ends are full.
    let mut posted = 5;
    while !scene.connections.connections[&flow.connection.unwrap()].waits_for_room {
        scene.post(flow, &block);
        posted += block.len();
        while scene.connections.next_event(scene.now, &mut 64).is_some() {}
    }
    let mut read = 0;
    let mut buffer = vec![0; 1 << 20];
    while read < posted {
        read += client.read(&mut buffer).unwrap();
        scene.connections.poll(scene.now).unwrap();
    }
    assert!(matches!(scene.next(), Some(StreamEvent::Writable(id)) if Some(id) == flow.connection));
}

#[test]
fn a_closing_connection_first_sends_everything() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    let id = flow.connection.unwrap();
    scene.connections.post(Transmit::new(flow, scene.pool.copy(b"last")));
    scene.connections.close(id);
    scene.connections.flush(scene.now);
    assert_eq!(scene.closed(), CloseCause::Asked);
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "last");
    scene.post(flow, b"too late");
    assert_eq!(scene.counters.stream_unconnected.get(), 1);
}

#[test]
fn a_peer_that_does_not_read_cannot_keep_a_closing_connection() {
    let mut scene = Scene::new(StreamLimits::default());
    let (_client, flow) = scene.accept();
    let id = flow.connection.unwrap();
    let block = vec![b'x'; STREAM_WINDOW / 2];
    while !scene.connections.connections[&id].waits_for_room {
        scene.post(flow, &block);
        while scene.connections.next_event(scene.now, &mut 64).is_some() {}
    }
    scene.connections.close(id);
    scene.connections.flush(scene.now);
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    scene.now = scene.connections.due();
    assert_eq!(scene.now, Timestamp::from_nanos(1) + StreamLimits::default().linger);
    assert_eq!(scene.closed(), CloseCause::Asked);
    assert_eq!(scene.counters.stream_cut_off.get(), 1);
}

#[test]
fn connections_are_opened_from_the_address_of_the_listener_or_fail_with_a_cause() {
    let mut scene = Scene::new(StreamLimits::default());
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = "127.9.9.9:5060".parse().unwrap();
    let mut id = ConnectionId::FIRST_OPENED;
    let connect = |id, remote| Connect { id, transport: Transport::Tcp, local, remote };
    scene.connections.connect(connect(id, server.local_addr().unwrap()));
    let Some(StreamEvent::Connected(flow)) = scene.next() else { panic!("not opened") };
    assert_eq!((flow.connection, flow.local.ip()), (Some(id), local.ip()));
    let (mut peer, from) = server.accept().unwrap();
    assert_eq!(from, flow.local);
    scene.post(flow, MESSAGE);
    let mut bytes = [0; MESSAGE.len()];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, MESSAGE);
    peer.write_all(MESSAGE).unwrap();
    assert_eq!(scene.message(), MESSAGE);

    let gone = server.local_addr().unwrap();
    drop((server, peer));
    assert_eq!(scene.closed(), CloseCause::Ended);
    id = id.next();
    scene.connections.connect(connect(id, gone));
    assert_eq!(scene.closed(), CloseCause::Refused);
}

#[test]
fn a_storm_of_connections_is_accepted_in_parts() {
    let mut scene = Scene::new(StreamLimits { accepts: 3, ..StreamLimits::default() });
    let clients = [(); 7].map(|()| TcpStream::connect(scene.local).unwrap());
    for accepted in [3, 6, 7] {
        scene.connections.poll(scene.now).unwrap();
        assert_eq!(scene.counters.stream_connections.get(), accepted);
    }
    drop(clients);
}

/// RFC 3261 §8.1.3.1: "If a fatal transport error is reported by the transport layer (generally, due to
/// fatal ICMP errors in UDP or connection failures in TCP), the condition MUST be treated as a 503 (Service
/// Unavailable) status code."
#[test]
fn connections_that_keep_waiting_too_long_are_reset_and_the_others_stay() {
    let accept_wait = Duration::from_millis(1);
    let limits = StreamLimits { accepts: 1, accept_wait, ..StreamLimits::default() };
    let mut scene = Scene::new(limits);
    let mut clients = [(); 3].map(|()| {
        let mut client = TcpStream::connect(scene.local).unwrap();
        client.write_all(MESSAGE).unwrap();
        client
    });
    std::thread::sleep(Duration::from_millis(30));
    // After a stall, connections may have waited for some time.
    scene.connections.poll(scene.now).unwrap();
    assert_eq!(scene.counters.stream_accepts_late.get(), 0);
    scene.now = scene.now + LATE_FOR;
    scene.connections.poll(scene.now).unwrap();
    assert_eq!(scene.counters.stream_accepts_late.get(), 2);
    for client in &mut clients[1..] {
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    let Some(StreamEvent::Connected(flow)) = scene.next() else { panic!("not accepted") };
    assert_eq!(scene.message(), MESSAGE);
    scene.post(flow, b"pong");
    clients[0].read_exact(&mut [0; 4]).unwrap();
}

/// RFC 3261 §18.2.2: "If the "sent-protocol" is a reliable transport protocol such as TCP or SCTP, or TLS
/// over those, the response MUST be sent using the existing connection to the source of the original request
/// that created the transaction, if that connection is still open. [...] If that connection is no longer
/// open, the server SHOULD open a connection to the IP address in the "received" parameter".
#[test]
fn a_connection_for_a_call_in_progress_is_served_however_long_it_has_waited() {
    let message = |start: &str, method: &str, to: &str| {
        format!(
            "{start}\r\nVia: SIP/2.0/TCP a;branch=z9hG4bK1\r\nTo: <sip:b@b>{to}\r\nCall-ID: 1\r\n\
             CSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let request =
        |method: &str, to: &str| message(&format!("{method} sip:b@b SIP/2.0"), method, to);
    let first = [
        request("BYE", ";tag=b"),
        request("INVITE", ";tag=b"),
        request("CANCEL", ""),
        message("SIP/2.0 200 OK", "INVITE", ";tag=b"),
        message("INVITE urn:service:sos SIP/2.0", "INVITE", ""),
        request("INVITE", ""),
        request("REGISTER", ""),
        "hello".to_string(),
    ];
    let accept_wait = Duration::from_millis(1);
    let limits = StreamLimits { accepts: 1, accept_wait, ..StreamLimits::default() };
    let mut scene = Scene::new(limits);
    // The first connection is served after what may be a short stall.
    let mut clients = vec![TcpStream::connect(scene.local).unwrap()];
    for message in &first {
        let mut client = TcpStream::connect(scene.local).unwrap();
        client.write_all(message.as_bytes()).unwrap();
        clients.push(client);
    }
    std::thread::sleep(Duration::from_millis(30));
    for _ in &clients {
        scene.connections.poll(scene.now).unwrap();
        scene.now = scene.now + LATE_FOR;
    }
    assert_eq!(scene.counters.stream_connections.get(), 1 + 5);
    assert_eq!(scene.counters.stream_accepts_late.get(), 3);
}

/// A stranger can forge the first message of such a connection. So connections of new callers are not
/// all kept waiting behind them.
#[test]
fn late_connections_for_calls_in_progress_get_half_of_a_turn() {
    let accept_wait = Duration::from_millis(1);
    let limits = StreamLimits { accepts: 4, accept_wait, ..StreamLimits::default() };
    let mut scene = Scene::new(limits);
    let _first = TcpStream::connect(scene.local).unwrap();
    let bye =
        b"BYE sip:b@b SIP/2.0\r\nVia: SIP/2.0/TCP a;branch=z9hG4bK1\r\nTo: <sip:b@b>;tag=b\r\n\
                Call-ID: 1\r\nCSeq: 2 BYE\r\nContent-Length: 0\r\n\r\n";
    std::thread::sleep(Duration::from_millis(30));
    scene.connections.poll(scene.now).unwrap();
    let _clients = [(); 6].map(|()| {
        let mut client = TcpStream::connect(scene.local).unwrap();
        client.write_all(bye).unwrap();
        client
    });
    std::thread::sleep(Duration::from_millis(30));
    scene.now = scene.now + LATE_FOR;
    // The queue was empty in between, so these may have waited during a stall.
    scene.connections.poll(scene.now).unwrap();
    assert_eq!(scene.counters.stream_connections.get(), 5);
    let _clients = [(); 4].map(|()| {
        let mut client = TcpStream::connect(scene.local).unwrap();
        client.write_all(bye).unwrap();
        client
    });
    std::thread::sleep(Duration::from_millis(30));
    scene.now = scene.now + LATE_FOR;
    scene.connections.poll(scene.now).unwrap();
    assert_eq!(scene.counters.stream_connections.get(), 5 + 2);
    assert_eq!(scene.counters.stream_accepts_late.get(), 4);
}

/// A pause in accepting may end after the shard has left its addresses.
#[test]
fn a_pause_in_accepting_may_last_longer_than_the_listener() {
    let mut scene = Scene::shared();
    let (_client, _) = scene.accept();
    scene.connections.accepts_from = scene.now + LATE_FOR;
    scene.connections.watch_listeners(epoll::EventFlags::empty()).unwrap();
    scene.connections.leave(scene.now).unwrap();
    scene.connections.poll(scene.now).unwrap();
    scene.now = scene.now + 2 * LATE_FOR;
    scene.connections.poll(scene.now).unwrap();
    assert!(!scene.connections.is_pausing());
}

/// The connections that wait are part of the work that a process completes before it ends.
#[test]
fn all_connections_that_wait_are_accepted_before_an_address_is_left() {
    let mut scene = Scene::shared();
    let count = 3 * StreamLimits::default().accepts;
    let _clients: Vec<_> = (0..count).map(|_| TcpStream::connect(scene.local).unwrap()).collect();
    scene.connections.leave(scene.now).unwrap();
    assert_eq!(scene.counters.stream_connections.get(), count as u64);
}

#[test]
fn an_idle_connection_uses_little_memory() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    client.write_all(MESSAGE).unwrap();
    assert_eq!(scene.message(), MESSAGE);
    scene.post(flow, MESSAGE);
    client.read_exact(&mut [0; MESSAGE.len()]).unwrap();
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    let memory = scene.connections.connections[&flow.connection.unwrap()].memory();
    assert!(memory <= 384, "{memory} bytes");
}

#[test]
fn a_short_wait_is_no_reason_to_close() {
    let accept_wait = Duration::from_secs(3600);
    let mut scene = Scene::new(StreamLimits { accepts: 1, accept_wait, ..StreamLimits::default() });
    let clients = [(); 3].map(|()| TcpStream::connect(scene.local).unwrap());
    std::thread::sleep(Duration::from_millis(30));
    for accepted in 1..=3 {
        scene.connections.poll(scene.now).unwrap();
        assert_eq!(scene.counters.stream_connections.get(), accepted);
        scene.now = scene.now + LATE_FOR;
    }
    drop(clients);
}

/// A request that waited with its connection waits for no further turn.
#[test]
fn the_bytes_of_a_new_connection_are_read_in_the_turn_that_accepts_it() {
    let mut scene = Scene::new(StreamLimits::default());
    // The kernel may still be about to deliver the bytes of one connection.
    let is_read = (0..100).any(|_| {
        let mut client = TcpStream::connect(scene.local).unwrap();
        client.write_all(MESSAGE).unwrap();
        scene.connections.poll(scene.now).unwrap();
        let mut next = || scene.connections.next_event(scene.now, &mut 64);
        assert!(matches!(next(), Some(StreamEvent::Connected(_))));
        let is_read = matches!(next(), Some(StreamEvent::Received(_)));
        while next().is_some() {}
        is_read
    });
    assert!(is_read);
}
