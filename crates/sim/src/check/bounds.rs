//! `bounds`: no table and no queue is ever longer than its limit, and no back end gets more calls
//! than its limit.
//!
//! The amount of state that a proxy would need depends on its peers. So the configuration limits
//! each kind of state, and the proxy rejects or counts the excess. This checker checks every node
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
            at_most("messages in one queue", book.longest_queue);
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

#[cfg(test)]
mod tests {
    use tidegate_world::Timestamp;

    use super::super::books::ProxyBook;
    use super::*;

    /// Each queue has its own limit: the sum of all queues may be far below their common limit.
    #[test]
    fn one_message_too_many_in_a_queue_is_found_while_the_other_queues_are_empty() {
        let found = |used| {
            let book = ProxyBook {
                queued: Fill { used, max: 7 * 8 },
                longest_queue: Fill { used, max: 8 },
                ..ProxyBook::default()
            };
            let mut found = Findings { now: Timestamp::ZERO, kept: Vec::new(), dropped: 0 };
            check(NodeId::new(0), &Book::Proxy(book), &mut found);
            found.kept.len()
        };
        assert_eq!([8, 9].map(found), [0, 1]);
    }
}
