//! Limits the rate of requests within one call. Without this limit, a peer could flood the proxy
//! within one verified call, because the limits on new requests do not apply there.
//!
//! The limit is [`BURST`] requests at once and then ten per second, which is more than any phone
//! sends. Digits sent by INFO have the highest rate: at most ten per second and a few dozen in a
//! row. Re-INVITE, UPDATE and REFER are seconds apart. Retransmissions do not count. As a
//! transaction lasts at most 64·T1 = 32 s, one call has at most 60 + 320 open transactions.

use tidegate_world::Timestamp;

/// Maximum number of requests within a call that may pass at the same time.
const BURST: u32 = 60;

/// Interval between two requests at the long-term rate of ten per second, in units of 2^24 ns.
const INTERVAL: u32 = 6;

/// Maximum burst, as the time that its requests need at the long-term rate, in units of 2^24 ns.
const AHEAD_MAX: u32 = BURST * INTERVAL;

/// Number of token buckets that are shared by the calls that are not in the call table.
const PLACES: usize = 4096;

/// Token bucket in four bytes, by the generic cell rate algorithm (ITU-T I.371). The value is a
/// time in units of 2^24 ns, to which each counted request adds [`INTERVAL`]. It wraps after two
/// years.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate(u32);

impl Rate {
    /// Returns whether one more request may pass now. If it may, counts it.
    pub(super) fn take(&mut self, now: Timestamp) -> bool {
        let now = (now.as_nanos() >> 24) as u32;
        // Because of the wrapping, a past time looks further ahead than the maximum.
        let ahead = Some(self.0.wrapping_sub(now)).filter(|&ahead| ahead <= AHEAD_MAX);
        let ahead = ahead.unwrap_or(0) + INTERVAL;
        if ahead > AHEAD_MAX {
            return false;
        }
        self.0 = now.wrapping_add(ahead);
        true
    }
}

/// Token buckets of calls that are not in the call table, such as calls from before a restart.
/// Several calls share a bucket. Peers cannot predict which calls share one, because the
/// fingerprint of the Call-ID is keyed.
#[derive(Debug)]
pub(super) struct Rates(Box<[Rate]>);

impl Rates {
    pub(super) fn new() -> Self {
        Self(vec![Rate::default(); PLACES].into())
    }

    /// Returns whether one more request of the call with this fingerprint may pass now. If so,
    /// counts the request.
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
