//! The stateful proxy: RFC 3261 §16 over the transactions of §17.
//!
//! One [`Context`](context::Context) for each request: its server transaction, and a client
//! transaction for each target. `begin` makes it, `answer` takes responses in, `best` chooses
//! among them, `respond` sends one up, `next` finds another target, `cancel` and `timeout` are
//! the other ways it can end, `matching` takes requests that belong to one.

mod answer;
mod begin;
mod best;
mod breadth;
mod cancel;
mod context;
mod hop_by_hop;
mod loops;
mod matching;
mod next;
mod reason;
mod respond;
mod timeout;
mod transactions;

pub(crate) use begin::{FULL, SHARE_FULL, TIMER_C};
pub(crate) use context::{Branch, Context, Live, Pending};
pub(crate) use transactions::Transactions;
