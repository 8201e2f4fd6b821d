//! The stateful proxy: RFC 3261 §16 over the transactions of §17.
//!
//! Each request has one [`Context`](context::Context): its server transaction, and a client
//! transaction for each target. `open` creates the context, `branches` forwards the request,
//! `answer` handles responses, `best` chooses among them, `respond` sends one upstream, and
//! `failover` selects another target. `large` decides which requests leave over TCP because of
//! their length. `cancel` handles CANCELs, and `timeout` handles timers. `matching` handles
//! requests that belong to a context, and `teach` reports the behaviour of its targets to the
//! health checks.

mod answer;
mod best;
pub(crate) mod branches;
mod cancel;
pub(crate) mod context;
mod failover;
mod hop_by_hop;
pub(crate) mod large;
pub(crate) mod matching;
pub(crate) mod open;
mod reason;
mod respond;
pub(crate) mod table;
pub(crate) mod teach;
mod timeout;

pub(crate) use answer::serve_answer;
pub(crate) use table::Transactions;
pub(crate) use timeout::fire_expired;
