//! Delays timers slightly, so that timers that are due shortly after one another fire together.
//!
//! Waking a thread for each timer costs more than firing it. In steady state each call has half a
//! dozen timers. So without slack, a shard with 2,000 calls per second wakes up to 12,000
//! additional times per second. No timer of RFC 3261 needs to be exact. Each is a minimum, such as
//! Timer D "with a value of at least 32 seconds" (§17.1.1.2), or a multiple of T1, which "is an
//! estimate of the RTT" (§17.1.1.1).
//!
//! A timer is delayed only if others have fired shortly before it. So a shard with few calls fires
//! each timer on time.

use std::time::Duration;

use tidegate_world::Timestamp;

/// The slack of the timers of a shard: the time by which a timer may be delayed so that several
/// fire together.
pub(crate) struct Slack {
    most: Duration,
    /// Time at which timers last fired.
    fired: Option<Timestamp>,
}

impl Slack {
    /// Creates a slack that delays a timer by at most `most`.
    pub(crate) fn new(most: Duration) -> Self {
        Self { most, fired: None }
    }

    /// Records that all timers due at `now` have fired.
    pub(crate) fn on_fired(&mut self, now: Timestamp) {
        self.fired = Some(now);
    }

    /// Returns the time at which to fire the next timers. The first of them is due at `due`.
    pub(crate) fn defer(&self, due: Timestamp) -> Timestamp {
        match self.fired {
            Some(fired) if fired < due => due.max(fired + self.most),
            // Fire on time: no timer has fired yet, or the timer was set after the others had fired
            // and is due at `fired` or earlier.
            _ => due,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_waits_only_if_others_have_fired_within_the_slack_before_it() {
        let at = |us| Timestamp::ZERO + Duration::from_micros(us);
        let mut slack = Slack::new(Duration::from_millis(1));
        assert_eq!(slack.defer(at(7)), at(7));
        slack.on_fired(at(10_000));
        let deferred = [10_001, 10_999, 11_000, 11_001].map(|due| slack.defer(at(due)));
        assert_eq!(deferred, [at(11_000), at(11_000), at(11_000), at(11_001)]);
        assert_eq!(slack.defer(at(10_000)), at(10_000), "it was set since");
        assert_eq!(Slack::new(Duration::ZERO).defer(at(3)), at(3));
    }
}
