//! How much a back end may be given: calls held at once, and requests a second.
//!
//! A limit is configured ([`Limits`]), and the rate may be learned from what the back end refuses
//! ([`Learning`]). All shards keep it together, in words that they share: calls are counted where
//! they are counted anyway, by their leases, and taken by compare-and-swap, so that there are never
//! more than allowed; the rate is one word ([`gcra`]). What a back end may still be given is its
//! headroom, and that of a pool the sum of its back ends'.
//!
//! What has priority finds a [reserve](Demand::Priority) where others find nothing.

mod aimd;
mod gcra;
mod learned;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_world::Timestamp;

use crate::{Backend, Lease};
pub use aimd::{DOUBLING_S, Learning};
use gcra::Gcra;
pub use gcra::{BURST_S, RESERVE_S};
use learned::Learned;

/// What a request asks of the back end that is to have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// To be answered: it counts in the rate alone.
    Single,
    /// To hold a call.
    Call,
    /// The same, with priority: beyond `calls_max` there is a twentieth more for it, one call at
    /// the least, and beyond the rate a [second's worth](RESERVE_S).
    Priority,
}

/// What a back end may be given, as it is configured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Calls that it holds at once.
    pub calls_max: Option<u64>,
    /// Requests a second that begin a call or stand alone.
    pub cps_max: Option<f64>,
    /// How a lower rate is learned, if it is.
    pub learning: Option<Learning>,
}

/// Limits in force, and the rate that is taken of them.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// Zero for any number.
    calls_max: AtomicU64,
    /// The rate that is configured; infinite for none.
    cps_max: Real,
    /// The lower of that and the one that is learned.
    gcra: Gcra,
    learned: Learned,
}

/// A number that threads share.
#[derive(Debug)]
pub(crate) struct Real(AtomicU64);

impl Real {
    pub(crate) fn new(value: f64) -> Self {
        Self(AtomicU64::new(value.to_bits()))
    }

    pub(crate) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    pub(crate) fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }
}

impl Default for Real {
    fn default() -> Self {
        Self::new(f64::INFINITY)
    }
}

impl Demand {
    /// Of so many calls that a back end may hold, how many it may with this one.
    fn calls_max(self, calls_max: u64) -> u64 {
        match self {
            Self::Priority => calls_max + (calls_max / 20).max(1),
            Self::Single | Self::Call => calls_max,
        }
    }
}

impl Backend {
    /// Gives it other limits. What is held and what was learned stays.
    pub fn set_limits(&self, limits: &Limits) {
        let Allowance { calls_max, cps_max, gcra, learned } = self.allowance();
        calls_max.store(limits.calls_max.unwrap_or(0), Relaxed);
        cps_max.set(limits.cps_max.unwrap_or(f64::INFINITY));
        learned.set(limits.learning, |rate| gcra.set_rate(rate.min(cps_max.get())));
        self.set_limited(*limits != Limits::default());
    }

    /// Whether it may be given what is demanded. If its rate is what keeps it from that, a rate that
    /// is learned takes note.
    pub fn has_headroom(&self, now: Timestamp, demand: Demand) -> bool {
        if !self.is_limited() {
            return true;
        }
        if demand != Demand::Single && self.free_calls(demand) == Some(0) {
            return false;
        }
        let Allowance { gcra, learned, .. } = self.allowance();
        let conforms = gcra.conforms(now, demand == Demand::Priority);
        if !conforms {
            learned.on_wanted();
        }
        conforms
    }

    /// Calls that it may hold beyond those that it holds; `None` for any number.
    pub fn free_calls(&self, demand: Demand) -> Option<u64> {
        let calls_max = self.calls_max()?;
        Some(demand.calls_max(calls_max).saturating_sub(self.calls()))
    }

    /// Calls that it may hold at once, but for the reserve; `None` for any number.
    pub fn calls_max(&self) -> Option<u64> {
        Some(self.allowance().calls_max.load(Relaxed)).filter(|&calls_max| calls_max > 0)
    }

    /// Requests a second that it may be given, as it is configured; `None` for any number.
    pub fn cps_max(&self) -> Option<f64> {
        Some(self.allowance().cps_max.get()).filter(|rate| rate.is_finite())
    }

    /// Requests a second that it may be given: the lower of what is configured and what was
    /// learned; `None` for any number.
    pub fn rate_max_cps(&self) -> Option<f64> {
        Some(self.allowance().gcra.rate()).filter(|rate| rate.is_finite())
    }

    /// Requests a second that it takes, as was learned; `None` if that is not known.
    pub fn learned_cps(&self) -> Option<f64> {
        Some(self.allowance().learned.rate()).filter(|rate| rate.is_finite())
    }

    /// Whether its rate is learned.
    pub fn learns(&self) -> bool {
        self.is_limited() && self.allowance().learned.is_on()
    }

    /// It has refused a request that it was sent at `sent`, or has left it unanswered; whether that
    /// `is_proved` to be a sign of load.
    pub fn on_not_taken(&self, sent: Timestamp, is_proved: bool) {
        if self.is_limited() {
            self.allowance().learned.on_refused(sent, is_proved);
        }
    }

    /// Nothing that was learned holds any more.
    pub(crate) fn forget_learned(&self) {
        if self.is_limited() {
            let Allowance { cps_max, gcra, learned, .. } = self.allowance();
            learned.forget(|rate| gcra.set_rate(rate.min(cps_max.get())));
        }
    }

    /// Takes what is demanded, a call as a lease; `None` if there is no headroom.
    pub(crate) fn allot(self: &Arc<Self>, now: Timestamp, demand: Demand) -> Option<Allotment> {
        let is_call = demand != Demand::Single;
        if !self.is_limited() {
            return Some(Allotment(is_call.then(|| Lease::call(self))));
        }
        let Allowance { cps_max, gcra, learned, .. } = self.allowance();
        let calls_max = self.calls_max().map_or(u64::MAX, |max| demand.calls_max(max));
        // If the rate has nothing left, it gives back what it took.
        let call = if is_call { Some(Lease::call_within(self, calls_max)?) } else { None };
        if !gcra.take(now, demand == Demand::Priority) {
            return None;
        }
        if learned.is_on() {
            learned.on_given(now, cps_max.get(), |rate| gcra.set_rate(rate.min(cps_max.get())));
        }
        Some(Allotment(call))
    }
}

/// What was taken of a back end's headroom: the call, if one was demanded.
#[must_use = "a call that is not kept is given back"]
pub(crate) struct Allotment(pub(crate) Option<Lease>);

#[cfg(test)]
mod tests;
