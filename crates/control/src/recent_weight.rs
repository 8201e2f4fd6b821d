//! The weight of a source whose messages have several weights.

/// The largest weight of the messages that a source has recently sent. The weight may depend on the
/// port of the address, and a stranger may forge the address for a while. So the largest weight in
/// the last two periods in which the source sent counts, and older ones do not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentWeight {
    /// The largest weight in the last period in which the source sent, and in the one before it.
    largest: [u32; 2],
    /// The last period in which the source sent.
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

    /// Returns the weight that counts now.
    pub(crate) fn get(&self) -> u32 {
        self.largest[0].max(self.largest[1])
    }
}
