//! The limit on calls that nobody has answered yet.

use std::time::Duration;

use crate::Answers;

/// Occupied time in seconds after which the weight of a measurement has fallen to 1/e.
const FORGET_S: f64 = 1.0;
/// Occupied time in seconds that must be measured before there is a limit.
const EVIDENCE_S: f64 = 0.2;
/// The time in seconds until an answer above which back ends count as slow.
const SLOW_S: f64 = 0.02;
/// The lowest limit, in calls.
const LIMIT_MIN: f64 = 4.0;

/// A measurement of the rate at which calls are served, and of the time until they are answered.
/// All sums fade with a time constant of [`FORGET_S`] of occupied time.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The last counts that were recorded.
    counted: Answers,
    /// The occupied time since the start at the last record.
    occupied: Duration,
    occupied_s: f64,
    sent: f64,
    ended: f64,
    waited_s: f64,
    /// Occupied time of all records.
    evidence_s: f64,
}

impl InFlight {
    /// Starts to measure at these counts, which are totals since the start of the process.
    pub(super) fn begin(&mut self, answers: Answers, occupied: Duration) {
        *self = Self { counted: answers, occupied, ..Self::default() };
    }

    /// Records the counts and the occupied time, which are totals since the start of the process.
    pub(super) fn record(&mut self, answers: Answers, occupied: Duration) {
        let counted = std::mem::replace(&mut self.counted, answers);
        let occupied = occupied.saturating_sub(std::mem::replace(&mut self.occupied, occupied));
        let occupied_s = occupied.as_secs_f64();
        let kept = (-occupied_s / FORGET_S).exp();
        let fade = |sum: &mut f64, more: f64| *sum = *sum * kept + more;
        fade(&mut self.occupied_s, occupied_s);
        fade(&mut self.sent, (answers.sent - counted.sent) as f64);
        fade(&mut self.ended, (answers.ended - counted.ended) as f64);
        fade(&mut self.waited_s, answers.waited.saturating_sub(counted.waited).as_secs_f64());
        self.evidence_s += occupied_s;
    }

    /// Returns whether back ends take long to answer. `own` is the part of the time until the answer
    /// for which the answer waited here.
    pub(super) fn is_slow(&self, own: Duration) -> bool {
        self.answered_s() - own.as_secs_f64() > SLOW_S
    }

    /// Returns the mean time in seconds until a call is answered.
    fn answered_s(&self) -> f64 {
        self.waited_s / self.ended.max(1.0)
    }

    /// Returns the number of calls that may wait for an answer: as many as are served until the
    /// first of them is answered, and for `spare_s` seconds more. There is no limit until enough
    /// occupied time has been measured.
    pub(super) fn limit(&self, spare_s: f64) -> f64 {
        if self.evidence_s < EVIDENCE_S {
            return f64::INFINITY;
        }
        let rate = self.sent / self.occupied_s.max(f64::MIN_POSITIVE);
        (rate * (self.answered_s() + spare_s)).max(LIMIT_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records `seconds` of 200 calls/s that are answered after 300 ms, in steps of 10 ms, of which
    /// the part `occupancy` is occupied.
    fn recorded(seconds: u64, occupancy: f64) -> InFlight {
        let mut in_flight = InFlight::default();
        for tick in 1..=100 * seconds {
            let waited = Duration::from_millis(300 * 2 * tick);
            let answers = Answers { sent: 2 * tick, ended: 2 * tick, waited, waiting: 60 };
            in_flight.record(answers, Duration::from_millis(10 * tick).mul_f64(occupancy));
        }
        in_flight
    }

    #[test]
    fn the_limit_is_what_is_served_until_the_answers_come() {
        let limit = recorded(3, 1.0).limit(0.05);
        assert!((limit - 200.0 * 0.35).abs() < 1.0, "{limit}");
    }

    #[test]
    fn half_of_the_processor_would_serve_half_of_the_calls() {
        let limit = recorded(6, 0.5).limit(0.05);
        assert!((limit - 400.0 * 0.35).abs() < 2.0, "{limit}");
    }

    #[test]
    fn answers_are_slow_if_they_did_not_wait_here() {
        let in_flight = recorded(3, 1.0);
        let is_slow = |own_ms| in_flight.is_slow(Duration::from_millis(own_ms));
        assert_eq!([0, 270, 290].map(is_slow), [true, true, false]);
        assert!(!InFlight::default().is_slow(Duration::ZERO));
    }

    #[test]
    fn there_is_no_limit_without_measurements_and_never_a_limit_below_four() {
        let mut in_flight = InFlight::default();
        assert_eq!(in_flight.limit(0.05), f64::INFINITY);
        in_flight.record(Answers::default(), Duration::from_secs(1));
        assert_eq!(in_flight.limit(0.05), LIMIT_MIN);
    }

    #[test]
    fn counts_from_before_the_begin_are_left_out() {
        let mut in_flight = InFlight::default();
        let earlier = Answers { sent: 1_000_000, ended: 1_000_000, ..Answers::default() };
        in_flight.begin(earlier, Duration::from_secs(10));
        in_flight.record(Answers { sent: 1_000_100, ..earlier }, Duration::from_secs(11));
        assert!((in_flight.limit(1.0) - 100.0).abs() < 1.0);
    }
}
