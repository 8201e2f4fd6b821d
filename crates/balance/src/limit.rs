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

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_world::Timestamp;

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
    cps_max: AtomicF64,
    /// The lower of that and the one that is learned.
    gcra: Gcra,
    learned: Learned,
}

/// A number that threads share.
#[derive(Debug)]
pub(crate) struct AtomicF64(AtomicU64);

impl AtomicF64 {
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

impl Default for AtomicF64 {
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

impl Allowance {
    /// Sets other limits. What was learned stays.
    pub(crate) fn set(&self, limits: &Limits) {
        self.calls_max.store(limits.calls_max.unwrap_or(0), Relaxed);
        self.cps_max.set(limits.cps_max.unwrap_or(f64::INFINITY));
        self.learned.set(limits.learning, |rate| self.set_rate(rate));
    }

    /// Returns the calls that may be held at once, but for the reserve; `None` for any number.
    pub(crate) fn calls_max(&self) -> Option<u64> {
        Some(self.calls_max.load(Relaxed)).filter(|&calls_max| calls_max > 0)
    }

    /// Returns the calls that may be held at once with one that is demanded so; `None` for any
    /// number.
    pub(crate) fn calls_max_of(&self, demand: Demand) -> Option<u64> {
        self.calls_max().map(|calls_max| demand.calls_max(calls_max))
    }

    /// Returns the configured rate; infinite for none.
    pub(crate) fn cps_max(&self) -> f64 {
        self.cps_max.get()
    }

    /// Returns the lower of the configured rate and the one learned; infinite for none.
    pub(crate) fn rate_max_cps(&self) -> f64 {
        self.gcra.rate()
    }

    /// Returns the learned rate; infinite if it is not known.
    pub(crate) fn learned_cps(&self) -> f64 {
        self.learned.rate()
    }

    /// Whether the rate is learned.
    pub(crate) fn learns(&self) -> bool {
        self.learned.is_on()
    }

    /// Returns whether the rate lets a request pass. If it does not, a rate that is learned takes
    /// note.
    pub(crate) fn conforms(&self, now: Timestamp, demand: Demand) -> bool {
        let conforms = self.gcra.conforms(now, demand == Demand::Priority);
        if !conforms {
            self.learned.on_wanted();
        }
        conforms
    }

    /// Takes a request of the rate; whether there was one left.
    pub(crate) fn take(&self, now: Timestamp, demand: Demand) -> bool {
        let is_taken = self.gcra.take(now, demand == Demand::Priority);
        if is_taken && self.learned.is_on() {
            self.learned.on_given(now, self.cps_max.get(), |rate| self.set_rate(rate));
        }
        is_taken
    }

    /// Records that a request sent at `sent` was rejected or not answered; whether that `is_proved`
    /// to be a sign of load.
    pub(crate) fn on_not_taken(&self, sent: Timestamp, is_proved: bool) {
        self.learned.on_refused(sent, is_proved);
    }

    /// Forgets the learned rate.
    pub(crate) fn forget_learned(&self) {
        self.learned.forget(|rate| self.set_rate(rate));
    }

    fn set_rate(&self, learned_cps: f64) {
        self.gcra.set_rate(learned_cps.min(self.cps_max.get()));
    }
}
