//! The gate of the kernel, in simulated time.

use tidegate_world::{Purpose, Received, Seed, Shedding, Stream};

/// What draws which datagrams are dropped before they are received. It costs nothing.
#[derive(Debug)]
pub(crate) struct Shedder(Stream);

impl Shedder {
    /// That of the host or node with this number.
    pub(crate) fn new(seed: Seed, element: u32) -> Self {
        Self(seed.stream(Purpose::Shedding, element))
    }

    /// Whether a datagram is dropped. Draws only where chance decides.
    pub(crate) fn drops(&mut self, shedding: &Shedding, received: &Received) -> bool {
        let source = received.path.remote.ip();
        shedding.drops(source, &received.bytes, || (self.0.next_u64() >> 32) as u32)
    }
}
