//! The ladder of disposals: what is done with new work that is not admitted.
//!
//! # Signal
//!
//! The share of the processor that refusing takes, and receive buffers that overflow. The cost
//! of one refusal is measured as a whole: what of the occupied time was not service is
//! reception, refusing and sending, and the refusals and their acknowledgements have their part
//! of it by number. So the kernel's work for their datagrams is in it, which is most of it.
//!
//! # Rungs
//!
//! 1. [`Reject`](Rung::Reject): each piece of work that is not admitted is answered. The sender
//!    knows at once, and sends no more.
//! 2. [`Thin`](Rung::Thin): a share `p` of the datagrams is dropped before they are read, and
//!    what is still read and not admitted is answered. When refusing `λ` arrivals a second at `r`
//!    each takes more than the budget `B`, there is nothing left to admit others with: the bound
//!    `(1 − m·r/s) / (1 − r/s)` ([`bound`](crate::bound)) falls to nothing. So as much is let
//!    through as is admitted, `a`, and as much again as can be refused within the budget:
//!
//! ```text
//! p = 1 − (B/r + a) / λ
//! ```
//!
//! # When it trips
//!
//! As soon as refusing took more than the budget in one period, or a hundredth of what arrived
//! found no room in the buffers. In the second case the measured cost is too low, or refusing is
//! not what takes the processor: no more than nine tenths of what was read then is let through.
//! That limit grows, slowly at first and twice as fast with each second in which nothing
//! overflows: one that was taken from a moment in which the process stood still is forgotten
//! within some seconds. So is a cost that was measured then: as long as there is thinning and
//! hardly anything to refuse, it is halved with each period.
//!
//! # How it recovers
//!
//! `λ` counts what was thinned out, so nothing has to be tried: `p` falls with the load, to
//! nothing if nine tenths of the budget suffice for all of it. Two seconds after that the ladder
//! is down. Between nine tenths and the whole of the budget it stays on the rung where it is.
//!
//! # Packets, not callers
//!
//! A caller that hears nothing sends again, up to seven packets in all (RFC 3261 §17.1.1.2), which
//! thinning brings forth. Where all packets of a caller are thinned alike (they are the same
//! bytes), what was read says how many were not: `λ` is taken for `1 / (1 − p)` of that at the
//! most, and so is the rate of callers. Where each is thinned by itself, `1 − p^7` of the callers
//! get through, after `(1 − p^7) / (1 − p)` packets each, and `λ` is up to seven times their rate.
//! Even that makes no trap: with `c` callers a second, of whom each is refused once he gets through,
//! `(1 − p)·λ = c·(1 − p^7)` is to be `B/r + a`, which no `p` above 0 satisfies once `c` is less
//! than that; so `p` falls until it is 0. It takes as long as callers repeat what was thinned out,
//! which is half a minute.
//!
//! # Cold start
//!
//! On the first rung. Before a refusal has been measured only overflow leads to the second.
//!
//! # Known bias
//!
//! Thinning is blind: it takes requests within a call that begin like new work and calls that would
//! have been admitted, all alike. What reception costs is attributed by number, as if all messages cost the same.
//!
//! # Source
//!
//! Paper 000 measures 9.68 to 26.69 µs to process a packet and 2.75 µs to drop it in the
//! application, and estimates 1.1 µs for the kernel (§6.1, §6.10); to drop there is its future work
//! (§2.4). With the rate of arrivals and these costs its model of the rate of service is
//! `1 / (t_a·f + t_d·(1 − f))` (§5.1), which shows why the cheaper disposal matters the more the
//! smaller `f` is. The rule by which the share is set is ours.

use std::time::Duration;

use tidegate_world::Timestamp;

/// What thinning aims at, as a part of the budget.
const AIM: f64 = 0.9;

/// How long nothing must have needed to be thinned before the ladder is down.
const HOLD: Duration = Duration::from_secs(2);

/// The part of what arrived that may overflow without consequence.
const OVERFLOW: f64 = 0.01;

/// The part of what was read when buffers overflowed that is let through next.
const BACK: f64 = 0.9;

/// How fast that limit grows at first: this part of itself each second.
const GROWTH: f64 = 0.1;

/// What is let through changes only by more than this part of itself: a change has its price.
const STEP: f64 = 0.1;

/// Weight of the newest period in the cost of a refusal.
const WEIGHT: f64 = 0.3;

/// Refusals that a period must have for their cost to count.
const REFUSALS: u64 = 10;

/// The largest share. With it one packet in a thousand tells how many there are.
const SHARE_MAX: f64 = 0.999;

/// How a ladder works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LadderSettings {
    /// The share of the processor that refusing may take, 0 to 1 without either; default 0.4.
    pub budget: f64,
    /// How often it decides; default 100 ms.
    pub period: Duration,
}

impl Default for LadderSettings {
    fn default() -> Self {
        Self { budget: 0.4, period: Duration::from_millis(100) }
    }
}

/// What is done with new work that is not admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rung {
    /// All of it is answered.
    #[default]
    Reject,
    /// A share of it is dropped before it is read, and the rest answered.
    Thin,
}

impl Rung {
    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Thin => "thin",
        }
    }
}

/// What a server has counted, since its start, of what the ladder looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Messages of all kinds that were read.
    pub messages: u64,
    /// Of them those that asked for the kind of work that is thinned, repetitions included.
    pub asked: u64,
    /// Of those the ones that were refused, again or for the first time.
    pub refused: u64,
    /// Messages that refusals brought in their turn: acknowledgements.
    pub brought: u64,
    /// Messages dropped on purpose before they were read. There may be others than the thinned
    /// among them.
    pub filtered: u64,
    /// Messages for which the receive buffers had no room.
    pub overflow: u64,
    /// Occupied time of the processor.
    pub occupied: Duration,
    /// Of that the time spent on service.
    pub served: Duration,
}

/// Chooses the disposal by what it costs.
#[derive(Clone, Debug)]
pub struct Ladder {
    settings: LadderSettings,
    rung: Rung,
    share: f64,
    /// Seconds that a refusal takes; `None` before it was measured.
    cost: Option<f64>,
    /// What may be let through, a second, since buffers overflowed.
    ceiling: f64,
    /// Seconds since they did.
    calm: f64,
    /// When thinning was last needed.
    needed: Timestamp,
    /// The last reading; `None` while there is nothing to compare with.
    last: Option<(Timestamp, Tally)>,
    /// The part of the processor that refusing took in the last period.
    load: f64,
}

impl Ladder {
    /// A ladder on its first rung.
    ///
    /// # Panics
    /// If the budget is not between 0 and 1, or the period is 0.
    pub fn new(settings: LadderSettings) -> Self {
        let LadderSettings { budget, period } = settings;
        assert!(budget > 0.0 && budget < 1.0 && !period.is_zero(), "{settings:?}");
        Self {
            settings,
            rung: Rung::Reject,
            share: 0.0,
            cost: None,
            ceiling: f64::INFINITY,
            calm: 0.0,
            needed: Timestamp::ZERO,
            last: None,
            load: 0.0,
        }
    }

    /// The server was read. Decides if a period has passed since the last decision.
    pub fn on_reading(&mut self, now: Timestamp, tally: Tally) {
        let Some((since, earlier)) = self.last else {
            self.last = Some((now, tally));
            return;
        };
        let passed = now.since(since);
        if passed >= self.settings.period {
            self.last = Some((now, tally));
            self.decide(now, &Period::between(&earlier, &tally, passed));
        }
    }

    /// Which rung it is on.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// The share of the packets that is to be dropped before they are read, 0 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// What a refusal takes of the processor; `None` before it was measured.
    pub fn refusal_cost(&self) -> Option<Duration> {
        self.cost.map(Duration::from_secs_f64)
    }

    /// The part of the processor that refusing took in the last period, 0 to 1.
    pub fn load(&self) -> f64 {
        self.load
    }

    /// When it wants to be read, whether or not anything arrives: it would else keep dropping
    /// what comes long after a flood. `None` on the first rung.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let (since, _) = self.last.filter(|_| self.rung != Rung::Reject)?;
        Some(since + self.settings.period)
    }

    fn decide(&mut self, now: Timestamp, period: &Period) {
        self.load = period.load;
        self.cost = match (self.cost, period.cost) {
            (None, measured) => measured,
            (Some(mean), Some(cost)) => Some(mean + WEIGHT * (cost - mean)),
            // More are let through until there are enough to measure.
            (Some(mean), None) if self.share > 0.0 => Some(mean / 2.0),
            (mean, None) => mean,
        };
        let thinned = period.thinned(self.share);
        let arrived = period.asked + thinned + period.overflow;
        let overflows = period.overflow > OVERFLOW * arrived;
        if overflows {
            self.calm = 0.0;
            self.ceiling = (BACK * period.asked).max(1.0);
        } else {
            self.calm += period.seconds;
            self.ceiling *= (GROWTH * self.calm.exp2() * period.seconds).exp();
        }
        if overflows || self.load > self.settings.budget {
            self.rung = Rung::Thin;
        }
        if self.rung == Rung::Reject {
            return;
        }
        let refusable = self.cost.map_or(f64::INFINITY, |cost| AIM * self.settings.budget / cost);
        let let_through = (refusable + period.admitted).min(self.ceiling) / arrived;
        if let_through < 1.0 {
            self.needed = now;
            self.thin(1.0 - let_through);
        } else {
            self.share = 0.0;
            if now.since(self.needed) >= HOLD {
                (self.rung, self.ceiling) = (Rung::Reject, f64::INFINITY);
            }
        }
    }

    fn thin(&mut self, share: f64) {
        let share = share.min(SHARE_MAX);
        let passes = 1.0 - self.share;
        if self.share == 0.0 || (share - self.share).abs() > STEP * passes {
            self.share = share;
        }
    }
}

/// What happened between two readings; rates are per second.
#[derive(Debug)]
struct Period {
    seconds: f64,
    asked: f64,
    admitted: f64,
    filtered: f64,
    overflow: f64,
    load: f64,
    /// Seconds that a refusal took, if there were enough.
    cost: Option<f64>,
}

impl Period {
    fn between(earlier: &Tally, later: &Tally, passed: Duration) -> Self {
        let since = |count: fn(&Tally) -> u64| count(later).saturating_sub(count(earlier));
        let time = |time: fn(&Tally) -> Duration| time(later).saturating_sub(time(earlier));
        let seconds = passed.as_secs_f64();
        let rate = |count: u64| count as f64 / seconds;
        let (messages, refused) = (since(|t| t.messages), since(|t| t.refused));
        let part = (refused + since(|t| t.brought)) as f64 / messages.max(1) as f64;
        let beside = time(|t| t.occupied).saturating_sub(time(|t| t.served));
        let refusing = beside.as_secs_f64() * part.min(1.0);
        let asked = since(|t| t.asked);
        Self {
            seconds,
            asked: rate(asked),
            admitted: rate(asked.saturating_sub(refused)),
            filtered: rate(since(|t| t.filtered)),
            overflow: rate(since(|t| t.overflow)),
            load: refusing / seconds,
            cost: (refused >= REFUSALS).then(|| refusing / refused as f64),
        }
    }

    /// What was dropped at this share of what asked. Others may be among what was filtered, so
    /// it is no more than what belongs to those that were read.
    fn thinned(&self, share: f64) -> f64 {
        self.filtered.min((self.asked + self.overflow) * share / (1.0 - share))
    }
}

#[cfg(test)]
#[path = "ladder_tests.rs"]
mod tests;
