//! How often requests may pass within one call, so that one verified call is no way around the
//! limits on new work.
//!
//! [`BURST`] at once and ten a second after that is more than any phone sends: the most that people
//! make a phone send within a call are digits by INFO, no more than ten a second and a few dozen in
//! a row; re-INVITE, UPDATE and REFER come seconds apart. Repetitions do not count. Over 64·T1 it
//! bounds what one call can have open to 60 + 320 transactions.

use tidegate_world::Timestamp;

/// Requests at once.
const BURST: u32 = 60;

/// Between two requests in the long run, in units of 2^24 ns: ten a second.
const INTERVAL: u32 = 6;

/// Largest lead of a call over its rate.
const AHEAD_MAX: u32 = BURST * INTERVAL;

/// Calls of which only the route token is known are counted in so many places.
const PLACES: usize = 4096;

/// A token bucket in four bytes: the time up to which its requests are accounted for, in units of
/// 2^24 ns, which come round again after two years (the generic cell rate algorithm, ITU-T I.371).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate(u32);

impl Rate {
    /// Returns whether one more request may pass now; if so, it is counted.
    pub(super) fn take(&mut self, now: Timestamp) -> bool {
        let now = (now.as_nanos() >> 24) as u32;
        // What lies further ahead was long ago.
        let ahead = Some(self.0.wrapping_sub(now)).filter(|&ahead| ahead <= AHEAD_MAX);
        let ahead = ahead.unwrap_or(0) + INTERVAL;
        if ahead > AHEAD_MAX {
            return false;
        }
        self.0 = now.wrapping_add(ahead);
        true
    }
}

/// The buckets of calls that the table does not hold, such as those of before a restart. Several of
/// them share a bucket: which ones only who has the key of the fingerprint can tell.
#[derive(Debug)]
pub(super) struct Rates(Box<[Rate]>);

impl Rates {
    pub(super) fn new() -> Self {
        Self(vec![Rate::default(); PLACES].into())
    }

    /// Returns whether one more request of the call with this fingerprint may pass now.
    pub(super) fn take(&mut self, now: Timestamp, fingerprint: u128) -> bool {
        self.0[fingerprint as usize % PLACES].take(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn taken(rate: &mut Rate, now: Timestamp) -> usize {
        (0..1000).take_while(|_| rate.take(now)).count()
    }

    #[test]
    fn a_burst_and_then_ten_a_second_whatever_the_time() {
        for start_s in [0, 1, 1000, 100 * 86_400, 1500 * 86_400] {
            let start = Timestamp::ZERO + Duration::from_secs(start_s);
            let mut rate = Rate::default();
            assert_eq!(taken(&mut rate, start), 60, "{start_s}");
            let passed: usize =
                (1..=20).map(|ms| taken(&mut rate, start + Duration::from_millis(500 * ms))).sum();
            assert!((98..=101).contains(&passed), "{passed} in ten seconds");
            assert_eq!(taken(&mut rate, start + Duration::from_secs(60)), 60);
        }
    }
}
