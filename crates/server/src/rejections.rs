//! The rejections that the shards have recorded, as JSON for operators.

use serde_json::{Value, json};
use tidegate_proxy::{REPLIES, Refusal, ReplyReason};
use tidegate_world::Timestamp;

use crate::metrics::collect::{ShardCounters, limit};
use crate::wall::{rfc3339, wall_time};

/// The rejections recorded by the shards of a process.
pub struct Rejections(Vec<ShardCounters>);

impl Rejections {
    pub(crate) fn new(shards: Vec<ShardCounters>) -> Self {
        Self(shards)
    }

    /// Returns, as JSON, all recorded rejections (newest first), the number of rejections that were
    /// not recorded because the list was being read, and the number of rejections for each reason,
    /// including drops by the kernel. `now` is the current time.
    pub fn read(&self, now: Timestamp) -> Value {
        let reasons = ReplyReason::ALL[1..].iter().map(|&reason| self.reason(reason));
        json!({
            "reasons": reasons.chain([self.in_kernel()]).collect::<Value>(),
            "missed": self.missed(),
            "refusals": self.list(now, |_| true),
        })
    }

    /// Returns, as JSON, the recorded rejections of a call (newest first), and the number of
    /// rejections of all calls that were not recorded because the list was being read. `now` is the
    /// current time.
    pub fn of_call(&self, now: Timestamp, call_id: &str) -> Value {
        json!({
            "call_id": call_id,
            "missed": self.missed(),
            "rejections": self.list(now, |refusal| refusal.is_of(call_id.as_bytes())),
        })
    }

    fn list(&self, now: Timestamp, is_shown: impl Fn(&Refusal) -> bool) -> Value {
        let kept = |(shard, counters): (usize, &ShardCounters)| {
            let kept = counters.proxy.refusals.list();
            kept.into_iter().map(move |refusal| (shard, refusal))
        };
        let mut all: Vec<_> = self.0.iter().enumerate().flat_map(kept).collect();
        all.retain(|(_, refusal)| is_shown(refusal));
        all.sort_by_key(|(_, refusal)| std::cmp::Reverse(refusal.at));
        all.iter().map(|(shard, refusal)| one(*shard, refusal, now)).collect()
    }

    /// Returns, as JSON like that of [`reason`](Self::reason), the number of INVITEs and REGISTERs
    /// that the kernel dropped before Tidegate read them, or that Tidegate dropped after it had
    /// read them from a stream.
    fn in_kernel(&self) -> Value {
        json!({
            "name": "kernel",
            "doc": "The kernel dropped the INVITE or REGISTER before Tidegate read it, and there \
                    was no response. The reason is that rejecting more requests would take too \
                    much of the processor (`refusing_max`), or that the source is banned. \
                    Requests that came over TCP, TLS or a WebSocket were dropped after reading. \
                    Retransmissions count too. `/rejections` has no samples of these requests.",
            "refused": self.0.iter().map(ShardCounters::filtered).sum::<u64>(),
        })
    }

    fn missed(&self) -> u64 {
        self.0.iter().map(|shard| shard.proxy.refusals.missed.get()).sum()
    }

    fn reason(&self, reason: ReplyReason) -> Value {
        let refused = |shard: &ShardCounters| match reason {
            // This counter also includes requests that were dropped without a response.
            ReplyReason::Work(reason) => shard.proxy.refused(reason).get(),
            reason => REPLIES.iter().map(|&s| shard.proxy.replied_for(s, reason).get()).sum(),
        };
        json!({
            "name": reason.name(),
            "doc": reason.doc(),
            "refused": self.0.iter().map(refused).sum::<u64>(),
        })
    }
}

fn one(shard: usize, refusal: &Refusal, now: Timestamp) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let load = refusal.load;
    json!({
        "time": rfc3339(wall_time(now, refusal.at)),
        "at_s": refusal.at.as_secs_f64(),
        "age_s": now.since(refusal.at).as_secs_f64(),
        "shard": shard,
        "source": refusal.source,
        "class": refusal.class.map(|class| class.name()),
        "status": refusal.status,
        "method": text(&refusal.method),
        "uri": text(&refusal.uri),
        "from": text(&refusal.from),
        "to": text(&refusal.to),
        "call_id": text(&refusal.call_id),
        "pool": refusal.pool,
        "reason": refusal.reason.name(),
        "cause": refusal.cause,
        "allowance": load.map(|load| load.allowance),
        "limit": load.map(|load| limit(load.limit)),
        "occupancy": load.map(|load| load.occupancy),
        "sojourn_p99_ms": load.map(|load| load.sojourn_p99_ns as f64 / 1e6),
        "waiting": load.map(|load| load.waiting),
    })
}
