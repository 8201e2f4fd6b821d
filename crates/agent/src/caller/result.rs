//! The result of a run, for another process that merges it with others.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use tidegate_world::Timestamp;

use crate::caller::stats::CallerStats;
use crate::usage::Usage;

/// The counts of a caller and the resources that it used, in a form that another process can read.
/// Times are counted from the start of the run, because each process has its own clock.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CallerResult {
    stats: CallerStats,
    usage: Usage,
    /// Time from the start of the run to the intended time of the last call.
    #[serde(
        rename = "intended_s",
        serialize_with = "write_seconds",
        deserialize_with = "read_seconds"
    )]
    intended: Duration,
    /// Time from the start of the run to the actual start of the last call.
    #[serde(
        rename = "begun_s",
        serialize_with = "write_seconds",
        deserialize_with = "read_seconds"
    )]
    begun: Duration,
}

impl CallerResult {
    /// Creates the result of a run.
    pub fn new(stats: CallerStats, usage: Usage) -> Self {
        let intended = stats.last_intended.since(stats.start);
        let begun = stats.last_begun.since(stats.start);
        Self { stats, usage, intended, begun }
    }

    /// Returns the counts and the resources. The times in the counts are as if the run had started
    /// at [`Timestamp::ZERO`].
    pub fn into_parts(self) -> (CallerStats, Usage) {
        let Self { stats, usage, intended, begun } = self;
        let start = Timestamp::ZERO;
        let (last_intended, last_begun) = (start + intended, start + begun);
        (CallerStats { start, last_intended, last_begun, ..stats }, usage)
    }
}

fn write_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn read_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use tidegate_world::Transport;

    use super::*;
    use crate::caller::Failure;
    use crate::usage::{StreamUsage, WebSocketFailures};

    fn stats(calls: u64, last_intended_s: u64) -> CallerStats {
        let start = Timestamp::from_nanos(77);
        let mut stats = CallerStats {
            offered: calls,
            begun: calls,
            completed: calls - 3,
            start,
            last_intended: start + Duration::from_secs(last_intended_s),
            last_begun: start + Duration::from_secs(last_intended_s),
            ..CallerStats::default()
        };
        for failure in [Failure::Status(503), Failure::Status(486), Failure::Timeout] {
            stats.failed.note(failure);
        }
        stats.set_up_delay.record(Duration::from_millis(calls));
        stats.measured.bye_delay.record(Duration::from_millis(2));
        stats.devices.rejected.insert(503, 4);
        stats
    }

    fn failures() -> WebSocketFailures {
        WebSocketFailures { status: 1, protocol: 2, subprotocol: 3, closed: 4, slow: 5 }
    }

    fn usage() -> Usage {
        let streams = Some(StreamUsage {
            transport: Transport::Wss,
            opened: 5,
            accepted: 0,
            failed: 1,
            excess: 0,
            handshakes: 4,
            handshakes_failed: 1,
            websockets: 2,
            websockets_failed: failures(),
            sent: 7,
            sent_bytes: 700,
            received: 8,
            received_bytes: 800,
            overflow: 0,
            unsent: 2,
        });
        Usage { cpu_s: 0.5, wall_s: 3.0, send_drops: 1, streams, ..Usage::default() }
    }

    fn sent(result: &CallerResult) -> CallerResult {
        serde_json::from_str(&serde_json::to_string(result).unwrap()).unwrap()
    }

    #[test]
    fn a_result_that_was_sent_has_all_its_counts() {
        let result = CallerResult::new(stats(101, 20), usage());
        let (stats, usage) = sent(&result).into_parts();
        let json = |stats: &CallerStats| serde_json::to_string(stats).unwrap();
        assert_eq!(json(&stats), json(&self::stats(101, 20)));
        assert_eq!(usage, self::usage());
        assert_eq!(stats.failed.status[&503], 1);
        assert_eq!(stats.intended_cps(), 5.0);
        assert_eq!(stats.begun_cps(), 5.0);
    }

    #[test]
    fn results_of_two_runs_add_up() {
        let [one, other] = [stats(100, 20), stats(50, 25)].map(|s| CallerResult::new(s, usage()));
        let (mut stats, mut usage) = sent(&one).into_parts();
        let (others, used) = sent(&other).into_parts();
        stats.merge(&others);
        usage.merge(&used);
        assert_eq!((stats.offered, stats.completed, stats.failed.total()), (150, 144, 6));
        assert_eq!((stats.set_up_delay.count(), stats.failed.status[&503]), (2, 2));
        // The last of 150 calls was intended after 25 s.
        assert_eq!(stats.intended_cps(), 149.0 / 25.0);
        assert_eq!((usage.cpu_s, usage.wall_s, usage.send_drops), (1.0, 3.0, 2));
        let streams = usage.streams.unwrap();
        assert_eq!((streams.opened, streams.websockets), (10, 4));
        let WebSocketFailures { status, protocol, subprotocol, closed, slow } =
            streams.websockets_failed;
        assert_eq!([status, protocol, subprotocol, closed, slow], [2, 4, 6, 8, 10]);
        let mut nothing = Usage::default();
        nothing.merge(&self::usage());
        assert_eq!(nothing, self::usage());
    }

    #[test]
    fn a_time_before_the_start_is_rejected() {
        let json = serde_json::to_string(&CallerResult::new(stats(5, 2), usage())).unwrap();
        let wrong = json.replace("\"begun_s\":2.0", "\"begun_s\":-2.0");
        assert_ne!(wrong, json);
        assert!(serde_json::from_str::<CallerResult>(&wrong).is_err());
    }
}
