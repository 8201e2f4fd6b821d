//! Early verification: decides when messages that claim to belong to a call or transaction are
//! verified on arrival.
//!
//! Anybody can send a BYE, an ACK, a CANCEL or a response. A message is verified if it contains a
//! value that only this proxy issues, or that only the participants of the call know. Such a value
//! is a keyed value in a branch of this proxy, a route token, a Call-ID in the call table, or a
//! branch in the transaction table. Serving a message verifies it anyway, so in normal operation
//! verification costs nothing extra. But while there are many unverified messages, each message is
//! verified on arrival. Messages that fail wait behind all others, so that they do not delay
//! verified messages.

use std::time::Duration;

use tidegate_world::{Load, Timestamp};

/// Number of unverified messages per second that starts early verification. The same number of
/// waiting messages in one queue of responses or in-dialog requests starts it too.
const MUCH: u32 = 64;

/// Service time of unverified messages in one second that starts early verification: one hundredth
/// of the processor.
const LONG: Duration = Duration::from_millis(10);

/// Length of the period in which unverified messages are counted. Early verification lasts for this
/// time after the count was last too high.
const PERIOD: Duration = Duration::from_secs(1);

/// A counter of unverified messages that starts early verification if there are too many.
#[derive(Debug, Default)]
pub(crate) struct EarlyVerification {
    /// Start of the current counting period.
    since: Timestamp,
    /// Number of messages in this period that could not be verified.
    strays: u32,
    /// Service time of the messages in this period that could not be verified.
    spent: Duration,
    /// Time at which early verification ends.
    until: Timestamp,
}

impl EarlyVerification {
    /// Records a message that claims to belong to a call or transaction, but does not.
    pub(crate) fn on_stray(&mut self, now: Timestamp) {
        self.count(now, 1, Duration::ZERO);
    }

    /// Records the service time of a message that claims to belong to a call or transaction, but
    /// does not.
    pub(crate) fn on_served(&mut self, now: Timestamp, cost: Duration) {
        self.count(now, 0, cost);
    }

    fn count(&mut self, now: Timestamp, strays: u32, cost: Duration) {
        if now.since(self.since) >= PERIOD {
            (self.since, self.strays, self.spent) = (now, 0, Duration::ZERO);
        }
        self.strays = self.strays.saturating_add(strays);
        self.spent += cost;
        if self.strays >= MUCH || self.spent >= LONG {
            self.until = now + PERIOD;
        }
    }

    /// Returns whether messages are verified on arrival. `waiting` is the number of messages in the
    /// queue that the arriving message would join. A long queue suffices, because its messages may
    /// all be unverified.
    #[inline]
    pub(crate) fn is_on(&self, now: Timestamp, waiting: usize) -> bool {
        waiting >= MUCH as usize || now < self.until
    }
}

/// Time spent on unverified messages, which does not count as load.
///
/// If a law counted this time as load, it would reject calls because of strangers' messages. During
/// a flood, unverified messages are served only when nothing else waits. So for all other messages
/// this time counts as idle.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    spent: Duration,
    /// Estimated service time of one unverified message. Only recent messages with a measured
    /// service time count.
    each: Option<Duration>,
}

impl Spare {
    /// Adds an unverified message that was served, with its service time if known. Returns the time
    /// that is assumed for the message.
    pub(crate) fn add(&mut self, cost: Option<Duration>) -> Duration {
        if let Some(cost) = cost {
            self.each = Some(self.each.map_or(cost, |each| (each * 7 + cost) / 8));
        }
        let cost = cost.or(self.each).unwrap_or_default();
        self.spent += cost;
        cost
    }

    /// Returns a copy of `load` without the time spent on unverified messages.
    pub(crate) fn deduct(&self, load: &Load) -> Load {
        let less = |time: Duration| time.saturating_sub(self.spent);
        Load { busy: less(load.busy), cpu: less(load.cpu), ..*load }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms;

    #[test]
    fn many_strays_start_the_verification_of_all_messages_until_they_cease() {
        let mut early_verification = EarlyVerification::default();
        for i in 0..10 * u64::from(MUCH) {
            // 60 a second.
            early_verification.on_stray(at_ms(10_000 + i * 1_000 / 60));
        }
        assert!(
            !early_verification.is_on(at_ms(20_700), 0)
                && early_verification.is_on(at_ms(20_700), 64)
        );
        for i in 0..u64::from(MUCH) {
            assert!(!early_verification.is_on(at_ms(30_000 + i), 63));
            early_verification.on_stray(at_ms(30_000 + i));
        }
        assert!(
            early_verification.is_on(at_ms(30_064), 0)
                && early_verification.is_on(at_ms(31_062), 0)
        );
        assert!(!early_verification.is_on(at_ms(31_063), 0));
    }

    #[test]
    fn a_few_slow_strays_count_as_many() {
        let mut early_verification = EarlyVerification::default();
        for i in 0..4 {
            assert!(!early_verification.is_on(at_ms(10_000 + i), 0));
            early_verification.on_served(at_ms(10_000 + i), Duration::from_micros(2_500));
        }
        assert!(
            early_verification.is_on(at_ms(10_004), 0)
                && !early_verification.is_on(at_ms(11_004), 0)
        );
    }

    #[test]
    fn time_spent_on_stray_messages_is_not_load() {
        let mut spare = Spare::default();
        assert_eq!(spare.add(None), Duration::ZERO, "nothing was measured yet");
        // The service time of the last message was not measured, so it is estimated.
        for cost in [Some(Duration::from_millis(10)), Some(Duration::from_millis(10)), None] {
            assert_eq!(spare.add(cost), Duration::from_millis(10));
        }
        let [busy, cpu] = [100, 20].map(Duration::from_millis);
        let left = spare.deduct(&Load { busy, cpu, filtered: 7, ..Load::default() });
        assert_eq!((left.busy, left.cpu), (Duration::from_millis(70), Duration::ZERO));
        assert_eq!(left.filtered, 7);
    }
}
