//! Serves responses: RFC 3261 §16.7 and §16.11. Our Via identifies the request of a response, and
//! the Via below ours determines where the response goes.

use std::net::{IpAddr, SocketAddr};

use tidegate_control::Tier;
use tidegate_sip::{
    Message, Method, Passage, Reply, Via, connection_target, response_target, write_reply,
};
use tidegate_transaction::{Handle, Key};
use tidegate_world::{
    Buffer, ConnectionId, Failure, Flow, HandoffInput, Received, Timestamp, Transmit,
};

use crate::amplification::may_send_back;
use crate::backends::probes::{ProbeAnswer, Probes};
use crate::dialog::{Call, Transaction};
use crate::failure::hand_back;
use crate::message::branch::Branch;
use crate::message::flow_param::{FLOW_PARAM, RequestFlow};
use crate::message::reply::{server, tag};
use crate::message::transaction_branch::TransactionBranch;
use crate::network::canonical;
use crate::output::Cause;
use crate::rejection::{DropReason, UnsentReason};
use crate::rewrite::write_response;
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;
use crate::stateless::lost::Lost;
use crate::step::{SourceEvidence, Step};
use crate::transaction::branches::is_branch_of;
use crate::transaction::context::Context;
use crate::transaction::teach::has_sent;
use crate::transaction::{Transactions, serve_answer};
use crate::transport::addresses::Origin;

/// State that serving a response may change, in addition to the [`Step`].
pub(crate) struct Awaiting<'a> {
    pub(crate) transactions: &'a mut Transactions,
    pub(crate) probes: &'a mut Probes,
    pub(crate) lost: &'a mut Lost,
}

/// Serves a response: forwards it to the sender of the request, takes it as the response to a
/// request of this proxy itself, drops it, or hands it off to another shard.
pub(crate) fn serve_response(step: &mut Step<'_>, awaiting: Awaiting<'_>, received: Box<Received>) {
    step.routing.tiering.begin();
    match try_response(step, awaiting, &received) {
        Ok(()) => {}
        Err(NotReturned::Drop(why)) => {
            let is_ours = matches!(why, DropReason::StrayResponse | DropReason::RepeatedResponse);
            if !is_ours && why != DropReason::TooLong {
                step.shown = SourceEvidence::Stray;
            }
            step.output.drop_counted(why);
        }
        Err(NotReturned::Redirect(shard)) => {
            step.output.hand_off(shard, HandoffInput::Received(*received))
        }
    }
}

/// Matches a response with its request and serves it, or returns why that is impossible.
///
/// The checks are in one function, because each relies on the results of those before it.
fn try_response(
    step: &mut Step<'_>,
    awaiting: Awaiting<'_>,
    received: &Received,
) -> Result<(), NotReturned> {
    let Step { now, snapshot, .. } = *step;
    let Awaiting { transactions, probes, lost } = awaiting;
    let parsed = Passage::parse(&received.bytes);
    let Ok(passage) = &parsed else { return Err(DropReason::Malformed.into()) };
    step.output.send_for(passage.call_id);
    // RFC 3261 §18.1.2: "If the value of the "sent-by" parameter in that header field value does
    // not correspond to a value that the client transport is configured to insert into
    // requests, the response MUST be silently discarded."
    if !snapshot.addresses.is_own_sent_by(passage.sent_by) {
        return Err(DropReason::ForeignResponse.into());
    }
    // RFC 3261 §16.7 item 3: "If no Via header field values remain in the response, the response
    // was meant for this element and MUST NOT be forwarded": the response to a CANCEL of ours or to
    // a probe.
    if passage.next.is_none() && passage.cseq.method == Method::Cancel {
        return serve_answer_to_cancel(step, transactions, received, passage);
    }
    if passage.next.is_none() && passage.cseq.method == Method::Options {
        return match probes.on_response(now, snapshot, received, passage)? {
            ProbeAnswer::Taken => Ok(()),
            ProbeAnswer::Of(shard) => check_shard(snapshot, shard, received),
        };
    }
    let next = passage.next.as_ref().ok_or(DropReason::LostResponse)?;
    let Some((asked, remote)) = origin_and_target(snapshot, transactions, passage, next) else {
        return Err(match response_target(next) {
            Some(_) => DropReason::ForeignResponse.into(),
            None => DropReason::LostResponse.into(),
        });
    };
    let (shard, connection) = asked.place(snapshot, passage);
    if let Some(shard) = shard {
        check_shard(snapshot, shard, received)?;
    }
    let backend_ref = snapshot.addresses.backend_ref(received.flow.remote);
    let source = canonical(received.flow.remote);
    let present =
        backend_ref.filter(|&backend_ref| snapshot.backend(backend_ref).is_present_at(source));
    match asked {
        RequestOrigin::Transaction(branch, handle) => {
            step.routing.tiering.note(Tier::Stateful);
            let method = passage.cseq.method;
            let sent = handle.and_then(|handle| transactions.get(handle));
            let owner = owner(snapshot, sent, &branch, source, backend_ref);
            read_feedback(now, snapshot, owner, source, passage);
            let owner = owner.filter(|_| present.is_some());
            record_alive(now, snapshot, owner);
            let is_outside = || sent.is_some_and(Context::awaits_outside);
            step.record_challenge(owner, is_outside, passage, remote);
            // Only elements that received the request know our branch, but they may tell others. So
            // the response has to come from the target of the branch. Back ends need no proof.
            let is_success = method == Method::Invite && (200..300).contains(&passage.status);
            if is_success
                && backend_ref.is_none()
                && sent.is_some_and(|context| was_sent_to(snapshot, context, &branch, source))
            {
                step.shown = SourceEvidence::Receives;
            }
            Ok(serve_answer(step, transactions, received, passage, &branch, handle)?)
        }
        RequestOrigin::Before { listener, .. } => {
            // The MAC proves that one of our shards sent the request. The source shows which back
            // end answers.
            record_alive(now, snapshot, present);
            if !lost.learn(now, snapshot, received, passage) {
                return Err(DropReason::RepeatedResponse.into());
            }
            if !may_be_forwarded(passage) {
                return Ok(());
            }
            let back = flow_back(snapshot, listener, None, remote)?;
            pass_back(step, received, passage, Flow { connection, ..back })
        }
        RequestOrigin::Stateless(branch) => {
            record_alive(now, snapshot, present);
            read_feedback(now, snapshot, backend_ref, source, passage);
            let responder = Responder { backend_ref, present };
            let back = flow_back(snapshot, branch.listener, branch.asked, remote)?;
            let back = Flow { connection, ..back };
            serve_stateless(step, lost, received, passage, &branch, responder, back)
        }
    }
}

/// The back end that has sent a response, if the response comes from a back end.
struct Responder {
    /// Back end at the source address of the response.
    backend_ref: Option<BackendRef>,
    /// The back end in `backend_ref`, or `None` if its name now resolves to another address.
    present: Option<BackendRef>,
}

/// Forwards a response to a request that was forwarded without a transaction, on the flow `back`.
fn serve_stateless(
    step: &mut Step<'_>,
    lost: &mut Lost,
    received: &Received,
    passage: &Passage<'_>,
    branch: &Branch,
    Responder { backend_ref, present }: Responder,
    back: Flow,
) -> Result<(), NotReturned> {
    let Step { now, snapshot, .. } = *step;
    step.routing.tiering.note(Tier::Stateless);
    let (method, status) = (passage.cseq.method, passage.status);
    let transaction = Transaction { identity: branch.identity, method };
    let fingerprint = snapshot.keys.call.fingerprint(passage.call_id);
    let calls = &mut step.routing.calls;
    let call = calls.find_of(fingerprint, transaction);
    if let Some(call) = call {
        let answer = calls.read_answer(&snapshot.keys, call, passage, backend_ref.is_some());
        if status == 503
            && let Some(backend_ref) = present
            && let Some(entry) = calls.get(call)
            && let Some(sent) = entry.sent_at(transaction)
        {
            let parties = entry.parties(transaction);
            let backend = snapshot.backend(backend_ref);
            // A request within a call is no evidence: the other ones are not counted.
            if !entry.awaits_outside(transaction) {
                backend.count_rejection();
            } else {
                let sources = snapshot.pool(backend_ref.pool).pool.watch(now);
                let is_proved = backend.on_rejected(now, parties, sources, None);
                backend.on_not_taken(sent, is_proved);
            }
        }
        if let Some(backend_ref) = backend_ref.filter(|_| status >= 200)
            && !calls.has_ended(call, transaction)
        {
            snapshot.backend(backend_ref).on_final(method == Method::Invite, status);
        }
        let is_outside = calls.get(call).is_some_and(|entry| entry.awaits_outside(transaction));
        calls.on_response(now, call, transaction, answer);
        step.record_challenge(present, || is_outside, passage, back.remote);
    } else if !knows_invite(step, lost, method, fingerprint, &back)
        && !lost.learn(now, snapshot, received, passage)
    {
        return Err(DropReason::RepeatedResponse.into());
    }
    if !may_be_forwarded(passage) {
        return Ok(());
    }
    // A call remembers only its last transactions. Responses of earlier ones count in it too.
    let charged = call.or_else(|| {
        let is_stranger = snapshot.addresses.origin(&back) == Origin::Stranger;
        is_stranger.then(|| step.routing.calls.find(fingerprint)).flatten()
    });
    if let Some(call) = charged.filter(|_| backend_ref.is_some())
        && !may_send_back(step, call, &back, passage.status, received.bytes.len())
    {
        return Ok(());
    }
    pass_back(step, received, passage, back)
}

/// Returns whether an INVITE whose response goes to `back` counts as an INVITE of this process,
/// although no call has its transaction. Either a call with its Call-ID has forgotten it. Or a back
/// end has sent it: such an INVITE is in no call if it goes to another back end, so it takes only
/// spare room.
fn knows_invite(
    step: &Step<'_>,
    lost: &mut Lost,
    method: Method,
    fingerprint: u128,
    back: &Flow,
) -> bool {
    if method != Method::Invite {
        return false;
    }
    step.routing.calls.find_where(fingerprint, Call::has_invited).is_some()
        || step.snapshot.addresses.origin(back).backend_ref().is_some()
            && !lost.has_spare_room(step.now)
}

/// Rejects a request that was forwarded without a transaction and could not be sent on a stream.
/// Hands the failure back if another shard has forwarded the request. Does nothing if the request
/// was forwarded with a transaction, or if the message is an ACK or a response.
///
/// RFC 3261 §16.9: "If the transport layer notifies a proxy of an error when it tries to forward a
/// request (see Section 18.4), the proxy MUST behave as if the forwarded request received a 503
/// (Service Unavailable) response." The proxy forwards this 503 like one of the back end, because
/// §16.11 says: "Response processing as described in Section 16.7 does not apply to a proxy
/// behaving statelessly." If the flow of a phone is gone, the response is a 430, as with a
/// transaction ([`UnsentReason::status`]).
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

/// Returns the way in which this proxy sent the request of a response, and the address to which the
/// response goes. `next` is the Via below ours. Returns `None` if the branch does not show that this
/// proxy sent the request.
fn origin_and_target(
    snapshot: &Snapshot,
    transactions: &Transactions,
    passage: &Passage<'_>,
    next: &Via<'_>,
) -> Option<(RequestOrigin, SocketAddr)> {
    let origin_at = |remote| {
        let origin = request_origin(snapshot, transactions, passage, remote)?;
        Some((origin, remote))
    };
    let found = response_target(next).and_then(origin_at);
    // The MAC in our branch covers the target of the response. For a request that came on a stream,
    // this is the address to which a new connection would be opened.
    if found.is_none() && snapshot.addresses.has_streams() {
        return connection_target(next).and_then(origin_at);
    }
    found
}

/// Returns the back end from which a response to one of our transactions comes. `backend_ref` is
/// the back end at the source address of the response. Returns `None` if the branch still exists
/// and was not sent to this back end.
fn owner(
    snapshot: &Snapshot,
    context: Option<&Context>,
    branch: &TransactionBranch,
    remote: SocketAddr,
    backend_ref: Option<BackendRef>,
) -> Option<BackendRef> {
    let Some(context) = context else { return backend_ref };
    let Some(index) = context.branch_at(branch.tag) else { return backend_ref };
    backend_ref.filter(|_| has_sent(snapshot, &context.branches[index], remote))
}

/// Returns whether a branch of a transaction went to this address.
fn was_sent_to(
    snapshot: &Snapshot,
    context: &Context,
    of: &TransactionBranch,
    remote: SocketAddr,
) -> bool {
    let index = context.branch_at(of.tag);
    index.is_some_and(|index| has_sent(snapshot, &context.branches[index], remote))
}

/// Records that a back end has answered a request of ours.
fn record_alive(now: Timestamp, snapshot: &Snapshot, backend_ref: Option<BackendRef>) {
    if let Some(backend_ref) = backend_ref {
        snapshot.backend(backend_ref).on_answered(now);
    }
}

/// Reads the feedback (RFC 7339) in the response of a back end to a request that was sent to this
/// back end. Calls stay at an earlier address of its host name, so the feedback from there is read
/// too.
///
/// RFC 7339 §4.1: "When a SIP client receives a response with the value in the "oc" parameter
/// filled in, it MUST reduce, as indicated by the "oc" and "oc-algo" parameters, the number of
/// requests going downstream to the SIP server from which it received the response".
fn read_feedback(
    now: Timestamp,
    snapshot: &Snapshot,
    backend_ref: Option<BackendRef>,
    source: SocketAddr,
    passage: &Passage<'_>,
) {
    if let Some(backend_ref) = backend_ref {
        let obedience = snapshot.obedience_to(backend_ref);
        let own = || passage.overload_control();
        snapshot.next_hops.on_response(now, obedience, source, own);
    }
}

fn serve_answer_to_cancel(
    step: &mut Step<'_>,
    transactions: &mut Transactions,
    received: &Received,
    passage: &Passage<'_>,
) -> Result<(), NotReturned> {
    let snapshot = step.snapshot;
    let text = passage.branch.unwrap_or_default();
    let claimed = TransactionBranch::claimed(text).filter(|branch| branch.is_own(&snapshot.keys));
    let branch = claimed.ok_or(DropReason::LostResponse)?;
    check_shard(snapshot, branch.shard, received)?;
    if !is_branch_of(snapshot, transactions, &branch, text) {
        return Err(DropReason::ForeignResponse.into());
    }
    Ok(serve_answer(step, transactions, received, passage, &branch, None)?)
}

/// Checks that this shard can handle a response. If only another shard can, returns
/// [`NotReturned::Redirect`], unless the response was handed off already.
fn check_shard(snapshot: &Snapshot, shard: u8, received: &Received) -> Result<(), NotReturned> {
    let shard = u16::from(shard);
    if shard != snapshot.shard && shard < snapshot.shards && received.handoffs == 0 {
        return Err(NotReturned::Redirect(shard));
    }
    Ok(())
}

/// Returns the way in which this proxy sent the request of a response. `remote` is the address to
/// which the response would go. Returns `None` if the branch does not show that this proxy sent the
/// request.
///
/// RFC 3261 §16.11: "If that address matches the proxy, [...] the proxy MUST remove that header
/// field value from the response and forward the result to the location indicated in the next Via
/// header field value." The MAC in the branch proves more than the address: it proves that this
/// proxy sent the request, and where its response goes. The identity and the tag of a branch that
/// is still in the table also prove that this proxy sent the request: the identity is a keyed hash
/// of the received request, and the tag is a keyed hash that includes the target. In this case the
/// response context determines where the response goes.
pub(crate) fn request_origin(
    snapshot: &Snapshot,
    transactions: &Transactions,
    passage: &Passage<'_>,
    remote: SocketAddr,
) -> Option<RequestOrigin> {
    let keys = &snapshot.keys;
    let text = passage.branch.unwrap_or_default();
    let Some(claimed) = TransactionBranch::claimed(text) else {
        return Branch::decode(text, keys, remote).map(RequestOrigin::Stateless);
    };
    let is_own = claimed.is_own(keys);
    let key = Key::new(claimed.identity, passage.cseq.method);
    if is_own
        && let Some(handle) = transactions.find(key)
        && transactions.get(handle).is_some_and(|context| context.branch_at(claimed.tag).is_some())
    {
        return Some(RequestOrigin::Transaction(claimed, Some(handle)));
    }
    let branch = TransactionBranch::decode(text, keys, remote)?;
    let TransactionBranch { shard, listener, .. } = branch;
    Some(match is_own {
        true => RequestOrigin::Transaction(branch, None),
        false => RequestOrigin::Before { shard, listener },
    })
}

/// Returns the flow on which a response goes back to `remote`, except for the connection. Only the
/// Via and our branch determine this flow. `asked` is the local address at which the request
/// arrived, if its listener has a wildcard address.
fn flow_back(
    snapshot: &Snapshot,
    listener: u8,
    asked: Option<IpAddr>,
    remote: SocketAddr,
) -> Result<Flow, DropReason> {
    let listener = snapshot.addresses.listener(listener.into());
    let listener = listener.ok_or(DropReason::ForeignResponse)?;
    let mut flow = Flow { transport: listener.transport, ..Flow::udp(listener.local, remote) };
    // RFC 3581 §4: "The response MUST be sent from the same address and port that the corresponding
    // request was received on."
    if let Some(asked) = asked {
        flow.local.set_ip(asked);
    }
    Ok(flow)
}

/// Returns false for a provisional response other than 100 to a request other than INVITE.
///
/// RFC 4320 §4.1: "An SIP element MUST NOT send any provisional response with a Status-Code other
/// than 100 to a non-INVITE request."
fn may_be_forwarded(passage: &Passage<'_>) -> bool {
    passage.cseq.method == Method::Invite || !matches!(passage.status, 101..200)
}

/// Sends a response back on `flow`.
fn pass_back(
    step: &mut Step<'_>,
    received: &Received,
    passage: &Passage<'_>,
    flow: Flow,
) -> Result<(), NotReturned> {
    let bytes = write_response(step.snapshot, received, passage, &flow)?;
    step.counters().responses_forwarded.add(1);
    step.output.send(Transmit::new(flow, bytes));
    Ok(())
}

/// The way in which this proxy sent the request to which a response belongs.
pub(crate) enum RequestOrigin {
    /// A transaction of this process sent the request. Contains the handle of its context, if any.
    Transaction(TransactionBranch, Option<Handle>),
    /// A transaction of an earlier process or another instance sent the request. By RFC 6026 §8.9 a
    /// proxy drops a response that matches no transaction, because it cannot know whether it sent
    /// the request. Here the MAC proves that this proxy sent the request. So a call that is set up
    /// during a restart survives.
    Before { shard: u8, listener: u8 },
    /// The request was sent without a transaction. The branch has all data for its response.
    Stateless(Branch),
}

impl RequestOrigin {
    /// Returns the shard that has the state of the request, if it is known. If this process has
    /// forwarded the request without a transaction, also returns the connection on which the
    /// request came.
    fn place(
        &self,
        snapshot: &Snapshot,
        passage: &Passage<'_>,
    ) -> (Option<u8>, Option<ConnectionId>) {
        let (listener, shard) = match self {
            Self::Transaction(branch, _) => return (Some(branch.shard), None),
            Self::Before { listener, shard } => (*listener, *shard),
            Self::Stateless(branch) => (branch.listener, branch.shard),
        };
        let listener = snapshot.addresses.listener(listener.into());
        if listener.is_none_or(|own| !own.transport.is_reliable()) {
            return (Some(shard), None);
        }
        let (param, text) = (passage.own_param(FLOW_PARAM), passage.branch.unwrap_or_default());
        match param.and_then(|param| RequestFlow::decode(&snapshot.keys, param, text)) {
            Some(RequestFlow { connection, shard }) => (Some(shard), Some(connection)),
            // Only the branch of a transaction contains a shard if the request came on a stream.
            None => (matches!(self, Self::Before { .. }).then_some(shard), None),
        }
    }
}

/// The reason why this shard neither forwards nor uses a response.
enum NotReturned {
    Drop(DropReason),
    /// The shard with this index has to handle the response.
    Redirect(u16),
}

impl From<DropReason> for NotReturned {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}
