//! The responses to requests that were forwarded without a transaction and could not be sent.

use tidegate_sip::{Message, Method, Passage, Reply, write_reply};
use tidegate_world::{Buffer, Failure, Flow, Received, Transmit};

use super::origin::{RequestOrigin, flow_back, origin_and_target};
use crate::dialog::Transaction;
use crate::failure::hand_back;
use crate::message::reply::{server, tag};
use crate::network::canonical;
use crate::output::Cause;
use crate::rejection::UnsentReason;
use crate::rewrite::write_response;
use crate::snapshot::Snapshot;
use crate::stateless::lost::Lost;
use crate::step::Step;
use crate::transaction::Transactions;

/// Rejects a request that was forwarded without a transaction and could not be sent on a stream.
/// Hands the failure back if another shard has forwarded the request. Does nothing if the request
/// was forwarded with a transaction, if the message is an ACK or a response, if an earlier copy of
/// the request has had its final response, or if another copy of a CANCEL may still reach its back
/// end.
///
/// RFC 3261 §16.9: "If the transport layer notifies a proxy of an error when it tries to forward a
/// request (see Section 18.4), the proxy MUST behave as if the forwarded request received a 503
/// (Service Unavailable) response." The proxy sends this 503 to the caller as if the back end had
/// sent it, because §16.11 says: "Response processing as described in Section 16.7 does not apply
/// to a proxy behaving statelessly." If the flow of a phone is gone, the response is a 430, as with
/// a transaction ([`UnsentReason::status`]).
pub(crate) fn reject_unsent(
    step: &mut Step<'_>,
    transactions: &Transactions,
    lost: &mut Lost,
    failure: &Failure,
) -> Option<()> {
    let Step { now, snapshot, .. } = *step;
    let unsent = UnsentReason::of(failure.cause);
    let response = unsent_response(snapshot, &failure.quote, unsent.status())?;
    let response = Received::new(now, failure.flow, response);
    let passage = Passage::parse(&response.bytes).ok()?;
    let (asked, remote) =
        origin_and_target(snapshot, transactions, &passage, passage.next.as_ref()?)?;
    let (shard, connection) = asked.place(snapshot, &passage);
    let RequestOrigin::Stateless(branch) = asked else { return None };
    // The connection belongs to this shard, but the call of the request belongs to another.
    if let Some(shard) = shard.map(u16::from).filter(|&shard| shard != snapshot.shard) {
        if shard < snapshot.shards {
            hand_back(step.output, shard, failure);
        }
        return None;
    }
    let back = flow_back(snapshot, branch.listener, branch.asked, remote).ok()?;
    let back = Flow { connection, ..back };
    let bytes = write_response(snapshot, &response, &passage, &back).ok()?;
    let transaction = Transaction { identity: branch.identity, method: passage.cseq.method };
    let fingerprint = snapshot.keys.call.fingerprint(passage.call_id);
    let calls = &mut step.routing.calls;
    match calls.find_of(fingerprint, transaction) {
        // An earlier copy of the request was sent, and has had its final response. This rule does
        // not apply to a CANCEL, because the call table only knows whether its INVITE has ended.
        Some(call)
            if transaction.method != Method::Cancel && calls.has_ended(call, transaction) =>
        {
            return None;
        }
        Some(call) => calls.on_unsent(now, call, transaction, unsent),
        // Another copy of this CANCEL may reach the back end that has the INVITE.
        None if transaction.method == Method::Cancel
            && !lost.learn(now, snapshot, &response, &passage) =>
        {
            return None;
        }
        None => {}
    }
    let (status, reason) = (unsent.status(), unsent.reply_reason());
    let backend_ref = snapshot.addresses.backend_ref(canonical(failure.flow.remote));
    let pool = backend_ref.map(|backend_ref| backend_ref.pool);
    let cause = Cause { reason, text: reason.doc(), pool };
    step.counters().count_reply(status, reason);
    step.output.record_rejection(snapshot, now, remote, &failure.quote, status, &cause);
    step.output.send_for(passage.call_id);
    step.output.send(Transmit::new(back, bytes));
    Some(())
}

/// Returns the response with this status that a back end would have sent to the forwarded request
/// `message`. Its To-tag is that of our stateless reply to the received request, so this proxy does
/// not forward the ACK of the caller. Returns `None` if `message` is an ACK or a response, because
/// these get no response.
fn unsent_response(snapshot: &Snapshot, message: &[u8], status: u16) -> Option<Buffer> {
    // A failure that was handed back quotes only the head.
    let request = Message::parse_head(message).ok().filter(Message::is_request)?;
    if request.cseq().ok()?.method == Method::Ack {
        return None;
    }
    let received = request.lower_vias().next()?.ok()?;
    let call_id = request.call_id().ok()?;
    let tag = tag(&snapshot.keys, call_id, received.branch().unwrap_or_default());
    let server = server(&snapshot.name);
    let headers = server.as_slice();
    let reply = Reply { to_tag: Some(&tag), headers, ..Reply::new(status) };
    let mut bytes = snapshot.buffers.take();
    write_reply(&request, &reply, &mut bytes).ok()?;
    Some(bytes)
}
