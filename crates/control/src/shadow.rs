//! A shadow law sees the signals of the law in force, and records its own decision on each piece of
//! new work. Its decisions have no effect.
//!
//! Known bias: the signals come from a server that the law in force controls. Work that the shadow
//! would have rejected is served and takes time. Work that the shadow would have admitted may be
//! rejected, and its callers try again. So the shadow is accurate while the two laws agree. The
//! first decision in which they differ is still accurate. From then on, the shadow sees a server
//! that it would have brought into another state. The decisions of a shadow law do not change the
//! signals. So if the shadow is a law that holds the occupancy or the queue at a target, its
//! admitted share drifts.
//!
//! The fair shares of sources are no part of either decision: they decide only which sources get
//! the admitted work.
//!
//! The shadow also does not decide when and in which order waiting work is served. The work that
//! counts in its window was admitted by the law in force. If work is judged at its arrival, it is
//! not known which work would have waited too long under the shadow.

use std::fmt;
use std::time::Duration;

use tidegate_world::{Stream, Timestamp};

use crate::rank::rank;
use crate::signals::BUCKETS;
use crate::{Allowance, Bucket, Control, Law, Signals, Throttle, Values};

/// Counts of pieces of new work, by the decision of the law in force, without fair shares, and the
/// decision of the shadow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Both laws admit the work.
    pub both: u64,
    /// The law in force admitted the work, and the shadow would have rejected it.
    pub only_real: u64,
    /// The law in force rejected the work, and the shadow would have admitted it.
    pub only_shadow: u64,
    /// Neither law admits the work.
    pub neither: u64,
}

/// A law whose decisions have no effect. It sees the signals of the law in force, and records its
/// own decision on each piece of new work.
pub struct Shadow {
    law: Box<dyn Law>,
    values: Values,
    control: Control,
    throttles: Vec<Throttle>,
    /// Random numbers from which work without a fingerprint gets its rank.
    ranks: Stream,
    /// The time of the next tick, or `NEVER` while the law is at rest.
    due: Timestamp,
    /// The longest wait in a receive buffer since the last tick of this law.
    lag: Option<Duration>,
    compared: [Compared; BUCKETS],
}

impl Shadow {
    /// Starts a shadow law at `now`, with throttles of its own.
    pub(crate) fn start(
        now: Timestamp,
        values: Values,
        throttles: Vec<Throttle>,
        ranks: Stream,
        signals: &Signals,
    ) -> Self {
        let mut law = (values.entry().build)(&values);
        law.on_begin(now, signals);
        Self {
            law,
            values,
            control: Control::OPEN,
            throttles,
            ranks,
            due: Timestamp::NEVER,
            lag: None,
            compared: Default::default(),
        }
    }

    /// Returns the law and its parameters.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Returns the decisions of the shadow law, which have no effect.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns how the shadow's decisions on the work of a bucket compare with those of the law in
    /// force, since the start of the shadow.
    pub fn compared(&self, bucket: Bucket) -> &Compared {
        &self.compared[bucket as usize]
    }

    pub(crate) fn on_arrival(&mut self, now: Timestamp, signals: &Signals) {
        if self.due == Timestamp::NEVER {
            self.law.on_wake(now, signals);
        }
        self.law.on_arrival(now, signals, &mut self.control);
        if self.due == Timestamp::NEVER
            && let Some(tick) = self.law.tick()
        {
            self.due = now + tick;
        }
    }

    pub(crate) fn on_service(&mut self, now: Timestamp, signals: &Signals) {
        self.law.on_service(now, signals, &mut self.control);
    }

    pub(crate) fn on_completion(&mut self, now: Timestamp, signals: &Signals) {
        self.law.on_completion(now, signals, &mut self.control);
    }

    /// Records that new work waited for `lag` in a receive buffer before it was read.
    pub(crate) fn on_lag(&mut self, lag: Duration) {
        self.lag = self.lag.max(Some(lag));
    }

    /// Performs a tick if one is due. Restores `signals` before it returns.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp, signals: &mut Signals) {
        if now < self.due {
            return;
        }
        // The lag in the signals is the longest since the last tick of the law in force.
        let lag = std::mem::replace(&mut signals.queue.lag, self.lag.take());
        self.law.on_tick(now, signals, &mut self.control);
        signals.queue.lag = lag;
        self.due = match self.law.tick() {
            Some(tick) if signals.new_work_waits() || !self.law.is_at_rest() => now + tick,
            _ => Timestamp::NEVER,
        };
    }

    /// Returns the time of the next tick, or [`NEVER`](Timestamp::NEVER) if there is none.
    pub(crate) fn due(&self) -> Timestamp {
        self.due
    }

    /// Returns whether the shadow law would queue this work. A session needs fewer than the allowed
    /// number of waiting messages, and a rank that is high enough unless it is `exempt`. `waiting`
    /// is the number of messages that wait. Other work is always queued.
    pub(crate) fn has_place(
        &mut self,
        bucket: Bucket,
        waiting: usize,
        fingerprint: Option<u64>,
        exempt: bool,
    ) -> bool {
        let Control { queue, rank_floor, .. } = &self.control;
        if bucket != Bucket::Session {
            return true;
        }
        waiting < queue.waiting_max
            && (exempt || *rank_floor <= 0.0 || *rank_floor <= rank(fingerprint, &mut self.ranks))
    }

    /// Returns whether the shadow law exempts the next message from its throttle. Ends the
    /// exemption.
    pub(crate) fn take_exemption(&mut self) -> bool {
        std::mem::take(&mut self.control.admit_next)
    }

    /// Returns whether the shadow's throttle with this index admits the next piece of work.
    pub(crate) fn passes(
        &mut self,
        throttle: usize,
        now: Timestamp,
        allowance: Allowance,
        in_progress: u64,
    ) -> bool {
        self.throttles[throttle].passes(now, allowance, in_progress)
    }

    /// Records the decisions of both laws on a piece of work. `real` is true if the law in force
    /// admits the work, and `shadow` if the shadow law admits it.
    pub(crate) fn compare(&mut self, bucket: Bucket, real: bool, shadow: bool) {
        let Compared { both, only_real, only_shadow, neither } =
            &mut self.compared[bucket as usize];
        *match (real, shadow) {
            (true, true) => both,
            (true, false) => only_real,
            (false, true) => only_shadow,
            (false, false) => neither,
        } += 1;
    }
}

impl fmt::Debug for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shadow")
            .field("law", &self.law)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}
