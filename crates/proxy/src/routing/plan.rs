//! Plans a request: the target, the sender's permission to reach it, and the call or dialog that
//! the request belongs to.
//!
//! Planning changes no state. It uses the request, the snapshot and the call table.
//! [`commit`](super::commit) selects the back end, takes leases and enters the call.
//!
//! Strangers may reach only the pools and users to which the rules lead. Back ends and trusted
//! sources may also reach Route sets and other addresses. A request belongs to a dialog if its
//! route token verifies or the call table knows the dialog by its tags. A To-tag alone proves
//! nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_sip::{Method, Scheme, Uri};
use tidegate_world::{Received, Timestamp, Transport};

use crate::dialog::CallRef;
use crate::dialog::evidence::Known;
use crate::message::address_of_record::address_of_record;
use crate::message::flow_token::RegisteredFlow;
use crate::message::request::Request;
use crate::message::token::{PeerFlow, RouteToken};
use crate::network::{caller_of, canonical, is_inside, may_be_sent_to};
use crate::rejection::Rejection;
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
    pub(crate) known: Known,
    /// The number of leading Route values that name this proxy and are removed.
    pub(crate) own_routes: usize,
    /// The index of the listener toward the target, if the dialog or the registration of the target
    /// has recorded one.
    pub(crate) egress: Option<u8>,
    /// True if the request counts against the rate limit of its call.
    pub(crate) is_rated: bool,
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
) -> Result<Planned<'a>, Rejection> {
    let Request { message, method, essentials, restored, .. } = request;
    let flow = &received.flow;
    let mut routes = RouteSet::read(snapshot, flow, message, essentials.call_id, *restored)?;
    // A strict router before us may have moved the token into the Request-URI.
    routes.token = routes.token.or(request.token);
    let mut plan = Plan {
        target_choice: TargetChoice::Reject(Rejection::NO_HOST),
        known: Known::default(),
        own_routes: routes.own,
        // Without a token of ours, another element may have written these Routes.
        egress: routes.egress.filter(|_| routes.token.is_some()),
        is_rated: false,
        has_token: false,
        proves_receipt: false,
        origin: snapshot.addresses.origin(flow),
    };
    let (mut origin, mut is_removed) =
        sender(now, snapshot, received, request, plan.origin, &routes);
    let look_up = |origin: Origin| {
        state.calls.look_up(&snapshot.keys, request, origin.backend_ref().is_some())
    };
    plan.known = look_up(origin);
    // Ignore a token that is too old, unless the call table has its call.
    let is_known = plan.known.call.is_some();
    let is_fresh = |token: &_| is_known || snapshot.is_fresh(now, *method, token);
    routes.token = routes.token.filter(is_fresh);
    if is_removed && routes.token.is_none() {
        // The ignored token had given the sender the rights of a removed back end.
        (origin, is_removed) = sender(now, snapshot, received, request, plan.origin, &routes);
        plan.known = look_up(origin);
    }
    check_flow(routes.flow.as_ref(), origin)?;
    let Known { call, is_new, .. } = plan.known;
    plan.has_token = routes.token.is_some();
    if let Some(shard) = shard_of(snapshot, received, &routes, call.is_some()) {
        return Err(Rejection::Redirect(shard));
    }
    plan.proves_receipt = proves_receipt(state, received, request, &routes, &plan.known);
    let is_ours = snapshot.addresses.is_own_target(&request.uri, flow);
    let input =
        PlanInput { now, snapshot, state, received, request, routes, origin, is_removed, is_ours };
    if !input.is_outward(call) && !forks_anew(snapshot, state, &input.routes, &plan.known) {
        let is_decided = is_new && (call.is_none() || *method != Method::Invite);
        plan.is_rated = (call.is_some() || input.routes.token.is_some()) && !is_decided;
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
            let rejection = unknown(snapshot, received, *method, origin);
            // A request with a token counts in the rate of its call even if it is rejected.
            return if plan.is_rated {
                plan.target_choice = TargetChoice::Reject(rejection);
                Ok(Planned::Plan(plan))
            } else {
                Err(rejection)
            };
        }
    }
    let peer = peer_of_sender(&input);
    let registered = input.routes.flow.map(|flow| flow.listener);
    let registered =
        registered.or(peer.filter(|peer| peer.is_registered).map(|peer| peer.listener));
    plan.egress = registered.or(plan.egress).or(peer.map(|peer| peer.listener));
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

/// Returns the destination of a request that no known dialog or call determines. `peer` is the
/// other party of the dialog in which a back end sends the request.
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
            Destination::Target(snapshot.target_of(&peer)?, *is_strict)
        }
        // RFC 5626 §5.3.1: the request is forwarded "over the 'logical flow' identified by the flow
        // token". The party at the other end of the flow wrote this Route, so it can send the
        // request on.
        (Next::Target(target, is_strict), _)
            if let Some(peer) = peer
                && (peer.is_registered || leads_nowhere(target.address, &peer)) =>
        {
            Destination::Target(snapshot.target_of(&peer)?, *is_strict)
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
/// `peer` is the other party of the dialog in which a back end sends the request.
fn lead_to<'a>(
    input: &PlanInput<'_, 'a>,
    destination: Destination<'a>,
    peer: Option<PeerFlow>,
    mut plan: Plan,
) -> Result<Planned<'a>, Rejection> {
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
                return Err(unknown(snapshot, received, request.method, origin));
            }
            (Destination::Pool(pool), _) => {
                let demand = known.is_new.then(|| demand_of(request.method, request.has_priority));
                TargetChoice::Select { pool, demand }
            }
            // The sender may be a back end or a trusted source, but another party may have chosen
            // the address, such as a phone that has registered it as its Contact.
            (Destination::Target(target, _), _) if !may_be_sent_to(target.address) => {
                return Err(Rejection::NO_SINGLE_HOST);
            }
            (Destination::Target(target, _), _)
                if snapshot.addresses.is_own_socket(target.address, received.flow.local) =>
            {
                return Err(Rejection::usual(404, "the request leads back to this proxy"));
            }
            (Destination::Target(target, _), _) if target.is_gone() => {
                return Err(Rejection::FLOW_GONE);
            }
            (Destination::Target(target, is_strict), origin) => {
                // The other party wrote the Contact, and may have named a third party.
                let is_claimed =
                    peer.is_some_and(|peer| canonical(target.address).ip() != peer.remote.ip());
                let from = origin.backend_ref();
                TargetChoice::Outside { target, is_strict, from, is_named, is_claimed }
            }
            (Destination::Name(..), _) => return Err(Rejection::NO_HOST),
            // An in-dialog request names a contact. Only a request outside a dialog names a user.
            (Destination::User, _) if !known.is_new => {
                return Err(unknown(snapshot, received, request.method, origin));
            }
            (Destination::User, origin) => match request.targets.first() {
                Some(&target) => TargetChoice::User { target, from: origin.backend_ref() },
                // RFC 5630 §5.3: "the proxy MUST NOT forward the request to the URI indicated in
                // the Contact header field. If the proxy needs to reject the request for that
                // reason, the proxy MUST reject it with a 480 (Temporarily Unavailable) response."
                // We open connections over TLS to back ends only.
                None if request.uri.scheme == Scheme::Sips && request.uri.user.is_some() => {
                    return Err(Rejection::INSECURE);
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

/// Returns the origin of the sender of a request, and whether the sender is a removed back end.
/// `found` is the origin of the source address.
///
/// A back end that was removed from the configuration counts as trusted if the route token of its
/// request names its address, so that it can end its dialogs. Any other unknown source counts as
/// the back end that its Via names, if there is one. The Via also distinguishes the back ends at
/// one host on the connections that they have opened, because the ports of these are arbitrary.
fn sender(
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

/// Returns whether a request proves that its sender receives the messages sent to its source
/// address. The proof is a route token, which a caller can know only from a response. The token
/// names the party to which it was sent. So an attacker that sends a copy of the INVITE from its
/// own address gets a token that proves nothing about the address of the caller.
fn proves_receipt(
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

/// Returns the flow to the other party of the dialog in which a back end sends a request, or `None`
/// if the route token does not show that the dialog belongs to that back end.
fn peer_of_sender(input: &PlanInput<'_, '_>) -> Option<PeerFlow> {
    let &PlanInput { snapshot, received, request, ref routes, origin, is_removed, .. } = input;
    request.essentials.to_tag?;
    let token = routes.token?;
    let remote = canonical(received.flow.remote);
    let is_own = match origin {
        Origin::Backend(backend_ref) => {
            token.backend == remote
                || snapshot.addresses.backend_ref(token.backend) == Some(backend_ref)
                || received.flow.transport.is_reliable() && token.backend.ip() == remote.ip()
        }
        Origin::Trusted => is_removed,
        Origin::Stranger => false,
    };
    // Both parties may be back ends. Then a request from the other party must not go to that party
    // itself.
    token.peer.filter(|peer| is_own && peer.remote != remote)
}

/// Returns whether a request must use the flow to the other party of its dialog, because the
/// Contact in the Request-URI does not lead to that party. The Contact may be a name, an address
/// that this network does not route, or the address of a phone behind address translation.
///
/// RFC 5626 §5.3.1: "the proxy removes the Route header field value and forwards the request over
/// the 'logical flow' identified by the flow token, that is known to deliver data to the specific
/// target UA instance."
fn needs_flow(snapshot: &Snapshot, contact: &Uri<'_>, peer: &PeerFlow) -> bool {
    // RFC 5626 §5.3.2: "the edge proxy can use the presence of the "ob" URI parameter in the UAC's
    // Contact URI (or topmost Route header field) to determine if the edge proxy needs to assist in
    // mid-dialog request routing."
    if peer.is_registered || contact.params.get("ob").is_some() {
        return true;
    }
    // A browser accepts no connections, and the host in its Contact is invented (RFC 7118 §8.1).
    if snapshot.addresses.transport(peer.listener.into()).is_websocket() {
        return true;
    }
    let Some(named) = snapshot.addresses.target_of(contact) else { return true };
    let contact = canonical(named.address);
    match contact.ip() == peer.remote.ip() {
        // RFC 3261 §18.1.1: "it is RECOMMENDED that this connection be used". A phone seldom
        // accepts connections. RFC 3581 §3: a client that asks for responses at its source port
        // receives there. If its Via names another port, it may be behind address translation.
        true => {
            // The connection to another process counts if nothing else leads to the party.
            let is_connected = match peer.is_elsewhere {
                true => snapshot.is_bound(peer) || named.transport.is_secure(),
                false => peer.connection.is_some(),
            };
            is_connected || peer.has_other_port || contact.port() == 0
        }
        false => peer.is_translated || leads_nowhere(contact, peer),
    }
}

/// Returns the target for a request that must use the flow to the other party of its dialog. If
/// this flow is a connection over TCP, and the party could be reached at its Contact without the
/// connection, the request may use another connection to the Contact. A trunk or an SBC closes idle
/// connections, and accepts new ones.
///
/// RFC 3261 §12.2.1.1: "Once the request has been constructed, the address of the server is
/// computed and the request is sent, using the same procedures for requests outside of a dialog
/// (Section 8.1.2)."
///
/// RFC 3261 §18.1.1 only recommends the open connection. The Contact must have the IP address of
/// the party. So the request goes to no third party, and not into the network behind a NAT. Over
/// TLS, nothing would name the host that the certificate has to prove.
///
/// # Errors
/// Returns an error if the flow is a connection of another process, and the party is
/// [bound](Snapshot::is_bound) to it or has asked for its use by `ob`.
fn on_flow(snapshot: &Snapshot, contact: &Uri<'_>, peer: &PeerFlow) -> Result<Target, Rejection> {
    if peer.is_elsewhere && contact.params.get("ob").is_some() {
        return Err(Rejection::FLOW_GONE);
    }
    let unconnected = PeerFlow { connection: None, ..*peer };
    let is_free = peer.connection.is_some()
        && !snapshot.is_bound(peer)
        && !needs_flow(snapshot, contact, &unconnected);
    let named = snapshot.addresses.target_of(contact).filter(|named| {
        is_free
            && named.transport == Transport::Tcp
            && canonical(named.address).ip() == peer.remote.ip()
    });
    let target = snapshot.target_of(peer)?;
    Ok(match named {
        Some(Target { address, .. }) => Target { address, may_reconnect: true, ..target },
        None => target,
    })
}

/// Returns whether the other party of a dialog cannot be reached at the address `named` that it has
/// given. The address may belong to no single host, have no port, or be in a private network or on
/// this machine although the party is not.
fn leads_nowhere(named: SocketAddr, peer: &PeerFlow) -> bool {
    !may_be_sent_to(named) || is_inside(named.ip().to_canonical(), peer.remote.ip())
}

/// Rejects a stranger's request whose Route names the flow of another phone.
///
/// Legitimate requests of this kind come from the registrar, which is a back end or a trusted
/// source. A stranger may have seen the flow token, so the token alone gives no permission.
fn check_flow(named: Option<&RegisteredFlow>, origin: Origin) -> Result<(), Rejection> {
    match named {
        Some(_) if origin == Origin::Stranger => Err(Rejection::RELAYING),
        _ => Ok(()),
    }
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
fn unknown(snapshot: &Snapshot, received: &Received, method: Method, origin: Origin) -> Rejection {
    let shards = snapshot.shards;
    let comes_home =
        matches!(method, Method::Ack | Method::Cancel) && (2..u16::from(u8::MAX)).contains(&shards);
    let turns = shards + u16::from(comes_home);
    let may_go_round = !received.flow.transport.is_reliable() || origin != Origin::Stranger;
    if u16::from(received.handoffs) + 1 < turns && may_go_round {
        return Rejection::Redirect((snapshot.shard + 1) % shards);
    }
    Rejection::UNKNOWN_CALL
}
