//! `pool`: the balancing settings of a server.

use tidegate_balance::Policies;
use tidegate_balance::registry::POLICIES;
use tidegate_server::config::schema::{Absent, Knob, List, NamedOr, Real, Table, Whole, of_pool};

pub(in crate::scenario) static POOL: Table = Table {
    header: "[pool]",
    name: "pool",
    doc: "A part of a `[[variant]]` or `[[node]]`: it says how a server selects among its next \
          hops, and which limits they have. An example is `pool = { policy = \"tlwl\", cps_max = \
          [150, 75] }`. `params` and `limit`, as in `limit = { learn = \"rejections\" }`, are the \
          tables `[pool.params]` and `[pool.limit]` of [the configuration](configuration.md). The \
          first value of a list applies to the first next hop, and so on. A list that is too \
          short is repeated, so a single value applies to all next hops.",
    knobs: || vec![&POLICY, &CALLS_MAX, &CPS_MAX],
    tables: &[&of_pool::POOL_PARAMS, &of_pool::POOL_LIMIT],
    ..Table::EMPTY
};

pub(in crate::scenario) static POLICY: Knob<NamedOr<Policies>> = Knob {
    name: "policy",
    shape: NamedOr(&POLICIES, "fork"),
    absent: Absent::Required,
    doc: "The policy that selects the next hop of a call.",
};

pub(in crate::scenario) static CALLS_MAX: Knob<List<Whole>> = Knob {
    name: "calls_max",
    shape: List { of: Whole(1..=10_000_000), count_max: 64 },
    absent: Absent::Means("any number"),
    doc: "Maximum number of calls at each next hop: its `calls_max` in `[[pool.backend]]`.",
};

pub(in crate::scenario) static CPS_MAX: Knob<List<Real>> = Knob {
    name: "cps_max",
    shape: List { of: Real(0.1..=1_000_000.0), count_max: 64 },
    absent: Absent::Means("any number"),
    doc: "Maximum number of new calls and single requests a second to each next hop: its \
          `cps_max` in `[[pool.backend]]`.",
};
