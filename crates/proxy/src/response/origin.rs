//! The way in which this proxy sent the request to which a response belongs, and the flow on which
//! the response goes back. Our Via and the Via below it contain both.

use std::net::{IpAddr, SocketAddr};

use tidegate_sip::{Passage, Via, connection_target, response_target};
use tidegate_transaction::{Handle, Key};
use tidegate_world::{ConnectionId, Flow};

use crate::message::branch::Branch;
use crate::message::flow_param::{FLOW_PARAM, RequestFlow};
use crate::message::transaction_branch::TransactionBranch;
use crate::rejection::DropReason;
use crate::snapshot::Snapshot;
use crate::transaction::Transactions;

/// The way in which this proxy sent the request to which a response belongs.
pub(crate) enum RequestOrigin {
    /// A transaction of this process sent the request. Contains the handle of its context, if any.
    Transaction(TransactionBranch, Option<Handle>),
    /// A transaction of an earlier process or another instance sent the request. By RFC 6026 §8.9 a
    /// proxy drops a response that matches no transaction, because it cannot know whether it sent
    /// the request. Here the MAC proves that this proxy sent the request. So a call that is set up
    /// during a restart survives.
    Before { shard: u8, listener: u8 },
    /// The request was sent without a transaction. The branch has all data for its response.
    Stateless(Branch),
}

impl RequestOrigin {
    /// Returns the shard that has the state of the request, if it is known. If this process has
    /// forwarded the request without a transaction, also returns the connection on which the
    /// request came.
    pub(super) fn place(
        &self,
        snapshot: &Snapshot,
        passage: &Passage<'_>,
    ) -> (Option<u8>, Option<ConnectionId>) {
        let (listener, shard) = match self {
            Self::Transaction(branch, _) => return (Some(branch.shard), None),
            Self::Before { listener, shard } => (*listener, *shard),
            Self::Stateless(branch) => (branch.listener, branch.shard),
        };
        let listener = snapshot.addresses.listener(listener.into());
        if listener.is_none_or(|own| !own.transport.is_reliable()) {
            return (Some(shard), None);
        }
        let (param, text) = (passage.own_param(FLOW_PARAM), passage.branch.unwrap_or_default());
        match param.and_then(|param| RequestFlow::decode(&snapshot.keys, param, text)) {
            Some(RequestFlow { connection, shard }) => (Some(shard), Some(connection)),
            // Only the branch of a transaction contains a shard if the request came on a stream.
            None => (matches!(self, Self::Before { .. }).then_some(shard), None),
        }
    }
}

/// Returns the way in which this proxy sent the request of a response, and the address to which the
/// response goes. `next` is the Via below ours. Returns `None` if the branch does not show that this
/// proxy sent the request.
pub(super) fn origin_and_target(
    snapshot: &Snapshot,
    transactions: &Transactions,
    passage: &Passage<'_>,
    next: &Via<'_>,
) -> Option<(RequestOrigin, SocketAddr)> {
    let origin_at = |remote| {
        let origin = request_origin(snapshot, transactions, passage, remote)?;
        Some((origin, remote))
    };
    let found = response_target(next).and_then(origin_at);
    // The MAC in our branch covers the target of the response. For a request that came on a stream,
    // this is the address to which a new connection would be opened.
    if found.is_none() && snapshot.addresses.has_streams() {
        return connection_target(next).and_then(origin_at);
    }
    found
}

/// Returns the way in which this proxy sent the request of a response. `remote` is the address to
/// which the response would go. Returns `None` if the branch does not show that this proxy sent the
/// request.
///
/// RFC 3261 §16.11: "If that address matches the proxy, [...] the proxy MUST remove that header
/// field value from the response and forward the result to the location indicated in the next Via
/// header field value." The MAC in the branch proves more than the address: it proves that this
/// proxy sent the request, and where its response goes. If a branch is still in the table, its
/// identity and its tag also prove that this proxy sent the request. The identity is a keyed hash
/// of the received request, and the tag is a keyed hash that includes the target. For such a
/// branch, the response context determines where the response goes.
pub(crate) fn request_origin(
    snapshot: &Snapshot,
    transactions: &Transactions,
    passage: &Passage<'_>,
    remote: SocketAddr,
) -> Option<RequestOrigin> {
    let keys = &snapshot.keys;
    let text = passage.branch.unwrap_or_default();
    let Some(claimed) = TransactionBranch::claimed(text) else {
        return Branch::decode(text, keys, remote).map(RequestOrigin::Stateless);
    };
    let is_own = claimed.is_own(keys);
    let key = Key::new(claimed.identity, passage.cseq.method);
    if is_own
        && let Some(handle) = transactions.find(key)
        && transactions.get(handle).is_some_and(|context| context.branch_at(claimed.tag).is_some())
    {
        return Some(RequestOrigin::Transaction(claimed, Some(handle)));
    }
    let branch = TransactionBranch::decode(text, keys, remote)?;
    let TransactionBranch { shard, listener, .. } = branch;
    Some(match is_own {
        true => RequestOrigin::Transaction(branch, None),
        false => RequestOrigin::Before { shard, listener },
    })
}

/// Returns the flow on which a response goes back to `remote`, except for the connection. Only the
/// Via and our branch determine this flow. `asked` is the local address at which the request
/// arrived, if its listener has a wildcard address.
pub(super) fn flow_back(
    snapshot: &Snapshot,
    listener: u8,
    asked: Option<IpAddr>,
    remote: SocketAddr,
) -> Result<Flow, DropReason> {
    let listener = snapshot.addresses.listener(listener.into());
    let listener = listener.ok_or(DropReason::ForeignResponse)?;
    let mut flow = Flow { transport: listener.transport, ..Flow::udp(listener.local, remote) };
    // RFC 3581 §4: "The response MUST be sent from the same address and port that the corresponding
    // request was received on."
    if let Some(asked) = asked {
        flow.local.set_ip(asked);
    }
    Ok(flow)
}
