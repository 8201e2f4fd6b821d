//! Detection of sources that send more than allowed.
//!
//! A source is detected when it has sent more than the allowed number of messages in each of
//! several consecutive seconds. In the last of these seconds, the source is detected as soon as it
//! exceeds the number. So if one second is enough, a flood is detected within a fraction of it. All
//! messages of a source count on arrival, including retransmissions, because repetitions of one
//! message are a flood as well. Sources for which the table has no room are not detected. A source
//! with the weight w may send w times as much.

use tidegate_world::{Stream, Timestamp};

const SECOND: u64 = 1_000_000_000;

/// The shortest time, in nanoseconds, over which a rate is measured. Over a shorter time, a few
/// simultaneous messages would look like a high rate.
const MEASURED_MIN: u64 = SECOND / 10;

use crate::source_table::SourceTable;

/// Counts of the messages of each source.
#[derive(Debug)]
pub struct Watch {
    above: u32,
    seconds: u32,
    sources: SourceTable<Watched>,
    swept: u64,
}

#[derive(Debug, Default)]
struct Watched {
    /// Number of the second in which the last message of the source arrived, counted from the
    /// start.
    second: u64,
    /// Arrival of the first message in the second `second`, in nanoseconds from the start of this
    /// second.
    first: u32,
    count: u32,
    /// Number of consecutive seconds just before the second `second` in which the source sent too
    /// much.
    row: u32,
}

impl Watch {
    /// Creates a detector of sources that send more than `above` messages in each of `seconds`
    /// consecutive seconds (at least 1). It distinguishes up to `sources_max` sources. The key of
    /// its table is drawn from `stream`.
    pub fn new(above: u32, seconds: u32, sources_max: usize, stream: &mut Stream) -> Self {
        let sources = SourceTable::new(sources_max, stream);
        Self { above, seconds: seconds.max(1), sources, swept: 0 }
    }

    /// Returns the number of messages from sources for which the table had no room.
    pub fn overflowed(&self) -> u64 {
        self.sources.overflowed()
    }

    /// Records a message of a source that may send `weight` (at least 1) times as much as another
    /// source. If this message shows that the source sends too much, returns the rate of its
    /// messages in this second, in messages a second. The rate is measured from the first message
    /// in this second, over at least 0.1 s.
    pub fn on_message(&mut self, now: Timestamp, source: u128, weight: u32) -> Option<u32> {
        let (second, within) = (now.as_nanos() / SECOND, now.as_nanos() % SECOND);
        let above = self.above.saturating_mul(weight.max(1));
        if second != self.swept {
            self.swept = second;
            // A source without messages in the last second is forgotten.
            self.sources.sweep(|watched| watched.second + 1 >= second);
        }
        let slot = self.sources.slot(source);
        if slot == SourceTable::<Watched>::SHARED {
            return None;
        }
        let watched = self.sources.get_mut(slot);
        if watched.second != second {
            // The count belongs to the second just before. Sources that were silent for a whole
            // second were swept away above.
            let row = if watched.count > above { watched.row.saturating_add(1) } else { 0 };
            *watched = Watched { second, first: within as u32, count: 0, row };
        }
        watched.count = watched.count.saturating_add(1);
        if watched.count <= above || watched.row + 1 < self.seconds {
            return None;
        }
        let measured = within.saturating_sub(watched.first.into()).max(MEASURED_MIN);
        let rate = u64::from(watched.count) * SECOND / measured;
        Some(u32::try_from(rate).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;

    fn watch(above: u32, seconds: u32, sources_max: usize) -> Watch {
        Watch::new(above, seconds, sources_max, &mut Seed(1).stream(Purpose::Sources, 0))
    }

    /// Returns the number of messages in that second after which the source is detected, or `None`
    /// if `count` messages are not enough.
    fn found_after(watch: &mut Watch, second: u64, source: u128, count: u32) -> Option<u32> {
        (1..=count).find(|i| {
            let now = Timestamp::from_nanos(second * 1_000_000_000 + u64::from(*i));
            watch.on_message(now, source, 1).is_some()
        })
    }

    #[test]
    fn the_rate_of_a_flood_is_returned_and_a_burst_is_no_flood() {
        let mut watch = watch(10, 1, 4);
        let mut rate = |source: u128, count: u64, apart_ms: u64| {
            let at = |i| Timestamp::from_nanos(i * apart_ms * 1_000_000);
            (0..count).filter_map(|i| watch.on_message(at(i), source, 1)).last()
        };
        assert_eq!(rate(7, 12, 0), Some(120), "as if over a tenth of a second");
        assert_eq!(rate(8, 501, 1), Some(1002));
        assert_eq!(rate(9, 10, 0), None);
    }

    #[test]
    fn a_source_with_a_weight_may_send_as_many_times_as_much() {
        let mut watch = watch(10, 1, 4);
        let now = Timestamp::from_nanos(1);
        let found = (1..100).find(|_| watch.on_message(now, 7, 3).is_some());
        assert_eq!(found, Some(31));
    }

    #[test]
    fn a_flood_is_found_out_in_the_second_that_is_one_too_many() {
        let mut watch = watch(10, 3, 4);
        assert_eq!(found_after(&mut watch, 5, 7, 1000), None);
        assert_eq!(found_after(&mut watch, 6, 7, 11), None);
        assert_eq!(found_after(&mut watch, 7, 7, 1000), Some(11));
        assert_eq!(found_after(&mut watch, 7, 7, 1), Some(1), "and stays so");
    }

    #[test]
    fn one_second_is_enough_if_it_is_to_be() {
        assert_eq!(found_after(&mut watch(10, 1, 4), 0, 7, 1000), Some(11));
    }

    #[test]
    fn a_second_with_no_more_than_is_allowed_begins_a_new_row() {
        let mut watch = watch(10, 2, 4);
        assert_eq!(found_after(&mut watch, 5, 7, 1000), None);
        assert_eq!(found_after(&mut watch, 6, 7, 10), None);
        assert_eq!(found_after(&mut watch, 7, 7, 1000), None);
        // So does a second without messages.
        assert_eq!(found_after(&mut watch, 9, 7, 1000), None);
        assert_eq!(found_after(&mut watch, 10, 7, 1000), Some(11));
    }

    #[test]
    fn sources_are_counted_apart_and_those_without_room_not_at_all() {
        let mut watch = watch(10, 1, 2);
        assert_eq!([7, 8, 9].map(|source| found_after(&mut watch, 0, source, 10)), [None; 3]);
        assert_eq!(watch.overflowed(), 10);
        let found = [9, 8, 7].map(|source| found_after(&mut watch, 0, source, 100));
        assert_eq!(found, [None, Some(1), Some(1)]);
        // Two seconds later there is room.
        assert_eq!(found_after(&mut watch, 2, 9, 100), Some(11));
    }
}
