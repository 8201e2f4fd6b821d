//! `counts`: at the end, every count has returned to zero.
//!
//! A count that is incremented and never decremented does damage slowly. A back end that seems to
//! have calls forever gets fewer and fewer calls, or a table fills with entries that are never used
//! again. So when no event is left, there must be no calls, no transactions and no waiting messages
//! anywhere, and no back end may count as having work. The checker also asserts that this state is
//! reached: RFC 3261 gives every transaction an end (§17.1.1.2, §17.1.2.2, §17.2.1, §16.8 Timer C),
//! and the call table has an idle time.
//!
//! After a crash, the same is asserted for the new process. It is also asserted for the other ends
//! of the calls of the crashed process, because timers end the state of these calls.

use super::Findings;
use super::books::Book;
use crate::node_id::NodeId;

/// The checker's name.
pub const NAME: &str = "counts";

pub(super) fn check_quiet(quiet: bool, found: &mut Findings) {
    if !quiet {
        found.report(
            NAME,
            None,
            "events are still pending at the end, when nothing should be left".into(),
        );
    }
}

pub(super) fn check(node: NodeId, book: &Book, found: &mut Findings) {
    let mut none = |what: &str, left: u64| {
        if left != 0 {
            found.report(NAME, Some(node), format!("{left} {what} are left at the end"));
        }
    };
    match book {
        Book::Caller(book) => none("open calls", book.open),
        Book::Answerer(book) => {
            none("open calls", book.open);
            none("calls held", book.held);
        }
        Book::Proxy(book) => {
            none("calls in the table", book.calls.used);
            none("server transactions", book.server_transactions.used);
            none("client transactions", book.client_transactions);
            none("open transactions of calls", book.open);
            none("queued messages", book.queued.used);
            for backend in &book.backends {
                none(&format!("calls counted on back end {}", backend.name), backend.calls);
                none(&format!("work counted on back end {}", backend.name), backend.work);
            }
        }
    }
}
