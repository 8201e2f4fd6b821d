//! Tests of accepting connections.

use super::super::accepting::LATE_FOR;
use super::*;

/// Opens a connection whose first bytes are `first`.
fn connect(scene: &Scene, first: &[u8]) -> TcpStream {
    let mut client = TcpStream::connect(scene.local).unwrap();
    client.write_all(first).unwrap();
    client
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
    let mut clients = [(); 3].map(|()| connect(&scene, MESSAGE));
    std::thread::sleep(Duration::from_millis(30));
    // These connections may have waited during a short stall, so they are not late yet.
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
    // The shard serves the first connection, because it may have waited during a short stall only.
    let mut clients = vec![TcpStream::connect(scene.local).unwrap()];
    clients.extend(first.iter().map(|message| connect(&scene, message.as_bytes())));
    std::thread::sleep(Duration::from_millis(30));
    for _ in &clients {
        scene.connections.poll(scene.now).unwrap();
        scene.now = scene.now + LATE_FOR;
    }
    assert_eq!(scene.counters.stream_connections.get(), 1 + 5);
    assert_eq!(scene.counters.stream_accepts_late.get(), 3);
}

/// A stranger can forge the first message of such a connection. So such connections must not keep
/// all new callers waiting.
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
    let _clients = [(); 6].map(|()| connect(&scene, bye));
    std::thread::sleep(Duration::from_millis(30));
    scene.now = scene.now + LATE_FOR;
    // The queue was empty in between, so these connections may have waited during a stall.
    scene.connections.poll(scene.now).unwrap();
    assert_eq!(scene.counters.stream_connections.get(), 5);
    let _clients = [(); 4].map(|()| connect(&scene, bye));
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
    assert!(scene.connections.leave(scene.now));
    scene.connections.poll(scene.now).unwrap();
    scene.now = scene.now + 2 * LATE_FOR;
    scene.connections.poll(scene.now).unwrap();
    assert!(!scene.connections.is_pausing());
}

/// A draining shard must sleep during the pause, and must accept again afterwards.
#[test]
fn a_pause_in_accepting_begins_and_ends_while_the_shard_drains() {
    for drains_first in [true, false] {
        let mut scene = Scene::new(StreamLimits::default());
        let drain = |scene: &mut Scene| assert!(!scene.connections.leave(scene.now));
        if drains_first {
            drain(&mut scene);
        }
        scene.connections.accepts_from = scene.now + LATE_FOR;
        scene.connections.watch_listeners(epoll::EventFlags::empty()).unwrap();
        if !drains_first {
            drain(&mut scene);
        }
        let _client = TcpStream::connect(scene.local).unwrap();
        for accepted in [0, 1] {
            std::thread::sleep(Duration::from_millis(20));
            scene.connections.poll(scene.now).unwrap();
            assert_eq!(scene.counters.stream_connections.get(), accepted);
            scene.now = scene.now + LATE_FOR;
        }
    }
}

/// The connections that wait are part of the work that a process completes before it ends.
#[test]
fn all_connections_that_wait_are_accepted_before_an_address_is_left() {
    let mut scene = Scene::shared();
    let count = 3 * StreamLimits::default().accepts;
    let _clients: Vec<_> = (0..count).map(|_| TcpStream::connect(scene.local).unwrap()).collect();
    assert!(scene.connections.leave(scene.now));
    assert_eq!(scene.counters.stream_connections.get(), count as u64);
}

#[test]
fn an_address_of_this_process_alone_is_not_left() {
    let mut scene = Scene::new(StreamLimits::default());
    assert!(!scene.connections.leave(scene.now));
    let (_client, _) = scene.accept();
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

/// A request that has waited with its connection must not wait for another turn.
#[test]
fn the_bytes_of_a_new_connection_are_read_in_the_turn_that_accepts_it() {
    let mut scene = Scene::new(StreamLimits::default());
    // The kernel may still be about to deliver the bytes of one connection.
    let is_read = (0..100).any(|_| {
        let _client = connect(&scene, MESSAGE);
        scene.connections.poll(scene.now).unwrap();
        let mut next = || scene.connections.next_event(scene.now, &mut 64);
        assert!(matches!(next(), Some(StreamEvent::Connected(_))));
        let is_read = matches!(next(), Some(StreamEvent::Received(_)));
        while next().is_some() {}
        is_read
    });
    assert!(is_read);
}

/// The gate measures how long new calls have waited. This includes the time for which their
/// connection waits to be accepted.
#[test]
fn a_message_that_waited_with_its_connection_has_arrived_before() {
    let mut scene = Scene::new(StreamLimits::default());
    scene.now = Timestamp::ZERO + Duration::from_secs(1000);
    let client = TcpStream::connect(scene.local).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    let sent = std::time::Instant::now();
    (&client).write_all(MESSAGE).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    scene.connections.poll(scene.now).unwrap();
    let mut next = || scene.connections.next_event(scene.now, &mut 64);
    assert!(matches!(next(), Some(StreamEvent::Connected(_))));
    let Some(StreamEvent::Received(received)) = next() else { panic!("not read") };
    let waited = scene.now.since(received.arrived);
    assert!(waited >= Duration::from_millis(40), "{waited:?}");
    assert!(waited <= sent.elapsed(), "{waited:?}");
}
