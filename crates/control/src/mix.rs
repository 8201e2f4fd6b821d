//! Counts of arriving messages by class.

use std::time::Duration;

use tidegate_world::{Timestamp, Work};

const WINDOW: Duration = Duration::from_secs(1);

/// Counts of the messages that arrive, by class, in windows of a second. Shares are computed from
/// the last complete window, or from the current window if no message arrived in the last one.
#[derive(Clone, Debug)]
pub struct Mix {
    open: Counts,
    last: Counts,
    until: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    by_class: [u64; Work::CLASSES_MAX],
    new: u64,
    all: u64,
}

impl Mix {
    /// Returns the share of the arriving messages that are of `class`, 0 to 1, or 0 when nothing
    /// has arrived.
    pub fn share(&self, class: u8) -> f64 {
        let counts = self.counts();
        let count = counts.by_class.get(usize::from(class)).copied().unwrap_or(0);
        counts.share(count)
    }

    /// Returns the share of the arriving messages that ask for new work, 0 to 1, or 0 when nothing
    /// has arrived.
    pub(crate) fn share_of_new(&self) -> f64 {
        let counts = self.counts();
        counts.share(counts.new)
    }

    pub(crate) fn record(&mut self, now: Timestamp, class: u8, is_new: bool) {
        if now >= self.until {
            // Old arrivals do not describe the present.
            let stale = now.since(self.until) >= WINDOW;
            self.last = if stale { Counts::default() } else { self.open };
            self.open = Counts::default();
            self.until = now + WINDOW;
        }
        if let Some(count) = self.open.by_class.get_mut(usize::from(class)) {
            *count += 1;
            self.open.all += 1;
            self.open.new += u64::from(is_new);
        }
    }

    fn counts(&self) -> &Counts {
        if self.last.all > 0 { &self.last } else { &self.open }
    }
}

impl Counts {
    fn share(&self, count: u64) -> f64 {
        if self.all == 0 { 0.0 } else { count as f64 / self.all as f64 }
    }
}

impl Default for Mix {
    fn default() -> Self {
        Self { open: Counts::default(), last: Counts::default(), until: Timestamp::ZERO + WINDOW }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(mix: &mut Mix, ms: u64, class: u8, count: u32) {
        for _ in 0..count {
            mix.record(Timestamp::from_nanos(ms * 1_000_000), class, class == 4);
        }
    }

    #[test]
    fn shares_are_those_of_the_last_second() {
        let mut mix = Mix::default();
        assert_eq!((mix.share(3), mix.share_of_new()), (0.0, 0.0));
        arrive(&mut mix, 0, 3, 1);
        arrive(&mut mix, 500, 4, 3);
        assert_eq!((mix.share(3), mix.share(4), mix.share(5)), (0.25, 0.75, 0.0), "the first");
        assert_eq!(mix.share_of_new(), 0.75);
        arrive(&mut mix, 1000, 5, 6);
        assert_eq!((mix.share(4), mix.share(5)), (0.75, 0.0), "until it is over");
        arrive(&mut mix, 2000, 3, 1);
        assert_eq!((mix.share(4), mix.share(5)), (0.0, 1.0));
        arrive(&mut mix, 9000, 5, 1);
        assert_eq!((mix.share(3), mix.share(5)), (0.0, 1.0), "after a rest");
        arrive(&mut mix, 9000, 200, 1);
        assert_eq!(mix.share(200), 0.0, "no class");
    }
}
