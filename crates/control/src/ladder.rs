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
//!    `r` each takes more than the budget `B`, there is too little left to serve others with: the bound
//!    `(1 − m·r/s) / (1 − r/s)` ([`bound`](crate::bound)) falls to nothing. So as much passes
//!    as can be served, and as much again as can be rejected within two fifths of the budget, `b`. With
//!    the capacity `c`, the work that is served in a second without rejections:
//!
//! ```text
//! p = 1 − ((1 − b)·c + b/r) / λ
//! ```
//!
//! The budget is small because it is lost at any overload: a caller that is rejected takes time from
//! those that are served. It is not smaller because a caller that is dropped hears nothing for up to 32 s,
//! and cannot try another server.
//!
//! # Measurements
//!
//! `c` is the work taken in periods without idle time, over the time in them that rejecting did not
//! take. While the processor has idle time it grows. Idle time itself is a poor measure: a process with a
//! quota works fast and then stands still, so it has idle time also when its quota is used up.
//!
//! `λ` is what arrives. In the first half second of dropping nothing that was dropped is retransmitted
//! (RFC 3261 §17.1.1.2), so all datagrams count. Later only those that were read count, divided by `1 − p`:
//! where all packets of a caller are treated alike (they are the same bytes) these are first packets. They
//! tell nothing of the new `p` until what arrived before has been read, which takes two periods, or until there
//! is idle time.
//! `λ` follows slowly, unless 2.5 times as much arrives as before or there is idle time.
//!
//! # When it trips
//!
//! The second rung: as soon as rejecting took more than half of the budget. The third: as soon as it
//! took 50 ms more than the budget, with what it left unused since taken off, or a hundredth of the
//! arrivals found no room in the buffers. If buffers still overflow two periods after a change, the measured cost is
//! too low, or rejecting is not what takes the processor: then at most nine tenths of the messages that
//! were read pass. That limit grows, slowly at first and twice as fast with each second without overflow:
//! one that was taken from a moment in which the process stood still is forgotten within some seconds.
//!
//! # Why the share changes rarely
//!
//! Each fall of `p` lets callers in that were dropped before and retransmit, up to half a minute of them,
//! too late for their deadline. So `p` rises only while rejecting takes more than the budget and a seventh
//! less should pass. It falls only if a fifth more should pass, or everything, and only if there is idle time or 5 s
//! have passed. The first `p` is too low rather than too high.
//!
//! # How it recovers
//!
//! `λ` includes the dropped datagrams, so no trial is needed: `p` falls with the load, to nothing
//! if all of it can be served or rejected. Two seconds after that the ladder is on its second
//! rung. From the second it steps down after two seconds in which rejecting took less than a quarter of the
//! budget: without padding that is less than a half.
//!
//! # Cold start
//!
//! On the first rung. Before a rejection has been measured only overflow leads to the third.
//!
//! # Known bias
//!
//! Dropping is blind: it also hits in-dialog requests that begin like new work, and calls that
//! would have been admitted. The cost of reception is attributed by number, as if all messages cost
//! the same. After a flood the callers that it brought retransmit for half a minute, and nothing tells them
//! from new ones. If packets are drawn one by one, and not all of a caller alike, `λ` includes
//! retransmissions and is up to seven times as high.
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

/// The part of the budget that is to be used while messages are dropped. The rest keeps the ladder from
/// changing the share for a rejection more or less.
const AIM: f64 = 0.4;

/// Time that rejecting may take beyond the budget before messages are dropped, s. A law that swings
/// around its target rejects more than on average for some tenths of a second.
const EXCESS_MAX_S: f64 = 0.05;

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

/// Factors of the amount that passes between which it is not changed, because a change has a cost: each
/// share that passes again begins with the callers who retransmit.
const STEPS: [f64; 2] = [0.85, 1.2];

/// Factor of what passes after the first change. To drop more later is cheap, to drop less is not.
const FIRST: f64 = 1.15;

/// Time after which more passes also without idle time.
const PATIENCE: Duration = Duration::from_secs(5);

/// RFC 3261 §17.1.1.1: T1, after which the first dropped requests are retransmitted.
const T1: Duration = Duration::from_millis(500);

/// Periods after a change in which messages are read that arrived before it.
const UNSETTLED: u32 = 2;

/// Time of service after which a measurement of the capacity counts for 1/e, s.
const FORGET_S: f64 = 0.5;

/// A period counts as no longer than this in the capacity, s: a standstill measures nothing.
const STEP_MAX_S: f64 = 0.2;

/// Growth of the capacity, as a part of itself, in a second that is idle for as long as it is occupied.
const DISCOVERY: f64 = 0.5;

/// The most of a period that counts as idle there.
const IDLE_MAX: f64 = 0.9;

/// Weight of the newest period in the rates of arrivals, while retransmissions do not disturb them
/// or there is idle time.
const RATE_WEIGHT: f64 = 0.5;

/// That weight otherwise.
const RATE_WEIGHT_BUSY: f64 = 0.05;

/// Multiple of the mean of all arrivals that is a new load. The first retransmissions of dropped
/// requests double them.
const FAR: f64 = 2.5;

/// Part of a period without work that shows that there is room.
const IDLE: f64 = 0.1;

/// Weight of the newest period in the part of the processor that rejecting takes.
const LOAD_WEIGHT: f64 = 0.3;

/// Weight of the newest period in the cost of a rejection.
const COST_WEIGHT: f64 = 0.1;

/// Rejections that a period needs for their cost to count.
const REFUSALS: u64 = 10;

/// The largest share. With it one packet in a thousand is read and shows the total.
const SHARE_MAX: f64 = 0.999;

/// The parameters of a ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LadderSettings {
    /// The share of the processor that rejecting may take, between 0 and 1; default 0.08.
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
        Self { budget: 0.08, period: Duration::from_millis(100), pads: false, thins: true }
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
    /// Messages of that kind that were served.
    pub taken: u64,
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
    /// Pieces of work that were served, of which older ones count for less.
    taken: f64,
    /// Occupied seconds without those of rejections, weighted alike.
    serving_s: f64,
    /// Limit on the messages a second that pass, after an overflow.
    ceiling: f64,
    /// Seconds since the overflow.
    calm: f64,
    /// Time at which the rung was last needed.
    needed: Timestamp,
    /// Time at which the share was last changed.
    changed: Timestamp,
    /// Time at which messages began to be dropped.
    began: Timestamp,
    /// The last reading; `None` before the first.
    last: Option<(Timestamp, Tally)>,
    /// The part of the processor that rejecting takes; `None` before the first period.
    load: Option<f64>,
    /// Time that rejecting has taken beyond the budget, less what it has left unused since.
    excess_s: f64,
    /// Arrivals a second, without the retransmissions of dropped messages.
    offered: f64,
    /// All arrivals a second.
    arrived: f64,
    /// Messages a second that were dropped for other reasons when the ladder last dropped none.
    others: f64,
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
            taken: 0.0,
            serving_s: 0.0,
            ceiling: f64::INFINITY,
            calm: 0.0,
            needed: Timestamp::ZERO,
            changed: Timestamp::ZERO,
            began: Timestamp::ZERO,
            last: None,
            load: None,
            excess_s: 0.0,
            offered: 0.0,
            arrived: 0.0,
            others: 0.0,
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
            (Some(mean), Some(cost)) => Some(mean + COST_WEIGHT * (cost - mean)),
            (mean, cost) => mean.or(cost),
        };
        self.measure_capacity(period);
        self.measure_arrivals(now, period);
        let overflows = period.overflow > OVERFLOW * period.arrived(self.others);
        if overflows {
            self.calm = 0.0;
            if self.is_settled(now) {
                self.ceiling = (BACK * period.asked).max(1.0);
            }
        } else {
            self.calm += period.seconds;
            self.ceiling *= (GROWTH * self.calm.exp2() * period.seconds).exp();
        }
        let budget = self.settings.budget;
        let seconds = period.seconds.min(STEP_MAX_S);
        self.excess_s = (self.excess_s + (period.load - budget) * seconds).max(0.0);
        self.step_up(now, overflows || self.excess_s > EXCESS_MAX_S);
        match self.rung {
            Rung::Reject => {}
            Rung::Pad => {
                if self.load() >= PAD[1] * budget {
                    self.needed = now;
                } else if now.since(self.needed) >= HOLD {
                    self.rung = Rung::Reject;
                }
            }
            Rung::Thin => {
                let exceeds = overflows || self.load() > budget;
                self.thin(now, exceeds, period.idle > IDLE);
            }
        }
    }

    /// Returns whether all that is read now arrived after the last change of the share.
    fn is_settled(&self, now: Timestamp) -> bool {
        now.since(self.changed) > UNSETTLED * self.settings.period
    }

    /// Returns whether nothing that was dropped is retransmitted yet.
    fn is_early(&self, now: Timestamp) -> bool {
        now.since(self.began) <= T1
    }

    fn measure_capacity(&mut self, period: &Period) {
        let seconds = period.seconds.min(STEP_MAX_S);
        if period.idle <= IDLE || self.serving_s == 0.0 {
            let serving_s = (1.0 - period.idle - period.load).max(0.0) * seconds;
            let kept = (-serving_s / FORGET_S).exp();
            self.taken = self.taken * kept + period.taken * seconds;
            self.serving_s = self.serving_s * kept + serving_s;
        } else if self.share > 0.0 {
            let idle = period.idle.min(IDLE_MAX);
            self.taken *= (DISCOVERY * idle / (1.0 - idle) * seconds).exp();
        }
    }

    fn measure_arrivals(&mut self, now: Timestamp, period: &Period) {
        if self.share == 0.0 {
            self.others = period.filtered;
        }
        let arrived = period.arrived(self.others);
        let is_new_load = arrived > FAR * self.arrived;
        self.arrived += RATE_WEIGHT * (arrived - self.arrived);
        let newest = if self.share == 0.0 {
            period.asked + period.overflow
        } else if self.is_early(now) {
            arrived
        } else if self.is_settled(now) || period.idle > IDLE {
            ((period.asked + period.overflow) / (1.0 - self.share)).min(arrived)
        } else {
            return;
        };
        let is_clear = self.share == 0.0 || self.is_early(now) || period.idle > IDLE;
        let weight = match (is_new_load, is_clear) {
            (true, _) => 1.0,
            (false, true) => RATE_WEIGHT,
            (false, false) => RATE_WEIGHT_BUSY,
        };
        self.offered += weight * (newest - self.offered);
    }

    fn step_up(&mut self, now: Timestamp, is_too_much: bool) {
        let LadderSettings { budget, pads, thins, .. } = self.settings;
        if is_too_much && thins {
            if self.rung != Rung::Thin {
                (self.rung, self.began, self.needed) = (Rung::Thin, now, now);
            }
        } else if pads && self.rung == Rung::Reject && self.load() > PAD[0] * budget {
            (self.rung, self.needed) = (Rung::Pad, now);
        }
    }

    /// Lets as much pass as can be served, and as can be rejected within a part of the budget.
    fn thin(&mut self, now: Timestamp, exceeds: bool, has_room: bool) {
        let spent = AIM * self.settings.budget;
        let capacity = if self.serving_s > 0.0 { self.taken / self.serving_s } else { 0.0 };
        let refusable = self.cost.map_or(f64::INFINITY, |cost| spent / cost);
        let can_pass = ((1.0 - spent) * capacity + refusable).min(self.ceiling);
        let first = if self.is_early(now) { FIRST } else { 1.0 };
        let wanted = first * can_pass / self.offered;
        let [less, more] = STEPS.map(|factor| factor * (1.0 - self.share));
        let is_patient = now.since(self.changed) <= PATIENCE;
        let grows = (wanted > more || wanted >= 1.0) && (has_room || !is_patient);
        if wanted < less && exceeds || grows && self.share > 0.0 {
            (self.share, self.changed) = ((1.0 - wanted).clamp(0.0, SHARE_MAX), now);
        }
        if self.share > 0.0 {
            self.needed = now;
        } else if now.since(self.needed) >= HOLD {
            (self.ceiling, self.excess_s) = (f64::INFINITY, 0.0);
            (self.rung, self.needed) =
                (if self.settings.pads { Rung::Pad } else { Rung::Reject }, now);
        }
    }
}

/// The changes between two readings; rates are per second.
#[derive(Debug)]
struct Period {
    seconds: f64,
    asked: f64,
    taken: f64,
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
            taken: rate(since(|t| t.taken)),
            filtered: rate(since(|t| t.filtered)),
            overflow: rate(since(|t| t.overflow)),
            load: refusing / seconds,
            idle: 1.0 - time(|t| t.occupied).as_secs_f64() / seconds,
            cost: (refused >= REFUSALS).then(|| refusing / refused as f64),
        }
    }

    /// Returns all messages of the kind that may be dropped, those that were dropped included, when
    /// so many `others` are dropped.
    fn arrived(&self, others: f64) -> f64 {
        self.asked + (self.filtered - others).max(0.0) + self.overflow
    }
}

#[cfg(test)]
#[path = "ladder_tests.rs"]
mod tests;
