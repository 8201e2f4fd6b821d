//! The weight of a source whose messages do not all have the same weight.

/// The weight of a source: the largest weight of its messages in the last two periods in which it
/// sent messages. Messages of one source can differ in weight, because a weight may depend on the
/// port of the address. Older messages are ignored, because an attacker may have sent them from a
/// forged address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentWeight {
    /// The largest weight in each of the last two periods in which the source sent, newest first.
    largest: [u32; 2],
    /// Number of the last period in which the source sent.
    period: u64,
}

impl Default for RecentWeight {
    fn default() -> Self {
        Self { largest: [1; 2], period: 0 }
    }
}

impl RecentWeight {
    /// Records a message with this weight (at least 1) in the period with this number.
    pub(crate) fn record(&mut self, period: u64, weight: u32) {
        let [last, before] = self.largest;
        self.largest =
            if period == self.period { [last.max(weight), before] } else { [weight, last] };
        self.period = period;
    }

    /// Returns the weight of the source.
    pub(crate) fn get(&self) -> u32 {
        self.largest[0].max(self.largest[1])
    }
}
