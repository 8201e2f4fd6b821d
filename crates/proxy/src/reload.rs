//! Reload: replaces pools and rules while calls continue.
//!
//! Calls and transactions refer to their back end by its slot ([`slots`](crate::backends::slots)).
//! A back end that is also in the new configuration keeps its slot.

use std::sync::Arc;

use hashbrown::HashSet;
use tidegate_balance::Backend;
use tidegate_world::Timestamp;

use crate::backends::health::spare;
use crate::backends::names::Names;
use crate::backends::probes::{Probes, probed};
use crate::backends::slots::{ANY, SlottedPools, assign_pool_slots, have_slots};
use crate::settings::{BackendRef, PoolSettings, Rule, RuleTarget};
use crate::snapshot::Snapshot;
use crate::state::RoutingState;
use crate::state::pickers::{picker_of, policy_of};
use crate::transaction::Transactions;

/// The parts of a shard that a reload changes.
pub(crate) struct Reloaded<'a> {
    pub(crate) snapshot: &'a mut Snapshot,
    pub(crate) routing: &'a mut RoutingState,
    pub(crate) transactions: &'a Transactions,
    pub(crate) probes: &'a mut Probes,
    pub(crate) names: &'a mut Names,
}

/// Switches to these pools and rules. The rules refer to the pools by their index in `pools`.
/// Returns `false`, and changes nothing, if there might not be enough slots for all back ends.
pub(crate) fn reload(
    now: Timestamp,
    shard: Reloaded<'_>,
    pools: Vec<PoolSettings>,
    rules: Vec<Rule>,
) -> bool {
    let Reloaded { snapshot, routing, transactions, probes, names } = shard;
    let sizes = pools.iter().map(|settings| (settings.pool.name(), settings.pool.backends().len()));
    if !have_slots(&snapshot.pools, sizes) {
        return false;
    }
    let held = held(routing, transactions);
    let was_probed: Vec<Arc<Backend>> = probed(snapshot).cloned().collect();
    let before = std::mem::take(&mut snapshot.pools);
    let SlottedPools { pools, places } =
        assign_pool_slots(before, pools, |slot| held.contains(&slot));
    let mut pickers: Vec<_> = std::mem::take(&mut routing.pickers).into_iter().map(Some).collect();
    pickers.resize_with(pools.len(), || None);
    let pickers = (0..).zip(pools.iter().zip(pickers)).map(|(place, (settings, old))| {
        let old = old.filter(|old| old.serves(policy_of(settings), &settings.pool));
        old.unwrap_or_else(|| picker_of(snapshot.seed, snapshot.shard, place, settings))
    });
    routing.pickers = pickers.collect();
    let rules = rules.into_iter().map(|rule| match rule.to {
        RuleTarget::Pool(pool) => Rule { to: RuleTarget::Pool(places[pool].into()), ..rule },
        RuleTarget::RequestUri | RuleTarget::Users => rule,
    });
    let rules = rules.collect();
    names.enlist(now, &pools);
    routing.tiering.enlist(&pools);
    snapshot.set_pools(now, pools, &places, rules);
    let is_probed: HashSet<_> = probed(snapshot).map(Arc::as_ptr).collect();
    let unprobed = was_probed.iter().filter(|b| !is_probed.contains(&Arc::as_ptr(b)));
    unprobed.for_each(|backend| backend.on_unprobed(now, snapshot.failure_pause));
    // In the new pools, other back ends may have to take calls despite failed requests.
    spare(now, snapshot);
    probes.enlist_backends(now, snapshot);
    true
}

/// Returns the slots of back ends to which calls or transactions still refer, each with the slot of
/// its pool. Also contains the slot of each of these pools, with [`ANY`] instead of a back end.
fn held(routing: &RoutingState, transactions: &Transactions) -> HashSet<(u16, u16)> {
    let slot = |backend_ref: BackendRef| {
        [(backend_ref.pool, backend_ref.backend), (backend_ref.pool, ANY)]
    };
    let mut held: HashSet<_> = routing.calls.backend_refs().flat_map(slot).collect();
    for context in transactions.contexts() {
        held.extend(context.branches.iter().filter_map(|branch| branch.backend_ref).flat_map(slot));
        let Some(live) = &context.live else { continue };
        let Some((pool, _)) = live.choice else { continue };
        held.insert((pool, ANY));
        held.extend(
            live.further
                .iter()
                .flat_map(|further| &further.groups)
                .flatten()
                .map(|&backend| (pool, backend)),
        );
    }
    held
}
