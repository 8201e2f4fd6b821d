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
        // All bytes arrive once.
        let posted = filled + STREAM_WINDOW / size * size;
        let mut read = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        while read.len() < posted {
            let count = client.read(&mut buffer).unwrap();
            read.extend_from_slice(&buffer[..count]);
            scene.connections.poll(scene.now).unwrap();
        }
        assert_eq!(read.len(), posted);
        assert!(read[filled..].chunks(2).all(|pair| pair == b"\r\n"));
    }
}

#[test]
fn a_peer_that_fills_the_memory_costs_no_other_one_its_connection() {
    let mut scene = Scene::new(StreamLimits { held_max: 100, ..StreamLimits::default() });
    let (mut hog, _) = scene.accept();
    let head = b"OPTIONS sip:a@b SIP/2.0\r\nContent-Length: 999\r\n\r\n";
    hog.write_all(&[&head[..], &[b'x'; 40]].concat()).unwrap();
    while scene.connections.held < 80 {
        scene.connections.poll(scene.now).unwrap();
        scene.settle();
    }
    let (mut small, _) = scene.accept();
    let begin = |scene: &mut Scene, client: &mut TcpStream| {
        client.write_all(&MESSAGE[..20]).unwrap();
        while scene.connections.held <= 100 {
            scene.connections.poll(scene.now).unwrap();
            assert!(scene.connections.next_event(scene.now, &mut 64).is_none());
        }
    };
    begin(&mut scene, &mut small);
    small.write_all(&MESSAGE[20..]).unwrap();
    assert_eq!(scene.message(), MESSAGE);
    scene.settle();
    // The first client already holds more than its share.
    begin(&mut scene, &mut small);
    hog.write_all(b"x").unwrap();
    assert_eq!(scene.closed(), CloseCause::Garbled);
    assert_eq!((scene.counters.stream_held_full.get(), scene.connections.held), (1, 20));
}
