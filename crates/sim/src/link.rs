//! Links: what happens to a packet on its way.

use std::time::Duration;

use tidegate_world::Stream;

/// One way between two hosts; all packets are treated alike and independently.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    /// Time every packet takes.
    pub delay: Duration,
    /// Additional time, uniform in `0..jitter`; more than the gap between two
    /// packets reorders them.
    pub jitter: Duration,
    /// Fraction of packets that are lost, 0..1.
    pub loss: f64,
}

impl Link {
    /// A link that delays and does nothing else.
    pub fn delaying(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// How long a packet takes; `None` if it is lost.
    pub(crate) fn carry(&self, stream: &mut Stream) -> Option<Duration> {
        if self.loss > 0.0 && stream.unit() < self.loss {
            return None;
        }
        let jitter = match self.jitter.as_nanos() as u64 {
            0 => 0,
            most => stream.below(most),
        };
        Some(self.delay + Duration::from_nanos(jitter))
    }
}
