//! Divides the admitted work fairly among the sources if not all work may pass.
//!
//! A throttle decides how many pieces pass. If the throttle also selected the pieces, each source
//! would get a share in proportion to its offered work, and a source that floods would get almost
//! everything. Here each source gets all that it offers, up to a [level](MaxMin) that is the same
//! for all sources. A source that offers more than the level loses only its own work.
//!
//! - The count of the work that a source offers and the observation time are multiplied by 0.8
//!   every 100 ms. The count divided by the time is the rate of the source. Every 100 ms, the level
//!   is computed from the rates of all sources, their *demands*. If more than twice the expected
//!   work has arrived, the level is computed earlier, but at most every 10 ms. Between two
//!   computations, the level follows the admitted share, and is compared with the current rate of
//!   the source.
//! - A source below the level passes. A source above it passes at the rate of the level, through
//!   its own token bucket. The bucket holds the tokens of 100 ms, but at least one token.
//! - *Credit* is the number of pieces that the throttle has admitted and that no source has used. A
//!   source above the level needs credit for each piece. When the credit is at its maximum, further
//!   credit would be lost. So the source may then use credit even if its bucket is empty. A source
//!   below the level may make the credit negative, down to minus the same maximum. The maximum is
//!   the number of pieces admitted in 100 ms, at least four, but at most one for each source. So
//!   the total can exceed the amount that the throttle allows by this maximum.
//! - Places in a queue or a window are shared by a threshold: a source may hold up to eight times
//!   the number of free places (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998). So a
//!   flooding source leaves a ninth of the places for all others. A source that needs fewer places
//!   than the threshold is not affected. A source may always hold its weighted share of the places.
//!   The last free place is for a source below its share, or for a source that holds no place if no
//!   known source has a larger weight. If the queue has only one place, any source gets it.
//!
//! If only one source is known, the throttle alone decides. The source may hold all places except
//! one, which is for the first piece of another source. If there is only one place, the source gets
//! it.
//!
//! A source with a weight counts as that many sources: it gets that many times the level, and that
//! many shares of the places. If the messages of an address have several weights, the largest
//! weight in the last two periods of 100 ms in which it sent counts.
//!
//! **Cold start.** In the first 10 ms after the start, nothing is known about any source, and all
//! sources are below the level. **Known bias.** A source that sends rarely is assumed to have no
//! rate before it sends. If there are many such sources, all of them are below the level, and the
//! throttle selects among them. All sources for which the table has no room count as one source. A
//! source is forgotten when its count has faded: about 1.4 s after a single piece, and about 4 s
//! after a stream of 1,000 pieces a second. An attacker that forges addresses can appear as any
//! number of sources.

use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use crate::MaxMin;
use crate::fading::{Observation, PERIOD, faded};
use crate::recent_weight::RecentWeight;
use crate::source_table::{Slot, SourceTable};

/// Lower limit for the maximum credit (the number of pieces that the throttle has admitted and no
/// source has used). But the maximum is never above the number of sources.
const CREDIT_MIN: f64 = 4.0;

/// Minimum time between two computations of the demands of all sources (the rates of their work).
const PAUSE: Duration = Duration::from_millis(10);

/// A source is forgotten when its count of pieces, which fades with time, has fallen to this value.
const FORGOTTEN: f64 = 0.05;

/// One token, with a tolerance, because ten times a tenth is less than one in floating point.
const ONE: f64 = 1.0 - 1e-9;

/// Maximum number of pieces that a source may have in the queue, as a multiple of the free places.
const TIMES_FREE: usize = 8;

/// A reference to a source that has offered a piece. The reference is valid until the gate has
/// judged the piece, or until the piece is no longer [held](Fairness::hold).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(Slot);

/// The decision on a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairnessDecision {
    /// The piece passes.
    Yes,
    /// The piece does not pass: its source has used up its share.
    OverShare,
    /// The piece does not pass, although its source is below its share: all sources below their
    /// shares together offer more than may pass.
    No,
}

/// The division of the admitted work among the sources. A source is any number, for example an
/// address.
#[derive(Debug)]
pub struct Fairness {
    sources: SourceTable<Account>,
    max_min: MaxMin,
    observation: Observation,
    /// The time at which the demands (the rates of all sources) were last computed.
    looked: Timestamp,
    /// Number of pieces of work that all sources have offered since the demands were last computed.
    offered: f64,
    credit: f64,
    /// The largest weight of a source when the demands were last computed.
    weight_max: u32,
    /// A buffer for the demands, kept to reuse its memory.
    demands: Vec<(f64, f64)>,
}

#[derive(Debug, Default)]
struct Account {
    /// Number of sources that this source counts as.
    weight: RecentWeight,
    /// Number of pieces that the source has offered. Each piece counts less with its age.
    count: f64,
    /// The number of the period up to which `count` has decayed.
    period: u64,
    tokens: f64,
    filled: Timestamp,
    held: usize,
}

impl Account {
    fn fade(&mut self, period: u64) {
        self.count *= faded(period - self.period);
        self.period = period;
    }

    /// Adds to the token bucket of the source the tokens earned since the last call, at `level`
    /// tokens a second.
    fn fill(&mut self, now: Timestamp, level: f64) {
        let depth = (level * PERIOD.as_secs_f64()).max(1.0);
        let earned = level * now.since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + earned).min(depth);
        self.filled = now;
    }
}

impl Fairness {
    /// Creates a table for up to `sources_max` distinct sources. The key of its hash is drawn from
    /// `stream`.
    pub fn new(sources_max: usize, stream: &mut Stream) -> Self {
        Self {
            sources: SourceTable::new(sources_max, stream),
            max_min: MaxMin::default(),
            observation: Observation::default(),
            looked: Timestamp::ZERO,
            offered: 0.0,
            credit: 0.0,
            weight_max: 1,
            demands: Vec::new(),
        }
    }

    /// Returns the number of sources that recently offered work.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Returns the number of pieces from sources for which the table had no room.
    pub fn overflowed(&self) -> u64 {
        self.sources.overflowed()
    }

    /// Returns the maximum rate of a source of weight 1, in pieces a second, if the part `share` of
    /// all work passes. The rate is infinite if all work of every source passes.
    pub fn level(&self, share: f64) -> f64 {
        if share >= 1.0 {
            return f64::INFINITY;
        }
        self.max_min.level(share * self.max_min.sum())
    }

    /// Records that a source offers a piece of work. The source counts as `weight` sources, at
    /// least 1.
    pub fn on_arrival(&mut self, now: Timestamp, source: u128, weight: u32) -> Source {
        self.observation.advance(now);
        let period = self.observation.period();
        let slot = self.sources.slot(source);
        let account = self.sources.get_mut(slot);
        if slot != SourceTable::<Account>::SHARED {
            account.weight.record(period, weight);
        }
        account.fade(period);
        account.count += 1.0;
        self.offered += 1.0;
        let since = now.since(self.looked);
        let expected = self.max_min.sum() * since.as_secs_f64();
        if since >= PERIOD || (since >= PAUSE && self.offered > 2.0 * expected) {
            self.look(now);
        }
        Source(slot)
    }

    /// Decides whether a piece of a source's work passes. `share`, 0 to 1, is the share of all work
    /// that the throttle admits. `let_pass` is true if the throttle admits this piece.
    pub(crate) fn decide_waiting(
        &mut self,
        now: Timestamp,
        source: Source,
        share: f64,
        let_pass: bool,
    ) -> FairnessDecision {
        self.observation.advance(now);
        if self.sources.len() <= 1 {
            // There is no other source to share with, so the throttle alone decides.
            return if let_pass { FairnessDecision::Yes } else { FairnessDecision::No };
        }
        let (level, room) = (self.level(share), self.credit_max(share));
        self.credit = (self.credit + f64::from(u8::from(let_pass))).min(room);
        let watched_s = self.observation.seconds(now);
        let account = self.sources.get_mut(source.0);
        let level = level * f64::from(account.weight.get());
        account.fade(self.observation.period());
        account.fill(now, level);
        // `count` already includes the judged piece.
        let pass = if share <= 0.0 {
            FairnessDecision::No
        } else if (account.count - 1.0) / watched_s <= level {
            if self.credit > -room { FairnessDecision::Yes } else { FairnessDecision::No }
        } else if self.credit >= room || (self.credit >= 1.0 && account.tokens >= ONE) {
            FairnessDecision::Yes
        } else {
            FairnessDecision::OverShare
        };
        if pass == FairnessDecision::Yes {
            self.credit -= 1.0;
            account.tokens = (account.tokens - 1.0).max(0.0);
        }
        pass
    }

    /// Returns whether the queue may take one more piece of work from `source`. The queue has
    /// `room` places. The pieces of all sources occupy `held` of them.
    pub fn may_hold(&self, source: Source, room: usize, held: usize) -> bool {
        let free = room.saturating_sub(held);
        let Account { held: own, weight, .. } = self.sources.get(source.0);
        let (own, weight) = (*own, weight.get());
        if free == 0 {
            return false;
        }
        if self.sources.len() <= 1 {
            // The last place is for a source that is not known yet.
            return free > 1 || held == 0;
        }
        // The demands do not include sources that are new since the last computation.
        let weights = self.max_min.weight().max(self.sources.len() as f64);
        let share = room as f64 * f64::from(weight) / weights;
        if (own + 1) as f64 <= share {
            return true;
        }
        // The last place is for a source below its share.
        match own {
            0 => free > 1 || held == 0 || weight >= self.weight_max,
            _ => own < TIMES_FREE.saturating_mul(free - 1),
        }
    }

    /// Records that a piece of a source's work occupies a place in the queue.
    pub fn hold(&mut self, source: Source) {
        self.sources.get_mut(source.0).held += 1;
    }

    /// Records that a piece of a source's work no longer occupies a place in the queue.
    pub fn release(&mut self, source: Source) {
        let held = &mut self.sources.get_mut(source.0).held;
        debug_assert!(*held > 0, "the source holds no place in the queue");
        *held = held.saturating_sub(1);
    }

    /// Returns the maximum credit, in pieces, while this share of the work passes. The credit is
    /// the number of pieces that the throttle has admitted and no source has used. The credit may
    /// be negative, but is at least minus the maximum.
    fn credit_max(&self, share: f64) -> f64 {
        let passing = share * self.max_min.sum() * PERIOD.as_secs_f64();
        passing.max(CREDIT_MIN).min(self.sources.len() as f64).max(1.0)
    }

    /// Computes the rate of the work that each source offers. Forgets sources that offer nothing.
    fn look(&mut self, now: Timestamp) {
        let (period, watched_s) = (self.observation.period(), self.observation.seconds(now));
        let demands = &mut self.demands;
        let mut weight_max = 1;
        self.sources.sweep(|account| {
            account.fade(period);
            let weight = account.weight.get();
            weight_max = weight_max.max(weight);
            if account.count > FORGOTTEN {
                demands.push((account.count / watched_s, f64::from(weight)));
            }
            account.count > FORGOTTEN || account.held > 0
        });
        self.max_min.set(self.demands.drain(..));
        self.weight_max = weight_max;
        self.looked = now;
        self.offered = 0.0;
    }
}

#[cfg(test)]
#[path = "fairness_tests.rs"]
mod tests;
