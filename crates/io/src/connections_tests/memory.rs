//! Tests of the memory that peers can take.

use super::*;

/// Maximum number of buffers for a window of short messages. A buffer of the pool takes 2 KiB, however
/// short its message is.
pub(super) const BUFFERS_MAX: u64 = 2 * (STREAM_WINDOW / 2048) as u64;

/// Posts short messages of one size until they fill a window. Returns the number of buffers that they
/// take.
pub(super) fn buffers_of_window(scene: &mut Scene, flow: Flow, size: usize) -> u64 {
    let before = scene.pool.used().live;
    for _ in 0..STREAM_WINDOW / size {
        scene.post(flow, &b"\r\n".repeat(size / 2));
    }
    scene.pool.used().live - before
}

/// A peer that sends pings or requests and reads nothing gets a window of pongs or responses.
#[test]
fn short_messages_for_a_peer_that_does_not_read_share_buffers() {
    for size in [2, 300] {
        let mut scene = Scene::new(StreamLimits::default());
        let (mut client, flow) = scene.accept();
        let filled = scene.fill(flow);
        let buffers = buffers_of_window(&mut scene, flow, size);
        assert!(buffers <= BUFFERS_MAX, "{buffers} buffers of {size} bytes");
        // Every byte arrives once.
        let posted = filled + STREAM_WINDOW / size * size;
        let read = scene.read(&mut client, posted);
        assert_eq!(read.len(), posted);
        assert!(read[filled..].chunks(2).all(|pair| pair == b"\r\n"));
    }
}

/// Returns the head of a message with a body of this length. It has 48 bytes.
fn head(length: usize) -> String {
    format!("OPTIONS sip:a@b SIP/2.0\r\nContent-Length: {length:03}\r\n\r\n")
}

/// Sends bytes, and takes turns until the shard holds them.
fn hold(scene: &mut Scene, client: &mut TcpStream, bytes: &str) {
    let expected = scene.connections.held + bytes.len();
    client.write_all(bytes.as_bytes()).unwrap();
    while scene.connections.held < expected {
        scene.connections.poll(scene.now).unwrap();
        scene.settle();
    }
}

/// Returns the number of the connection that is closed next for lack of memory.
fn closed_for_memory(scene: &mut Scene) -> Option<ConnectionId> {
    match scene.next() {
        Some(StreamEvent::Closed(id, CloseCause::Garbled)) => Some(id),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_peer_that_fills_the_memory_costs_no_other_one_its_connection() {
    let mut scene = Scene::new(StreamLimits { held_max: 100, ..StreamLimits::default() });
    let (mut hog, flow) = scene.accept();
    hold(&mut scene, &mut hog, &format!("{}{}", head(999), "x".repeat(40)));
    let (mut small, _) = scene.accept();
    small.write_all(&MESSAGE[..20]).unwrap();
    assert_eq!(closed_for_memory(&mut scene), flow.connection);
    assert_eq!((scene.counters.stream_held_full.get(), scene.connections.held), (1, 20));
    small.write_all(&MESSAGE[20..]).unwrap();
    assert_eq!(scene.message(), MESSAGE);
}

/// Strangers that hold no more than their share of the memory must not make the next long message
/// lose its connection.
#[test]
fn the_messages_that_are_incomplete_for_the_longest_time_make_room() {
    let mut scene = Scene::new(StreamLimits { held_max: 300, ..StreamLimits::default() });
    let mut strangers = [(); 3].map(|()| scene.accept());
    let (mut caller, _) = scene.accept();
    for (stranger, _) in &mut strangers {
        hold(&mut scene, stranger, &format!("{}{}", head(999), "x".repeat(22)));
        scene.now = scene.now + Duration::from_secs(1);
    }
    let message = format!("{}{}", head(200), "y".repeat(200));
    caller.write_all(&message.as_bytes()[..200]).unwrap();
    for (_, flow) in &strangers[..2] {
        assert_eq!(closed_for_memory(&mut scene), flow.connection);
    }
    caller.write_all(&message.as_bytes()[200..]).unwrap();
    assert_eq!(scene.message(), message.as_bytes());
    // The memory of a message is freed when its connection is read again.
    scene.connections.poll(scene.now).unwrap();
    scene.settle();
    assert_eq!((scene.counters.stream_held_full.get(), scene.connections.held), (2, 70));
}

/// The part of the memory that counts as small shrinks when there are more connections. A
/// connection that last read before may then take more than this part. If it were not listed,
/// strangers that do not send again would keep their memory, and others would lose their
/// connections.
#[test]
fn a_connection_makes_room_even_if_it_was_small_when_it_last_read() {
    let held_max = 40_000;
    let mut scene = Scene::new(StreamLimits { held_max, ..StreamLimits::default() });
    let begun = |bytes: usize| {
        let head = head(9999);
        let body = "x".repeat(bytes - head.len());
        head + &body
    };
    let mut strangers = [(); 8].map(|()| scene.accept());
    for (stranger, _) in &mut strangers {
        hold(&mut scene, stranger, &begun(2000));
    }
    assert!(2000 < scene.connections.small);
    scene.now = scene.now + Duration::from_secs(1);
    let mut others = [(); 26].map(|()| scene.accept());
    for (other, _) in &mut others {
        hold(&mut scene, other, &begun(900));
    }
    assert!(scene.connections.held + 700 > held_max);
    let (mut caller, _) = scene.accept();
    caller.write_all(begun(700).as_bytes()).unwrap();
    assert_eq!(closed_for_memory(&mut scene), strangers[0].1.connection);
    assert_eq!(scene.counters.stream_held_full.get(), 1);
    // When the other connections have ended, this one may hold 2,048 bytes again.
    drop((strangers, others));
    while scene.connections.connections.len() > 1 {
        assert!(scene.next().is_some());
    }
    caller.write_all(b"x").unwrap();
    while scene.connections.held < 701 {
        scene.connections.poll(scene.now).unwrap();
        scene.settle();
    }
    assert_eq!((scene.connections.held, scene.connections.small), (701, 2048));
}

/// Peers must not be able to close the connections to back ends.
#[test]
fn peers_that_fill_the_memory_do_not_cost_a_connection_that_the_core_has_opened() {
    let mut scene = Scene::new(StreamLimits { held_max: 150, ..StreamLimits::default() });
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    scene.open(Transport::Tcp, server.local_addr().unwrap());
    assert!(matches!(scene.next(), Some(StreamEvent::Connected(_))));
    let mut back_end = server.accept().unwrap().0;
    hold(&mut scene, &mut back_end, &format!("{}{}", head(999), "x".repeat(42)));
    scene.now = scene.now + Duration::from_secs(1);
    let (mut stranger, flow) = scene.accept();
    stranger.write_all(format!("{}{}", head(999), "x".repeat(22)).as_bytes()).unwrap();
    assert_eq!(closed_for_memory(&mut scene), flow.connection);
    assert_eq!(scene.connections.held, 90);
}

/// Without a limit, each peer that reads no response would take a window of memory.
#[test]
fn messages_that_peers_do_not_read_have_a_limited_memory() {
    const BLOCK: usize = STREAM_WINDOW / 2;
    let limits = StreamLimits { held_max: 8 * BLOCK, ..StreamLimits::default() };
    let mut scene = Scene::new(limits);
    let clients = [(); 3].map(|()| scene.accept());
    for &(_, flow) in &clients {
        scene.fill(flow);
        for _ in 0..2 {
            scene.post(flow, &[b'x'; BLOCK]);
        }
        scene.now = scene.now + Duration::from_secs(1);
    }
    match scene.connections.next_event(scene.now, &mut 64) {
        Some(StreamEvent::Closed(id, CloseCause::Other)) => {
            assert_eq!(Some(id), clients[0].1.connection, "the first one waits longest");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((scene.counters.stream_held_full.get(), scene.connections.unsent), (1, 6 * BLOCK));
    drop(clients);
    while !scene.connections.is_empty() {
        scene.next();
    }
    assert_eq!(scene.connections.unsent, 0);
}
