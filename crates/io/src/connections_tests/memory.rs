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
