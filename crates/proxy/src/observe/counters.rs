//! What a shard counts. One writer, many readers.

use std::sync::Arc;

use tidegate_control::{Reason, Tier};
use tidegate_world::{Counter, Histogram};

use crate::lookup::LookupCounters;
use crate::message::class::Class;
use crate::observe::call_entry::CallAnswer;
use crate::observe::gauges::Gauges;
use crate::observe::in_force::InForce;
use crate::observe::rejections::Refusals;
use crate::rejection::DropReason;
use crate::rejection::reply_reason::ReplyReason;
use crate::resolution::ResolutionCounters;

/// Statuses that the proxy itself answers with.
pub const REPLIES: [u16; 21] = [
    100, 200, 400, 403, 404, 408, 416, 417, 420, 430, 440, 480, 481, 482, 483, 487, 500, 503, 504,
    505, 513,
];

/// A shard's counters.
#[derive(Debug, Default)]
pub struct Counters {
    received: [Counter; Class::ALL.len()],
    dropped: [Counter; DropReason::ALL.len()],
    replied: [Counter; REPLIES.len()],
    replied_for: [ByReason; REPLIES.len()],
    refused: [Counter; Reason::ALL.len()],
    shed: [Counter; Class::ALL.len()],
    sojourns: [Histogram; 2],
    /// What overload control sees and decides.
    pub overload: Gauges,
    /// What is in force of what operators can change.
    pub in_force: InForce,
    /// Some of what was refused.
    pub refusals: Refusals,
    /// The entries of the call that an operator asked for last.
    pub call: CallAnswer,
    /// Messages that claim to belong to a call or a transaction, and do not.
    pub strays: Counter,
    /// Requests that repeat one seen before.
    pub retransmissions: Counter,
    /// Requests forwarded.
    pub requests_forwarded: Counter,
    /// Responses forwarded.
    pub responses_forwarded: Counter,
    /// Requests sent again because nothing answered them, our CANCELs among them.
    pub requests_resent: Counter,
    /// Probes of back ends.
    pub probes: Counter,
    /// Those of them that were sent out of turn, because something spoke against the back end.
    pub questions: Counter,
    /// Responses sent again, for a repeated request or because no ACK came.
    pub responses_resent: Counter,
    /// Refused requests that were not tried once more, because the budget for that was spent.
    pub failovers_denied: Counter,
    /// Responses not sent because their target has not shown that it receives any, and the request
    /// was short.
    pub responses_withheld: Counter,
    /// Repetitions of back ends' requests not sent to a caller that has never shown that it receives
    /// what is sent to it.
    pub requests_withheld: Counter,
    /// Branches cancelled by us.
    pub cancels: Counter,
    /// Transactions that ended without what they waited for.
    pub timeouts: Counter,
    /// Server transactions that live now.
    pub server_transactions: Counter,
    /// Client transactions that live now.
    pub client_transactions: Counter,
    /// New calls and single requests that were routed, by the tier in which they are served.
    served: [Counter; Tier::ALL.len()],
    /// Messages handed to another shard.
    pub crossings: Counter,
    /// Calls moved to another back end because theirs is down.
    pub moved: Counter,
    /// Entries in the call table now.
    pub calls: Counter,
    /// Transactions of calls that wait for a final response now.
    pub transactions_open: Counter,
    /// Finished calls forgotten early to make room.
    pub calls_evicted: Counter,
    /// Answered calls that nobody ended: given up when their session had expired, or after the
    /// idle time.
    pub calls_abandoned: Counter,
    /// Calls refused because the call table is full of calls that are not over.
    pub calls_refused: Counter,
    /// New calls refused because their source has its share of the call table.
    pub calls_over_share: Counter,
    /// New requests refused because the table of transactions is full.
    pub transactions_refused: Counter,
    /// New requests refused because their source has its share of that table.
    pub transactions_over_share: Counter,
    /// Bytes that transactions hold now.
    pub transaction_bytes: Counter,
    /// Bytes that they may hold.
    pub transaction_bytes_max: Counter,
    /// Messages waiting in the class queues now.
    pub queued: Counter,
    /// Requests that wait for a name or a look-up now.
    pub parked: Counter,
    /// Times that requests were parked until an answer came.
    pub parked_all: Counter,
    /// Names in requests, and what became of them.
    pub resolution: Arc<ResolutionCounters>,
    /// Look-ups, and what became of them.
    pub lookups: Arc<LookupCounters>,
}

/// A counter for each reason of a reply.
#[derive(Debug)]
struct ByReason([Counter; ReplyReason::ALL.len()]);

impl Default for ByReason {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl Counters {
    /// Messages received of a class, counted before any is refused.
    pub fn received(&self, class: Class) -> &Counter {
        &self.received[class as usize]
    }

    /// Messages dropped for a reason.
    pub fn dropped(&self, why: DropReason) -> &Counter {
        &self.dropped[why as usize]
    }

    /// New work refused for a reason.
    pub fn refused(&self, why: Reason) -> &Counter {
        &self.refused[why as usize]
    }

    /// Messages of a class that belong to work that was begun and were not admitted: where
    /// those are shed too.
    pub fn shed(&self, class: Class) -> &Counter {
        &self.shed[class as usize]
    }

    /// Times from arrival to the start of service, of new work or of all else that was served.
    pub fn sojourns(&self, is_new: bool) -> &Histogram {
        &self.sojourns[usize::from(!is_new)]
    }

    /// New calls and single requests that were routed to be served in a tier.
    pub fn served(&self, tier: Tier) -> &Counter {
        &self.served[tier as usize]
    }

    /// Replies made with a status of [`REPLIES`]; any other is counted as 400.
    pub fn replied(&self, status: u16) -> &Counter {
        &self.replied[place(status)]
    }

    /// Replies made with a status of [`REPLIES`] for a reason.
    pub fn replied_for(&self, status: u16, reason: ReplyReason) -> &Counter {
        &self.replied_for[place(status)].0[reason.index()]
    }

    /// Counts a reply.
    pub(crate) fn count_reply(&self, status: u16, reason: ReplyReason) {
        let place = place(status);
        self.replied[place].add(1);
        self.replied_for[place].0[reason.index()].add(1);
    }
}

/// The place of a status in [`REPLIES`]; that of 400 for any that is not there.
fn place(status: u16) -> usize {
    let known = REPLIES.iter().position(|&known| known == status);
    debug_assert!(known.is_some(), "{status} is to be counted, so it belongs to them");
    known.unwrap_or(2)
}
