//! Sojourn: the time a message waited from its arrival to the start of its service.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use tidegate_world::Timestamp;

const WINDOW: Duration = Duration::from_secs(1);

/// Maximum sojourn that is measured, in µs. A longer sojourn counts as this maximum. No caller
/// waits for that long.
const LONGEST_US: u64 = 60_000_000;

/// Statistics of the sojourns in a complete window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SojournWindow {
    /// Number of messages in the window.
    pub count: u64,
    /// The minimum sojourn, or zero if there were no messages.
    pub min: Duration,
    /// The mean sojourn.
    pub mean: Duration,
    /// The 99th percentile of the sojourns, accurate to 1 %.
    pub p99: Duration,
}

/// The sojourns of new work and of all other messages, in windows of a second.
pub struct Sojourn {
    open: [Histogram<u32>; 2],
    last: [SojournWindow; 2],
    until: Timestamp,
}

impl Sojourn {
    /// Returns the sojourns of new work in the last complete window.
    pub fn of_new(&self) -> &SojournWindow {
        &self.last[0]
    }

    /// Returns the sojourns of all other messages in the last complete window.
    pub fn of_ongoing(&self) -> &SojournWindow {
        &self.last[1]
    }

    pub(crate) fn record(&mut self, now: Timestamp, is_new: bool, sojourn: Duration) {
        self.close_window(now);
        let us = u64::try_from(sojourn.as_micros()).map_or(LONGEST_US, |us| us.min(LONGEST_US));
        self.open[usize::from(!is_new)].record(us).expect("it grows up to the longest");
    }

    /// Closes the current window if its time is over. If its time has been over for a second or
    /// more, the last complete window is one without messages.
    pub(crate) fn close_window(&mut self, now: Timestamp) {
        if now < self.until {
            return;
        }
        let stale = now.since(self.until) >= WINDOW;
        for (open, last) in self.open.iter_mut().zip(&mut self.last) {
            *last = if stale { SojournWindow::default() } else { window(open) };
            if !open.is_empty() {
                open.reset();
            }
        }
        self.until = now + WINDOW;
    }
}

fn window(histogram: &Histogram<u32>) -> SojournWindow {
    if histogram.is_empty() {
        return SojournWindow::default();
    }
    let us = Duration::from_micros;
    SojournWindow {
        count: histogram.len(),
        min: us(histogram.min()),
        mean: Duration::from_nanos((histogram.mean() * 1e3) as u64),
        p99: us(histogram.value_at_quantile(0.99)),
    }
}

impl Default for Sojourn {
    fn default() -> Self {
        // The histogram grows on demand. While nothing waits for long, clearing a window touches
        // one kilobyte, not ten.
        let histogram = || Histogram::new(2).expect("two digits are possible");
        Self {
            open: [histogram(), histogram()],
            last: Default::default(),
            until: Timestamp::ZERO + WINDOW,
        }
    }
}

impl fmt::Debug for Sojourn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sojourn").field("last", &self.last).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_window_that_is_over_says_what_waited_in_it() {
        let mut sojourn = Sojourn::default();
        for i in 1..=100 {
            sojourn.record(at(i), true, MS * i as u32);
            sojourn.record(at(i), false, MS * 7);
        }
        assert_eq!(*sojourn.of_new(), SojournWindow::default(), "it is not over");
        sojourn.record(at(1000), true, MS * 900);
        let new = *sojourn.of_new();
        assert_eq!(new.count, 100);
        assert!(new.min.abs_diff(MS) <= MS / 100, "{new:?}");
        assert!(new.mean.abs_diff(MS * 101 / 2) <= MS, "{new:?}");
        assert!(new.p99.abs_diff(MS * 99) <= MS, "{new:?}");
        assert_eq!(sojourn.of_ongoing().count, 100);
        assert!(sojourn.of_ongoing().p99.abs_diff(MS * 7) <= MS / 10);
    }

    #[test]
    fn each_window_lasts_a_second() {
        let mut sojourn = Sojourn::default();
        for (ms, last) in [(0, 0), (999, 0), (1000, 2), (1001, 2), (1999, 2), (2000, 3)] {
            sojourn.record(at(ms), true, MS);
            assert_eq!(sojourn.of_new().count, last, "at {ms} ms");
        }
        assert!(format!("{sojourn:?}").contains("count: 3"));
    }

    #[test]
    fn old_waits_do_not_count_now() {
        let mut sojourn = Sojourn::default();
        sojourn.record(at(10), true, MS);
        sojourn.close_window(at(5000));
        assert_eq!(sojourn.of_new().count, 0);
    }

    #[test]
    fn a_sojourn_beyond_all_measure_is_the_longest() {
        let mut sojourn = Sojourn::default();
        sojourn.record(at(0), true, Duration::MAX);
        sojourn.close_window(at(1000));
        assert!(sojourn.of_new().p99 >= Duration::from_secs(59));
    }
}
