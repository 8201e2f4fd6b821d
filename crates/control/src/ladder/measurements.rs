//! The measurements from which the ladder computes how many messages may pass.
//!
//! # Capacity and arrivals
//!
//! `c` is the work taken a second in *busy* periods, which have at most 10 % idle time, divided by
//! the part of this time that was neither idle nor spent on rejecting. Before the first busy period
//! `c` is unknown, and only overflow leads to drops. If more work is taken a second in any other
//! period, `c` rises to this rate. While the ladder drops packets and the processor has idle time,
//! `c` grows, because the last busy period may have been a slow one. Its maximum is the work that
//! the server could take with all of its CPU time. This is the work taken for each second of CPU
//! time that was not spent on rejecting, times the share of a period that is CPU time in busy
//! periods. Idle time does not show the capacity: a process with a CPU quota works fast and then
//! stands still, so it has idle time even when its quota is used up.
//!
//! `λ` is the rate of first packets, without retransmissions. It includes all packets that the
//! kernel cannot distinguish from new work. Each packet has a mark: a hash of its source address
//! and its first bytes, which all copies of a request share. The packets with the lowest marks are
//! dropped. A mark is *fresh* if its packets have not been dropped for a while. Packets with fresh
//! marks are first packets. `λ` is their number a second, divided by the fraction of all marks that
//! is fresh. A packet does not count if the ladder began to drop its mark while the packet waited
//! in a buffer. `λ` is never set above the rate of all arrivals, because many copies of one packet
//! say nothing about other marks. `λ` follows small changes within seconds, and a change to less
//! than half or more than one and a half times the rate within three periods. When the dropped
//! share falls, callers whose packets were dropped before get through with their retransmissions.
//! For some periods the server reads these copies too, so it reads fewer fresh packets. If `λ`
//! followed the number of fresh packets at once, the dropped share would fall further. The end of a
//! flood shows in the number of all packets, read or dropped.
//!
//! The *standing wait* is the shortest time in a period that a message waited in a receive buffer.
//! It is measured for datagrams and for messages on connections separately. While it falls, more
//! packets are read than arrive. So the packets that were read in a period of length `T` count as
//! those of the time `T − Δw`, where `Δw` is the change of the standing wait.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::arrivals::Arrivals;
use super::capacity::Capacity;
use super::division::passing_parts;
use super::incoming::Incoming;
use super::overflow::Overflow;
use super::period::Period;
use super::rung::LadderSettings;
use super::shares::Shares;
use super::target::Target;
use super::{LOAD_WEIGHT, STEP_MAX_S};

/// The part of the budget for rejections that the ladder aims to use while messages are dropped.
/// The rest of the budget is a margin, so that small changes in the number of rejections do not
/// change the dropped share.
const AIM: f64 = 0.4;

/// Time in seconds by which rejecting may exceed its budget before messages are dropped. A law that
/// oscillates around its target rejects more than the average for some tenths of a second.
const EXCESS_MAX_S: f64 = 0.05;

/// The ladder reacts if more than this part of the arriving messages found no room in a receive
/// buffer.
const OVERFLOW: f64 = 0.01;

/// Initial growth rate of the limit on passing messages (`ceiling`) after an overflow: 10 % a second.
/// Without a further overflow the rate doubles every second, unless an overflow would also
/// lose messages of sources that do not cause it.
const GROWTH: f64 = 0.1;

/// The part of the passing packets that is reserved for packets that are not exempt from drops,
/// however many exempt packets come.
const LEFT: f64 = 0.25;

/// If more than this part of a period was idle, the load that rejections caused in earlier periods
/// does not matter.
const ROOM: f64 = 0.5;

/// Number of periods after a change of the dropped share in which the server still reads messages
/// that arrived before the change.
const UNSETTLED: u32 = 2;

/// Weight of the newest period in the average cost of a rejection.
const COST_WEIGHT: f64 = 0.1;

/// The measured load of the server, and the messages that it can serve or reject.
#[derive(Clone, Debug)]
pub(super) struct Measurements {
    pub(super) incoming: Incoming,
    pub(super) overflow: Overflow,
    pub(super) target: Target,
    capacity: Capacity,
    /// Average seconds of processor time that a rejection takes, or `None` until it is measured.
    cost: Option<f64>,
    /// The average fraction of the processor time that rejecting takes, or `None` before the first
    /// period.
    load: Option<f64>,
    /// Time in seconds by which rejecting has exceeded its budget, less the budget that was left
    /// unused since then.
    excess_s: f64,
    /// Maximum number of messages a second that may pass, or infinity. It becomes finite after an
    /// overflow or a long wait in the receive buffers.
    pub(super) ceiling: f64,
    /// Seconds since a receive buffer last overflowed.
    calm: f64,
}

impl Measurements {
    pub(super) fn new() -> Self {
        Self {
            incoming: Incoming::new(),
            overflow: Overflow::default(),
            target: Target::new(),
            capacity: Capacity::new(),
            cost: None,
            load: None,
            excess_s: 0.0,
            ceiling: f64::INFINITY,
            calm: 0.0,
        }
    }

    /// Removes the limit on passing messages, and forgets that rejecting has exceeded its budget.
    pub(super) fn forget_overload(&mut self) {
        (self.excess_s, self.ceiling) = (0.0, f64::INFINITY);
    }

    /// Updates the measurements with the counts of a period that ends now, in which `shares` were
    /// dropped. Subtracts from the overflow in `period` the part that dropping does not prevent.
    /// Returns whether so much overflow is left that the ladder reacts.
    pub(super) fn end_period(
        &mut self,
        now: Timestamp,
        period: &mut Period,
        shares: &Shares,
        settings: &LadderSettings,
    ) -> bool {
        let settles = UNSETTLED * settings.period;
        period.overflow = self.overflow.record(now, period, settles);
        self.incoming.standing.end_period(now, shares.is_any());
        let mean = self.load.get_or_insert(period.load);
        *mean += LOAD_WEIGHT * (period.load - *mean);
        self.cost = match (self.cost, period.cost) {
            (Some(mean), Some(cost)) => Some(mean + COST_WEIGHT * (cost - mean)),
            (mean, cost) => mean.or(cost),
        };
        self.capacity.measure(period, shares.is_any());
        self.incoming.measure(period, shares.fresh());
        self.target.measure(period);
        let overflows = period.overflow > OVERFLOW * (period.asked + period.overflow);
        self.adjust_ceiling(period, overflows, shares.is_settled(now, settles));
        self.target.judge(now, period, overflows, self.can_pass(settings.budget));
        let seconds = period.seconds.min(STEP_MAX_S);
        self.excess_s = (self.excess_s + (period.load - settings.budget) * seconds).max(0.0);
        overflows
    }

    /// Adjusts the limit on passing messages. `is_settled` is true if all messages that are read now
    /// arrived after the last change of the dropped share.
    fn adjust_ceiling(&mut self, period: &Period, overflows: bool, is_settled: bool) {
        if overflows {
            self.calm = 0.0;
            if is_settled {
                self.ceiling = self.target.passing_after_overflow(period).max(1.0);
            }
        } else {
            self.calm += period.seconds;
            let hurry = if self.target.loses_others(period) { 1.0 } else { self.calm.exp2() };
            self.ceiling *= (GROWTH * hurry * period.seconds).exp();
        }
        if let Some(part) = self.incoming.standing.passing() {
            let capacity = self.capacity.per_second();
            let can_read = period.asked.max(if capacity.is_finite() { capacity } else { 0.0 });
            self.ceiling = self.ceiling.min(part * can_read).max(1.0);
        }
    }

    /// Returns the processor time of a rejection, or `None` until it is measured.
    pub(super) fn rejection_cost(&self) -> Option<Duration> {
        self.cost.map(Duration::from_secs_f64)
    }

    /// Returns the fraction of the processor time that rejecting takes, 0 to 1.
    pub(super) fn load(&self) -> f64 {
        self.load.unwrap_or_default()
    }

    /// Returns the fraction of the processor time, 0 to 1, that rejecting takes for messages to
    /// which the dropped share applies. Dropping more of these messages does not reduce the cost of
    /// rejecting exempt messages.
    pub(super) fn subject_load(&self, period: &Period) -> f64 {
        let mean = self.load();
        let load = if period.idle > ROOM { mean.min(period.load) } else { mean };
        load * self.incoming.subject
    }

    /// Returns whether rejecting has recently taken more than its budget.
    pub(super) fn has_excess(&self) -> bool {
        self.excess_s > 0.0
    }

    /// Returns whether rejecting has exceeded its budget for so long that messages must be dropped.
    pub(super) fn exceeds_budget(&self) -> bool {
        self.excess_s > EXCESS_MAX_S
    }

    /// Returns, for each method, the fraction of all marks (hashes of packets) whose packets should
    /// pass, 0 to 1. The packets with all other marks are to be dropped. `budget` is the fraction
    /// of the processor time that rejecting may take. A method of which something must be dropped
    /// gets only what passes with the fraction [`AIM`] of the budget.
    pub(super) fn passing(&self, budget: f64) -> [f64; 2] {
        let (all, aimed) = (self.passing_within(budget), self.passing_within(AIM * budget));
        [0, 1].map(|method| if all[method] >= 1.0 { 1.0 } else { aimed[method] })
    }

    /// Returns, for each method, the largest fraction of all marks (hashes of packets) whose
    /// packets may pass, 0 to 1. All packets that pass can be rejected within the fraction `budget`
    /// of the processor time, or served in the rest of the time. The fraction may be lower because
    /// of overflows and long waits. It may be higher because a quarter of what can pass is kept for
    /// packets that are not exempt.
    fn passing_within(&self, budget: f64) -> [f64; 2] {
        let can_pass = self.can_pass(budget).min(self.ceiling);
        // Exempt packets must not use all the service and leave none to the other packets.
        let left = (can_pass - self.incoming.exempt.per_second()).max(LEFT * can_pass);
        passing_parts(left, self.incoming.arrivals.each_ref().map(Arrivals::per_second))
    }

    /// Returns the number of messages a second that can pass. This is the number that can be
    /// rejected in the fraction `budget` of the processor time, plus the number that can be served
    /// in the rest of the time.
    fn can_pass(&self, budget: f64) -> f64 {
        let rejectable = self.cost.map_or(f64::INFINITY, |cost| budget / cost);
        (1.0 - budget) * self.capacity.per_second() + rejectable
    }
}
