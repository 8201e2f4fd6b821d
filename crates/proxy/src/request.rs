//! Serves a request in stages: reads, matches, plans and commits it, and forwards it or replies.

mod reject;
mod targets;

use tidegate_control::{Reason, Tier};
use tidegate_sip::{HeaderName, Message, Method, ScanStart, glance};
use tidegate_transaction::Key;
use tidegate_world::{Flow, Received};

use self::reject::{answer_options, reject, reply};
use self::targets::plan_resolved;
use crate::dialog::Transaction;
use crate::lookup::Lookups;
use crate::message::admitted::Admitted;
use crate::message::request::{Request, check_hop};
use crate::message::way_back::check_way_back;
use crate::parked::Parked;
use crate::rejection::reply_reason::ReplyReason;
use crate::rejection::{DropReason, Halt, Rejection, ReplyHeaders};
use crate::resolution::{Resolution, Ticket};
use crate::rewrite::path::adds_path;
use crate::rewrite::privacy::disbelieve;
use crate::rewrite::restore::restore;
use crate::routing::commit::commit;
use crate::routing::fork::breadth;
use crate::routing::loops::check_loop;
use crate::routing::next_hop::NextHop;
use crate::state::Room;
use crate::stateless::forward::{Forwarded, forward};
use crate::stateless::lost::{Lost, forward_lost};
use crate::step::{SourceEvidence, Step};
use crate::transaction::Transactions;
use crate::transaction::matching::{identity, try_match};
use crate::transaction::open::open;

/// Result of serving a request.
pub(crate) enum Served {
    /// The request was forwarded, absorbed or dropped. Or it got a response that is not a
    /// rejection, or that repeats an earlier response.
    Here,
    /// The request was answered with 503, for a temporary reason.
    RejectedForNow,
    /// The request was rejected with another final response.
    Rejected,
    /// Nothing was done, because no possible back end takes the request, for this reason.
    Unserved(Reason),
    /// The request was answered with 503: all possible back ends are unavailable for new requests.
    PoolDown,
    /// Nothing was done: another shard has the state of the request.
    Elsewhere(u16),
    /// Nothing was done: the request waits for the query of this ticket.
    Parked(Ticket, Key),
}

impl Served {
    /// Returns whether the request got a final response as a rejection, or is to get one.
    pub(crate) fn is_rejection(&self) -> bool {
        matches!(self, Self::RejectedForNow | Self::Rejected | Self::Unserved(_) | Self::PoolDown)
    }

    /// Returns whether the request is served later, in this shard or in another one.
    pub(crate) fn is_later(&self) -> bool {
        matches!(self, Self::Elsewhere(_) | Self::Parked(..))
    }
}

/// State that serving a request may change, in addition to the [`Step`].
pub(crate) struct Stages<'a> {
    pub(crate) transactions: &'a mut Transactions,
    pub(crate) lost: &'a mut Lost,
    pub(crate) resolution: &'a mut Resolution,
    pub(crate) lookups: &'a mut Lookups,
    pub(crate) parked: &'a mut Parked,
}

/// Forwards or answers a request, or returns the action that is left to the caller.
pub(crate) fn serve_request(
    step: &mut Step<'_>,
    stages: &mut Stages<'_>,
    received: &Received,
    admitted: &Admitted,
) -> Served {
    step.routing.tiering.begin();
    let snapshot = step.snapshot;
    let parsed = Message::parse(&received.bytes);
    let message = parsed.as_ref().ok();
    let disbelieved = message.and_then(|message| disbelieve(snapshot, &received.flow, message));
    let reparsed = disbelieved.as_deref().map(Message::parse);
    match reparsed.as_ref().unwrap_or(&parsed) {
        Ok(message) => serve_message(step, stages, received, message, admitted),
        // RFC 3261 §18.3: "If the message is a request, the element SHOULD generate a 400 (Bad
        // Request) response."
        Err(malformed) => {
            let method = match glance(&received.bytes) {
                Ok(ScanStart::Request { method, .. }) => Some(method),
                _ => None,
            };
            show_malformed(step, method);
            step.output.reject_malformed(snapshot, received, *malformed);
            Served::Rejected
        }
    }
}

/// Records a malformed ACK or BYE as evidence about its source. Other malformed requests were
/// counted by admission, which reads only the start line of an ACK or BYE.
fn show_malformed(step: &mut Step<'_>, method: Option<Method>) {
    if matches!(method, Some(Method::Ack | Method::Bye)) {
        step.shown = SourceEvidence::Stray;
    }
}

fn serve_message(
    step: &mut Step<'_>,
    stages: &mut Stages<'_>,
    received: &Received,
    message: &Message<'_>,
    admitted: &Admitted,
) -> Served {
    let mut read = Request::read(message);
    // `Request` is a large type, so the value is borrowed and not moved.
    let checked = match &mut read {
        Ok(request) => check_arrival(request, &received.flow).map(|()| request),
        Err(rejection) => Err(std::mem::replace(rejection, Rejection::Drop(DropReason::Malformed))),
    };
    let request = match checked {
        Ok(request) => request,
        Err(rejection) => {
            show_malformed(step, message.method());
            return reject(step, received, message, rejection);
        }
    };
    step.output.send_for(request.essentials.call_id);
    request.has_priority = admitted.has_priority;
    request.is_again = admitted.is_again;
    let keys = &step.snapshot.keys;
    let (known, call_id) = (admitted.hashes, request.essentials.call_id);
    request.call_fingerprint =
        known.map_or_else(|| keys.call.fingerprint(call_id), |known| known.call);
    let known = known.and_then(|known| known.identity);
    let compute = |request: &Request<'_>| identity(step, stages.transactions, request);
    request.identity = known.unwrap_or_else(|| compute(request));
    debug_assert!(
        known.is_none_or(|known| known == compute(request)),
        "the scan found another identity"
    );
    match process(step, stages, received, request, admitted) {
        Ok(()) => Served::Here,
        Err(Halt::Rejected(rejection)) => reject(step, received, message, rejection),
        Err(Halt::Capabilities) => {
            answer_options(step, received, message);
            Served::Here
        }
        Err(Halt::Redirect(shard)) => Served::Elsewhere(shard),
        Err(Halt::Park(ticket)) => {
            Served::Parked(ticket, Key::new(request.identity, request.method))
        }
    }
}

/// Checks that a request may arrive on `flow`, and that its responses can be sent.
fn check_arrival(request: &Request<'_>, flow: &Flow) -> Result<(), Rejection> {
    check_hop(&request.uri, flow)?;
    check_way_back(&request.essentials.via, flow)
}

/// Takes a request through all stages: match, check, plan, commit, forward. These are the steps of
/// RFC 3261 §16.2: "For all new requests, including any with unknown methods, an element intending
/// to proxy the request MUST:"
fn process<'a>(
    step: &mut Step<'_>,
    stages: &mut Stages<'_>,
    received: &Received,
    request: &mut Request<'a>,
    admitted: &Admitted,
) -> Result<(), Halt> {
    if try_match(step, stages.transactions, received, request)
        || try_match_parked(step, stages.parked, received, request)
    {
        return Ok(());
    }
    // RFC 3261 §16.11: "A stateless proxy MUST validate a request as described in Section 16.3" "A
    // stateless proxy MUST follow the request processing steps described in Sections 16.4 through
    // 16.5 with the following exception:" The proxy selects exactly one target.
    restore(step.snapshot, request, &received.flow)?;
    check(step, received, request)?;
    let room = room(step, stages.transactions, received);
    let has_transaction = has_transaction(request.method);
    let mut without_connection = None;
    let mut committed = match plan_resolved(step, stages, received, request, admitted) {
        Ok(plan) => {
            without_connection = plan.without_connection;
            commit(step, room, received, request, plan)
        }
        Err(halt) => Err(halt),
    };
    let Stages { transactions, lost, .. } = stages;
    // `NextHop` is a large type, so the value is borrowed and not moved.
    let hop = match &mut committed {
        Ok(hop) => hop,
        Err(Halt::Rejected(Rejection::Reply(481, ..))) if !has_transaction => {
            forward_lost(step, lost, received, request)?;
            return Ok(());
        }
        Err(_) => return committed.map(|_| ()),
    };
    if request.method == Method::Invite && request.essentials.to_tag.is_none() {
        step.routing.calls.record_priority(hop.call, request.identity, request.has_priority);
    }
    // If the transaction table is full, a request that continues or ends a call is forwarded
    // without a transaction instead of being rejected.
    // RFC 3261 §16.11: the branch "MUST be the same each time a retransmitted request is
    // forwarded". No transaction has matched, so the first copy of a pending request was forwarded
    // without one.
    let transaction = Transaction { identity: request.identity, method: request.method };
    let calls = &step.routing.calls;
    let goes_alone = request.essentials.to_tag.is_some() && (room.is_full || room.is_over_share)
        || calls.get(hop.call).is_some_and(|call| call.is_pending(step.now, transaction));
    step.routing.tiering.note(hop.tier);
    // The caller may have got the rejection of the first copy and given up. If the back end got a
    // later copy, the callee would ring although there is no caller.
    if has_transaction && let Some(reason) = step.routing.calls.unsent_reason(hop.call, transaction)
    {
        step.counters().retransmissions.add(1);
        return Err(Rejection::Unsent(reason).into());
    }
    // A request arrives only once on a stream. If it leaves as a datagram, the proxy has to
    // retransmit it. A final response also arrives only once on a stream. If it leaves as a
    // datagram, the proxy has to keep it and send it again for each copy of the request.
    // RFC 3261 §16.1: "Requests forwarded between different types of transports where the proxy's
    // TU must take an active role in ensuring reliable delivery on one of the transports MUST be
    // forwarded transaction statefully."
    let bridges = received.flow.transport.is_reliable() != hop.target.transport.is_reliable();
    // RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed)
    // response to the request." Without a transaction the failure would remain unnoticed.
    let target = &hop.target;
    let is_flow = target.is_registered || target.connection.is_some();
    let may_be_gone =
        target.transport.is_reliable() && (is_flow || target.transport.is_websocket());
    let has_state = hop.tier == Tier::Stateful || bridges || may_be_gone;
    // §16.10: a CANCEL that matches nothing is forwarded statelessly. §13.2.2.4: the ACK to a 2xx
    // is a transaction of its own without a response.
    let may_open = has_transaction && !goes_alone;
    // A large request without room for its transaction leaves by UDP, like a request to a back end
    // that accepts no TCP.
    let may_be_large = may_open && (request.essentials.to_tag.is_some() || room.is_free_for_new());
    // Without a transaction, each copy of a request gets here.
    if !(has_transaction && step.routing.calls.is_repeated(hop.call, transaction)) {
        count_flow(step, received, request, hop)?;
    }
    if has_state && may_open {
        // This request has a transaction, even if the tier of its call is without transactions.
        step.routing.tiering.note(Tier::Stateful);
        if let Some(target) = without_connection {
            // The transaction fails over to this target. All other requests, such as an ACK, may
            // only use another connection.
            hop.target.may_reconnect = false;
            hop.others.push(target);
        }
        open(step, transactions, received, request, hop)?;
        return Ok(());
    }
    if let Forwarded::Large = forward(step, lost, received, request, hop, may_be_large)? {
        step.routing.tiering.note(Tier::Stateful);
        open(step, transactions, received, request, hop)?;
    }
    Ok(())
}

/// Counts a request to which the proxy adds its Path, or that leaves on the flow of a registered
/// phone.
fn count_flow(
    step: &Step<'_>,
    received: &Received,
    request: &Request<'_>,
    hop: &NextHop,
) -> Result<(), Rejection> {
    if hop.target.is_registered {
        step.counters().registered_flows.add(1);
    }
    if request.method == Method::Register {
        let ingress = step.snapshot.addresses.listener_at(&received.flow);
        let plan = hop.forward_plan(step.now, step.snapshot, ingress)?;
        step.counters().paths_added.add(adds_path(step.snapshot, request, &plan).into());
    }
    Ok(())
}

/// Handles a request that is a copy of a parked request, or the CANCEL of a parked INVITE. Returns
/// `false` if it is neither.
///
/// RFC 3261 §9.2 says of the CANCEL: "If the transaction for the original request still exists,
/// [...] if it has not, its behavior depends on the method of the original request. If the original
/// request was an INVITE, the UAS SHOULD immediately respond to the INVITE with a 487 (Request
/// Terminated)."
fn try_match_parked(
    step: &mut Step<'_>,
    parked: &mut Parked,
    received: &Received,
    request: &Request<'_>,
) -> bool {
    let none = (ReplyReason::None, ReplyReason::None.doc());
    let now = step.now;
    if request.method == Method::Cancel {
        let key = Key::cancelled(request.identity);
        let invite = parked.cancel(now, key);
        if invite.is_none() && !parked.was_cancelled(now, key) {
            return false;
        }
        reply(step, received, request.message, 200, none, &ReplyHeaders::new());
        if let Some(invite) = invite
            && let Ok(message) = Message::parse(&invite.received.bytes)
        {
            reply(step, &invite.received, &message, 487, none, &ReplyHeaders::new());
        }
        return true;
    }
    let key = Key::new(request.identity, request.method);
    if request.method == Method::Ack || !parked.is_known(now, key) {
        return false;
    }
    step.counters().retransmissions.add(1);
    if !parked.contains(key) {
        // The copy has the same Call-ID and branch, so its response has the same To-tag.
        reply(step, received, request.message, 487, none, &ReplyHeaders::new());
    }
    true
}

/// Checks a request before routing, as RFC 3261 §16.3 requires.
///
/// RFC 3261 §16.3: "Before an element can proxy a request, it MUST verify the message's validity."
fn check(step: &Step<'_>, received: &Received, request: &Request<'_>) -> Result<(), Halt> {
    let Request { message, method, uri, max_forwards, .. } = request;
    let snapshot = step.snapshot;
    // Item 3: Max-Forwards. An OPTIONS to the proxy itself may be answered at zero.
    let arrived = uri.user.is_none() && snapshot.addresses.is_own_target(uri, &received.flow);
    if *method == Method::Options && arrived {
        // RFC 3261 §8.2.2.3: "If a UAS does not understand an option-tag listed in a Require header
        // field, it MUST respond by generating a response with status code 420 (Bad Extension)."
        return Err(match message.field(HeaderName::Require) {
            Some(_) => Rejection::BadExtension(HeaderName::Require).into(),
            None => Halt::Capabilities,
        });
    }
    // RFC 3261 §16.3: "If the request contains a Max-Forwards header field with a field value of
    // zero (0), the element MUST NOT forward the request." "Otherwise, the element MUST return a
    // 483 (Too many hops) response."
    if *max_forwards == Some(0) {
        return Err(Rejection::usual(483, "too many hops").into());
    }
    let has_transaction = has_transaction(*method);
    // Item 4: loop detection.
    if has_transaction {
        check_loop(snapshot, received, request)?;
    }
    // Item 5: Proxy-Require. RFC 3261 §16.3: "If the request contains a Proxy-Require header field
    // (Section 20.29) with one or more option-tags this element does not understand, the element
    // MUST return a 420 (Bad Extension) response." §8.2.2.3: never in an ACK or CANCEL.
    if message.field(HeaderName::ProxyRequire).is_some() && has_transaction {
        return Err(Rejection::BadExtension(HeaderName::ProxyRequire).into());
    }
    // RFC 5393 §5.3.3: check Max-Breadth before the selection of a target, which is counted.
    if has_transaction {
        breadth(request)?;
    }
    Ok(())
}

fn has_transaction(method: Method) -> bool {
    !matches!(method, Method::Ack | Method::Cancel)
}

/// Returns the room in the transaction table: whether the table is full for every request, whether
/// it is full for new work, and whether the source of this message has used up its share.
fn room(step: &Step<'_>, transactions: &Transactions, received: &Received) -> Room {
    let share = || step.snapshot.share_of(&received.flow);
    Room {
        is_full: transactions.is_full(),
        is_full_for_new: transactions.is_full_for_new(),
        is_over_share: transactions.is_scarce()
            && share().is_some_and(|bucket| transactions.is_exhausted(bucket)),
    }
}
