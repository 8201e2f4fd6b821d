//! Where a request goes, and who may send it there.
//!
//! Strangers reach pools only. Pool members and trusted sources reach Route sets
//! and addresses. A request belongs to a dialog if its route token verifies or the
//! call table knows the dialog by its tags; a To-tag alone is nobody's word.

use std::net::SocketAddr;

use tidegate_balance::Lease;
use tidegate_control::Tier;
use tidegate_sip::{Message, Method};
use tidegate_world::{Received, Timestamp};

use crate::amplification::caller_of;
use crate::calls::{CallRef, Evidence, Member};
use crate::endpoint::Endpoint;
use crate::evidence::Known;
use crate::instead::Instead;
use crate::origin::{Origin, address_of, is_host};
use crate::picking::{Chosen, demand_of};
use crate::rejection_reason::NO_ADDRESS;
use crate::request::Request;
use crate::settings::{Choice, Rule, RuleTarget, Senders, canonical};
use crate::token::RouteToken;

/// Where a request goes next.
pub(crate) struct Hop {
    pub(crate) target: SocketAddr,
    /// The back end of its call, if it belongs to one.
    pub(crate) member: Option<Member>,
    pub(crate) call: CallRef,
    /// Whether it goes to that back end, and not from it.
    pub(crate) toward_backend: bool,
    /// Leading Route values that named us and are taken off.
    pub(crate) own_routes: usize,
    /// The target is a strict router.
    pub(crate) is_strict: bool,
    /// Whether transactions are kept of it.
    pub(crate) tier: Tier,
    /// The pool in which another target may stand in for this one, and what its policy chooses by.
    pub(crate) choice: Option<(u16, u64)>,
    /// What the call holds there of the headroom.
    pub(crate) held: Option<Lease>,
    /// The listener that our Record-Route names for the other side of the dialog.
    pub(crate) egress: Option<u8>,
    /// Evidence in the request that it belongs to the call.
    pub(crate) evidence: Evidence,
}

/// The leading Route values that name us, and what follows them.
pub(crate) struct Routes {
    pub(crate) own: usize,
    pub(crate) token: Option<RouteToken>,
    /// The listener that the last of several own values names: that of the other side.
    pub(crate) egress: Option<u8>,
    next: Next,
}

enum Next {
    /// No further Route.
    None,
    /// A Route to an address; `true` if a strict router is there.
    Address(SocketAddr, bool),
    /// A Route to a name, which would have to be resolved.
    Name,
}

impl Endpoint {
    /// Decides where `request` goes.
    pub(crate) fn route(
        &mut self,
        now: Timestamp,
        received: &Received,
        request: &Request<'_>,
    ) -> Result<Hop, Instead> {
        let Request { message, method, uri, essentials, .. } = request;
        let call_id = essentials.call_id;
        let mut routes = self.routes(received, message, call_id, request.restored)?;
        // A strict router before us has brought the token back in the Request-URI.
        routes.token = routes.token.or(request.token);
        // Only a token of ours shows that the Routes are what we recorded.
        let egress = routes.egress.filter(|_| routes.token.is_some());
        // A back end that was taken out of the configuration still ends its dialogs, by its token.
        let remote = canonical(received.flow.remote);
        let is_removed = |token: RouteToken| {
            token.backend == remote && self.addresses().was_removed(token.backend)
        };
        let (origin, leaves) = match self.addresses().origin(&received.flow) {
            Origin::Stranger if routes.token.is_some_and(is_removed) => (Origin::Trusted, true),
            origin => (origin, false),
        };
        let known = self.known(request, matches!(origin, Origin::Member(_)));
        let Known { fingerprint, call, evidence, is_new, .. } = known;
        // A token that is too old opens nothing by itself.
        routes.token = routes.token.filter(|token| call.is_some() || self.is_fresh(now, token));
        let in_dialog = essentials.to_tag.is_some();
        let ours = self.addresses().is_own_target(uri, received.flow.local);
        // What a back end sends is not counted where it goes to.
        let from_member = matches!(origin, Origin::Member(_));
        let demand = is_new && !from_member;
        let demand = demand.then(|| demand_of(*method, request.has_priority));

        if let Some(token) = routes.token {
            let shard = u16::from(token.shard);
            let elsewhere = shard != self.shard() && shard < self.shards();
            if elsewhere && call.is_none() && received.crossed == 0 {
                return Err(Instead::Cross(shard));
            }
        }
        let outward = match origin {
            Origin::Member(_) => true,
            Origin::Trusted => {
                leaves || routes.token.is_none() && call.is_none() && !routes.is_end()
            }
            Origin::Stranger => false,
        };
        // What forks forks each time it begins anew.
        let forks = is_new
            && routes.token.is_none()
            && call.and_then(|call| self.calls().get(call)).is_some_and(|entry| {
                matches!(self.pool_settings(entry.member.pool).choice, Choice::All(_))
            });
        // Whoever has called from here and knows the token has had a response with it here.
        if in_dialog
            && routes.token.is_some()
            && matches!(method, Method::Ack | Method::Prack)
            && let Some(entry) = call.and_then(|call| self.calls().get(call))
            && entry.caller == caller_of(received.flow.remote.ip())
        {
            self.on_verified(now, &received.flow);
        }
        if !outward && !forks {
            if let Some(hop) = self.follow(now, request, &routes, &known)? {
                return Ok(Hop { egress, ..hop });
            }
            if !is_new && (origin == Origin::Stranger || ours) {
                return Err(self.unknown(received, *method));
            }
        }
        let destination = match (&routes.next, origin) {
            (Next::None, _) => self.destination(origin, received, request, ours)?,
            // RFC 3261 §16.12 lets a client preload a Route; we are nobody's relay.
            (_, Origin::Stranger) => return Err(Instead::Reply(403, "relaying is not allowed")),
            (Next::Address(address, is_strict), _) => Way::Address(*address, *is_strict),
            (Next::Name, _) => return Err(NAME),
        };
        if let Way::Pool(pool) = destination {
            self.routed_to = Some(pool);
        }
        match destination {
            Way::Pool(pool) if let Origin::Member(from) = origin => {
                let to = self.pick_by_call(now, pool, fingerprint, from)?;
                let target = self.backend(to).address().ok_or(NOWHERE)?;
                Ok(Hop {
                    target,
                    member: None,
                    call: CallRef::NONE,
                    toward_backend: false,
                    own_routes: routes.own,
                    is_strict: false,
                    tier: self.tier(to.pool, CallRef::NONE),
                    choice: None,
                    held: None,
                    egress,
                    evidence,
                })
            }
            // RFC 3261 §16.11: "CANCEL and non-Routed ACK requests MUST generate the same choice as
            // their associated INVITE": another one would be made now.
            Way::Pool(_) if matches!(method, Method::Ack | Method::Cancel) => {
                Err(self.unknown(received, *method))
            }
            // The room is looked for before a back end is chosen, for a choice counts.
            Way::Pool(pool) => {
                if call.is_none() {
                    self.check_room_for_call(&received.flow)?;
                }
                let chosen = self.assign(now, pool, call, request, fingerprint, demand)?;
                let Chosen { member, key, call: held } = chosen;
                let (is_held, begins) = (call.is_some(), is_new && call.is_none());
                let call = self.hold(now, call, fingerprint, request.identity, member)?;
                if !is_held {
                    self.calls_mut().set_caller(call, caller_of(received.flow.remote.ip()));
                    self.count_in_share(call, &received.flow);
                }
                if begins {
                    self.choose_tier(member.pool, call, !request.has_its_share);
                }
                let choice = is_new.then_some((member.pool, key));
                Ok(Hop { choice, held, evidence, ..self.toward(member, call, routes.own) })
            }
            Way::Address(target, is_strict) => {
                if self.addresses().is_own_socket(target, received.flow.local) {
                    return Err(Instead::Reply(404, "leads back here"));
                }
                let member = match origin {
                    Origin::Member(member) => Some(member),
                    _ => None,
                };
                // The dialog of a call that a back end makes is remembered like that
                // of one it receives, for callees that ignore Record-Route.
                let call = match (call, member) {
                    (Some(call), _) => call,
                    (None, Some(member)) if *method == Method::Invite => {
                        let call = self.hold(now, None, fingerprint, request.identity, member)?;
                        self.choose_tier(member.pool, call, !request.has_its_share);
                        call
                    }
                    (None, _) => CallRef::NONE,
                };
                Ok(Hop {
                    target,
                    member,
                    call,
                    toward_backend: false,
                    own_routes: routes.own,
                    is_strict,
                    tier: member
                        .map_or(self.tier_elsewhere(), |member| self.tier(member.pool, call)),
                    choice: None,
                    held: None,
                    egress,
                    evidence,
                })
            }
        }
    }

    /// RFC 3261 §16.4: "If the first value in the Route header field indicates this
    /// proxy, the proxy MUST remove that value from the request." Where we stand
    /// between two listeners there are two.
    fn routes(
        &self,
        received: &Received,
        message: &Message<'_>,
        call_id: &[u8],
        restored: usize,
    ) -> Result<Routes, Instead> {
        let mut found = Routes { own: 0, token: None, egress: None, next: Next::None };
        let count = if restored == 0 { usize::MAX } else { message.routes().count() - restored };
        for route in message.routes().take(count) {
            let uri = route?.parse_uri()?;
            if !self.addresses().is_own_route(&uri, received.flow.local) {
                // RFC 3261 §19.1.1: "The lr parameter, when present, indicates that the element
                // responsible for this resource implements the routing mechanisms specified in
                // this document."
                let is_strict = !uri.lr();
                found.next = address_of(&uri).map_or(Next::Name, |at| Next::Address(at, is_strict));
                break;
            }
            found.own += 1;
            if found.own > OWN_ROUTES_MAX {
                return Err(Instead::Reply(400, "too many Routes lead here"));
            }
            // RFC 5658 §5: "a proxy MAY remove two Route headers instead of one when using the double
            // Record-Routing." The one that is taken off last names the interface toward the next hop.
            if found.own > 1 {
                found.egress = self.addresses().named(&uri);
            }
            if found.token.is_none() {
                let text = uri.user.unwrap_or_default();
                found.token = RouteToken::decode(text, self.keys(), call_id);
            }
        }
        Ok(found)
    }

    /// The pool where the INVITE of a CANCEL or ACK went, by the rules, and how many of its Routes
    /// name us; `None` if it went elsewhere.
    pub(crate) fn pool_of_lost(
        &self,
        received: &Received,
        request: &Request<'_>,
    ) -> Option<(u16, u8)> {
        let Request { message, essentials, restored, .. } = request;
        let routes = self.routes(received, message, essentials.call_id, *restored).ok()?;
        let origin = self.addresses().origin(&received.flow);
        let ours = self.addresses().is_own_target(&request.uri, received.flow.local);
        let is_for_us = routes.is_end() && !matches!(origin, Origin::Member(_));
        match self.destination(origin, received, request, ours).ok()? {
            Way::Pool(pool) if is_for_us => Some((pool, routes.own as u8)),
            _ => None,
        }
    }

    /// Returns whether a token alone proves that a request belongs to a call.
    fn is_fresh(&self, now: Timestamp, token: &RouteToken) -> bool {
        token.is_fresh(self.minutes(now))
    }

    /// Whether the Route set of a request shows that it belongs to a dialog of ours.
    pub(crate) fn has_route_token(
        &self,
        now: Timestamp,
        received: &Received,
        call_id: &[u8],
    ) -> bool {
        let Ok(message) = Message::parse(&received.bytes) else { return false };
        let routes = self.routes(received, &message, call_id, 0);
        let token = routes.ok().and_then(|routes| routes.token);
        token.is_some_and(|token| self.is_fresh(now, &token))
    }

    /// Where a request without a further Route goes: by the rules.
    fn destination(
        &self,
        origin: Origin,
        received: &Received,
        request: &Request<'_>,
        ours: bool,
    ) -> Result<Way, Instead> {
        let uri = &request.uri;
        // An maddr overrides the host (RFC 3261 §19.1.1).
        let by_number = uri.maddr().is_some() || uri.host.is_some_and(|host| host.ip().is_some());
        // An address that is not ours asks to be relayed there; a name may be a
        // domain that the pool serves.
        let elsewhere = by_number && !ours;
        let may_leave = origin != Origin::Stranger;
        let matches = |rule: &&Rule| rule.matches(origin, received, request, elsewhere);
        let to = match self.rules().iter().find(matches) {
            Some(rule) => rule.to,
            None if may_leave && !ours => RuleTarget::RequestUri,
            None if elsewhere => return Err(Instead::Reply(403, "relaying is not allowed")),
            None => return Err(Instead::Reply(404, "no route")),
        };
        match to {
            RuleTarget::Pool(index) => Ok(Way::Pool(index as u16)),
            RuleTarget::RequestUri if may_leave => {
                address_of(uri).map(|at| Way::Address(at, false)).ok_or(NAME)
            }
            RuleTarget::RequestUri => Err(Instead::Reply(403, "relaying is not allowed")),
        }
    }
}

/// Route values that name us: one, or two where we stand between two listeners, and
/// as many again when a request passes us twice.
const OWN_ROUTES_MAX: usize = 4;

/// The name of a back end has not been resolved yet.
const NOWHERE: Instead = Instead::Reply(503, NO_ADDRESS);

/// This version resolves no names of messages and speaks UDP alone.
const NAME: Instead = Instead::Reply(404, "not an IP address over UDP");

enum Way {
    Pool(u16),
    Address(SocketAddr, bool),
}

impl Routes {
    fn is_end(&self) -> bool {
        matches!(self.next, Next::None)
    }
}

impl Rule {
    fn matches(
        &self,
        origin: Origin,
        received: &Received,
        request: &Request<'_>,
        elsewhere: bool,
    ) -> bool {
        let Request { method_name: name, uri, .. } = request;
        let from = match self.from {
            Senders::Any => !matches!(origin, Origin::Member(_)),
            Senders::Trusted => origin != Origin::Stranger,
            Senders::Pool => matches!(origin, Origin::Member(_)),
            Senders::Net(net) => net.contains(&received.flow.remote.ip().to_canonical()),
        };
        let has = |name: &[u8]| self.methods.iter().any(|m| m.as_bytes() == name);
        // RFC 3261 §16.11: "CANCEL and non-Routed ACK requests MUST generate the same choice as their
        // associated INVITE."
        let is_invites =
            || matches!(request.method, Method::Ack | Method::Cancel) && has(b"INVITE");
        let method = self.methods.is_empty() || has(name) || is_invites();
        let domain = if self.domains.is_empty() {
            !elsewhere
        } else {
            uri.host.is_some_and(|host| self.domains.iter().any(|domain| is_host(&host, domain)))
        };
        from && method && domain
    }
}
