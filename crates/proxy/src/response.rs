//! Serves responses: RFC 3261 §16.7 and §16.11. Our Via identifies the request of a response, and
//! the Via below ours determines where the response goes.

pub(crate) mod origin;
pub(crate) mod unsent;

use std::net::SocketAddr;

use tidegate_control::Tier;
use tidegate_sip::{Message, Method, NameAddr, Passage, response_target};
use tidegate_world::{Flow, HandoffInput, Received, Timestamp, Transmit};

use self::origin::{RequestOrigin, flow_back, origin_and_target};
use crate::amplification::may_send_back;
use crate::backends::probes::{ProbeAnswer, Probes};
use crate::dialog::{Call, Transaction};
use crate::message::branch::Branch;
use crate::message::token::RouteToken;
use crate::message::transaction_branch::TransactionBranch;
use crate::network::canonical;
use crate::rejection::DropReason;
use crate::rewrite::write_response;
use crate::routing::commit::call_entry::settle_at;
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

/// Serves a response in one of four ways: forwards it to the sender of the request, processes it as
/// the response to a request of this proxy itself, drops it, or hands it off to another shard.
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
            let responder = Responder { backend_ref, present, source };
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
    /// Source address of the response.
    source: SocketAddr,
}

/// Forwards a response to a request that was forwarded without a transaction, on the flow `back`.
fn serve_stateless(
    step: &mut Step<'_>,
    lost: &mut Lost,
    received: &Received,
    passage: &Passage<'_>,
    branch: &Branch,
    Responder { backend_ref, present, source }: Responder,
    back: Flow,
) -> Result<(), NotReturned> {
    let Step { now, snapshot, .. } = *step;
    step.routing.tiering.note(Tier::Stateless);
    let (method, status) = (passage.cseq.method, passage.status);
    let transaction = Transaction { identity: branch.identity, method };
    let fingerprint = snapshot.keys.call.fingerprint(passage.call_id);
    let call = step.routing.calls.find_of(fingerprint, transaction);
    if let Some(call) = call {
        let (calls, is_by_backend) = (&step.routing.calls, backend_ref.is_some());
        let mut answer = calls.read_answer(&snapshot.keys, call, passage, is_by_backend);
        // An earlier copy of the INVITE may have gone to another back end, which was down when this
        // copy arrived, or before a crash of this process. If that back end answers first, it has
        // the call, as with transactions. Otherwise a dialog with it is no part of the call, and
        // the BYE in it does not end the call.
        if answer.dialog != 0
            && is_by_backend
            && let Some(entry) = calls.get(call)
            && entry.went_to_backend(transaction)
            && let Some(at) = snapshot.address_of(entry)
            && canonical(at) != source
            && let Some(other) = other_target(snapshot, received, passage, at, source)
        {
            let may_move = status >= 200 && entry.awaits_outside(transaction);
            if !(may_move && settle_at(step, call, branch.identity, other)) {
                answer.dialog = 0;
            }
        }
        let calls = &mut step.routing.calls;
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

/// Returns whether an INVITE whose response goes to `back` counts as an INVITE of this process
/// although no call has its transaction. Then `lost` does not record the response. There are two
/// cases. In the first, a call with its Call-ID has forgotten the transaction. In the second, a
/// back end has sent the INVITE, and `lost` has no spare room: if an INVITE of a back end goes to
/// another back end, no call has its transaction, so `lost` records such responses only while it
/// has spare room.
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

/// Returns the address of the back end to which a request went, if our Record-Route in its response
/// shows that this is not the back end at `at`. The source of the response does not show it: a
/// server may answer from another address. But if a back end sends a call on through this proxy, the
/// response has several Record-Routes of ours, and the first one is that of the last leg. So the one
/// with the back end at `source` is preferred.
fn other_target(
    snapshot: &Snapshot,
    received: &Received,
    passage: &Passage<'_>,
    at: SocketAddr,
    source: SocketAddr,
) -> Option<SocketAddr> {
    let message = Message::parse(&received.bytes).ok()?;
    let own_token = |route: NameAddr<'_>| {
        let uri = route.parse_uri().ok()?;
        let is_own = snapshot.addresses.is_own_route(&uri, &received.flow);
        let text = uri.user.filter(|_| is_own)?;
        RouteToken::decode(text, &snapshot.keys, passage.call_id)
    };
    let mut other = None;
    for token in message.record_routes().flatten().filter_map(own_token) {
        let backend = canonical(token.backend);
        if backend == canonical(at) {
            return None;
        }
        if other.is_none() || backend == source {
            other = Some(backend);
        }
    }
    other
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
