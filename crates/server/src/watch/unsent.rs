//! Reports for the log on targets to which datagrams could not be sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::Timestamp;

use super::allowance::Allowance;
use crate::metrics::collect::ShardCounters;

/// Shortest time between two log lines about the same target.
const UNSENT_EVERY: Duration = Duration::from_secs(60);

/// Maximum number of targets of failed sends that are remembered. A target counts once for each
/// cause of failure.
const UNSENT_MAX: usize = 256;

/// The targets of failed sends that are in the log.
#[derive(Default)]
pub(super) struct UnsentTargets {
    known: BTreeMap<(SocketAddr, &'static str), Unsent>,
    lines: Allowance,
}

struct Unsent {
    said_at: Timestamp,
    count: u64,
}

impl UnsentTargets {
    /// Takes the failed sends that the shards have recorded since the last call. Passes the log
    /// lines that are due at `now` to `tell`.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        shards: &[ShardCounters],
        tell: &mut impl FnMut(String),
    ) {
        let unsent = shards.iter().flat_map(|shard| shard.io.unsent.take());
        for (target, cause, count) in unsent {
            let key = (target, cause);
            if let Some(known) = self.known.get_mut(&key) {
                known.count += count;
            } else if self.known.len() >= UNSENT_MAX {
                self.lines.withhold(now, count);
            } else if self.lines.take(now, count) {
                tell(format!("cannot send to {target}: {cause}"));
                self.known.insert(key, Unsent { said_at: now, count: 0 });
            }
        }
        self.known.retain(|(target, cause), unsent| {
            if now.since(unsent.said_at) < UNSENT_EVERY {
                return true;
            }
            let count = std::mem::take(&mut unsent.count);
            unsent.said_at = now;
            if count > 0 {
                tell(format!(
                    "cannot send to {target}: {cause}; datagrams not sent in a minute: {count}"
                ));
            }
            count > 0
        });
        if let Some(withheld) = self.lines.settle(now) {
            tell(format!(
                "cannot send to other targets: {withheld} more failures in the last few seconds"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms as at;

    fn to(host: u16) -> SocketAddr {
        let [high, low] = host.to_be_bytes();
        ([192, 0, high, low], 5060).into()
    }

    fn look(unsent: &mut UnsentTargets, ms: u64, shards: &[ShardCounters]) -> Vec<String> {
        let mut told = Vec::new();
        unsent.look(at(ms), shards, &mut |line| told.push(line));
        told
    }

    #[test]
    fn a_target_with_send_failures_is_logged_once_a_minute() {
        let (mut seen, shards) =
            (UnsentTargets::default(), [(); 2].map(|()| ShardCounters::default()));
        let unsent = |shard: usize| shards[shard].io.unsent.record(to(1), "network is unreachable");
        let mut look = |ms| look(&mut seen, ms, &shards);
        let begins = "cannot send to 192.0.0.1:5060: network is unreachable";
        unsent(0);
        assert_eq!(look(250), [begins]);
        unsent(0);
        unsent(1);
        assert_eq!(look(500), [""; 0]);
        assert_eq!(look(60_249), [""; 0]);
        assert_eq!(look(60_250), [format!("{begins}; datagrams not sent in a minute: 2")]);
        unsent(0);
        assert_eq!(look(60_500), [""; 0], "once a minute");
        assert_eq!(look(120_250), [format!("{begins}; datagrams not sent in a minute: 1")]);
        assert_eq!(look(180_250), [""; 0], "it is over");
        unsent(1);
        assert_eq!(look(180_500), [begins]);
    }

    /// A regression: for a target without a log line, each check counted one failure, however many
    /// sends had failed.
    #[test]
    fn some_of_many_targets_with_send_failures_are_logged_and_all_failures_are_counted() {
        let (mut seen, shards) = (UnsentTargets::default(), [ShardCounters::default()]);
        for host in 0..12 {
            for _ in 0..2 {
                shards[0].io.unsent.record(to(host), "too large");
            }
        }
        assert_eq!(look(&mut seen, 250, &shards).len(), 5);
        assert_eq!(look(&mut seen, 10_249, &shards), [""; 0]);
        let more = "cannot send to other targets: 14 more failures in the last few seconds";
        assert_eq!(look(&mut seen, 10_250, &shards), [more]);
    }

    /// A regression: if the maximum number of targets was remembered, failures of other targets
    /// were not counted.
    #[test]
    fn failures_are_counted_when_no_further_target_is_remembered() {
        let (mut seen, shards) = (UnsentTargets::default(), [ShardCounters::default()]);
        for host in 0..UNSENT_MAX as u16 {
            seen.known.insert((to(host), "too large"), Unsent { said_at: at(0), count: 0 });
        }
        for _ in 0..3 {
            shards[0].io.unsent.record(to(1_000), "too large");
        }
        assert_eq!(look(&mut seen, 250, &shards), [""; 0]);
        let more = "cannot send to other targets: 3 more failures in the last few seconds";
        assert_eq!(look(&mut seen, 10_250, &shards), [more]);
    }
}
