//! Metrics of the division of calls among the tiers of service.

use tidegate_control::Tier;
use tidegate_proxy::Counters;

use super::{millionths, seconds};
use crate::metrics::{Family, Samples, Unit};

static SERVED: Family = Family::counter(
    "work_routed",
    "New calls and single requests routed, by tier: `stateful` (with transactions) or `stateless`",
);
static STATEFUL: Family = Family::gauge(
    "stateful_share",
    "Share of new calls served with transactions, in pools with the mode `adaptive`",
)
.in_unit(Unit::Ratio);
static TARGET: Family = Family::gauge(
    "stateful_occupancy",
    "Occupancy up to which all new calls are served with transactions",
)
.in_unit(Unit::Ratio);
static COST: Family = Family::gauge(
    "tier_call_cost",
    "Time to serve all messages of a call, by tier, without the time in the kernel. 0 while the \
     time is not known",
)
.in_unit(Unit::Seconds);

/// Adds the metrics of one shard: the work routed in each tier. If pools of the shard have the mode
/// `adaptive`, also adds the share of calls with transactions and the cost of a call in each tier.
pub(super) fn add(samples: &mut Samples, shard: &str, counters: &Counters) {
    let gauges = &counters.overload;
    for tier in Tier::ALL {
        let labels = [("shard", shard), ("tier", tier.name())];
        samples.push(&SERVED, &labels, counters.served(tier).get());
    }
    if gauges.stateful_occupancy.get() == 0 {
        return;
    }
    for tier in Tier::ALL {
        let labels = [("shard", shard), ("tier", tier.name())];
        samples.push(&COST, &labels, seconds(&gauges.tier_costs[tier as usize]));
    }
    let labels = [("shard", shard)];
    samples.push(&STATEFUL, &labels, 1.0 - millionths(&gauges.stateless));
    samples.push(&TARGET, &labels, millionths(&gauges.stateful_occupancy));
}
