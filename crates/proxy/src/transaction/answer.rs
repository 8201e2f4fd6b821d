//! Handles responses to our client transactions: RFC 3261 §16.7.

use tidegate_sip::{Method, Passage};
use tidegate_transaction::{Arrival, Handle, Key, TIMER_C};
use tidegate_world::{Buffer, Received};

use crate::dialog::Transaction;
use crate::message::transaction_branch::TransactionBranch;
use crate::rejection::DropReason;
use crate::rewrite::write_response;
use crate::step::Step;
use crate::transaction::Transactions;
use crate::transaction::best::Best;
use crate::transaction::cancel::{cancel_all, cancel_branch};
use crate::transaction::context::{Cancel, Context, Live};
use crate::transaction::failover::try_after_rejection;
use crate::transaction::hop_by_hop::{Model, record_hop, send_ack};
use crate::transaction::reason::Reason;
use crate::transaction::respond::{
    conclude, pass_final, pass_provisional, pass_success, record_answer,
};
use crate::transaction::teach::{has_sent, parties_of, record_rejected};

/// A received response, with the branch of the context to which it belongs.
struct Answer<'a> {
    /// The index of the branch in [`Context::branches`].
    index: usize,
    received: &'a Received,
    passage: &'a Passage<'a>,
}

/// Handles a response to a client transaction. `found` is the handle of its context, if the context
/// has been looked up already.
///
/// RFC 6026 §7.3: "When receiving any SIP response, a transaction-stateful proxy MUST compare the
/// transaction identifier in that response against its existing transaction state machines."
///
/// RFC 6026 §8.9: "If there is a match, the response MUST be passed to that transaction."
///
/// RFC 3261 §18.1.2: "If there is a match, the response MUST be passed to that transaction."
pub(crate) fn serve_answer(
    step: &mut Step<'_>,
    table: &mut Transactions,
    received: &Received,
    passage: &Passage<'_>,
    branch: &TransactionBranch,
    found: Option<Handle>,
) -> Result<(), DropReason> {
    // RFC 6026 §8.9 (for RFC 3261 §16.7 item 1): a response that matches no client
    // transaction is not forwarded.
    let method = match passage.cseq.method {
        Method::Cancel => Method::Invite,
        method => method,
    };
    let handle = found.or_else(|| table.find(Key::new(branch.identity, method)));
    let handle = handle.ok_or(DropReason::StrayResponse)?;
    let mut context = table.lend(handle).ok_or(DropReason::StrayResponse)?;
    let Some(index) = context.branch_at(branch.tag) else {
        table.settle(step.now, handle, context);
        return Err(DropReason::StrayResponse);
    };
    let answer = Answer { index, received, passage };
    let done = take(step, &answer, &mut context);
    table.settle(step.now, handle, context);
    done
}

/// Applies a response to the client transaction of its branch, and forwards the response unless it
/// is a retransmission.
///
/// RFC 3261 §16.7: "As client transactions pass responses to the proxy layer, the following
/// processing MUST take place:" The section lists ten steps, from the search for the response
/// context to the CANCELs.
fn take(step: &mut Step<'_>, answer: &Answer<'_>, context: &mut Context) -> Result<(), DropReason> {
    let Answer { index, passage, .. } = *answer;
    let branch = context.branches.get_mut(index).ok_or(DropReason::StrayResponse)?;
    let timing = step.snapshot.timing(branch.target.transport);
    // RFC 3261 §17.1.3: "If the method parameter in the CSeq header field matches the method
    // of the request that created the transaction. The method is needed since a CANCEL
    // request constitutes a different transaction, but shares the same value of the branch
    // parameter."
    match passage.cseq.method {
        method if method == context.method => {}
        Method::Cancel if context.method == Method::Invite => {
            return take_answer_to_cancel(step, answer, context);
        }
        _ => return Err(DropReason::StrayResponse),
    }
    let flow = &answer.received.flow;
    if branch.is_large && branch.target.is_at(flow.transport, flow.remote) {
        step.peers.record_connected(step.now, &branch.target);
    }
    let is_first = branch.client.is_pending() && passage.status >= 200;
    let (client, arrival) = branch.client.on_response(step.now, &timing, passage.status);
    branch.client = client;
    if let Some(backend_ref) = branch.backend_ref.filter(|_| is_first && context.toward_backend) {
        step.snapshot
            .backend(backend_ref)
            .on_final(context.method == Method::Invite, passage.status);
    }
    match arrival {
        Arrival::Absorb => return Err(DropReason::RepeatedResponse),
        Arrival::Acknowledge => {
            acknowledge_answer(step, answer, context);
            return Err(DropReason::RepeatedResponse);
        }
        Arrival::DeliverAndAcknowledge => {
            record_hop(step.snapshot, context, index);
            acknowledge_answer(step, answer, context);
        }
        Arrival::Deliver => {}
    }
    let bytes = write_response(step.snapshot, answer.received, passage, &context.back)?;
    let Some(mut live) = context.live.take() else {
        // After the final response to an INVITE only a 2xx is delivered.
        pass_success(step, context, index, passage, bytes);
        return Ok(());
    };
    deliver(step, answer, context, &mut live, bytes);
    context.live = Some(live);
    Ok(())
}

fn take_answer_to_cancel(
    step: &mut Step<'_>,
    answer: &Answer<'_>,
    context: &mut Context,
) -> Result<(), DropReason> {
    let branch = context.branches.get(answer.index).ok_or(DropReason::StrayResponse)?;
    let timing = step.snapshot.timing(branch.target.transport);
    let pending = context.live.as_mut().and_then(|live| live.pending.get_mut(answer.index));
    let Some(Cancel::Sent(sent)) = pending.map(|pending| &mut pending.cancel) else {
        return Err(DropReason::StrayResponse);
    };
    let (next, arrival) = sent.client.on_response(step.now, &timing, answer.passage.status);
    sent.client = next;
    match arrival {
        Arrival::Absorb => Err(DropReason::RepeatedResponse),
        _ => Ok(()),
    }
}

/// Acknowledges a final response: sends an ACK to the target of the branch.
fn acknowledge_answer(step: &mut Step<'_>, answer: &Answer<'_>, context: &Context) {
    let Answer { index, received, passage } = *answer;
    let response = Model { bytes: &received.bytes, number: passage.cseq.number };
    send_ack(step, context, index, &response);
}

/// Forwards a new response, or stores the response until all branches have ended. A 503 may cause a
/// failover instead.
///
/// RFC 3261 §16.7: "A stateful proxy MUST NOT immediately forward any other responses." "Any
/// response chosen for immediate forwarding MUST be processed as described in steps "Aggregate
/// Authorization Header Field Values" through "Record-Route"."
///
/// RFC 3261 §16.7: "Until a final response has been sent on the server transaction, the following
/// responses MUST be forwarded immediately:" any provisional response other than 100, and any 2xx.
fn deliver(
    step: &mut Step<'_>,
    answer: &Answer<'_>,
    context: &mut Context,
    live: &mut Live,
    bytes: Buffer,
) {
    let Answer { index, passage, .. } = *answer;
    let status = passage.status;
    let is_invite = context.method == Method::Invite;
    if status == 503
        && has_sent(step.snapshot, &context.branches[index], answer.received.flow.remote)
    {
        let parties = parties_of(step.snapshot, context, live);
        let (branch, pending) = (&context.branches[index], &mut live.pending[index]);
        record_rejected(step.now, step.snapshot, branch, pending, parties, &answer.received.bytes);
        // The 503 is not forwarded: another back end is tried, or the caller gets a 500. But the
        // back end has not lost the request.
        if !live.pending[index].is_abandoned {
            let Context { identity, method, call, .. } = *context;
            step.routing.calls.on_heard(step.now, call, Transaction { identity, method });
        }
    }
    match status {
        ..200 => deliver_provisional(step, answer, context, live, bytes),
        200..300 if is_invite => {
            pass_success(step, context, index, passage, bytes);
            // RFC 3261 §16.7 item 10: "If the forwarded response was a final response, the
            // proxy MUST generate a CANCEL request for all pending client transactions
            // associated with this response context."
            cancel_all(step, context, live, Reason::Answered(status));
        }
        200..300 => {
            let answer =
                step.routing.calls.read_answer(&step.snapshot.keys, context.call, passage, true);
            pass_final(step, context, answer, status, bytes);
        }
        _ if live.pending[index].is_abandoned => {}
        _ => {
            if status == 503 && try_after_rejection(step, context, live) {
                return;
            }
            // RFC 4320 §4.2: a 408 to any other request must not be forwarded.
            if is_invite || status != 408 {
                live.consider(Best::received(status, &bytes));
            }
            if status >= 600 {
                // RFC 3261 §16.7 item 5: "If a 6xx response is received, it is not
                // immediately forwarded, but the stateful proxy SHOULD cancel all client
                // pending transactions as described in Section 10, and it MUST NOT create any
                // new branches in this context."
                // RFC 3261 §16.7: "A proxy SHOULD also generate a CANCEL request for all pending
                // client transactions associated with this response context when it receives a 6xx
                // response."
                cancel_all(step, context, live, Reason::Answered(status));
            }
            conclude(step, context, live);
        }
    }
}

fn deliver_provisional(
    step: &mut Step<'_>,
    answer: &Answer<'_>,
    context: &mut Context,
    live: &mut Live,
    bytes: Buffer,
) {
    let Answer { index, passage, .. } = *answer;
    let status = passage.status;
    let pending = &mut live.pending[index];
    pending.failover = None;
    // Earlier transport errors no longer count.
    pending.since = step.now;
    // RFC 3261 §16.7 item 2: "For an INVITE transaction, if the response is a provisional
    // response with status codes 101 to 199 inclusive (i.e., anything but 100), the proxy
    // MUST reset timer C for that client transaction."
    if status > 100 && pending.timer_c.is_some() {
        pending.timer_c = Some(step.now + TIMER_C);
    }
    let is_abandoned = pending.is_abandoned;
    if is_abandoned || matches!(pending.cancel, Cancel::Wanted { .. }) {
        cancel_branch(step, context, live, index);
    }
    if is_abandoned {
        return;
    }
    let answer = step.routing.calls.read_answer(&step.snapshot.keys, context.call, passage, true);
    record_answer(step, context, answer);
    // RFC 3261 §16.7 item 5: "Any provisional response other than 100 (Trying)". RFC 4320
    // §4.1: "An SIP element MUST NOT send any provisional response with a Status-Code other
    // than 100 to a non-INVITE request."
    // RFC 3261 §16.7: "In particular, a stateful proxy MUST NOT forward any 100 (Trying) response."
    if status > 100 && context.method == Method::Invite && context.server.is_pending() {
        pass_provisional(step, context, live, status, bytes);
    }
}
