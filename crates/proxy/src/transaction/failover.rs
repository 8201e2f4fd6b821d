//! Failover: selects another target for a request that its current target does not serve.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_balance::Backend;
use tidegate_control::Tier;
use tidegate_control::feedback::Category;
use tidegate_sip::{Message, Method};
use tidegate_world::{Timestamp, Transport};

use crate::message::request::category_of_new;
use crate::pushback::next_hops::{Admission, Obedience};
use crate::rejection::Rejection;
use crate::routing::commit::call_entry::move_call;
use crate::routing::next_hop::{NextHop, toward};
use crate::routing::select::{Selected, choice_key, demand_of, select_in};
use crate::settings::{BackendRef, Choice, Mode};
use crate::snapshot::Snapshot;
use crate::step::Step;
use crate::target::Target;
use crate::transaction::branches::{read_again, send_again, start_again};
use crate::transaction::context::{Context, Live};

/// The time after a 503 of a back end during which this back end gets no failovers. So a rejected
/// call does not go from one saturated server to the next. If another back end has rejected the
/// request, any 503 counts. If another back end did not answer it, only a 503 because of overload
/// counts.
const SATURATED: Duration = Duration::from_secs(1);

/// Sends the request to another target after a target has sent a 503. The cause of the 503 may be
/// the callee, and other targets would then reject the request too. So only the first failover of a
/// request is free, and further ones use the failover budget of the pool. A failover for which no
/// target is left costs nothing. Returns whether the request was sent.
pub(crate) fn try_after_rejection(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
) -> bool {
    let is_first = !std::mem::replace(&mut live.is_rejected, true);
    let Some((pool, _)) = live.choice.filter(|_| !is_first) else {
        return try_next(step, context, live);
    };
    if !step.routing.picker_mut(pool).retries().has_retry() {
        if has_other(step, context, live, pool) {
            step.counters().failovers_denied.add(1);
        }
        return false;
    }
    try_next(step, context, live) && step.routing.picker_mut(pool).retries().take()
}

/// Sends the request to another target after the target of the branch at `index` has sent no
/// response for some time. Returns false if the request waits instead. There are two reasons: the
/// target may only be slow and the request may not arrive twice, or no other target takes the
/// request now. Such a request goes to another target at a later call, or when its client
/// transaction times out. If it may not arrive twice, its back end must have failed its probes.
///
/// RFC 3263 §4.3: "Failure also occurs if the transaction layer times out without ever having
/// received any response, provisional or final".
pub(crate) fn try_after_silence(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    index: usize,
) -> bool {
    let backend_ref = context.branches[index].backend_ref.filter(|_| context.toward_backend);
    let (now, snapshot) = (step.now, &step.snapshot);
    let is_dead =
        backend_ref.is_some_and(|backend_ref| !snapshot.backend(backend_ref).is_alive(now));
    (is_dead || may_arrive_twice(context.method)) && try_next(step, context, live)
}

/// Returns whether a request with this method may go to another target although a silent target may
/// have received it. An INVITE is cancelled at the silent target as soon as this target responds. A
/// second REGISTER, OPTIONS or BYE changes nothing more. For any other request, a missing response
/// may only mean that the server is slow, because many servers send no 100. A MESSAGE would arrive
/// twice, and a SUBSCRIBE or a PUBLISH would leave state at both targets.
const fn may_arrive_twice(method: Method) -> bool {
    matches!(method, Method::Invite | Method::Register | Method::Options | Method::Bye)
}

/// Returns whether a request may go to one more back end of its pool.
fn may_try(snapshot: &Snapshot, context: &Context, live: &Live, pool: u16) -> bool {
    let settings = snapshot.pool(pool);
    // An attempt by UDP after TCP goes to the same back end, so both count as one.
    let tries = context.branches.iter().filter(|branch| !branch.is_sent_by_udp).count();
    matches!(settings.choice, Choice::One(_))
        && tries < usize::from(settings.tries_max)
        && is_undecided(context, live)
}

/// Returns whether a request may still fail over.
fn is_undecided(context: &Context, live: &Live) -> bool {
    // A request that already rings at a target stays there.
    context.server.is_pending() && !live.is_cancelled && !live.is_ringing()
}

/// Sends the request to another target, if there is one that may take the request. Abandons the
/// earlier branches if the request was sent. Returns whether the request was sent.
pub(crate) fn try_next(step: &mut Step<'_>, context: &mut Context, live: &mut Live) -> bool {
    let before = context.branches.len();
    let is_started = match live.choice {
        Some((pool, _)) => try_in_pool(step, context, live, pool),
        None => try_named(step, context, live),
    };
    if is_started {
        for (branch, pending) in context.branches.iter_mut().zip(&mut live.pending).take(before) {
            pending.is_abandoned = true;
            pending.failover = None;
            branch.client = branch.client.hush();
        }
    }
    is_started
}

/// Sends the request of the branch at `index` again by UDP, because it could not be sent over TCP.
/// Returns whether the request was sent. The request is sent only if `is_large` of the branch is
/// true, and it has no final response and is not cancelled. It is not sent in two cases, because
/// the back end may have received it: the back end only reads its connection too slowly, or the
/// connection ended after the request was sent.
///
/// RFC 3261 §18.1.1: "If an element sends a request over TCP because of these message size
/// constraints, and that request would have otherwise been sent over UDP, if the attempt to
/// establish the connection generates either an ICMP Protocol Not Supported, or results in a TCP
/// reset, the element SHOULD retry the request, using UDP."
pub(super) fn retry_by_udp(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    index: usize,
) -> bool {
    let branch = &context.branches[index];
    // A back end that reads its connection too slowly is overloaded, so the proxy does not send it
    // a long datagram either.
    let pending = &live.pending[index];
    let is_rejected = pending.unreachable.is_some() && !pending.is_backed_up;
    if !branch.is_large || !is_rejected || !context.server.is_pending() || live.is_cancelled {
        return false;
    }
    let target = Target { transport: Transport::Udp, ..branch.target };
    let hop = NextHop {
        backend_ref: branch.backend_ref,
        call: context.call,
        choice: live.choice,
        toward_backend: true,
        egress: Some(branch.recorded),
        ..NextHop::to(target, Tier::Stateful)
    };
    if !send_again(step, context, live, &hop, index) {
        return false;
    }
    step.counters().large_by_udp.add(1);
    let pending = &mut live.pending[index];
    (pending.is_abandoned, pending.failover) = (true, None);
    let branch = &mut context.branches[index];
    branch.is_sent_by_udp = true;
    branch.client = branch.client.end();
    true
}

/// Sends the request to the next address of its host name, or to the next contact of its user.
///
/// RFC 3263 §4.3: "For SIP requests, failure occurs if the transaction layer reports a 503 error
/// response or a transport failure of some sort (generally, due to fatal ICMP errors in UDP or
/// connection failures in TCP). Failure also occurs if the transaction layer times out without ever
/// having received any response, provisional or final".
///
/// RFC 3261 §16.6: "As described in \[4\], the proxy MUST attempt to deliver the message to the
/// first tuple in that set, and proceed through the set in order until the delivery attempt
/// succeeds."
///
/// RFC 3263 §4.2: "If an attempt should fail, based on the definition of failure in Section 4.3,
/// the next SHOULD be tried, and if that should fail, the next SHOULD be tried, and so on."
///
/// RFC 3263 §4.3: "If a failure occurs, the client SHOULD create a new request, which is identical
/// to the previous, but has a different value of the Via branch ID than the previous (and therefore
/// constitutes a new SIP transaction)."
///
/// A target that is a back end is left out if its overload restriction does not admit the request.
fn try_named(step: &mut Step<'_>, context: &mut Context, live: &mut Live) -> bool {
    while is_undecided(context, live)
        && let Some(target) = live.further.as_mut().and_then(|further| further.others.pop_front())
    {
        let backend_ref = context.branches.first().and_then(|branch| branch.backend_ref);
        let call = context.call;
        if let Ok(admission) = admit_at(step, context, live, &target) {
            let hop = NextHop::to(target, Tier::Stateful);
            let mut hop = NextHop { backend_ref, call, admission, ..hop };
            if start_again(step, context, live, &mut hop) {
                return true;
            }
        }
        if let Some(contacts) = live.further.as_mut().and_then(|further| further.contacts.as_mut())
        {
            contacts.skip(context.branches.len());
        }
    }
    false
}

/// Checks that the overload restriction of the back end at `target` admits the request of a
/// context. Returns `None` if no back end has this address.
///
/// RFC 7339 §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by the
/// current "oc" and "oc-algo" parameter values from that particular downstream server." §5.4: "The
/// scope of overload control applies to unique combinations of IP and port values."
fn admit_at(
    step: &Step<'_>,
    context: &Context,
    live: &Live,
    target: &Target,
) -> Result<Option<Admission>, Rejection> {
    let Step { now, snapshot, .. } = *step;
    let category = match live.is_outside() {
        true => category_of_new(context.method, live.has_priority),
        false => Category::Ongoing,
    };
    let backend_ref = snapshot.addresses.backend_ref(target.address);
    let admit = |backend_ref| snapshot.admit(now, backend_ref, target.address, category);
    backend_ref.map(admit).transpose()
}

/// Sends the request to another back end of its pool or of the backup pools, if one may take the
/// request and has headroom. A back end gets the request only once, even if it is in several of
/// these pools.
fn try_in_pool(step: &mut Step<'_>, context: &mut Context, live: &mut Live, pool: u16) -> bool {
    if !may_try(step.snapshot, context, live, pool) {
        return false;
    }
    let (now, snapshot) = (step.now, step.snapshot);
    let pools = snapshot.and_backups(pool).filter(|&pool| stands_in(snapshot, pool));
    let pools: SmallVec<[u16; 4]> = pools.collect();
    let demand = Some(demand_of(context.method, live.has_priority));
    let category = category_of_new(context.method, live.has_priority);
    let other = pools.into_iter().find_map(|pool| {
        let key = key_in(step, pool, context, live)?;
        let chosen = select_in(step, pool, key, demand, category, |i, backend| {
            may_have(now, snapshot, context, live, (pool, i), backend)
        });
        chosen.ok()
    });
    let Some(Selected { backend_ref, lease, admission, .. }) = other else { return false };
    // A copy of the INVITE for which the call is counted does not move the call.
    let call = step.routing.calls.get(context.call);
    if !call.is_some_and(|call| call.is_counted_for_another(context.identity)) {
        move_call(step, context.call, context.identity, backend_ref);
    }
    let Ok(hop) = toward(step, backend_ref, context.call) else { return false };
    let mut hop = NextHop { choice: live.choice, lease, admission, ..hop };
    start_again(step, context, live, &mut hop)
}

/// Returns whether [`try_in_pool`] would find another back end for the request. Counts nothing.
fn has_other(step: &Step<'_>, context: &Context, live: &Live, pool: u16) -> bool {
    let (now, snapshot) = (step.now, step.snapshot);
    let demand = demand_of(context.method, live.has_priority);
    let mut pools = snapshot.and_backups(pool).filter(|&pool| stands_in(snapshot, pool));
    may_try(snapshot, context, live, pool)
        && pools.any(|pool| {
            let mut backends = snapshot.pool(pool).pool.backends().iter().enumerate();
            backends.any(|(i, backend)| {
                backend.is_up(now)
                    && backend.has_headroom(now, demand)
                    && may_have(now, snapshot, context, live, (pool, i), backend)
            })
        })
}

/// Returns whether the request may fail over to a back end, provided that the back end is up and
/// has headroom. `pool` and `index` name the back end.
fn may_have(
    now: Timestamp,
    snapshot: &Snapshot,
    context: &Context,
    live: &Live,
    (pool, index): (u16, usize),
    backend: &Backend,
) -> bool {
    // A back end of several pools has one reference for each of them.
    //
    // RFC 3261 §8.2.2.2: "If the From tag, Call-ID, and CSeq exactly match those associated with an
    // ongoing transaction, but the request does not match that transaction (based on the matching
    // rules in Section 17.2.3), the UAS core SHOULD generate a 482 (Loop Detected) response".
    let first = snapshot.first(BackendRef { pool, backend: index as u16 });
    let mut tried = context.branches.iter().filter_map(|branch| branch.backend_ref);
    let had = tried.any(|backend_ref| snapshot.first(backend_ref) == first);
    let is_saturated = match live.is_rejected {
        true => backend.has_rejected(now, SATURATED),
        false => backend.was_overloaded(now, SATURATED),
    };
    let obeys = snapshot.pool(pool).obedience != Obedience::Never;
    let is_restricted = obeys && snapshot.next_hops.is_restricted(now, backend.address());
    !had && !is_saturated && !is_restricted
}

/// Returns the key by which the policy of a pool selects a back end for the request of a context,
/// or `None` if the stored request cannot be parsed.
fn key_in(step: &Step<'_>, pool: u16, context: &Context, live: &Live) -> Option<u64> {
    let (first, key) = live.choice?;
    if step.routing.picker(pool).key() == step.routing.picker(first).key() {
        return Some(key);
    }
    let message = Message::parse(&live.request).ok()?;
    let request = read_again(step.snapshot, &message, context, live)?;
    let fingerprint = step.snapshot.keys.call.fingerprint(request.essentials.call_id);
    Some(choice_key(step.snapshot, step.routing, pool, &request, fingerprint))
}

/// Returns whether a request may fail over to this pool: the pool keeps transactions and sends each
/// request to one back end.
fn stands_in(snapshot: &Snapshot, pool: u16) -> bool {
    let settings = snapshot.pool(pool);
    settings.mode != Mode::Stateless && matches!(settings.choice, Choice::One(_))
}
