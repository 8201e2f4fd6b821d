//! The feedback values that were sent to a peer, and the range of the rates that the peer may
//! consider allowed because of them.

use tidegate_world::Timestamp;

use super::Algorithm;

/// Factor by which the highest allowed rate of a peer (`most`) decays in a tick. A rate that is
/// measured with a time constant of half a second decays as fast.
const MOST_KEPT: f64 = 0.82;

/// The feedback values that were sent to a peer under one algorithm. Under `rate`, the rates count
/// requests a second. Under `loss`, they count calls a second.
#[derive(Debug)]
pub(super) struct Told {
    /// The last feedback value and its algorithm, or `None` if none was sent.
    last: Option<(Algorithm, u32)>,
    /// Time at which the last feedback value was sent.
    at: Timestamp,
    /// The lowest rate at which the peer was allowed to send since the last tick, in requests a
    /// second.
    least: f64,
    /// The highest rate at which the peer was allowed to send, in requests a second. It falls at
    /// every tick.
    most: f64,
}

impl Default for Told {
    fn default() -> Self {
        Self { last: None, at: Timestamp::ZERO, least: f64::INFINITY, most: 0.0 }
    }
}

impl Told {
    /// Records a feedback value that is sent to the peer. Returns whether it differs from the
    /// previous value.
    pub(super) fn tell(&mut self, now: Timestamp, algorithm: Algorithm, value: u32) -> bool {
        self.at = now;
        let before = self.last.replace((algorithm, value));
        if let Some(rps) = self.rps() {
            self.least = self.least.min(rps);
        }
        before != self.last
    }

    /// Forgets the feedback values, but not the time at which the last one was sent, because the
    /// peer may still obey it.
    pub(super) fn forget(&mut self) {
        *self = Self { at: self.at, ..Self::default() };
    }

    /// Returns whether the last feedback value is a rate that sets no limit: 0 means that there is
    /// no overload, and `u32::MAX` allows every rate.
    pub(super) fn sets_no_limit(&self) -> bool {
        matches!(self.last, Some((Algorithm::Rate, 0 | u32::MAX)))
    }

    /// Returns the requests a second that the peer may send. Returns `None` if the last feedback
    /// value is not a rate, or if it [sets no limit](Self::sets_no_limit).
    pub(super) fn rps(&self) -> Option<f64> {
        match self.last {
            Some((Algorithm::Rate, value)) if !self.sets_no_limit() => Some(f64::from(value)),
            _ => None,
        }
    }

    /// Returns the lowest and the highest rate that the peer can consider allowed. `may` is the
    /// rate at which the peer may send now. The two rates differ, because the last feedback value
    /// may not have reached the peer yet, and because the rate at which the peer sends is measured
    /// over some time.
    pub(super) fn look(&mut self, may: f64) -> (f64, f64) {
        let at_least = std::mem::replace(&mut self.least, may).min(may);
        let at_most = may.max(self.most * MOST_KEPT);
        self.most = if at_most.is_finite() { at_most } else { 0.0 };
        (at_least, at_most)
    }

    /// Returns whether the last feedback value was for another algorithm than `algorithm`. Returns
    /// false if no value was sent.
    pub(super) fn is_of_another(&self, algorithm: Algorithm) -> bool {
        self.last.is_some_and(|(told, _)| told != algorithm)
    }

    /// Returns the last feedback value, or 0 if none was sent.
    pub(super) fn value(&self) -> u32 {
        self.last.map_or(0, |(_, value)| value)
    }

    /// Returns the time at which the last feedback value was sent.
    pub(super) fn at(&self) -> Timestamp {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_under_another_algorithm_is_another_value() {
        let mut told = Told::default();
        assert!(told.tell(Timestamp::ZERO, Algorithm::Loss, 90));
        assert!(!told.tell(Timestamp::ZERO, Algorithm::Loss, 90));
        assert_eq!(told.rps(), None);
        assert!(told.is_of_another(Algorithm::Rate) && !told.is_of_another(Algorithm::Loss));
        assert!(told.tell(Timestamp::ZERO, Algorithm::Rate, 90));
        assert_eq!((told.rps(), told.value()), (Some(90.0), 90));
    }

    #[test]
    fn a_rate_without_limit_does_not_allow_everything_for_seconds() {
        let mut told = Told::default();
        told.tell(Timestamp::ZERO, Algorithm::Rate, u32::MAX);
        assert_eq!((told.rps(), told.look(f64::INFINITY).1), (None, f64::INFINITY));
        told.tell(Timestamp::ZERO, Algorithm::Rate, 100);
        assert_eq!(told.look(100.0), (100.0, 100.0));
        told.tell(Timestamp::ZERO, Algorithm::Rate, 50);
        assert_eq!(told.look(50.0), (50.0, 100.0 * MOST_KEPT));
    }
}
