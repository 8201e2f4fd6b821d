//! The ladder of shedding: how work that is not admitted is rejected or dropped.
//!
//! # Signal
//!
//! The share of the processor that rejecting takes, and receive buffers that overflow. The cost of
//! one rejection is measured as a whole: the occupied time outside service is reception, rejecting
//! and sending, and the rejections and their acknowledgements have their part of it by number. So
//! the kernel's work for their datagrams is included, which is most of it.
//!
//! # Rungs
//!
//! 1. [`Reject`](Rung::Reject): each piece of work that is not admitted is answered. The sender
//!    knows at once, and sends no more.
//! 2. [`Pad`](Rung::Pad): all answers have one length, so that the kernel takes them in batches. They
//!    cost a third less, and some bytes more.
//! 3. [`Thin`](Rung::Thin): a share `p` of the datagrams is dropped before they are read, and
//!    work that is still read and not admitted is answered. When rejecting `λ` arrivals a second at
//!    `r` each takes more than the budget `B`, there is nothing left to serve others with: the bound
//!    `(1 − m·r/s) / (1 − r/s)` ([`bound`](crate::bound)) falls to nothing. So as much passes
//!    as is admitted, `a`, and as much again as can be rejected within the budget:
//!
//! ```text
//! p = 1 − (B/r + a) / λ
//! ```
//!
//! # When it trips
//!
//! The second rung: as soon as rejecting took more than a half of the budget in one period. The third:
//! as soon as it took more than the budget, or a hundredth of the arrivals
//! found no room in the buffers. In the second case the measured cost is too low, or rejecting is
//! not what takes the processor: then at most nine tenths of the messages that were read pass. That
//! limit grows, slowly at first and twice as fast with each second without overflow: one that was
//! taken from a moment in which the process stood still is forgotten within some seconds. So is a
//! cost that was measured then: as long as datagrams are dropped and hardly any work is left to
//! reject, it falls by a fifth with each period.
//!
//! # How it recovers
//!
//! `λ` and `a` are means. They follow a step up at once, and all else at once if the processor has idle time and in
//! two seconds otherwise. Arrivals are read in bursts, because the processor is given in pieces; and each
//! fall of `p` lets callers in that were dropped before and retransmit.
//! `λ` includes the dropped datagrams, so no trial is needed: `p` falls with the load, to nothing
//! if nine tenths of the budget suffice for all of it. Two seconds after that the ladder is on its second
//! rung. Between nine tenths and the whole of the budget it stays on the third. From the second it steps
//! down after two seconds in which rejecting took less than a quarter of the budget: without padding that
//! is less than a half.
//!
//! # Packets, not callers
//!
//! A caller without an answer retransmits, up to seven packets in all (RFC 3261 §17.1.1.2), which
//! dropping causes. Where all packets of a caller are treated alike (they are the same bytes), the
//! messages read show how many were not dropped: `λ` is taken for at most `1 / (1 − p)` of them,
//! and so is the rate of callers. Where each is drawn by itself, `1 − p^7` of the callers get
//! through, after `(1 − p^7) / (1 − p)` packets each, and `λ` is up to seven times their rate. Even
//! that is no trap: with `c` callers a second, each rejected once it gets through, `(1 − p)·λ =
//! c·(1 − p^7)` should equal `B/r + a`, which no `p` above 0 satisfies once `c` is less than that;
//! so `p` falls until it is 0. That takes as long as callers retransmit dropped requests, which is
//! half a minute.
//!
//! # Cold start
//!
//! On the first rung. Before a rejection has been measured only overflow leads to the second.
//!
//! # Known bias
//!
//! Dropping is blind: it also hits in-dialog requests that begin like new work, and calls that
//! would have been admitted. The cost of reception is attributed by number, as if all messages cost
//! the same.
//!
//! # Source
//!
//! Paper 000 measures 9.68 to 26.69 µs to process a packet and 2.75 µs to drop it in the
//! application, and estimates 1.1 µs for the kernel (§6.1, §6.10); to drop there is its future work
//! (§2.4). With the rate of arrivals and these costs its model of the rate of service is `1 /
//! (t_a·f + t_d·(1 − f))` (§5.1), which shows why the cheaper way matters the more the smaller `f`
//! is. The rule for the share is ours.

use std::time::Duration;

use tidegate_world::Timestamp;

/// The target of dropping, as a part of the budget.
const AIM: f64 = 0.9;

/// The parts of the budget above which answers are padded, and below which they need not be.
const PAD: [f64; 2] = [0.5, 0.25];

/// Time for which a rung must be unnecessary before the ladder steps down from it.
const HOLD: Duration = Duration::from_secs(2);

/// The part of the arrivals that may overflow without consequence.
const OVERFLOW: f64 = 0.01;

/// The part of the messages read at an overflow that passes next.
const BACK: f64 = 0.9;

/// Initial growth of that limit: this part of itself each second.
const GROWTH: f64 = 0.1;

/// Range of factors within which the amount that passes is not changed, because a change has a
/// cost: each share that passes again begins with callers who retransmit.
const STEPS: [f64; 2] = [0.9, 1.5];

/// Time after which more passes even without another sign of room.
const PATIENCE: Duration = Duration::from_secs(5);

/// Weight of the newest period in the cost of a rejection.
const COST_WEIGHT: f64 = 0.1;

/// Weight of the newest period in rates if it is far above the mean, or if there was idle time.
const RATE_WEIGHT: f64 = 0.5;

/// Multiple of the mean that counts as far above it.
const FAR: f64 = 1.5;

/// Weight in all other cases. When the share falls, it admits callers that were dropped before, as
/// they retransmit for up to half a minute.
const RATE_WEIGHT_BUSY: f64 = 0.05;

/// Part of a period without work that counts as room.
const IDLE: f64 = 0.1;

/// Weight of the newest period in the part of the processor that rejecting takes.
const LOAD_WEIGHT: f64 = 0.3;

/// Factor on the cost of a rejection after a period with too few rejections to measure it.
const DOUBT: f64 = 0.8;

/// Rejections that a period needs for their cost to count.
const REFUSALS: u64 = 10;

/// The largest share. With it one packet in a thousand is read and shows the total.
const SHARE_MAX: f64 = 0.999;

/// The parameters of a ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LadderSettings {
    /// The share of the processor that rejecting may take, between 0 and 1; default 0.4.
    pub budget: f64,
    /// Interval of its decisions; default 100 ms.
    pub period: Duration,
    /// Whether it has the rung [`Pad`](Rung::Pad); default false.
    pub pads: bool,
    /// Whether it has the rung [`Thin`](Rung::Thin); default true.
    pub thins: bool,
}

impl Default for LadderSettings {
    fn default() -> Self {
        Self { budget: 0.4, period: Duration::from_millis(100), pads: false, thins: true }
    }
}

/// The treatment of new work that is not admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rung {
    /// All work that is not admitted is answered.
    #[default]
    Reject,
    /// All work that is not admitted is answered, with answers of one length.
    Pad,
    /// A share of it is dropped before it is read; the rest is answered.
    Thin,
}

impl Rung {
    /// Returns its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Pad => "pad",
            Self::Thin => "thin",
        }
    }
}

/// The counts of a server, since its start, that the ladder uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Messages of all kinds that were read.
    pub messages: u64,
    /// Messages that asked for the kind of work that may be dropped, retransmissions included.
    pub asked: u64,
    /// Messages of that kind that were rejected, again or for the first time.
    pub refused: u64,
    /// Messages caused by rejections: acknowledgements.
    pub brought: u64,
    /// Messages dropped on purpose before they were read, including those dropped for other
    /// reasons.
    pub filtered: u64,
    /// Messages for which the receive buffers had no room.
    pub overflow: u64,
    /// Occupied time of the processor.
    pub occupied: Duration,
    /// Time spent on service.
    pub served: Duration,
}

/// The choice of the cheapest treatment.
#[derive(Clone, Debug)]
pub struct Ladder {
    settings: LadderSettings,
    rung: Rung,
    share: f64,
    /// Seconds that a rejection takes; `None` before it was measured.
    cost: Option<f64>,
    /// Limit on the messages a second that pass, after an overflow.
    ceiling: f64,
    /// Seconds since the overflow.
    calm: f64,
    /// Time at which the rung was last needed.
    needed: Timestamp,
    /// Time at which the share was last changed.
    changed: Timestamp,
    /// The last reading; `None` before the first.
    last: Option<(Timestamp, Tally)>,
    /// The part of the processor that rejecting takes; `None` before the first period.
    load: Option<f64>,
    /// Arrivals a second.
    arrived: f64,
    /// The number of admitted ones among them.
    admitted: f64,
}

impl Ladder {
    /// Creates a ladder on its first rung.
    ///
    /// # Panics
    /// If the budget is not between 0 and 1, or the period is 0.
    pub fn new(settings: LadderSettings) -> Self {
        let LadderSettings { budget, period, .. } = settings;
        assert!(budget > 0.0 && budget < 1.0 && !period.is_zero(), "{settings:?}");
        Self {
            settings,
            rung: Rung::Reject,
            share: 0.0,
            cost: None,
            ceiling: f64::INFINITY,
            calm: 0.0,
            needed: Timestamp::ZERO,
            changed: Timestamp::ZERO,
            last: None,
            load: None,
            arrived: 0.0,
            admitted: 0.0,
        }
    }

    /// Returns to the first rung, and forgets all measurements.
    pub fn reset(&mut self) {
        *self = Self::new(self.settings);
    }

    /// Takes a reading of the server. Decides again if a period has passed since the last decision.
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

    /// Returns its rung.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// Returns whether answers are to have one length.
    pub fn pads(&self) -> bool {
        self.settings.pads && self.rung != Rung::Reject
    }

    /// Returns the share of the packets to drop before they are read, 0 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Returns the processor time of a rejection; `None` before it was measured.
    pub fn refusal_cost(&self) -> Option<Duration> {
        self.cost.map(Duration::from_secs_f64)
    }

    /// Returns the part of the processor that rejecting takes, 0 to 1.
    pub fn load(&self) -> f64 {
        self.load.unwrap_or_default()
    }

    /// Returns the time of its next reading, also without arrivals: otherwise it would keep
    /// dropping long after a flood. `None` on the first rung.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let (since, _) = self.last.filter(|_| self.rung != Rung::Reject)?;
        Some(since + self.settings.period)
    }

    fn decide(&mut self, now: Timestamp, period: &Period) {
        let mean = self.load.get_or_insert(period.load);
        *mean += LOAD_WEIGHT * (period.load - *mean);
        self.cost = match (self.cost, period.cost) {
            (None, measured) => measured,
            (Some(mean), Some(cost)) => Some(mean + COST_WEIGHT * (cost - mean)),
            // Drop less until there are enough rejections to measure.
            (Some(mean), None) if self.share > 0.0 => Some(DOUBT * mean),
            (mean, None) => mean,
        };
        let thinned = period.thinned(self.share);
        let arrived = period.asked + thinned + period.overflow;
        for (mean, newest) in [(&mut self.arrived, arrived), (&mut self.admitted, period.admitted)]
        {
            let follows = newest > FAR * *mean || period.idle > IDLE;
            let weight = if follows { RATE_WEIGHT } else { RATE_WEIGHT_BUSY };
            *mean += weight * (newest - *mean);
        }
        let overflows = period.overflow > OVERFLOW * arrived;
        if overflows {
            self.calm = 0.0;
            self.ceiling = (BACK * period.asked).max(1.0);
        } else {
            self.calm += period.seconds;
            self.ceiling *= (GROWTH * self.calm.exp2() * period.seconds).exp();
        }
        self.step_up(now, overflows || self.load() > self.settings.budget);
        match self.rung {
            Rung::Reject => {}
            Rung::Pad => {
                let [_, needless] = PAD.map(|part| part * self.settings.budget);
                if self.load() >= needless {
                    self.needed = now;
                } else if now.since(self.needed) >= HOLD {
                    self.rung = Rung::Reject;
                }
            }
            Rung::Thin => self.pass(now, period.idle > IDLE),
        }
    }

    fn step_up(&mut self, now: Timestamp, exceeds: bool) {
        let LadderSettings { budget, pads, thins, .. } = self.settings;
        if exceeds && thins {
            self.rung = Rung::Thin;
        } else if pads && self.rung == Rung::Reject && self.load() > PAD[0] * budget {
            (self.rung, self.needed) = (Rung::Pad, now);
        }
    }

    /// Lets as much pass as is admitted and can be rejected within the budget.
    fn pass(&mut self, now: Timestamp, has_room: bool) {
        let refusable = self.cost.map_or(f64::INFINITY, |cost| AIM * self.settings.budget / cost);
        let let_through = (refusable + self.admitted).min(self.ceiling) / self.arrived;
        if let_through < 1.0 {
            self.needed = now;
            self.thin(now, 1.0 - let_through, has_room);
        } else {
            self.share = 0.0;
            if now.since(self.needed) >= HOLD {
                self.ceiling = f64::INFINITY;
                (self.rung, self.needed) =
                    (if self.settings.pads { Rung::Pad } else { Rung::Reject }, now);
            }
        }
    }

    fn thin(&mut self, now: Timestamp, share: f64, has_room: bool) {
        let share = share.min(SHARE_MAX);
        let [less, more] = STEPS.map(|factor| factor * (1.0 - self.share));
        let passes = 1.0 - share;
        let is_patient = now.since(self.changed) < PATIENCE;
        if passes < less || passes > more || !is_patient || has_room || self.share == 0.0 {
            (self.share, self.changed) = (share, now);
        }
    }
}

/// The changes between two readings; rates are per second.
#[derive(Debug)]
struct Period {
    seconds: f64,
    asked: f64,
    admitted: f64,
    filtered: f64,
    overflow: f64,
    load: f64,
    /// The part of the period without work.
    idle: f64,
    /// Seconds that a rejection took, if there were enough rejections.
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
            idle: 1.0 - time(|t| t.occupied).as_secs_f64() / seconds,
            cost: (refused >= REFUSALS).then(|| refusing / refused as f64),
        }
    }

    /// Returns the messages dropped at this share. The filtered ones may include others, so the
    /// result is limited to the number that this share explains.
    fn thinned(&self, share: f64) -> f64 {
        self.filtered.min((self.asked + self.overflow) * share / (1.0 - share))
    }
}

#[cfg(test)]
#[path = "ladder_tests.rs"]
mod tests;
