//! Limits the rate of requests within one call. Without this limit, a peer could flood the proxy
//! within one verified call, because the limits on new requests do not apply there.
//!
//! The limit is [`BURST`] requests at once and then ten per second, which is more than any phone
//! sends. Digits sent by INFO have the highest rate: at most ten per second and a few dozen in a
//! row. Re-INVITE, UPDATE and REFER are seconds apart. As a transaction lasts at most 64·T1 = 32 s,
//! one call has at most 60 + 320 open transactions. A retransmission counts as a sixth of a
//! request: a client sends at most eleven copies of a request, and most of them seconds apart (RFC
//! 3261 §17.1.2.2).

use tidegate_world::Timestamp;

/// Maximum number of requests within a call that may pass at the same time.
const BURST: u32 = 60;

/// Interval between two requests at the long-term rate of ten per second, in units of 2^24 ns.
const INTERVAL: u32 = 6;

/// Maximum burst, as the time that its requests need at the long-term rate, in units of 2^24 ns.
const AHEAD_MAX: u32 = BURST * INTERVAL;

/// Number of token buckets that are shared by the calls that are not in the call table. One source
/// can keep only some hundred of them empty.
const PLACES: usize = 1 << 16;

/// The part of the limit that a message uses up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Price {
    Request,
    Retransmission,
}

impl Price {
    const fn units(self) -> u32 {
        match self {
            Self::Request => INTERVAL,
            Self::Retransmission => 1,
        }
    }
}

/// Token bucket in four bytes, by the generic cell rate algorithm (ITU-T I.371). The value is a
/// time in units of 2^24 ns. Each counted request moves it [`INTERVAL`] units into the future, and
/// each counted retransmission one unit. A past time counts as now. The value wraps after two
/// years.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate(u32);

impl Rate {
    /// Returns whether one more message may pass now. If it may, counts it.
    pub(super) fn take(&mut self, now: Timestamp, price: Price) -> bool {
        let now = units(now);
        let ahead = self.ahead(now) + price.units();
        if ahead > AHEAD_MAX {
            return false;
        }
        self.0 = now.wrapping_add(ahead);
        true
    }

    /// Returns whether the limit is used up, so that not even a retransmission may pass.
    pub(super) fn is_used_up(self, now: Timestamp) -> bool {
        self.ahead(units(now)) + Price::Retransmission.units() > AHEAD_MAX
    }

    /// Returns the time that the counted messages need at the long-term rate from `now` on.
    fn ahead(self, now: u32) -> u32 {
        // Because of the wrapping, a past time looks further ahead than the maximum.
        Some(self.0.wrapping_sub(now)).filter(|&ahead| ahead <= AHEAD_MAX).unwrap_or(0)
    }
}

/// Returns the time `now` in units of 2^24 ns.
fn units(now: Timestamp) -> u32 {
    (now.as_nanos() >> 24) as u32
}

/// Token buckets of calls that are not in the call table, such as calls from before a restart.
/// Several calls share a bucket. Peers cannot predict which calls share one, because the numbers of
/// the calls are keyed hashes.
#[derive(Debug)]
pub(super) struct Rates(Box<[Rate]>);

impl Rates {
    pub(super) fn new() -> Self {
        Self(vec![Rate::default(); PLACES].into())
    }

    /// Returns whether one more request of the call with this number may pass now. If so, counts
    /// the request.
    pub(super) fn take(&mut self, now: Timestamp, number: u64, price: Price) -> bool {
        self.0[number as usize % PLACES].take(now, price)
    }

    /// Returns whether the limit of the call with this number is used up.
    pub(super) fn is_used_up(&self, now: Timestamp, number: u64) -> bool {
        self.0[number as usize % PLACES].is_used_up(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn taken(rate: &mut Rate, now: Timestamp) -> usize {
        (0..1000).take_while(|_| rate.take(now, Price::Request)).count()
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

    #[test]
    fn six_retransmissions_count_as_a_request() {
        let (mut rate, now) = (Rate::default(), Timestamp::ZERO);
        let copies = (0..1000).take_while(|_| rate.take(now, Price::Retransmission)).count();
        assert_eq!(copies, 360);
        assert!(rate.is_used_up(now) && !rate.is_used_up(now + Duration::from_millis(50)));
    }
}
