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

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;

    const JITTER: Duration = Duration::from_millis(2);

    fn stream() -> Stream {
        Seed(1).stream(Purpose::Link, 0)
    }

    #[test]
    fn a_link_draws_for_what_it_does_and_for_nothing_else() {
        let link = Link { jitter: JITTER, ..Link::delaying(Duration::from_millis(5)) };
        let drawn = stream().below(2_000_000);
        let took = link.carry(&mut stream()).unwrap();
        assert_eq!(took, Duration::from_millis(5) + Duration::from_nanos(drawn));

        let mut untouched = stream();
        Link::delaying(JITTER).carry(&mut untouched);
        assert_eq!(untouched.next_u64(), stream().next_u64());
    }

    #[test]
    fn a_packet_is_lost_when_its_draw_is_below_the_loss() {
        let drawn = stream().unit();
        let loses = |loss| Link { loss, ..Link::default() }.carry(&mut stream()).is_none();
        assert!(!loses(drawn) && loses(drawn.next_up()));
    }
}
