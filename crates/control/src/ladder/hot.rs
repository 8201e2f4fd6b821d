//! Finds hot marks: marks that too many packets have in common. A hot mark shows that a sender has
//! found a packet that passes, and varies only bytes that the mark does not cover.

use std::cell::{Cell, OnceCell};
use std::cmp::Reverse;
use std::time::Duration;

use tidegate_world::{DroppableMethod, Shedding, Timestamp};

/// Number of counters. Packets share a counter if the lowest 8 bits of their marks are the same.
const COUNTERS: usize = 256;

/// Maximum number of packets with the same mark in a period. With more packets, the mark is hot.
/// Each caller has its own mark, because the branch of its request is unique.
const MANY: u32 = 16;

/// Packets with a hot mark are dropped for this time: a caller does not retransmit for longer (RFC
/// 3261 §17.1.1.2: 64·T1).
const HOLD: Duration = Duration::from_secs(32);

/// A mark that may be hot: the most frequent mark of one counter.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    mark: u32,
    /// The number of packets with this mark, minus the number of packets with other marks of the
    /// same counter (the majority algorithm of Boyer and Moore).
    lead: u32,
    /// For each method, the number of packets with this mark that were counted as first packets,
    /// not as retransmissions.
    firsts: [u32; 2],
}

/// The hot marks, and the counters of the current period.
#[derive(Clone, Debug, Default)]
pub(super) struct Hot {
    /// The counters. They take 4 KB, so they are allocated at the first packet.
    candidates: OnceCell<Box<[Cell<Candidate>; COUNTERS]>>,
    /// The hot marks, the latest first, and the time until which packets with each mark are
    /// dropped.
    marks: Vec<(u32, Timestamp)>,
}

impl Hot {
    /// Creates a state without hot marks. Allocates nothing, because a ladder may be reset at each
    /// reading.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Counts a packet with this mark. `first` is its method if it was counted as a first packet,
    /// not as a retransmission.
    pub(super) fn record(&self, mark: u32, first: Option<DroppableMethod>) {
        let counters = || Box::new(std::array::from_fn(|_| Cell::default()));
        let cell = &self.candidates.get_or_init(counters)[mark as usize % COUNTERS];
        let candidate = cell.get();
        let Candidate { lead, firsts, .. } = candidate;
        if lead > 0 && candidate.mark != mark {
            cell.set(Candidate { lead: lead - 1, ..candidate });
            return;
        }
        let mut firsts = if lead > 0 { firsts } else { [0; 2] };
        if let Some(method) = first {
            firsts[method as usize] += 1;
        }
        cell.set(Candidate { mark, lead: lead + 1, firsts });
    }

    /// Ends a period. Finds the hot marks, and forgets hot marks whose packets were dropped for
    /// long enough. If there are too many hot marks, forgets the oldest ones: their packets may no
    /// longer arrive, and then they would keep out the marks that are hot now. Returns, for each
    /// method, the number of packets in this period whose marks were found to be hot, and that were
    /// counted as first packets.
    pub(super) fn end_period(&mut self, now: Timestamp) -> [u32; 2] {
        self.marks.retain(|(_, until)| *until > now);
        let Some(candidates) = self.candidates.get() else { return [0; 2] };
        let candidates = candidates.iter().map(Cell::take);
        let mut hot: Vec<Candidate> = candidates.filter(|found| found.lead > MANY).collect();
        if hot.is_empty() {
            return [0; 2];
        }
        hot.sort_unstable_by_key(|found| Reverse(found.lead));
        hot.truncate(Shedding::MARKS_MAX);
        // A known mark that is hot again counts as new. Its packets were read, so they are not
        // dropped yet, or no longer.
        let is_old = |(mark, _): &&(u32, Timestamp)| hot.iter().all(|found| found.mark != *mark);
        let found = hot.iter().map(|found| (found.mark, now + HOLD));
        let marks = found.chain(self.marks.iter().filter(is_old).copied());
        self.marks = marks.take(Shedding::MARKS_MAX).collect();
        [0, 1].map(|method| hot.iter().map(|found| found.firsts[method]).sum())
    }

    /// Returns the hot marks, the latest first. Marks of the same period are in the order of the
    /// number of their packets.
    pub(super) fn marks(&self) -> impl Iterator<Item = u32> {
        self.marks.iter().map(|(mark, _)| *mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_s as at;

    const FIRST: Option<DroppableMethod> = Some(DroppableMethod::Invite);

    #[test]
    fn a_mark_of_many_packets_is_hot_for_32_seconds() {
        let mut hot = Hot::new();
        for round in 0..17u32 {
            hot.record(7, FIRST);
            hot.record(8 + COUNTERS as u32 * round, FIRST);
            hot.record(7 + COUNTERS as u32 * (round % 2 + 1), FIRST);
            hot.record(7, None);
        }
        hot.end_period(at(1));
        assert_eq!(hot.marks().collect::<Vec<_>>(), [7]);
        hot.end_period(at(32));
        assert_eq!(hot.marks().count(), 1);
        hot.end_period(at(33));
        assert_eq!(hot.marks().count(), 0);
    }

    #[test]
    fn packets_with_a_hot_mark_are_no_first_packets() {
        let mut hot = Hot::new();
        for _ in 0..MANY {
            hot.record(7, FIRST);
            hot.record(8, FIRST);
        }
        hot.record(7, FIRST);
        hot.record(7, None);
        assert_eq!(hot.end_period(at(1)), [MANY + 1, 0], "the mark 8 is not hot");
        assert_eq!(hot.end_period(at(2)), [0; 2]);
    }

    #[test]
    fn packets_of_several_periods_do_not_add_up() {
        let mut hot = Hot::new();
        for period in 1..10 {
            (0..MANY).for_each(|_| hot.record(7, FIRST));
            hot.end_period(at(period));
            assert_eq!(hot.marks().count(), 0);
        }
    }

    #[test]
    fn there_are_no_more_hot_marks_than_the_limit() {
        let mut hot = Hot::new();
        for mark in 0..100 {
            (0..20 + mark).for_each(|_| hot.record(mark, FIRST));
        }
        hot.end_period(at(1));
        let marks: Vec<u32> = hot.marks().collect();
        assert_eq!((marks.len(), marks[0]), (Shedding::MARKS_MAX, 99), "the hottest come first");
    }

    fn flood(hot: &mut Hot, marks: impl IntoIterator<Item = u32>, period: u64) -> Vec<u32> {
        marks.into_iter().for_each(|mark| (0..20).for_each(|_| hot.record(mark, FIRST)));
        hot.end_period(at(period));
        hot.marks().collect()
    }

    #[test]
    fn marks_that_nobody_sends_any_more_do_not_keep_out_new_ones() {
        let mut hot = Hot::new();
        let places = Shedding::MARKS_MAX as u32;
        for mark in 0..places {
            flood(&mut hot, [mark], 1 + u64::from(mark));
        }
        let marks = flood(&mut hot, [100], 20);
        assert_eq!((marks.len(), marks[0]), (Shedding::MARKS_MAX, 100));
        assert!(!marks.contains(&0) && marks.contains(&1), "{marks:?}");
        let marks = flood(&mut hot, 200..200 + 2 * places, 21);
        assert!(marks.len() == Shedding::MARKS_MAX && marks.iter().all(|&mark| mark >= 200));
    }

    #[test]
    fn a_mark_that_is_hot_again_counts_as_new() {
        let mut hot = Hot::new();
        flood(&mut hot, [1], 1);
        flood(&mut hot, [2], 2);
        assert_eq!(flood(&mut hot, [1], 3), [1, 2]);
        hot.end_period(at(34));
        assert_eq!(hot.marks().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_ladder_that_counts_nothing_allocates_nothing() {
        let mut hot = Hot::new();
        hot.end_period(at(1));
        assert!(hot.candidates.get().is_none() && hot.marks.capacity() == 0);
        hot.record(7, FIRST);
        assert!(hot.candidates.get().is_some());
    }
}
