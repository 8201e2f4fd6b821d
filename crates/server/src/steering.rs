//! What is in force of overload control, shown to operators and changed by them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tidegate_control::registry::LAWS;
use tidegate_control::{Bucket, Compared, Entry, Tier};
use tidegate_io::{NotGiven, Orders};
use tidegate_proxy::{Class, Counters, Overload};
use tidegate_world::{Counter, Timestamp};

use crate::config::order::{self, Refused};
use crate::config::overload_toml;
use crate::laws;
use crate::sources::{ShardCounters, sojourns};

/// Changes the laws of all shards, and says what is in force.
pub struct Steering {
    /// What shall hold: the last order, or the configuration.
    wanted: Mutex<Wanted>,
    orders: Orders,
    shards: Vec<ShardCounters>,
}

#[derive(Clone)]
struct Wanted {
    overload: Overload,
    /// Orders given.
    given: u64,
}

/// Why an order was not given.
#[derive(Debug)]
pub enum NotSteered {
    /// It was refused.
    Refused(Refused),
    /// A shard could not be told.
    NotGiven(NotGiven),
}

impl Steering {
    pub(crate) fn new(overload: Overload, orders: Orders, shards: Vec<ShardCounters>) -> Self {
        Self { wanted: Mutex::new(Wanted { overload, given: 0 }), orders, shards }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the shards the order that an operator has asked for by `text`. Returns its number, by
    /// which one can see whether it [was heard](Self::was_heard).
    ///
    /// # Errors
    /// When it is refused, or cannot be given.
    pub fn steer(&self, text: &[u8]) -> Result<u64, NotSteered> {
        // Held until the order is given: orders that come at once have one sequence.
        let mut wanted = self.wanted();
        let overload = order::asked(text, &wanted.overload).map_err(NotSteered::Refused)?;
        let order = order::text(&overload);
        self.orders.give(order.as_bytes()).map_err(NotSteered::NotGiven)?;
        *wanted = Wanted { overload, given: wanted.given + 1 };
        Ok(wanted.given)
    }

    /// Whether every shard has heard the order of this number.
    pub fn was_heard(&self, number: u64) -> bool {
        let heard = |shard: &ShardCounters| {
            let in_force = &shard.proxy.in_force;
            in_force.orders.get() + in_force.not_understood.get() >= number
        };
        self.shards.iter().all(heard)
    }

    /// What is in force at `now`.
    pub fn read(&self, now: Timestamp) -> Value {
        let Wanted { overload, given } = self.wanted().clone();
        let shards = self.shards.iter().map(|counters| shard(&counters.proxy, now));
        json!({
            "law": laws::with_values(&overload.gate.law),
            "shadow": overload.gate.shadow.as_ref().map(laws::with_values),
            "configuration": overload_toml(&overload),
            "orders": given,
            "shards": shards.collect::<Value>(),
        })
    }
}

fn shard(counters: &Counters, now: Timestamp) -> Value {
    let (gauges, in_force) = (&counters.overload, &counters.in_force);
    let ms = |ns: u64| ns as f64 / 1e6;
    let sojourn = |(kind, [count, min, mean, p99]): (&str, [u64; 4])| {
        let of = json!({ "count": count, "min": ms(min), "mean": ms(mean), "p99": ms(p99) });
        (kind.to_owned(), of)
    };
    let share_of_class = |class: Class| {
        let refusing = &gauges.refusing_of_class[class as usize];
        (class.name().to_owned(), Value::from(1.0 - millionths(refusing)))
    };
    json!({
        "law": name_at(&in_force.law),
        "orders": in_force.orders.get(),
        "orders_not_understood": in_force.not_understood.get(),
        "occupancy": millionths(&in_force.occupancy),
        "socket_fill": millionths(&gauges.socket_fill),
        "waiting": in_force.waiting.get(),
        "sojourn_ms": sojourns(gauges, now.as_nanos()).map(sojourn).into_iter()
            .collect::<Map<_, _>>(),
        "allowance": by_bucket(|bucket| (1.0 - millionths(&gauges.refusing[bucket])).into()),
        "allowance_by_class": Class::ALL.map(share_of_class).into_iter().collect::<Map<_, _>>(),
        "release_cps": gauges.release.get() as f64 / 1e3,
        "newest_first": gauges.newest_first.get() == 1,
        "wait_max_ms": ms(gauges.wait_max.get()),
        "rank_floor": millionths(&gauges.rank_floor),
        "call_cost_ms": known(&gauges.call_cost, 1e6),
        "refusal_cost_ms": known(&gauges.refusal_cost, 1e6),
        "tiers": (gauges.stateful_occupancy.get() > 0).then(|| tiers(counters)),
        "bound": known(&gauges.bound, 1e6),
        "shadow": (in_force.shadow.get() > 0).then(|| shadow(counters)),
    })
}

/// How calls are divided among the tiers of service.
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
    let allowance = |bucket: usize| (1.0 - millionths(&in_force.refusing_of_shadow[bucket])).into();
    json!({
        "law": name_at(&in_force.shadow),
        "allowance": by_bucket(allowance),
        "compared": by_bucket(compared),
    })
}

/// The name of the law at this place of the registry, from 1.
pub(crate) fn name_at(place: &Counter) -> Option<&'static str> {
    let index = usize::try_from(place.get()).ok()?.checked_sub(1)?;
    LAWS.get(index).map(|entry: &&Entry| entry.name)
}

fn by_bucket(of: impl Fn(usize) -> Value) -> Map<String, Value> {
    Bucket::ALL.into_iter().map(|bucket| (bucket.name().to_owned(), of(bucket as usize))).collect()
}

/// A gauge in a larger unit; `None` while it is zero, which means that it is not known.
fn known(gauge: &Counter, unit: f64) -> Option<f64> {
    (gauge.get() > 0).then(|| gauge.get() as f64 / unit)
}

fn millionths(gauge: &Counter) -> f64 {
    gauge.get() as f64 / 1e6
}
