//! Collects the observations of both servers so far, for display.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::plan::{BACKENDS, CAPACITY_CPS, MULTIPLES, Plan, Side, bound};
use crate::timeline::CallersReading;

/// Time over which rates of calls are averaged.
const WINDOW: Duration = Duration::from_secs(1);

/// All observations of a demonstration.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// Schedule of the demonstration.
    pub plan: Plan,
    /// Time since the start of the first load.
    pub elapsed: Duration,
    /// The current load or pause.
    pub act: Act,
    /// Observations of the two servers, in the order of [`Side`].
    pub sides: [Seen; 2],
}

/// The current part of a demonstration: a load or a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A load, as an index of [`MULTIPLES`].
    Load(usize),
    /// The pause after a load, with the load's index of [`MULTIPLES`].
    Pause(usize),
}

/// The observations of one server.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Goodput over time. Each pair is a time in seconds since the start of the first load, and the
    /// goodput at this time as a part of the capacity.
    pub goodput: Vec<(f64, f64)>,
    /// The current state of the server.
    pub now: Now,
    /// The outcome of each finished load.
    pub phases: Vec<Phase>,
    counted: Vec<Counted>,
}

/// The state of a server at one moment. Rates are averages over the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Now {
    /// Calls offered per second.
    pub offered_cps: f64,
    /// Calls set up in time per second.
    pub goodput_cps: f64,
    /// Calls rejected with 503 per second.
    pub rejected_cps: f64,
    /// INVITEs retransmitted per second.
    pub repeated_cps: f64,
    /// Number of messages in the server's queues.
    pub waiting: u64,
    /// Time in a queue that 1 % of new calls exceed, in ms.
    pub sojourn_p99_ms: f64,
    /// Occupancy of the emulated processor, 0 to 1.
    pub occupancy: f64,
    /// Share of the offered calls that the server admitted, 0 to 1. The share is 1 if no calls are
    /// offered.
    pub admitted: f64,
    /// Calls a second that each back end gets.
    pub backends_cps: [f64; BACKENDS],
}

/// The outcome of one load at one server, measured after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Phase {
    /// Offered load as a multiple of the capacity.
    pub multiple: f64,
    /// Calls/s that were offered.
    pub offered_cps: f64,
    /// Calls/s that were set up in time.
    pub goodput_cps: f64,
    /// Share of the offered calls that was rejected with 503.
    pub rejected: f64,
    /// INVITEs retransmitted per INVITE first sent.
    pub retransmission_ratio: f64,
    /// Median set-up delay of the calls that were set up, in ms, or `None` if no call was set up.
    pub set_up_p50_ms: Option<f64>,
    /// Set-up delay that 1 % of the calls that were set up exceed, in ms, or `None` if no call was
    /// set up.
    pub set_up_p99_ms: Option<f64>,
    /// The part of a core that the thread of callers used, 0 to 1.
    pub generator_load: f64,
    /// Number of datagrams that the callers' socket lost or could not send.
    pub generator_drops: u64,
    /// The reason why the callers could not offer their load, or `None` if they could.
    pub too_slow: Option<String>,
}

impl Phase {
    /// Returns the greatest possible goodput at the load that was really offered, as a fraction of
    /// the capacity. Because arrivals are random, that load differs from the requested one.
    pub fn bound(&self) -> f64 {
        bound(self.offered_cps / CAPACITY_CPS)
    }

    /// Returns the goodput as a fraction of the greatest possible goodput.
    pub(crate) fn goodput_of_bound(&self) -> f64 {
        self.goodput_cps / CAPACITY_CPS / self.bound()
    }
}

/// The cumulative counts of one server and its callers at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    at: Duration,
    offered: u64,
    set_up_in_time: u64,
    rejected: u64,
    repeated: u64,
    admitted: u64,
    occupied_s: f64,
    assigned: [u64; BACKENDS],
}

impl Counted {
    /// Reads the counts of the server from `status`. `callers` are the counts of the callers of the
    /// current load, or `None` while no load is offered.
    pub(super) fn read(at: Duration, callers: Option<CallersReading>, status: &Value) -> Self {
        let mut counted = Self { at, ..Self::default() };
        if let Some(callers) = callers {
            counted.offered = callers.offered;
            counted.set_up_in_time = callers.in_time;
            counted.rejected = callers.rejected;
            counted.repeated = callers.repeated;
        }
        let shard = &status["shards"][0];
        counted.admitted = shard["new_calls"]["admitted"].as_u64().unwrap_or(0);
        counted.occupied_s = shard["occupied_s"].as_f64().unwrap_or(0.0);
        for (index, assigned) in counted.assigned.iter_mut().enumerate() {
            let backend = &status["pools"][0]["backends"][index];
            *assigned = backend["assigned"].as_u64().unwrap_or(0);
        }
        counted
    }
}

impl Story {
    /// Creates a story without observations.
    pub fn new(plan: Plan) -> Self {
        let sides = Default::default();
        Self { plan, elapsed: Duration::ZERO, act: Act::Load(0), sides }
    }

    /// Returns the observations of the server on one side, with or without protection.
    pub fn side(&self, side: Side) -> &Seen {
        &self.sides[side as usize]
    }

    /// Returns the index of the current load, or of the load before the current pause.
    pub fn phase(&self) -> usize {
        match self.act {
            Act::Load(phase) | Act::Pause(phase) => phase,
        }
    }

    /// Returns a sentence about the current state of the demonstration.
    pub fn comment(&self) -> String {
        let phase = self.phase();
        if matches!(self.act, Act::Pause(_)) {
            return "Pause: no calls are offered, and the queues drain.".to_owned();
        }
        match MULTIPLES[phase] {
            m if m < 1.0 => "Below capacity: both servers set up every call.".to_owned(),
            m if m <= 1.0 => "At capacity: each fluctuation leaves a queue behind.".to_owned(),
            m => format!(
                "{m} x capacity: waiting callers repeat INVITEs. Rejecting some keeps waits short."
            ),
        }
    }
}

impl Seen {
    /// Adds the counts of the server and its callers at one moment.
    pub(super) fn add(&mut self, counted: Counted, status: &Value) {
        // With each load, new callers count from 0.
        if self.counted.last().is_some_and(|last| counted.offered < last.offered) {
            self.counted.clear();
        }
        self.counted.push(counted);
        // Rates are differences from the latest reading that is at least a second old.
        let begin = counted.at.saturating_sub(WINDOW);
        let old = self.counted.iter().filter(|then| then.at <= begin).count();
        self.counted.drain(..old.saturating_sub(1));
        let then = self.counted[0];
        // A time of less than a second is too short for a rate, and counts as a second.
        let passed = counted.at.saturating_sub(then.at).max(WINDOW).as_secs_f64();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / passed;
        let shard = &status["shards"][0];
        let occupied = counted.occupied_s - then.occupied_s;
        let offered_cps = rate(counted.offered, then.offered);
        let admitted_cps = rate(counted.admitted, then.admitted);
        self.now = Now {
            offered_cps,
            goodput_cps: rate(counted.set_up_in_time, then.set_up_in_time),
            rejected_cps: rate(counted.rejected, then.rejected),
            repeated_cps: rate(counted.repeated, then.repeated),
            waiting: shard["queued"].as_u64().unwrap_or(0),
            sojourn_p99_ms: shard["sojourn_ms"]["new"]["p99"].as_f64().unwrap_or(0.0),
            occupancy: (occupied / passed).clamp(0.0, 1.0),
            admitted: if offered_cps > 0.0 { (admitted_cps / offered_cps).min(1.0) } else { 1.0 },
            backends_cps: std::array::from_fn(|i| rate(counted.assigned[i], then.assigned[i])),
        };
        self.goodput.push((counted.at.as_secs_f64(), self.now.goodput_cps / CAPACITY_CPS));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(occupied_s: f64, assigned: u64) -> Value {
        json!({
            "pools": [{ "backends": [{ "assigned": assigned }, { "assigned": 2 * assigned }] }],
            "shards": [{
                "occupied_s": occupied_s,
                "queued": 7,
                "new_calls": { "admitted": 2 * assigned },
                "sojourn_ms": { "new": { "p99": 12.5 } },
            }],
        })
    }

    fn counted(at_ms: u64, calls: u64, status: &Value) -> Counted {
        let callers = CallersReading {
            offered: 4 * calls,
            in_time: calls,
            rejected: 3 * calls,
            repeated: 2 * calls,
            ..CallersReading::default()
        };
        Counted::read(Duration::from_millis(at_ms), Some(callers), status)
    }

    #[test]
    fn rates_are_those_of_the_last_second() {
        let mut seen = Seen::default();
        for step in 0..=20u64 {
            // The load is 100 calls/s in the first two seconds, and 200 calls/s after that.
            let calls = step * 25 + step.saturating_sub(8) * 25;
            let status = status(step as f64 * 0.2, step * 10);
            seen.add(counted(step * 250, calls, &status), &status);
        }
        let now = seen.now;
        assert_eq!((now.offered_cps, now.goodput_cps), (800.0, 200.0));
        assert_eq!((now.rejected_cps, now.repeated_cps), (600.0, 400.0));
        assert_eq!(now.backends_cps, [40.0, 80.0]);
        assert!((now.occupancy - 0.8).abs() < 1e-9);
        // The server admits 80 of 800 calls a second.
        assert_eq!((now.waiting, now.sojourn_p99_ms, now.admitted), (7, 12.5, 0.1));
        assert_eq!(seen.goodput.len(), 21);
        assert_eq!(seen.goodput[20], (5.0, 200.0 / CAPACITY_CPS));
    }

    #[test]
    fn late_samples_do_not_change_the_rates() {
        let mut seen = Seen::default();
        for step in 0..=20u64 {
            let status = status(step as f64 * 0.252, step * 252);
            seen.add(counted(step * 252, step * 252, &status), &status);
        }
        let now = seen.now;
        assert!((now.goodput_cps - 1000.0).abs() < 1e-6, "{now:?}");
        assert!((now.occupancy - 1.0).abs() < 1e-6, "{now:?}");
        assert!(seen.counted.len() <= 6, "old counts are removed");
    }

    #[test]
    fn new_callers_begin_to_count_at_zero() {
        let mut seen = Seen::default();
        let status = status(0.0, 0);
        seen.add(counted(0, 1000, &status), &status);
        seen.add(counted(250, 5, &status), &status);
        assert_eq!(seen.now.goodput_cps, 0.0);
        seen.add(counted(500, 30, &status), &status);
        assert_eq!(seen.now.goodput_cps, 25.0);
    }
}
