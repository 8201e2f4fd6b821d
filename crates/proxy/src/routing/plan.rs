//! Plans a request: the target, the sender's permission to reach it, and the call or dialog that
//! the request belongs to.
//!
//! Planning changes no state. It uses the request, the snapshot and the call table.
//! [`commit`](super::commit) selects the back end, takes leases and enters the call.
//!
//! Strangers may reach only the pools and users to which the rules lead. Requests of back ends and
//! trusted sources may also follow Route sets and go to other addresses. A request belongs to a
//! dialog if its route token verifies or the call table knows the dialog by its tags. A To-tag
//! alone proves nothing.

mod peer_flow;
mod sender;

use std::sync::Arc;

use tidegate_sip::{Method, Scheme};
use tidegate_world::{Received, Timestamp};

use self::peer_flow::{
    contact_by_udp, leads_nowhere, needs_flow, on_connection, on_flow, peer_of_sender,
};
use self::sender::{check_flow, origin_of_sender, proves_receipt};
use crate::dialog::CallRef;
use crate::dialog::evidence::Known;
use crate::message::address_of_record::address_of_record;
use crate::message::request::Request;
use crate::message::token::PeerFlow;
use crate::network::{canonical, may_be_sent_to};
use crate::rejection::{Halt, Rejection};
use crate::resolution::Wanted;
use crate::routing::in_dialog::in_dialog;
use crate::routing::route_set::{Next, RouteSet};
use crate::routing::rules::{Destination, destination};
use crate::routing::select::{demand_of, select_by_call};
use crate::routing::target_choice::TargetChoice;
use crate::settings::Choice;
use crate::snapshot::Snapshot;
use crate::state::RoutingState;
use crate::target::Target;
use crate::transport::addresses::Origin;

/// The routing decision for a request, as far as it can be made without changing state.
pub(crate) struct Plan {
    pub(crate) target_choice: TargetChoice,
    /// The target for a request with a transaction if the connection of the first target has ended.
    pub(crate) without_connection: Option<Target>,
    pub(crate) known: Known,
    /// The number of leading Route values that name this proxy and are removed.
    pub(crate) own_routes: usize,
    /// The index of the listener toward the target, if a Route value of the request names it, or if
    /// it is stored with the flow of the target.
    pub(crate) egress: Option<u8>,
    /// True if the request counts against the rate limit of its call.
    pub(crate) is_rated: bool,
    /// The number of the call in the rate limit, if the call is not in the call table.
    pub(crate) number: u64,
    /// True if a route token shows that the request belongs to its call.
    pub(crate) has_token: bool,
    /// True if the request proves that its sender receives the messages sent to its address.
    pub(crate) proves_receipt: bool,
    /// The origin of the request by its source address alone, without regard to Via and route
    /// token.
    pub(crate) origin: Origin,
}

/// The result of planning.
pub(crate) enum Planned<'a> {
    Plan(Plan),
    /// Planning needs the answer to a look-up first. The answer sets the
    /// [targets](Request::targets) of the request.
    Pending(Need<'a>),
}

/// A look-up whose answer is needed to plan a request.
pub(crate) enum Need<'a> {
    /// The addresses of a host.
    Host(Wanted<'a>),
    /// The contacts of the user with this address of record.
    User(Arc<[u8]>),
}

/// A request to plan, and the facts known about it except its destination.
struct PlanInput<'s, 'a> {
    now: Timestamp,
    snapshot: &'s Snapshot,
    state: &'s RoutingState,
    received: &'s Received,
    request: &'s Request<'a>,
    routes: RouteSet<'a>,
    origin: Origin,
    /// True if a back end that has been removed sent the request.
    is_removed: bool,
    /// True if the Request-URI names us.
    is_ours: bool,
}

pub(crate) fn plan<'a>(
    now: Timestamp,
    snapshot: &Snapshot,
    state: &RoutingState,
    received: &Received,
    request: &Request<'a>,
) -> Result<Planned<'a>, Halt> {
    let Request { message, method, essentials, restored, .. } = request;
    let flow = &received.flow;
    let mut routes = RouteSet::read(snapshot, flow, message, essentials.call_id, *restored)?;
    // A strict router before us may have moved the token into the Request-URI.
    routes.token = routes.token.or(request.token);
    let mut plan = Plan {
        target_choice: TargetChoice::Halt(Halt::Rejected(Rejection::NO_HOST)),
        without_connection: None,
        known: Known::default(),
        own_routes: routes.own,
        // Without a token of ours, another element may have written these Routes.
        egress: routes.egress.filter(|_| routes.token.is_some()),
        is_rated: false,
        number: 0,
        has_token: false,
        proves_receipt: false,
        origin: snapshot.addresses.origin(flow),
    };
    let (mut origin, mut is_removed) =
        origin_of_sender(now, snapshot, received, request, plan.origin, &routes);
    let look_up = |origin: Origin| {
        state.calls.look_up(now, &snapshot.keys, request, origin.backend_ref().is_some())
    };
    plan.known = look_up(origin);
    // Ignore a token that is too old, unless the call table has its call.
    let is_known = plan.known.call.is_some();
    let is_fresh = |token: &_| is_known || snapshot.is_fresh(now, *method, token);
    routes.token = routes.token.filter(is_fresh);
    if is_removed && routes.token.is_none() {
        // The ignored token had given the sender the rights of a removed back end.
        (origin, is_removed) =
            origin_of_sender(now, snapshot, received, request, plan.origin, &routes);
        plan.known = look_up(origin);
    }
    check_flow(routes.flow.as_ref(), origin)?;
    let Known { call, is_new, .. } = plan.known;
    plan.has_token = routes.token.is_some();
    if let Some(shard) = shard_of(snapshot, received, &routes, call.is_some()) {
        return Err(Halt::Redirect(shard));
    }
    plan.proves_receipt = proves_receipt(state, received, request, &routes, &plan.known);
    let is_ours = snapshot.addresses.is_own_target(&request.uri, flow);
    let input =
        PlanInput { now, snapshot, state, received, request, routes, origin, is_removed, is_ours };
    if !input.is_outward(call) && !forks_anew(snapshot, state, &input.routes, &plan.known) {
        let is_decided =
            is_new && (call.is_none() || *method != Method::Invite) && !request.is_again;
        let token = input.routes.token;
        plan.is_rated = (call.is_some() || token.is_some()) && !is_decided;
        if plan.is_rated && (call.is_none() || plan.known.is_stray) {
            let fingerprint = plan.known.fingerprint;
            plan.number = match token {
                Some(token) => token.number(&snapshot.keys, fingerprint),
                None => fingerprint as u64,
            };
        } else if plan.is_rated && is_new && request.is_again {
            plan.number = request.identity;
        }
        let routes = &input.routes;
        if let Some(target_choice) =
            in_dialog(now, snapshot, state, received, request, routes, &plan.known)
        {
            // Our Record-Route may not name the listener of a phone's registration.
            if let TargetChoice::Outside { target, .. } = &target_choice
                && target.is_registered
            {
                let peer = routes.token.and_then(|token| token.peer);
                plan.egress = peer.map(|peer| peer.listener);
            }
            plan.target_choice = target_choice;
            return Ok(Planned::Plan(plan));
        }
        if !is_new && (origin == Origin::Stranger || is_ours) {
            let halt = unknown_call(snapshot, received, *method, origin);
            // A request with a token counts in the rate of its call even if it is rejected.
            return if plan.is_rated {
                plan.target_choice = TargetChoice::Halt(halt);
                Ok(Planned::Plan(plan))
            } else {
                Err(halt)
            };
        }
    }
    let peer = peer_of_sender(&input);
    let registered = input.routes.flow.map(|flow| flow.listener);
    let registered =
        registered.or(peer.filter(|peer| peer.is_registered).map(|peer| peer.listener));
    plan.egress = registered.or(plan.egress).or(peer.map(|peer| peer.listener));
    plan.without_connection = peer.and_then(|peer| contact_by_udp(&input, &peer));
    let destination = destination_of(&input, peer)?;
    lead_to(&input, destination, peer, plan)
}

impl PlanInput<'_, '_> {
    /// Returns whether a back end or a trusted source has chosen the target of the request. Such a
    /// request is routed without regard to known dialogs and calls. `call` is the call to which the
    /// request belongs.
    fn is_outward(&self, call: Option<CallRef>) -> bool {
        match self.origin {
            Origin::Backend(_) => true,
            Origin::Trusted => {
                self.is_removed
                    || self.routes.flow.is_some()
                    || self.routes.token.is_none() && call.is_none() && !self.routes.is_end()
            }
            Origin::Stranger => false,
        }
    }
}

/// Returns the destination of a request that no known dialog or call determines. If a back end
/// sends the request within a dialog, `peer` is the other party of this dialog.
///
/// RFC 3261 §16.6: "If the copy contains a Route header field, the proxy MUST inspect the URI in
/// its first value." "If the proxy has reformatted the request to send to a strict-routing element
/// as described in step 6 above, the proxy MUST apply those procedures to the Request-URI of the
/// request." "Otherwise, the proxy MUST apply the procedures to the first value in the Route header
/// field, if present, else the Request-URI."
fn destination_of<'a>(
    input: &PlanInput<'_, 'a>,
    peer: Option<PeerFlow>,
) -> Result<Destination<'a>, Rejection> {
    let &PlanInput { snapshot, received, request, ref routes, origin, is_ours, .. } = input;
    // RFC 5626 §5.3.1: "Next, whether the Route header field contained an "ob" URI parameter or
    // not, the proxy removes the Route header field value and forwards the request over the
    // 'logical flow' identified by the flow token, that is known to deliver data to the specific
    // target UA instance."
    if let Some(flow) = &routes.flow {
        return Ok(Destination::Target(snapshot.target_on(flow)?, false));
    }
    Ok(match (&routes.next, origin) {
        // A host name in this Route means the other party of the dialog, so no query is needed.
        (Next::Name(_, is_strict), _) if let Some(peer) = peer => {
            Destination::Target(on_connection(snapshot, &request.uri, &peer)?, *is_strict)
        }
        // RFC 5626 §5.3.1: the request is forwarded "over the 'logical flow' identified by the flow
        // token". The party at the other end of the flow wrote this Route, so it can send the
        // request on.
        (Next::Target(target, is_strict), _)
            if let Some(peer) = peer
                && (peer.is_registered || leads_nowhere(target.address, &peer)) =>
        {
            Destination::Target(on_connection(snapshot, &request.uri, &peer)?, *is_strict)
        }
        (Next::None, _)
            if let Some(peer) = peer
                && !is_ours
                && needs_flow(snapshot, &request.uri, &peer) =>
        {
            Destination::Target(on_flow(snapshot, &request.uri, &peer)?, false)
        }
        (Next::None, _) => destination(snapshot, origin, received, request, is_ours)?,
        // RFC 3261 §16.12 lets a client preload a Route. We do not relay for strangers.
        (_, Origin::Stranger) => return Err(Rejection::RELAYING),
        (Next::Target(target, is_strict), _) => Destination::Target(*target, *is_strict),
        (Next::Name(uri, is_strict), _) => Destination::Name(*uri, *is_strict),
    })
}

/// Completes a plan with the target at `destination`, or returns the look-up that is needed first.
/// If a back end sends the request within a dialog, `peer` is the other party of this dialog.
fn lead_to<'a>(
    input: &PlanInput<'_, 'a>,
    destination: Destination<'a>,
    peer: Option<PeerFlow>,
    mut plan: Plan,
) -> Result<Planned<'a>, Halt> {
    let known = &plan.known;
    let &PlanInput { now, snapshot, state, received, request, origin, .. } = input;
    let is_named = matches!(destination, Destination::Name(..));
    let destination = match destination {
        Destination::Name(uri, is_strict) => match request.targets.first() {
            Some(target) => Destination::Target(*target, is_strict),
            None => {
                let wanted = Wanted::of(&uri).ok_or(Rejection::NO_HOST)?;
                return Ok(Planned::Pending(Need::Host(wanted)));
            }
        },
        other => other,
    };
    let target_choice =
        match (destination, origin) {
            (Destination::Pool(pool), Origin::Backend(from)) => TargetChoice::Between(
                select_by_call(now, snapshot, state, pool, known.fingerprint, from)?,
            ),
            // RFC 3261 §16.11: "CANCEL and non-Routed ACK requests MUST generate the same choice as
            // their associated INVITE": a new selection could differ.
            (Destination::Pool(_) | Destination::User, _)
                if matches!(request.method, Method::Ack | Method::Cancel) =>
            {
                return Err(unknown_call(snapshot, received, request.method, origin));
            }
            (Destination::Pool(pool), _) => {
                let demand = known.is_new.then(|| demand_of(request.method, request.has_priority));
                TargetChoice::Select { pool, demand }
            }
            // The sender may be a back end or a trusted source, but another party may have chosen
            // the address, such as a phone that has registered it as its Contact.
            (Destination::Target(target, _), _) if !may_be_sent_to(target.address) => {
                return Err(Rejection::NO_SINGLE_HOST.into());
            }
            (Destination::Target(target, _), _)
                if snapshot.addresses.is_own_socket(target.address, received.flow.local) =>
            {
                return Err(Rejection::usual(404, "the request leads back to this proxy").into());
            }
            (Destination::Target(target, _), _) if target.is_gone() => {
                return Err(Rejection::FLOW_GONE.into());
            }
            (Destination::Target(target, is_strict), origin) => {
                // The other party wrote the Contact, and may have named a third party.
                let is_claimed =
                    peer.is_some_and(|peer| canonical(target.address).ip() != peer.remote.ip());
                let from = origin.backend_ref();
                TargetChoice::Outside { target, is_strict, from, is_named, is_claimed }
            }
            (Destination::Name(..), _) => return Err(Rejection::NO_HOST.into()),
            // An in-dialog request names a contact. Only a request outside a dialog names a user.
            (Destination::User, _) if !known.is_new => {
                return Err(unknown_call(snapshot, received, request.method, origin));
            }
            (Destination::User, origin) => match request.targets.first() {
                Some(&target) => TargetChoice::User { target, from: origin.backend_ref() },
                // RFC 5630 §5.3: "the proxy MUST NOT forward the request to the URI indicated in
                // the Contact header field. If the proxy needs to reject the request for that
                // reason, the proxy MUST reject it with a 480 (Temporarily Unavailable) response."
                // We open connections over TLS to back ends only.
                None if request.uri.scheme == Scheme::Sips && request.uri.user.is_some() => {
                    return Err(Rejection::INSECURE.into());
                }
                None => {
                    let aor = address_of_record(&request.uri).ok_or(Rejection::NO_USER)?;
                    return Ok(Planned::Pending(Need::User(aor)));
                }
            },
        };
    plan.target_choice = target_choice;
    Ok(Planned::Plan(plan))
}

/// Returns whether a request with the Call-ID of a known call forks to all back ends of the pool of
/// that call, like each new request to that pool.
fn forks_anew(
    snapshot: &Snapshot,
    state: &RoutingState,
    routes: &RouteSet<'_>,
    known: &Known,
) -> bool {
    let entry = || known.call.and_then(|call| state.calls.get(call));
    known.is_new
        && routes.token.is_none()
        && entry().is_some_and(|entry| {
            matches!(snapshot.pool(entry.backend_ref.pool).choice, Choice::All(_))
        })
}

/// Returns the other shard that should serve a request, or `None` if this shard should serve it.
///
/// The shard is the one in the route token, but a call that this shard knows stays at this shard. A
/// flow token names the shard at which the phone registered. That shard serves the request even if
/// this shard has another leg of the call. An ACK or CANCEL has the flow token of its INVITE, so it
/// reaches the shard of the INVITE.
fn shard_of(
    snapshot: &Snapshot,
    received: &Received,
    routes: &RouteSet<'_>,
    is_known: bool,
) -> Option<u16> {
    let shard = u16::from(match routes.token {
        Some(_) if is_known => return None,
        Some(token) => token.shard,
        None => routes.flow?.shard,
    });
    let is_elsewhere = shard != snapshot.shard && shard < snapshot.shards;
    (is_elsewhere && received.handoffs == 0).then_some(shard)
}

/// Returns the pool to which the rules lead the INVITE of a CANCEL or ACK, and the number of Route
/// values that name this proxy. Returns `None` if the rules do not lead the INVITE to a pool.
pub(crate) fn pool_by_rules(
    snapshot: &Snapshot,
    received: &Received,
    request: &Request<'_>,
) -> Option<(u16, u8)> {
    let Request { message, essentials, restored, .. } = request;
    let flow = &received.flow;
    let routes = RouteSet::read(snapshot, flow, message, essentials.call_id, *restored).ok()?;
    let origin = snapshot.addresses.origin(&received.flow);
    let ours = snapshot.addresses.is_own_target(&request.uri, flow);
    let is_for_us = routes.is_end() && !matches!(origin, Origin::Backend(_));
    match destination(snapshot, origin, received, request, ours).ok()? {
        Destination::Pool(pool) if is_for_us => Some((pool, routes.own as u8)),
        _ => None,
    }
}

/// Returns the rejection of an in-dialog request whose call this shard does not know, or the
/// handoff of the request to the next shard. The request visits all shards in turn. So the call of
/// a client is found even if the client ignores Record-Route and changes its port between requests,
/// and a CANCEL finds its INVITE even if it comes on another connection. Requests of strangers on
/// connections are not handed off, because a stranger could make all shards work with each request.
///
/// After the last shard, a CANCEL or ACK returns to the shard at which it arrived. If the request
/// is a datagram, the shard with this number in the previous process has sent the INVITE.
fn unknown_call(snapshot: &Snapshot, received: &Received, method: Method, origin: Origin) -> Halt {
    let shards = snapshot.shards;
    let comes_home =
        matches!(method, Method::Ack | Method::Cancel) && (2..u16::from(u8::MAX)).contains(&shards);
    let turns = shards + u16::from(comes_home);
    let may_go_round = !received.flow.transport.is_reliable() || origin != Origin::Stranger;
    if u16::from(received.handoffs) + 1 < turns && may_go_round {
        return Halt::Redirect((snapshot.shard + 1) % shards);
    }
    Rejection::UNKNOWN_CALL.into()
}
