//! Finds hot marks, which too many packets have in common. They show that a sender has found a
//! packet that passes, and varies only bytes that the mark does not cover.

use std::cell::Cell;
use std::cmp::Reverse;
use std::time::Duration;

use tidegate_world::{Shedding, Timestamp};

/// Number of counters. Each counts the marks with the same lowest bits.
const COUNTERS: usize = 256;

/// If more packets than this have the same mark in a period, the mark is hot. Each caller has its own
/// mark, because its branch is unique.
const MANY: u32 = 16;

/// Time for which a hot mark is dropped: the longest time for which a caller retransmits (RFC 3261
/// §17.1.1.2: 64·T1).
const HOLD: Duration = Duration::from_secs(32);

/// A candidate for a hot mark and its lead: the number of its packets minus the number of packets
/// with other marks of the same counter (the majority algorithm of Boyer and Moore).
type Candidate = (u32, u32);

/// The hot marks, and the counters of the current period.
#[derive(Clone, Debug)]
pub(super) struct Hot {
    candidates: Vec<Cell<Candidate>>,
    /// The hot marks in the order of their discovery, and the time until which each is dropped.
    marks: Vec<(u32, Timestamp)>,
}

impl Hot {
    pub(super) fn new() -> Self {
        Self { candidates: vec![Cell::default(); COUNTERS], marks: Vec::new() }
    }

    /// Counts a packet that is not a copy of a decided request.
    pub(super) fn record(&self, mark: u32) {
        let candidate = &self.candidates[mark as usize % COUNTERS];
        candidate.set(match candidate.get() {
            (_, 0) => (mark, 1),
            (own, lead) if own == mark => (own, lead + 1),
            (own, lead) => (own, lead - 1),
        });
    }

    /// Ends a period. Finds the hot marks, and forgets those that were dropped for long enough.
    pub(super) fn end_period(&mut self, now: Timestamp) {
        self.marks.retain(|(_, until)| *until > now);
        let candidates = self.candidates.iter().map(Cell::take);
        let mut hot: Vec<Candidate> = candidates.filter(|(_, lead)| *lead > MANY).collect();
        hot.sort_unstable_by_key(|(_, lead)| Reverse(*lead));
        for (mark, _) in hot {
            if self.marks.len() < Shedding::MARKS_MAX && self.marks().all(|other| other != mark) {
                self.marks.push((mark, now + HOLD));
            }
        }
    }

    /// Returns the hot marks.
    pub(super) fn marks(&self) -> impl Iterator<Item = u32> {
        self.marks.iter().map(|(mark, _)| *mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn a_mark_of_many_packets_is_hot_for_32_seconds() {
        let mut hot = Hot::new();
        for round in 0..17u32 {
            hot.record(7);
            hot.record(8 + COUNTERS as u32 * round);
            hot.record(7 + COUNTERS as u32 * (round % 2 + 1));
            hot.record(7);
        }
        hot.end_period(at(1));
        assert_eq!(hot.marks().collect::<Vec<_>>(), [7]);
        hot.end_period(at(32));
        assert_eq!(hot.marks().count(), 1);
        hot.end_period(at(33));
        assert_eq!(hot.marks().count(), 0);
    }

    #[test]
    fn packets_of_several_periods_do_not_add_up() {
        let mut hot = Hot::new();
        for period in 1..10 {
            (0..MANY).for_each(|_| hot.record(7));
            hot.end_period(at(period));
            assert_eq!(hot.marks().count(), 0);
        }
    }

    #[test]
    fn there_are_no_more_hot_marks_than_the_limit() {
        let mut hot = Hot::new();
        for mark in 0..100 {
            (0..20 + mark).for_each(|_| hot.record(mark));
        }
        hot.end_period(at(1));
        let marks: Vec<u32> = hot.marks().collect();
        assert_eq!((marks.len(), marks[0]), (Shedding::MARKS_MAX, 99), "the hottest come first");
    }
}
