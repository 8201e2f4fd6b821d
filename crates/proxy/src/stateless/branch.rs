//! The branch of a request that is forwarded without state.

use tidegate_world::Received;

use crate::message::branch::{Branch, BranchText};
use crate::message::request::Request;
use crate::message::way_back::way_back;
use crate::snapshot::Snapshot;

/// Returns the text of the branch for a request that is forwarded without state.
pub(crate) fn stateless_branch(
    snapshot: &Snapshot,
    received: &Received,
    request: &Request<'_>,
) -> BranchText {
    let ingress = snapshot.addresses.listener_at(&received.flow);
    let target = way_back(&request.essentials.via, &received.flow);
    branch_of(snapshot, received, request, ingress).encode(&snapshot.keys, target)
}

/// Returns the content of the branch for a request that came in at the listener `ingress`.
pub(super) fn branch_of(
    snapshot: &Snapshot,
    received: &Received,
    request: &Request<'_>,
    ingress: usize,
) -> Branch {
    let own = snapshot.addresses.listener(ingress);
    let is_wildcard = own.is_some_and(|own| own.local.ip().is_unspecified());
    Branch {
        listener: ingress as u8,
        asked: is_wildcard.then(|| received.flow.local.ip()),
        shard: snapshot.shard as u8,
        identity: request.identity,
    }
}
