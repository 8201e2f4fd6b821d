//! The stateful proxy: RFC 3261 §16 over the transactions of §17.
//!
//! One [`Context`](context::Context) for each request: its server transaction, and a client
//! transaction for each target. `open` makes it, `branches` sends the request on, `answer` takes responses in, `best` chooses
//! among them, `respond` sends one up, `failover` finds another target, `cancel` and `timeout` are
//! the other ways it can end, `matching` takes requests that belong to one, `teach` tells health
//! what its targets did.

mod answer;
mod best;
pub(crate) mod branches;
mod cancel;
pub(crate) mod context;
mod failover;
mod hop_by_hop;
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
