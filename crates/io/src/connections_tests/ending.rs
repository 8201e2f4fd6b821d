//! Tests of the end of all connections.

use super::*;

/// Bytes of the peer that are not read would make the kernel reset the connection.
#[test]
fn the_end_of_a_connection_is_no_reset() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    scene.post(flow, b"last");
    client.write_all(MESSAGE).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    scene.connections.close_all(scene.now);
    assert!(scene.connections.is_empty());
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "last");
}

#[test]
fn no_connection_is_accepted_at_the_end_and_slow_peers_get_everything() {
    let mut scene = Scene::new(StreamLimits::default());
    let (mut client, flow) = scene.accept();
    let posted = scene.fill(flow);
    scene.connections.close_all(scene.now);
    let _late = TcpStream::connect(scene.local).unwrap();
    let mut read = 0;
    let mut buffer = vec![0; 1 << 20];
    while read < posted {
        read += client.read(&mut buffer).unwrap();
        scene.connections.poll(scene.now).unwrap();
        assert!(scene.connections.connections.len() <= 1);
    }
    assert_eq!(client.read(&mut buffer).unwrap(), 0);
    assert!(scene.connections.is_empty());
}
