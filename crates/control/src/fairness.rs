//! Which source's work passes, when not all may.
//!
//! A throttle says how many pieces pass. If it also says which, each source gets a part of them
//! that is as large as its part of what is offered, and one that floods gets them all. Here each
//! gets the least of what it offers and of a [level](MaxMin) that is the same for all: what a
//! source offers beyond that is at its own expense.
//!
//! - What a source offers is counted, with weights that fade by a fifth every 100 ms; so is the
//!   time that was watched. Demands are taken from these rates every 100 ms, and sooner, but no
//!   sooner than after 10 ms, when twice as much has come as was expected. In between the level
//!   follows the share that is admitted, and a source's own rate is always that of now.
//! - A source below the level passes. One above it passes at the rate of the level, by a token
//!   bucket of its own that holds what comes in 100 ms, one piece at least.
//! - *Credit* is what the throttle has let pass and nobody has taken. A source above the level
//!   passes only on credit, and may take, whatever its bucket says, what would be lost because
//!   there is no room for more. A source below may run into debt, as deep as the credit may be
//!   high: as much as is admitted in 100 ms, or four pieces, but no more than one for each source.
//!   So no more passes in all than the throttle lets, but for that.
//! - *Room*, in a queue or in a window, is shared by a threshold: a source may hold eight times
//!   what is free (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998), and none that holds
//!   something takes the last place. One flooding source leaves a ninth free for all others; who
//!   needs less than the threshold does not notice it. A source that is alone may hold all.
//!
//! A source with a weight counts as that many: it has as many times the level, and of the room.
//!
//! **Cold start.** Before the first 10 ms nothing is known of anybody, and all are below the level.
//! **Known bias.** A source that comes seldom is taken for one of no rate just before it comes, so
//! that many of such are all below the level, and the throttle chooses among them. Sources for
//! whom the table has no room are one source together; one is forgotten when it has offered
//! nothing for a second or two. Who can forge addresses is as many sources as he likes.

use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use crate::MaxMin;
use crate::source_table::{Slot, SourceTable};

/// What is counted fades once in each of these.
const PERIOD: Duration = Duration::from_millis(100);

/// What is left of a count after a period: a time constant of .45 s.
const KEPT: f64 = 0.8;

/// Credit for so much may always be kept, if there are as many sources.
const CREDIT_MIN: f64 = 4.0;

/// The least time between two looks at the demands of all.
const PAUSE: Duration = Duration::from_millis(10);

/// A source whose count has faded to this is forgotten.
const FORGOTTEN: f64 = 0.05;

/// Ten tenths of a token are less than one in floating point.
const ONE: f64 = 1.0 - 1e-9;

/// A source may hold so many times what is free.
const TIMES_FREE: usize = 8;

/// A source that has offered something, until what it offered has been judged, or is
/// [held](Fairness::hold) no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(Slot);

/// What becomes of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It passes.
    Yes,
    /// Its source has had its share.
    OverShare,
    /// Its source has not, but less passes than all such sources offer.
    No,
}

/// Shares what passes among the sources. A source is any number: of an address, say.
#[derive(Debug)]
pub struct Fairness {
    sources: SourceTable<Account>,
    max_min: MaxMin,
    /// The period up to which time has faded.
    period: u64,
    /// Faded time before that period, in seconds.
    watched_s: f64,
    /// When demands were looked at.
    looked: Timestamp,
    /// Pieces offered since then.
    offered: f64,
    credit: f64,
    /// Kept for its memory.
    demands: Vec<(f64, f64)>,
}

#[derive(Debug)]
struct Account {
    /// Number of sources that it counts as.
    weight: u32,
    /// Pieces offered, each faded by its age.
    count: f64,
    /// The period up to which they have faded.
    period: u64,
    tokens: f64,
    filled: Timestamp,
    held: usize,
}

impl Default for Account {
    fn default() -> Self {
        Self { weight: 1, count: 0.0, period: 0, tokens: 0.0, filled: Timestamp::ZERO, held: 0 }
    }
}

impl Account {
    fn fade(&mut self, period: u64) {
        self.count *= faded(period - self.period);
        self.period = period;
    }

    /// Fills the bucket at `level` pieces a second.
    fn fill(&mut self, now: Timestamp, level: f64) {
        let depth = (level * PERIOD.as_secs_f64()).max(1.0);
        let earned = level * now.since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + earned).min(depth);
        self.filled = now;
    }
}

/// What is left of 1 after so many periods.
fn faded(periods: u64) -> f64 {
    KEPT.powi(periods.min(1000) as i32)
}

impl Fairness {
    /// Tells up to `sources_max` sources apart. The key of its table is drawn from `stream`.
    pub fn new(sources_max: usize, stream: &mut Stream) -> Self {
        Self {
            sources: SourceTable::new(sources_max, stream),
            max_min: MaxMin::default(),
            period: 0,
            watched_s: 0.0,
            looked: Timestamp::ZERO,
            offered: 0.0,
            credit: 0.0,
            demands: Vec::new(),
        }
    }

    /// Sources that offered something lately.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Pieces from sources for which there was no room.
    pub fn overflowed(&self) -> u64 {
        self.sources.overflowed()
    }

    /// The most that a source of weight 1 may have of its pieces pass, in pieces a second, while
    /// the share `share` of all passes; infinite if each may have all.
    pub fn level(&self, share: f64) -> f64 {
        if share >= 1.0 {
            return f64::INFINITY;
        }
        self.max_min.level(share * self.max_min.sum())
    }

    /// A source that counts as `weight` sources, 1 at least, offers a piece of work.
    pub fn on_arrival(&mut self, now: Timestamp, source: u128, weight: u32) -> Source {
        self.advance(now);
        let slot = self.sources.slot(source);
        let account = self.sources.get_mut(slot);
        if slot != SourceTable::<Account>::SHARED {
            account.weight = weight.max(1);
        }
        account.fade(self.period);
        account.count += 1.0;
        self.offered += 1.0;
        let since = now.since(self.looked);
        let expected = self.max_min.sum() * since.as_secs_f64();
        if since >= PERIOD || (since >= PAUSE && self.offered > 2.0 * expected) {
            self.look(now);
        }
        Source(slot)
    }

    /// Whether a piece of a source's work passes, of which the throttle would let the share
    /// `share` pass, 0 to 1, and has or has not let pass this one.
    pub fn judge(&mut self, now: Timestamp, source: Source, share: f64, let_pass: bool) -> Pass {
        self.advance(now);
        let (level, room) = (self.level(share), self.credit_max(share));
        self.credit = (self.credit + f64::from(u8::from(let_pass))).min(room);
        let watched_s = self.watched(now);
        let account = self.sources.get_mut(source.0);
        let level = level * f64::from(account.weight);
        account.fade(self.period);
        account.fill(now, level);
        // What is judged now is not among what came before it.
        let pass = if share <= 0.0 {
            Pass::No
        } else if (account.count - 1.0) / watched_s <= level {
            if self.credit > -room { Pass::Yes } else { Pass::No }
        } else if self.credit >= room || (self.credit >= 1.0 && account.tokens >= ONE) {
            Pass::Yes
        } else {
            Pass::OverShare
        };
        if pass == Pass::Yes {
            self.credit -= 1.0;
            account.tokens = (account.tokens - 1.0).max(0.0);
        }
        pass
    }

    /// Whether a source may hold one more of `room` places, of which `held` are taken.
    pub fn may_hold(&self, source: Source, room: usize, held: usize) -> bool {
        let free = room.saturating_sub(held);
        let Account { held: own, weight, .. } = *self.sources.get(source.0);
        if self.sources.len() <= 1 || own == 0 {
            return free > 0;
        }
        let times_free = TIMES_FREE.saturating_mul(weight as usize);
        own < times_free.saturating_mul(free.saturating_sub(1))
    }

    /// A piece of a source's work takes a place.
    pub fn hold(&mut self, source: Source) {
        self.sources.get_mut(source.0).held += 1;
    }

    /// It leaves its place.
    pub fn release(&mut self, source: Source) {
        let held = &mut self.sources.get_mut(source.0).held;
        debug_assert!(*held > 0, "what leaves was held");
        *held = held.saturating_sub(1);
    }

    /// Credit, and debt, that there may be while this share passes.
    fn credit_max(&self, share: f64) -> f64 {
        let passing = share * self.max_min.sum() * PERIOD.as_secs_f64();
        passing.max(CREDIT_MIN).min(self.sources.len() as f64).max(1.0)
    }

    /// Time has passed.
    fn advance(&mut self, now: Timestamp) {
        let period = now.as_nanos() / PERIOD.as_nanos() as u64;
        if period > self.period {
            let passed = period - self.period;
            // Whole periods, the last of them faded once.
            let whole = PERIOD.as_secs_f64() * KEPT * (1.0 - faded(passed)) / (1.0 - KEPT);
            self.watched_s = self.watched_s * faded(passed) + whole;
            self.period = period;
        }
    }

    /// Faded time up to now, in seconds.
    fn watched(&self, now: Timestamp) -> f64 {
        let begun = PERIOD.as_nanos() as u64 * self.period;
        let open = Duration::from_nanos(now.as_nanos().saturating_sub(begun));
        (self.watched_s + open.as_secs_f64()).max(PAUSE.as_secs_f64())
    }

    /// Takes demands from what everybody offers, and forgets who offers nothing.
    fn look(&mut self, now: Timestamp) {
        let (period, watched_s) = (self.period, self.watched(now));
        let demands = &mut self.demands;
        self.sources.sweep(|account| {
            account.fade(period);
            let is_known = account.count > FORGOTTEN || account.held > 0;
            if account.count > FORGOTTEN {
                demands.push((account.count / watched_s, f64::from(account.weight)));
            }
            is_known
        });
        self.max_min.set(self.demands.drain(..));
        self.looked = now;
        self.offered = 0.0;
    }
}

#[cfg(test)]
#[path = "fairness_tests.rs"]
mod tests;
