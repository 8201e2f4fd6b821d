//! Fires the timers of contexts: RFC 3261 §16.8, §16.9, §17.

use tidegate_sip::{Message, Method};
use tidegate_transaction::{Client, Firing};

use crate::amplification::may_repeat;
use crate::step::Step;
use crate::transaction::Transactions;
use crate::transaction::best::Best;
use crate::transaction::branches::write_again;
use crate::transaction::cancel::cancel_branch;
use crate::transaction::context::{Cancel, Context, Live};
use crate::transaction::failover::{retry_by_udp, try_after_silence, try_next};
use crate::transaction::hop_by_hop::send_cancel;
use crate::transaction::respond::{conclude, send_last, send_trying};
use crate::transaction::teach::{parties_of, record_silent};

/// Maximum number of contexts handled in one run of [`fire_expired`], so that many simultaneous
/// timers do not delay waiting packets.
const DUE_MAX: usize = 256;

/// Number of packets waiting to be sent at which a run of [`fire_expired`] ends.
const TRANSMITS_MAX: usize = 256;

/// Fires expired timers of transactions. Timers beyond the limits of one run stay due.
pub(crate) fn fire_expired(step: &mut Step<'_>, table: &mut Transactions) {
    for _ in 0..DUE_MAX {
        if step.output.waiting() >= TRANSMITS_MAX {
            return;
        }
        let Some(handle) = table.next_due(step.now) else { return };
        let Some(mut context) = table.lend(handle) else { continue };
        server_due(step, &mut context);
        match context.live.take() {
            Some(mut live) => {
                trying_due(step, &mut context, &mut live);
                for index in 0..context.branches.len() {
                    branch_due(step, &mut context, &mut live, index);
                }
                conclude(step, &mut context, &mut live);
                context.live = Some(live);
            }
            None => {
                for branch in &mut context.branches {
                    let timing = step.snapshot.timing(branch.target.transport);
                    // The context only absorbs retransmissions, so no timer sends a message.
                    (branch.client, _) = branch.client.on_timer(step.now, &timing);
                }
            }
        }
        table.settle(step.now, handle, context);
    }
}

fn server_due(step: &mut Step<'_>, context: &mut Context) {
    let timing = step.snapshot.timing(context.back.transport);
    let (server, firing) = context.server.on_timer(step.now, &timing);
    context.server = server;
    match firing {
        Firing::Resend => send_last(step, context),
        // Timer H: no ACK has come, but the transaction has had its final response.
        Firing::TimedOut | Firing::Silent => {}
    }
}

/// Sends the 100 that RFC 4320 §4.1 requires: "Without regard to transport, an SIP element MUST
/// respond to a non-INVITE request with a Status-Code of 100 if it has not otherwise responded
/// after the amount of time it takes a client transaction's Timer E to be reset to T2."
fn trying_due(step: &mut Step<'_>, context: &mut Context, live: &mut Live) {
    let is_due = live.trying.take_if(|due| *due <= step.now).is_some();
    if !is_due || !context.server.is_pending() {
        return;
    }
    let timing = step.snapshot.timing(context.back.transport);
    (context.server, _) = context.server.on_sending(step.now, &timing, 100);
    if let Ok(message) = Message::parse(&live.request)
        && let Ok(via) = message.top_via()
    {
        send_trying(step, context, live, &message, &via);
    }
}

fn branch_due(step: &mut Step<'_>, context: &mut Context, live: &mut Live, index: usize) {
    let branch = &mut context.branches[index];
    let target = branch.target;
    let timing = step.snapshot.timing(target.transport);
    let was_unanswered = branch.client.is_unanswered();
    let (client, firing) = branch.client.on_timer(step.now, &timing);
    branch.client = client;
    match firing {
        // On a stream there are no retransmissions: handle a failed send as soon as it is known.
        Firing::Silent
            if target.transport.is_reliable()
                && client.is_unanswered()
                && live.pending[index].unreachable.is_some() =>
        {
            branch_unreachable(step, context, live, index);
        }
        Firing::Silent => {}
        Firing::Resend
            if live.pending[index].unreachable.is_some()
                || step.peers.is_unreachable(&target, live.pending[index].since) =>
        {
            branch_unreachable(step, context, live, index);
        }
        Firing::Resend => resend(step, context, live, index),
        Firing::TimedOut => branch_timed_out(step, context, live, index, was_unanswered),
    }
    cancel_due(step, context, live, index);
    if context.branches[index].client.is_pending() {
        limits_due(step, context, live, index);
    }
}

fn resend(step: &mut Step<'_>, context: &Context, live: &Live, index: usize) {
    let branch = &context.branches[index];
    let (egress, target, since) = (branch.egress, branch.target, live.pending[index].since);
    let Context { call, is_claimed, .. } = *context;
    if !context.toward_backend
        && !target.is_registered
        && let Some(own) = step.snapshot.addresses.listener(egress.into())
        && !may_repeat(step, since, call, is_claimed, &target.flow_from(own.local))
    {
        return;
    }
    let Some(bytes) = write_again(step.snapshot, context, live, index) else { return };
    step.counters().requests_resent.add(1);
    step.output.send_from(step.snapshot, egress, &target, bytes);
}

/// Handles an undeliverable request. RFC 3261 §16.9: "If the transport layer notifies a proxy of an
/// error when it tries to forward a request (see Section 18.4), the proxy MUST behave as if the
/// forwarded request received a 503 (Service Unavailable) response."
///
/// RFC 7339 §5.9: "If a fatal transport error is reported by the transport layer ..., the condition
/// MUST be treated as a 503 (Service Unavailable) status code."
fn branch_unreachable(step: &mut Step<'_>, context: &mut Context, live: &mut Live, index: usize) {
    // Another target has the request already, or Timer C has fired.
    if live.pending[index].is_abandoned {
        return;
    }
    if retry_by_udp(step, context, live, index) || try_next(step, context, live) {
        return;
    }
    let branch = &mut context.branches[index];
    branch.client = branch.client.end();
    let usual = if branch.target.is_registered { 430 } else { 503 };
    live.consider(Best::own(live.pending[index].unreachable.unwrap_or(usual)));
}

/// Records once that the target of a branch has sent no response in time.
fn on_silent(step: &mut Step<'_>, context: &Context, live: &mut Live, index: usize) {
    if !std::mem::replace(&mut live.pending[index].is_silent, true) {
        let parties = parties_of(step.snapshot, context, live);
        record_silent(step, &context.branches[index], &mut live.pending[index], parties);
    }
}

/// Handles a timeout of the client transaction of a branch: Timer B or F (RFC 3261 §17.1).
///
/// RFC 3263 §4.3: a target has failed if the transaction "times out without ever having received
/// any response, provisional or final". So if a target has sent a 100, a request other than INVITE
/// goes to no other target when its transaction times out.
fn branch_timed_out(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    index: usize,
    was_unanswered: bool,
) {
    if live.pending[index].is_abandoned {
        return;
    }
    step.counters().timeouts.add(1);
    if !was_unanswered {
        return;
    }
    on_silent(step, context, live, index);
    if !try_next(step, context, live) && context.method == Method::Invite {
        live.consider(Best::own(408));
    }
}

fn cancel_due(step: &mut Step<'_>, context: &Context, live: &mut Live, index: usize) {
    let timing = step.snapshot.timing(context.branches[index].target.transport);
    let Cancel::Sent(sent) = &mut live.pending[index].cancel else { return };
    let (client, firing) = sent.client.on_timer(step.now, &timing);
    sent.client = client;
    if firing == Firing::Resend {
        step.counters().requests_resent.add(1);
        send_cancel(step, context, live, index);
    }
}

/// Applies the time limits of a branch that are not timers of its client transaction: the check of
/// its connection, the failover, Timer C, and the end after a CANCEL.
fn limits_due(step: &mut Step<'_>, context: &mut Context, live: &mut Live, index: usize) {
    let client: Client = context.branches[index].client;
    let pending = &mut live.pending[index];
    let is_waited_for = client.is_unanswered() && !pending.is_abandoned;
    if pending.check.take_if(|due| *due <= step.now).is_some() && is_waited_for {
        if step.peers.is_unreachable(&context.branches[index].target, pending.since) {
            return branch_unreachable(step, context, live, index);
        }
        pending.check = Some(step.now + step.now.since(pending.since));
    }
    let pending = &mut live.pending[index];
    if pending.failover.take_if(|due| *due <= step.now).is_some() && client.is_unanswered() {
        on_silent(step, context, live, index);
        if !try_after_silence(step, context, live, index) {
            let pending = &mut live.pending[index];
            pending.failover = Some(step.now + step.now.since(pending.since));
        }
    }
    let pending = &mut live.pending[index];
    if pending.timer_c.take_if(|due| *due <= step.now).is_some() {
        // RFC 3261 §16.8: "If the client transaction has received a provisional response, the
        // proxy MUST generate a CANCEL request matching that transaction. If the client
        // transaction has not received a provisional response, the proxy MUST behave as if
        // the transaction received a 408 (Request Timeout) response."
        // RFC 3261 §16.8: "If timer C should fire, the proxy MUST either reset the timer with any
        // value it chooses, or terminate the client transaction."
        let was_abandoned = std::mem::replace(&mut pending.is_abandoned, true);
        step.counters().timeouts.add(1);
        cancel_branch(step, context, live, index);
        if !was_abandoned {
            live.consider(Best::own(408));
        }
    }
    let pending = &live.pending[index];
    if pending.cancel.until().is_some_and(|until| until <= step.now) {
        let is_abandoned = pending.is_abandoned;
        let client = &mut context.branches[index].client;
        *client = client.end();
        // If Timer C has abandoned the branch, its timeout was counted then.
        if !is_abandoned {
            step.counters().timeouts.add(1);
            live.consider(Best::own(487));
        }
    }
}
