//! Rules that decide when a change of a state or a count gets a line in the log.

use std::time::Duration;

use tidegate_world::Timestamp;

/// Shortest time between two lines on the same subject.
const LINE_EVERY: Duration = Duration::from_secs(3);

/// Time without further events after which an episode ([`Episodes`]) is over.
const QUIET: Duration = Duration::from_secs(5);

/// Interval at which an episode ([`Episodes`]) that continues is reported again.
const GOES_ON: Duration = Duration::from_secs(60);

/// A state whose changes are reported in the log. Several changes within a few seconds share one
/// line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Followed<T> {
    last: T,
    /// Number of changes that were not reported yet.
    changes: u64,
    said_at: Option<Timestamp>,
}

impl<T: Copy + PartialEq> Followed<T> {
    pub fn new(value: T) -> Self {
        Self { last: value, changes: 0, said_at: None }
    }

    /// Returns the state at the last check.
    pub fn last(&self) -> T {
        self.last
    }

    /// Compares `value`, the state at `now`, with the state at the last call. `unseen` is the
    /// number of times that the state has changed and changed back since then. Returns the number
    /// of changes to report, if a log line is due.
    pub fn see(&mut self, now: Timestamp, value: T, unseen: u64) -> Option<u64> {
        self.changes += u64::from(value != self.last) + 2 * unseen;
        self.last = value;
        let waits = self.said_at.is_some_and(|at| now.since(at) < LINE_EVERY);
        if self.changes == 0 || waits {
            return None;
        }
        self.said_at = Some(now);
        Some(std::mem::take(&mut self.changes))
    }
}

/// A count of events that the log reports as episodes. An episode starts with the first event, and
/// ends when no event has occurred for the time [`QUIET`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Episodes {
    total: u64,
    episode: Option<Episode>,
}

#[derive(Clone, Copy, Debug)]
struct Episode {
    since: Timestamp,
    before: u64,
    grew_at: Timestamp,
    said_at: Timestamp,
}

/// The news about an episode that a log line reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Edge {
    Begins,
    GoesOn { count: u64, lasted: Duration },
    Ends { count: u64, lasted: Duration },
}

impl Episodes {
    /// Starts to follow a count that is `total` at present.
    pub fn new(total: u64) -> Self {
        Self { total, episode: None }
    }

    /// Compares `total`, the count at `now`, with the count at the last call. Returns the news
    /// about an episode, if a log line is due.
    pub fn see(&mut self, now: Timestamp, total: u64) -> Option<Edge> {
        let before = std::mem::replace(&mut self.total, total);
        let grows = total > before;
        let Some(episode) = &mut self.episode else {
            let begins = Episode { since: now, before, grew_at: now, said_at: now };
            self.episode = grows.then_some(begins);
            return grows.then_some(Edge::Begins);
        };
        if grows {
            episode.grew_at = now;
        }
        let count = total.saturating_sub(episode.before);
        let lasted = episode.grew_at.since(episode.since);
        if now.since(episode.grew_at) >= QUIET {
            self.episode = None;
            return Some(Edge::Ends { count, lasted });
        }
        if now.since(episode.said_at) >= GOES_ON {
            episode.said_at = now;
            return Some(Edge::GoesOn { count, lasted });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    #[test]
    fn a_state_that_flaps_has_a_line_every_few_seconds_and_the_last_is_never_lost() {
        let mut followed = Followed::new('u');
        let mut lines = Vec::new();
        for step in 0..40 {
            let value = if step < 21 && step % 2 == 1 { 'd' } else { 'u' };
            if let Some(changes) = followed.see(at(250 * step), value, 0) {
                lines.push((step, value, changes));
            }
        }
        assert_eq!(lines, [(1, 'd', 1), (13, 'd', 12), (25, 'u', 7)]);
        assert_eq!(followed.see(at(20_000), 'u', 1), Some(2), "down and up between two looks");
    }

    #[test]
    fn an_episode_begins_at_once_and_ends_after_a_quiet_time() {
        let mut episodes = Episodes::new(7);
        assert_eq!(episodes.see(at(0), 7), None);
        assert_eq!(episodes.see(at(250), 9), Some(Edge::Begins));
        for ms in (500..4000).step_by(250) {
            assert_eq!(episodes.see(at(ms), 9 + ms), None);
        }
        assert_eq!(episodes.see(at(8500), 3759), None);
        let (count, lasted) = (3752, Duration::from_millis(3500));
        assert_eq!(episodes.see(at(8750), 3759), Some(Edge::Ends { count, lasted }));
        assert_eq!(episodes.see(at(9000), 3759), None);
        assert_eq!(episodes.see(at(9250), 3760), Some(Edge::Begins));
    }

    #[test]
    fn a_long_episode_is_recalled_once_a_minute() {
        let mut episodes = Episodes::new(0);
        let lines = (1..=600).filter_map(|step| episodes.see(at(250 * step), step));
        let lines: Vec<_> = lines.collect();
        assert_eq!((lines.len(), lines[0]), (3, Edge::Begins));
        assert!(matches!(lines[2], Edge::GoesOn { count: 481, .. }), "{lines:?}");
    }
}
