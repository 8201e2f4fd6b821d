//! Creates a response context for a request, and sends the request to its first targets.

use std::collections::VecDeque;

use smallvec::SmallVec;
use tidegate_sip::Method;
use tidegate_transaction::{Key, Server};
use tidegate_world::{Flow, Received};

use crate::message::request::Request;
use crate::message::way_back::way_back;
use crate::rejection::Rejection;
use crate::rejection::reply_reason::ReplyReason;
use crate::routing::fork::{breadth, fork_groups};
use crate::routing::loops::loop_hash;
use crate::routing::next_hop::NextHop;
use crate::shares::SourceBucket;
use crate::step::Step;
use crate::transaction::Transactions;
use crate::transaction::branches::{start, start_group};
use crate::transaction::context::{Context, Counted, Further, Live};
use crate::transaction::respond::queue_trying;
use crate::transport::budget::Budget;

/// Creates a response context for a request, and forwards the request.
pub(crate) fn open(
    step: &mut Step<'_>,
    table: &mut Transactions,
    received: &Received,
    request: &Request<'_>,
    hop: &mut NextHop,
) -> Result<(), Rejection> {
    let ingress = step.snapshot.addresses.listener_at(&received.flow);
    let plan = hop.forward_plan(step.now, step.snapshot, ingress)?;
    let breadth = breadth(request)?;
    let groups = fork_groups(step.now, step.snapshot, hop, breadth)?;

    let key = Key::new(request.identity, request.method);
    // RFC 3261 §12.2: an in-dialog request has a To-tag. A request without one is new, and must not
    // use the part of the table that is reserved for calls in progress. This also applies to back
    // ends.
    if request.essentials.to_tag.is_none() && table.is_full_for_new() {
        return Err(transactions_full(step));
    }
    let share = table.is_scarce().then(|| step.snapshot.share_of(&received.flow));
    let share = share.flatten();
    let inserted = table.insert(step.now, key, share);
    let handle = inserted.map_err(|_| transactions_full(step))?;
    let is_invite = request.method == Method::Invite;
    let timing = step.snapshot.timing(received.flow.transport);
    // RFC 3261 §17.2.1: "The request MUST be passed to the TU."
    let mut context = context_of(step, received, request, hop, share);
    let mut live = Box::new(Live {
        request: request.message.bytes().into(),
        provisional: None,
        edits: plan.edits,
        breadth,
        pending: SmallVec::new(),
        choice: hop.choice,
        // RFC 3263 §4: "The procedures here MUST be done exactly once per transaction, where
        // transaction is as defined in [1]."
        further: further_of(request, hop, groups).map(Box::new),
        has_priority: request.has_priority,
        source: (context.back.remote != received.flow.remote)
            .then(|| Box::new(received.flow.remote)),
        is_rejected: false,
        // RFC 4320 §4.1: "An SIP element MUST NOT respond to a non-INVITE request with a
        // Status-Code of 100 over any unreliable transport, such as UDP, before the amount of time
        // it takes a client transaction's Timer E to be reset to T2."
        trying: (!is_invite).then(|| step.now + timing.until_t2()),
        expires: step.now + timing.patience(),
        is_expiring: false,
        best: None,
        is_cancelled: false,
        reason: None,
    });
    let waiting = step.output.waiting();
    // RFC 3261 §17.2.1: "The server transaction MUST generate a 100 (Trying) response
    // unless it knows that the TU will generate a provisional or final response within
    // 200 ms".
    // RFC 3261 §16.2: "The proxy core MUST behave as a UAS with respect to sending an immediate
    // provisional on that server transaction (such as 100 Trying) as described in Section
    // 8.2.6."
    let via = &request.essentials.via;
    let is_trying = is_invite && queue_trying(step, &mut context, &live, request.message, via);
    let mut started = match live.next_group() {
        None => start(step, &mut context, &mut live, request, hop, breadth),
        Some(group) => start_group(step, &mut context, &mut live, request, &group),
    };
    // RFC 3261 §16.6: "Targets are processed from highest qvalue to lowest."
    while started.is_err()
        && let Some(group) = live.next_group()
    {
        started = start_group(step, &mut context, &mut live, request, &group);
    }
    if let Err(rejection) = started {
        // Nothing was forwarded. The source gets the rejection without a transaction, and no 100.
        // After a 100 it would not repeat the INVITE, and a lost rejection would not be sent again.
        // RFC 3261 §17.1.1.2: "In the "Proceeding" state, the client transaction SHOULD NOT
        // retransmit the request any longer."
        step.output.withdraw(waiting);
        table.discard(handle, share);
        return Err(rejection);
    }
    if is_trying {
        step.counters().count_reply(100, ReplyReason::None);
    }
    context.live = Some(live);
    table.settle(step.now, handle, context);
    Ok(())
}

/// Returns the response context of a request whose next hop is `hop`. The context has no branch
/// yet.
fn context_of(
    step: &Step<'_>,
    received: &Received,
    request: &Request<'_>,
    hop: &NextHop,
    share: Option<SourceBucket>,
) -> Box<Context> {
    let target = way_back(&request.essentials.via, &received.flow);
    let is_invite = request.method == Method::Invite;
    let mut budget = Budget::default();
    budget.on_request(received.bytes.len(), false);
    Box::new(Context {
        server: if is_invite { Server::invite() } else { Server::other() },
        identity: request.identity,
        method: request.method,
        back: Flow { remote: target, ..received.flow },
        call: hop.call,
        branches: SmallVec::new(),
        budget,
        toward_backend: hop.toward_backend,
        is_claimed: hop.is_claimed,
        last: None,
        live: None,
        share,
        loop_hash: loop_hash(step.snapshot, request, hop.origin),
        counted: Counted::default(),
    })
}

/// Returns the further targets that are known in advance, or `None` if there are none.
fn further_of(request: &Request<'_>, hop: &NextHop, groups: VecDeque<Vec<u16>>) -> Option<Further> {
    let (others, contacts) = (hop.others.iter().copied().collect(), request.contacts.clone());
    let is_any = !hop.others.is_empty() || contacts.is_some() || !groups.is_empty();
    is_any.then_some(Further { others, contacts, groups })
}

/// Counts and returns the rejection of a request for which the transaction table has no room.
fn transactions_full(step: &Step<'_>) -> Rejection {
    step.counters().transactions_rejected.add(1);
    Rejection::TRANSACTIONS_FULL
}
