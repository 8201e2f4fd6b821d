//! Computes figures about the law's decision: shares, costs, and the maximum possible goodput.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::Gate;
use crate::{Allowance, Bucket, Control, Scheme, Signals, bound};

impl Gate {
    /// Returns the share of new work in a bucket that the shadow law would admit, 0 to 1, or `None`
    /// without a shadow law.
    pub fn share_of_shadow(&self, bucket: Bucket) -> Option<f64> {
        Some(self.share_under(self.shadow()?.control(), bucket))
    }

    /// Returns the share of new work in a bucket that the law admits, 0 to 1. It depends on the
    /// current rate of arrivals and on the work that waits.
    pub fn share(&self, bucket: Bucket) -> f64 {
        self.share_under(&self.control, bucket)
    }

    /// Returns the share of the messages of a class that is admitted, 0 to 1. `bucket` is the
    /// bucket of the messages, or `None` if they are not new work.
    pub fn share_of_class(&self, bucket: Option<Bucket>, class: u8) -> f64 {
        match self.allowance_of(&self.control, bucket, class) {
            Allowance::Fraction(fraction) => fraction,
            _ => bucket.map_or(1.0, |bucket| self.share(bucket)),
        }
    }

    /// Returns r, the mean cost of shedding one piece of new work. The cost includes the
    /// repetitions of the piece and the acknowledgements of their rejections, but not the work of
    /// the operating system. Returns `None` before the first rejection.
    pub fn rejection_cost(&self) -> Option<Duration> {
        let Signals { costs, messages_rejected, .. } = &self.signals;
        let flows = Bucket::ALL.map(|bucket| self.signals.flow(bucket));
        let pieces: u64 = flows.iter().map(|flow| flow.rejected + flow.stale).sum();
        let once = costs.rejected()? + costs.looked().unwrap_or_default();
        Some(once.mul_f64((*messages_rejected as f64 / pieces.max(1) as f64).max(1.0)))
    }

    /// Returns the maximum goodput that any law can reach at the offered load of `now`, as a part
    /// of the capacity, 0 to 1 ([`bound`]). Returns `None` while the costs are not known.
    pub fn bound(&self, now: Timestamp) -> Option<f64> {
        let session_s = self.signals.sessions.cost()?.as_secs_f64();
        let rejection_s = self.rejection_cost()?.as_secs_f64();
        Some(bound::goodput(
            self.offered.rate_at(now) * session_s,
            (rejection_s / session_s).min(1.0),
        ))
    }

    fn share_under(&self, control: &Control, bucket: Bucket) -> f64 {
        let allowed = self.allowed(control, bucket);
        match bucket {
            Bucket::Session => allowed * (1.0 - control.rank_floor.clamp(0.0, 1.0)),
            Bucket::Single => allowed,
            Bucket::Priority => 1.0,
        }
    }

    /// Returns the allowance for the messages of a class: the law's allowance, converted by the
    /// [class scheme](Scheme).
    pub(super) fn allowance_of(
        &self,
        control: &Control,
        bucket: Option<Bucket>,
        class: u8,
    ) -> Allowance {
        let Signals { mix, costs, .. } = &self.signals;
        match (&self.settings.scheme, bucket) {
            (Scheme::Simplified { .. }, None) => Allowance::Open,
            (scheme @ Scheme::Simplified { .. }, Some(bucket)) => {
                scheme.of_new_work(control.admit(bucket), mix.share_of_new())
            }
            (Scheme::Single, _) => Allowance::Fraction(self.allowed(control, Bucket::Session)),
            (Scheme::Multi(shedding), _) => Allowance::Fraction(shedding.share(
                class,
                self.allowed(control, Bucket::Session),
                mix,
                costs,
            )),
        }
    }

    /// Returns the law's allowance as a share of the judged new work, 0 to 1.
    pub(super) fn allowed(&self, control: &Control, bucket: Bucket) -> f64 {
        let left = match control.admit(bucket) {
            Allowance::Window(window) => {
                Allowance::Window(window - self.in_progress(bucket) as f64)
            }
            other => other,
        };
        left.fraction(self.decided[bucket as usize].rate()).clamp(0.0, 1.0)
    }

    /// Returns the number of sessions that count in a [window](Allowance::Window) of the law.
    pub(crate) fn waiting_sessions(&self) -> f64 {
        self.in_progress(Bucket::Session) as f64
    }

    /// Returns the number of pieces of work that count in a [window](Allowance::Window) of the law:
    /// those that wait for service, and the sessions that are probably among unread messages.
    pub(super) fn in_progress(&self, bucket: Bucket) -> u64 {
        self.signals.in_window(bucket)
    }
}
