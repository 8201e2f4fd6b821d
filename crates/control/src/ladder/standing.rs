//! The standing wait: the time that every message waits in the receive buffers before it is read.

use std::cell::Cell;
use std::time::Duration;

use tidegate_world::Timestamp;

use super::Period;

/// A standing wait of more than this number of seconds is too long.
const WAIT_MAX_S: f64 = 0.1;

/// Time in seconds within which a standing wait that is too long should end.
const DRAIN_S: f64 = 1.0;

/// Maximum fraction of the messages that is dropped to end a standing wait.
const DRAINED_MAX: f64 = 0.5;

/// Time in which dropping must make a standing wait shorter, and the part of the wait that may be
/// left after this time.
const LONG_MAX: Duration = Duration::from_millis(1_500);
const LEFT_MAX: f64 = 0.75;

/// If dropping did not make a standing wait shorter, the time for which no standing wait counts as
/// too long.
const IGNORED: Duration = Duration::from_secs(10);

/// Minimum number of messages of one kind in a period that show a standing wait.
const SAMPLES: u32 = 5;

/// The limits of [`Standing::pace`]. The waits are not exact, and if the server reads nearly
/// nothing, a small error would have a large effect.
const PACE: [f64; 2] = [0.25, 2.0];

/// The shortest wait of the messages that were read in each period. Datagrams and messages on
/// connections wait in different buffers, so they are measured separately.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    connections: Waits,
    datagrams: Waits,
    /// The start of the current test of whether dropping shortens a standing wait that is too long,
    /// and the wait in seconds at this start. `None` while no messages are dropped or the wait is
    /// not too long.
    long: Option<(Timestamp, f64)>,
    /// The time until which no standing wait is too long.
    ignored_until: Timestamp,
    /// The fraction of the messages that may pass, 0 to 1, or `None` if the wait is not too long.
    passing: Option<f64>,
}

/// The shortest waits of the datagrams, or of the messages on connections.
#[derive(Clone, Debug, Default)]
struct Waits {
    /// Number of messages in this period, and the shortest wait among them.
    now: Cell<(u32, Duration)>,
    /// The shortest wait in the last period in seconds, or `None` if too few messages were read.
    wait_s: Option<f64>,
    /// The change of the shortest wait in the last period, in seconds.
    change_s: f64,
}

impl Waits {
    fn record(&self, wait: Duration) {
        let (count, shortest) = self.now.get();
        self.now.set((count + 1, if count == 0 { wait } else { shortest.min(wait) }));
    }

    fn end_period(&mut self) {
        let (count, shortest) = self.now.take();
        let wait_s = (count >= SAMPLES).then_some(shortest.as_secs_f64());
        let change = self.wait_s.zip(wait_s).map(|(earlier_s, later_s)| later_s - earlier_s);
        (self.wait_s, self.change_s) = (wait_s, change.unwrap_or_default());
    }

    fn pace(&self, period: &Period) -> f64 {
        let arrived_in_s = period.seconds - self.change_s;
        (period.seconds / arrived_in_s.max(f64::MIN_POSITIVE)).clamp(PACE[0], PACE[1])
    }
}

impl Standing {
    /// Records that a message was read after this wait.
    pub(super) fn record(&self, is_datagram: bool, wait: Duration) {
        if is_datagram { &self.datagrams } else { &self.connections }.record(wait);
    }

    /// Ends a period. `drops` is true if messages are dropped.
    pub(super) fn end_period(&mut self, now: Timestamp, drops: bool) {
        self.connections.end_period();
        self.datagrams.end_period();
        let waits = [self.connections.wait_s, self.datagrams.wait_s];
        let wait_s = waits.into_iter().flatten().fold(0.0, f64::max);
        let is_long = wait_s > WAIT_MAX_S && now >= self.ignored_until;
        self.long = match self.long.filter(|_| is_long && drops) {
            None => (is_long && drops).then_some((now, wait_s)),
            Some((since, _)) if now.since(since) < LONG_MAX => self.long,
            Some((_, before_s)) if wait_s < LEFT_MAX * before_s => Some((now, wait_s)),
            Some(_) => {
                self.ignored_until = now + IGNORED;
                None
            }
        };
        let counts = is_long && now >= self.ignored_until;
        self.passing = counts.then(|| 1.0 - (wait_s / DRAIN_S).min(DRAINED_MAX));
    }

    /// Returns two ratios for the last period: the rate at which messages arrived, divided by the
    /// rate at which they were read. The first ratio is for messages on connections, the second for
    /// datagrams. While the standing wait becomes shorter, more messages are read than arrive.
    pub(super) fn pace(&self, period: &Period) -> [f64; 2] {
        [&self.connections, &self.datagrams].map(|waits| waits.pace(period))
    }

    /// Returns the fraction of the messages that may pass, 0 to 1, so that a standing wait that is
    /// too long ends. Returns `None` if the wait is not too long, or if dropping does not make it
    /// shorter, for example because reading takes all the time.
    pub(super) fn passing(&self) -> Option<f64> {
        self.passing
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tally;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn record(standing: &Standing, is_datagram: bool, waits: &[u32]) {
        // Each wait is that of several messages.
        let of_all = waits.repeat(SAMPLES as usize);
        of_all.iter().for_each(|&wait| standing.record(is_datagram, wait * MS));
    }

    /// Returns the state after one period of 100 ms for each list, and the pace of the datagrams in
    /// the last period. A list has the waits, in ms, after which the datagrams of its period were
    /// read.
    fn after(periods: &[&[u32]]) -> (Standing, f64) {
        let mut standing = Standing::default();
        for waits in periods {
            record(&standing, true, waits);
            standing.end_period(Timestamp::ZERO, true);
        }
        let period = Period::between(&Tally::default(), &Tally::default(), 100 * MS);
        let [of_connections, pace] = standing.pace(&period);
        assert_eq!(of_connections, 1.0);
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
            record(&standing, is_datagram, &[250]);
            record(&standing, !is_datagram, &[1]);
            standing.end_period(Timestamp::ZERO, true);
            assert_eq!(standing.passing(), Some(0.75));
        }
    }

    /// A stranger must not decide for all by a few messages on a connection.
    #[test]
    fn a_few_messages_show_no_standing_wait() {
        let mut standing = Standing::default();
        (1..SAMPLES).for_each(|_| standing.record(false, 500 * MS));
        standing.end_period(Timestamp::ZERO, true);
        assert_eq!(standing.passing(), None);
    }

    /// Returns, for each period of 100 ms, whether the wait is too long after it. `waits` has the
    /// wait in each period, in ms. Messages are dropped from the period `drops_from` on.
    fn is_long(waits: &[u32], drops_from: u32) -> Vec<bool> {
        let mut standing = Standing::default();
        let mut after_period = |(period, &wait): (u32, &u32)| {
            record(&standing, true, &[wait]);
            standing.end_period(Timestamp::ZERO + period * 100 * MS, period >= drops_from);
            standing.passing().is_some()
        };
        (0..).zip(waits).map(&mut after_period).collect()
    }

    #[test]
    fn a_wait_that_drops_do_not_shorten_is_ignored_for_ten_seconds() {
        let is_long = is_long(&[400; 130], 3);
        let from = 3 + LONG_MAX.as_millis() as usize / 100;
        let expected = |period| !(from..from + 100).contains(&period);
        assert_eq!(is_long, (0..130).map(expected).collect::<Vec<_>>());
    }

    #[test]
    fn a_wait_that_becomes_shorter_is_not_ignored() {
        let falls: Vec<u32> = (0..30).map(|period| 2_000 - 60 * period).collect();
        assert!(is_long(&falls, 0).iter().all(|&is_long| is_long));
    }
}
