//! A second law that decides nothing: it sees what the first one sees, and says of each piece of
//! new work what it would have done.
//!
//! Known bias: the signals are those of a server under the other law. The work that this one
//! would have refused is done, and takes its time; what it would have admitted is not, and has
//! its callers try again. So while the two agree a shadow tells the truth; after that it tells
//! the first thing that the law would have done otherwise, and of all later ones how it would
//! act on a server that somebody else steers. Of a law that closes a loop over the processor
//! or the queue, do not read a share from it that it would have settled at.
//!
//! In particular it does not pace the queue: neither the release nor the order in which the queue
//! is emptied is its own, the window in which it counts is filled by the other, and of what is judged
//! at its arrival it is not known what would have grown stale.

use std::fmt;

use tidegate_world::{Stream, Timestamp};

use crate::rank::rank;
use crate::signals::BUCKETS;
use crate::{Allowance, Bucket, Control, Law, Signals, Throttle, Values};

/// Pieces of new work by what the law in force did and what the shadow would have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Both admit it.
    pub both: u64,
    /// It was admitted, and the shadow would have refused it.
    pub only_real: u64,
    /// It was refused, and the shadow would have admitted it.
    pub only_shadow: u64,
    /// Neither admits it.
    pub neither: u64,
}

/// A law that decides nothing: see the [module](self).
pub struct Shadow {
    law: Box<dyn Law>,
    values: Values,
    control: Control,
    throttles: Vec<Throttle>,
    /// Ranks of what has no fingerprint.
    ranks: Stream,
    /// The next tick; `NEVER` while the law rests.
    due: Timestamp,
    compared: [Compared; BUCKETS],
}

impl Shadow {
    /// A law that begins at `now`, with throttles of its own.
    pub(crate) fn begin(
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
            compared: Default::default(),
        }
    }

    /// The law and its parameters.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// What the law would decide.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// How its verdicts compare, since it began.
    pub fn compared(&self, bucket: Bucket) -> &Compared {
        &self.compared[bucket as usize]
    }

    pub(crate) fn on_arrival(&mut self, now: Timestamp, signals: &Signals) {
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

    /// Fires a tick that is due.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp, signals: &Signals) {
        if now < self.due {
            return;
        }
        self.law.on_tick(now, signals, &mut self.control);
        self.due = match self.law.tick() {
            Some(tick) if signals.queue.waiting > 0 || !self.law.is_at_rest() => now + tick,
            _ => Timestamp::NEVER,
        };
    }

    /// When a tick is due; `NEVER` if none is.
    pub(crate) fn due(&self) -> Timestamp {
        self.due
    }

    /// Whether the law lets new work wait, of this rank, behind so many.
    pub(crate) fn has_place(
        &mut self,
        bucket: Bucket,
        waiting: usize,
        fingerprint: Option<u64>,
    ) -> bool {
        let Control { queue, rank_floor, .. } = &self.control;
        if bucket != Bucket::Session {
            return true;
        }
        waiting < queue.waiting_max
            && (*rank_floor <= 0.0 || *rank_floor <= rank(fingerprint, &mut self.ranks))
    }

    /// Whether the law wants the next message admitted, whatever its throttle says.
    pub(crate) fn take_exemption(&mut self) -> bool {
        std::mem::take(&mut self.control.admit_next)
    }

    /// Whether one of its throttles lets the next piece of work pass.
    pub(crate) fn passes(
        &mut self,
        throttle: usize,
        now: Timestamp,
        allowance: Allowance,
        in_progress: u64,
    ) -> bool {
        self.throttles[throttle].passes(now, allowance, in_progress)
    }

    /// The law in force has judged a piece of work, and so has this one.
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
