//! `answers`: an INVITE that a proxy has accepted (answered with 100) gets a final response.
//!
//! This is asserted for proxies that keep transactions. If such a proxy gets no final response to
//! an INVITE, it sends its own (RFC 3261 §16.7 item 6: "If there are no final responses in the
//! context, the proxy MUST send a 408 (Request Timeout) response to the server transaction"; §16.8:
//! Timer C ends INVITEs that only ring). Without a final response, the caller waits until it loses
//! patience, because RFC 3261 §17.1.1.2 has no timer after a 100.
//!
//! Nothing is asserted about INVITEs that a proxy has not accepted: they may have been lost at a
//! full queue, or dropped on purpose. In a crash the proxy forgets the INVITEs that it has
//! accepted, and their callers wait until they lose patience. So the rule is asserted only for
//! INVITEs that the proxy accepted after its last crash.

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use super::Findings;
use super::books::Book;
use super::lives::Lives;
use super::recent::Recent;
use super::seen::{Seen, Transaction};
use crate::node_id::NodeId;

/// The checker's name.
pub const NAME: &str = "answers";

#[derive(Debug, Default)]
struct Taken {
    /// Time at which the proxy answered the INVITE with 100, or `None` if it has not.
    at: Option<Timestamp>,
    answered: bool,
}

#[derive(Debug, Default)]
pub(super) struct Answers(Recent<Transaction, Taken>);

impl Answers {
    pub(super) fn on_sent(&mut self, seen: &Seen) {
        let Some(status) = seen.status() else { return };
        if !seen.is_of_stateful() || seen.method != Method::Invite {
            return;
        }
        let Some(taken) = self.0.entry(seen.now, seen.transaction()) else { return };
        match status {
            100 => taken.at = taken.at.or(Some(seen.now)),
            ..200 => {}
            _ => taken.answered = true,
        }
    }

    pub(super) fn finish(&self, books: &[(NodeId, Book)], lives: &Lives, found: &mut Findings) {
        for (node, book) in books {
            // If no connection accepted a final response, the tap has not seen it, but the proxy
            // counts it as sent.
            let unsent = match book {
                Book::Proxy(book) => book.unsent as usize,
                _ => 0,
            };
            let is_left = |taken: &Taken| {
                let of_this_life = taken.at.is_some_and(|at| !lives.is_of_another_life(*node, at));
                of_this_life && !taken.answered
            };
            let of_node = self.0.iter().filter(|((at, ..), _)| at == node);
            let left = of_node.filter(|(_, taken)| is_left(taken)).count();
            if left > unsent {
                let what =
                    format!("{left} INVITEs were answered with 100 and got no final response");
                found.report(NAME, Some(*node), what);
            }
        }
    }

    pub(super) fn unwatched(&self) -> u64 {
        self.0.unwatched()
    }
}
