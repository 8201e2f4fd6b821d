//! The plan for a request whose dialog or call is known: to the back end that has it.
//!
//! Some of these requests belong to no dialog all the same, and are more work for that back end:
//! then they are new for its limits ([`begins`]).

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
use crate::routing::way::Way;
use crate::settings::Member;
use crate::snapshot::Snapshot;
use crate::state::RoutingState;
use crate::target::Target;

/// Plans the way of a request whose dialog or call is known; `None` if neither is. One that
/// `is_new` belongs to no dialog.
///
/// A call that goes on stays where it is, however little headroom its back end has: what is new
/// and has its Call-ID is rejected then. It goes elsewhere only from a back end that is down and
/// has not answered.
pub(super) fn in_dialog(
    now: Timestamp,
    snapshot: &Snapshot,
    state: &RoutingState,
    received: &Received,
    request: &Request<'_>,
    routes: &RouteSet<'_>,
    known: &Known,
) -> Option<Way> {
    if let Some(token) = routes.token
        && let Some(way) = by_token(snapshot, state, received, request, token, known)
    {
        return Some(way);
    }
    let call = known.call?;
    let entry = state.calls.get(call)?;
    let Call { member, answered, phase, has_priority: had_priority, .. } = *entry;
    if !known.is_new {
        return Some(Way::Stay { member, target: None, key: None });
    }
    let goes_on = phase.goes_on();
    // What begins something again may, as the first time, go to another.
    let key = choice_key(snapshot, state, member.pool, request, known.fingerprint);
    let Request { method, identity, .. } = *request;
    let begins = begins(state, Some(call), request, known.evidence, member);
    // A repetition is not judged at the door, and not given priority there.
    let demand = demand_of(method, request.has_priority || !begins && had_priority);
    if begins {
        return Some(Way::BeginWithin { member, key, demand, goes_on });
    }
    // A back end that is drained or has asked for a pause finishes what it has.
    let is_kept = goes_on && (answered || method != Method::Invite);
    if is_kept || snapshot.backend(member).is_alive(now) {
        return Some(Way::Stay { member, target: None, key: Some(key) });
    }
    // What is over takes no call along that goes on.
    if goes_on && state.calls.has_ended(call, Transaction { identity, method }) {
        return Some(Way::Reject(unavailable(now, snapshot, member.pool, None)));
    }
    // The client repeats its request because nobody answers, or begins anew: nothing ties it to
    // a back end that is down.
    Some(Way::Move { pool: member.pool, demand })
}

/// Plans the way of a request with a route token; `None` if its back end is not known.
fn by_token(
    snapshot: &Snapshot,
    state: &RoutingState,
    received: &Received,
    request: &Request<'_>,
    token: RouteToken,
    known: &Known,
) -> Option<Way> {
    let Known { call, evidence, is_new, is_invented, .. } = *known;
    // Only back ends are honoured that are configured, or were a while ago.
    if let Some(owner) = snapshot.addresses.member(token.backend) {
        // Whoever has that address by now, after a reload, the call is counted where it began.
        let is_there = |entry: &&Call| {
            snapshot.backend(entry.member).address_at(entry.place) == Some(token.backend)
        };
        let entry = call.and_then(|call| state.calls.get(call)).filter(is_there);
        let member = entry.map_or(owner, |entry| entry.member);
        let is_invite = is_invented || is_new && request.method == Method::Invite;
        let begins = is_invite && begins(state, call, request, evidence, member);
        // A name may lead elsewhere by now; the dialog is where it was.
        let at = |member| snapshot.backend(member).named().map(|_| token.backend);
        return Some(match begins {
            true => Way::BeginAt { member: owner, target: at(owner) },
            false => Way::Stay { member, target: at(member), key: None },
        });
    }
    if snapshot.addresses.was_removed(token.backend) {
        return Some(Way::Removed(Target::new(token.transport, token.backend)));
    }
    if token.is_user {
        // What begins something is for the user, wherever that is reached by now.
        return (!is_new).then(|| by_user_token(snapshot, &received.flow, token)).flatten();
    }
    // A process that has just started knows no names yet. A 481 would end the dialog (RFC
    // 3261 §12.2.1.2), and any rejection would be contradicted by what becomes of the
    // repetition, which comes when there is no answer.
    let unresolved = Way::Reject(Rejection::Drop(DropReason::Unresolved));
    snapshot.has_unresolved().then_some(unresolved)
}

/// Plans the way of a request within the dialog of a user that came on `flow`: to the user, or from
/// the user to the other party. The flow in the token leads there, whatever further Routes say: the
/// sender may be a stranger.
fn by_user_token(snapshot: &Snapshot, flow: &Flow, token: RouteToken) -> Option<Way> {
    let peer = token.peer_at(snapshot.shard)?;
    let (remote, user) = (canonical(flow.remote), token.backend);
    // A phone may send from another port than the one of its contact. On a connection it always
    // does, and only its own connection tells the other party from it behind one address.
    let is_others = match flow.transport.is_reliable() {
        true => remote == peer.remote || flow.connection == peer.connection,
        false => remote.ip() == peer.remote.ip(),
    };
    let is_users = remote == user || remote.ip() == user.ip() && !is_others;
    let target = match is_users {
        true => snapshot.target_of(&peer),
        false => Target::new(token.transport, user),
    };
    let to_caller = is_users;
    Some(Way::Outside { target, is_strict: false, from: None, is_named: false, to_caller })
}

/// Returns whether a request that belongs to no dialog, and goes to `member`, is new for the limits
/// there: it has to find headroom.
///
/// It is not if it repeats what the entry of its `call` has on record. Nor is another copy of
/// the INVITE that the call is counted for at that very back end (RFC 3261 §8.2.2.2), and
/// nothing more is counted for it. Any other INVITE would be counted as one call more: its call
/// is over, or not known, or is counted nowhere, for a back end has made it itself and it leads
/// back to one.
fn begins(
    state: &RoutingState,
    call: Option<CallRef>,
    request: &Request<'_>,
    evidence: Evidence,
    member: Member,
) -> bool {
    let Some(entry) = call.and_then(|call| state.calls.get(call)) else {
        return true;
    };
    let Request { identity, method, .. } = *request;
    let is_copy = || entry.is_counted() && entry.is_copied_by(evidence.copy);
    !entry.is_repetition(Transaction { identity, method }, evidence.copy)
        && (entry.member != member || !is_copy())
}
