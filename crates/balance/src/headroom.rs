//! A back end's headroom: how many more calls its [limits](crate::limit) allow, and taking one.

use std::sync::Arc;

use tidegate_world::Timestamp;

use crate::{Backend, CallLease, Demand, Limits};

impl Backend {
    /// Gives it other limits. What is held and what was learned stays.
    pub fn set_limits(&self, limits: &Limits) {
        self.allowance().set(limits);
        self.set_limited(*limits != Limits::default());
    }

    /// Returns true if the limits allow what is demanded. If only the rate forbids it, a rate that
    /// is learned takes note.
    pub fn has_headroom(&self, now: Timestamp, demand: Demand) -> bool {
        if !self.is_limited() {
            return true;
        }
        if demand != Demand::Single && self.free_calls(demand) == Some(0) {
            return false;
        }
        self.allowance().conforms(now, demand)
    }

    /// Calls that it may hold beyond those that it holds; `None` for any number.
    pub fn free_calls(&self, demand: Demand) -> Option<u64> {
        let calls_max = self.allowance().calls_max_of(demand)?;
        Some(calls_max.saturating_sub(self.calls()))
    }

    /// Calls that it may hold at once, but for the reserve; `None` for any number.
    pub fn calls_max(&self) -> Option<u64> {
        self.allowance().calls_max()
    }

    /// Requests a second that it may be given, as it is configured; `None` for any number.
    pub fn cps_max(&self) -> Option<f64> {
        Some(self.allowance().cps_max()).filter(|rate| rate.is_finite())
    }

    /// Requests a second that it may be given: the lower of what is configured and what was
    /// learned; `None` for any number.
    pub fn rate_max_cps(&self) -> Option<f64> {
        Some(self.allowance().rate_max_cps()).filter(|rate| rate.is_finite())
    }

    /// Requests a second that it takes, as was learned; `None` if that is not known.
    pub fn learned_cps(&self) -> Option<f64> {
        Some(self.allowance().learned_cps()).filter(|rate| rate.is_finite())
    }

    /// Returns true if the rate is learned.
    pub fn learns(&self) -> bool {
        self.is_limited() && self.allowance().learns()
    }

    /// It has refused a request that it was sent at `sent`, or has left it unanswered; whether that
    /// `is_proved` to be a sign of load.
    pub fn on_not_taken(&self, sent: Timestamp, is_proved: bool) {
        if self.is_limited() {
            self.allowance().on_not_taken(sent, is_proved);
        }
    }

    /// Takes what is demanded, a call as a lease; `None` if there is no headroom.
    pub(crate) fn try_acquire(
        self: &Arc<Self>,
        now: Timestamp,
        demand: Demand,
    ) -> Option<Acquired> {
        let is_call = demand != Demand::Single;
        if !self.is_limited() {
            return Some(Acquired(is_call.then(|| CallLease::new(self))));
        }
        let calls_max = self.allowance().calls_max_of(demand).unwrap_or(u64::MAX);
        // If the rate has nothing left, it gives back what it took.
        let call = if is_call { Some(CallLease::within(self, calls_max)?) } else { None };
        self.allowance().take(now, demand).then_some(Acquired(call))
    }
}

/// The part of a back end's headroom that was taken: one call, if a call was demanded.
#[must_use = "a call that is not kept is given back"]
pub(crate) struct Acquired(pub(crate) Option<CallLease>);

#[cfg(test)]
mod tests;
