//! Tests of connections whose peer has ended its own side.

use std::net::Shutdown;

use super::*;

/// Takes turns until the connection is being closed.
fn wait_for_end(scene: &mut Scene, id: ConnectionId) {
    for _ in 0..1000 {
        if scene.connections.connections[&id].state == State::Closing {
            return;
        }
        scene.connections.poll(scene.now).unwrap();
        assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the connection stays open");
}

/// RFC 3261 §18.2.2: "the response MUST be sent using the existing connection to the source of the
/// original request that created the transaction, if that connection is still open."
#[test]
fn a_peer_that_has_ended_its_side_gets_what_is_being_sent() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    let filled = scene.fill(flow);
    client.shutdown(Shutdown::Write).unwrap();
    wait_for_end(&mut scene, flow.connection.unwrap());
    scene.post(flow, b"last");
    assert_eq!(scene.counters.stream_unconnected.get(), 0);
    let posted = filled + "last".len();
    let read = scene.read(&mut client, posted);
    assert!(read.ends_with(b"xlast"));
    assert_eq!(scene.closed(), CloseCause::Ended);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert_eq!(scene.counters.stream_cut_off.get(), 0);
}

/// A peer that does not read must not keep its connection, nor the memory of an incomplete message.
#[test]
fn a_peer_that_has_ended_its_side_and_does_not_read_is_closed() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    scene.fill(flow);
    client.write_all(&MESSAGE[..20]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    wait_for_end(&mut scene, flow.connection.unwrap());
    assert_eq!(scene.connections.held, 0);
    let due = scene.now + StreamLimits::default().linger;
    assert_eq!(scene.connections.timers.next(), Some(due));
    scene.now = due;
    assert_eq!(scene.closed(), CloseCause::CutOff);
    assert_eq!(scene.counters.stream_cut_off.get(), 1);
    assert_eq!((scene.connections.held, scene.connections.unsent), (0, 0));
}

/// When a back end ends its side, requests must go to another back end at once.
#[test]
fn a_connection_that_the_core_has_opened_ends_with_the_side_of_its_peer() {
    let mut scene = Scene::new(StreamLimits::default());
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    scene.open(Transport::Tcp, server.local_addr().unwrap());
    let Some(StreamEvent::Connected(flow)) = scene.next() else { panic!("not opened") };
    let back_end = server.accept().unwrap().0;
    scene.fill(flow);
    back_end.shutdown(Shutdown::Write).unwrap();
    assert_eq!(scene.closed(), CloseCause::Ended);
}
