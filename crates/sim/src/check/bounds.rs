//! `bounds`: no table and no queue is ever longer than its limit, and no back end gets more calls
//! than its limit.
//!
//! The peers of a proxy determine how much state it would need. So each kind of state has a limit
//! in its configuration, and the proxy rejects or counts the excess. This checker checks every node
//! at intervals and at the end. After a crash of a proxy, it asserts the same, because the new
//! process has the same limits.

use super::Findings;
use super::books::{Book, Fill};
use crate::node_id::NodeId;

/// The checker's name.
pub const NAME: &str = "bounds";

pub(super) fn check(node: NodeId, book: &Book, found: &mut Findings) {
    let mut at_most = |what: &str, Fill { used, max }: Fill| {
        if used > max {
            found.report(NAME, Some(node), format!("{used} {what}, but the limit is {max}"));
        }
    };
    match book {
        Book::Caller(book) => {
            at_most("open calls", Fill { used: book.open, max: book.open_max });
        }
        Book::Answerer(book) => {
            at_most("calls held", Fill { used: book.held, max: book.held_max });
        }
        Book::Proxy(book) => {
            at_most("calls in the table", book.calls);
            at_most("server transactions", book.server_transactions);
            at_most("queued messages", book.queued);
            at_most("remembered decisions", book.remembered);
            for held in &book.backends {
                if let Some(max) = held.calls_max {
                    let what = format!("calls on {}", held.name);
                    at_most(&what, Fill { used: held.calls, max });
                }
            }
        }
    }
}
