//! Computes the branch parameter of a request that is forwarded without state, and the parameter
//! that follows it in our Via.

use arrayvec::ArrayVec;
use tidegate_world::Received;

use crate::message::branch::{Branch, BranchText};
use crate::message::flow_param::{FLOW_PARAM, RequestFlow};
use crate::message::request::Request;
use crate::message::way_back::way_back;
use crate::snapshot::Snapshot;

/// Maximum length in bytes of the end of our Via: the branch and one more parameter.
const VIA_END_MAX: usize = 128;

/// Returns the text of the branch parameter for a request that is forwarded without state.
pub(crate) fn stateless_branch(
    snapshot: &Snapshot,
    received: &Received,
    request: &Request<'_>,
) -> BranchText {
    let ingress = snapshot.addresses.listener_at(&received.flow);
    let target = way_back(&request.essentials.via, &received.flow);
    branch_of(snapshot, received, request, ingress).encode(&snapshot.keys, target)
}

/// Returns the fields of the branch parameter for a request that came in at the listener `ingress`.
///
/// RFC 3261 §16.11: "Therefore, the component of the branch parameter that makes it unique MUST be
/// the same each time a retransmitted request is forwarded." A sender that has lost its connection
/// repeats or cancels its request on another connection, and another shard may have accepted that.
pub(super) fn branch_of(
    snapshot: &Snapshot,
    received: &Received,
    request: &Request<'_>,
    ingress: usize,
) -> Branch {
    let own = snapshot.addresses.listener(ingress);
    let is_wildcard = own.is_some_and(|own| own.local.ip().is_unspecified());
    let is_on_stream = received.flow.transport.is_reliable();
    Branch {
        listener: ingress as u8,
        asked: is_wildcard.then(|| received.flow.local.ip()),
        shard: if is_on_stream { 0 } else { snapshot.shard as u8 },
        identity: request.identity,
    }
}

/// Returns the end of our Via for a request that came on a stream and leaves with this branch. This
/// is the branch, and the parameter that names the connection and this shard. Returns `None` for a
/// datagram, because its Via ends with the branch.
pub(super) fn with_flow(
    snapshot: &Snapshot,
    received: &Received,
    branch: &BranchText,
) -> Option<ArrayVec<u8, VIA_END_MAX>> {
    let connection = received.flow.connection?;
    let branch = branch.as_bytes();
    let flow = RequestFlow { connection, shard: snapshot.shard as u8 };
    let flow = flow.encode(&snapshot.keys, branch);
    let parts = [branch, b";", FLOW_PARAM.as_bytes(), b"=", &flow];
    Some(parts.into_iter().flatten().copied().collect())
}
