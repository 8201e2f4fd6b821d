//! Estimates two values: the part of the overflow of receive buffers that more drops would prevent,
//! and the number of messages that arrive for each message that is read.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::LOAD_WEIGHT;
use super::period::Period;

/// If at least this part of an overflow remains after more work is dropped, dropping does not
/// prevent the overflow.
const REMAINS: f64 = 0.8;

/// Number of periods whose mean overflow is compared with the overflow before a change. The overflow
/// in a single period depends on when the process could run.
const COMPARED: usize = 3;

/// If dropping did not prevent an overflow, the ladder ignores overflows of up to this many times
/// its size. The factor is above 1, because the counts of short periods differ by chance.
const MARGIN: f64 = 2.0;

/// Time constant, in seconds, with which the ladder forgets an overflow that dropping did not
/// prevent. It then tries again to drop more.
const FORGET_S: f64 = 10.0;

/// The overflow of receive buffers, and the part of it that dropping work prevents.
#[derive(Clone, Debug, Default)]
pub(super) struct Overflow {
    /// Overflowed messages a second in each of the last periods, the current one at the end.
    recent: [f64; COMPARED],
    /// Averages of the messages a second that overflowed a buffer, and of those that were read from
    /// a buffer. Older periods count less.
    lost: f64,
    read: f64,
    /// Average over the periods of the number of messages that overflowed for each one that was
    /// read.
    lost_per_read: f64,
    /// A test of whether dropping prevents the overflow, or `None` while no test runs.
    attempt: Option<Attempt>,
    /// The overflow that dropping does not prevent, in messages a second.
    inevitable: f64,
}

/// A test of whether an overflow becomes smaller after the dropped share has risen.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    since: Timestamp,
    /// The overflow a second before the dropped share rose: the highest of the mean overflow, the
    /// overflow of the last period, and the overflow of each period until the rise has its full
    /// effect. A lower value would make the overflow of a flood that has just begun look
    /// inevitable.
    before: f64,
    /// Number of periods since the risen share has had its full effect.
    settled: usize,
}

impl Overflow {
    /// Records the overflow in a period that ends now. `settles` is the time after which a change
    /// of the dropped share has its full effect. Returns the part of the overflow that dropping may
    /// prevent, in messages a second.
    pub(super) fn record(&mut self, now: Timestamp, period: &Period, settles: Duration) -> f64 {
        let Period { overflow, datagrams, seconds, .. } = *period;
        self.recent.rotate_left(1);
        self.recent[COMPARED - 1] = overflow;
        self.lost += LOAD_WEIGHT * (overflow - self.lost);
        self.read += LOAD_WEIGHT * (datagrams - self.read);
        if overflow + datagrams > 0.0 {
            let lost_per_read = overflow / datagrams.max(1.0);
            self.lost_per_read += LOAD_WEIGHT * (lost_per_read - self.lost_per_read);
        }
        self.inevitable *= (-seconds / FORGET_S).exp();
        if let Some(attempt) = &mut self.attempt {
            if now.since(attempt.since) > settles {
                attempt.settled += 1;
            } else {
                // Messages that arrived before the rise still overflow.
                attempt.before = attempt.before.max(overflow);
            }
        }
        let mean = self.mean();
        let attempt = self.attempt.take_if(|attempt| attempt.settled == COMPARED);
        if attempt.is_some_and(|attempt| mean >= REMAINS * attempt.before) {
            self.inevitable = self.inevitable.max(MARGIN * mean);
        }
        (overflow - self.inevitable).max(0.0)
    }

    /// Returns the number of messages that reached a buffer for each one that found room: the
    /// smaller one of two estimates.
    ///
    /// One estimate averages lost/read of each period. It is too high after a stall, because the
    /// server sees the overflow before it reads its buffers. The other divides the average of lost
    /// by the average of read. It falls too slowly after a flood, because few messages are read.
    pub(super) fn arrived_per_read(&self) -> f64 {
        1.0 + self.lost_per_read.min(self.lost / self.read.max(1.0))
    }

    /// Records that more work is dropped because of the overflow in the current period.
    pub(super) fn on_raised(&mut self, now: Timestamp) {
        let before = self.mean().max(self.recent[COMPARED - 1]);
        self.attempt.get_or_insert(Attempt { since: now, before, settled: 0 });
    }

    /// Returns the mean overflow of the last periods, in messages a second.
    fn mean(&self) -> f64 {
        self.recent.iter().sum::<f64>() / COMPARED as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::period::Tally;
    use super::*;

    /// Returns the part of the overflow that dropping may prevent in the last period, in messages a
    /// second. `overflows_cps` is the overflow in each period of 100 ms. The dropped share rises
    /// after the first `before` periods.
    fn preventable(overflows_cps: &[f64], before: usize) -> f64 {
        let mut overflow = Overflow::default();
        let tally = Tally::default();
        let mut last = 0.0;
        for (&overflow_cps, number) in overflows_cps.iter().zip(1..) {
            let now = Timestamp::ZERO + Duration::from_millis(100 * number as u64);
            let passed = Duration::from_millis(100);
            let period =
                Period { overflow: overflow_cps, ..Period::between(&tally, &tally, passed) };
            last = overflow.record(now, &period, Duration::from_millis(200));
            if number == before {
                overflow.on_raised(now);
            }
        }
        last
    }

    #[test]
    fn an_overflow_that_remains_is_ignored() {
        // In the two periods after the rise, messages are read that arrived before it.
        let steady = [1000.0; 10];
        assert_eq!(preventable(&steady[..9], 5), 1000.0);
        assert_eq!(preventable(&steady, 5), 0.0);
        let falls = [[1000.0; 5].as_slice(), &[700.0; 5]].concat();
        assert_eq!(preventable(&falls, 5), 700.0);
    }

    /// The overflow of a flood comes in bursts, between which the process does not run.
    #[test]
    fn one_period_does_not_show_whether_dropping_helps() {
        // The mean falls, but the overflow is low just before the rise, and high after it.
        let before = [800.0, 1000.0, 1200.0, 1000.0, 200.0];
        let after = [900.0, 900.0, 1200.0, 0.0, 500.0];
        assert_eq!(preventable(&[before.as_slice(), &after].concat(), 5), 500.0);
        // A flood begins.
        for (rest, expected) in [(900.0, 900.0), (5500.0, 5500.0)] {
            let begins = [[0.0, 0.0, 1000.0, 9000.0, 9000.0], [rest; 5]].concat();
            assert_eq!(preventable(&begins[..8], 3), expected);
        }
    }

    /// Records periods of 100 ms with these rates of overflow and of messages that were read.
    fn recorded(cps: impl IntoIterator<Item = (f64, f64)>) -> Overflow {
        let mut overflow = Overflow::default();
        let tally = Tally::default();
        for ((overflow_cps, read_cps), number) in cps.into_iter().zip(1..) {
            let now = Timestamp::ZERO + number * Duration::from_millis(100);
            let none = Period::between(&tally, &tally, Duration::from_millis(100));
            let period = Period { overflow: overflow_cps, datagrams: read_cps, ..none };
            overflow.record(now, &period, Duration::from_millis(200));
        }
        overflow
    }

    #[test]
    fn arrivals_for_each_message_that_is_read_follow_a_step_within_some_periods() {
        for (overflow_cps, expected) in [(3_000.0, 4.0), (500.0, 1.5)] {
            let steady = recorded([(overflow_cps, 1_000.0); 40]).arrived_per_read();
            assert!((steady - expected).abs() < 1e-3, "{steady}");
        }
        // Each period has the weight 0.3: 1 - 0.7² = 0.51 of three for each one.
        let begins = [vec![(0.0, 1_000.0); 40], vec![(3_000.0, 1_000.0); 2]].concat();
        let after_two = recorded(begins).arrived_per_read();
        assert!((after_two - 2.53).abs() < 1e-2, "{after_two}");
    }

    #[test]
    fn the_smaller_estimate_of_arrivals_counts() {
        // The server stood still for a period. Then it reads what its buffers held.
        let stall = recorded([(9_000.0, 0.0), (0.0, 9_000.0)]).arrived_per_read();
        assert!((stall - 1.7).abs() < 1e-3, "{stall}");
        // A flood has ended two periods ago, and few messages are read.
        let ended = [vec![(3_000.0, 1_000.0); 40], vec![(0.0, 10.0); 2]].concat();
        let after = recorded(ended).arrived_per_read();
        assert!((after - 2.47).abs() < 1e-2, "{after}");
    }

    #[test]
    fn an_overflow_that_dropping_does_not_prevent_is_ignored_for_some_ten_seconds() {
        let mut overflow = recorded([(1_000.0, 1_000.0); 5]);
        let tally = Tally::default();
        let at = |number: u32| Timestamp::ZERO + number * Duration::from_millis(100);
        overflow.on_raised(at(5));
        let mut preventable = |number: u32| {
            let none = Period::between(&tally, &tally, Duration::from_millis(100));
            let period = Period { overflow: 1_000.0, datagrams: 1_000.0, ..none };
            overflow.record(at(number), &period, Duration::from_millis(200))
        };
        let seen: Vec<f64> = (6..130).map(&mut preventable).collect();
        assert_eq!(seen[5], 0.0);
        // The ignored overflow decays from twice the overflow to the overflow in 10 s · ln 2.
        let again = seen.iter().skip(6).position(|&cps| cps > 0.0);
        assert!(again.is_some_and(|periods| (60..80).contains(&periods)), "{again:?}");
    }
}
