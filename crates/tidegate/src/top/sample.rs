//! Readings of the admin interface, and the rates between two readings.

use std::collections::VecDeque;

use serde_json::Value;

/// Maximum number of intervals between readings that the chart shows.
const KEPT: usize = 240;

/// One reading of the admin interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// The time of the reading, in seconds since the start of Tidegate.
    pub now_s: f64,
    pub version: String,
    pub phase: String,
    pub law: String,
    pub listeners: Vec<String>,
    /// Counts of new calls since the start.
    pub calls: Calls,
    /// Datagrams that were dropped since the start, because the receive buffer of a socket was
    /// full.
    pub socket_drops: u64,
    /// Calls in progress.
    pub in_progress: u64,
    /// Calls that have ended and are kept because retransmissions may follow.
    pub ended: u64,
    pub transactions: u64,
    /// Mean occupancy of the shards, 0 to 1.
    pub occupancy: f64,
    /// 99th percentile of the time that new calls wait, in the shard with the longest wait.
    pub wait_p99_ms: f64,
    pub backends: Vec<Backend>,
    /// Rejected requests since the start, by reason.
    pub reasons: Vec<(String, u64)>,
}

/// Counts of new calls, by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// All INVITEs that could begin a call, including retransmissions and those that the kernel
    /// dropped.
    pub arrived: u64,
    /// Retransmissions among the arrived INVITEs.
    pub repeated: u64,
    /// Arrived INVITEs that the kernel dropped before Tidegate read them.
    pub in_kernel: u64,
    /// The arrivals that are neither retransmissions nor dropped by the kernel: calls, each counted
    /// once.
    pub offered: u64,
    pub admitted: u64,
    pub rejected: u64,
}

/// The state and the counts of a back end in one reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Backend {
    pub pool: String,
    pub name: String,
    pub state: String,
    /// True if the back end can get new calls.
    pub is_up: bool,
    pub calls: u64,
    /// Calls and single requests sent to the back end since the start.
    pub assigned: u64,
    /// Limit of new requests per second that is in force, or `None` if there is none.
    pub limit_cps: Option<f64>,
    pub invite_ms: f64,
    /// 503 responses that the back end itself has sent since the start.
    pub rejections: u64,
    pub failures: u64,
}

impl Sample {
    /// Creates a sample from the contents of the pages `/status`, `/overload` and `/rejections`.
    pub fn new(status: &Value, overload: &Value, rejections: &Value) -> Self {
        let shards = || items(&status["shards"]);
        let sum = |name: &str| shards().map(|shard| count(&shard[name])).sum::<u64>();
        let calls = |name: &str| shards().map(|shard| count(&shard["new_calls"][name])).sum();
        let measured = || items(&overload["shards"]);
        let occupancies = measured().map(|shard| number(&shard["occupancy"]));
        let waits = measured().map(|shard| number(&shard["sojourn_ms"]["new"]["p99"]));
        Self {
            now_s: number(&status["now_s"]),
            version: text(&status["version"]),
            phase: text(&status["phase"]),
            law: text(&status["law"]),
            listeners: items(&status["listeners"]).map(|l| text(&l["address"])).collect(),
            calls: Calls {
                arrived: calls("arrived"),
                repeated: calls("repeated"),
                in_kernel: calls("dropped_in_kernel"),
                offered: calls("offered"),
                admitted: calls("admitted"),
                rejected: calls("rejected"),
            },
            socket_drops: sum("socket_drops") + sum("emulated_drops"),
            in_progress: sum("calls").saturating_sub(sum("calls_over")),
            ended: sum("calls_over"),
            transactions: sum("server_transactions"),
            occupancy: occupancies.sum::<f64>() / measured().count().max(1) as f64,
            wait_p99_ms: waits.fold(0.0, f64::max),
            backends: items(&status["pools"]).flat_map(backends).collect(),
            reasons: items(&rejections["reasons"])
                .map(|reason| (text(&reason["name"]), count(&reason["rejected"])))
                .collect(),
        }
    }
}

fn backends(pool: &Value) -> impl Iterator<Item = Backend> {
    items(&pool["backends"]).map(|backend| Backend {
        pool: text(&pool["name"]),
        name: text(&backend["name"]),
        state: text(&backend["state"]),
        is_up: backend["up"] == true,
        calls: count(&backend["calls"]),
        assigned: count(&backend["assigned"]),
        limit_cps: backend["cps_in_force"].as_f64(),
        invite_ms: number(&backend["invite_ms"]),
        rejections: count(&backend["rejections"]),
        failures: count(&backend["failures"]),
    })
}

/// Rates between two readings, in 1/s.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// The end of the interval between the two readings, in seconds since the start of Tidegate.
    pub now_s: f64,
    pub arrived: f64,
    pub repeated: f64,
    pub in_kernel: f64,
    pub offered: f64,
    pub admitted: f64,
    pub rejected: f64,
    pub socket_drops: f64,
    /// New calls and single requests of each back end, in the order of [`Sample::backends`].
    pub backends: Vec<f64>,
    /// Rejections by reason. Reasons without rejections are omitted.
    pub reasons: Vec<(String, f64)>,
}

impl Rates {
    /// Returns the rates from `before` to `after`. All rates are zero if Tidegate was restarted
    /// between the readings.
    fn between(before: &Sample, after: &Sample) -> Self {
        let seconds = after.now_s - before.now_s;
        if seconds <= 0.0 {
            return Self { now_s: after.now_s, ..Self::default() };
        }
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let (b, a) = (before.calls, after.calls);
        let backend = |backend: &Backend| {
            let same =
                |other: &&Backend| (&other.pool, &other.name) == (&backend.pool, &backend.name);
            let earlier = before.backends.iter().find(same);
            earlier.map_or(0.0, |earlier| rate(earlier.assigned, backend.assigned))
        };
        let reason = |(name, count): &(String, u64)| {
            let earlier = before.reasons.iter().find(|(other, _)| other == name);
            (name.clone(), rate(earlier.map_or(0, |(_, count)| *count), *count))
        };
        Self {
            now_s: after.now_s,
            arrived: rate(b.arrived, a.arrived),
            repeated: rate(b.repeated, a.repeated),
            in_kernel: rate(b.in_kernel, a.in_kernel),
            offered: rate(b.offered, a.offered),
            admitted: rate(b.admitted, a.admitted),
            rejected: rate(b.rejected, a.rejected),
            socket_drops: rate(before.socket_drops, after.socket_drops),
            backends: after.backends.iter().map(backend).collect(),
            reasons: after.reasons.iter().map(reason).filter(|(_, rate)| *rate > 0.0).collect(),
        }
    }
}

/// The readings so far.
#[derive(Debug, Default)]
pub(super) struct History {
    latest: Option<Sample>,
    rates: VecDeque<Rates>,
    error: Option<String>,
}

impl History {
    /// Records a reading or a failure to read.
    pub fn record(&mut self, reading: Result<Sample, String>) {
        let sample = match reading {
            Ok(sample) => sample,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        self.error = None;
        if let Some(before) = &self.latest {
            if sample.now_s < before.now_s {
                self.rates.clear();
            }
            self.rates.push_back(Rates::between(before, &sample));
            if self.rates.len() > KEPT {
                self.rates.pop_front();
            }
        }
        self.latest = Some(sample);
    }

    /// Returns why the last reading failed, if it did.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns the last reading that did not fail.
    pub fn latest(&self) -> Option<&Sample> {
        self.latest.as_ref()
    }

    /// Returns the rates of the last interval.
    pub fn rates(&self) -> Rates {
        self.rates.back().cloned().unwrap_or_default()
    }

    /// Returns the value of each interval, with the time of the interval's end. The time is in
    /// seconds before the last reading, as a negative number or 0.
    pub fn points(&self, value: fn(&Rates) -> f64) -> Vec<(f64, f64)> {
        let now_s = self.rates.back().map_or(0.0, |rates| rates.now_s);
        self.rates.iter().map(|rates| (rates.now_s - now_s, value(rates))).collect()
    }

    /// Returns the time in seconds from the first end of an interval to the last.
    pub fn span_s(&self) -> f64 {
        let times = self.rates.front().zip(self.rates.back());
        times.map_or(0.0, |(first, last)| last.now_s - first.now_s)
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(now_s: f64, [offered, admitted, rejected]: [u64; 3]) -> Sample {
        let status = json!({
            "now_s": now_s, "law": "pi", "phase": "admitting", "version": "1",
            "shards": [
                { "new_calls": { "arrived": 7 * offered, "repeated": offered, "offered": offered,
                      "dropped_in_kernel": 5 * offered, "admitted": admitted, "rejected": rejected },
                  "socket_drops": 2, "emulated_drops": 3, "calls": 7, "calls_over": 4,
                  "server_transactions": 9 },
                { "new_calls": { "arrived": 0, "offered": 0 }, "calls": 1, "calls_over": 0 },
            ],
            "pools": [{ "name": "app", "backends": [{ "name": "one", "assigned": admitted }] }],
        });
        let overload = json!({ "shards": [
            { "occupancy": 0.4, "sojourn_ms": { "new": { "p99": 3.0 } } },
            { "occupancy": 0.2, "sojourn_ms": { "new": { "p99": 8.0 } } },
        ] });
        let reasons = json!({ "reasons": [{ "name": "law", "rejected": rejected }] });
        Sample::new(&status, &overload, &reasons)
    }

    #[test]
    fn shards_are_added_up() {
        let sample = sample(1.0, [10, 8, 2]);
        assert_eq!((sample.in_progress, sample.ended, sample.transactions), (4, 4, 9));
        assert_eq!(sample.socket_drops, 5);
        assert!((sample.occupancy - 0.3).abs() < 1e-9);
        assert_eq!(sample.wait_p99_ms, 8.0);
    }

    #[test]
    fn rates_are_differences_over_time() {
        let mut history = History::default();
        history.record(Ok(sample(1.0, [10, 8, 2])));
        assert_eq!(history.rates(), Rates::default());
        history.record(Ok(sample(3.0, [30, 18, 12])));
        let rates = history.rates();
        assert_eq!((rates.offered, rates.admitted, rates.rejected), (10.0, 5.0, 5.0));
        assert_eq!((rates.arrived, rates.repeated, rates.in_kernel), (70.0, 10.0, 50.0));
        assert_eq!(rates.backends, [5.0]);
        assert_eq!(rates.reasons, [("law".to_owned(), 5.0)]);
    }

    #[test]
    fn a_restart_begins_a_new_history() {
        let mut history = History::default();
        for (now_s, offered) in [(8.0, 100), (9.0, 200), (1.0, 0), (2.0, 50)] {
            history.record(Ok(sample(now_s, [offered, offered, 0])));
        }
        let points = history.points(|rates| rates.offered);
        assert_eq!(points, [(-1.0, 0.0), (0.0, 50.0)]);
    }

    #[test]
    fn a_failed_reading_keeps_the_last_one() {
        let mut history = History::default();
        history.record(Ok(sample(1.0, [1, 1, 0])));
        history.record(Err("gone".to_owned()));
        assert_eq!(history.error(), Some("gone"));
        assert_eq!(history.latest().map(|sample| sample.calls.offered), Some(1));
        history.record(Ok(sample(2.0, [1, 1, 0])));
        assert_eq!(history.error(), None);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut history = History::default();
        for second in 0..1000 {
            history.record(Ok(sample(f64::from(second), [0; 3])));
        }
        assert_eq!(history.points(|rates| rates.offered).len(), KEPT);
    }
}
