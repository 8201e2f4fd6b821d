//! Links: what happens to a packet on its way.

use std::time::Duration;

use tidegate_world::Stream;

/// One way between two hosts; all packets are treated alike and independently.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// Time every packet takes.
    pub delay: Duration,
    /// Additional time, uniform in `0..jitter`; more than the gap between two
    /// packets reorders them.
    pub jitter: Duration,
    /// Fraction of packets that are lost, 0..1.
    pub loss: f64,
    /// Fraction of packets that arrive at once, 0..1: before those that were sent within
    /// `delay` before them.
    pub reorder: f64,
    /// Fraction of packets that arrive twice, 0..1, each copy on a way of its own.
    pub duplicate: f64,
}

/// What becomes of a packet that is not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    pub first: Trip,
    pub copy: Option<Trip>,
}

/// How one packet gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trip {
    /// How long it takes.
    pub after: Duration,
    /// Whether it overtakes those before it.
    pub overtakes: bool,
}

impl Link {
    /// A link that delays and does nothing else.
    pub fn delaying(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// How a packet is carried; `None` if it is lost.
    pub(crate) fn carry(&self, stream: &mut Stream) -> Option<Carried> {
        if happens(self.loss, stream) {
            return None;
        }
        let copied = happens(self.duplicate, stream);
        let first = self.trip(stream);
        Some(Carried { first, copy: copied.then(|| self.trip(stream)) })
    }

    fn trip(&self, stream: &mut Stream) -> Trip {
        if happens(self.reorder, stream) {
            return Trip { after: Duration::ZERO, overtakes: true };
        }
        let jitter = match self.jitter.as_nanos() as u64 {
            0 => 0,
            most => stream.below(most),
        };
        Trip { after: self.delay + Duration::from_nanos(jitter), overtakes: false }
    }
}

/// Draws only for what can happen: what a link does not do disturbs no other trace.
fn happens(share: f64, stream: &mut Stream) -> bool {
    share > 0.0 && stream.unit() < share
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
        let after = Duration::from_millis(5) + Duration::from_nanos(drawn);
        let first = Trip { after, overtakes: false };
        assert_eq!(link.carry(&mut stream()), Some(Carried { first, copy: None }));

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

    #[test]
    fn one_that_overtakes_takes_no_time() {
        let link = Link { reorder: 1.0, jitter: JITTER, ..Link::delaying(JITTER) };
        let way = link.carry(&mut stream()).unwrap().first;
        assert_eq!(way, Trip { after: Duration::ZERO, overtakes: true });
    }

    #[test]
    fn a_copy_goes_its_own_way() {
        let link = Link { duplicate: 1.0, jitter: JITTER, ..Link::default() };
        let mut expected = stream();
        expected.unit();
        let [first, copy] = [(); 2].map(|()| expected.below(2_000_000));
        let carried = link.carry(&mut stream()).unwrap();
        assert_eq!(carried.first.after, Duration::from_nanos(first));
        assert_eq!(carried.copy.unwrap().after, Duration::from_nanos(copy));
    }
}
