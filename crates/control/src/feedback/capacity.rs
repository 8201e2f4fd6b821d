//! Converts the new work that a law admits ([`Allowance`]) to calls a second that all peers
//! together may send. A peer is a server that sends requests to this one.
//!
//! - A rate is a number of calls a second, and is used as it is.
//! - A share applies to the original load: the calls that the peers would send without feedback. A
//!   law that computes a share may not see how many calls wait, and it changes the share in small
//!   steps. At eight times the capacity, the law rate-occ needs 2.6 s to find its share. In this
//!   time, calls with twelve seconds of work would enter the queue, and all of them would be served
//!   too late. So while more calls wait than the server serves in 200 ms, arrivals are limited to
//!   the rate at which the queue shrinks to that number of calls within τ (500 ms). The same limit
//!   applies if the law sets a window, because a window counts only new calls, and messages of
//!   existing calls may wait too.
//! - A window W limits the waiting calls. Let μ be the calls a second that can be served, and w the
//!   number of waiting calls. W and w count calls, and never messages, even if messages of all
//!   kinds wait in one queue ([`in_window`](crate::Signals::in_window)). Then μ + (W/2 − w)/τ calls
//!   a second fill the window to one half within τ. With a half-full window the processor is never
//!   idle, and the gate rejects nothing. While calls wait, μ is the measured rate of calls served.
//!   While hardly any calls wait, the server could serve more calls than it gets, because peers may
//!   send less than they are granted. Then μ grows until calls wait again.

use std::time::Duration;

use crate::{Allowance, Bucket, Gate};

/// τ, the time in which the number of waiting calls is brought to half of the law's window.
const FILL: Duration = Duration::from_millis(500);

/// While hardly any calls wait, each measurement multiplies μ, the assumed calls a second that the
/// server can serve, by this factor.
const GROWTH: f64 = 1.03;

/// A queue of calls is long if it holds more calls than the server serves in this time (the delay
/// budget D_B of paper 002).
const DELAY: Duration = Duration::from_millis(200);

/// Number of waiting calls up to which a queue is never long, even if the server serves very few
/// calls.
const WAITING_MIN: f64 = 10.0;

/// The assumed cost of a rejection, as a fraction of the cost of a call, until it is measured.
const REJECTION: f64 = 0.1;

/// Upper limit for the measured cost of a rejection, as a fraction of the cost of a call.
const REJECTION_MAX: f64 = 0.9;

/// The calls a second that the law allows to all peers together, and the cost of a rejection as a
/// fraction of the cost of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    cps: f64,
    /// μ: the calls a second that the server can serve.
    served_cps: f64,
    rejection: f64,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { cps: f64::INFINITY, served_cps: 0.0, rejection: REJECTION }
    }
}

impl Capacity {
    /// Computes the capacity from the present decision of the law. `original_cps` is the number of
    /// calls a second that the peers would send without feedback.
    pub(super) fn update(&mut self, gate: &Gate, original_cps: f64) {
        let floor = gate.control().rank_floor.clamp(0.0, 1.0);
        let cps = match gate.control().admit(Bucket::Session) {
            Allowance::Open => f64::INFINITY,
            Allowance::Fraction(fraction) if fraction >= 1.0 => behind_a_queue(gate),
            Allowance::Fraction(fraction) => {
                (fraction.max(0.0) * original_cps).min(behind_a_queue(gate))
            }
            Allowance::Rate(rate) => rate,
            Allowance::Window(window) => {
                self.filling(gate, window, original_cps).min(behind_a_queue(gate))
            }
            Allowance::Closed => 0.0,
        };
        let open = if floor > 0.0 { original_cps } else { f64::INFINITY };
        self.cps = cps.max(0.0).min(open) * (1.0 - floor);
        let of_a_call = || {
            let call_s = gate.signals().sessions.cost()?.as_secs_f64();
            Some(gate.rejection_cost()?.as_secs_f64() / call_s)
        };
        self.rejection = of_a_call().unwrap_or(REJECTION).min(REJECTION_MAX);
    }

    /// Returns the calls a second at which `window`, the law's limit on waiting calls, will be half
    /// full after the time [`FILL`].
    fn filling(&mut self, gate: &Gate, window: f64, original_cps: f64) -> f64 {
        let waiting = gate.waiting_sessions();
        let served_cps = self.served_cps(gate, waiting / window.max(1.0), original_cps);
        served_cps + (window / 2.0 - waiting) / FILL.as_secs_f64()
    }

    /// Updates and returns the calls a second that the server can serve. `fill` is the used part of
    /// the law's window. It is above 1 if more calls wait than the window allows now.
    fn served_cps(&mut self, gate: &Gate, fill: f64, original_cps: f64) -> f64 {
        let served_cps = gate.signals().sessions.rate_cps();
        self.served_cps = match fill >= 0.5 {
            true => served_cps,
            false => (self.served_cps * GROWTH).min(original_cps).max(served_cps),
        };
        self.served_cps
    }

    /// Returns the calls a second that the law allows to all peers together.
    pub(super) fn cps(&self) -> f64 {
        self.cps
    }

    /// Returns the cost of a rejection as a fraction of the cost of a call.
    pub(super) fn rejection(&self) -> f64 {
        self.rejection
    }

    /// Returns whether the law's allowance can limit the load now. A window can if it is at least a
    /// quarter full. Any other allowance always can.
    pub(super) fn is_used(&self, gate: &Gate) -> bool {
        match gate.control().admit(Bucket::Session) {
            Allowance::Window(window) => gate.waiting_sessions() >= window / 4.0,
            _ => true,
        }
    }
}

/// Returns the maximum calls a second at which a long queue still becomes short within [`FILL`], or
/// infinity if the queue is not long. Messages of existing calls that wait in the same queue count
/// too (paper 002 §3.1, equation 1).
fn behind_a_queue(gate: &Gate) -> f64 {
    let served_cps = gate.signals().sessions.rate_cps();
    let budget = (served_cps * DELAY.as_secs_f64()).max(WAITING_MIN);
    let waiting = gate.signals().sessions_waiting();
    match waiting > budget {
        true => served_cps + (budget - waiting) / FILL.as_secs_f64(),
        false => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Seed, Timestamp};

    use super::*;
    use crate::{Backlog, Settings, registry};

    /// Before anything is measured, 100 calls/s are assumed to be served, which is 20 calls in 200
    /// ms. Five new calls and 60 messages of begun calls count as 15 waiting calls (paper 002 §3.1,
    /// equation 1), so the queue is not long.
    #[test]
    fn in_one_queue_of_all_messages_a_window_is_filled_with_calls() {
        let law = registry::find("win-cont").unwrap().values(&[]).unwrap();
        let mut gate = Gate::new(Settings::new(law), Seed(1), 0).with_room(500);
        for call in 0..5 {
            gate.on_arrival(Timestamp::ZERO, 60);
            gate.on_new(Timestamp::ZERO, Bucket::Session, 0, Some(call), true);
        }
        gate.on_backlog(Backlog { sessions: 5, others: 60, unread: 0 });
        gate.handle_timeout(Timestamp::ZERO + DELAY, 65);
        let mut capacity = Capacity::default();
        capacity.update(&gate, 300.0);
        // The window is ten calls, and five of them are in use: it is half full.
        assert!((capacity.cps() - 100.0).abs() < 1e-9, "{}", capacity.cps());
        assert!(capacity.is_used(&gate));
    }
}
