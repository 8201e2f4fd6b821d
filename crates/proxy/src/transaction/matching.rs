//! Matches requests to existing transactions: retransmissions, ACK and CANCEL. RFC 3261 §17.2.3.

use tidegate_control::Tier;
use tidegate_sip::{Message, Method};
use tidegate_transaction::{
    Acknowledgement, Handle, Key, Repetition, identity as transaction_identity, is_unique,
};
use tidegate_world::Received;

use crate::dialog::{Call, Transaction};
use crate::message::request::Request;
use crate::rejection::DropReason;
use crate::step::{SourceEvidence, Step};
use crate::transaction::Transactions;
use crate::transaction::cancel::cancel_request;
use crate::transaction::context::Context;
use crate::transaction::respond::{send_last, send_trying};

/// Applies a request to the transaction that it matches. Returns `false` if the request matches no
/// transaction, or is an ACK that must be forwarded.
pub(crate) fn try_match(
    step: &mut Step<'_>,
    table: &mut Transactions,
    received: &Received,
    request: &Request<'_>,
) -> bool {
    let found = match request.method {
        Method::Cancel => table.find_cancelled(request.identity),
        method => table.find(Key::new(request.identity, method)),
    };
    let Some(handle) = found else { return false };
    step.routing.tiering.note(Tier::Stateful);
    if matches!(request.method, Method::Ack | Method::Cancel)
        && let Some(context) = table.get_mut(handle)
    {
        if context.budget.is_flooded() {
            step.counters().dropped(DropReason::CallFlood).add(1);
            step.shown = SourceEvidence::Floods;
            return true;
        }
        context.budget.on_request(received.bytes.len(), true);
    }
    match request.method {
        Method::Ack => acknowledge(step, table, handle, received, request),
        Method::Cancel => {
            cancel_request(step, table, handle, received, request.message);
            true
        }
        _ => {
            step.counters().retransmissions.add(1);
            repeat(step, table, handle, received);
            true
        }
    }
}

/// Applies an ACK to the transaction that it acknowledges. Returns `true` if the ACK must not be
/// forwarded.
fn acknowledge(
    step: &mut Step<'_>,
    table: &mut Transactions,
    handle: Handle,
    received: &Received,
    request: &Request<'_>,
) -> bool {
    let Some(mut context) = table.lend(handle) else { return false };
    if is_evidence(step, &context, received, request) {
        step.peers.verify(step.now, &step.snapshot.keys, &context.back);
    }
    let timing = step.snapshot.timing(context.back.transport);
    let (server, acknowledgement) = context.server.on_ack(step.now, &timing);
    context.server = server;
    table.settle(step.now, handle, context);
    match acknowledgement {
        Acknowledgement::Deliver => false,
        Acknowledgement::Absorb => true,
    }
}

/// Returns whether an ACK newly proves that its sender receives messages at its address: it has the
/// To-tag of the final response, which only a receiver of this response knows.
fn is_evidence(
    step: &Step<'_>,
    context: &Context,
    received: &Received,
    request: &Request<'_>,
) -> bool {
    let Some(last) = context.last.as_ref().filter(|_| context.server.awaits_ack()) else {
        return false;
    };
    if received.flow.remote.ip() != context.back.remote.ip()
        || step.peers.is_verified(step.now, &step.snapshot.keys, &context.back)
    {
        return false;
    }
    let Some(tag) = request.essentials.to_tag else { return false };
    let response = Message::parse_head(last).ok();
    let to = response.as_ref().and_then(|response| response.essentials().ok());
    to.and_then(|essentials| essentials.to_tag) == Some(tag)
}

/// Handles a retransmission of a transaction's request.
fn repeat(step: &mut Step<'_>, table: &mut Transactions, handle: Handle, received: &Received) {
    let Some(mut context) = table.lend(handle) else { return };
    context.budget.on_request(received.bytes.len(), true);
    let has_sent =
        context.last.is_some() || context.live.as_ref().is_some_and(|live| live.is_ringing());
    match context.server.on_repeated() {
        Repetition::Absorb => {}
        Repetition::Resend if has_sent => send_last(step, &mut context),
        // No response has been sent yet: send a 100.
        Repetition::Resend => {
            if let Some(live) = context.live.take() {
                if let Ok(message) = Message::parse(&live.request)
                    && let Ok(via) = message.top_via()
                {
                    send_trying(step, &mut context, &live, &message, &via);
                }
                context.live = Some(live);
            }
        }
    }
    table.settle(step.now, handle, context);
}

/// Returns the identity of a request: a hash that the request shares with its copies, its CANCEL,
/// and its ACK.
pub(crate) fn identity(step: &Step<'_>, table: &Transactions, request: &Request<'_>) -> u64 {
    let keys = &step.snapshot.keys;
    let hash = |parts: &[&[u8]]| keys.identity.hash(parts);
    let Request { essentials, method, method_name: name, uri_text: uri, .. } = request;
    let to_tag = essentials.to_tag;
    let of = |to_tag| transaction_identity(essentials, *method, name, uri, to_tag, hash);
    if request.method != Method::Ack || is_unique(essentials.via.branch().unwrap_or_default()) {
        return of(to_tag);
    }
    // RFC 3261 §17.2.3, without the magic cookie: the ACK has the To-tag of the response. The
    // INVITE has a To-tag only if it was sent within a dialog.
    let within = of(to_tag);
    let fingerprint = keys.call.fingerprint(essentials.call_id);
    let invite = Transaction { identity: within, method: Method::Invite };
    let is_of = |call: &Call| call.is_repeated(invite);
    let is_known = table.find(Key::new(within, Method::Ack)).is_some()
        || step.routing.calls.find_where(fingerprint, is_of).is_some();
    if is_known { within } else { of(None) }
}
