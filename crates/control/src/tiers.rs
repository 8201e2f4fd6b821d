//! Divides the new calls among tiers of service when the processor cannot serve all of them with
//! state.
//!
//! Service with state retransmits lost messages, absorbs retransmissions and fails over to another
//! server. Service without state only forwards messages, and takes less processor time. So there
//! are three tiers: with state, without state, and rejected. A call is rejected only if the
//! processor could not even serve all calls without state.
//!
//! # Signal
//!
//! There are three signals. The first is the occupancy ρ of the processor, smoothed over 0.3 s. The
//! second is the rate of new calls λ. The third is the processor time of a call, `s₁` with state
//! and `s₀` without ([`cost`]). Occupancy cannot exceed 1, so the work of unserved calls is added
//! to it. Unserved calls are those that were rejected because of the processor, and those that
//! wait. Waiting calls count as if they had to be served within a second. `q` is the share of the
//! calls that is served with state:
//!
//! ```text
//! ρ' = ρ + (rejected per second + waiting / 1 s) · (q·s₁ + (1 − q)·s₀)
//! ```
//!
//! # When it trips
//!
//! `q` falls as soon as ρ' exceeds the target τ. Service with state costs the part `q·λ·(s₁ − s₀)`
//! of the processor more than service without it. In each period, `q` falls by half of the amount
//! that would correct the excess. It falls by at most a quarter, because a measurement is wrong if
//! the process stood still in the period:
//!
//! ```text
//! q ← q − min(½·(ρ' − τ) / (λ·(s₁ − s₀)), ¼)
//! ```
//!
//! τ is a tenth below the occupancy that the law in force aims at, if it aims at one, and at most
//! [`occupancy_max`](TierSettings::occupancy_max). If τ were equal to the law's target, the law and
//! the tiers would react to the same excess. Then calls that can be served without state would be
//! rejected. If τ were higher, the law would keep ρ below τ, and `q` would never fall. A law that
//! reads a delay trips only when the processor is full, which is later.
//!
//! # How it recovers
//!
//! `q` rises by the same rule under three conditions: ρ' is below `τ − 0.05`, `q` has not fallen
//! for a second, and nothing is rejected. Without these conditions, `q` would take capacity that
//! the law needs in order to admit more callers. `q` rises by at most a fifth in a second, which is
//! slower than it falls. The reason is that the last messages of a call come long after the first,
//! so the full effect of a change of `q` is delayed. Between `τ − 0.05` and τ, `q` does not change.
//!
//! # Cold start
//!
//! All calls are served with state. Until `s₀` has been measured, it is assumed to be two thirds of
//! `s₁`. Until any cost has been measured, `q` falls by a quarter in each period in which ρ'
//! exceeds τ.
//!
//! # Which calls
//!
//! The [deterministic throttle](crate::ThrottleKind::Deterministic) selects the calls. Of any n
//! consecutive calls, `n·q` are served with state, plus or minus one.
//!
//! # Known bias
//!
//! `s₁` and `s₀` do not include work outside service (reception, sending). Service with state sends
//! more. So the measured difference is too small, and the steps would be too large, in practice by
//! a factor of at most two. Therefore a step is halved. If measurements show that state costs
//! nothing, `q` rises to 1 and stays there. Some pools always serve their calls in one tier. These
//! calls and their messages count in `s₁` and `s₀` too. While the occupancy is τ, a law that acts on
//! the occupancy of a tenth of a second may reject one call in a thousand, during a short burst.
//!
//! # Source
//!
//! Paper 000 §7: SERvartuka "dynamically changes the fraction of calls handled statefully and
//! statelessly"; a combined approach "would have three tiers, where calls could either be handled
//! statefully, handled statelessly, or dropped". The rule is ours.

mod cost;

use std::time::Duration;

use tidegate_world::{Timestamp, unit_enum};

use crate::filter::LowPass;
use crate::signals::Reading;
use crate::throttle::Deterministic;

use cost::CallCosts;

/// τ, the target occupancy, as a fraction of the occupancy that the law in force aims at.
const LEAD: f64 = 0.9;

/// The share of calls with state may rise while ρ', the occupancy with the unserved work, is at
/// least this far below the target τ.
const BAND: f64 = 0.05;

/// The change of the share of calls with state in one step, as a part of the change that would
/// bring the occupancy to its target.
const GAIN: f64 = 0.5;

/// The largest amount by which the share of calls with state falls in one period.
const FALL: f64 = 0.25;

/// The largest amount by which the share of calls with state rises in one second.
const RISE: f64 = 0.2;

/// Time after the last fall of the share of calls with state before the share may rise.
const HOLD: Duration = Duration::from_secs(1);

/// Time in seconds within which the waiting calls should be served.
const BACKLOG_TIME_S: f64 = 1.0;

/// Time constant of the low-pass filters of the occupancy and of the rate of new calls, in seconds.
const FILTER_S: f64 = 0.3;

/// The cost `s₀` of a call without state, as a fraction of the cost `s₁` with state, until `s₀` is
/// measured.
const STATELESS: f64 = 2.0 / 3.0;

/// Minimum number of new calls between two changes of the share of calls with state, unless
/// [`PERIOD_MAX`] has passed.
const CALLS: u64 = 30;

/// The longest time between two changes of the share of calls with state.
const PERIOD_MAX: Duration = Duration::from_secs(1);

unit_enum! {
    /// The kind of service that a call gets. Metrics use these names.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Tier {
        /// Tidegate keeps state for the call, so it can retransmit messages, absorb retransmissions
        /// and fail over.
        #[default]
        Stateful = "stateful",
        /// Each message is forwarded separately, without state.
        Stateless = "stateless",
    }
}

/// The parameters of the division of calls among the tiers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierSettings {
    /// Occupancy of the processor up to which all calls are served with state. It is above 0 and at
    /// most 1. The default is 0.85.
    pub occupancy_max: f64,
    /// The shortest time between two changes of the share of calls with state. The default is 100
    /// ms.
    pub period: Duration,
}

impl Default for TierSettings {
    fn default() -> Self {
        Self { occupancy_max: 0.85, period: Duration::from_millis(100) }
    }
}

/// The division of new calls among the tiers.
#[derive(Clone, Debug)]
pub struct Tiers {
    settings: TierSettings,
    /// q: the share of new calls that is served with state, 0 to 1.
    share: f64,
    /// τ: the target occupancy.
    target: f64,
    throttle: Deterministic,
    costs: CallCosts,
    /// ρ: the smoothed occupancy.
    occupancy: LowPass,
    /// λ: the smoothed rate of new calls, in calls/s.
    rate: LowPass,
    /// Time of the last fall of `share`.
    fell: Timestamp,
    /// The reading at the start of the current period, or `None` before the first period.
    since: Option<Reading>,
    /// New calls in the current period.
    begun: u64,
    rejected: u64,
}

impl Tiers {
    /// Creates a division in which all calls are served with state.
    ///
    /// # Panics
    /// Panics if `occupancy_max` is 0 or less, or above 1, or if `period` is zero.
    pub fn new(settings: TierSettings) -> Self {
        let TierSettings { occupancy_max, period } = settings;
        let is_right = occupancy_max > 0.0 && occupancy_max <= 1.0 && !period.is_zero();
        assert!(is_right, "{settings:?}");
        let mut throttle = Deterministic::default();
        throttle.start_at(1.0);
        Self {
            settings,
            share: 1.0,
            target: occupancy_max,
            throttle,
            costs: CallCosts::default(),
            occupancy: LowPass::new(FILTER_S),
            rate: LowPass::new(FILTER_S),
            fell: Timestamp::ZERO,
            since: None,
            begun: 0,
            rejected: 0,
        }
    }

    /// Returns the tier of the next new call. If `has_room` is false, there is no room for state,
    /// and the call is served without state.
    pub fn choose(&mut self, has_room: bool) -> Tier {
        self.begun += 1;
        self.costs.on_begun();
        // The throttle computes in fixed point, where a share just below 1 is rounded to 1.
        let passes = self.share >= 1.0 || self.throttle.passes(self.share);
        if passes && has_room { Tier::Stateful } else { Tier::Stateless }
    }

    /// Records that a new call begins in a pool that always serves its calls in one tier.
    pub fn on_begun(&mut self) {
        self.costs.on_begun();
    }

    /// Records that a message of `class`, below [`CLASSES_MAX`](tidegate_world::Work::CLASSES_MAX),
    /// was served.
    pub fn on_served(&mut self, class: u8) {
        self.costs.on_served(class);
    }

    /// Records that the service of a message of `class` in `tier` took `cost`. It is enough to
    /// record a part of the messages.
    pub fn on_completion(&mut self, class: u8, tier: Tier, cost: Duration) {
        self.costs.on_completion(class, tier, cost);
    }

    /// Records that a new call was rejected because of the processor.
    pub fn on_rejected(&mut self) {
        self.rejected += 1;
    }

    /// Takes a reading of the processor, and sets the share of calls with state when a period is
    /// over. `waiting` new calls are in the queue. `aimed_at` is the occupancy that the law in
    /// force aims at, if any.
    pub fn on_reading(&mut self, processor: Reading, waiting: usize, aimed_at: Option<f64>) {
        let Some(since) = self.since else {
            self.since = Some(processor);
            return;
        };
        let passed = processor.at.since(since.at);
        let is_over = passed >= self.settings.period
            && (self.begun + self.rejected >= CALLS || passed >= PERIOD_MAX);
        let occupancy = processor.occupancy_since(since).filter(|_| is_over);
        let Some(occupancy) = occupancy else { return };
        self.occupancy.update(occupancy, passed);
        let per_second = |count: u64| count as f64 / passed.as_secs_f64();
        self.rate.update(per_second(self.begun + self.rejected), passed);
        let unserved = per_second(self.rejected) + waiting as f64 / BACKLOG_TIME_S;
        let max = self.settings.occupancy_max;
        self.target = aimed_at.map_or(max, |aimed_at| max.min(LEAD * aimed_at));
        let step = self.step(processor.at, passed, unserved);
        if step < 0.0 {
            self.fell = processor.at;
        }
        self.share = (self.share + step).clamp(0.0, 1.0);
        (self.since, self.begun, self.rejected) = (Some(processor), 0, 0);
    }

    /// Returns the share of new calls that is served with state, 0 to 1.
    pub fn stateful_share(&self) -> f64 {
        self.share
    }

    /// Returns τ: the occupancy up to which all calls are served with state, as last set.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// Returns the time to serve all messages of a call in a tier, or `None` until it is measured.
    pub fn call_cost(&self, tier: Tier) -> Option<Duration> {
        self.costs.of(tier).map(Duration::from_secs_f64)
    }

    /// Returns the change of the share of calls with state after a period of `passed`. `unserved`
    /// is the number of calls a second that were not served, because they were rejected or wait.
    fn step(&self, now: Timestamp, passed: Duration, unserved: f64) -> f64 {
        let rise_max = RISE * passed.as_secs_f64();
        if self.costs.is_state_free() {
            return rise_max;
        }
        let stateful = self.costs.of(Tier::Stateful);
        let stateless = self.costs.of(Tier::Stateless).or(stateful.map(|cost| STATELESS * cost));
        let (stateful, stateless) = (stateful.or(stateless), stateless);
        let (stateful, stateless) = (stateful.unwrap_or(0.0), stateless.unwrap_or(0.0));
        let mean = self.share * stateful + (1.0 - self.share) * stateless;
        let missing = self.occupancy.value() + unserved * mean - self.target;
        let slope = self.rate.value() * (stateful - stateless);
        // If the costs do not differ, the step is as large as allowed.
        let step =
            |missing: f64| if slope > 0.0 { GAIN * missing / slope } else { missing.signum() };
        if missing > 0.0 {
            -step(missing).min(FALL)
        } else if missing < -BAND && self.rejected == 0 && now.since(self.fell) >= HOLD {
            step(-missing - BAND / 2.0).min(rise_max)
        } else {
            0.0
        }
    }
}

#[cfg(test)]
#[path = "tiers_tests.rs"]
mod tests;
