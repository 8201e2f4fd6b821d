//! Handles received CANCELs, and generates CANCELs: RFC 3261 §9, §16.10.

use tidegate_sip::{Message, Method, reply_target};
use tidegate_transaction::{Handle, OtherClient};
use tidegate_world::{Flow, Received, Transmit};

use crate::rejection::reply_reason::ReplyReason;
use crate::step::Step;
use crate::transaction::Transactions;
use crate::transaction::context::{Branch, Cancel, Context, Live, SentCancel};
use crate::transaction::hop_by_hop::send_cancel;
use crate::transaction::reason::Reason;
use crate::transaction::respond::{conclude, write_own};

/// Cancels the INVITE of a context because the caller has sent a CANCEL.
///
/// RFC 3261 §16.10: "A proxy MUST cancel any pending client transactions associated with a response
/// context when it receives a matching CANCEL request."
pub(crate) fn cancel_request(
    step: &mut Step<'_>,
    table: &mut Transactions,
    handle: Handle,
    received: &Received,
    message: &Message<'_>,
) {
    // RFC 3261 §9.2: "Regardless of the method of the original request, as long as the CANCEL
    // matched an existing transaction, the UAS answers the CANCEL request itself with a 200 (OK)
    // response." The response is the same each time, so it needs no transaction. "[T]he To tag of
    // the response to the CANCEL and the To tag in the response to the original request SHOULD be
    // the same."
    // The source need not be that of the INVITE (§22.1): see "Why" in docs/guide/trust.md.
    let Ok(via) = message.top_via() else { return };
    let Some(mut context) = table.lend(handle) else { return };
    let source = received.flow.remote;
    let back = Flow { remote: reply_target(&via, source), ..received.flow };
    if let Some(bytes) = write_own(step.snapshot, message, source, context.identity, 200) {
        step.counters().count_reply(200, ReplyReason::None);
        step.output.send(Transmit::new(back, bytes));
    }
    // "If it has [sent a final response], the CANCEL request has no effect on the processing of
    // the original request", and "no impact on the processing of transactions with any other
    // method".
    if context.method == Method::Invite
        && context.server.is_pending()
        && let Some(mut live) = context.live.take()
    {
        // RFC 3261 §16.10: "If a matching response context is found, the element MUST immediately
        // return a 200 (OK) response to the CANCEL request. [...] the element MUST generate
        // CANCEL requests for all pending client transactions in the context".
        let reason = Reason::copied(message);
        cancel_all(step, &mut context, &mut live, reason);
        conclude(step, &mut context, &mut live);
        context.live = Some(live);
    }
    table.settle(step.now, handle, context);
}

/// Cancels all branches that have no final response, and starts no further branches.
pub(crate) fn cancel_all(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    reason: Reason,
) {
    live.is_cancelled = true;
    // Retransmissions of a CANCEL must be equal, so the first reason stays.
    live.reason.get_or_insert(reason);
    if let Some(further) = &mut live.further {
        further.groups.clear();
    }
    for index in 0..context.branches.len() {
        cancel_branch(step, context, live, index);
    }
}

/// Cancels one branch of an INVITE. The CANCEL is sent at once if the branch has had a provisional
/// response, otherwise as soon as a provisional response arrives.
pub(crate) fn cancel_branch(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    index: usize,
) {
    // RFC 3261 §9.1: "A CANCEL request SHOULD NOT be sent to cancel a request other than
    // INVITE."
    if context.method != Method::Invite {
        return;
    }
    let Branch { client, target, .. } = context.branches[index];
    let timing = step.snapshot.timing(target.transport);
    let pending = &mut live.pending[index];
    if !client.is_pending() || matches!(pending.cancel, Cancel::Sent(_)) {
        return;
    }
    // RFC 3261 §9.1: "If there is no final response for the original request in 64*T1 seconds
    // [...], the client SHOULD then consider the original transaction cancelled and SHOULD
    // destroy the client transaction handling the original request."
    let until = pending.cancel.until().unwrap_or(step.now + timing.patience());
    // A cancelled request does not fail over.
    pending.failover = None;
    if client.is_unanswered() {
        pending.cancel = Cancel::Wanted { until };
        return;
    }
    let (client, has_reason) = (OtherClient::start(step.now, &timing), live.reason.is_some());
    pending.cancel = Cancel::Sent(Box::new(SentCancel { client, until, has_reason }));
    step.counters().cancels.add(1);
    send_cancel(step, context, live, index);
}
