//! Links and their effect on packets.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_world::Stream;

use crate::micros;

/// The properties of a link in one direction between two hosts. Packets influence each other only
/// in the queue of the link.
///
/// Durations are serialized as whole microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Link {
    /// Delay of every packet.
    #[serde(rename = "delay_us", with = "micros")]
    pub delay: Duration,
    /// Maximum additional delay of a packet. The additional delay is drawn uniformly from
    /// `0..jitter`. If it exceeds the gap between two packets, they may be reordered.
    #[serde(rename = "jitter_us", with = "micros")]
    pub jitter: Duration,
    /// Fraction of packets that are lost, 0..1.
    pub loss: f64,
    /// Fraction of packets that arrive without delay, 0 to 1. They overtake packets that were sent
    /// up to `delay` earlier.
    pub reorder: f64,
    /// Fraction of packets that arrive twice, 0..1. Each copy is delayed independently.
    pub duplicate: f64,
    /// Rate and queue of the transmitter, or `None` if the rate is unlimited.
    pub bandwidth: Option<Bandwidth>,
    /// True if the link loses all packets.
    pub cut: bool,
}

/// The rate at which a link sends packets, and the limit of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// Rate in bits a second, at least 1, including IP and UDP headers.
    pub bits_per_s: u64,
    /// Maximum number of bytes that wait or are being transmitted. The link loses a packet that
    /// would exceed this number.
    pub queue_max_bytes: usize,
}

/// The travel of one packet, or of a copy of it, over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trip {
    /// Time from sending to arrival.
    pub after: Duration,
    /// True if the packet overtakes earlier packets.
    pub overtakes: bool,
}

impl Link {
    /// Returns a link that only delays packets.
    pub fn delaying(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// Draws the trips of a packet and of its copy, if there is one. Returns `None` if the packet
    /// is lost.
    pub(crate) fn trips(&self, stream: &mut Stream) -> Option<(Trip, Option<Trip>)> {
        if happens(self.loss, stream) {
            return None;
        }
        let copied = happens(self.duplicate, stream);
        let first = self.trip(stream);
        Some((first, copied.then(|| self.trip(stream))))
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

/// Returns true with the probability `share`. If `share` is 0, draws no random number, so that an
/// effect that is not used does not change the random numbers of other effects.
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
    fn a_link_draws_random_numbers_only_for_its_configured_effects() {
        let link = Link { jitter: JITTER, ..Link::delaying(Duration::from_millis(5)) };
        let drawn = stream().below(2_000_000);
        let after = Duration::from_millis(5) + Duration::from_nanos(drawn);
        let first = Trip { after, overtakes: false };
        assert_eq!(link.trips(&mut stream()), Some((first, None)));

        let mut untouched = stream();
        Link::delaying(JITTER).trips(&mut untouched);
        assert_eq!(untouched.next_u64(), stream().next_u64());
    }

    #[test]
    fn a_packet_is_lost_when_its_draw_is_below_the_loss() {
        let drawn = stream().unit();
        let loses = |loss| Link { loss, ..Link::default() }.trips(&mut stream()).is_none();
        assert!(!loses(drawn) && loses(drawn.next_up()));
    }

    #[test]
    fn a_packet_that_overtakes_takes_no_time() {
        let link = Link { reorder: 1.0, jitter: JITTER, ..Link::delaying(JITTER) };
        let (way, _) = link.trips(&mut stream()).unwrap();
        assert_eq!(way, Trip { after: Duration::ZERO, overtakes: true });
    }

    #[test]
    fn a_copy_is_delayed_independently() {
        let link = Link { duplicate: 1.0, jitter: JITTER, ..Link::default() };
        let mut expected = stream();
        expected.unit();
        let drawn = [(); 2].map(|()| Duration::from_nanos(expected.below(2_000_000)));
        let (first, copy) = link.trips(&mut stream()).unwrap();
        assert_eq!([first.after, copy.unwrap().after], drawn);
    }

    #[test]
    fn the_text_of_a_link_contains_only_the_effects_that_it_has() {
        let link = Link {
            jitter: JITTER,
            loss: 0.25,
            bandwidth: Some(Bandwidth { bits_per_s: 1_000_000, queue_max_bytes: 65_536 }),
            ..Link::delaying(Duration::from_micros(1500))
        };
        let text = serde_json::to_string(&link).unwrap();
        assert!(text.starts_with(r#"{"delay_us":1500,"jitter_us":2000,"loss":0.25,"#), "{text}");
        assert_eq!(serde_json::from_str::<Link>(&text).unwrap(), link);
        let brief: Link = serde_json::from_str(r#"{"delay_us":1500}"#).unwrap();
        assert_eq!(brief, Link::delaying(Duration::from_micros(1500)));
        assert!(serde_json::from_str::<Link>(r#"{"dely_us":1500}"#).is_err());
    }
}
