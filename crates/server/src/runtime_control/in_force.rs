//! The settings and signals in force in a shard, as JSON.

use serde_json::{Map, Value, json};
use tidegate_control::{Bucket, Compared, Tier};
use tidegate_proxy::{Class, Counters};
use tidegate_world::{Counter, Timestamp};

use crate::laws::name_at;
use crate::metrics::collect::{ShardCounters, limit, millionths, sojourns};

/// Returns the law, settings and signals of one shard at `now`, as JSON.
pub(super) fn shard(shard: &ShardCounters, now: Timestamp) -> Value {
    let counters = &*shard.proxy;
    let (gauges, in_force) = (&counters.overload, &counters.in_force);
    let ms = |ns: u64| ns as f64 / 1e6;
    let sojourn = |(kind, [count, min, mean, p99]): (&str, [u64; 4])| {
        let of = json!({ "count": count, "min": ms(min), "mean": ms(mean), "p99": ms(p99) });
        (kind.to_owned(), of)
    };
    let share_of_class = |class: Class| {
        let rejecting = &gauges.rejecting_of_class[class as usize];
        (class.name().to_owned(), Value::from(1.0 - millionths(rejecting)))
    };
    json!({
        "law": name_at(&in_force.law),
        "commands": in_force.commands.get(),
        "commands_rejected": in_force.commands_rejected.get(),
        "occupancy": millionths(&in_force.occupancy),
        "socket_fill": millionths(&gauges.socket_fill),
        "waiting": in_force.waiting.get(),
        "sojourn_ms": sojourns(gauges, now.as_nanos()).map(sojourn).into_iter()
            .collect::<Map<_, _>>(),
        "last_second": shard.recent.to_json(),
        "limit": by_bucket(|bucket| limit(gauges.limits[bucket].get())),
        "waiting_max": gauges.waiting_limit.get().checked_sub(1),
        "kernel_drop_share": millionths(&gauges.drop_share),
        "kernel_drop_share_of_registers": millionths(&gauges.drop_share_of_registers),
        "allowance": by_bucket(|bucket| (1.0 - millionths(&gauges.rejecting[bucket])).into()),
        "allowance_by_class": Class::ALL.map(share_of_class).into_iter().collect::<Map<_, _>>(),
        "release_cps": gauges.release.get() as f64 / 1e3,
        "unanswered": gauges.unanswered.get(),
        "unanswered_max": known(&gauges.unanswered_max, 1e3),
        "newest_first": gauges.newest_first.get() == 1,
        "wait_max_ms": ms(gauges.wait_max.get()),
        "rank_floor": millionths(&gauges.rank_floor),
        "call_cost_ms": known(&gauges.call_cost, 1e6),
        "rejection_cost_ms": known(&gauges.rejection_cost, 1e6),
        "tiers": (gauges.stateful_occupancy.get() > 0).then(|| tiers(counters)),
        "bound": known(&gauges.bound, 1e6),
        "shadow": (in_force.shadow.get() > 0).then(|| shadow(counters)),
    })
}

/// Returns, as JSON, the number of routed requests and the processor time of a call in each tier of
/// service, and the share of new calls that are routed with transactions.
fn tiers(counters: &Counters) -> Value {
    let gauges = &counters.overload;
    let of = |tier: Tier| {
        let cost = known(&gauges.tier_costs[tier as usize], 1e6);
        let one = json!({ "routed": counters.served(tier).get(), "call_cost_ms": cost });
        (tier.name().to_owned(), one)
    };
    let mut tiers = Tier::ALL.map(of).into_iter().collect::<Map<_, _>>();
    tiers.insert("share_stateful".to_owned(), (1.0 - millionths(&gauges.stateless)).into());
    tiers.insert("occupancy".to_owned(), millionths(&gauges.stateful_occupancy).into());
    Value::Object(tiers)
}

/// Returns the decisions of the shadow law compared with those of the law, as JSON.
fn shadow(counters: &Counters) -> Value {
    let in_force = &counters.in_force;
    let compared = |bucket: usize| {
        let Compared { both, only_real, only_shadow, neither } = in_force.compared[bucket].get();
        json!({
            "both_admit": both,
            "only_the_law_admits": only_real,
            "only_the_shadow_admits": only_shadow,
            "neither_admits": neither,
        })
    };
    let allowance =
        |bucket: usize| (1.0 - millionths(&in_force.rejecting_of_shadow[bucket])).into();
    json!({
        "law": name_at(&in_force.shadow),
        "allowance": by_bucket(allowance),
        "compared": by_bucket(compared),
    })
}

fn by_bucket(of: impl Fn(usize) -> Value) -> Map<String, Value> {
    Bucket::ALL.into_iter().map(|bucket| (bucket.name().to_owned(), of(bucket as usize))).collect()
}

/// Returns the value of a gauge, converted to a larger unit, or `None` if the value is zero, which
/// means unknown.
fn known(gauge: &Counter, unit: f64) -> Option<f64> {
    (gauge.get() > 0).then(|| gauge.get() as f64 / unit)
}
