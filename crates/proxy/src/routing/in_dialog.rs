//! Plans requests whose dialog or call is known: they go to the back end of that dialog or call.
//!
//! A request outside a dialog may have the Call-ID of a known call. If the request is additional
//! work for the back end of that call, the limits of the back end apply to it as to a new request
//! ([`begins`]).

use tidegate_balance::AdminState;
use tidegate_sip::Method;
use tidegate_world::{Flow, Received, Timestamp};

use crate::backends::unavailable::unavailable;
use crate::dialog::evidence::Known;
use crate::dialog::{Call, CallRef, Evidence, Transaction};
use crate::message::request::Request;
use crate::message::token::RouteToken;
use crate::network::canonical;
use crate::rejection::{DropReason, Rejection};
use crate::routing::route_set::RouteSet;
use crate::routing::select::{choice_key, demand_of};
use crate::routing::target_choice::TargetChoice;
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;
use crate::state::RoutingState;
use crate::target::Target;
use crate::transport::addresses::Origin;

/// Plans a request whose dialog or call is known. Returns `None` if neither is known. If
/// `known.is_new` is true, the request belongs to no dialog.
///
/// An ongoing call stays at its back end. If that back end has no headroom, a new request with the
/// Call-ID of the call is rejected. The call moves to another back end only if its back end is down
/// and has not answered the INVITE.
pub(super) fn in_dialog(
    now: Timestamp,
    snapshot: &Snapshot,
    state: &RoutingState,
    received: &Received,
    request: &Request<'_>,
    routes: &RouteSet<'_>,
    known: &Known,
) -> Option<TargetChoice> {
    if let Some(token) = routes.token
        && let Some(target_choice) = by_token(now, snapshot, state, received, request, token, known)
    {
        return Some(target_choice);
    }
    let call = known.call?;
    let entry = state.calls.get(call)?;
    let Call { backend_ref, answered, phase, has_priority: had_priority, .. } = *entry;
    if !known.is_new {
        return Some(TargetChoice::Stay { backend_ref, target: None, key: None });
    }
    let goes_on = phase.goes_on();
    // Like the first request of the call, a request outside a dialog may go to another back end.
    let key = choice_key(snapshot, state, backend_ref.pool, request, known.fingerprint);
    let Request { method, identity, .. } = *request;
    let begins = begins(now, state, Some(call), request, known.evidence, backend_ref);
    // Admission does not give priority to a retransmission, so it has the priority of its call.
    let demand = demand_of(method, request.has_priority || !begins && had_priority);
    if begins {
        return Some(TargetChoice::BeginWithin { backend_ref, key, demand, goes_on });
    }
    // A back end that is drained or has sent Retry-After finishes its calls.
    let is_kept = goes_on && (answered || method != Method::Invite);
    if is_kept || snapshot.backend(backend_ref).is_alive(now) {
        return Some(TargetChoice::Stay { backend_ref, target: None, key: Some(key) });
    }
    // A request whose transaction has ended does not move an ongoing call.
    if goes_on && state.calls.has_ended(call, Transaction { identity, method }) {
        return Some(TargetChoice::Halt(unavailable(now, snapshot, backend_ref.pool, None).into()));
    }
    // Either the client repeats its request because no response comes, or it starts again. In both
    // cases the request does not need the back end that is down.
    Some(TargetChoice::Move { pool: backend_ref.pool, demand })
}

/// Plans a request with a route token. Returns `None` if the token does not determine the target.
fn by_token(
    now: Timestamp,
    snapshot: &Snapshot,
    state: &RoutingState,
    received: &Received,
    request: &Request<'_>,
    token: RouteToken,
    known: &Known,
) -> Option<TargetChoice> {
    let Known { call, evidence, is_new, is_invented, .. } = *known;
    // Only back ends that are configured now, or were recently, are accepted.
    let was_removed = || snapshot.addresses.was_removed(now, token.backend);
    // A reload keeps a removed back end that has calls. The back end stays in the pool after the
    // calls have ended, and then counts only if it was removed recently.
    let is_accepted = |owner: &BackendRef| {
        let backend = snapshot.backend(*owner);
        backend.admin_state() != AdminState::Removed || !backend.is_idle() || was_removed()
    };
    let is_there = |entry: &&Call| snapshot.address_of(entry) == Some(token.backend);
    let entry = call.and_then(|call| state.calls.get(call)).filter(is_there);
    // A fork counts only one of its back ends. If another one was removed while it rang, only the
    // entry of the call knows it.
    let listed = snapshot.addresses.backend_ref(token.backend).filter(is_accepted);
    if let Some(owner) = listed.or(entry.map(|entry| entry.backend_ref)) {
        // After a reload another back end may have the address in the token. The call still counts
        // for the back end at which it began.
        let backend_ref = entry.map_or(owner, |entry| entry.backend_ref);
        let is_invite = is_invented || is_new && request.method == Method::Invite;
        let begins = is_invite && begins(now, state, call, request, evidence, backend_ref);
        // The name of the back end may now resolve to another address, but the dialog stays at the
        // old one.
        let at = |backend_ref| snapshot.backend(backend_ref).named().map(|_| token.backend);
        return Some(match begins {
            true => TargetChoice::BeginAt { backend_ref: owner, target: at(owner) },
            false => TargetChoice::Stay { backend_ref, target: at(backend_ref), key: None },
        });
    }
    if was_removed() {
        return Some(TargetChoice::Removed(Target::new(token.transport, token.backend)));
    }
    if token.is_user {
        // A request outside a dialog goes to the current address of the user.
        return (!is_new).then(|| by_user_token(snapshot, &received.flow, token)).flatten();
    }
    // A process that has just started has resolved no names yet. A 481 would end the dialog (RFC
    // 3261 §12.2.1.2), and another rejection could contradict the response to a retransmission. So
    // the request is dropped, and the client sends it again.
    let unresolved = TargetChoice::Halt(Rejection::Drop(DropReason::Unresolved).into());
    snapshot.has_unresolved().then_some(unresolved)
}

/// Plans an in-dialog request whose route token names a user, or a trusted source that has called a
/// registered phone. The request came on `flow`, from the user or source, or from the other party.
/// The target is the flow or the address in the token. Further Route values are ignored, because
/// the sender may be a stranger.
fn by_user_token(snapshot: &Snapshot, flow: &Flow, token: RouteToken) -> Option<TargetChoice> {
    let peer = token.peer?;
    let (remote, user) = (canonical(flow.remote), token.backend);
    // A phone may send from another port than its Contact has, and on a connection it always does.
    // If both parties are behind one address, only the connection distinguishes them.
    let is_others = match flow.transport.is_reliable() {
        true => remote == peer.remote || flow.connection == peer.connection,
        false => remote.ip() == peer.remote.ip(),
    };
    // The caller of a registered phone may be a group of trusted hosts. The phone may be trusted
    // too, and may have another connection than the one in the token.
    let is_trusted = || {
        peer.is_registered
            && remote.ip() != peer.remote.ip()
            && snapshot.addresses.origin(flow) == Origin::Trusted
    };
    // Any other sender counts as the peer. A registered phone may have changed its network.
    let is_users = remote == user || !is_others && (remote.ip() == user.ip() || is_trusted());
    let target = match is_users {
        true => match snapshot.target_of(&peer) {
            Ok(target) => target,
            Err(rejection) => return Some(TargetChoice::Halt(rejection.into())),
        },
        false => Target::new(token.transport, user),
    };
    let is_claimed = is_users;
    Some(TargetChoice::Outside {
        target,
        is_strict: false,
        from: None,
        is_named: false,
        is_claimed,
    })
}

/// Returns whether a request outside a dialog is new work for the limits of `backend_ref`, and so
/// needs headroom.
///
/// Two kinds of request are not new work. The first is a retransmission. An INVITE is one if the
/// entry of `call` has recorded it. Any other request is one if the gate says so, because the entry
/// does not distinguish requests with one branch. The second is a copy of the INVITE for which the
/// call is counted at that back end (RFC 3261 §8.2.2.2). Any other INVITE counts as one more call,
/// because the call in the table is over, is not known, or is not counted (it leads from one back
/// end to another).
///
/// RFC 3261 §16.3: "Notice that a proxy is not required to detect merged requests and MUST NOT
/// treat merged requests as an error condition."
fn begins(
    now: Timestamp,
    state: &RoutingState,
    call: Option<CallRef>,
    request: &Request<'_>,
    evidence: Evidence,
    backend_ref: BackendRef,
) -> bool {
    let Some(entry) = call.and_then(|call| state.calls.get(call)) else {
        return true;
    };
    let Request { identity, method, is_again, .. } = *request;
    let is_repetition = match method {
        Method::Invite => entry.is_repetition(now, Transaction { identity, method }, evidence.copy),
        _ => is_again,
    };
    let is_copy = || entry.is_counted() && entry.is_copied_by(now, evidence.copy);
    !is_repetition && (entry.backend_ref != backend_ref || !is_copy())
}
