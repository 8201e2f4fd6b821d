//! A response context: what is held of one request.

use std::collections::VecDeque;
use std::net::SocketAddr;

use smallvec::SmallVec;
use tidegate_sip::Method;
use tidegate_transaction::{Client, OtherClient, Server};
use tidegate_world::{Flow, Timestamp};

use crate::dialog::CallRef;
use crate::message::contacts::Contacts;
use crate::message::transaction_branch::TargetTag;
use crate::rewrite::ForwardPlan;
use crate::settings::Member;
use crate::shares::Bucket;
use crate::target::Target;
use crate::transaction::best::Best;
use crate::transaction::reason::Reason;
use crate::transport::budget::Budget;

/// Bytes that a context takes beside the messages that it holds, about.
const CONTEXT_BYTES: usize = size_of::<Context>() + size_of::<Live>();

/// The "response context" of RFC 3261 §16.2. Without [`Live`] it only absorbs repetitions.
pub(crate) struct Context {
    pub(crate) server: Server,
    pub(crate) identity: u64,
    pub(crate) method: Method,
    /// Where responses leave, and where they go.
    pub(crate) back: Flow,
    pub(crate) call: CallRef,
    pub(crate) branches: SmallVec<[Branch; 1]>,
    /// Whether it goes to a back end, and not from one.
    pub(crate) toward_backend: bool,
    /// Whether a user sends it to who has called.
    pub(crate) to_caller: bool,
    /// Bytes received and sent back.
    pub(crate) budget: Budget,
    /// What its branches have for the detection of loops.
    pub(crate) loop_hash: u32,
    /// The last response that was sent, as long as it may have to be sent again.
    pub(crate) last: Option<Box<[u8]>>,
    pub(crate) live: Option<Box<Live>>,
    /// Share of the table that it counts in, if it was counted when it began.
    pub(crate) share: Option<Bucket>,
    /// As which it is counted in the metrics.
    pub(crate) counted: Counted,
}

/// What a context was counted as when it was last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Client transactions that live.
    pub(crate) clients: u8,
    /// The server transaction lives.
    pub(crate) server: bool,
    /// It has no final response, or that waits for its ACK.
    pub(crate) unfinished: bool,
    /// Bytes that it takes.
    pub(crate) bytes: u32,
}

/// A client transaction, and where it went.
pub(crate) struct Branch {
    pub(crate) client: Client,
    /// Its name in our branch parameter.
    pub(crate) tag: TargetTag,
    pub(crate) target: Target,
    /// The back end there, if it is one of ours.
    pub(crate) member: Option<Member>,
    pub(crate) egress: u8,
    /// Request-URI and Route of what was sent, for the ACK of a final response that comes again.
    pub(crate) hop: Option<Box<[u8]>>,
}

/// What is held until the request is answered and no branch is left that may have to be sent
/// again or cancelled.
pub(crate) struct Live {
    /// The request as it was received.
    pub(crate) request: Box<[u8]>,
    /// How it goes on, but for the target.
    pub(crate) plan: ForwardPlan,
    /// One for each branch.
    pub(crate) pending: SmallVec<[Pending; 1]>,
    /// Where another target may come from: the pool, and what its policy chooses by.
    pub(crate) choice: Option<(u16, u64)>,
    /// Targets of the name or the user in the request that were not tried, the first to be tried
    /// first.
    pub(crate) others: Vec<Target>,
    /// The Request-URIs for the targets of `branches`, and then for those of `others`, if they are
    /// contacts of a user.
    pub(crate) contacts: Option<Box<Contacts>>,
    /// It goes before others.
    pub(crate) has_priority: bool,
    /// Source of the request.
    pub(crate) source: SocketAddr,
    /// Targets have answered it with 503.
    pub(crate) is_refused: bool,
    /// When a request other than INVITE is answered with 100, RFC 4320 §4.1.
    pub(crate) trying: Option<Timestamp>,
    /// Groups of a fork whose turn has not come: indices of back ends.
    pub(crate) groups: VecDeque<Vec<u16>>,
    /// The best final response so far.
    pub(crate) best: Option<Box<Best>>,
    /// The caller has cancelled it, or a final response has made all others needless.
    pub(crate) is_cancelled: bool,
    /// Reason in our CANCELs: that of the first cancellation.
    pub(crate) reason: Option<Reason>,
}

/// What a branch that waits for its final response needs beyond its client transaction.
pub(crate) struct Pending {
    /// When it was sent, or last answered.
    pub(crate) since: Timestamp,
    /// When it is given up for another target.
    pub(crate) failover: Option<Timestamp>,
    /// Timer C.
    pub(crate) timer_c: Option<Timestamp>,
    pub(crate) cancel: Cancel,
    /// Its share of the Max-Breadth.
    pub(crate) breadth: u32,
    /// The transport could not deliver it: the status that this counts as.
    pub(crate) unreachable: Option<u16>,
    /// Time of the next check whether the connection has ended on which it waits for an answer.
    pub(crate) check: Option<Timestamp>,
    /// What it answers counts no more: it was given up.
    pub(crate) is_abandoned: bool,
    /// It has begun something, and its target has not taught yet that it does not take that.
    pub(crate) may_teach: bool,
}

/// How far the CANCEL of a branch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancel {
    /// Nobody has asked for it.
    No,
    /// RFC 3261 §9.1: "If no provisional response has been received, the CANCEL request MUST NOT
    /// be sent; rather, the client MUST wait for the arrival of a provisional response".
    Wanted {
        /// When the branch ends whatever comes.
        until: Timestamp,
    },
    /// It was sent.
    Sent {
        client: OtherClient,
        /// When the branch ends whatever comes.
        until: Timestamp,
        /// Whether a reason was known then: its copies say the same.
        has_reason: bool,
    },
}

impl Cancel {
    /// When the branch ends whatever comes.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        match *self {
            Self::No => None,
            Self::Wanted { until } | Self::Sent { until, .. } => Some(until),
        }
    }
}

impl Pending {
    fn deadline(&self, client: &Client) -> Option<Timestamp> {
        let cancel = match &self.cancel {
            Cancel::Sent { client, .. } => client.deadline(),
            _ => None,
        };
        let waits = client.is_pending();
        let failover = self.failover.filter(|_| client.is_unanswered());
        let check = self.check.filter(|_| client.is_unanswered());
        let until = self.cancel.until();
        let limits = [failover, check, self.timer_c, until].into_iter().flatten();
        limits.filter(|_| waits).chain(cancel).min()
    }

    /// Whether it may yet have to be cancelled, or its CANCEL sent again.
    fn is_live(&self, client: &Client) -> bool {
        client.is_pending() || self.cancel_waits()
    }

    fn cancel_waits(&self) -> bool {
        matches!(&self.cancel, Cancel::Sent { client, .. } if client.is_pending())
    }
}

impl Context {
    /// The branch with this tag.
    pub(crate) fn branch_at(&self, tag: TargetTag) -> Option<usize> {
        self.branches.iter().position(|branch| branch.tag == tag)
    }

    /// When something is next due.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let clients = self.branches.iter().filter_map(|branch| branch.client.deadline());
        let pending = self.live.iter().flat_map(|live| live.pending.iter());
        let pending = pending.zip(&self.branches).filter_map(|(p, b)| p.deadline(&b.client));
        let trying = self.live.as_ref().and_then(|live| live.trying);
        let trying = trying.filter(|_| self.server.is_pending());
        clients.chain(pending).chain(self.server.deadline()).chain(trying).min()
    }

    /// Lets go of what only a live request needs.
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
            // Acknowledged, or a 2xx, which its callee repeats.
            self.last = None;
        }
    }

    /// True once nothing can come that it would know what to do with.
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
            // A response repeats most of what its request says: there must be room for it once the
            // request is in.
            let reason = live.reason.as_ref().map_or(0, |reason| reason.lines().len());
            (live.request.len() + reason, (last + best).max(live.request.len()))
        });
        let hops = self.branches.iter().flat_map(|branch| &branch.hop);
        let hops = hops.map(|hop| hop.len()).sum::<usize>();
        let bytes = CONTEXT_BYTES + request + responses + hops;
        Counted {
            bytes: bytes as u32,
            clients: clients.try_into().unwrap_or(u8::MAX),
            server: !self.server.is_terminated(),
            unfinished: self.server.is_pending() || self.server.awaits_ack(),
        }
    }
}
