//! Metrics of the law in force, the shadow law, the commands of operators, the key of route tokens,
//! the occupancy, the waiting new calls, and the rejections that are missing in `/rejections`.

use tidegate_control::{Bucket, Compared};
use tidegate_proxy::Counters;

use super::millionths;
use crate::laws::name_at;
use crate::metrics::{Family, Number, Samples, Unit};

static LAW: Family = Family::gauge("overload_law", "Always 1. The label names the law in force");
static SHADOW: Family = Family::gauge("shadow_law", "Always 1. The label names the shadow law");
static COMMANDS: Family = Family::counter(
    "commands",
    "Commands of operators (changes of laws, states of back ends, ends of bans, and reloads), \
     applied or not applied by the shard. Each shard counts each command. Rotations of keys do not \
     count",
);
static ALLOWANCE: Family = Family::gauge(
    "shadow_allowance",
    "Share of new work that the shadow law would admit, by \
                                       bucket",
)
.in_unit(Unit::Ratio);
static COMPARED: Family = Family::gauge(
    "shadow_work",
    "New work since the start of the shadow law, by the decision of the law in force and the \
     decision of the shadow law",
);
static ALONE: [Number<Counters>; 4] = [
    Number::gauge(
        "occupancy",
        "Occupancy of the processor in the last tenth of a second",
        |c: &Counters| millionths(&c.in_force.occupancy).into(),
    )
    .in_unit(Unit::Ratio),
    Number::gauge("calls_waiting", "New calls waiting in the queue", |c| {
        c.in_force.waiting.get().into()
    }),
    Number::gauge("route_key_version", "Version of the key that makes route tokens", |c| {
        c.in_force.key_version.get().into()
    }),
    Number::counter(
        "rejections_missed",
        "Rejections missing in `/rejections` because another thread was reading the list at that \
         time",
        |c| c.rejections.missed.get().into(),
    ),
];

/// Adds the metrics of this file for one shard.
pub(super) fn add(samples: &mut Samples, shard: &str, counters: &Counters) {
    let in_force = &counters.in_force;
    if let Some(law) = name_at(&in_force.law) {
        samples.push(&LAW, &[("shard", shard), ("law", law)], 1);
    }
    samples.push_each(&ALONE, &[("shard", shard)], counters);
    for (outcome, counter) in [
        ("applied", &in_force.operator_commands),
        ("rejected", &in_force.operator_commands_rejected),
    ] {
        samples.push(&COMMANDS, &[("shard", shard), ("outcome", outcome)], counter.get());
    }
    let Some(law) = name_at(&in_force.shadow) else { return };
    samples.push(&SHADOW, &[("shard", shard), ("law", law)], 1);
    for bucket in Bucket::ALL {
        let rejecting = millionths(&in_force.rejecting_of_shadow[bucket as usize]);
        let labels = [("shard", shard), ("bucket", bucket.name())];
        samples.push(&ALLOWANCE, &labels, 1.0 - rejecting);
        compared(samples, shard, bucket, in_force.compared[bucket as usize].get());
    }
}

fn compared(samples: &mut Samples, shard: &str, bucket: Bucket, compared: Compared) {
    let Compared { both, only_real, only_shadow, neither } = compared;
    for (law, shadow, count) in [
        ("admitted", "admitted", both),
        ("admitted", "rejected", only_real),
        ("rejected", "admitted", only_shadow),
        ("rejected", "rejected", neither),
    ] {
        let labels =
            [("shard", shard), ("bucket", bucket.name()), ("law", law), ("shadow", shadow)];
        samples.push(&COMPARED, &labels, count);
    }
}
