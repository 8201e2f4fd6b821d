//! The latency of calls, for laws that derive a window from it.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::{Bucket, Signals};

/// Maximum latency that is measured, in µs. A longer latency counts as this maximum.
const LONGEST_US: u64 = 60_000_000;

/// Returns the latency of the call that was just served, from its arrival to the end of its
/// service, or `None` after any other message, including single requests and calls with priority.
pub(super) fn of_call(signals: &Signals) -> Option<Duration> {
    let service = &signals.service;
    service.is_session.then(|| service.sojourn + service.cost)
}

/// Returns the number of calls in the server when a call has been served: this call and the calls
/// behind it.
pub(super) fn in_use(signals: &Signals) -> u64 {
    signals.in_window(Bucket::Session) + 1
}

/// The latencies of the calls served since the last [`take`](Self::take).
#[derive(Debug)]
pub(super) struct Latencies {
    us: Histogram<u32>,
}

impl Latencies {
    pub(super) fn new() -> Self {
        Self { us: Histogram::new(2).expect("two digits are possible") }
    }

    pub(super) fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).map_or(LONGEST_US, |us| us.min(LONGEST_US));
        self.us.record(us).expect("it grows up to the longest");
    }

    pub(super) fn count(&self) -> u64 {
        self.us.len()
    }

    /// Removes all latencies. Returns their value at this quantile in seconds, accurate to 1 % and
    /// at least 1 µs, or `None` if there were no latencies.
    pub(super) fn take(&mut self, quantile: f64) -> Option<f64> {
        let us = (!self.us.is_empty()).then(|| self.us.value_at_quantile(quantile));
        self.us.reset();
        us.map(|us| us.max(1) as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_its_quantile_and_is_empty_after_it() {
        let mut latencies = Latencies::new();
        for ms in 1..=100 {
            latencies.record(Duration::from_millis(ms));
        }
        assert_eq!(latencies.count(), 100);
        let p90 = latencies.take(0.9).unwrap();
        assert!((p90 - 0.09).abs() < 0.001, "{p90}");
        assert_eq!(latencies.take(0.9), None);
        latencies.record(Duration::ZERO);
        assert_eq!(latencies.take(0.5), Some(1e-6));
    }
}
