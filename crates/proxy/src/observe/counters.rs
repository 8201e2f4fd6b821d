//! The counters of a shard. They have one writer and many readers.

use std::sync::Arc;

use tidegate_control::{Bucket, HeavySource, Reason, Tier};
use tidegate_world::{Counter, Histogram};

use crate::lookup::LookupCounters;
use crate::message::class::Class;
use crate::observe::call_entry::CallAnswer;
use crate::observe::gauges::Gauges;
use crate::observe::in_force::InForce;
use crate::observe::rejections::RejectionLog;
use crate::observe::upstream::UpstreamView;
use crate::observe::views::Views;
use crate::rejection::DropReason;
use crate::rejection::reply_reason::ReplyReason;
use crate::resolution::ResolutionCounters;

/// The statuses of the replies that the proxy itself generates.
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
    rejected: [Counter; Reason::ALL.len()],
    rejected_before: [Counter; Bucket::ALL.len()],
    rejected_after: [Counter; Bucket::ALL.len()],
    shed: [Counter; Class::ALL.len()],
    sojourns: [Histogram; 2],
    /// The signals and decisions of overload control.
    pub overload: Gauges,
    /// The values in force of the settings that operators can change.
    pub in_force: InForce,
    /// A sample of the rejections.
    pub rejections: RejectionLog,
    /// The entries of the call that an operator queried last.
    pub call: CallAnswer,
    /// Messages that claim to belong to a call or a transaction, but do not.
    pub strays: Counter,
    /// Received retransmissions of requests that were served. The gate counts retransmissions of
    /// requests that wait or were rejected.
    pub retransmissions: Counter,
    /// Forwarded requests.
    pub requests_forwarded: Counter,
    /// Forwarded responses.
    pub responses_forwarded: Counter,
    /// Requests retransmitted because no response came, including our CANCELs.
    pub requests_resent: Counter,
    /// Probes sent to back ends.
    pub probes: Counter,
    /// Probes sent before their regular time, because of evidence that the back end is dead.
    pub questions: Counter,
    /// Responses retransmitted, either for a repeated request or because no ACK came.
    pub responses_resent: Counter,
    /// Requests that a back end rejected and that did not fail over, because the budget for
    /// failovers was used up.
    pub failovers_denied: Counter,
    /// Responses that were not sent, as protection against amplification. Their target has not
    /// shown that it receives messages, and would have got more than `amplification_max` times the
    /// bytes received.
    pub responses_withheld: Counter,
    /// Retransmissions of requests from back ends and users that were not sent, because the target
    /// has never shown that it receives messages.
    pub requests_withheld: Counter,
    /// Requests sent over TCP because they are too long for a datagram.
    pub large_over_tcp: Counter,
    /// Large requests that were sent again by UDP, because they could not be sent over TCP.
    pub large_by_udp: Counter,
    /// REGISTER requests forwarded with our Path.
    pub paths_added: Counter,
    /// Requests sent to a phone on the flow on which it has registered.
    pub registered_flows: Counter,
    /// STUN binding requests answered.
    pub bindings_answered: Counter,
    /// Branches of INVITEs to which we have sent a CANCEL.
    pub cancels: Counter,
    /// Number of times that there was no room to remember an INVITE of the previous process, or the
    /// CANCEL of such an INVITE.
    pub lost_overflowed: Counter,
    /// Client transactions that timed out without a final response.
    pub timeouts: Counter,
    /// Number of server transactions now.
    pub server_transactions: Counter,
    /// Number of client transactions now.
    pub client_transactions: Counter,
    /// New calls and single requests that were routed, by tier of service.
    served: [Counter; Tier::ALL.len()],
    /// Calls moved to another back end, by a failover or because their own back end took no new
    /// work.
    pub moved: Counter,
    /// Current entries in the call table.
    pub calls: Counter,
    /// Entries in `calls` of calls that have ended. They are kept for retransmissions.
    pub calls_over: Counter,
    /// Transactions that wait for their final response, in all calls together.
    pub transactions_open: Counter,
    /// Finished calls evicted early to make room.
    pub calls_evicted: Counter,
    /// Answered calls without a BYE, removed when their session expired or after the idle time.
    pub calls_abandoned: Counter,
    /// Calls rejected because the call table is full of calls in progress.
    pub calls_rejected: Counter,
    /// New calls rejected because their source has used its share of the call table.
    pub calls_over_share: Counter,
    /// New requests rejected because the transaction table is full.
    pub transactions_rejected: Counter,
    /// New requests rejected because their source has used its share of the transaction table.
    pub transactions_over_share: Counter,
    /// Bytes that transactions use now.
    pub transaction_bytes: Counter,
    /// Maximum number of bytes that transactions may use.
    pub transaction_bytes_max: Counter,
    /// Messages that wait for service now.
    pub queued: Counter,
    /// Largest number of messages that have waited in one queue at the same time.
    pub queue_peak: Counter,
    /// Requests that wait for a DNS answer or a look-up now.
    pub parked: Counter,
    /// Number of times that a request was parked.
    pub parked_all: Counter,
    /// Resolutions of names in requests, by outcome.
    pub resolution: Arc<ResolutionCounters>,
    /// Look-ups of users, by outcome.
    pub lookups: Arc<LookupCounters>,
    /// The upstream peers that take part in overload feedback.
    pub upstream: Views<UpstreamView>,
    /// The sources that cause the overload. If there are any, the share of drops applies only to
    /// their messages.
    pub heavy: Views<HeavySource>,
    /// The heavy sources that flood with emergency calls, each with the rate of these calls. The
    /// share of drops applies to these calls, but not to emergency calls of other sources.
    pub emergency_floods: Views<HeavySource>,
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
    /// Returns the counter of received messages of a class. A message counts even if it is then
    /// rejected or dropped.
    pub fn received(&self, class: Class) -> &Counter {
        &self.received[class as usize]
    }

    /// Returns the counter of messages dropped for a reason.
    pub fn dropped(&self, why: DropReason) -> &Counter {
        &self.dropped[why as usize]
    }

    /// Returns the counter of new work rejected for a reason.
    pub fn rejected(&self, why: Reason) -> &Counter {
        &self.rejected[why as usize]
    }

    /// Returns, for one bucket, the counter of new work that was rejected before the gate decided
    /// on it. The gate has not counted this work.
    pub fn rejected_before(&self, bucket: Bucket) -> &Counter {
        &self.rejected_before[bucket as usize]
    }

    /// Returns, for one bucket, the counter of new work that the gate admitted, but that was
    /// rejected when its turn came. Here, work with priority counts as an ordinary call or single
    /// request.
    pub fn rejected_after(&self, bucket: Bucket) -> &Counter {
        &self.rejected_after[bucket as usize]
    }

    /// Returns the counter of messages of this class that were shed although they belong to
    /// existing work, such as a call. Only some configurations shed such messages.
    pub fn shed(&self, class: Class) -> &Counter {
        &self.shed[class as usize]
    }

    /// Returns the times from arrival to the start of service: those of new work if `is_new`,
    /// otherwise those of all other messages.
    pub fn sojourns(&self, is_new: bool) -> &Histogram {
        &self.sojourns[usize::from(!is_new)]
    }

    /// Returns the counter of new calls and single requests routed for service in a tier.
    pub fn served(&self, tier: Tier) -> &Counter {
        &self.served[tier as usize]
    }

    /// Returns the counter of replies with a status of [`REPLIES`]. Any other status counts as 400.
    pub fn replied(&self, status: u16) -> &Counter {
        &self.replied[place(status)]
    }

    /// Returns the counter of replies with a status of [`REPLIES`] for a reason.
    pub fn replied_for(&self, status: u16, reason: ReplyReason) -> &Counter {
        &self.replied_for[place(status)].0[reason.index()]
    }

    pub(crate) fn count_reply(&self, status: u16, reason: ReplyReason) {
        let place = place(status);
        self.replied[place].add(1);
        self.replied_for[place].0[reason.index()].add(1);
    }
}

/// Returns the index of a status in [`REPLIES`], or the index of 400 if it is not there.
fn place(status: u16) -> usize {
    let known = REPLIES.iter().position(|&known| known == status);
    debug_assert!(known.is_some(), "replies with {status} are not counted separately");
    known.unwrap_or(2)
}
