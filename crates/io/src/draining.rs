//! How a shard goes on that was asked to stop.

use std::time::Duration;

use tidegate_world::Timestamp;

/// How long what has arrived at an address that was left is still admitted.
const LEAVING: Duration = Duration::from_millis(200);

/// The time between the request to stop and the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draining {
    since: Timestamp,
    until: Timestamp,
    /// When the core is told, if it was not yet.
    tell: Option<Timestamp>,
}

impl Draining {
    /// It was asked to stop at `now`, and may take `drain`. If it `has_left` an address to others,
    /// what came there before them is not refused, so the core is told later.
    pub(crate) fn begin(now: Timestamp, drain: Duration, has_left: bool) -> Self {
        let until = now + drain;
        let tell = if has_left { (now + LEAVING).min(until) } else { now };
        Self { since: now, until, tell: Some(tell) }
    }

    /// Whether the core is to be told at `now`: once.
    pub(crate) fn tells(&mut self, now: Timestamp) -> bool {
        self.tell.take_if(|at| *at <= now).is_some()
    }

    /// Whether the core was not told yet.
    pub(crate) fn is_leaving(&self) -> bool {
        self.tell.is_some()
    }

    /// When something is to be done next.
    pub(crate) fn due(&self) -> Timestamp {
        self.tell.map_or(self.until, |at| at.min(self.until))
    }

    /// Whether it has taken all its time.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until
    }

    /// How long ago it began.
    pub(crate) fn took(&self, now: Timestamp) -> Duration {
        now.since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1);

    #[test]
    fn who_has_left_an_address_is_told_later_and_never_too_late() {
        for (drain, tell) in [(Duration::from_secs(35), LEAVING), (Duration::ZERO, Duration::ZERO)]
        {
            let mut draining = Draining::begin(NOW, drain, true);
            assert_eq!(draining.due(), NOW + tell);
            if tell > Duration::ZERO {
                assert!(!draining.tells(NOW + tell - Duration::from_nanos(1)));
            }
            assert!(draining.is_leaving());
            assert!(draining.tells(NOW + tell) && !draining.tells(NOW + tell), "once");
            assert!(!draining.is_leaving());
            assert_eq!(draining.due(), NOW + drain);
            assert!(draining.is_over(NOW + drain));
        }
    }

    #[test]
    fn others_are_told_at_once() {
        let drain = Duration::from_secs(35);
        let mut draining = Draining::begin(NOW, drain, false);
        assert_eq!(draining.due(), NOW);
        assert!(draining.tells(NOW) && !draining.tells(NOW));
        assert!(!draining.is_over(NOW + drain - Duration::from_nanos(1)));
        assert_eq!(draining.took(NOW + drain), drain);
    }
}
