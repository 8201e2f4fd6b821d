use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use tidegate_world::{Connect, Flow, STREAM_WINDOW, ShardIndex, Transport};

use super::*;
use crate::stream_group::StreamListen;
use crate::{Origins, StreamGroup, TlsServer};

#[path = "connections_tests/accepting.rs"]
mod accepting;
#[path = "connections_tests/deadlines.rs"]
mod deadlines;
#[path = "connections_tests/ending.rs"]
mod ending;
#[path = "connections_tests/half_closed.rs"]
mod half_closed;
#[path = "connections_tests/memory.rs"]
mod memory;
#[path = "connections_tests/tls.rs"]
mod tls;
#[path = "connections_tests/turns.rs"]
mod turns;
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
        let connections = Connections::new(
            ShardIndex::ALONE,
            listeners,
            limits,
            peers,
            None,
            Arc::clone(&counters),
            pool.clone(),
        )
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

    /// Lets the core open a connection.
    fn open(&mut self, transport: Transport, remote: SocketAddr) -> ConnectionId {
        let (id, local) = (ConnectionId::FIRST_OPENED, self.local);
        self.connections.connect(Connect { id, transport, local, remote });
        id
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

    /// Takes all events that are available without new bytes from the kernel.
    fn settle(&mut self) {
        while self.connections.next_event(self.now, &mut 64).is_some() {}
    }

    /// Posts bytes until the sockets of both ends are full. Returns the number of bytes.
    fn fill(&mut self, flow: Flow) -> usize {
        let block = vec![b'x'; STREAM_WINDOW / 2];
        let mut posted = 0;
        while !self.connections.connections[&flow.connection.unwrap()].waits_for_room {
            self.post(flow, &block);
            posted += block.len();
            self.settle();
        }
        posted
    }

    /// Reads `count` bytes as the peer, while the shard goes on sending.
    fn read(&mut self, client: &mut TcpStream, count: usize) -> Vec<u8> {
        let (mut read, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
        while read.len() < count {
            let newly = client.read(&mut buffer).unwrap();
            assert!(newly > 0, "the connection ended after {} bytes", read.len());
            read.extend_from_slice(&buffer[..newly]);
            self.connections.poll(self.now).unwrap();
        }
        read
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
    // Another byte does not extend the time limit.
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

/// The contract of [`Core`](tidegate_world::Core), section "Connections", item 3, demands this.
#[test]
fn the_core_is_told_when_it_may_send_again() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    scene.post(flow, b"short");
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    let posted = "short".len() + scene.fill(flow);
    let mut read = 0;
    let mut buffer = vec![0; 1 << 20];
    while read < posted {
        read += client.read(&mut buffer).unwrap();
        scene.connections.poll(scene.now).unwrap();
    }
    assert!(matches!(scene.next(), Some(StreamEvent::Writable(id)) if Some(id) == flow.connection));
}

/// Without this rule, each message would cost two system calls: `writev(2)` and `epoll_ctl(2)`.
#[test]
fn a_message_for_which_the_socket_has_room_changes_no_watched_events() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    let id = flow.connection.unwrap();
    let connection = &scene.connections.connections[&id];
    // From now on, changing the events of this connection fails and closes the connection.
    scene.connections.watcher.remove(id, connection.stream()).unwrap();
    scene.post(flow, MESSAGE);
    client.read_exact(&mut [0; MESSAGE.len()]).unwrap();
    let event = scene.connections.next_event(scene.now, &mut 64);
    assert!(event.is_none(), "{event:?}");
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
    scene.fill(flow);
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
