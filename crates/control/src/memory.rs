//! What was decided of recent work, so that a repetition gets the same decision.
//!
//! Over UDP a caller repeats its request up to six times. Judged anew each time, a call that
//! was refused may be admitted by its repetition, when the caller has already been told that
//! it failed; and offered load, a law's most important signal, would count it again.

use std::time::Duration;

use tidegate_world::{Hashed, SlotTable, Timestamp};

/// A decision lives one to two of these: 64·T1 of RFC 3261 §17, after which nobody repeats
/// a request.
const GENERATION: Duration = Duration::from_secs(32);

/// What became of a piece of new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It was admitted and waits for service.
    Waits,
    /// It was admitted, and has been served.
    Served,
    /// It was refused.
    Refused,
    /// It was refused because nobody behind had room for it.
    Full,
}

/// Two generations of keyed fingerprints. The newer takes what is decided; after 32 s it
/// becomes the older, which is only asked, and then forgotten, with its memory.
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
    /// Remembers up to `count_max` decisions of each generation, 28 bytes each.
    pub fn new(count_max: usize) -> Self {
        Self {
            newer: Generation::default(),
            older: Generation::default(),
            since: Timestamp::ZERO,
            count_max,
            overflowed: 0,
        }
    }

    /// What was decided of the work with this fingerprint, which must be the result of a
    /// keyed hash: nobody else may be able to choose it.
    pub fn recall(&mut self, now: Timestamp, fingerprint: u64) -> Option<Decision> {
        self.rotate(now);
        let known = |generation: &Generation| {
            let known = generation.find(fingerprint, |_| true)?;
            generation.get(known).map(|known| known.decision)
        };
        known(&self.newer).or_else(|| known(&self.older))
    }

    /// Remembers a decision. Without room it is not remembered, and that is counted.
    pub fn remember(&mut self, now: Timestamp, fingerprint: u64, decision: Decision) {
        self.rotate(now);
        let known = self.newer.find(fingerprint, |_| true);
        if let Some(known) = known.and_then(|known| self.newer.get_mut(known)) {
            known.decision = decision;
        } else if self.newer.len() < self.count_max {
            self.newer.insert(Remembered { fingerprint, decision });
        } else {
            self.overflowed += 1;
        }
    }

    /// Decisions remembered.
    pub fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decisions for which there was no room.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn a_decision_is_remembered_as_long_as_anybody_repeats() {
        for begun in [0, 1, 20, 31, 32, 45] {
            let mut memory = Memory::new(10);
            memory.remember(at(begun), 7, Decision::Refused);
            for later in [0, 1, 10, 31] {
                let recalled = memory.recall(at(begun + later), 7);
                assert_eq!(recalled, Some(Decision::Refused), "{begun} + {later}");
            }
            assert_eq!(memory.recall(at(begun + 64), 7), None, "{begun}");
        }
    }

    #[test]
    fn a_decision_lives_two_generations_at_the_most() {
        let mut memory = Memory::new(10);
        memory.remember(at(0), 7, Decision::Refused);
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
        memory.remember(at(33), 7, Decision::Refused);
        assert_eq!(memory.recall(at(33), 7), Some(Decision::Refused));
        assert_eq!(memory.recall(at(1), 8), None);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_new_again() {
        let mut memory = Memory::new(2);
        for fingerprint in 1..=5 {
            memory.remember(at(0), fingerprint, Decision::Refused);
        }
        assert_eq!((memory.len(), memory.overflowed()), (2, 3));
        assert!(!memory.is_empty());
        assert_eq!(memory.recall(at(0), 5), None);
        // What is known already needs no room.
        memory.remember(at(0), 1, Decision::Served);
        assert_eq!((memory.recall(at(0), 1), memory.overflowed()), (Some(Decision::Served), 3));
        memory.recall(at(100), 1);
        assert!(memory.is_empty());
    }
}
