//! Sends responses upstream: RFC 3261 §16.7 items 5 to 9.

use std::net::SocketAddr;

use tidegate_sip::{Message, Method, Passage, Reply, Via, reason, write_reply, write_reply_by_via};
use tidegate_transaction::Dispatch;
use tidegate_world::{Buffer, Transmit};

use crate::amplification::may_send;
use crate::dialog::{Answer, Transaction};
use crate::message::reply::{server, transaction_tag};
use crate::output::Cause;
use crate::rejection::reply_reason::ReplyReason;
use crate::routing::commit::call_entry::settle;
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;
use crate::step::Step;
use crate::transaction::best::Best;
use crate::transaction::branches::start_next_group;
use crate::transaction::context::{Branch, Context, Live};

/// Statuses with which retransmitted provisional and final responses are counted in the byte
/// budget, whatever their own status is.
const PROVISIONAL: u16 = 199;
const FINAL: u16 = 200;

impl Live {
    /// Keeps a final response if it is better than the best one so far.
    pub(crate) fn consider(&mut self, response: Best) {
        self.best = Some(Box::new(match self.best.take() {
            Some(best) => best.or(response),
            None => response,
        }));
    }

    /// Returns whether a branch may still get a final response.
    fn waits(&self, branches: &[Branch]) -> bool {
        let mut branches = branches.iter().zip(&self.pending);
        branches.any(|(branch, pending)| branch.client.is_pending() && !pending.is_abandoned)
    }
}

/// Returns whether a response of `length` bytes may be sent to the caller. If it may, counts the
/// response as sent.
fn may_respond(step: &Step<'_>, context: &mut Context, status: u16, length: usize) -> bool {
    let Context { budget, back, .. } = context;
    may_send(step, budget, back, status, length)
}

/// Retransmits the last response that was sent to the caller, if there was one.
pub(crate) fn send_last(step: &mut Step<'_>, context: &mut Context) {
    let (status, bytes) = if let Some(last) = &context.last {
        (FINAL, step.snapshot.buffers.copy(last))
    } else if let Some(live) = &context.live
        && let Some(provisional) = &live.provisional
    {
        (PROVISIONAL, step.snapshot.buffers.copy(provisional))
    } else {
        return;
    };
    if may_respond(step, context, status, bytes.len()) {
        step.counters().responses_resent.add(1);
        step.output.send(Transmit::new(context.back, bytes));
    }
}

/// Forwards a provisional response, and stores it to answer retransmissions of the request.
pub(crate) fn pass_provisional(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    status: u16,
    bytes: Buffer,
) {
    let timing = step.snapshot.timing(context.back.transport);
    let (server, dispatch) = context.server.on_sending(step.now, &timing, status);
    context.server = server;
    if dispatch == Dispatch::Send {
        live.provisional = Some(bytes[..].into());
        if !may_respond(step, context, status, bytes.len()) {
            return;
        }
        step.counters().responses_forwarded.add(1);
        step.output.send(Transmit::new(context.back, bytes));
    }
}

/// Forwards a 2xx to an INVITE, even if a final response has been sent already.
///
/// RFC 3261 §16.7 item 5: "After a final response has been sent on the server transaction,
/// the following responses MUST be forwarded immediately: [...] Any 2xx response to an
/// INVITE request".
///
/// RFC 3261 §16.7: "If the server transaction is no longer available to handle the transmission,
/// the element MUST forward the response statelessly by sending it to the server transport."
///
/// RFC 6026 §8.3: "If the server transaction is no longer available to handle the transmission, the
/// element MUST forward the response statelessly by sending it to the server transport."
pub(crate) fn pass_success(
    step: &mut Step<'_>,
    context: &mut Context,
    index: usize,
    passage: &Passage<'_>,
    bytes: Buffer,
) {
    let timing = step.snapshot.timing(context.back.transport);
    let status = passage.status;
    let is_first = context.server.is_pending();
    (context.server, _) = context.server.on_sending(step.now, &timing, status);
    let backend_ref = context.branches[index].backend_ref;
    // If an element behind the target has forked the INVITE, several callees may answer it.
    let is_of_call = match is_first {
        true => settle_call(step, context, backend_ref),
        false => step.routing.calls.get(context.call).map(|call| call.backend_ref) == backend_ref,
    };
    if is_first || is_of_call {
        let mut answer =
            step.routing.calls.read_answer(&step.snapshot.keys, context.call, passage, true);
        // A dialog with another back end is no part of the call, and the BYE in it does not end the
        // call.
        if !is_of_call {
            answer.dialog = 0;
        }
        record_answer(step, context, answer);
    }
    if !may_respond(step, context, status, bytes.len()) {
        return;
    }
    step.counters().responses_forwarded.add(1);
    step.output.send(Transmit::new(context.back, bytes));
}

/// Sends the final response of a request, except a 2xx to an INVITE. `status` is the status of the
/// response, and the call table records `answer`.
///
/// RFC 3261 §16.7: "The proxy MUST pass the response to the server transaction associated with the
/// response context."
pub(crate) fn pass_final(
    step: &mut Step<'_>,
    context: &mut Context,
    answer: Answer,
    status: u16,
    bytes: Buffer,
) {
    let timing = step.snapshot.timing(context.back.transport);
    if context.server.is_pending() {
        record_answer(step, context, answer);
    }
    let (server, dispatch) = context.server.on_sending(step.now, &timing, status);
    context.server = server;
    if dispatch == Dispatch::Discard {
        return;
    }
    if answer.from_backend {
        step.counters().responses_forwarded.add(1);
    }
    context.last = Some(bytes[..].into());
    // The first final response is always allowed.
    context.budget.on_sent(status, bytes.len());
    step.output.send(Transmit::new(context.back, bytes));
}

/// Starts the next group of a fork or sends the best response, if no branch can still get a better
/// response.
///
/// RFC 3261 §16.7: "A stateful proxy MUST send a final response to a response context's server
/// transaction if no final responses have been immediately forwarded by the above rules and all
/// client transactions in this response context have been terminated." "The stateful proxy MUST
/// choose the "best" final response among those received and stored in the response context."
/// "Otherwise, the proxy MUST forward a response from the responses stored in the response
/// context." "The forwarded response MUST be processed as described in steps "Aggregate
/// Authorization Header Field Values" through "Record-Route"."
pub(crate) fn conclude(step: &mut Step<'_>, context: &mut Context, live: &mut Live) {
    if !context.server.is_pending() || live.waits(&context.branches) {
        return;
    }
    while let Some(group) = live.next_group() {
        if start_next_group(step, context, live, &group) {
            return;
        }
    }
    match live.best.take().map(|best| *best) {
        // Send a 503, because the next request would get one too until a back end reads again.
        Some(Best { status: 503, .. }) if live.is_backed_up() => {
            respond_because(step, context, live, 503, ReplyReason::BackedUp);
        }
        // RFC 3261 §16.7 item 6: "A proxy which receives a 503 (Service Unavailable) response
        // SHOULD NOT forward it upstream unless it can determine that any subsequent requests
        // it might proxy will also generate a 503. [...] If the only response that was
        // received is a 503, the proxy SHOULD generate a 500 response and forward that
        // upstream."
        Some(Best { status: 503, .. }) => respond(step, context, live, 500),
        Some(best) if best.bytes.is_empty() => respond(step, context, live, best.status),
        Some(best) => {
            let status = best.status;
            let bytes = step.snapshot.buffers.copy(&best.into_bytes());
            pass_final(step, context, Answer::new(status, true), status, bytes);
        }
        // RFC 4320 §4.2: "A transaction-stateful SIP element MUST NOT send a response with
        // Status-Code of 408 to a non-INVITE request. As a consequence, an element that cannot
        // respond before the transaction expires will not send a final response at all." Until it
        // expires, it absorbs copies of the request.
        None if context.method != Method::Invite => {
            if !live.is_expiring {
                record_answer(step, context, Answer::new(408, false));
            }
            live.is_expiring = true;
            if live.expires <= step.now {
                context.server = context.server.end();
            }
        }
        // RFC 3261 §16.7: "If there are no final responses in the context, the proxy MUST send a
        // 408 (Request Timeout) response to the server transaction."
        // RFC 7339 §5.9: "When a timeout error is received from the transaction layer, it MUST be
        // treated as if a 408 (Request Timeout) status code has been received."
        None => respond(step, context, live, 408),
    }
}

/// Sends a reply with `status`, for the usual [reason](ReplyReason::usual) of this status.
fn respond(step: &mut Step<'_>, context: &mut Context, live: &Live, status: u16) {
    respond_because(step, context, live, status, ReplyReason::usual(status));
}

/// Sends a reply with `status` for `reason`. A 503 has no Retry-After, because other requests may
/// find room at any moment, or go to another pool.
///
/// RFC 3261 §21.5.4: "It SHOULD NOT forward any other requests to that server for the duration
/// specified in the Retry-After header field, if present."
fn respond_because(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &Live,
    status: u16,
    reason: ReplyReason,
) {
    let message = Message::parse(&live.request).ok();
    let source = live.source(&context.back);
    let write = |message| write_own(step.snapshot, &message, source, context.identity, status);
    match message.and_then(write) {
        Some(bytes) => {
            step.counters().count_reply(status, reason);
            let pool = context.branches.last().and_then(|branch| pool_of(step, context, branch));
            let cause = Cause { reason, text: reason.doc(), pool };
            let Step { now, snapshot, .. } = *step;
            step.output.record_rejection(snapshot, now, source, &live.request, status, &cause);
            // The call table records our own reply as a 5xx, which says nothing about the speed of
            // the back end.
            let answer = Answer::new(status.max(503), false);
            pass_final(step, context, answer, status, bytes);
        }
        // The header lines that the reply must repeat do not fit into a datagram.
        None => end_unanswered(step, context, status),
    }
}

/// Returns the pool to which the request of a branch was sent, or `None` if it was not sent to a
/// back end. If the request came from a back end, [`Branch::backend_ref`] is its sender.
fn pool_of(step: &Step<'_>, context: &Context, branch: &Branch) -> Option<u16> {
    let backend_ref = if context.toward_backend {
        branch.backend_ref
    } else {
        step.snapshot.addresses.backend_ref(branch.target.address)
    };
    backend_ref.map(|backend_ref| backend_ref.pool)
}

/// Ends a request without a final response. `status` is the status of the response that could not
/// be sent.
fn end_unanswered(step: &mut Step<'_>, context: &mut Context, status: u16) {
    record_answer(step, context, Answer::new(status, false));
    context.server = context.server.end();
}

/// Writes a reply that the proxy generates in the transaction with this identity. `source` is the
/// source of the request. Returns `None` if the reply would be longer than a datagram.
///
/// RFC 3581 §4: "If this Via header field value contains an "rport" parameter with no value, it
/// MUST set the value of the parameter to the source port of the request."
pub(crate) fn write_own(
    snapshot: &Snapshot,
    message: &Message<'_>,
    source: SocketAddr,
    identity: u64,
    status: u16,
) -> Option<Buffer> {
    let tag = transaction_tag(&snapshot.keys, identity);
    let server = server(&snapshot.name);
    let reply = Reply {
        status,
        reason: reason(status),
        to_tag: Some(&tag),
        source: Some(source),
        headers: server.as_slice(),
    };
    let mut bytes = snapshot.buffers.take();
    write_reply(message, &reply, &mut bytes).ok()?;
    Some(bytes)
}

/// [Settles](settle) the call at the back end that has sent the first 2xx to its INVITE. Returns
/// whether the 2xx is part of the call. If a back end has sent the INVITE, another party has sent
/// the 2xx, so the call stays where it is.
fn settle_call(step: &mut Step<'_>, context: &Context, backend_ref: Option<BackendRef>) -> bool {
    let backend_ref = backend_ref.filter(|_| context.toward_backend);
    backend_ref.is_none_or(|at| settle(step, context.call, context.identity, at))
}

/// Records a response in the call table.
pub(crate) fn record_answer(step: &mut Step<'_>, context: &Context, answer: Answer) {
    let Context { identity, method, call, .. } = *context;
    step.routing.calls.on_response(step.now, call, Transaction { identity, method }, answer);
}

/// Sends a 100 to the caller. `via` is the first Via of the request.
///
/// RFC 3261 §17.2.1: "The 100 (Trying) response is constructed according to the procedures in
/// Section 8.2.6, except that the insertion of tags in the To header field of the response (when
/// none was present in the request) is downgraded from MAY to SHOULD NOT."
pub(crate) fn send_trying(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &Live,
    message: &Message<'_>,
    via: &Via<'_>,
) {
    if queue_trying(step, context, live, message, via) {
        step.counters().count_reply(100, ReplyReason::None);
    }
}

/// Queues a 100 to the caller without counting it. Returns whether the 100 may be sent.
pub(crate) fn queue_trying(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &Live,
    message: &Message<'_>,
    via: &Via<'_>,
) -> bool {
    let mut bytes = step.snapshot.buffers.take();
    let reply = Reply { source: Some(live.source(&context.back)), ..Reply::new(100) };
    let may_be_sent = write_reply_by_via(message, Some(via), &reply, &mut bytes).is_ok()
        && may_respond(step, context, 100, bytes.len());
    if may_be_sent {
        step.output.send(Transmit::new(context.back, bytes));
    }
    may_be_sent
}
