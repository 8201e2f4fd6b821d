//! The ladder selects the way to shed work that is not admitted: reject it, or drop it before it is
//! read.
//!
//! # Signal
//!
//! There are three signals: the share of the processor that rejecting takes, the overflow of
//! receive buffers, and the wait in them. A rejection is not timed by itself. The occupied time
//! outside service goes to reception, rejecting and sending. Rejections and their acknowledgements
//! are charged with a part of this time, in proportion to their number. So their cost includes the
//! kernel's work for their datagrams, which is the largest part. The time for handshakes of
//! connections is left out, because it belongs to no message.
//!
//! # Rungs
//!
//! 1. [`Reject`](Rung::Reject): each piece of work that is not admitted is answered. The sender
//!    knows at once, and sends no more.
//! 2. [`Pad`](Rung::Pad): answers are padded to a few lengths, so that the kernel takes them in
//!    batches. The ladder has this rung only if [`pads`](LadderSettings::pads) is set. Padding
//!    reduces the processor time by a third, and needs some more bytes.
//! 3. [`Drop`](Rung::Drop): a share `p` of the datagrams is dropped before they are read, and work
//!    that is still read and not admitted is answered. Assume that `λ` pieces arrive a second, and
//!    that a rejection takes `r` seconds. If rejecting takes more than the budget `B`, too little
//!    time is left to serve the other calls, and the bound `(1 − m·r/s) / (1 − r/s)`
//!    ([`bound`](crate::bound)) falls to zero. So the ladder lets through as much work as can be
//!    served, and in addition as much as can be rejected within `b`, which is two fifths of the
//!    budget. `c` is the capacity: the work that could be served in a second without rejections.
//!
//! ```text
//! p = 1 − ((1 − b)·c + b/r) / λ
//! ```
//!
//! INVITEs and REGISTERs each have their own `p`, `λ` and marks. They divide the `(1 − b)·c + b/r`
//! requests max-min fairly with [weights](INVITES_PER_REGISTER): INVITEs may use three quarters of
//! them and REGISTERs one quarter, and each method also what the other one does not need. So the
//! requests of a method that stays within its part are not dropped, however many of the other
//! method there are. The queues of new work are served in the same ratio. If more requests of a
//! method passed, they would only be rejected.
//!
//! The budget is small, because in every overload the time for rejections is taken from the service
//! of calls. But it is not smaller, because a dropped caller gets no response for up to 32 s, and
//! so cannot try another server.
//!
//! # Measurements
//!
//! Each packet has a *mark*: a hash of its source address and its first bytes. The packets with the
//! lowest marks are dropped. [`measurements`] describes how `c` and `λ` are measured, and the
//! *standing wait*: the time that every message waits in the receive buffers. [`shares`] describes
//! how `p` changes, and the *late* callers, whose earlier packets were dropped.
//!
//! A sender can find a packet whose mark passes, and vary only bytes that the mark does not cover.
//! So if more than 16 packets of a period have the same mark, this mark is *hot*, and all its
//! packets are dropped for 32 s. They are not counted in `λ`. At most 16 marks are hot. A new hot
//! mark replaces the oldest one. So marks without packets do not keep out other marks. A sender can
//! also send one packet again and again. On the third rung such copies count for their mark, even
//! if the ladder drops nothing else. A real caller sends at most seven copies in 32 s.
//!
//! The share `p` does not apply to messages that come from a network that
//! [`Shedding`](tidegate_world::Shedding) spares, or from another shard, or that call an emergency
//! service. These exempt messages are counted separately, together with the copies of requests that
//! are already decided, whose number says nothing about `λ`. But copies from a
//! [heavy](crate::Gate::heavy_sources) source count as first packets: if a source floods with
//! copies of many packets, no mark is hot, and only a larger `p` helps. A quarter of the work that
//! can pass is always kept for the messages to which `p` applies, however many exempt messages
//! there are. The time spent on rejecting exempt messages does not change `p`. So a flood of exempt
//! messages would not be dropped. For spared networks and other shards, the operator is responsible
//! for this. But anybody can call an emergency service. So if a heavy source
//! [floods](crate::Gate::emergency_floods) with emergency calls over UDP, these calls are not
//! exempt: `p` applies to them, and they count in `λ`. A flood means that the source sends more of
//! them than a quarter of the messages that are read. Behind the same address, a real emergency
//! call over UDP passes with the probability `1 − p`, and one on a stream always passes.
//!
//! # When it trips
//!
//! The ladder reaches the second rung when rejecting took more than half of the budget. It reaches
//! the third rung in two cases. In the first case rejecting has exceeded the budget by 50 ms in
//! total, less the budget that was left unused since then. In the second case more than a hundredth
//! of the arrivals found no room in the buffers. If buffers still overflow two periods after a
//! change, the measured cost is too low, or the processor is busy with something else. Then a limit
//! applies: at most nine tenths of the messages that were read before may pass. The limit grows
//! slowly at first, and twice as fast with each second without overflow. So a limit that was set
//! while the process stood still has no effect after some seconds.
//!
//! A long standing wait does not lead to the third rung, but has an effect on it. If the standing
//! wait `w` is more than 0.1 s, all callers are served late. This happens if a server with a small
//! part of a core reads few messages at once. Then at most the part `1 − w/1 s` of the messages
//! that can be read may pass, but at least half of them. So a wait of up to half a second ends
//! about a second after the messages that arrived before were read. If messages are dropped and the
//! wait has not become a quarter shorter in 1.5 s, dropping does not help, for example because
//! reading takes all the time. Then the wait is ignored for 10 s.
//!
//! If `p` applies only to heavy sources, and other sources send too, an overflow must end soon,
//! because it also loses messages of the other sources. So the limit is half of the messages that
//! were read, but at least three quarters of those that were served, or all of them if the other
//! sources send less than a fiftieth of the messages. This limit always grows slowly. If more than
//! half of the period was idle, the usual limit applies instead. If the other sources alone send
//! too much in three periods in a row, `p` applies to all sources for ten seconds. Messages of the
//! other sources that are never dropped do not count for this.
//!
//! An overflow that does not become smaller when `p` rises has another cause. The ladder compares
//! the mean of three periods, because a process that cannot run for some milliseconds overflows in
//! some periods and not in others. It then ignores an overflow of up to twice this size for about
//! ten seconds, and tries again.
//!
//! # Messages in streams
//!
//! The kernel cannot drop single messages of a TCP connection. So the caller of the ladder drops
//! the same share of them after reading. A drop takes less time than a rejection, because no answer
//! is written and no acknowledgement comes. This time is not measured separately. It reduces `c`. A
//! caller over TCP does not retransmit. Messages in streams are therefore never late.
//!
//! # How it recovers
//!
//! `λ` shows the end of a flood within three periods, and `p` falls as fast as the late callers can
//! be served or rejected. When nothing has been dropped for two seconds, the ladder steps down to
//! its second rung, or to the first if it may not pad. It steps down from the second rung after two
//! seconds in which rejecting took less than a quarter of the budget. Without padding, the same
//! rejections would take less than half of the budget.
//!
//! # Cold start
//!
//! The ladder starts on its first rung. Until a rejection has been measured, only overflow leads to
//! drops.
//!
//! # Known bias
//!
//! The kernel also drops in-dialog requests that begin like new work, and calls that would have
//! been admitted. These in-dialog requests count as work: in `λ`, and in `c` if they are served. If
//! `p` begins to apply to a source while `p` falls, packets of this source count as late although
//! none were dropped. The cost of reception is divided by the number of messages, as if all
//! messages cost the same. After a long flood, new callers with late marks are rejected like the
//! callers of the flood, for as long as those callers retransmit. If the copies of a request
//! differ, each has another mark. Then `λ` includes retransmissions and is up to seven times as
//! high. The kernel does not count dropped packets by method. So while one method floods, the end
//! of a flood of the other one is noticed some seconds later. The standing wait is the shortest
//! wait at all sockets for datagrams, or at all connections. So a socket that is read in time hides
//! the wait at another one.
//!
//! # Source
//!
//! Paper 000 measures 9.68 to 26.69 µs to process a packet and 2.75 µs to drop it in the
//! application. It estimates 1.1 µs to drop a packet in the kernel (§6.1, §6.10), and leaves
//! dropping in the kernel to future work (§2.4). Its model of the rate of service is
//! `1 / (t_a·f + t_d·(1 − f))` (§5.1), where `t_a` and `t_d` are the costs of an admitted and a
//! dropped packet and `f` is the admitted share. The smaller `f` is, the more the cost of dropping
//! matters. The rule for the share is ours.

mod arrivals;
mod capacity;
mod division;
mod dropped;
mod hot;
mod incoming;
mod measurements;
mod overflow;
mod period;
mod rung;
mod shares;
mod standing;
mod target;

use std::time::Duration;

use tidegate_world::{DroppableMethod, Timestamp};

pub use division::INVITES_PER_REGISTER;
use hot::Hot;
use measurements::Measurements;
use period::Period;
pub use period::Tally;
pub use rung::{LadderSettings, Rung};
use shares::Shares;

/// Two parts of the budget for rejections. Padding of the answers begins when rejecting takes more
/// than the first part, and ends when rejecting takes less than the second.
const PAD: [f64; 2] = [0.5, 0.25];

/// Time for which a rung must be unnecessary before the ladder steps down from it.
const HOLD: Duration = Duration::from_secs(2);

/// Pairs of a part of the budget for rejections and a number of levels. If rejecting takes at most
/// this part, the dropped share falls by this number of levels in a period.
const STEPS: [(f64, usize); 2] = [(0.25, 4), (1.0, 1)];

/// A period in which nothing was read is extended if at least this part of it was occupied, up to
/// [`UNREAD_MAX`] times its length.
const SERVING: f64 = 0.9;
const UNREAD_MAX: u32 = 5;

/// Maximum time in seconds that a period counts for. If a period is longer, the process stood
/// still.
const STEP_MAX_S: f64 = 0.2;

/// Weight of the newest period in the averages of the ladder, such as the fraction of the processor
/// time that rejecting takes.
const LOAD_WEIGHT: f64 = 0.3;

/// A controller that selects whether work that is not admitted is rejected or dropped unread.
#[derive(Clone, Debug)]
pub struct Ladder {
    settings: LadderSettings,
    rung: Rung,
    shares: Shares,
    hot: Hot,
    measurements: Measurements,
    /// True if a receive buffer has overflowed since the last decision, or in the period before the
    /// last reading.
    overflows: bool,
    /// True if nothing was read in the present period, because the processor was occupied with
    /// other work.
    is_unread: bool,
    /// Time at which the current rung was last needed.
    needed: Timestamp,
    /// The time and the counts of the reading at the last decision, or `None` before the first
    /// reading.
    last: Option<(Timestamp, Tally)>,
}

impl Ladder {
    /// Creates a ladder on its first rung.
    ///
    /// # Panics
    /// Panics if the budget is 0 or less, or 1 or more, or if the period is 0.
    pub fn new(settings: LadderSettings) -> Self {
        let LadderSettings { budget, period, .. } = settings;
        assert!(budget > 0.0 && budget < 1.0 && !period.is_zero(), "{settings:?}");
        Self {
            settings,
            rung: Rung::Reject,
            shares: Shares::new(),
            hot: Hot::new(),
            measurements: Measurements::new(),
            overflows: false,
            is_unread: false,
            needed: Timestamp::ZERO,
            last: None,
        }
    }

    /// Returns to the first rung, and forgets all measurements. Allocates nothing.
    pub fn reset(&mut self) {
        *self = Self::new(self.settings);
    }

    /// Sets whether the ladder may drop datagrams unread. If not, the ladder drops nothing from now
    /// on.
    pub fn set_drops(&mut self, drops: bool) {
        if drops == self.settings.drops {
            return;
        }
        self.settings.drops = drops;
        self.measurements.forget_overload();
        self.hot = Hot::new();
        if self.rung == Rung::Drop {
            self.shares.clear();
            self.rung = self.rung_without_drops();
        }
    }

    /// Sets whether only messages of [heavy](crate::Gate::heavy_sources) sources are dropped.
    pub fn set_targeted(&mut self, is_targeted: bool) {
        self.measurements.target.set(is_targeted);
    }

    /// Returns whether the ladder may drop messages of [heavy](crate::Gate::heavy_sources) sources
    /// only. It may not for a while after the messages of the other sources alone were too many.
    pub fn may_target(&self, now: Timestamp) -> bool {
        self.measurements.target.may_be_heavy_only(now)
    }

    /// Returns the number of datagrams that reached a receive buffer for each one that found room.
    pub fn arrived_per_read(&self) -> f64 {
        self.measurements.overflow.arrived_per_read()
    }

    /// Returns whether messages are dropped now, or will probably be dropped soon, because a buffer
    /// overflows or rejecting takes more than the budget.
    pub fn is_alert(&self) -> bool {
        let will_drop = self.overflows || self.measurements.has_excess();
        self.rung == Rung::Drop || self.settings.drops && will_drop
    }

    /// Takes a reading of the server's counts. If a period has passed since the last decision,
    /// selects the rung and the dropped share again.
    pub fn on_reading(&mut self, now: Timestamp, tally: Tally) {
        let Some((since, earlier)) = self.last else {
            self.last = Some((now, tally));
            return;
        };
        let passed = now.since(since);
        self.overflows = tally.overflow > earlier.overflow;
        // A server that only serves for a whole period reads nothing. Such a period shows nothing
        // about the arrivals.
        self.is_unread = tally.asked == earlier.asked
            && tally.occupied.saturating_sub(earlier.occupied) >= passed.mul_f64(SERVING);
        if passed >= self.period_max() {
            self.last = Some((now, tally));
            let mut period = Period::between(&earlier, &tally, passed);
            period.exempt_hot(self.hot.end_period(now));
            let overflows =
                self.measurements.end_period(now, &mut period, &self.shares, &self.settings);
            self.shares.expire(now);
            self.select_rung(now, &period, overflows);
        }
    }

    /// Returns the length of the present period, if no message is read until its end.
    fn period_max(&self) -> Duration {
        if self.is_unread { UNREAD_MAX * self.settings.period } else { self.settings.period }
    }

    /// Returns the current rung.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// Returns whether all answers to rejected work should be padded to a few lengths.
    pub fn pads(&self) -> bool {
        self.settings.pads && self.rung != Rung::Reject
    }

    /// Returns the share of the packets of a method to drop before they are read, 0 to 1.
    pub fn share(&self, method: DroppableMethod) -> f64 {
        self.shares.of(method)
    }

    /// Returns whether the marks of packets (hashes of source and first bytes) matter now, because
    /// packets with some marks are dropped, or were dropped recently.
    pub fn tells_marks(&self) -> bool {
        self.shares.fresh().iter().any(|&fresh| fresh < 1.0)
    }

    /// Returns whether no packet of this method with this mark (a hash of its first bytes) was
    /// dropped recently.
    pub fn is_fresh(&self, method: DroppableMethod, mark: u32) -> bool {
        self.shares.is_fresh(method, mark)
    }

    /// Records the mark of a packet that was read. Call this function for each packet while [marks
    /// matter](Self::tells_marks), and on the rung [`Drop`](Rung::Drop). `first` is the method if
    /// the packet counts as [fresh](Tally::fresh), and otherwise `None`.
    pub fn record_mark(&self, mark: u32, first: Option<DroppableMethod>) {
        self.hot.record(mark, first);
    }

    /// Records that a message that the ladder may drop waited for `wait` before it was read.
    pub fn record_wait(&self, is_datagram: bool, wait: Duration) {
        self.measurements.incoming.standing.record(is_datagram, wait);
    }

    /// Returns the marks whose packets are dropped because too many packets have the same mark, the
    /// latest first. There are at most [`Shedding::MARKS_MAX`](tidegate_world::Shedding::MARKS_MAX).
    pub fn hot_marks(&self) -> impl Iterator<Item = u32> {
        self.hot.marks()
    }

    /// Returns the processor time of a rejection, or `None` until it is measured.
    pub fn rejection_cost(&self) -> Option<Duration> {
        self.measurements.rejection_cost()
    }

    /// Returns the fraction of the processor time that rejecting takes, 0 to 1.
    pub fn load(&self) -> f64 {
        self.measurements.load()
    }

    /// Returns the time of the next reading, or `None` on the first rung. The reading is needed
    /// even if nothing arrives. Otherwise the ladder would continue to drop long after a flood.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let (since, _) = self.last.filter(|_| self.rung != Rung::Reject)?;
        Some(since + self.period_max())
    }

    /// Selects the rung, and on the rung [`Drop`](Rung::Drop) the shares. `overflows` is true if
    /// receive buffers have overflowed in this `period`.
    fn select_rung(&mut self, now: Timestamp, period: &Period, overflows: bool) {
        let budget = self.settings.budget;
        self.step_up(now, overflows || self.measurements.exceeds_budget());
        match self.rung {
            Rung::Reject => {}
            Rung::Pad => {
                if self.load() >= PAD[1] * budget {
                    self.needed = now;
                } else if now.since(self.needed) >= HOLD {
                    self.rung = Rung::Reject;
                }
            }
            Rung::Drop => self.adjust_shares(now, period, overflows),
        }
    }

    fn step_up(&mut self, now: Timestamp, is_too_much: bool) {
        let LadderSettings { budget, pads, drops, .. } = self.settings;
        if is_too_much && drops {
            if self.rung != Rung::Drop {
                (self.rung, self.needed) = (Rung::Drop, now);
            }
        } else if pads && self.rung == Rung::Reject && self.load() > PAD[0] * budget {
            (self.rung, self.needed) = (Rung::Pad, now);
        }
    }

    /// Changes the shares of datagrams that are dropped, if the changes are large enough.
    /// `overflows` is true if receive buffers have overflowed in this `period`.
    fn adjust_shares(&mut self, now: Timestamp, period: &Period, overflows: bool) {
        let Self { measurements, shares, .. } = self;
        let budget = self.settings.budget;
        let load = measurements.subject_load(period);
        let waits_too_long = measurements.incoming.standing.passing().is_some();
        let exceeds = overflows || load > budget || waits_too_long;
        let falls_by = STEPS.into_iter().find(|(part, _)| load <= part * budget);
        let falls_by = falls_by.filter(|_| !exceeds).map(|(_, levels)| levels);
        let has_risen = shares.adjust(now, measurements.passing(budget), exceeds, falls_by);
        if overflows && has_risen {
            measurements.overflow.on_raised(now);
        }
        if shares.is_any() {
            self.needed = now;
        } else if now.since(self.needed) >= HOLD {
            measurements.forget_overload();
            (self.rung, self.needed) = (self.rung_without_drops(), now);
        }
    }

    /// Returns the highest rung on which nothing is dropped.
    fn rung_without_drops(&self) -> Rung {
        if self.settings.pads { Rung::Pad } else { Rung::Reject }
    }
}

#[cfg(test)]
mod tests;
