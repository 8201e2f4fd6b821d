//! The durations of the timers of transactions.

use std::time::Duration;

/// The time after which a proxy cancels an INVITE that has no final response. Each provisional
/// response except a 100 restarts this time.
///
/// RFC 3261 §16.6 item 11: Timer C "MUST be larger than 3 minutes".
///
/// RFC 3261 §16.7: "The timer MAY be reset to a different value, but this value MUST be greater
/// than 3 minutes."
pub const TIMER_C: Duration = Duration::from_secs(190);

/// The base values of the timers of a transaction (RFC 3261 §17.1.1.1 and table 4), and whether the
/// transport is reliable. Neither `t1` nor `t2` may be zero, because then retransmissions would
/// have no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// An estimate of the round-trip time. Default 500 ms.
    pub t1: Duration,
    /// The longest interval between retransmissions of a request other than INVITE, and of a final
    /// response to INVITE. Default 4 s.
    pub t2: Duration,
    /// The longest time for which a message stays in the network. Default 5 s.
    pub t4: Duration,
    /// True if the transport is reliable, so that there are no retransmissions.
    pub reliable: bool,
}

impl Timing {
    /// Returns 64·T1. This is the duration of timers B, F, H, L and M, and of timer J over an
    /// unreliable transport.
    pub fn patience(&self) -> Duration {
        self.t1 * 64
    }

    /// Returns the time from the start of a client transaction until its Timer E is reset to T2
    /// (RFC 4320 §4.1): with the default values 3.5 s.
    pub fn until_t2(&self) -> Duration {
        let mut interval = self.t1;
        let mut elapsed = interval;
        while interval * 2 < self.t2 && !interval.is_zero() {
            interval *= 2;
            elapsed += interval;
        }
        elapsed
    }

    /// Returns the time for which a completed transaction waits for messages that are still in the
    /// network: `unreliable`, or zero over a reliable transport.
    pub(crate) fn linger(&self, unreliable: Duration) -> Duration {
        if self.reliable { Duration::ZERO } else { unreliable }
    }
}

impl Default for Timing {
    /// Returns the values of RFC 3261, table 4, over an unreliable transport.
    fn default() -> Self {
        Self {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
            reliable: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3261 §17.1.2.2: "For the default values of T1 and T2, this results in intervals of
    /// 500 ms, 1 s, 2 s, 4 s, 4 s, 4 s, etc."
    #[test]
    fn timer_e_reaches_t2_after_the_intervals_that_are_shorter() {
        let of = |t1, t2| {
            let (t1, t2) = (Duration::from_millis(t1), Duration::from_millis(t2));
            Timing { t1, t2, ..Timing::default() }.until_t2().as_millis()
        };
        assert_eq!(of(500, 4000), 3500);
        assert_eq!(of(500, 3000), 3500, "it is capped");
        assert_eq!(of(500, 500), 500);
        assert_eq!(of(100, 800), 700);
    }
}
