//! Tests of the order in which connections are read.

use super::*;

/// Writes bytes, and waits until the kernel reports them.
fn write(scene: &mut Scene, client: &mut TcpStream, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    scene.connections.poll(scene.now).unwrap();
}

/// Opens a connection to a back end. Returns its number, and the socket of the back end.
fn back_end(scene: &mut Scene) -> (ConnectionId, TcpStream) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let id = scene.open(Transport::Tcp, server.local_addr().unwrap());
    assert!(matches!(scene.next(), Some(StreamEvent::Connected(_))));
    (id, server.accept().unwrap().0)
}

#[test]
fn a_connection_that_never_pauses_leaves_the_others_their_turn() {
    let mut scene = Scene::new(StreamLimits::default());
    let ((mut busy, _), (mut other, _)) = (scene.accept(), scene.accept());
    write(&mut scene, &mut busy, &PING.repeat(12 * 1024));
    let first = scene.connections.next_event(scene.now, &mut 1);
    assert!(matches!(first, Some(StreamEvent::Received(_))));
    other.write_all(MESSAGE).unwrap();
    let is_served = (0..512).any(|_| scene.message() == MESSAGE);
    assert!(is_served, "within two turns of the shard");
}

/// The core has no limit for keep-alives. So a peer with many connections could delay all others.
#[test]
fn a_connection_passes_on_one_keep_alive_in_a_turn() {
    let mut scene = Scene::new(StreamLimits::default());
    let ((mut pinging, _), (mut trunk, _)) = (scene.accept(), scene.accept());
    write(&mut scene, &mut pinging, &PING.repeat(100));
    write(&mut scene, &mut trunk, &MESSAGE.repeat(64));
    let received: Vec<_> = (0..68).map(|_| scene.message()).collect();
    assert_eq!(received.iter().filter(|bytes| bytes[..] == *MESSAGE).count(), 64);
}

/// Each call reports a limited number of connections, and unread connections again and again.
#[test]
fn unread_connections_of_peers_do_not_delay_back_ends_and_new_connections() {
    let mut scene = Scene::new(StreamLimits::default());
    let (id, mut back_end) = back_end(&mut scene);
    let mut callers: Vec<_> = (0..=EVENTS).map(|_| scene.accept().0).collect();
    for caller in &mut callers {
        caller.write_all(PING).unwrap();
    }
    write(&mut scene, &mut back_end, MESSAGE);
    let is_it =
        |event| matches!(event, StreamEvent::Received(it) if it.flow.connection == Some(id));
    let events = std::iter::from_fn(|| scene.connections.next_event(scene.now, &mut 64));
    assert!(events.take(2).any(is_it), "the back end has every second turn");
    scene.settle();
    // Unread connections of peers do not delay new connections either.
    for caller in &mut callers {
        caller.write_all(PING).unwrap();
    }
    std::thread::sleep(Duration::from_millis(20));
    let _new = TcpStream::connect(scene.local).unwrap();
    scene.connections.poll(scene.now).unwrap();
    let event = scene.connections.next_event(scene.now, &mut 64);
    assert!(matches!(event, Some(StreamEvent::Connected(_))), "{event:?}");
}

/// A connection that passes on 16 messages keeps the others that it has read. If there is no memory for
/// that, it first passes on all of them.
#[test]
fn the_bytes_that_wait_for_their_turn_have_a_limited_memory() {
    for (held_max, most) in [(READ, READ), (64 << 20, 2 * READ)] {
        let mut scene = Scene::new(StreamLimits { held_max, ..StreamLimits::default() });
        let mut clients = [scene.accept().0, scene.accept().0];
        for client in &mut clients {
            write(&mut scene, client, &PING.repeat(12 * 1024));
        }
        let mut held = 0;
        for _ in 0..64 {
            assert_eq!(scene.message(), PING);
            held = held.max(scene.connections.held);
        }
        assert_eq!(held, most);
        for _ in 64..2 * 12 * 1024 {
            assert_eq!(scene.message(), PING);
            assert!(scene.connections.held <= most);
        }
    }
}

/// Returns the time of arrival of the next message, which is read after `s` seconds.
/// The seconds are those of the scene, so that the real time that the test takes does not matter.
fn arrival(scene: &mut Scene, s: u32) -> Timestamp {
    scene.now = at(s);
    match scene.connections.next_event(scene.now, &mut 64) {
        Some(StreamEvent::Received(received)) => received.arrived,
        other => panic!("{other:?}"),
    }
}

fn at(s: u32) -> Timestamp {
    Timestamp::ZERO + s * Duration::from_secs(1)
}

/// The gate measures how long new calls have waited. This includes the time for which they wait in
/// a socket.
#[test]
fn a_message_arrives_when_its_connection_becomes_readable() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut first, _) = scene.accept();
    let (mut second, _) = scene.accept();
    for (s, client, count) in [(10, &mut first, 17), (20, &mut second, 1)] {
        scene.now = at(s);
        write(&mut scene, client, &MESSAGE.repeat(count));
    }
    // Bytes that wait in a socket keep their time of arrival when the kernel reports them again.
    scene.now = at(30);
    scene.connections.poll(scene.now).unwrap();
    for s in 40..56 {
        assert_eq!(arrival(&mut scene, s), at(10));
    }
    assert_eq!(arrival(&mut scene, 60), at(20));
    // The first connection is in the queue, because one of its messages has been read but not
    // passed on. Its socket was empty until now.
    scene.now = at(70);
    write(&mut scene, &mut first, MESSAGE);
    assert_eq!(arrival(&mut scene, 80), at(10));
    assert_eq!(arrival(&mut scene, 90), at(70));
    scene.settle();
    scene.now = at(100);
    write(&mut scene, &mut first, MESSAGE);
    assert_eq!(arrival(&mut scene, 110), at(100));
}

/// The messages that wait in the socket must not seem to have waited only since the last system
/// call.
#[test]
fn the_bytes_that_one_call_leaves_in_the_socket_arrive_at_the_time_of_that_call() {
    const MESSAGES: usize = READ / PING.len();
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, _) = scene.accept();
    scene.now = at(10);
    write(&mut scene, &mut client, &PING.repeat(4 * MESSAGES));
    for (s, arrived) in [(20, 10), (40, 20), (60, 20), (80, 20), (100, 80)] {
        if s == 60 {
            // These messages arrive after the system call at 40 s. The system call at 80 s reads
            // the last of the earlier messages, and leaves these in the socket.
            write(&mut scene, &mut client, &PING.repeat(MESSAGES));
        }
        for _ in 0..MESSAGES {
            assert_eq!(arrival(&mut scene, s), at(arrived), "read at {s} s");
        }
    }
}

/// A shard with much work learns late that a connection has bytes.
#[test]
fn a_message_has_arrived_when_the_kernel_received_it() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, _) = scene.accept();
    let sent = std::time::Instant::now();
    client.write_all(MESSAGE).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    scene.now = at(1000);
    scene.connections.poll(scene.now).unwrap();
    let waited = scene.now.since(arrival(&mut scene, 1000));
    assert!((Duration::from_millis(60)..=sent.elapsed()).contains(&waited), "{waited:?}");
}

/// A peer could send the end of a message long before its beginning. The kernel tells the time of
/// the end.
#[test]
fn a_message_has_not_arrived_while_there_was_nothing_to_read() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, _) = scene.accept();
    scene.now = at(1000);
    scene.connections.poll(scene.now).unwrap();
    client.write_all(MESSAGE).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    // In the time of the scene, the kernel received the message before the last poll.
    scene.now = at(1000) + Duration::from_millis(10);
    scene.connections.poll(scene.now).unwrap();
    match scene.connections.next_event(scene.now, &mut 64) {
        Some(StreamEvent::Received(received)) => assert_eq!(received.arrived, at(1000)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_call_reads_a_limited_number_of_bytes_also_after_a_long_message() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    let long = format!("OPTIONS sip:a@b SIP/2.0\r\nl: 60000\r\n\r\n{}", "x".repeat(60_000));
    client.write_all(long.as_bytes()).unwrap();
    assert_eq!(scene.message(), long.as_bytes());
    assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    write(&mut scene, &mut client, &PING.repeat(12 * 1024));
    assert_eq!(scene.message(), PING);
    assert_eq!(scene.connections.connections[&flow.connection.unwrap()].held(), READ);
}

/// A peer that opens and ends connections must not use up the turns of others.
#[test]
fn connections_that_have_ended_take_no_part_of_a_turn() {
    let mut scene = Scene::new(StreamLimits::default());
    let mut clients = [(); 3].map(|()| scene.accept());
    for (client, _) in &mut clients {
        write(&mut scene, client, PING);
    }
    for (_, flow) in &clients[..2] {
        scene.connections.close(flow.connection.unwrap());
    }
    let mut budget = 3;
    let mut next = || scene.connections.next_event(scene.now, &mut budget);
    assert!(matches!(next(), Some(StreamEvent::Closed(..))));
    assert!(matches!(next(), Some(StreamEvent::Closed(..))));
    assert!(matches!(next(), Some(StreamEvent::Received(_))));
}

/// Peers repeat no message over TCP. So a BYE that is not read is lost.
#[test]
fn a_message_that_came_before_a_reset_is_received() {
    for posts in 1..=2 {
        let mut scene = Scene::new(StreamLimits::default());
        let (mut client, flow) = scene.accept();
        client.write_all(MESSAGE).unwrap();
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        std::thread::sleep(Duration::from_millis(20));
        // Sending fails, because the peer has reset the connection.
        for _ in 0..posts {
            scene.post(flow, b"180");
        }
        assert_eq!(scene.message(), MESSAGE);
        assert_eq!(scene.closed(), CloseCause::Reset);
        scene.post(flow, b"180");
        assert_eq!(scene.counters.stream_unconnected.get(), posts);
    }
}
