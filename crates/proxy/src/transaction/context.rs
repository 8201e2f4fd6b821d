//! A response context: the state of one forwarded request.

use std::collections::VecDeque;
use std::net::SocketAddr;

use smallvec::SmallVec;
use tidegate_sip::{Method, dialog_tags};
use tidegate_transaction::{Client, OtherClient, Server};
use tidegate_world::{Flow, Timestamp};

use crate::dialog::CallRef;
use crate::message::contacts::Contacts;
use crate::message::transaction_branch::TargetTag;
use crate::pushback::wire::OverloadOffer;
use crate::rewrite::Edits;
use crate::settings::BackendRef;
use crate::shares::SourceBucket;
use crate::target::Target;
use crate::transaction::best::Best;
use crate::transaction::reason::Reason;
use crate::transport::budget::Budget;

/// The approximate size of a context without its messages, in bytes.
const CONTEXT_BYTES: usize = size_of::<Context>() + size_of::<Live>();

/// The "response context" of RFC 3261 §16.2. A context without [`Live`] only absorbs
/// retransmissions.
pub(crate) struct Context {
    pub(crate) server: Server,
    pub(crate) identity: u64,
    pub(crate) method: Method,
    /// The flow on which responses are sent.
    pub(crate) back: Flow,
    pub(crate) call: CallRef,
    pub(crate) branches: SmallVec<[Branch; 1]>,
    /// True if the request goes to a back end, false if it comes from one.
    pub(crate) toward_backend: bool,
    /// True if the party to which the request goes has named the target address, and has not shown
    /// that the address is its own. This applies to requests from the called phone of a user to the
    /// caller, and to requests from a back end to an address other than the one from which the
    /// other party sends.
    pub(crate) is_claimed: bool,
    /// The number of bytes received from the caller and sent back to it.
    pub(crate) budget: Budget,
    /// The hash that detects loops (RFC 5393 §4.2). The branch parameter of each forwarded request
    /// contains it.
    pub(crate) loop_hash: u32,
    /// The final response that was sent, as long as it may have to be sent again.
    pub(crate) last: Option<Box<[u8]>>,
    pub(crate) live: Option<Box<Live>>,
    /// The bucket in which the context counts against the source's share of the table, or `None` if
    /// shares did not apply when the context was made.
    pub(crate) share: Option<SourceBucket>,
    /// The amounts that this context adds to the counts of the transaction table.
    pub(crate) counted: Counted,
}

/// The amounts that a context added to the counts of the transaction table when it was last put
/// back into the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Number of live client transactions.
    pub(crate) clients: u8,
    /// True if the server transaction is live.
    pub(crate) server: bool,
    /// True if the request may still get a final response from its targets, or the final response
    /// still waits for its ACK.
    pub(crate) unfinished: bool,
    /// The number of bytes that the context uses.
    pub(crate) bytes: u32,
}

/// A branch of a context: a client transaction and its target.
pub(crate) struct Branch {
    pub(crate) client: Client,
    /// The tag that identifies the target in the branch parameter of our Via.
    pub(crate) tag: TargetTag,
    pub(crate) target: Target,
    /// The back end of the call, if the call has one: the target, or the sender of the request.
    pub(crate) backend_ref: Option<BackendRef>,
    pub(crate) egress: u8,
    /// The index of the listener that our Record-Route names on the side of the target. For a large
    /// request that leaves over TCP, it is the listener for UDP.
    pub(crate) recorded: u8,
    /// True if the request of the branch was sent over TCP because it is too long for a datagram.
    pub(crate) is_large: bool,
    /// True if the request could not be sent over TCP, and another branch sends it by UDP.
    pub(crate) is_sent_by_udp: bool,
    /// The overload control that the request of the branch offers.
    pub(crate) offer: OverloadOffer,
    /// Request-URI and Route of the sent INVITE, which the ACKs to its final response repeat.
    /// `None` until the INVITE has a final response other than a 2xx.
    pub(crate) hop: Option<Box<[u8]>>,
}

/// The state of a request in progress. It is kept until the request has its final response and no
/// branch may need a retransmission or a CANCEL.
pub(crate) struct Live {
    /// The received request.
    pub(crate) request: Box<[u8]>,
    /// The last provisional response that was sent to the caller, except a 100.
    pub(crate) provisional: Option<Box<[u8]>>,
    /// The changes that forwarding makes to the request for every target.
    pub(crate) edits: Edits,
    /// The Max-Breadth that all concurrent branches share.
    pub(crate) breadth: u32,
    /// The state of each branch beyond its client transaction, in the order of
    /// [`Context::branches`].
    pub(crate) pending: SmallVec<[Pending; 1]>,
    /// The pool in which the request may fail over, and the key by which the policy of the pool
    /// selects a back end.
    pub(crate) choice: Option<(u16, u64)>,
    /// The further targets of the request that are known in advance.
    pub(crate) further: Option<Box<Further>>,
    pub(crate) has_priority: bool,
    /// The source of the request, if responses go to another address.
    pub(crate) source: Option<Box<SocketAddr>>,
    /// True if a target has answered with 503.
    pub(crate) is_rejected: bool,
    /// The time at which to send the 100 for a request other than INVITE (RFC 4320 §4.1).
    pub(crate) trying: Option<Timestamp>,
    /// The time after which the caller no longer retransmits the request: 64·T1 after the request
    /// arrived.
    pub(crate) expires: Timestamp,
    /// True once all targets of a request other than INVITE have ended without a response that may
    /// be forwarded.
    pub(crate) is_expiring: bool,
    /// The best final response so far.
    pub(crate) best: Option<Box<Best>>,
    /// True if the caller has cancelled the request, or a final response has made the other
    /// branches unnecessary.
    pub(crate) is_cancelled: bool,
    /// The Reason in our CANCELs, set by the first event that cancelled the request.
    pub(crate) reason: Option<Reason>,
}

/// The further targets of a request that are known in advance. A failover to a single back end of
/// the pool does not need this list, because the policy selects the back end at the failover.
#[derive(Default)]
pub(crate) struct Further {
    /// The targets that were not tried yet, in the order of attempts: the addresses of the host in
    /// the request, the contacts of its user, or the Contact of a party whose connection may have
    /// ended.
    pub(crate) others: VecDeque<Target>,
    /// The Request-URIs of the contacts of a user: those of the branches, and then those of
    /// `others`. `None` if the targets are not contacts of a user.
    pub(crate) contacts: Option<Box<Contacts>>,
    /// The groups of a fork that were not tried yet, as indices of back ends.
    pub(crate) groups: VecDeque<Vec<u16>>,
}

/// The state that a branch needs until its final response, in addition to its client transaction.
pub(crate) struct Pending {
    /// The time when the request was sent, or when the last provisional response arrived.
    pub(crate) since: Timestamp,
    /// The time at which the request counts as failed if the target has sent no response. The
    /// request then goes to another target if it may. `None` if there is no such time.
    pub(crate) failover: Option<Timestamp>,
    /// True if the missing response of the target has been recorded as a failure.
    pub(crate) is_silent: bool,
    /// The time at which Timer C fires, or `None` without Timer C.
    pub(crate) timer_c: Option<Timestamp>,
    pub(crate) cancel: Cancel,
    /// The branch's share of the Max-Breadth.
    pub(crate) breadth: u32,
    /// The status to assume because the transport could not deliver the request, or `None` if no
    /// failure is known.
    pub(crate) unreachable: Option<u16>,
    /// True if the transport did not send the request because the target reads its connection too
    /// slowly.
    pub(crate) is_backed_up: bool,
    /// The time of the next check whether the connection of the branch has ended, or `None` over
    /// UDP.
    pub(crate) check: Option<Timestamp>,
    /// True if another branch has replaced this branch, or Timer C has fired. The responses of the
    /// branch no longer count.
    pub(crate) is_abandoned: bool,
    /// True if the request is new work. Only rejections of new work show that a back end is
    /// overloaded.
    pub(crate) is_new: bool,
    /// True if a failure of the request may still be recorded against its target: the request is
    /// new work, and no such failure has been recorded yet.
    pub(crate) may_teach: bool,
}

/// The progress of the CANCEL of a branch.
#[derive(Debug)]
pub(crate) enum Cancel {
    /// No CANCEL is wanted.
    No,
    /// The CANCEL waits for a provisional response.
    ///
    /// RFC 3261 §9.1: "If no provisional response has been received, the CANCEL request MUST NOT be
    /// sent; rather, the client MUST wait for the arrival of a provisional response".
    Wanted {
        /// The time at which the branch ends even without a final response.
        until: Timestamp,
    },
    /// The CANCEL was sent.
    Sent(Box<SentCancel>),
}

/// A CANCEL that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentCancel {
    pub(crate) client: OtherClient,
    /// The time at which the branch ends even without a final response.
    pub(crate) until: Timestamp,
    /// True if the CANCEL was sent with a Reason. Retransmissions of the CANCEL must be equal, so
    /// they have the same Reason.
    pub(crate) has_reason: bool,
}

impl Cancel {
    /// Returns the time at which the branch ends even without a final response, or `None` if no
    /// CANCEL is wanted.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        match self {
            Self::No => None,
            Self::Wanted { until } => Some(*until),
            Self::Sent(sent) => Some(sent.until),
        }
    }
}

impl Pending {
    fn add_deadlines(&self, client: &Client, next: &mut Earliest) {
        if client.is_pending() {
            if client.is_unanswered() {
                next.add(self.failover);
                next.add(self.check);
            }
            next.add(self.timer_c);
            next.add(self.cancel.until());
        }
        if let Cancel::Sent(sent) = &self.cancel {
            next.add(sent.client.deadline());
        }
    }

    /// Returns whether the branch may still need a CANCEL, or a retransmission of one.
    fn is_live(&self, client: &Client) -> bool {
        client.is_pending() || self.cancel_waits()
    }

    fn cancel_waits(&self) -> bool {
        matches!(&self.cancel, Cancel::Sent(sent) if sent.client.is_pending())
    }
}

impl Live {
    /// Returns the source of the request. `back` is the flow of its responses.
    pub(crate) fn source(&self, back: &Flow) -> SocketAddr {
        self.source.as_deref().copied().unwrap_or(back.remote)
    }

    /// Returns whether the request has no To-tag.
    pub(crate) fn is_outside(&self) -> bool {
        dialog_tags(&self.request).is_some_and(|(_, to)| to.is_empty())
    }

    /// Returns the Request-URIs for the targets, if these are contacts of a user.
    pub(crate) fn contacts(&self) -> Option<&Contacts> {
        self.further.as_ref()?.contacts.as_deref()
    }

    /// Removes and returns the next group of a fork.
    pub(crate) fn next_group(&mut self) -> Option<Vec<u16>> {
        self.further.as_mut()?.groups.pop_front()
    }

    /// Returns whether no back end has got the request, because every back end that was tried reads
    /// its connection too slowly.
    pub(crate) fn is_backed_up(&self) -> bool {
        self.choice.is_some() && self.pending.iter().all(|pending| pending.is_backed_up)
    }

    /// Returns whether a provisional response other than 100 was sent to the caller. After such a
    /// response the request does not fail over.
    pub(crate) fn is_ringing(&self) -> bool {
        self.provisional.is_some()
    }
}

/// The earliest of several deadlines.
struct Earliest(Option<Timestamp>);

impl Earliest {
    #[inline(always)]
    fn add(&mut self, deadline: Option<Timestamp>) {
        if let Some(at) = deadline
            && self.0.is_none_or(|earliest| at < earliest)
        {
            self.0 = deadline;
        }
    }
}

impl Context {
    /// Returns the index of the branch with this tag.
    pub(crate) fn branch_at(&self, tag: TargetTag) -> Option<usize> {
        self.branches.iter().position(|branch| branch.tag == tag)
    }

    /// Returns whether the request has no To-tag and may still get a final response.
    pub(crate) fn awaits_outside(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.is_outside())
    }

    /// Returns the time at which the next timer of the context expires.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let mut next = Earliest(None);
        next.add(self.server.deadline());
        for branch in &self.branches {
            next.add(branch.client.deadline());
        }
        if let Some(live) = &self.live {
            for (pending, branch) in live.pending.iter().zip(&self.branches) {
                pending.add_deadlines(&branch.client, &mut next);
            }
            if self.server.is_pending() {
                next.add(live.trying);
                next.add(live.is_expiring.then_some(live.expires));
            }
        }
        next.0
    }

    /// Releases the state that only a request in progress needs.
    pub(crate) fn shed(&mut self) {
        if let Some(live) = &self.live {
            let mut branches = self.branches.iter().zip(&live.pending);
            let is_live = branches.any(|(branch, pending)| pending.is_live(&branch.client));
            if !self.server.is_pending() && !is_live {
                self.live = None;
            }
        }
        let is_invite = matches!(self.server, Server::Invite(_));
        if is_invite && !self.server.is_pending() && !self.server.awaits_ack() {
            // The response was acknowledged, or is a 2xx, which the callee retransmits.
            self.last = None;
        }
    }

    /// Returns whether no further message or timer can concern this context.
    ///
    /// RFC 3261 §16.7: "The proxy MUST maintain the response context until all of its associated
    /// transactions have been terminated, even after forwarding a final response."
    pub(crate) fn is_over(&self) -> bool {
        self.server.is_terminated()
            && self.live.is_none()
            && self.branches.iter().all(|branch| branch.client.is_terminated())
    }

    pub(crate) fn count(&self) -> Counted {
        let clients = self.branches.iter().filter(|branch| !branch.client.is_terminated()).count();
        let last = self.last.as_ref().map_or(0, |last| last.len());
        let (request, responses) = self.live.as_ref().map_or((0, last), |live| {
            let best = live.best.as_ref().map_or(0, |best| best.bytes.len());
            let provisional = live.provisional.as_ref().map_or(0, |response| response.len());
            let reason = live.reason.as_ref().map_or(0, |reason| reason.lines().len());
            // A response repeats most of its request, so memory for it is reserved when the request
            // arrives.
            (live.request.len() + reason, (provisional + best).max(live.request.len()))
        });
        let hops = self.branches.iter().flat_map(|branch| &branch.hop);
        let hops = hops.map(|hop| hop.len()).sum::<usize>();
        let bytes = CONTEXT_BYTES + request + responses + hops;
        let is_expiring = self.live.as_ref().is_some_and(|live| live.is_expiring);
        Counted {
            bytes: bytes as u32,
            clients: clients.try_into().unwrap_or(u8::MAX),
            server: !self.server.is_terminated(),
            unfinished: self.server.is_pending() && !is_expiring || self.server.awaits_ack(),
        }
    }
}
