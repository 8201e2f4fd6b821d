//! Who sends more than anybody may.
//!
//! A source is found out in the moment in which it has sent more than the allowed rate in each of
//! so many seconds in a row, the last of which need not be over: a flood is found out in a part of
//! a second if one is enough. What a source sends is counted as it comes, repetitions included,
//! for whoever repeats one message floods as well. Sources for which there is no room are not
//! found out: they may be anybody.

use tidegate_world::{Stream, Timestamp};

use crate::source_table::SourceTable;

/// Counts what each source sends.
#[derive(Debug)]
pub struct Watch {
    above: u32,
    seconds: u32,
    sources: SourceTable<Watched>,
    swept: u64,
}

#[derive(Debug, Default)]
struct Watched {
    /// The second that is counted.
    second: u64,
    count: u32,
    /// Seconds before it, in a row, in which it sent too much.
    row: u32,
}

impl Watch {
    /// Finds out who sends more than `above` a second in `seconds` in a row, 1 at least. Tells up
    /// to `sources_max` sources apart; the key of its table is drawn from `stream`.
    pub fn new(above: u32, seconds: u32, sources_max: usize, stream: &mut Stream) -> Self {
        let sources = SourceTable::new(sources_max, stream);
        Self { above, seconds: seconds.max(1), sources, swept: 0 }
    }

    /// Messages from sources for which there was no room.
    pub fn overflowed(&self) -> u64 {
        self.sources.overflowed()
    }

    /// A source sends a message. Whether that finds it out.
    pub fn on_message(&mut self, now: Timestamp, source: u128) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        let above = self.above;
        if second != self.swept {
            self.swept = second;
            // Who has sent nothing in the last second begins anew.
            self.sources.sweep(|watched| watched.second + 1 >= second);
        }
        let slot = self.sources.slot(source);
        if slot == SourceTable::<Watched>::SHARED {
            return false;
        }
        let watched = self.sources.get_mut(slot);
        if watched.second != second {
            // What was swept away since then had been silent for a second.
            let row = if watched.count > above { watched.row.saturating_add(1) } else { 0 };
            *watched = Watched { second, count: 0, row };
        }
        watched.count = watched.count.saturating_add(1);
        watched.count > above && watched.row + 1 >= self.seconds
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;

    fn watch(above: u32, seconds: u32, sources_max: usize) -> Watch {
        Watch::new(above, seconds, sources_max, &mut Seed(1).stream(Purpose::Sources, 0))
    }

    /// How many messages it takes in that second, of at most so many.
    fn found_after(watch: &mut Watch, second: u64, source: u128, count: u32) -> Option<u32> {
        (1..=count).find(|i| {
            let now = Timestamp::from_nanos(second * 1_000_000_000 + u64::from(*i));
            watch.on_message(now, source)
        })
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
        // So does one in which nothing came.
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
