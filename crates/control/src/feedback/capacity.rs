//! The calls a second that a law allows, whatever kind its allowance is.
//!
//! - A rate is itself.
//! - A share is of the original load, which the peers are told to reduce by it.
//! - A window W holds calls in progress. Served calls make room: with the rate μ of calls that can be
//!   served, and w in progress, μ + (W/2 − w)/τ fills the window to one half within τ. There the
//!   processor never falls idle, and the gate rejects nothing. While calls wait, μ is the measured rate of
//!   calls served. While hardly any wait, the server could serve more than it gets: μ then grows until
//!   calls wait again, because peers may send less than they are granted.

use std::time::Duration;

use crate::{Allowance, Bucket, Gate};

/// Time τ in which the window is brought to one half.
const FILL: Duration = Duration::from_millis(500);

/// Growth of μ from one look to the next while hardly any calls wait.
const GROWTH: f64 = 1.03;

/// Delay that a window keeps where the law sets none: 002's budget D_B.
const DELAY: Duration = Duration::from_millis(200);

/// The cost of a rejection in costs of a call, before it is measured.
const REJECTION: f64 = 0.1;

/// The largest that is believed: a rejection that costs more than a call would be none.
const REJECTION_MAX: f64 = 0.9;

/// The amount of work that the server can serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    cps: f64,
    /// μ.
    served_cps: f64,
    rejection: f64,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { cps: f64::INFINITY, served_cps: 0.0, rejection: REJECTION }
    }
}

impl Capacity {
    /// Reads the law's allowance, while peers would send `original_cps` without feedback.
    pub(super) fn update(&mut self, gate: &Gate, original_cps: f64) {
        let floor = gate.control().rank_floor.clamp(0.0, 1.0);
        let cps = match gate.control().admit(Bucket::Session) {
            Allowance::Open => f64::INFINITY,
            Allowance::Fraction(fraction) if fraction >= 1.0 => f64::INFINITY,
            Allowance::Fraction(fraction) => fraction.max(0.0) * original_cps,
            Allowance::Rate(rate) => rate,
            Allowance::Window(window) => {
                let waiting = gate.waiting_sessions();
                let served_cps = self.served_cps(gate, waiting / window.max(1.0), original_cps);
                served_cps + (window / 2.0 - waiting) / FILL.as_secs_f64()
            }
            Allowance::Closed => 0.0,
        };
        let open = if floor > 0.0 { original_cps } else { f64::INFINITY };
        self.cps = cps.max(0.0).min(open) * (1.0 - floor);
        let of_a_call = || {
            let call_s = gate.signals().sessions.cost()?.as_secs_f64();
            Some(gate.refusal_cost()?.as_secs_f64() / call_s)
        };
        self.rejection = of_a_call().unwrap_or(REJECTION).min(REJECTION_MAX);
    }

    /// Returns μ as of now, while the window is filled to the part `fill`.
    fn served_cps(&mut self, gate: &Gate, fill: f64, original_cps: f64) -> f64 {
        let served_cps = gate.signals().sessions.rate_cps();
        self.served_cps = match fill >= 0.5 {
            true => served_cps,
            false => (self.served_cps * GROWTH).min(original_cps).max(served_cps),
        };
        self.served_cps
    }

    /// Returns the calls a second that can be taken.
    pub(super) fn cps(&self) -> f64 {
        self.cps
    }

    /// Returns the cost of a rejection in costs of a call.
    pub(super) fn rejection(&self) -> f64 {
        self.rejection
    }

    /// Returns whether the law holds work back now. A window holds nothing back while few calls wait.
    pub(super) fn is_used(&self, gate: &Gate) -> bool {
        match gate.control().admit(Bucket::Session) {
            Allowance::Window(window) => gate.waiting_sessions() >= window / 4.0,
            _ => true,
        }
    }

    /// Returns the window of a peer that may send `granted_cps`.
    pub(super) fn window(&self, granted_cps: f64, gate: &Gate) -> f64 {
        match gate.control().admit(Bucket::Session) {
            Allowance::Window(window) if self.cps > 0.0 => {
                window * (granted_cps / self.cps).min(1.0)
            }
            Allowance::Window(_) => 0.0,
            _ => granted_cps * DELAY.as_secs_f64(),
        }
    }
}
