//! Commits a routing plan. This is the only place where routing changes state.
//!
//! The commit selects the back end, takes leases, creates or moves the call entry, chooses the tier
//! (with or without transactions), and counts the request. A commit may fail after successful
//! planning, because a pool or a table may have become full meanwhile.

pub(crate) mod call_entry;

use std::net::SocketAddr;

use tidegate_balance::Demand;
use tidegate_control::Tier;
use tidegate_sip::Method;
use tidegate_world::Received;

use self::call_entry::{check_room_for_call, enter_or_move, move_call, record_source};
use crate::dialog::evidence::Known;
use crate::dialog::{Answer, CallRef, Price, Transaction};
use crate::message::request::{Request, category_of_new};
use crate::network::caller_of;
use crate::pushback::next_hops::Admission;
use crate::rejection::{DropReason, Halt, Rejection};
use crate::routing::next_hop::{NextHop, toward};
use crate::routing::plan::Plan;
use crate::routing::select::{
    NewRequest, Selected, check_room, check_transaction_room, demand_of, select, take_at,
};
use crate::routing::target_choice::TargetChoice;
use crate::routing::tier::{choose_tier, count_call, tier};
use crate::settings::BackendRef;
use crate::state::Room;
use crate::step::{SourceEvidence, Step};
use crate::target::Target;
use crate::transport::addresses::Origin;

/// A request whose plan is being committed.
#[derive(Clone, Copy)]
struct CommitInput<'s, 'a> {
    /// The room in the transaction table for this request.
    room: Room,
    received: &'s Received,
    request: &'s Request<'a>,
    known: &'s Known,
}

/// Commits a plan: selects the back end, takes leases, records the call and chooses its tier.
/// Returns the next hop.
pub(crate) fn commit(
    step: &mut Step<'_>,
    room: Room,
    received: &Received,
    request: &mut Request<'_>,
    plan: Plan,
) -> Result<NextHop, Halt> {
    let shown = evidence_of_ack(step, received, request, &plan);
    let Plan { target_choice, known, own_routes, egress, proves_receipt, origin, .. } = plan;
    let (is_rated, number) = (plan.is_rated, plan.number);
    if proves_receipt {
        step.peers.verify(step.now, &step.snapshot.keys, &received.flow);
    }
    if is_rated && !take_rate(step, request, &known, number) {
        // The gate has counted a copy of new work already.
        if !request.is_again {
            step.shown = SourceEvidence::Floods;
        }
        return Err(Rejection::Drop(DropReason::CallFlood).into());
    }
    let Known { call, evidence, .. } = known;
    let input = CommitInput { room, received, request, known: &known };
    let mut hop = match target_choice {
        TargetChoice::Halt(halt) => return Err(halt),
        TargetChoice::Stay { backend_ref, target, key } => {
            let mut hop = toward(step, backend_ref, call.unwrap_or(CallRef::NONE))?;
            hop.redirect(target);
            hop.choice = key.map(|key| (backend_ref.pool, key));
            let address = hop.target.address;
            let admission = check_restriction(step, input, hop.call, backend_ref, address)?;
            hop.admission = Some(admission);
            hop
        }
        TargetChoice::BeginAt { backend_ref, target } => {
            let mut hop = begin_at(step, input, backend_ref)?;
            hop.redirect(target);
            hop
        }
        TargetChoice::BeginWithin { backend_ref, key, demand, goes_on } => {
            begin_within(step, input, backend_ref, key, demand, goes_on)?
        }
        TargetChoice::Move { pool, demand } => move_elsewhere(step, input, pool, demand, false)?,
        TargetChoice::Removed(target) => NextHop::to(target, step.snapshot.tier_elsewhere()),
        TargetChoice::Between(to) => {
            step.pool = Some(to.pool);
            let address = step.snapshot.backend(to).address().ok_or(Rejection::NO_ADDRESS)?;
            let admission = check_restriction(step, input, CallRef::NONE, to, address)?;
            if known.is_new {
                count_call(step, request);
            }
            let target = Target::new(step.snapshot.transport(to.pool), address);
            let tier = tier(step.snapshot, &step.routing.calls, to.pool, CallRef::NONE);
            NextHop { admission: Some(admission), ..NextHop::to(target, tier) }
        }
        TargetChoice::Select { pool, demand } => begin_at_any(step, input, pool, demand)?,
        TargetChoice::Outside { target, is_strict, from, is_named, is_claimed } => {
            let admission = check_outside(step, input, target.address)?;
            let call = enter_outward_call(step, input, from)?;
            let tier = match from {
                Some(backend_ref) => {
                    tier(step.snapshot, &step.routing.calls, backend_ref.pool, call)
                }
                // The transaction recognizes retransmissions, and limits their number. RFC 3261
                // §16.11: without it, a retransmission to a registered phone needs the same
                // Record-Route, and its token contains the time.
                None if is_claimed || target.is_registered => Tier::Stateful,
                None => step.snapshot.tier_elsewhere(),
            };
            let named = if is_named { &request.targets[..] } else { &[] };
            let others = named.iter().skip(1).copied().collect();
            let hop = NextHop::to(target, tier);
            NextHop { backend_ref: from, call, is_strict, others, is_claimed, admission, ..hop }
        }
        TargetChoice::User { target, from } => {
            let (hop, left_out) = send_to_user(step, input, target, from)?;
            request.leave_out(left_out);
            hop
        }
    };
    (hop.own_routes, hop.egress, hop.evidence) = (own_routes, egress, evidence);
    hop.origin = origin;
    step.shown = shown;
    Ok(hop)
}

/// Returns the evidence that an ACK gives about its source address: the source receives responses,
/// the ACK belongs to no call, or nothing. Only a party of the call knows the dialog tags and the
/// route token, because they are in the responses. But a party of the call could forge its source
/// address. So an ACK with the tags or the token proves something only about the address to which
/// the responses went.
fn evidence_of_ack(
    step: &Step<'_>,
    received: &Received,
    request: &Request<'_>,
    plan: &Plan,
) -> SourceEvidence {
    if request.method != Method::Ack {
        return SourceEvidence::Nothing;
    }
    let Known { call, evidence, is_stray, .. } = plan.known;
    let caller = caller_of(received.flow.remote.ip());
    let is_caller = || {
        let entry = call.and_then(|call| step.routing.calls.get(call));
        entry.is_some_and(|entry| entry.caller == caller)
    };
    if plan.proves_receipt || evidence.dialog != 0 && is_caller() {
        SourceEvidence::Receives
    } else if is_stray && !plan.has_token && plan.origin == Origin::Stranger {
        SourceEvidence::Stray
    } else {
        SourceEvidence::Nothing
    }
}

/// Checks that the overload restriction requested by the back end at `address` admits a request. A
/// retransmission passes without this check, because the original was admitted. An ACK to a
/// rejection and a CANCEL are checked, although they have the branch of their INVITE. `call` is the
/// entry of the call, which remembers its transactions. A request that one back end sends to
/// another may have no entry, but the gate remembers new work.
///
/// RFC 7415 §3.4: "The maximum rate determined by the server for a client applies to the entire
/// stream of SIP requests, even though throttling may only affect a particular subset of the
/// requests".
fn check_restriction(
    step: &Step<'_>,
    input: CommitInput<'_, '_>,
    call: CallRef,
    backend_ref: BackendRef,
    address: SocketAddr,
) -> Result<Admission, Rejection> {
    let Step { now, snapshot, .. } = *step;
    let Request { identity, method, is_again, .. } = *input.request;
    let stands_alone = !matches!(method, Method::Ack | Method::Cancel);
    let transaction = Transaction { identity, method };
    let is_single = input.known.is_new && method != Method::Invite;
    let is_repeated =
        || is_again || !is_single && step.routing.calls.is_repeated(call, transaction);
    if snapshot.next_hops.is_any() && stands_alone && is_repeated() {
        let offer = snapshot.offer_to(now, backend_ref, address);
        return Ok(Admission { address, offer });
    }
    snapshot.admit(now, backend_ref, address, input.request.category())
}

/// Checks a request to a target that was not selected from a pool: a target that the request or a
/// user's contact names. If the target nevertheless has the address of a back end, the overload
/// restriction of this back end must admit the request. Returns the admission, or `None` if no back
/// end has the address.
///
/// RFC 7339 §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by the
/// current "oc" and "oc-algo" parameter values from that particular downstream server." §5.4: "The
/// scope of overload control applies to unique combinations of IP and port values."
fn check_outside(
    step: &mut Step<'_>,
    input: CommitInput<'_, '_>,
    address: SocketAddr,
) -> Result<Option<Admission>, Rejection> {
    let Some(to) = step.snapshot.addresses.backend_ref(address) else { return Ok(None) };
    step.pool = Some(to.pool);
    let call = input.known.call.unwrap_or(CallRef::NONE);
    check_restriction(step, input, call, to, address).map(Some)
}

/// Counts a request against the rate limit of its call. `number` identifies a call that is not in
/// the call table. Returns whether the request may pass. The limit applies to in-dialog requests
/// and to copies of earlier requests, because a call could otherwise be used to bypass the limits
/// on new work. In calls with transactions, retransmissions do not reach this function.
fn take_rate(step: &mut Step<'_>, request: &Request<'_>, known: &Known, number: u64) -> bool {
    let calls = &mut step.routing.calls;
    let Request { identity, method, is_again, .. } = *request;
    // A source that knows only the Call-ID must not use up the rate of the call. So copies of a
    // single request have a rate of their own.
    let is_of_call = !(known.is_stray || known.is_new && is_again);
    let call = known.call.filter(|_| is_of_call).unwrap_or(CallRef::NONE);
    let is_repeated = is_again
        || method != Method::Ack && calls.is_repeated(call, Transaction { identity, method });
    let price = if is_repeated { Price::Retransmission } else { Price::Request };
    calls.take_rate(step.now, call, number, price)
}

/// Starts new work with the Call-ID of a known call, at the back end of that call. If the limits of
/// the back end do not admit the work and the call is over (`goes_on` is false), another back end
/// of the pool gets the work. The policy of the pool uses `key` to select a back end for failover.
fn begin_within(
    step: &mut Step<'_>,
    input: CommitInput<'_, '_>,
    backend_ref: BackendRef,
    key: u64,
    demand: Demand,
    goes_on: bool,
) -> Result<NextHop, Rejection> {
    let CommitInput { room, received, known, request } = input;
    check_room(step, room, backend_ref.pool, known.call)?;
    match take_at(step, backend_ref, demand, request.category()) {
        Ok((lease, admission)) => {
            let choice = (!goes_on).then_some((backend_ref.pool, key));
            let call = known.call.unwrap_or(CallRef::NONE);
            record_source(step, call, &received.flow);
            Ok(NextHop { choice, lease, admission, ..toward(step, backend_ref, call)? })
        }
        Err(rejection) if goes_on => Err(rejection),
        Err(rejection) => {
            let is_restricted = matches!(rejection, Rejection::Restricted);
            move_elsewhere(step, input, backend_ref.pool, demand, is_restricted)
        }
    }
}

/// Selects a back end of a pool for a request, and enters the call in the call table.
fn begin_at_any(
    step: &mut Step<'_>,
    input: CommitInput<'_, '_>,
    pool: u16,
    demand: Option<Demand>,
) -> Result<NextHop, Rejection> {
    let CommitInput { room, received, request, known } = input;
    let Known { call, fingerprint, is_new, .. } = *known;
    step.pool = Some(pool);
    // Check for room before selecting a back end, because each selection is counted.
    if call.is_none() {
        check_room_for_call(step, &received.flow, fingerprint)?;
    }
    let new = NewRequest { room, request, fingerprint, call, demand, is_restricted: false };
    let selected = select(step, pool, new)?;
    let Selected { backend_ref, key, lease, admission } = selected;
    let entry = enter_or_move(step, call, fingerprint, request.identity, backend_ref)?;
    record_source(step, entry, &received.flow);
    if call.is_none() && is_new {
        choose_tier(step, room, request, backend_ref.pool, entry);
    }
    let mut hop = toward(step, backend_ref, entry)?;
    hop.choice = is_new.then_some((backend_ref.pool, key));
    (hop.lease, hop.admission) = (lease, admission);
    Ok(hop)
}

/// Starts a call at the back end that the Route of its INVITE names. The call does not fail over.
fn begin_at(
    step: &mut Step<'_>,
    input: CommitInput<'_, '_>,
    backend_ref: BackendRef,
) -> Result<NextHop, Rejection> {
    let CommitInput { room, received, request, known } = input;
    let Known { call, fingerprint, .. } = *known;
    if call.is_none() {
        check_room_for_call(step, &received.flow, fingerprint)?;
    }
    check_room(step, room, backend_ref.pool, call)?;
    let demand = demand_of(request.method, request.has_priority);
    // An INVITE with an invented To-tag also begins a call.
    let category = category_of_new(request.method, request.has_priority);
    let (lease, admission) = take_at(step, backend_ref, demand, category)?;
    let entry = call.and_then(|call| step.routing.calls.get(call));
    let call = match call.filter(|_| entry.is_some_and(|entry| entry.phase.goes_on())) {
        Some(call) => call,
        None => {
            let entry = enter_or_move(step, call, fingerprint, request.identity, backend_ref)?;
            record_source(step, entry, &received.flow);
            if call.is_none() {
                choose_tier(step, room, request, backend_ref.pool, entry);
            }
            entry
        }
    };
    let mut hop = toward(step, backend_ref, call)?;
    (hop.lease, hop.admission) = (lease, admission);
    Ok(hop)
}

/// Moves an existing call to another back end of a pool. `is_restricted` is true if the overload
/// restriction of the current back end has rejected the request.
fn move_elsewhere(
    step: &mut Step<'_>,
    input: CommitInput<'_, '_>,
    pool: u16,
    demand: Demand,
    is_restricted: bool,
) -> Result<NextHop, Rejection> {
    let CommitInput { room, received, request, known } = input;
    let Known { call, fingerprint, .. } = *known;
    let entry = call.unwrap_or(CallRef::NONE);
    let Request { identity, method, .. } = *request;
    let demand = Some(demand);
    let new = NewRequest { room, request, fingerprint, call, demand, is_restricted };
    match select(step, pool, new) {
        Ok(Selected { backend_ref, key, lease, admission }) => {
            move_call(step, entry, identity, backend_ref);
            record_source(step, entry, &received.flow);
            let choice = Some((backend_ref.pool, key));
            Ok(NextHop { choice, lease, admission, ..toward(step, backend_ref, entry)? })
        }
        Err(rejection) => {
            // Our reply ends the request, even if it was sent to a back end before.
            let transaction = Transaction { identity, method };
            let answer = Answer::new(503, false);
            step.routing.calls.on_response(step.now, entry, transaction, answer);
            Err(rejection)
        }
    }
}

/// Returns the next hop of a request to a user, whose first contact is `target`, and the number of
/// contacts that are left out. These are back ends whose overload restriction does not admit the
/// request.
///
/// RFC 3261 §16.6: "As described in \[4\], the proxy MUST attempt to deliver the message to the
/// first tuple in that set, and proceed through the set in order until the delivery attempt
/// succeeds."
fn send_to_user(
    step: &mut Step<'_>,
    input: CommitInput<'_, '_>,
    mut target: Target,
    from: Option<BackendRef>,
) -> Result<(NextHop, usize), Rejection> {
    // A call from a back end has an entry in the call table, which limits the number of such calls.
    if from.is_none() {
        check_transaction_room(step, input.room)?;
    }
    let targets = &input.request.targets[..];
    let mut left_out = 0;
    let admission = loop {
        match check_outside(step, input, target.address) {
            Ok(admission) => break admission,
            Err(rejection) => {
                left_out += 1;
                target = *targets.get(left_out).ok_or(rejection)?;
                step.pool = None;
            }
        }
    };
    let call = enter_outward_call(step, input, from)?;
    let others = targets.iter().skip(left_out + 1).copied().collect();
    // Without transactions a CANCEL would need the same look-up again.
    let mut hop = NextHop::to(target, Tier::Stateful);
    (hop.is_user, hop.toward_backend) = (from.is_none(), from.is_none());
    (hop.backend_ref, hop.call, hop.others, hop.admission) = (from, call, others, admission);
    Ok((hop, left_out))
}

/// Returns the call entry of a request to a target that was not selected from a pool, or
/// [`CallRef::NONE`]. An INVITE from a back end gets a new entry if its call is not known, so that
/// its dialog is known even if the callee ignores Record-Route.
fn enter_outward_call(
    step: &mut Step<'_>,
    input: CommitInput<'_, '_>,
    from: Option<BackendRef>,
) -> Result<CallRef, Rejection> {
    let CommitInput { room, request, known, .. } = input;
    match (known.call, from) {
        (Some(call), _) => Ok(call),
        (None, Some(backend_ref)) if request.method == Method::Invite => {
            let call = enter_or_move(step, None, known.fingerprint, request.identity, backend_ref)?;
            choose_tier(step, room, request, backend_ref.pool, call);
            Ok(call)
        }
        (None, _) => {
            if known.is_new {
                count_call(step, request);
            }
            Ok(CallRef::NONE)
        }
    }
}
