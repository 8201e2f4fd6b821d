//! The marks whose packets are dropped now, and the marks whose packets were dropped recently. The
//! mark of a packet is a hash of its source address and its first bytes. All copies of a request
//! have the same mark.

use std::time::Duration;

use tidegate_world::Timestamp;

/// T1 of RFC 3261 §17.1.1.1, an estimate of the round-trip time.
const T1: Duration = Duration::from_millis(500);

/// Number of the marks whose packets pass at a level, divided by this number at the next lower
/// level.
const STEP: f64 = 0.9;

/// The highest level of dropping. At this level, packets with a thousandth of the marks pass, which
/// is enough to measure the load.
pub(super) const LEVELS: usize = 65;

/// The longest time between two copies of an INVITE: 32·T1. RFC 3261 §17.1.1.2: a client
/// transaction over UDP retransmits an INVITE after T1, 2·T1, and so on, and fails after 64·T1.
pub(super) const LATE_MAX: Duration = Duration::from_secs(16);

/// The longest time between two copies of any other request: T2.
///
/// RFC 3261 §17.1.2.2: "This process continues so that retransmissions occur with an exponentially
/// increasing interval that caps at T2. The default value of T2 is 4s".
pub(super) const LATE_MAX_NON_INVITE: Duration = Duration::from_secs(4);

/// The state of a band. A band contains the marks (hashes of packets) whose packets pass at one
/// level of dropping, but not at the next higher level.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Band {
    /// Packets with these marks pass, and none was dropped recently.
    Fresh,
    /// Packets with these marks are dropped since the time `since`.
    Dropped { since: Timestamp },
    /// Packets with these marks pass. Until the time `until`, they may be copies of packets that
    /// were dropped before.
    Late { until: Timestamp },
}

/// The marks of the packets of one method that are dropped now, and of those that were dropped
/// recently. At level `n`, the packets of a share `0.9^n` of the marks pass. The packets with the
/// lowest marks are dropped.
#[derive(Clone, Debug)]
pub(super) struct Dropped {
    /// The longest time between two copies of a request of this method.
    late_max: Duration,
    level: usize,
    bands: [Band; LEVELS],
    /// The fraction of the marks that are fresh: their packets are not dropped now and were not
    /// dropped recently.
    fresh: f64,
}

impl Dropped {
    pub(super) fn new(late_max: Duration) -> Self {
        Self { late_max, level: 0, bands: [Band::Fresh; LEVELS], fresh: 1.0 }
    }

    pub(super) fn level(&self) -> usize {
        self.level
    }

    /// Returns the fraction of all marks (hashes of packets) whose packets pass now.
    pub(super) fn passing(&self) -> f64 {
        passing_at(self.level)
    }

    /// Returns the fraction of the marks that are fresh: packets with these marks are not dropped
    /// now, and were not dropped recently.
    pub(super) fn fresh(&self) -> f64 {
        self.fresh
    }

    /// Returns whether packets with this mark are neither dropped nor late.
    pub(super) fn is_fresh(&self, mark: u32) -> bool {
        // Band n begins at mark 1 - 0.9^n.
        let part = f64::from(mark) / (f64::from(u32::MAX) + 1.0);
        let band = ((1.0 - part).ln() / STEP.ln()) as usize;
        self.bands.get(band).is_none_or(|band| *band == Band::Fresh)
    }

    /// Changes the level. Marks whose packets pass again are late for as long as their packets were
    /// dropped, plus T1, but at most for the longest time between two copies of a request. A caller
    /// whose packets were dropped sends its next copy within this time.
    pub(super) fn set_level(&mut self, now: Timestamp, level: usize) {
        let level = level.min(LEVELS);
        for band in &mut self.bands[..level] {
            *band = match *band {
                Band::Fresh => Band::Dropped { since: now },
                // When these marks pass again, they are late for at least the time that was left.
                Band::Late { until } => Band::Dropped { since: now - until.since(now) },
                dropped @ Band::Dropped { .. } => dropped,
            };
        }
        for band in &mut self.bands[level..] {
            if let Band::Dropped { since } = *band {
                let until = now + (now.since(since) + T1).min(self.late_max);
                *band = Band::Late { until };
            }
        }
        self.level = level;
        self.expire(now);
    }

    /// Ends the [late](Band::Late) state of marks whose callers must have given up or been
    /// answered.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let mut other = 0.0;
        for (number, band) in self.bands.iter_mut().enumerate() {
            match *band {
                Band::Late { until } if until <= now => *band = Band::Fresh,
                Band::Late { .. } | Band::Dropped { .. } => {
                    other += passing_at(number) - passing_at(number + 1);
                }
                Band::Fresh => {}
            }
        }
        self.fresh = 1.0 - other;
    }
}

/// Returns the lowest level at which the fraction of all marks whose packets pass is at most
/// `passing`, 0 to 1.
pub(super) fn level_for(passing: f64) -> usize {
    let level = (passing.clamp(0.0, 1.0).ln() / STEP.ln()).ceil();
    (level as usize).min(LEVELS)
}

fn passing_at(level: usize) -> f64 {
    STEP.powi(level as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    fn mark(part: f64) -> u32 {
        (part * f64::from(u32::MAX)) as u32
    }

    #[test]
    fn a_level_passes_nine_tenths_of_the_one_before() {
        assert_eq!([1.0, 0.95, 0.9, 0.5, 0.0].map(level_for), [0, 1, 1, 7, LEVELS]);
        let mut dropped = Dropped::new(LATE_MAX);
        dropped.set_level(at(0), 7);
        assert!((dropped.passing() - 0.478).abs() < 0.001);
        assert!((dropped.fresh() - dropped.passing()).abs() < 1e-9);
        assert!(dropped.is_fresh(mark(0.53)) && !dropped.is_fresh(mark(0.51)));
        dropped.set_level(at(0), usize::MAX);
        assert!(dropped.is_fresh(u32::MAX) && !dropped.is_fresh(0), "some always pass");
    }

    #[test]
    fn a_mark_is_late_for_as_long_as_it_was_dropped_and_t1() {
        let mut dropped = Dropped::new(LATE_MAX);
        dropped.set_level(at(0), 10);
        dropped.set_level(at(1000), 5);
        let fresh_at = |dropped: &mut Dropped, ms| {
            dropped.expire(at(ms));
            (dropped.is_fresh(mark(0.5)), dropped.is_fresh(mark(0.3)))
        };
        assert_eq!(fresh_at(&mut dropped, 1000), (false, false));
        assert_eq!(fresh_at(&mut dropped, 2499), (false, false));
        assert!((dropped.fresh() - STEP.powi(10)).abs() < 1e-9);
        assert_eq!(fresh_at(&mut dropped, 2500), (true, false));
        assert!((dropped.fresh() - STEP.powi(5)).abs() < 1e-9);
    }

    #[test]
    fn after_a_long_time_it_is_late_for_the_longest_pause_between_two_copies() {
        let mut dropped = Dropped::new(LATE_MAX);
        dropped.set_level(at(0), 10);
        dropped.set_level(at(100_000), 0);
        dropped.expire(at(115_999));
        assert!(!dropped.is_fresh(mark(0.5)));
        dropped.expire(at(116_000));
        assert!(dropped.is_fresh(mark(0.5)));
        assert_eq!(dropped.fresh(), 1.0);
    }

    // RFC 3261 §17.1.2.2: "retransmissions occur with an exponentially increasing interval that caps at
    // T2".
    #[test]
    fn a_request_other_than_an_invite_is_late_for_at_most_t2() {
        let mut dropped = Dropped::new(LATE_MAX_NON_INVITE);
        let fresh_at = |dropped: &mut Dropped, ms| {
            dropped.expire(at(ms));
            dropped.is_fresh(mark(0.5))
        };
        assert!(fresh_at(&mut dropped, 0));
        dropped.set_level(at(0), 10);
        assert!(!fresh_at(&mut dropped, 10_000));
        dropped.set_level(at(10_000), 0);
        assert!(!fresh_at(&mut dropped, 13_999) && fresh_at(&mut dropped, 14_000));
        // After a short time of drops, the next copy of each request comes soon.
        dropped.set_level(at(30_000), 10);
        dropped.set_level(at(31_000), 0);
        assert!(!fresh_at(&mut dropped, 32_499) && fresh_at(&mut dropped, 32_500));
    }

    #[test]
    fn a_mark_that_is_dropped_again_while_it_is_late_stays_late_for_longer() {
        let mut dropped = Dropped::new(LATE_MAX);
        dropped.set_level(at(0), 1);
        dropped.set_level(at(4000), 0);
        dropped.set_level(at(5000), 1);
        dropped.set_level(at(5000), 0);
        dropped.expire(at(8900));
        assert!(!dropped.is_fresh(0));
        dropped.expire(at(9000));
        assert!(dropped.is_fresh(0));
    }
}
