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

/// A sender that writes blocks of a fixed size under load does this.
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
