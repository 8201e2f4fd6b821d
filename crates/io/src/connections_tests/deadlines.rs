//! Tests of the time limits of connections.

use super::*;

/// Takes turns until the connection waits for the rest of a message.
fn wait_for_timer(scene: &mut Scene) {
    for _ in 0..1000 {
        if scene.connections.timers.next().is_some() {
            return;
        }
        scene.connections.poll(scene.now).unwrap();
        assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no timer");
}

/// A sender that writes blocks of a fixed size under load ends most blocks within a message.
#[test]
fn a_busy_connection_is_not_slow_although_each_read_ends_within_a_message() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, _) = scene.accept();
    client.write_all(&[MESSAGE, &MESSAGE[..20]].concat()).unwrap();
    assert_eq!(scene.message(), MESSAGE);
    wait_for_timer(&mut scene);
    for _ in 0..4 {
        scene.now = scene.now + StreamLimits::default().message / 2;
        client.write_all(&[&MESSAGE[20..], &MESSAGE[..20]].concat()).unwrap();
        assert_eq!(scene.message(), MESSAGE);
        assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
    }
    // The last message began with the last read.
    let due = scene.now + StreamLimits::default().message;
    while scene.now < due {
        assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
        scene.now = scene.connections.due();
        scene.connections.poll(scene.now).unwrap();
    }
    assert_eq!((scene.now, scene.closed()), (due, CloseCause::TimedOut));
}

/// The core closes a connection on which no message arrives in time. Its limit for the first message
/// may pass shortly before the limit for the rest of a message, or at the same time.
#[test]
fn a_connection_that_the_core_closes_within_a_message_is_slow() {
    for (start, cause, slow) in [
        (&b"O"[..], CloseCause::TimedOut, 1),
        (b"\r\n", CloseCause::Asked, 0),
        (b"", CloseCause::Asked, 0),
    ] {
        let mut scene = Scene::new(StreamLimits::default());
        let (mut client, flow) = scene.accept();
        client.write_all(start).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        scene.connections.poll(scene.now).unwrap();
        assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
        scene.connections.close(flow.connection.unwrap());
        assert_eq!(scene.closed(), cause, "{start:?}");
        assert_eq!(scene.counters.stream_slow.get(), slow, "{start:?}");
    }
}

/// RFC 3261 §7.5: "Implementations processing SIP messages over stream-oriented transports MUST ignore any
/// CRLF appearing before the start-line".
#[test]
fn a_line_end_between_messages_has_no_time_limit() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    for end in [&b"\r\n"[..], b"\r", b"\n\r\n\r"] {
        client.write_all(&[MESSAGE, end].concat()).unwrap();
        assert_eq!(scene.message(), MESSAGE);
        assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
        assert_eq!(scene.connections.due(), Timestamp::NEVER);
        assert!(scene.connections.connections[&flow.connection.unwrap()].held() > 0);
        client.write_all(b"\n").unwrap();
        scene.connections.poll(scene.now).unwrap();
    }
}

/// The kernel ends an idle connection after one unanswered keep-alive test if `TCP_USER_TIMEOUT`
/// has passed since the last packet of the peer.
#[test]
fn one_lost_test_does_not_end_an_idle_connection() {
    let mut scene = Scene::new(StreamLimits::default());
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_client, accepted) = scene.accept();
    scene.open(Transport::Tcp, server.local_addr().unwrap());
    let Some(StreamEvent::Connected(opened)) = scene.next() else { panic!("not opened") };
    let mut limits = [accepted, opened].map(|flow| {
        let connection = &scene.connections.connections[&flow.connection.unwrap()];
        let socket = socket2::SockRef::from(connection.stream());
        let tests = socket.tcp_keepalive_retries().unwrap();
        assert!(tests >= 4);
        let tested = socket.tcp_keepalive_interval().unwrap() * tests;
        let limit = socket.tcp_user_timeout().unwrap().expect("a limit");
        assert_eq!(limit, socket.tcp_keepalive_time().unwrap() + tested);
        limit.as_secs()
    });
    limits.sort_unstable();
    assert_eq!(limits, [30, 180], "a back end that is gone is noticed early");
}

#[test]
fn a_closing_connection_that_was_queued_for_reading_still_has_a_time_limit() {
    for has_begun in [false, true] {
        let mut scene = Scene::new(StreamLimits::default());
        let (mut client, flow) = scene.accept();
        let id = flow.connection.unwrap();
        scene.fill(flow);
        client.write_all(b"O").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        scene.connections.poll(scene.now).unwrap();
        if has_begun {
            // The connection holds the beginning of a message, and more bytes of it arrive.
            assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
            client.write_all(b"P").unwrap();
            std::thread::sleep(Duration::from_millis(20));
            scene.connections.poll(scene.now).unwrap();
        }
        assert!(!scene.connections.readable.is_empty());
        let take_events = |scene: &mut Scene| {
            assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
        };
        scene.connections.close(id);
        // The core may close the connection while it handles the events of a turn.
        if has_begun {
            take_events(&mut scene);
        }
        scene.connections.flush(scene.now);
        if !has_begun {
            take_events(&mut scene);
        }
        let due = scene.now + StreamLimits::default().linger;
        assert!(scene.connections.timers.next().is_some_and(|first| first <= due));
        scene.now = due;
        assert_eq!(scene.closed(), CloseCause::Asked);
        assert_eq!(scene.counters.stream_cut_off.get(), 1);
    }
}
