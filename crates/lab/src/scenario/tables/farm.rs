//! `[farm]`: a balancer in front of several servers.

use tidegate_server::config::schema::{List, Real, Table, Whole};

pub(in crate::scenario) static FARM: Table = Table {
    header: "[farm]",
    name: "farm",
    doc: "A farm of servers, instead of `[[node]]`. Callers send to `balancer`, which selects \
          among `server-1`, `server-2`, … with the `pool` of the variant. The balancer is as fast \
          as possible and has no overload control: it admits every call that the limits of the \
          servers allow. The servers are under test. Their costs are those in `[emulate]`, \
          divided by their speeds. The capacity is that of all servers together.",
    knobs: || vec![&NODES, &SPEEDS, &PAUSE_MS, &PAUSE_EVERY_S],
    ..Table::EMPTY
};

knobs! {
    /// Number of servers behind the balancer.
    NODES "nodes": Whole = Whole(1..=63), Default("8");
    /// Speeds of the servers. The first value applies to the first server, and so on. A list that
    /// is too short is repeated. At 0.5 all costs double. The balancer does not know the speeds.
    SPEEDS "speeds": List<Real> =
        List { of: Real(0.01..=100.0), count_max: 63 }, Means("all servers have the speed 1");
    /// Duration of each pause of a server. During a pause the server gets no processor time, as
    /// during garbage collection. A pause has the same effect as a `stall` in `[[fault]]`. The
    /// capacity and the load are computed without pauses. 0: no pauses.
    PAUSE_MS "pause_ms": Real = Real(0.0..=60_000.0), Default("0");
    /// Mean number of seconds from the end of a pause to the next pause of the same server. These
    /// times have an exponential distribution.
    PAUSE_EVERY_S "pause_every_s": Real = Real(0.01..=3600.0), Default("10");
}
