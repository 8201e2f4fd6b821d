//! A memory of recent decisions on new work, so that a retransmission gets the same decision as the
//! original request.
//!
//! Over UDP a caller repeats its request up to six times. If each repetition were judged again, a
//! repetition of a rejected call might be admitted after the caller has learned that the call
//! failed. Each repetition would also be counted in the offered load, the most important signal of
//! a law.

use std::time::Duration;

use tidegate_world::{Hashed, SlotTable, Timestamp};

/// The time in which new decisions are added to one [`Generation`]. A decision is remembered for at
/// least this time and for at most twice this time. This time is 64·T1 of RFC 3261 §17, after which
/// no caller repeats a request.
const GENERATION: Duration = Duration::from_secs(32);

/// The remembered state of a piece of new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The work waits in the queue. It was admitted at its arrival, or the gate will decide about
    /// it [at the start of its service](crate::Decide::Service).
    Waits,
    /// The work was admitted, and has been served.
    Served,
    /// The work was rejected, for another reason than [`Full`](Self::Full).
    Rejected,
    /// The work was rejected because no back end had room for it.
    Full,
    /// The work was dropped without a response. Its repetitions are dropped too.
    Dropped,
}

/// The fingerprint of new work, and the decision that is remembered for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recalled {
    /// The fingerprint, or `None` if the work has none.
    pub(crate) fingerprint: Option<u64>,
    /// The decision, or `None` if none is remembered.
    pub(crate) decision: Option<Decision>,
}

impl Recalled {
    /// Returns whether the work repeats work for which a decision is remembered.
    pub fn is_repetition(&self) -> bool {
        self.decision.is_some()
    }
}

/// Decisions on recent work, by fingerprint, in two generations. New decisions are added to the
/// newer generation. After 32 s it becomes the older generation, to which no work is added. After
/// another 32 s it is freed.
#[derive(Debug)]
pub struct Memory {
    newer: Generation,
    older: Generation,
    since: Timestamp,
    count_max: usize,
    overflowed: u64,
}

type Generation = SlotTable<Remembered>;

#[derive(Debug)]
struct Remembered {
    fingerprint: u64,
    decision: Decision,
}

impl Hashed for Remembered {
    #[inline]
    fn hash(&self) -> u64 {
        self.fingerprint
    }
}

impl Memory {
    /// Creates a memory of up to `count_max` decisions in each generation. A decision takes 28
    /// bytes.
    pub fn new(count_max: usize) -> Self {
        Self {
            newer: Generation::default(),
            older: Generation::default(),
            since: Timestamp::ZERO,
            count_max,
            overflowed: 0,
        }
    }

    /// Returns the decision on the work with this fingerprint, or `None` if none is remembered. The
    /// fingerprint must be the result of a keyed hash, so that an attacker cannot choose it.
    pub fn recall(&mut self, now: Timestamp, fingerprint: u64) -> Option<Decision> {
        self.rotate(now);
        let known = |generation: &Generation| {
            let known = generation.find(fingerprint, |_| true)?;
            generation.get(known).map(|known| known.decision)
        };
        known(&self.newer).or_else(|| known(&self.older))
    }

    /// Remembers a decision. If the newer generation is full, the decision is remembered only if it
    /// replaces a decision on the same work. Returns whether it is remembered. If it is not, it
    /// counts as [overflowed](Self::overflowed).
    pub fn remember(&mut self, now: Timestamp, fingerprint: u64, decision: Decision) -> bool {
        self.rotate(now);
        let is_full = self.newer.len() >= self.count_max;
        if change(&mut self.newer, fingerprint, decision) {
            return true;
        }
        if !is_full {
            self.newer.insert(Remembered { fingerprint, decision });
            return true;
        }
        // Without this change `recall` would return the outdated decision. The older generation is
        // kept until no caller repeats the work in it. So the change lasts for long enough.
        let is_changed = change(&mut self.older, fingerprint, decision);
        self.overflowed += u64::from(!is_changed);
        is_changed
    }

    /// Returns the number of remembered decisions.
    pub fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }

    /// Returns whether no decision is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of decisions that were not remembered because the memory was full.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    fn rotate(&mut self, now: Timestamp) {
        let age = now.since(self.since);
        if age < GENERATION {
            return;
        }
        self.older = std::mem::take(&mut self.newer);
        if age >= 2 * GENERATION {
            self.older = Generation::new();
        }
        self.since = now;
    }
}

/// Replaces the decision on the work with this fingerprint. Returns false if the generation has no
/// decision on this work.
fn change(generation: &mut Generation, fingerprint: u64, decision: Decision) -> bool {
    let known = generation.find(fingerprint, |_| true);
    let Some(known) = known.and_then(|known| generation.get_mut(known)) else { return false };
    known.decision = decision;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_s as at;

    #[test]
    fn a_decision_is_remembered_as_long_as_anybody_repeats() {
        for begun in [0, 1, 20, 31, 32, 45] {
            let mut memory = Memory::new(10);
            memory.remember(at(begun), 7, Decision::Rejected);
            for later in [0, 1, 10, 31] {
                let recalled = memory.recall(at(begun + later), 7);
                assert_eq!(recalled, Some(Decision::Rejected), "{begun} + {later}");
            }
            assert_eq!(memory.recall(at(begun + 64), 7), None, "{begun}");
        }
    }

    #[test]
    fn a_decision_lives_at_most_two_generations() {
        let mut memory = Memory::new(10);
        memory.remember(at(0), 7, Decision::Rejected);
        for (s, known) in [(31, true), (32, true), (63, true), (64, false)] {
            assert_eq!(memory.recall(at(s), 7).is_some(), known, "after {s} s");
        }
    }

    #[test]
    fn the_last_decision_counts() {
        let mut memory = Memory::new(10);
        memory.remember(at(0), 7, Decision::Waits);
        memory.remember(at(1), 7, Decision::Served);
        assert_eq!(memory.recall(at(1), 7), Some(Decision::Served));
        memory.remember(at(33), 7, Decision::Rejected);
        assert_eq!(memory.recall(at(33), 7), Some(Decision::Rejected));
        assert_eq!(memory.recall(at(1), 8), None);
    }

    #[test]
    fn overflow_is_counted_and_new_again() {
        let mut memory = Memory::new(2);
        for fingerprint in 1..=5 {
            let is_remembered = memory.remember(at(0), fingerprint, Decision::Rejected);
            assert_eq!(is_remembered, fingerprint <= 2);
        }
        assert_eq!((memory.len(), memory.overflowed()), (2, 3));
        assert!(!memory.is_empty());
        assert_eq!(memory.recall(at(0), 5), None);
        // A fingerprint that is already known needs no room.
        assert!(memory.remember(at(0), 1, Decision::Served));
        assert_eq!((memory.recall(at(0), 1), memory.overflowed()), (Some(Decision::Served), 3));
        memory.recall(at(100), 1);
        assert!(memory.is_empty());
    }

    #[test]
    fn a_full_memory_still_changes_the_decisions_that_it_has() {
        let mut memory = Memory::new(1);
        assert!(memory.remember(at(0), 7, Decision::Waits));
        assert!(memory.remember(at(32), 8, Decision::Waits));
        assert!(memory.remember(at(33), 7, Decision::Rejected));
        assert_eq!(memory.recall(at(33), 7), Some(Decision::Rejected));
        assert!(!memory.remember(at(33), 9, Decision::Rejected));
        assert_eq!((memory.len(), memory.overflowed()), (2, 1));
        assert_eq!(memory.recall(at(64), 7), None);
    }
}
