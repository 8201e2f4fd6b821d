//! Estimates how much of the overflow of receive buffers would be prevented if more work were
//! dropped.

use std::time::Duration;

use tidegate_world::Timestamp;

/// If at least this part of an overflow remains after more work is dropped, dropping does not prevent
/// it.
const REMAINS: f64 = 0.8;

/// The factor by which an overflow must exceed an earlier one that dropping did not prevent,
/// because the counts of short periods differ by chance.
const MARGIN: f64 = 2.0;

/// Time in seconds after which the remembered overflow has fallen to 1/e, so that there can be
/// another attempt.
const FORGET_S: f64 = 10.0;

/// The part of the overflow that dropping work prevents.
#[derive(Clone, Debug, Default)]
pub(super) struct Overflow {
    /// The overflow a second in the current period.
    current: f64,
    /// The time at which the share was last raised because of an overflow, and the overflow a second
    /// at that time.
    attempt: Option<(Timestamp, f64)>,
    /// Overflow a second that dropping does not prevent.
    inevitable: f64,
}

impl Overflow {
    /// Records the overflow a second in a period of `seconds` that ends now. `settles` is the time
    /// after which a change of the share has its full effect. Returns the part of the overflow that
    /// dropping may prevent.
    pub(super) fn record(
        &mut self,
        now: Timestamp,
        overflow: f64,
        seconds: f64,
        settles: Duration,
    ) -> f64 {
        self.current = overflow;
        self.inevitable *= (-seconds / FORGET_S).exp();
        if let Some((_, before)) = self.attempt.take_if(|(since, _)| now.since(*since) > settles)
            && overflow >= REMAINS * before
        {
            self.inevitable = self.inevitable.max(MARGIN * overflow);
        }
        (overflow - self.inevitable).max(0.0)
    }

    /// Records that more work is dropped because of the overflow in the current period.
    pub(super) fn on_raised(&mut self, now: Timestamp) {
        self.attempt.get_or_insert((now, self.current));
    }
}
