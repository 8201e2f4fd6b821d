//! Divides the room of back ends at their limits among the sources.
//!
//! The limits of back ends take calls first come, first served. So a source that floods would get
//! nearly all of their room, because one of its calls nearly always comes first. To prevent this,
//! back ends keep a small *reserve* ([`Headroom::Reserve`]) for sources below their share of the
//! room. Room beyond the reserve is for any source, so only the reserve can stay unused.
//!
//! - The share of a source is the max-min [level](MaxMin). The demands are the calls that sources
//!   have offered recently, and the total is the number of calls that were admitted recently.
//! - A source may use the reserve if it has offered no more calls than the level, or if fewer than
//!   [`SATISFIED`] of the level were admitted.
//! - Calls count only while room is scarce: until ten seconds after the last call that found no
//!   room beyond the reserve. All counts are multiplied by 0.8 every two seconds. So only their
//!   ratios matter, which is why this works for a room of hundreds of calls a second and for one of
//!   a call a minute.
//!
//! If only one source is known, it may use the reserve.
//!
//! **Known bias.** Each shard knows only its own sources. A source that calls less than once in ten
//! seconds is half forgotten between its calls, and meanwhile others may use the reserve. A call that
//! was admitted but later found no room counts as admitted.

use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use crate::source_table::SourceTable;
use crate::{Bucket, MaxMin};

/// The part of the level up to which a source above the level may use the reserve.
const SATISFIED: f64 = 0.9;

/// Time for which calls are counted after a call that found no room beyond the reserve.
const SCARCE: Duration = Duration::from_secs(10);

/// The interval at which counts fade, and the factor by which they are then multiplied.
const PERIOD: Duration = Duration::from_secs(2);
const KEPT: f64 = 0.8;

/// A source is forgotten when its count of offered calls has fallen to this value.
const FORGOTTEN: f64 = 0.01;

/// Minimum time between two computations of the demands.
const PAUSE: Duration = Duration::from_millis(100);

/// The kinds of new work for which back ends have room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headroom {
    /// The sender does not compete for the room of back ends: they have no limits, or the sender is
    /// no stranger.
    #[default]
    Any,
    /// The back ends have room for any new work, beyond the reserve for sources below their share.
    Spare,
    /// The back ends have room for sources below their share only, and for priority work.
    Reserve,
    /// The back ends have room for priority work only, because they keep a reserve for it.
    Priority,
    /// The back ends have no room for new work.
    None,
}

impl Headroom {
    /// Returns whether the back ends have room for new work of a bucket.
    pub(crate) fn holds(self, bucket: Bucket) -> bool {
        match self {
            Self::Any | Self::Spare | Self::Reserve => true,
            Self::Priority => bucket == Bucket::Priority,
            Self::None => false,
        }
    }
}

/// The calls of each source that competes for the room of back ends.
#[derive(Debug)]
pub(crate) struct Room {
    sources: SourceTable<Account>,
    max_min: MaxMin,
    /// Calls of all sources that were admitted.
    admitted: Fading,
    /// The time until which calls are counted.
    scarce_until: Timestamp,
    /// The time at which the demands were last computed.
    looked: Timestamp,
    /// A buffer for the demands, kept to reuse its memory.
    demands: Vec<(f64, f64)>,
}

#[derive(Debug, Default)]
struct Account {
    weight: u32,
    offered: Fading,
    admitted: Fading,
}

/// A count that fades.
#[derive(Clone, Copy, Debug, Default)]
struct Fading {
    count: f64,
    period: u64,
}

impl Fading {
    fn at(&mut self, now: Timestamp) -> &mut f64 {
        let period = now.as_nanos() / PERIOD.as_nanos() as u64;
        let passed = period.saturating_sub(self.period).min(1000);
        self.count *= KEPT.powi(passed as i32);
        self.period = period.max(self.period);
        &mut self.count
    }
}

impl Room {
    /// Creates a table for up to `sources_max` sources. The key of its hash is drawn from `stream`.
    pub(crate) fn new(sources_max: usize, stream: &mut Stream) -> Self {
        Self {
            sources: SourceTable::new(sources_max, stream),
            max_min: MaxMin::default(),
            admitted: Fading::default(),
            scarce_until: Timestamp::ZERO,
            looked: Timestamp::ZERO,
            demands: Vec::new(),
        }
    }

    /// Returns how often a source was not distinguished because the table was full.
    pub(crate) fn overflowed(&self) -> u64 {
        self.sources.overflowed()
    }

    /// Records a call of a source that counts as `weight` sources. `headroom` is the room that the
    /// back ends have for the call. Returns whether the source may use the reserve.
    pub(crate) fn on_call(
        &mut self,
        now: Timestamp,
        source: u128,
        weight: u32,
        headroom: Headroom,
    ) -> bool {
        match headroom {
            Headroom::Any => return true,
            Headroom::Spare if now >= self.scarce_until => return true,
            Headroom::Spare => {}
            Headroom::Reserve | Headroom::Priority | Headroom::None => {
                self.scarce_until = now + SCARCE;
            }
        }
        let slot = self.sources.slot(source);
        let account = self.sources.get_mut(slot);
        // Sources that are not distinguished count as one.
        let is_shared = slot == SourceTable::<Account>::SHARED;
        account.weight = if is_shared { 1 } else { weight.max(1) };
        *account.offered.at(now) += 1.0;
        if now.since(self.looked) >= PAUSE {
            self.look(now);
        }
        if self.sources.len() <= 1 {
            return true;
        }
        let total = *self.admitted.at(now);
        let Account { weight, offered, admitted } = self.sources.get_mut(slot);
        let share = self.max_min.level(total) * f64::from(*weight);
        *offered.at(now) <= share || *admitted.at(now) <= SATISFIED * share
    }

    /// Records that a call of a source was admitted after [`on_call`](Self::on_call).
    pub(crate) fn on_admitted(&mut self, now: Timestamp, source: u128) {
        if now >= self.scarce_until {
            return;
        }
        let slot = self.sources.find(source).unwrap_or(SourceTable::<Account>::SHARED);
        *self.sources.get_mut(slot).admitted.at(now) += 1.0;
        *self.admitted.at(now) += 1.0;
    }

    /// Computes the demands. Forgets sources that offer nothing.
    fn look(&mut self, now: Timestamp) {
        let demands = &mut self.demands;
        self.sources.sweep(|account| {
            let offered = *account.offered.at(now);
            if offered > FORGOTTEN {
                demands.push((offered, f64::from(account.weight)));
            }
            offered > FORGOTTEN
        });
        self.max_min.set(self.demands.drain(..));
        self.looked = now;
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
