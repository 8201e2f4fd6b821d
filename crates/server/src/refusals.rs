//! The refusals that are kept, for operators.

use serde_json::{Value, json};
use tidegate_control::Reason;
use tidegate_proxy::Refusal;
use tidegate_world::Timestamp;

use crate::sources::ShardCounters;

/// The refusals that the shards of a process have kept.
pub struct Refusals(Vec<ShardCounters>);

impl Refusals {
    pub(crate) fn new(shards: Vec<ShardCounters>) -> Self {
        Self(shards)
    }

    /// All of them at `now`, the newest first, and how often work was refused for each reason.
    pub fn read(&self, now: Timestamp) -> Value {
        let kept = |(shard, counters): (usize, &ShardCounters)| {
            let kept = counters.proxy.refusals.list();
            kept.into_iter().map(move |refusal| (shard, refusal))
        };
        let mut all: Vec<_> = self.0.iter().enumerate().flat_map(kept).collect();
        all.sort_by_key(|(_, refusal)| std::cmp::Reverse(refusal.at));
        let shown = all.iter().map(|(shard, refusal)| one(*shard, refusal, now));
        json!({
            "reasons": Reason::ALL.map(|reason| self.reason(reason)),
            "missed": self.0.iter().map(|shard| shard.proxy.refusals.missed.get()).sum::<u64>(),
            "refusals": shown.collect::<Value>(),
        })
    }

    fn reason(&self, reason: Reason) -> Value {
        let refused = self.0.iter().map(|shard| shard.proxy.refused(reason).get());
        json!({
            "name": reason.name(),
            "doc": reason.doc(),
            "refused": refused.sum::<u64>(),
        })
    }
}

fn one(shard: usize, refusal: &Refusal, now: Timestamp) -> Value {
    let age_s = now.since(refusal.at).as_secs_f64();
    json!({
        "at_s": refusal.at.as_secs_f64(),
        "age_s": age_s,
        "shard": shard,
        "source": refusal.source,
        "class": refusal.class.name(),
        "method": String::from_utf8_lossy(&refusal.method),
        "call_id": String::from_utf8_lossy(&refusal.call_id),
        "reason": refusal.reason.name(),
        "allowance": refusal.allowance,
        "occupancy": refusal.occupancy,
        "sojourn_p99_ms": refusal.sojourn_p99_ns as f64 / 1e6,
        "waiting": refusal.waiting,
    })
}
