//! The phases of a shard after a request to stop.

use std::time::Duration;

use tidegate_world::Timestamp;

/// Minimum time for which the shard still reads the sockets of an address that it has left. During
/// this time, the kernel may still deliver a datagram for which it had already selected a socket.
/// If a socket is not empty after this time, the shard reads it for longer.
const LEAVING: Duration = Duration::from_millis(200);

/// Maximum time beyond [`LEAVING`] for which the shard reads the sockets of an address that it has
/// left. Without this maximum, a flood at another address could prolong the drain without end,
/// because the shard waits until all its sockets are empty.
const LEAVING_MORE: Duration = Duration::from_secs(5);

/// Maximum time after a drain for which connections still send bytes.
const LAST: Duration = Duration::from_secs(1);

/// The way in which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The cores of all shards were drained.
    Drained,
    /// A core was not drained when the time for draining was over.
    Late,
    /// A second request to stop came before the drain was complete.
    Forced,
}

/// The end of the run of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The way in which the drain ended.
    pub ended: Ended,
    /// Time from the first request to stop to the end of the run.
    pub after: Duration,
}

impl Summary {
    /// Returns the time for which the shard waits at its end for peers that read slowly.
    pub(crate) fn patience(&self) -> Duration {
        if self.ended == Ended::Forced { Duration::ZERO } else { LAST }
    }
}

/// The state of a shard between the first request to stop and the end of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draining {
    since: Timestamp,
    until: Timestamp,
    /// Time at which the core is told to drain, if it has not been told yet.
    tell: Option<Timestamp>,
    /// True if there may still be unread datagrams at the addresses that the shard has left, or
    /// unread first messages on connections that were accepted there.
    may_hold: bool,
}

impl Draining {
    /// Starts draining at `now`, for at most `drain`. If the shard `has_left` an address to other
    /// processes, datagrams and connections that arrived there before are still handled. So the core
    /// is told to drain only after all of them have been read.
    pub(crate) fn start(now: Timestamp, drain: Duration, has_left: bool) -> Self {
        let until = now + drain;
        let tell = if has_left { (now + LEAVING).min(until) } else { now };
        Self { since: now, until, tell: Some(tell), may_hold: has_left && !drain.is_zero() }
    }

    /// Records a turn that began at `began` and read every socket. `is_empty` is true if all
    /// sockets were empty at the end.
    pub(crate) fn on_read(&mut self, began: Timestamp, is_empty: bool) {
        // Until `tell`, the kernel may still add datagrams. A thread that lost the processor may
        // begin its first turn only after `tell`.
        if is_empty && self.tell.is_some_and(|at| at <= began) {
            self.may_hold = false;
        }
    }

    /// Returns whether the core has to be told to drain at `now`. Returns true only once.
    pub(crate) fn tells(&mut self, now: Timestamp) -> bool {
        let more = if self.may_hold { LEAVING_MORE } else { Duration::ZERO };
        self.tell.take_if(|at| *at + more <= now).is_some()
    }

    /// Returns whether the core has not been told to drain yet.
    pub(crate) fn is_leaving(&self) -> bool {
        self.tell.is_some()
    }

    /// Returns the time of the next step: telling the core to drain, or ending the drain.
    pub(crate) fn due(&self) -> Timestamp {
        self.tell.map_or(self.until, |at| at.min(self.until))
    }

    /// Returns the summary if the drain has ended. `is_drained` is true if all shards are drained,
    /// and `is_forced` if a second request to stop has come.
    pub(crate) fn ended(
        &self,
        now: Timestamp,
        is_drained: bool,
        is_forced: bool,
    ) -> Option<Summary> {
        let ended = if is_drained {
            Ended::Drained
        } else if is_forced {
            Ended::Forced
        } else if now >= self.until {
            Ended::Late
        } else {
            return None;
        };
        Some(Summary { ended, after: now.since(self.since) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1);

    #[test]
    fn leaving_a_shared_address_is_reported_after_a_delay() {
        for (drain, tell) in [(Duration::from_secs(35), LEAVING), (Duration::ZERO, Duration::ZERO)]
        {
            let mut draining = Draining::start(NOW, drain, true);
            assert_eq!(draining.due(), NOW + tell);
            if tell > Duration::ZERO {
                let early = NOW + tell - Duration::from_nanos(1);
                draining.on_read(early, true);
                assert!(!draining.tells(early));
                draining.on_read(NOW + tell, false);
                assert!(!draining.tells(NOW + tell), "something may be left there");
                draining.on_read(NOW + tell, true);
            }
            assert!(draining.is_leaving());
            assert!(draining.tells(NOW + tell) && !draining.tells(NOW + tell), "once");
            assert!(!draining.is_leaving());
            assert_eq!(draining.due(), NOW + drain);
            assert_eq!(draining.ended(NOW + drain, false, false).unwrap().ended, Ended::Late);
        }
    }

    #[test]
    fn a_flood_at_another_address_defers_the_end_for_a_bounded_time() {
        let mut draining = Draining::start(NOW, Duration::from_secs(35), true);
        let last = NOW + LEAVING + LEAVING_MORE;
        for now in [NOW + LEAVING, last - Duration::from_nanos(1)] {
            draining.on_read(now, false);
            assert!(!draining.tells(now));
        }
        assert!(draining.tells(last));
    }

    #[test]
    fn without_a_shared_address_draining_is_reported_at_once() {
        let drain = Duration::from_secs(35);
        let mut draining = Draining::start(NOW, drain, false);
        assert_eq!(draining.due(), NOW);
        assert!(draining.tells(NOW) && !draining.tells(NOW));
    }

    #[test]
    fn a_drain_ends_without_work_by_force_or_at_its_time_limit() {
        let drain = Duration::from_secs(35);
        let draining = Draining::start(NOW, drain, false);
        let before = NOW + drain - Duration::from_nanos(1);
        let ended = |now, is_drained, is_forced| {
            draining.ended(now, is_drained, is_forced).map(|s| (s.ended, s.after))
        };
        assert_eq!(ended(before, false, false), None);
        let after = before.since(NOW);
        assert_eq!(ended(before, true, false), Some((Ended::Drained, after)));
        assert_eq!(ended(before, true, true), Some((Ended::Drained, after)));
        assert_eq!(ended(before, false, true), Some((Ended::Forced, after)));
        assert_eq!(ended(NOW + drain, false, false), Some((Ended::Late, drain)));
        assert_eq!(ended(NOW + drain, false, true), Some((Ended::Forced, drain)));
    }
}
