//! Handles failed deliveries: decides which of them prove that a back end has failed.
//!
//! An unanswered request and an unproven ICMP error only cause an immediate probe of the back end
//! (`probes`). A stranger can cause both: servers drop some requests silently, and the source of an
//! ICMP error can be forged. If the probe gets no answer, the back end is down. Otherwise nothing
//! changes.
//!
//! An ICMP error can be proven if it quotes a datagram of ours. RFC 1122 §3.2.2: "Every ICMP error
//! message includes the Internet header and at least the first 8 data octets of the datagram that
//! triggered the error; more than 8 octets MAY be sent"; RFC 1812 §4.3.2.3 asks for as much as fits
//! into 576 bytes. The quote therefore contains the branch of our Via, which only our key can have
//! created. But servers behind the back end can read our Via too. So the branch must belong to a
//! request that this back end has not answered, or to a probe, which only the back end sees.
//!
//! A failure on a stream needs no proof, because our own transport reports it.

use tidegate_sip::{Message, ScanStart, branch_in_quote, glance};
use tidegate_transaction::{Handle, Key};
use tidegate_world::{Cause, Failure, HandoffInput, Timestamp};

use crate::backends::health::{cap_exclusions, pause_of};
use crate::backends::probes::Probes;
use crate::message::probe_branch::ProbeBranch;
use crate::message::transaction_branch::TransactionBranch;
use crate::network::canonical;
use crate::output::Output;
use crate::peers::Peers;
use crate::rejection::UnsentReason;
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;
use crate::transaction::Transactions;
use crate::transaction::branches::branch_of;
use crate::transport::addresses::Origin;

/// Proof that a datagram of ours was not delivered, found in the report of the failure.
enum Proof {
    /// The report quotes a probe of the back end.
    Probe(ProbeBranch),
    /// The report quotes an unanswered request. Contains the context of the request and the index
    /// of its branch.
    Request(Handle, usize),
}

/// The parts of a shard that a failed delivery changes.
pub(crate) struct Learning<'a> {
    pub(crate) transactions: &'a mut Transactions,
    pub(crate) probes: &'a mut Probes,
    pub(crate) peers: &'a mut Peers,
    pub(crate) output: &'a mut Output,
}

/// Handles the report of a failed delivery. If the report proves that a request was not delivered
/// to a back end, the back end gets no new calls for a while, and retransmissions of unanswered
/// requests go to other back ends.
pub(crate) fn on_failed(
    now: Timestamp,
    snapshot: &Snapshot,
    learning: Learning<'_>,
    failure: &Failure,
) {
    if failure.flow.transport.is_reliable() {
        return on_stream_failed(now, snapshot, learning, failure);
    }
    let Learning { transactions, probes, peers, output } = learning;
    // Only a report of the host itself that no socket has this port counts. An error from a router
    // on the way, or a local error, may be our own problem. RFC 3261 §18.4: "Source quench and TTL
    // exceeded ICMP errors SHOULD be ignored."
    if failure.cause != Cause::Refused {
        return;
    }
    let target = canonical(failure.flow.remote);
    let backend_ref = snapshot.addresses.backend_ref(target);
    let backend_ref =
        backend_ref.filter(|&backend_ref| snapshot.backend(backend_ref).is_present_at(target));
    let proof = proof_in(snapshot, transactions, failure);
    // The kernel selects the socket for an ICMP error by its own hash, so the error may come to
    // another shard than the one that sent the datagram.
    if proof.is_none()
        && let Some(shard) = shard_of(snapshot, failure)
    {
        hand_back(output, shard, failure);
    }
    match (proof, backend_ref) {
        (Some(proof), Some(backend_ref)) => {
            if let Proof::Probe(probe) = proof {
                probes.on_unreachable(now, snapshot, probe);
            } else {
                // A server behind the back end may have forged the error, because it can read our
                // Via. Then the response to a probe clears the suspicion.
                probes.suspect(now, snapshot, backend_ref, now);
            }
            snapshot.backend(backend_ref).on_failed(now, pause_of(snapshot, backend_ref));
            cap_exclusions(now, snapshot, backend_ref);
            peers.record_unreachable(now, failure.flow.transport, target);
        }
        // A target that is not a back end has no state except the transaction itself.
        (Some(Proof::Request(context, index)), None) => {
            // RFC 5626 §7: "receiving a destination unreachable ICMP error on a UDP flow" is one of the
            // examples of a flow that has failed.
            let status = if is_registered(transactions, context, index) { 430 } else { 503 };
            transactions.record_unreachable(context, index, status);
        }
        (None, Some(backend_ref)) => probes.suspect(now, snapshot, backend_ref, now),
        (Some(Proof::Probe(_)) | None, None) => {}
    }
    probes.fire(now, snapshot, output);
}

/// Handles a failed send on a stream, or the end of a connection. The proxy trusts this report,
/// whatever the message and its sender are, because the report comes from its own transport.
///
/// RFC 3261 §18.4: "If the transport user asks for a request to be sent over a reliable transport,
/// and the result is a connection failure, the transport layer SHOULD inform the transport user of
/// a failure in sending."
fn on_stream_failed(
    now: Timestamp,
    snapshot: &Snapshot,
    learning: Learning<'_>,
    failure: &Failure,
) {
    let Learning { transactions, probes, peers, output } = learning;
    let target = canonical(failure.flow.remote);
    let at_address = snapshot.addresses.backend_ref(target);
    let at_address =
        at_address.filter(|&backend_ref| snapshot.backend(backend_ref).is_present_at(target));
    // A host that listens for datagrams need not listen for connections.
    let is_by_stream = |to: &BackendRef| snapshot.transport(to.pool) == failure.flow.transport;
    let backend_ref = at_address.filter(is_by_stream);
    let proof = proof_in(snapshot, transactions, failure);
    // A failed probe causes no further probe by itself.
    let mut may_question = true;
    match proof {
        // The probe was not sent, because our own buffers were full. Its timeout is handled later.
        Some(Proof::Probe(_)) if failure.cause == Cause::Full => {}
        Some(Proof::Probe(probe)) => may_question = probes.on_unreachable(now, snapshot, probe),
        // A target that reads its connection slowly may be healthy: the connection may only be slow
        // for a moment.
        Some(Proof::Request(context, index)) if failure.cause == Cause::BackedUp => {
            transactions.record_backed_up(context, index);
            transactions.wake(now, context);
        }
        Some(Proof::Request(context, index)) => {
            // RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow
            // Failed) response to the request." A full queue does not mean that the flow has ended.
            let is_flow_gone =
                failure.cause != Cause::Full && is_registered(transactions, context, index);
            let reason =
                if is_flow_gone { UnsentReason::FlowGone } else { UnsentReason::of(failure.cause) };
            transactions.record_unreachable(context, index, reason.status());
            transactions.wake(now, context);
        }
        // The end of an idle connection says nothing about the peer. Requests that wait for a
        // response on the connection go to another target.
        None if failure.quote.is_empty() => {
            let is_stranger = snapshot.addresses.origin(&failure.flow) == Origin::Stranger;
            peers.record_ended(now, &failure.flow, at_address.is_some(), is_stranger)
        }
        None => {
            if let Some(shard) = shard_of(snapshot, failure) {
                hand_back(output, shard, failure);
            }
        }
    }
    match (failure.cause, backend_ref) {
        (Cause::Refused, Some(backend_ref)) => {
            snapshot.backend(backend_ref).on_failed(now, pause_of(snapshot, backend_ref));
            cap_exclusions(now, snapshot, backend_ref);
            peers.record_unreachable(now, failure.flow.transport, target);
        }
        // An unreachable back end is treated like a silent one, because the path may only be lossy,
        // and other messages may get through.
        (Cause::Unreachable, Some(backend_ref)) => probes.suspect(now, snapshot, backend_ref, now),
        // A message waited for the connection, so no TLS handshake may succeed with this back end.
        // Such a back end has no calls, and most policies would select it for each new call. If the
        // connection has only ended at a bad moment, the probe opens another one.
        (Cause::Closed, Some(backend_ref)) if !failure.quote.is_empty() && may_question => {
            probes.suspect(now, snapshot, backend_ref, now);
        }
        // Requests to a back end over UDP leave over TCP if they are large. A connection that could
        // not be opened is recorded even if such a request has failed over meanwhile.
        (Cause::Refused | Cause::Unreachable, None)
            if at_address.is_some() && !failure.quote.is_empty() =>
        {
            peers.record_unreachable(now, failure.flow.transport, target);
        }
        (Cause::BackedUp, Some(_)) => {
            peers.record_slow_reader(now, failure.flow.transport, target);
        }
        _ => {}
    }
    probes.fire(now, snapshot, output);
}

/// Hands the report of a failed delivery to the shard that has forwarded the request. That shard
/// needs only the head of the request, so the body is not copied. The queue between the shards
/// limits how many reports wait, and their bytes.
pub(crate) fn hand_back(output: &mut Output, shard: u16, failure: &Failure) {
    let &Failure { flow, cause, ref quote } = failure;
    // An ICMP error may quote only a part of the head.
    let head = Message::parse_head(quote).map_or(&quote[..], |message| message.head());
    output.hand_off(shard, HandoffInput::Failure(Failure { flow, cause, quote: head.into() }));
}

/// Returns the other shard of this process that sent the undelivered request. Returns `None` if
/// this shard sent it, or if the quoted message is not a request with a transaction.
fn shard_of(snapshot: &Snapshot, failure: &Failure) -> Option<u16> {
    let Ok(ScanStart::Request { .. }) = glance(&failure.quote) else { return None };
    let branch = TransactionBranch::claimed(branch_in_quote(&failure.quote)?)?;
    let shard = u16::from(branch.shard);
    let is_elsewhere = shard != snapshot.shard && shard < snapshot.shards;
    (is_elsewhere && branch.is_own(&snapshot.keys)).then_some(shard)
}

/// Returns whether the target of a branch is a phone that can be reached only on its flow.
fn is_registered(transactions: &Transactions, context: Handle, index: usize) -> bool {
    let branch = transactions.get(context).and_then(|context| context.branches.get(index));
    branch.is_some_and(|branch| branch.target.is_registered)
}

fn proof_in(snapshot: &Snapshot, transactions: &Transactions, failure: &Failure) -> Option<Proof> {
    let target = canonical(failure.flow.remote);
    let text = branch_in_quote(&failure.quote)?;
    if let Some(probe) = ProbeBranch::decode(text, &snapshot.keys, target) {
        return Some(Proof::Probe(probe));
    }
    let branch = TransactionBranch::claimed(text)?;
    // RFC 3261 §16.9: "The proxy SHOULD NOT cancel any outstanding client transactions associated
    // with this response context due to this notification."
    let Ok(ScanStart::Request { method, .. }) = glance(&failure.quote) else { return None };
    let handle = transactions.find(Key::new(branch.identity, method))?;
    let context = transactions.get(handle)?;
    let index = context.branch_at(branch.tag)?;
    let sent = &context.branches[index];
    let waits = canonical(sent.target.address) == target && sent.client.is_unanswered();
    let is_ours = || branch_of(snapshot, context, index, branch.listener).as_bytes() == text;
    (waits && is_ours()).then_some(Proof::Request(handle, index))
}
