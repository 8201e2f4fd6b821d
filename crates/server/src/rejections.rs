//! The rejections that the shards have recorded, as JSON for operators.

use serde_json::{Value, json};
use tidegate_proxy::{REPLIES, RejectionRecord, ReplyReason};
use tidegate_world::Timestamp;

use crate::metrics::collect::{ShardCounters, limit};
use crate::wall::{rfc3339, wall_time};

/// The rejections recorded by the shards of a process.
pub struct Rejections(Vec<ShardCounters>);

impl Rejections {
    pub(crate) fn new(shards: Vec<ShardCounters>) -> Self {
        Self(shards)
    }

    /// Returns, as JSON, all recorded rejections (newest first). The JSON also has the number of
    /// rejections that were not recorded because the list was being read, and the number of
    /// rejections for each reason, including drops by the kernel. `now` is the current time.
    pub fn read(&self, now: Timestamp) -> Value {
        let reasons = ReplyReason::ALL[1..].iter().map(|&reason| self.reason(reason));
        json!({
            "reasons": reasons.chain([self.in_kernel()]).collect::<Value>(),
            "missed": self.missed(),
            "rejections": self.list(now, |_| true),
        })
    }

    /// Returns, as JSON, the recorded rejections of a call (newest first), and the number of
    /// rejections of all calls that were not recorded because the list was being read. `now` is the
    /// current time.
    pub fn of_call(&self, now: Timestamp, call_id: &str) -> Value {
        json!({
            "call_id": call_id,
            "missed": self.missed(),
            "rejections": self.list(now, |rejection| rejection.is_of(call_id.as_bytes())),
        })
    }

    fn list(&self, now: Timestamp, is_shown: impl Fn(&RejectionRecord) -> bool) -> Value {
        let kept = |(shard, counters): (usize, &ShardCounters)| {
            let kept = counters.proxy.rejections.list();
            kept.into_iter().map(move |rejection| (shard, rejection))
        };
        let mut all: Vec<_> = self.0.iter().enumerate().flat_map(kept).collect();
        all.retain(|(_, rejection)| is_shown(rejection));
        all.sort_by_key(|(_, rejection)| std::cmp::Reverse(rejection.at));
        all.iter().map(|(shard, rejection)| one(*shard, rejection, now)).collect()
    }

    /// Returns, as JSON, the number of INVITEs and REGISTERs that were dropped: by the kernel
    /// before Tidegate read them, or by Tidegate after it had read them from a stream. The JSON has
    /// the form of the result of [`reason`](Self::reason).
    fn in_kernel(&self) -> Value {
        json!({
            "name": "kernel",
            "doc": "The kernel dropped the INVITE or REGISTER before Tidegate read it, and there \
                    was no response. The reason is that rejecting more requests would take too \
                    much of the processor (`rejecting_max`), or that the source is banned. \
                    Requests that came over TCP, TLS or a WebSocket were dropped after reading. \
                    Retransmissions count too. `/rejections` does not list these requests.",
            "rejected": self.0.iter().map(ShardCounters::filtered).sum::<u64>(),
        })
    }

    fn missed(&self) -> u64 {
        self.0.iter().map(|shard| shard.proxy.rejections.missed.get()).sum()
    }

    fn reason(&self, reason: ReplyReason) -> Value {
        let rejected = |shard: &ShardCounters| match reason {
            // This counter also includes requests that were dropped without a response.
            ReplyReason::Work(reason) => shard.proxy.rejected(reason).get(),
            reason => REPLIES.iter().map(|&s| shard.proxy.replied_for(s, reason).get()).sum(),
        };
        json!({
            "name": reason.name(),
            "doc": reason.doc(),
            "rejected": self.0.iter().map(rejected).sum::<u64>(),
        })
    }
}

fn one(shard: usize, rejection: &RejectionRecord, now: Timestamp) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let load = rejection.load;
    json!({
        "time": rfc3339(wall_time(now, rejection.at)),
        "at_s": rejection.at.as_secs_f64(),
        "age_s": now.since(rejection.at).as_secs_f64(),
        "shard": shard,
        "source": rejection.source,
        "class": rejection.class.map(|class| class.name()),
        "status": rejection.status,
        "method": text(&rejection.method),
        "uri": text(&rejection.uri),
        "from": text(&rejection.from),
        "to": text(&rejection.to),
        "call_id": text(&rejection.call_id),
        "pool": rejection.pool,
        "reason": rejection.reason.name(),
        "cause": rejection.cause,
        "allowance": load.map(|load| load.allowance),
        "limit": load.map(|load| limit(load.limit)),
        "occupancy": load.map(|load| load.occupancy),
        "sojourn_p99_ms": load.map(|load| load.sojourn_p99_ns as f64 / 1e6),
        "waiting": load.map(|load| load.waiting),
    })
}
