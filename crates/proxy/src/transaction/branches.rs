//! The branches of a context: each sends the request to one target with its own branch parameter.

use std::time::Duration;

use tidegate_sip::{Message, Method};
use tidegate_transaction::{Client, Key, TIMER_C, Timing};
use tidegate_world::{Buffer, Flow, Timestamp};

use crate::backends::health::record_given;
use crate::backends::unavailable::unavailable;
use crate::dialog::Transaction;
use crate::message::branch::BranchText;
use crate::message::request::Request;
use crate::message::transaction_branch::{TargetTag, TransactionBranch};
use crate::rejection::Rejection;
use crate::rewrite::restore::restore;
use crate::rewrite::{ForwardPlan, write_request};
use crate::routing::commit::call_entry::record_request;
use crate::routing::next_hop::{NextHop, toward};
use crate::routing::select::admit;
use crate::settings::{BackendRef, Choice};
use crate::snapshot::Snapshot;
use crate::step::Step;
use crate::target::Target;
use crate::transaction::Transactions;
use crate::transaction::context::{Branch, Cancel, Context, Live, Pending};
use crate::transaction::large::over_tcp;

/// The time without a response after which a request that may arrive twice goes to the next address
/// of its host name, or to the next contact of its user. By RFC 3263 §4.3 the next target would be
/// tried when "timer B or timer F in RFC 3261 \[1\] fires". But a caller does not wait for 32 s.
const NAMED_FAILOVER_AFTER: Duration = Duration::from_secs(4);

/// Sends the request to one more target in a new client transaction.
///
/// RFC 3261 §16.6: "For each tuple attempted, the proxy MUST format the message as appropriate for
/// the tuple and send the request using a new client transaction as detailed in steps 8 through
/// 10." "Thus, the branch parameter provided with the Via header field inserted in step 8 MUST be
/// different for each attempt." "A stateful proxy MUST create a new client transaction for this
/// request as described in Section 17.1 and instructs the transaction to send the request using the
/// address, port and transport determined in step 7." "Timer C MUST be set for each client
/// transaction when an INVITE request is proxied."
///
/// RFC 3261 §17.1.1.2: "The client transaction MUST pass the request to the transport layer for
/// transmission (see Section 18)."
///
/// RFC 3261 §17.1.2.2: "The request MUST be passed to the transport layer for transmission."
pub(super) fn start(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    request: &Request<'_>,
    hop: &mut NextHop,
    breadth: u32,
) -> Result<(), Rejection> {
    let attempt = Attempt {
        hop,
        breadth,
        may_use_tcp: true,
        // A branch of a fork has no choice of its own.
        is_new: hop.choice.is_some() || live.choice.is_some(),
        may_teach: hop.choice.is_some(),
    };
    let prepared = prepare(step, context, live, request, &attempt)?;
    let transaction = Transaction { identity: context.identity, method: request.method };
    if let Some(backend_ref) = hop.backend_ref.filter(|_| hop.choice.is_some()) {
        record_given(
            step.now,
            step.snapshot,
            backend_ref,
            live.source(&context.back).ip(),
            request,
        );
    }
    record_request(step, hop, transaction);
    send(step, prepared);
    Ok(())
}

/// An attempt to send the request of a context to one target.
struct Attempt<'h> {
    hop: &'h NextHop,
    /// The Max-Breadth of the branch.
    breadth: u32,
    /// True if the request leaves over TCP if it is too long for a datagram.
    may_use_tcp: bool,
    /// The value of [`Pending::is_new`].
    is_new: bool,
    /// The value of [`Pending::may_teach`].
    may_teach: bool,
}

/// A request that is ready to be sent.
struct Prepared {
    target: Target,
    egress: u8,
    bytes: Buffer,
    is_new_work: bool,
}

fn send(step: &mut Step<'_>, prepared: Prepared) {
    let Prepared { target, egress, bytes, is_new_work } = prepared;
    step.counters().requests_forwarded.add(1);
    step.output.send_request(step.snapshot, egress, &target, bytes, is_new_work);
}

/// Starts a client transaction and writes its request.
fn prepare(
    step: &Step<'_>,
    context: &mut Context,
    live: &mut Live,
    request: &Request<'_>,
    attempt: &Attempt<'_>,
) -> Result<Prepared, Rejection> {
    let Attempt { hop, breadth, may_use_tcp, is_new, may_teach } = *attempt;
    let timing = step.snapshot.timing(hop.target.transport);
    let egress = step.snapshot.egress(live.edits.ingress.into(), hop.egress, &hop.target)?;
    let index = context.branches.len();
    let is_same = |branch: &&Branch| branch.target.address == hop.target.address;
    let same = context.branches.iter().filter(is_same).count();
    context.branches.push(Branch {
        tag: TargetTag::of(&step.snapshot.keys, context.identity, hop.target.address, same as u8),
        client: client(step.now, request.method, &timing),
        target: hop.target,
        backend_ref: hop.backend_ref,
        egress,
        recorded: egress,
        is_large: false,
        is_sent_by_udp: false,
        offer: hop.offer(step.now, step.snapshot),
        hop: None,
    });
    let after = match hop.choice {
        Some((pool, _)) => failover_after(step.snapshot, pool),
        None => {
            // A silent party has the request if its connection exists.
            let further = live.further.as_ref().filter(|_| hop.target.connection.is_none());
            let further = further.filter(|further| !further.others.is_empty());
            further.map(|_| NAMED_FAILOVER_AFTER)
        }
    };
    live.pending.push(Pending {
        since: step.now,
        failover: after.map(|after| step.now + after),
        is_silent: false,
        timer_c: (request.method == Method::Invite).then(|| step.now + TIMER_C),
        cancel: Cancel::No,
        breadth,
        unreachable: None,
        is_backed_up: false,
        check: hop.target.transport.is_reliable().then(|| step.now + timing.t1),
        is_abandoned: false,
        is_new,
        may_teach,
    });
    // An emergency call, or another call with priority, waits for a slow back end. It goes elsewhere
    // after the time for a failover.
    let is_new_work = request.category().is_reducible();
    let written = write_branch(step.snapshot, context, live, request, index).and_then(|bytes| {
        let length = bytes.len();
        let large = over_tcp(step, hop, egress, length).filter(|_| may_use_tcp);
        let Some((target, egress)) = large else {
            return Ok(Prepared { target: hop.target, egress, bytes, is_new_work });
        };
        let timing = step.snapshot.timing(target.transport);
        live.pending[index].check = Some(step.now + timing.t1);
        let branch = &mut context.branches[index];
        (branch.target, branch.egress, branch.is_large) = (target, egress, true);
        branch.client = client(step.now, request.method, &timing);
        let bytes = write_branch(step.snapshot, context, live, request, index)?;
        step.counters().large_over_tcp.add(1);
        Ok(Prepared { target, egress, bytes, is_new_work })
    });
    if written.is_err() {
        context.branches.pop();
        live.pending.pop();
    }
    written
}

fn client(now: Timestamp, method: Method, timing: &Timing) -> Client {
    match method {
        Method::Invite => Client::invite(now, timing),
        _ => Client::other(now, timing),
    }
}

/// Sends the request of the branch at `index` by UDP in a new branch, because it could not be sent
/// over TCP. The new branch keeps the Max-Breadth of the old one. Returns `false` if the request
/// could not be sent.
pub(super) fn send_again(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    hop: &NextHop,
    index: usize,
) -> bool {
    // RFC 5393 §5.3.3: the other branches of a fork keep their shares of the Max-Breadth.
    let Pending { breadth, is_new, may_teach, .. } = live.pending[index];
    let attempt = Attempt { hop, breadth, may_use_tcp: false, is_new, may_teach };
    let prepared = with_request(step, context, live, |step, context, live, request| {
        prepare(step, context, live, request, &attempt).ok()
    });
    let Some(prepared) = prepared else { return false };
    send(step, prepared);
    true
}

/// Sends the request to all back ends of a fork group at once.
///
/// # Errors
/// Returns an error if the request could not be sent to any target of the group.
pub(super) fn start_group(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    request: &Request<'_>,
    group: &[u16],
) -> Result<(), Rejection> {
    let Some((pool, _)) = live.choice else { return Ok(()) };
    // RFC 5393 §5.3.3: the branches of a group share the Max-Breadth. Branches of earlier groups
    // have their final response, except those that Timer C has ended (see §5.3.3 in
    // docs/requirements/exceptions.toml).
    let incoming = live.breadth;
    let count = group.len() as u32;
    let mut outcome = Err(unavailable(step.now, step.snapshot, pool, None));
    for (i, &backend) in (0u32..).zip(group) {
        let backend_ref = BackendRef { pool, backend };
        // Much time may have passed since the groups were formed.
        if !step.snapshot.backend(backend_ref).is_up(step.now) {
            continue;
        }
        let admission = match admit(step.now, step.snapshot, backend_ref, request.category()) {
            Ok(admission) => admission,
            Err(rejection) => {
                outcome = outcome.or(Err(rejection));
                continue;
            }
        };
        let hop = match toward(step, backend_ref, context.call) {
            Ok(hop) => hop,
            Err(rejection) => {
                outcome = outcome.or(Err(rejection));
                continue;
            }
        };
        let mut hop = NextHop { choice: None, admission, ..hop };
        // RFC 5393 §5.3.3: "A proxy SHOULD NOT use a smaller amount of Max-Breadth than was present
        // in the original request unless the Incoming Max-Breadth exceeded the proxy's maximum
        // acceptable value."
        // RFC 5393 §5.3.3.1: "Proxies SHOULD be prepared to reuse this Max-Breadth in cases where
        // there may be elements left in the target-set."
        let share = incoming / count + u32::from(i < incoming % count);
        let started = start(step, context, live, request, &mut hop, share);
        outcome = outcome.or(started);
    }
    outcome
}

/// Sends the request of a context to the next group of its fork. Returns `false` if the request
/// could not be sent to any back end of the group.
pub(super) fn start_next_group(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    group: &[u16],
) -> bool {
    let started = with_request(step, context, live, |step, context, live, request| {
        start_group(step, context, live, request, group).ok()
    });
    started.is_some()
}

/// Sends the request of a context to one more target. Returns `false` if the request could not be
/// sent.
pub(super) fn start_again(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    hop: &mut NextHop,
) -> bool {
    let started = with_request(step, context, live, |step, context, live, request| {
        request.retarget(live.contacts(), context.branches.len());
        // The previous branch may have no final response: see RFC 5393 §5.3.3 in
        // docs/requirements/exceptions.toml.
        let breadth = live.breadth;
        start(step, context, live, request, hop, breadth).ok()
    });
    started.is_some()
}

/// Parses the stored request of a context, and passes it to `action`. Returns the result of
/// `action`, or `None` if the request cannot be parsed.
fn with_request<R>(
    step: &mut Step<'_>,
    context: &mut Context,
    live: &mut Live,
    action: impl FnOnce(&mut Step<'_>, &mut Context, &mut Live, &mut Request<'_>) -> Option<R>,
) -> Option<R> {
    // The parsed request borrows the bytes, while `action` changes the rest of `live`.
    let bytes = std::mem::take(&mut live.request);
    let result = Message::parse(&bytes).ok().and_then(|message| {
        let mut request = read_again(step.snapshot, &message, context, live)?;
        action(step, context, live, &mut request)
    });
    live.request = bytes;
    result
}

/// Returns the time without a response from a back end of this pool after which a request counts as
/// failed. A request that may arrive twice then fails over. Returns `None` if the pool forks.
pub(crate) fn failover_after(snapshot: &Snapshot, pool: u16) -> Option<Duration> {
    let settings = snapshot.pool(pool);
    matches!(settings.choice, Choice::One(_)).then_some(settings.failover_after)
}

/// Writes the request for the branch at `index`.
fn write_branch(
    snapshot: &Snapshot,
    context: &Context,
    live: &Live,
    request: &Request<'_>,
    index: usize,
) -> Result<Buffer, Rejection> {
    let branch = &context.branches[index];
    let plan = ForwardPlan {
        target: branch.target,
        backend_ref: branch.backend_ref,
        egress: branch.egress,
        recorded: branch.recorded,
        max_breadth: Some(live.pending[index].breadth),
        offer: branch.offer,
        edits: live.edits,
    };
    let text = branch_of(snapshot, context, index, live.edits.ingress);
    let from = Flow { remote: live.source(&context.back), ..context.back };
    write_request(snapshot, &from, request, &plan, text.as_bytes())
}

/// Writes the request again for a retransmission in the branch at `index`. Returns `None` if the
/// request cannot be written.
pub(crate) fn write_again(
    snapshot: &Snapshot,
    context: &Context,
    live: &Live,
    index: usize,
) -> Option<Buffer> {
    let message = Message::parse(&live.request).ok()?;
    let mut request = read_again(snapshot, &message, context, live)?;
    request.retarget(live.contacts(), index);
    write_branch(snapshot, context, live, &request, index).ok()
}

/// Parses the stored request of a context. Returns `None` if the request cannot be parsed.
pub(crate) fn read_again<'a>(
    snapshot: &Snapshot,
    message: &'a Message<'a>,
    context: &Context,
    live: &Live,
) -> Option<Request<'a>> {
    let mut request = Request::read(message).ok()?;
    request.identity = context.identity;
    request.has_priority = live.has_priority;
    restore(snapshot, &mut request, &context.back).ok()?;
    Some(request)
}

/// Returns the branch parameter of our Via for the branch at `index` of a context. `listener` is
/// the listener that received the request.
pub(crate) fn branch_of(
    snapshot: &Snapshot,
    context: &Context,
    index: usize,
    listener: u8,
) -> BranchText {
    let branch = TransactionBranch {
        listener,
        shard: snapshot.shard as u8,
        process: snapshot.keys.process,
        identity: context.identity,
        tag: context.branches[index].tag,
        loop_hash: context.loop_hash,
    };
    branch.encode(&snapshot.keys, context.back.remote)
}

/// Returns whether the table has the INVITE to which `branch` belongs, and `text` is exactly the
/// text of its branch parameter.
pub(crate) fn is_branch_of(
    snapshot: &Snapshot,
    table: &Transactions,
    branch: &TransactionBranch,
    text: &[u8],
) -> bool {
    let context = table.find(Key::cancelled(branch.identity));
    context.and_then(|context| table.get(context)).is_some_and(|context| {
        context.branch_at(branch.tag).is_some_and(|index| {
            branch_of(snapshot, context, index, branch.listener).as_bytes() == text
        })
    })
}
