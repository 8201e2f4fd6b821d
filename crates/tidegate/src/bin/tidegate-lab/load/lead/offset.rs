//! The difference between the clock of the leader and the clock of a follower.

use std::time::Duration;

use tidegate_world::Timestamp;

/// Assumed maximum difference between the speeds of two clocks: 100 ppm. The quartz of a computer
/// is usually better than 50 ppm.
const DRIFT: f64 = 100e-6;

/// One round trip: the leader asks for the time, and the follower answers.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// Departure of the question, on the clock of the leader.
    pub sent: Timestamp,
    /// Arrival of the answer, on the clock of the leader.
    pub received: Timestamp,
    /// The time in the answer, on the clock of the follower.
    pub remote: Timestamp,
}

/// An estimate of the difference between a follower's clock and the leader's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// The leader's time at the middle of the round trip.
    local: Timestamp,
    /// The follower's time at the same instant, by this estimate.
    remote: Timestamp,
    /// Half the round trip, which is the maximum error: the follower may have read its clock at any
    /// time during the round trip.
    half: Duration,
}

impl ClockOffset {
    /// Estimates the clock from the shortest round trip, because this estimate has the smallest
    /// error. Returns `None` if there is no round trip.
    pub fn estimate(round_trips: &[RoundTrip]) -> Option<Self> {
        let length = |trip: &RoundTrip| trip.received.since(trip.sent);
        let shortest = round_trips.iter().min_by_key(|&trip| length(trip))?;
        let half = length(shortest) / 2;
        Some(Self { local: shortest.sent + half, remote: shortest.remote, half })
    }

    /// Converts a time on the leader's clock to the follower's clock. The time must be after the
    /// round trip.
    pub fn remote(&self, at: Timestamp) -> Timestamp {
        self.remote + at.since(self.local)
    }

    /// Returns the maximum error of [`remote`](Self::remote).
    pub fn error(&self, at: Timestamp) -> Duration {
        self.half + at.since(self.local).mul_f64(DRIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Timestamp {
        Timestamp::from_nanos(us * 1000)
    }

    /// Returns a round trip that begins at `sent_us`. The question takes `there_us`, and the answer
    /// takes `back_us`. The clock of the follower is ahead by `ahead_us`.
    fn trip(sent_us: u64, there_us: u64, back_us: u64, ahead_us: u64) -> RoundTrip {
        RoundTrip {
            sent: us(sent_us),
            received: us(sent_us + there_us + back_us),
            remote: us(sent_us + there_us + ahead_us),
        }
    }

    #[test]
    fn the_shortest_round_trip_counts() {
        let trips = [trip(0, 900, 10, 5000), trip(2000, 30, 50, 5000), trip(3000, 10, 400, 5000)];
        let clock = ClockOffset::estimate(&trips).unwrap();
        assert_eq!(clock, ClockOffset::estimate(&trips[1..2]).unwrap());
        // The estimate is wrong by half the difference of the delays.
        assert_eq!(clock.remote(us(10_000)), us(14_990));
        assert_eq!(ClockOffset::estimate(&[]), None);
    }

    #[test]
    fn the_error_is_never_larger_than_stated() {
        for (there, back) in [(0, 500), (500, 0), (250, 250), (1, 3)] {
            for ahead in [0, 7, 1_000_000_000] {
                let clock = ClockOffset::estimate(&[trip(100, there, back, ahead)]).unwrap();
                let start = us(1_000_000);
                let truth = us(1_000_000 + ahead);
                let error = clock.remote(start).since(truth).max(truth.since(clock.remote(start)));
                assert!(error <= clock.error(start), "{there} {back} {ahead}: {error:?}");
            }
        }
    }

    #[test]
    fn the_error_grows_while_the_clocks_run_apart() {
        let clock = ClockOffset::estimate(&[trip(0, 50, 50, 0)]).unwrap();
        let error = |s: u64| clock.error(us(50) + Duration::from_secs(s));
        assert_eq!(error(0), Duration::from_micros(50));
        assert_eq!(error(10), Duration::from_micros(1050));
    }
}
