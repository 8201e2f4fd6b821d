//! The origin of the sender of a request, its permissions, and the proof that it receives messages.

use tidegate_sip::Method;
use tidegate_world::{Received, Timestamp};

use crate::dialog::evidence::Known;
use crate::message::flow_token::RegisteredFlow;
use crate::message::request::Request;
use crate::message::token::RouteToken;
use crate::network::{caller_of, canonical};
use crate::rejection::Rejection;
use crate::routing::route_set::RouteSet;
use crate::snapshot::Snapshot;
use crate::state::RoutingState;
use crate::transport::addresses::Origin;

/// Returns the origin of the sender of a request, and whether the sender is a removed back end.
/// `found` is the origin of the source address.
///
/// A removed back end (one that is no longer in the configuration) counts as trusted if the route
/// token of its request names its address. So it can end its dialogs. Any other unknown source
/// counts as the back end that its Via names, if there is one. If several back ends at one host
/// have opened connections, the Via also shows which of them has sent the request, because the
/// ports of these connections are arbitrary.
pub(super) fn origin_of_sender(
    now: Timestamp,
    snapshot: &Snapshot,
    received: &Received,
    request: &Request<'_>,
    found: Origin,
    routes: &RouteSet<'_>,
) -> (Origin, bool) {
    let (flow, via) = (&received.flow, &request.essentials.via);
    let addresses = &snapshot.addresses;
    let is_there = |token: RouteToken| match flow.transport.is_reliable() {
        true => addresses.may_be_connection_of(flow, via, token.backend, token.transport),
        false => token.backend == canonical(flow.remote),
    };
    let is_removed = || {
        let token = routes.token.filter(|token| addresses.was_removed(now, token.backend));
        token.is_some_and(is_there)
    };
    let is_accepted = || flow.connection.is_some_and(|connection| !connection.is_opened());
    match found {
        Origin::Stranger if is_removed() => (Origin::Trusted, true),
        Origin::Backend(_) if !is_accepted() => (found, false),
        Origin::Stranger | Origin::Backend(_) => {
            let named = addresses.backend_by_via(flow, via);
            (named.map_or(found, Origin::Backend), false)
        }
        Origin::Trusted => (found, false),
    }
}

/// Rejects a stranger's request whose Route names the flow of another phone.
///
/// Legitimate requests of this kind come from the registrar, which is a back end or a trusted
/// source. A stranger may have seen the flow token, so the token alone gives no permission.
pub(super) fn check_flow(named: Option<&RegisteredFlow>, origin: Origin) -> Result<(), Rejection> {
    match named {
        Some(_) if origin == Origin::Stranger => Err(Rejection::RELAYING),
        _ => Ok(()),
    }
}

/// Returns whether a request proves that its sender receives the messages sent to its source
/// address. The proof is a route token, which a caller can know only from a response. The token
/// names the party to which it was sent. So an attacker that sends a copy of the INVITE from its
/// own address gets a token that proves nothing about the address of the caller.
pub(super) fn proves_receipt(
    state: &RoutingState,
    received: &Received,
    request: &Request<'_>,
    routes: &RouteSet<'_>,
    known: &Known,
) -> bool {
    let Some(token) = routes.token else { return false };
    if request.essentials.to_tag.is_none() || !matches!(request.method, Method::Ack | Method::Prack)
    {
        return false;
    }
    let source = Some(caller_of(received.flow.remote.ip()));
    let party = token.peer.map(|peer| caller_of(peer.remote.ip()));
    let caller = match known.call.and_then(|call| state.calls.get(call)) {
        Some(entry) => Some(entry.caller),
        // The call of a user has no entry: the caller is the other party.
        None => party.filter(|_| token.is_user),
    };
    caller == source && (party.is_none() || party == source)
}
