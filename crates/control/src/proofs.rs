//! Sources that have proved that they receive packets.
//!
//! Over UDP an attacker can forge any source address, but it cannot read the packets sent to this
//! address. A source proves that it is a real peer if it sends back data that only the receiver of
//! our packets can know. A proof is remembered for three hours, and stays valid even if others
//! forge the address of the source. A source for which the table has no room counts as not proven.

use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use crate::source_table::SourceTable;

/// Lifetime of a proof: longer than most calls.
const HOLDS: Duration = Duration::from_secs(3 * 3600);

/// Interval at which expired proofs are removed while the table is full.
const SWEEP: Duration = Duration::from_secs(10);

/// The times at which sources last proved that they receive packets.
#[derive(Debug)]
pub struct Proofs {
    sources: SourceTable<Timestamp>,
    sources_max: usize,
    swept: Timestamp,
}

impl Proofs {
    /// Creates a table of up to `sources_max` sources. The key of its hash is drawn from `stream`.
    pub fn new(sources_max: usize, stream: &mut Stream) -> Self {
        let sources = SourceTable::new(sources_max, stream);
        Self { sources, sources_max, swept: Timestamp::ZERO }
    }

    /// Returns the number of proofs that were lost because the table was full.
    pub fn overflowed(&self) -> u64 {
        self.sources.overflowed()
    }

    /// Records that a source has proved that it receives packets.
    pub fn prove(&mut self, now: Timestamp, source: u128) {
        if self.sources.len() >= self.sources_max && now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.sources.sweep(|proven| now.since(*proven) < HOLDS);
        }
        let slot = self.sources.slot(source);
        *self.sources.get_mut(slot) = now;
    }

    /// Returns whether a source has recently proved that it receives packets.
    pub fn holds(&self, now: Timestamp, source: u128) -> bool {
        let slot = self.sources.find(source);
        slot.is_some_and(|slot| now.since(*self.sources.get(slot)) < HOLDS)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;
    use crate::testing::at_s as at;

    #[test]
    fn a_proof_holds_for_hours_and_makes_room_after_them() {
        let mut proofs = Proofs::new(2, &mut Seed(1).stream(Purpose::Sources, 0));
        proofs.prove(at(0), 7);
        assert_eq!(proofs.overflowed(), 0);
        proofs.prove(at(100), 8);
        proofs.prove(at(100), 9);
        let held = |proofs: &Proofs, s| [7, 8, 9].map(|source| proofs.holds(at(s), source));
        assert_eq!((held(&proofs, 100), proofs.overflowed()), ([true, true, false], 1));
        let hours = 3 * 3600;
        assert_eq!(held(&proofs, hours), [false, true, false]);
        proofs.prove(at(hours), 9);
        assert_eq!(held(&proofs, hours), [false, true, true]);
    }

    // A flood of sources must not cause a scan of the table for each source.
    #[test]
    fn a_full_table_is_looked_through_every_ten_seconds() {
        let mut proofs = Proofs::new(1, &mut Seed(1).stream(Purpose::Sources, 0));
        let hours = HOLDS.as_secs();
        proofs.prove(at(0), 7);
        for (s, has_room) in [(hours - 1, false), (hours, false), (hours + 9, true)] {
            proofs.prove(at(s), 8);
            assert_eq!(proofs.holds(at(s), 8), has_room, "{s}");
        }
    }
}
