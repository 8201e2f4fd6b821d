//! Forwarding without state: RFC 3261 §16.11.

use tidegate_sip::Method;
use tidegate_world::Received;

use crate::amplification::may_repeat;
use crate::backends::health::record_given;
use crate::dialog::{Call, Transaction};
use crate::message::request::Request;
use crate::message::way_back::way_back;
use crate::rejection::Rejection;
use crate::rewrite::{ForwardPlan, write_request};
use crate::routing::commit::call_entry::record_request;
use crate::routing::fork::breadth;
use crate::routing::next_hop::NextHop;
use crate::stateless::branch::{branch_of, with_flow};
use crate::stateless::lost::{Lost, lost_branch};
use crate::step::Step;
use crate::transaction::large::is_large;

/// Result of [`forward`].
pub(crate) enum Forwarded {
    /// The request was sent, or it is a retransmission that must not be sent.
    Here,
    /// Nothing was done, because the request is too long for a datagram and needs a transaction.
    Large,
}

/// Forwards `request` to `hop` and updates its call. If `may_be_large` is true and the request is
/// new and too long for a datagram, returns [`Forwarded::Large`] and sends nothing.
///
/// RFC 3261 §16.11: "Furthermore, when handling a request statelessly, an element MUST NOT generate
/// its own 100 (Trying) or any other provisional response." "A stateless proxy MUST choose one and
/// only one target from the target set." "A stateless proxy MUST follow the request processing
/// steps described in Section 16.6 with the following exceptions:" "All other message
/// transformations specified in Section 16.6 MUST result in the same transformation of a
/// retransmitted request."
pub(crate) fn forward(
    step: &mut Step<'_>,
    lost: &Lost,
    received: &Received,
    request: &Request<'_>,
    hop: &mut NextHop,
    may_be_large: bool,
) -> Result<Forwarded, Rejection> {
    let Step { now, snapshot, .. } = *step;
    let ingress = snapshot.addresses.listener_at(&received.flow);
    // RFC 3261 §16.11: "In particular, if the proxy inserts a Record-Route value or pushes URIs
    // into the Route header field, it MUST place the same values in retransmissions of the
    // request." The token in our Record-Route contains a time: the time when the call began.
    let began = step.routing.calls.get(hop.call).map_or(now, Call::began);
    let plan = hop.forward_plan(began, snapshot, ingress)?;
    let branch = branch_of(snapshot, received, request, ingress);
    // An ACK and a CANCEL share the identity of their INVITE.
    let alone = !matches!(request.method, Method::Ack | Method::Cancel);
    let max_breadth = if alone { Some(breadth(request)?) } else { None };
    let plan = ForwardPlan { max_breadth, ..plan };
    let text = match lost_branch(step, lost, received, request, hop) {
        Some(text) => text,
        None => {
            let target = way_back(&request.essentials.via, &received.flow);
            branch.encode(&snapshot.keys, target)
        }
    };
    let connected = with_flow(snapshot, received, &text);
    let via_end = connected.as_deref().unwrap_or(text.as_bytes());
    let bytes = write_request(snapshot, &received.flow, request, &plan, via_end)?;
    let transaction = Transaction { identity: branch.identity, method: request.method };
    let is_repeated = step.routing.calls.is_repeated(hop.call, transaction);
    // The first copy of a repeated request has left by UDP, with a branch that a transaction would
    // change.
    if may_be_large && !is_repeated && is_large(snapshot, hop, bytes.len()) {
        return Ok(Forwarded::Large);
    }
    if alone && is_repeated {
        step.counters().retransmissions.add(1);
        if !hop.toward_backend
            && !hop.target.is_registered
            && let Some(call) = step.routing.calls.get(hop.call)
            && let Some(since) = call.begun_at(transaction)
            && let Some(own) = snapshot.addresses.listener(plan.egress.into())
            && !may_repeat(step, since, hop.call, hop.is_claimed, &plan.target.flow_from(own.local))
        {
            return Ok(Forwarded::Here);
        }
    }
    let calls = &mut step.routing.calls;
    if hop.toward_backend
        && let Some(mut budget) = calls.get(hop.call).map(|entry| entry.budget)
    {
        budget.on_request(received.bytes.len(), is_repeated || !alone);
        calls.set_budget(hop.call, budget);
    }
    let new = hop.backend_ref.filter(|_| alone && hop.choice.is_some() && !is_repeated);
    let given =
        |backend_ref| record_given(now, snapshot, backend_ref, received.flow.remote.ip(), request);
    let parties = new.and_then(given);
    let call = hop.call;
    record_request(step, hop, transaction);
    if let Some(parties) = parties {
        step.routing.calls.set_parties(call, transaction, parties);
    }
    let is_new_work = request.category().is_reducible() && !is_repeated;
    step.counters().requests_forwarded.add(1);
    step.output.send_request(snapshot, plan.egress, &plan.target, bytes, is_new_work);
    Ok(Forwarded::Here)
}
