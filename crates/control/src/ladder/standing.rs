//! The standing wait: the time that every message waits in the receive buffers before it is read.

use std::cell::Cell;
use std::time::Duration;

use super::Period;

/// A standing wait of more than this number of seconds is too long.
const WAIT_MAX_S: f64 = 0.1;

/// Time in seconds within which a standing wait that is too long should end.
const DRAIN_S: f64 = 1.0;

/// Maximum part of the messages that is dropped so that a standing wait ends.
const DRAINED_MAX: f64 = 0.5;

/// The limits of [`Standing::pace`]. The waits are not exact, and if the server reads nearly
/// nothing, a small error would have a large effect.
const PACE: [f64; 2] = [0.25, 2.0];

/// The shortest wait of the messages that were read in each period. Datagrams and messages on
/// connections wait in different buffers, so they are measured separately, and the longer wait
/// counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    /// The shortest wait in this period, of messages on connections and of datagrams.
    shortest: [Cell<Option<Duration>>; 2],
    /// The standing wait in the last period in seconds, or `None` if no message was read.
    wait_s: Option<f64>,
    /// The change of the standing wait in the last period, in seconds.
    change_s: f64,
}

impl Standing {
    /// Records that a message was read after this wait.
    pub(super) fn record(&self, is_datagram: bool, wait: Duration) {
        let shortest = &self.shortest[usize::from(is_datagram)];
        shortest.set(Some(shortest.get().map_or(wait, |found| found.min(wait))));
    }

    pub(super) fn end_period(&mut self) {
        let wait = self.shortest.iter().filter_map(Cell::take).max();
        let wait_s = wait.map(|wait| wait.as_secs_f64());
        let change = self.wait_s.zip(wait_s).map(|(earlier_s, later_s)| later_s - earlier_s);
        (self.wait_s, self.change_s) = (wait_s, change.unwrap_or_default());
    }

    /// Returns how fast the messages of the last period arrived, compared with how fast they were
    /// read. While the standing wait becomes shorter, more messages are read than arrive.
    pub(super) fn pace(&self, period: &Period) -> f64 {
        let arrived_in_s = period.seconds - self.change_s;
        (period.seconds / arrived_in_s.max(f64::MIN_POSITIVE)).clamp(PACE[0], PACE[1])
    }

    /// Returns the part of the messages that may pass, so that a standing wait that is too long
    /// ends. Returns `None` if the wait is not too long.
    pub(super) fn passing(&self) -> Option<f64> {
        let wait_s = self.wait_s.filter(|&wait_s| wait_s > WAIT_MAX_S)?;
        Some(1.0 - (wait_s / DRAIN_S).min(DRAINED_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tally;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the state after one period of 100 ms for each list, in which datagrams were read
    /// after these waits in ms, and the pace of the last period.
    fn after(periods: &[&[u32]]) -> (Standing, f64) {
        let mut standing = Standing::default();
        for waits in periods {
            waits.iter().for_each(|&wait| standing.record(true, wait * MS));
            standing.end_period();
        }
        let pace = standing.pace(&Period::between(&Tally::default(), &Tally::default(), 100 * MS));
        (standing, (100.0 * pace).round() / 100.0)
    }

    #[test]
    fn messages_arrive_more_slowly_than_they_are_read_while_the_wait_falls() {
        assert_eq!(after(&[&[300, 500], &[400, 300]]).1, 1.0, "the shortest wait counts");
        assert_eq!(after(&[&[300], &[200]]).1, 0.5, "what arrived in 200 ms was read in 100 ms");
        assert_eq!(after(&[&[200], &[220]]).1, 1.25);
        assert_eq!(after(&[&[0], &[95]]).1, 2.0);
        assert_eq!(after(&[&[0], &[500]]).1, 2.0);
        assert_eq!(after(&[&[900], &[0]]).1, 0.25);
        assert_eq!(after(&[&[50]]).1, 1.0, "no earlier wait is known");
        assert_eq!(after(&[&[300], &[], &[200]]).1, 1.0);
    }

    #[test]
    fn less_passes_the_longer_the_wait_is() {
        let passing = |waits: &[u32]| after(&[waits]).0.passing();
        assert_eq!((passing(&[]), passing(&[100]), passing(&[900, 20])), (None, None, None));
        assert_eq!(passing(&[250]), Some(0.75));
        assert_eq!(passing(&[5_000]), Some(0.5));
    }

    #[test]
    fn the_longer_wait_of_datagrams_and_connections_counts() {
        for is_datagram in [false, true] {
            let mut standing = Standing::default();
            standing.record(is_datagram, 250 * MS);
            standing.record(!is_datagram, MS);
            standing.end_period();
            assert_eq!(standing.passing(), Some(0.75));
        }
    }
}
