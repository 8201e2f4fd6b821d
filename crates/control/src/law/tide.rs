//! Tide: the queue holds as many calls as the server takes from it in a time D. D is as short as
//! possible without making the processor idle.
//!
//! # Signal
//!
//! Every 10 ms a tick takes these measurements, so an operator need not know any costs, rates or
//! capacities:
//!
//! - μ, the calls that are taken from the queue in a second of occupied time. Messages of existing
//!   calls are served before new calls, and receiving takes time too. So μ is the capacity that
//!   in-dialog work, rejections and other processes leave for new calls. The estimate is a quotient
//!   of two sums that fade with a time constant of 0.2 s of occupied time. Ticks without new calls
//!   are left out. After a rest, the first tick measures only the time since the arrival that ended
//!   the rest. If the process does not run for a while, the calls that arrive meanwhile are read
//!   only after the tick that ends the pause. So the occupied time of a tick is added at the next
//!   tick, together with these calls. A tick of more than 0.1 s is a stall, and shows nothing about
//!   the rate before or after it. So the longer the stall, the less this tick counts.
//! - Idle time of the processor.
//! - ℓ, the standing wait in the receive buffer: the minimum over ten ticks of the longest wait in
//!   each tick. The time since the last tick is subtracted, because messages must wait in it. A
//!   single long wait comes from a stall or a quota. If ℓ is large, messages are always read late.
//!   A busy tick in which nothing was read does not count, because a slow processor reads for some
//!   ticks and then serves for some ticks.
//! - The share of the offered calls that was rejected, without calls that were rejected because
//!   their source or the back ends had reached a limit.
//! - The share of the INVITEs that is [dropped](crate::Ladder) before it is read, times the part of
//!   the rejections of the last 2 s that no limit caused. Most drops that a source above its limit
//!   causes are thus left out too. If only heavy sources are dropped, it is the share of their
//!   INVITEs.
//! - The rate R of the calls that were sent to back ends, in a second of occupied time, and the mean
//!   time L until a back end answered. The time constant of both is 1 s of occupied time. A 100 is
//!   no answer. A call without an answer counts for 0.54 s.
//! - The mean time for which messages of existing calls wait here before they are served. Back ends
//!   are *slow* if L is longer than this by 20 ms. They are not slow for 10 s after one of them has
//!   sent an INVITE: a call to a phone behind a registrar passes the proxy twice, so the registrar
//!   may answer late because the second INVITE waits here.
//!
//! # Decision
//!
//! ```text
//! D ← D − h·(share rejected)·dt + g·(idle time)     within [wait_min, wait_max]; see Ceiling
//! W = μ·max(D − ℓ, D/4)                             at least 4 calls
//! U = R·(L + wait_min)                              at least 4 calls
//! ```
//!
//! A new call is admitted while fewer than W wait. The oldest admitted call is served first. If
//! back ends were slow in the last 2 s, new calls [take turns](crate::QueueControl::takes_turns)
//! with messages of existing calls. If calls were also rejected in the last 2 s (rejections because
//! a source or the back ends had reached a limit do not count), a call is served only while fewer
//! than U calls are unanswered. In a long overload (D at most half of `wait_max`) a call is
//! rejected when its turn comes, if it has waited for 3·D, or for two fifths of T1 if that is less.
//! Its caller will soon repeat it. If a receive buffer is full, reading faster does not help,
//! because the kernel drops what does not fit. So while one is full, a call is rejected only if it
//! has waited for more than two fifths of T1 plus ℓ. If the overload is not long and no receive
//! buffer is full, no call is too old. So the few calls that waited during a stall are served after
//! it.
//!
//! # Analysis
//!
//! *Goodput.* Whenever the server does not receive, reject or serve existing calls, it works on
//! admitted calls. So its goodput is the [`bound`](crate::bound), except for the time in which the
//! queue is empty while calls are rejected. If D is in equilibrium, this part of the time is h/g
//! times the rejected share, so it is below 0.034. At its ceiling, D no longer limits this part: the
//! queue is then as long as half of `wait_max` and empty for about 2 % of the time. No part of the
//! processor is left unused as a margin.
//!
//! *Delay.* A new call waits W/μ = D (Little). D is `wait_min` if the load is so high that the
//! queue never empties. D is near `wait_max` if the load is near the capacity, where only bursts
//! are rejected. In a queue of K places at load 1, the lost share is 1/(K+1) for exponential
//! service times, and half of this for constant service times. If few calls fit into `wait_max`,
//! the queue must be long up to a higher load: at 200 calls/s up to 1.3 times the capacity, at
//! 5,000 up to 1.02.
//!
//! *Ceiling.* If calls are rejected all the time, bursts no longer decide the goodput. A queue of
//! half the length loses some 0.3 % of the goodput, because the processor is rarely idle. So D is
//! limited by the *shortage*: the mean over 2 s of
//!
//! ```text
//! (share of the calls that are rejected, or dropped before they are read) − 2.5·(idle share)
//! ```
//!
//! but at least 0. D grows up to `wait_max` if the shortage is below 4 %, and only up to half of
//! `wait_max` if it is above 8 %. In between, the limit is interpolated. But 16 calls may always
//! wait for up to `wait_max`, so nothing changes for a server of less than 100 calls/s. In bursts
//! with pauses, as many calls may be rejected as in a lasting overload. But in the pauses the
//! processor is idle, so there is no shortage, and each burst finds the whole queue. Without 2.5
//! times the idle share, goodput with bursts of 0.2 s is .83 of the bound instead of .90. At a load
//! for which nearly all calls are dropped before they are read, few calls are rejected. So without
//! the dropped calls, D would grow to `wait_max` there. In the simulator, the p99 of the set-up
//! delay is below 0.1 s from 1.2 times the capacity on
//! (`docs/decisions/0058-a-lasting-overload-has-a-shorter-queue.md`). At 1.1 times the capacity it
//! is 143 ms with 200 calls/s: one call in ten is rejected, and the queue is still often empty.
//!
//! *Stability.* While calls wait, W does not influence μ: the processor takes them at its own rate.
//! So the loop through W has no gain and cannot oscillate. The loop through D has one integrator,
//! its only delay is the tick, and D is bounded.
//!
//! *Slow back ends.* The answers to a call are work that comes later, by the time L. Without U, calls
//! are taken as fast as their INVITEs can be served while L passes. Then the answers occupy the
//! processor, and no call is taken until they are served. This repeats. U holds calls in the queue
//! while the answers to earlier calls, which will occupy the processor, are on their way. U alone
//! would leave pauses between such bursts. So new calls take turns too: the proxy serves a call after
//! as many other messages as a call brings. With answers after 0.1 to 0.3 s at random, goodput is at
//! least .98 of the bound at loads of 1 to 10 times the capacity. Without U and turns it is .80 to
//! .93. If all answers take 0.3 s and the deadline is 0.5 s, it is .98 of the bound at the capacity,
//! and .96, .98, .96, .80 and .58 at 1.2, 2, 3, 5 and 10 times the capacity
//! (`scenarios/tournament/slow-back-ends.toml` with these loads). Without U and turns it is .84, .85,
//! .77, .58, .71 and .54. At 5 and 10 times the capacity, the calls that are admitted in the cold
//! start bring so many messages that later calls are late.
//!
//! If back ends are fast, turns would do no good. Calls are cheaper if all messages of existing calls
//! are served before new calls: with turns, a server with a fifth of a core (1 ms in 5 ms) carried a
//! tenth fewer calls, because its back ends then answered in many small batches.
//!
//! *Settling.* A step to a multiple m of the capacity fills the window within `wait_max`/(m − 1).
//! From then on D falls at (m − 1)/m s/s: from `wait_max` to `wait_min` in 0.12 s at 10 times the
//! capacity. After the flood 1 ms of idle time raises D to half of `wait_max`. The shortage ends
//! after some 0.5 s of idle time, and D rises to `wait_max`. Nothing else is remembered, so goodput
//! is full again as soon as the queue has been served.
//!
//! *Errors.* If μ is wrong by a factor, each wait is wrong by this factor for some 0.2 s. The
//! goodput stays the same, unless W is so small that the queue empties. In that case D rises. Costs
//! are not used, so errors in them have no effect. If the measured occupancy is too low (CPU time
//! on a processor that other processes use), D stays at `wait_max` and μ is too large by the same
//! factor. Delays are then longer, and the goodput is the same. If the measured occupancy is too
//! high, D is `wait_min` in every overload.
//!
//! # Why the oldest first
//!
//! If the newest call is served first, most calls in a long queue wait less. In this queue they
//! would save at most D, and some calls would wait behind all newer ones until the overload ends.
//!
//! # Cold start
//!
//! At first D is `wait_max`, and all calls are admitted until calls have been taken or have waited
//! for 0.1 s of occupied time. The start is the worst time to measure. A process starts with the
//! calls that arrived before it ran, with cold caches, and often beside other processes. If other
//! processes run for most of the tick in which the first call is served, the limit that is learned
//! from this call is too low. It rejects further calls although the server has room for them. Each
//! tick counts for at most 0.01 s here, so a stall does not end the cold start.
//!
//! A flood of m times the capacity at the start admits 0.1·m s of work. The calls that cannot be
//! served in time are rejected when their turn comes, because the rejections after the cold start
//! shorten D to half of `wait_max` in some 0.09 s. So at 10 times the capacity, calls are served
//! within 0.2 s, and from 0.3 s on they wait for `wait_min`. The calls that arrive between 0.1 and
//! 0.2 s are nearly all rejected.
//!
//! # Known bias
//!
//! If the process pauses for longer than 0.1 s again and again, as with a quota that has a long
//! period, μ is too large. If the calls of a pause are more work than fits into `wait_max`, this is
//! an overload, though a short one: most of these calls are rejected.
//!
//! A server of less than some 100 calls/s has room for few calls in `wait_max`. So it rejects
//! bursts that a longer queue could serve before the callers give up. If all calls last equally
//! long, a step of the load brings all their BYEs at the same time, one hold time later. These
//! displace new calls, and this repeats. The law admits calls by the work that they need now, not
//! by the work that they will need later.
//!
//! Other new work (REGISTER) has its own D, μ and W, from its own rejections and rate. So if devices
//! register in a flood, D and W of the calls stay as they are until calls are rejected too.
//!
//! If a back end suddenly stops to answer during an overload, its calls soon fill U. L includes such
//! calls after 0.54 s. Until then, calls to the other back ends wait too, and some are rejected.
//!
//! μ counts all occupied time of a tick, for any kind of work. If there is much other work
//! (REGISTER) and there are few calls, the window is small. Then some calls of a burst within one
//! tick are rejected although the processor has room. `tidegate_work_rejected_early_total` counts
//! them. The next tick corrects this.
//!
//! With `decide = "service"`, a call passes if fewer than W other calls still wait when its turn
//! comes.
//!
//! # Source
//!
//! Own work. The idea of a window that follows the delay comes from Breakwater (OSDI 2020). The
//! idea that an empty queue shows free capacity comes from CoDel (Nichols and Jacobson, 2012).
//! Capacity as completions over busy time is the utilization law of operational analysis (Denning
//! and Buzen, 1978).

mod in_flight;

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::signals::Reading;
use crate::{Allowance, Bucket, Control, Entry, Flow, Law, Param, Signals, Values};
use in_flight::InFlight;

static WAIT_MIN: Param = Param::real("wait_min", "s", 0.05, 0.001, 1.0).doc(
    "Minimum of the target wait of a new call in the queue. At a load far above the capacity, the \
     target wait has this value.",
);

static WAIT_MAX: Param = Param::real("wait_max", "s", 0.16, 0.001, 2.0).doc(
    "Maximum of the target wait of a new call in the queue. It is the target at a load near the \
     capacity, where bursts should be served and not rejected. In a lasting overload the target \
     wait grows only to half of `wait_max`, or to the time in which the server takes 16 calls from \
     the queue if that is longer. An overload lasts if the mean over 2 s of this difference is \
     above 8 %: the share of the work that is rejected or dropped, but not because of a limit, \
     minus 2.5 times the share of the time in which the processor is idle.",
);

static STALE: Param = Param::real("stale", "s", 0.2, 0.002, 4.0).doc(
    "In a long overload the law rejects a call when its turn comes, if the call has waited for \
     `stale` or for three times the target wait, whichever is shorter. The default is two fifths \
     of T1 (500 ms in RFC 3261), because a caller without a response repeats its INVITE after T1.",
);

pub(crate) static ENTRY: Entry = Entry {
    name: "tide",
    summary: "keeps the queue as short as possible without making the processor idle",
    source: "own work, after Breakwater and CoDel",
    doc: "The law measures the rate at which the server takes new calls from their queue while it \
          is busy. The limit for waiting calls is this rate times a target wait. The target wait \
          is between `wait_min` and `wait_max`. It grows while the processor has idle time, and \
          shrinks while calls are rejected. You need not know the costs or the capacity of the \
          server.",
    params: &[&WAIT_MIN, &WAIT_MAX, &STALE],
    check: |values| {
        let [least, most, stale] = [&WAIT_MIN, &WAIT_MAX, &STALE].map(|param| values.of(param));
        if least <= most && most <= stale { Ok(()) } else { Err("wait_min <= wait_max <= stale") }
    },
    build: |values| Box::new(Tide::new(values)),
};

/// Time between two ticks.
const TICK: Duration = Duration::from_millis(10);
/// Occupied time in seconds after which the weight of a measurement of the rate μ has fallen to
/// 1/e.
const FORGET_S: f64 = 0.2;
/// Occupied time in seconds that must be measured before the law limits anything. Each tick counts
/// for at most [`TICK`].
const EVIDENCE_S: f64 = 0.1;
/// h: the decrease of the target wait D, in s/s, while all calls are rejected.
const DECREASE: f64 = 1.0;
/// g: the increase of the target wait D, in s for each second of idle time.
const INCREASE: f64 = 30.0;
/// The smallest window, in calls.
const WINDOW_MIN: f64 = 4.0;
/// Minimum part of the target wait D that calls may spend in the queue, however late the receive
/// buffer is read.
const QUEUE_PART_MIN: f64 = 0.25;
/// Fill of a receive buffer above which the buffer counts as full.
const FULL: f64 = 0.9;
/// An overload counts as long while the target wait D is at most this part of `wait_max`.
const LONG: f64 = 0.5;
/// In a long overload, a call that has waited for this multiple of the target wait D is rejected.
const AGES: f64 = 3.0;
/// Time constant in seconds of the shortage.
const RECENT_S: f64 = 2.0;
/// Weight of the idle share in the shortage. With a smaller weight, short bursts with pauses count
/// as a lasting overload. With a larger one, a lasting overload counts as bursts, because arrivals
/// that vary by chance leave the processor idle too.
const IDLE_WEIGHT: f64 = 2.5;
/// Shortage up to which the target wait D may grow to `wait_max`. From twice this shortage on, it
/// grows only to [`LONG`] times `wait_max`.
const FEW: f64 = 0.04;
/// Number of calls that may always wait, however many calls are rejected. A shorter queue is often
/// empty, because arrivals vary by chance.
const ENOUGH: f64 = 16.0;
/// Time after a rejection for which the calls that wait for an answer are limited.
const OVERLOAD: Duration = Duration::from_secs(2);
/// Time after an INVITE of a back end for which back ends do not count as slow.
const BACK_ENDS_CALL: Duration = Duration::from_secs(10);
/// If at least this part of a tick was occupied, messages may have waited unread for all of it.
const BUSY: f64 = 0.9;
/// Number of ticks over which the minimum of the wait in the receive buffer is taken.
const LAGS: usize = 10;
/// The length in seconds of the longest tick that counts in full. The period of a CPU quota is
/// usually this long.
const STEP_MAX_S: f64 = 0.1;

#[derive(Debug)]
struct Tide {
    wait_min: f64,
    wait_max: f64,
    stale: Duration,
    read: Reading,
    sessions: Queue,
    singles: Queue,
    in_flight: InFlight,
    /// Time until which unanswered calls are limited.
    in_flight_until: Timestamp,
    /// Time until which back ends count as slow.
    slow_until: Timestamp,
    /// True while unanswered calls are limited.
    is_limiting: bool,
    /// Time of the last tick that counts in `lags`.
    read_at: Timestamp,
    /// For each of the last [`LAGS`] ticks that count, the longest wait in the receive buffer minus
    /// the time since the tick before.
    lags: [Duration; LAGS],
    ticks: usize,
}

/// The target wait and the measurements of the new work in one bucket.
#[derive(Debug)]
struct Queue {
    /// D: the target wait of new work in the queue, in seconds.
    wait_s: f64,
    /// The counts of the work at the last tick.
    counted: Flow,
    rejections: Rejections,
    /// Mean of the share of the work that is rejected or dropped, minus [`IDLE_WEIGHT`] times the
    /// idle share, 0 to 1.
    shortage: f64,
    drain: Drain,
}

impl Queue {
    fn new(wait_s: f64) -> Self {
        let (counted, rejections) = (Flow::default(), Rejections::default());
        Self { wait_s, counted, rejections, shortage: 0.0, drain: Drain::default() }
    }

    /// Starts to measure at these counts.
    fn begin(&mut self, flow: &Flow) {
        self.counted = *flow;
        self.drain = Drain { counted: flow.taken, ..Drain::default() };
    }

    /// Returns the rejected share of the work that was offered since the last tick, and starts the
    /// next count. Work that a limit of its source or of the back ends rejected does not count:
    /// otherwise a source above its limit would shorten the queue of all others, although the
    /// processor has room for them.
    fn rejected(&mut self, flow: &Flow, step_s: f64) -> f64 {
        let earlier = std::mem::replace(&mut self.counted, *flow);
        let limited = flow.limited - earlier.limited;
        let [offered, rejected] =
            [flow.offered - earlier.offered, flow.rejected - earlier.rejected]
                .map(|count| count - limited);
        self.rejections.record(rejected, limited, step_s);
        (rejected as f64 / offered.max(1) as f64).min(1.0)
    }

    /// Changes the target wait by a tick.
    fn adapt(&mut self, tick: &Tick, [wait_min, wait_max]: [f64; 2]) {
        let Tick { step_s, idle, rejected, dropped } = *tick;
        let dropped = dropped * self.rejections.part_without_limit();
        let shed = rejected + (1.0 - rejected) * dropped;
        let kept = (-step_s / RECENT_S).exp();
        let shortage = kept * self.shortage + (1.0 - kept) * (shed - IDLE_WEIGHT * idle);
        self.shortage = shortage.max(0.0);
        let excess = (self.shortage / FEW - 1.0).clamp(0.0, 1.0);
        let enough_s = ENOUGH / self.drain.rate();
        let ceiling = (wait_max * (1.0 - (1.0 - LONG) * excess)).max(enough_s);
        // The wait may be above the ceiling when an overload begins. Then it only falls.
        let most = self.wait_s.max(ceiling);
        let wait_s = self.wait_s + (INCREASE * idle - DECREASE * rejected) * step_s;
        self.wait_s = wait_s.min(most).clamp(wait_min, wait_max);
    }
}

/// The numbers of recent rejections, by their reason. They fade with the time constant
/// [`RECENT_S`].
#[derive(Debug, Default)]
struct Rejections {
    without_limit: f64,
    by_limit: f64,
}

impl Rejections {
    fn record(&mut self, without_limit: u64, by_limit: u64, step_s: f64) {
        let kept = (-step_s / RECENT_S).exp();
        self.without_limit = kept * self.without_limit + without_limit as f64;
        self.by_limit = kept * self.by_limit + by_limit as f64;
    }

    /// Returns the part of the rejections that no limit caused, or 1 if nothing was rejected.
    fn part_without_limit(&self) -> f64 {
        let all = self.without_limit + self.by_limit;
        if all > 0.0 { self.without_limit / all } else { 1.0 }
    }
}

/// The measurements of a tick for the new work of one bucket.
#[derive(Clone, Copy, Debug)]
struct Tick {
    /// Length of the tick in seconds, as far as it counts.
    step_s: f64,
    /// Share of the tick in which the processor was idle.
    idle: f64,
    /// Rejected share of the work that was offered in the tick.
    rejected: f64,
    /// Share of the requests for this work that is dropped before it is read.
    dropped: f64,
}

/// An estimate of the rate at which work of one bucket is taken from its queue.
#[derive(Debug, Default)]
struct Drain {
    /// Number of pieces of work that were taken from the queue from the start to the last tick.
    counted: u64,
    taken: f64,
    occupied_s: f64,
    /// Occupied time of the last recorded tick. It is not yet part of `occupied_s`.
    newest_s: f64,
    /// Occupied time of all recorded ticks, with at most [`TICK`] of each.
    evidence_s: f64,
}

impl Drain {
    /// Records that `taken` pieces of work were taken from the queue since the start. `occupied_s`
    /// is the occupied time since the last record. If no piece was taken and none waits
    /// (`in_progress` is 0), this time is left out. Otherwise the estimate would be the rate of
    /// arrivals. The time is added at the next record, together with the pieces that arrived in it.
    fn record(&mut self, taken: u64, in_progress: u64, occupied_s: f64) {
        if taken == self.counted && in_progress == 0 {
            return;
        }
        let earlier_s = std::mem::replace(&mut self.newest_s, occupied_s);
        let kept = (-earlier_s / FORGET_S).exp();
        self.taken = self.taken * kept + taken.saturating_sub(self.counted) as f64;
        self.occupied_s = self.occupied_s * kept + earlier_s;
        self.evidence_s += occupied_s.min(TICK.as_secs_f64());
        self.counted = taken;
    }

    /// Returns the window: the number of pieces of work that are taken from the queue in `wait_s`
    /// seconds. The window is unlimited until enough occupied time has been measured.
    fn window(&self, wait_s: f64) -> Allowance {
        if self.evidence_s < EVIDENCE_S {
            return Allowance::Open;
        }
        Allowance::Window((self.rate() * wait_s).max(WINDOW_MIN))
    }

    /// Returns μ: the number of pieces of work that are taken from the queue in a second of occupied
    /// time.
    fn rate(&self) -> f64 {
        self.taken / self.occupied_s.max(f64::MIN_POSITIVE)
    }
}

impl Tide {
    fn new(values: &Values) -> Self {
        let wait_max = values.of(&WAIT_MAX);
        Self {
            wait_min: values.of(&WAIT_MIN),
            wait_max,
            stale: Duration::from_secs_f64(values.of(&STALE)),
            read: Reading::default(),
            sessions: Queue::new(wait_max),
            singles: Queue::new(wait_max),
            in_flight: InFlight::default(),
            in_flight_until: Timestamp::ZERO,
            slow_until: Timestamp::ZERO,
            is_limiting: false,
            read_at: Timestamp::ZERO,
            lags: [Duration::ZERO; LAGS],
            ticks: 0,
        }
    }

    /// Returns the wait above which a call is rejected when its turn comes, or `None` if no wait is
    /// too long.
    fn age_max(&self, socket_fill: f64, lag: Duration) -> Option<Duration> {
        if socket_fill >= FULL {
            // Reading faster would not help: the kernel drops what does not fit.
            return Some(self.stale + lag);
        }
        let wait_s = self.sessions.wait_s;
        let is_long_overload = wait_s <= LONG * self.wait_max;
        is_long_overload.then(|| self.stale.min(Duration::from_secs_f64(AGES * wait_s)))
    }

    /// Returns ℓ: the standing wait in the receive buffer. `lag` is the longest wait of the messages
    /// that were read in the tick. `occupancy` is the occupied part of the tick. A tick in which
    /// nothing was read shows no wait if the processor had idle time, and otherwise nothing.
    fn standing_lag(&mut self, now: Timestamp, lag: Option<Duration>, occupancy: f64) -> Duration {
        if let Some(lag) = lag.or((occupancy < BUSY).then_some(Duration::ZERO)) {
            let since_reading = now.since(std::mem::replace(&mut self.read_at, now));
            self.lags[self.ticks % LAGS] = lag.saturating_sub(since_reading);
            self.ticks += 1;
        }
        self.lags.into_iter().min().unwrap_or_default()
    }
}

impl Law for Tide {
    fn on_begin(&mut self, _: Timestamp, signals: &Signals) {
        self.read = signals.processor;
        self.sessions.begin(signals.flow(Bucket::Session));
        self.singles.begin(signals.flow(Bucket::Single));
        self.in_flight.begin(signals.answers, signals.processor.occupied);
    }

    fn adjust(&mut self, values: &Values) -> bool {
        (self.wait_min, self.wait_max) = (values.of(&WAIT_MIN), values.of(&WAIT_MAX));
        self.stale = Duration::from_secs_f64(values.of(&STALE));
        for queue in [&mut self.sessions, &mut self.singles] {
            queue.wait_s = queue.wait_s.clamp(self.wait_min, self.wait_max);
        }
        true
    }

    /// Makes the next tick measure from now on. A long tick counts only in part. So if the next
    /// tick included a long time without messages, it would count only a part of the work of the
    /// call that has just arrived.
    fn on_wake(&mut self, _: Timestamp, signals: &Signals) {
        self.read = signals.processor;
    }

    fn on_tick(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        let newest = signals.processor;
        let Some(occupancy) = newest.occupancy_since(self.read) else { return };
        let lag = self.standing_lag(now, signals.queue.lag, occupancy);
        let passed = newest.at.since(self.read.at);
        self.read = newest;

        let step_s = step_s(passed);
        for (queue, bucket) in
            [(&mut self.sessions, Bucket::Session), (&mut self.singles, Bucket::Single)]
        {
            let flow = signals.flow(bucket);
            let rejected = queue.rejected(flow, step_s);
            if rejected > 0.0 && bucket == Bucket::Session {
                self.in_flight_until = now + OVERLOAD;
            }
            let dropped = signals.dropped(bucket);
            let tick = Tick { step_s, idle: 1.0 - occupancy, rejected, dropped };
            queue.adapt(&tick, [self.wait_min, self.wait_max]);
            queue.drain.record(flow.taken, signals.in_progress(bucket), occupancy * step_s);
            let queue_s = (queue.wait_s - lag.as_secs_f64()).max(QUEUE_PART_MIN * queue.wait_s);
            control.set_admit(bucket, queue.drain.window(queue_s));
        }
        control.queue.wait_max = self.age_max(signals.socket_fill, lag);
        self.in_flight.record(signals.answers, newest.occupied);
        if signals.back_ends_called.is_some_and(|called| now.since(called) < BACK_ENDS_CALL) {
            self.slow_until = now;
        } else if self.in_flight.is_slow(signals.sojourn.of_ongoing().mean) {
            self.slow_until = now + OVERLOAD;
        }
        control.queue.takes_turns = now < self.slow_until;
        self.is_limiting = now < self.slow_until.min(self.in_flight_until);
        control.queue.unanswered_max =
            if self.is_limiting { self.in_flight.limit(self.wait_min) } else { f64::INFINITY };
    }

    fn tick(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn is_at_rest(&self) -> bool {
        // The shortage falls only in ticks. At rest there are none.
        let is_usual = |queue: &Queue| queue.wait_s >= self.wait_max && queue.shortage <= FEW;
        is_usual(&self.sessions) && is_usual(&self.singles) && !self.is_limiting
    }
}

/// Returns the time in seconds for which a tick of the length `passed` counts. Beyond
/// [`STEP_MAX_S`], the longer a tick is, the less it counts.
fn step_s(passed: Duration) -> f64 {
    let passed_s = passed.as_secs_f64();
    passed_s.min(STEP_MAX_S * STEP_MAX_S / passed_s)
}

#[cfg(test)]
#[path = "tide_tests.rs"]
mod tests;
