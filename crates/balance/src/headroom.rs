//! The headroom of a back end: the number of further calls that its [limits](crate::limit) allow.

use std::sync::Arc;

use tidegate_world::Timestamp;

use crate::{Backend, CallLease, Demand, Limits};

impl Backend {
    /// Sets the limits of the back end. Existing leases and learned values are kept.
    pub fn set_limits(&self, limits: &Limits) {
        self.allowance().set(limits);
        self.set_limited(*limits != Limits::default());
    }

    /// Returns whether the limits of the back end allow a request with this demand. If the rate
    /// limit or the window does not allow it, records this for learning.
    pub fn has_headroom(&self, now: Timestamp, demand: Demand) -> bool {
        if !self.is_limited() {
            return true;
        }
        if demand != Demand::Single && self.free_calls(demand) == Some(0) {
            return false;
        }
        self.allowance().conforms(now, demand)
    }

    /// Returns whether the limits of the back end allow a call and leave a small reserve after it:
    /// 2 % of the maximum number of calls (at least one call), half of the burst of the rate limit,
    /// and a tenth of the window. A back end for less than ten calls has no reserve of calls.
    pub fn has_spare_headroom(&self, now: Timestamp) -> bool {
        if !self.is_limited() {
            return true;
        }
        let reserve = |calls_max: u64| (calls_max / 50).max(1).min(calls_max / 10);
        let is_spare = |calls_max| self.calls() + reserve(calls_max) < calls_max;
        self.calls_max().is_none_or(is_spare) && self.allowance().is_spare(now)
    }

    /// Records for learning that a call was rejected because only the reserve was left.
    pub fn on_reserve_kept(&self) {
        if self.is_limited() {
            self.allowance().on_reserve_kept();
        }
    }

    /// Returns the number of further calls with this demand that the back end may take, or `None`
    /// if there is no limit on calls.
    pub fn free_calls(&self, demand: Demand) -> Option<u64> {
        let calls_max = self.allowance().calls_max_of(demand)?;
        Some(calls_max.saturating_sub(self.calls()))
    }

    /// Returns the maximum number of simultaneous calls at the back end, without the reserve for
    /// calls with priority, or `None` if there is no limit on calls.
    pub fn calls_max(&self) -> Option<u64> {
        self.allowance().calls_max()
    }

    /// Returns the configured rate limit in requests a second, or `None` if there is none.
    pub fn cps_max(&self) -> Option<f64> {
        Some(self.allowance().cps_max()).filter(|rate| rate.is_finite())
    }

    /// Returns the rate limit in requests a second, the lower of the configured and the learned
    /// one, or `None` if there is neither.
    pub fn rate_max_cps(&self) -> Option<f64> {
        Some(self.allowance().rate_max_cps()).filter(|rate| rate.is_finite())
    }

    /// Returns the learned rate limit in requests a second, or `None` if it is not known.
    pub fn learned_cps(&self) -> Option<f64> {
        Some(self.allowance().learned_cps()).filter(|rate| rate.is_finite())
    }

    /// Returns whether Tidegate learns the rate limit of the back end.
    pub fn learns(&self) -> bool {
        self.is_limited() && self.allowance().learns()
    }

    /// Returns the learned maximum number of requests without a response, or `None` if no such
    /// limit is in force.
    pub fn learned_window(&self) -> Option<f64> {
        Some(self.allowance().window().size()).filter(|size| size.is_finite())
    }

    /// Returns the number of requests of the last 500 ms (T1) that have no response yet. Requests
    /// are counted only while Tidegate learns a window for the back end.
    pub fn unheard(&self, now: Timestamp) -> u64 {
        self.allowance().window().unheard(now)
    }

    /// Records that a request sent at `sent` was rejected or not answered. `is_proved` is true if
    /// overload is known to be the cause.
    pub fn on_not_taken(&self, sent: Timestamp, is_proved: bool) {
        if self.is_limited() {
            self.allowance().on_not_taken(sent, is_proved);
        }
    }

    /// Counts a request with this demand against the limits. For a call, the result contains its
    /// lease. Returns `None` if a limit does not allow the request.
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
        // If the rate or the window does not allow the request, dropping the lease gives the call
        // back.
        let lease = if is_call { Some(CallLease::within(self, calls_max)?) } else { None };
        self.allowance().take(now, demand).then_some(Acquired(lease))
    }
}

/// The result of [`Backend::try_acquire`]: the lease of the call, or `None` for a request outside
/// any call.
#[must_use = "a call is no longer counted when its lease is dropped"]
pub(crate) struct Acquired(pub(crate) Option<CallLease>);

#[cfg(test)]
mod tests;
