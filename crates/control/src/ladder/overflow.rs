//! Estimates how much of the overflow of receive buffers would be prevented if more work were
//! dropped, and how many messages arrive for each one that is read.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::LOAD_WEIGHT;
use super::period::Period;

/// The part of an overflow that shows that dropping does not prevent it, if it remains after more
/// work is dropped.
const REMAINS: f64 = 0.8;

/// The factor by which an overflow must exceed an earlier one that dropping did not prevent,
/// because the counts of short periods differ by chance.
const MARGIN: f64 = 2.0;

/// Time in seconds after which the remembered overflow has fallen to 1/e, so that there can be
/// another attempt.
const FORGET_S: f64 = 10.0;

/// The overflow, and the part of it that dropping work prevents.
#[derive(Clone, Debug, Default)]
pub(super) struct Overflow {
    /// The overflow a second in the current period.
    current: f64,
    /// Averages of the messages a second that overflowed a buffer, and of those that were read from
    /// a buffer. Older periods count less.
    lost: f64,
    read: f64,
    /// Average of the quotient of these two in each period.
    lost_per_read: f64,
    /// The time at which the share was last raised because of an overflow, and the overflow a second
    /// at that time.
    attempt: Option<(Timestamp, f64)>,
    /// Overflow a second that dropping does not prevent.
    inevitable: f64,
}

impl Overflow {
    /// Takes a period into account that ends now. `settles` is the time after which a change of the
    /// share has its full effect. Returns the part of the overflow that dropping may prevent, in
    /// messages a second.
    pub(super) fn record(&mut self, now: Timestamp, period: &Period, settles: Duration) -> f64 {
        let Period { overflow, datagrams, seconds, .. } = *period;
        self.current = overflow;
        self.lost += LOAD_WEIGHT * (overflow - self.lost);
        self.read += LOAD_WEIGHT * (datagrams - self.read);
        if overflow + datagrams > 0.0 {
            let lost_per_read = overflow / datagrams.max(1.0);
            self.lost_per_read += LOAD_WEIGHT * (lost_per_read - self.lost_per_read);
        }
        self.inevitable *= (-seconds / FORGET_S).exp();
        if let Some((_, before)) = self.attempt.take_if(|(since, _)| now.since(*since) > settles)
            && overflow >= REMAINS * before
        {
            self.inevitable = self.inevitable.max(MARGIN * overflow);
        }
        (overflow - self.inevitable).max(0.0)
    }

    /// Returns the number of messages that reached a buffer for each one that found room. This is
    /// the smaller one of two estimates.
    ///
    /// A server that stood still sees the overflow before it reads its buffers. Then the average of
    /// the quotients is too high, and the quotient of the averages is not. After a flood few
    /// messages are read, so the quotient of the averages falls too slowly.
    pub(super) fn arrived_per_read(&self) -> f64 {
        1.0 + self.lost_per_read.min(self.lost / self.read.max(1.0))
    }

    /// Records that more work is dropped because of the overflow in the current period.
    pub(super) fn on_raised(&mut self, now: Timestamp) {
        self.attempt.get_or_insert((now, self.current));
    }
}
