//! `pool`: the balancing settings of a server.

use tidegate_balance::Entry;
use tidegate_balance::registry::POLICIES;
use tidegate_server::config::schema::of_pool::{POOL_LIMIT, POOL_PARAMS};
use tidegate_server::config::schema::{List, NamedOr, Real, Whole};
use tidegate_server::config_table;

config_table! {
    /// A part of a `[[variant]]` or `[[node]]`: it says how a server selects among its next hops,
    /// and which limits they have. An example is `pool = { policy = "tlwl", cps_max = [150, 75] }`.
    /// `params` and `limit`, as in `limit = { learn = "rejections" }`, are the tables
    /// `[pool.params]` and `[pool.limit]` of [the configuration](configuration.md). The first value
    /// of a list applies to the first next hop, and so on. A list that is too short is repeated, so
    /// a single value applies to all next hops.
    pub(in crate::scenario) static POOL: "[pool]" 0..=1, None, [POOL_PARAMS, POOL_LIMIT]
        => PoolTable, PoolDraft;

    /// The policy that selects the next hop of a call.
    policy: Option<&'static Entry> = NamedOr(&POLICIES, "fork"), Required;
    /// Maximum number of calls at each next hop: its `calls_max` in `[[pool.backend]]`.
    calls_max: Vec<u64> | None =
        List { of: Whole(1..=10_000_000), count_max: 64 }, Means("no limit");
    /// Maximum number of new calls and single requests a second to each next hop: its `cps_max` in
    /// `[[pool.backend]]`.
    cps_max: Vec<f64> | None =
        List { of: Real(0.1..=1_000_000.0), count_max: 64 }, Means("no limit");
}
