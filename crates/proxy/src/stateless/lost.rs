//! Forwards CANCELs, and ACKs to rejections, of INVITEs that this shard does not know. Usually the
//! previous process forwarded the INVITE. If the INVITE came on a stream, another shard may have
//! forwarded it, because a sender that has lost its connection opens another one.
//!
//! RFC 3261 §16.10: "If a response context is not found, the element does not have any knowledge of
//! the request to apply the CANCEL to. It MUST statelessly forward the CANCEL request (it may have
//! statelessly forwarded the associated request previously)." A back end recognizes the CANCEL if
//! its branch is that of the INVITE (§9.1, §17.2.3). Both kinds of our branches can be derived
//! again from a CANCEL. The branch of a request without transaction needs only the key. The branch
//! of a request with a transaction also needs two numbers: the number of the process that made it,
//! which is known for the previous process, and the number of the shard. A CANCEL on a stream may
//! come to another shard than its INVITE. So it is sent with the branch of each shard, if there are
//! not too many.
//!
//! A CANCEL goes to these targets:
//!
//! - each back end that sent a response to the INVITE: the response contains the branch;
//! - if no back end has responded, the back end that the policy selects, if the selection depends
//!   on the request alone, and during a slow start also the back end that the policy would select
//!   without slow start;
//! - otherwise, or if the pool forks, up to [`COPIES_MAX`] back ends that may have received the
//!   INVITE, if a previous process ended not long ago. The caller gets the 200 of the back end that
//!   has received the INVITE, or the negative response when all have answered.
//!
//! An ACK goes only to a back end that sent a rejection. The reason is that an ACK is never
//! answered, and that a proxy behind us would forward an unknown ACK. A rejection is repeated until
//! it is acknowledged (§17.2.1), so we will see it again. The exception is an ACK on a stream, if
//! another shard may have forwarded the INVITE without a transaction. The rejection may have come on
//! a stream, where it is not repeated. So this ACK goes to the back end that the policy selects, if
//! the selection depends on the request alone.
//!
//! The sender may be a stranger, and the request is the only evidence. So one request causes at
//! most [`COPIES_MAX`] packets, and at most [`ASKED_MAX`] requests are pending at the same time.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_control::Tier;
use tidegate_sip::{Method, Passage};
use tidegate_transaction::{TIMER_C, identity_of_branch};
use tidegate_world::{Received, Timestamp};

use crate::dialog::Transaction;
use crate::keys::{Keys, ProcessMark};
use crate::message::branch::BranchText;
use crate::message::request::Request;
use crate::message::transaction_branch::{TargetTag, TransactionBranch};
use crate::message::way_back::way_back;
use crate::network::canonical;
use crate::pushback::wire::OverloadOffer;
use crate::rejection::Rejection;
use crate::rewrite::{Edits, ForwardPlan, write_request};
use crate::routing::loops::loop_hash;
use crate::routing::next_hop::NextHop;
use crate::routing::plan::pool_by_rules;
use crate::routing::select::choice_key;
use crate::settings::{Choice, Mode, PoolSettings};
use crate::snapshot::Snapshot;
use crate::stateless::branch::{stateless_branch, with_flow};
use crate::stateless::recent::Recent;
use crate::step::{SourceEvidence, Step};
use crate::target::Target;

/// Maximum number of copies of one CANCEL that are sent: one for each back end and branch.
const COPIES_MAX: usize = 8;

/// Maximum number of CANCELs that wait for the responses of several back ends at the same time. A
/// CANCEL beyond this number goes only to its first target.
const ASKED_MAX: usize = 4096;

/// Maximum number of INVITEs of the previous process that are remembered. An INVITE is remembered
/// when a back end responds to it.
const HEARD_MAX: usize = 4096;

/// The longest wait for a response to a CANCEL: 64·T1.
const ASKED_FOR: Duration = Duration::from_secs(32);

/// The time after the start of a process during which it forwards CANCELs of requests that only the
/// previous process knew, even if it has seen no response to the request. A callee that rings for
/// longer has sent a response in this time, and the response shows the back end and the branch of
/// the request.
const BEFORE_FOR: Duration = Duration::from_secs(300);

/// Number of received copies of a CANCEL after which the proxy forwards the next negative response
/// to the caller, even if other targets have not answered.
const PATIENCE: u8 = 3;

/// Knowledge about INVITEs that the previous process sent, and about their CANCELs.
pub(crate) struct Lost {
    /// The back ends that have responded to an INVITE, by the identity of the INVITE.
    heard: Recent<ArrayVec<Heard, 4>>,
    /// The CANCELs that were sent to several back ends, by the identity of their INVITE.
    asked: Recent<Asked>,
}

/// A back end that has responded to an INVITE of the previous process.
#[derive(Clone)]
struct Heard {
    target: SocketAddr,
    /// The branch parameter of the INVITE that the back end received.
    text: BranchText,
    has_rejected: bool,
}

/// A CANCEL that was sent to several back ends.
#[derive(Default)]
struct Asked {
    /// The targets of the CANCEL, each with a hash of the branch parameter in its copy.
    of: ArrayVec<(SocketAddr, u64), COPIES_MAX>,
    /// The targets that have answered that they do not know the INVITE, as a bit set.
    denied: u8,
    /// True if the caller has got a response.
    is_answered: bool,
    /// The number of CANCELs received so far.
    copies: u8,
}

impl Default for Lost {
    fn default() -> Self {
        Self { heard: Recent::new(TIMER_C, HEARD_MAX), asked: Recent::new(ASKED_FOR, ASKED_MAX) }
    }
}

type Targets = ArrayVec<(SocketAddr, BranchText), COPIES_MAX>;

/// The addresses of back ends that may have received the INVITE of a CANCEL or an ACK.
type BackendAddresses = ArrayVec<SocketAddr, COPIES_MAX>;

/// The targets of a request for which no state is known.
struct LostTargets {
    /// The addresses of the back ends, each with the branch parameter of the request that the back
    /// end received.
    targets: Targets,
    pool: u16,
    /// The number of leading Route values that name this proxy and are removed.
    own_routes: u8,
}

/// Forwards a CANCEL or ACK for which no state is known.
pub(crate) fn forward_lost(
    step: &mut Step<'_>,
    lost: &mut Lost,
    received: &Received,
    request: &Request<'_>,
) -> Result<(), Rejection> {
    let Step { now, snapshot, .. } = *step;
    step.shown = SourceEvidence::Stray;
    let Some(LostTargets { mut targets, pool, own_routes }) =
        lost_targets(step, lost, received, request)
    else {
        return Err(Rejection::UNKNOWN_CALL);
    };
    if targets.len() > 1
        && request.method == Method::Cancel
        && !lost.ask(now, &snapshot.keys, request.identity, &targets)
    {
        // Without a record, the caller would get the responses of all targets.
        targets.truncate(1);
    }
    let ingress = snapshot.addresses.listener_at(&received.flow);
    for (address, text) in targets {
        let target = Target::new(snapshot.transport(pool), address);
        let backend_ref = snapshot.addresses.backend_ref(address);
        let egress = snapshot.egress(ingress, None, &target)?;
        let plan = ForwardPlan {
            target,
            backend_ref: None,
            egress,
            recorded: egress,
            max_breadth: None,
            offer: backend_ref
                .map_or_else(OverloadOffer::default, |to| snapshot.offer_to(now, to, address)),
            edits: Edits {
                toward_backend: true,
                is_user: false,
                ingress: ingress as u8,
                own_routes,
                is_strict: false,
                made: snapshot.minutes(now),
            },
        };
        let connected = with_flow(snapshot, received, &text);
        let via_end = connected.as_deref().unwrap_or(text.as_bytes());
        let bytes = write_request(snapshot, &received.flow, request, &plan, via_end)?;
        step.counters().requests_forwarded.add(1);
        step.output.send_from(snapshot, plan.egress, &target, bytes);
    }
    Ok(())
}

/// Returns the branch parameter that a CANCEL or ACK to `hop` shares with its INVITE, if it is
/// certain that this process did not send the INVITE.
pub(crate) fn lost_branch(
    step: &Step<'_>,
    lost: &Lost,
    received: &Received,
    request: &Request<'_>,
    hop: &NextHop,
) -> Option<BranchText> {
    if !matches!(request.method, Method::Ack | Method::Cancel) {
        return None;
    }
    let Step { now, snapshot, .. } = *step;
    let of_hop = |heard: &&Heard| heard.target == canonical(hop.target.address);
    if let Some(heard) = lost.heard(now, request.identity).iter().find(of_hop) {
        return Some(heard.text.clone());
    }
    let Request { identity, method, .. } = *request;
    let may_be_lost = method == Method::Cancel
        && hop.tier == Tier::Stateful
        && !step.routing.calls.is_repeated(hop.call, Transaction { identity, method });
    may_be_lost
        .then(|| {
            let (target, shard) = (hop.target.address, snapshot.shard);
            branch_of_before(now, snapshot, received, request, target, shard)
        })
        .flatten()
}

/// Returns the targets of a request for which no state is known, or `None` if no target can
/// recognize the request.
fn lost_targets(
    step: &mut Step<'_>,
    lost: &Lost,
    received: &Received,
    request: &Request<'_>,
) -> Option<LostTargets> {
    let Step { now, snapshot, .. } = *step;
    let mut targets = Targets::new();
    for heard in lost.heard(now, request.identity) {
        if request.method == Method::Cancel || heard.has_rejected {
            targets.push((heard.target, heard.text.clone()));
        }
    }
    let (pool, own_routes) = pool_by_rules(snapshot, received, request)?;
    let is_up = |&pool: &u16| snapshot.pool(pool).pool.is_up(now);
    let pool = snapshot.and_backups(pool).find(is_up).unwrap_or(pool);
    let PoolSettings { choice, mode, .. } = snapshot.pool(pool);
    let is_fork = matches!(choice, Choice::All(_));
    let backend_refs = match request.method {
        Method::Cancel if targets.is_empty() || is_fork => {
            lost_backend_refs(step, pool, request).unwrap_or_default()
        }
        Method::Ack if targets.is_empty() && may_be_of_another_shard(snapshot, received, pool) => {
            // RFC 3261 §16.11: "A stateless proxy MUST choose one and only one target from the
            // target set."
            addresses_by_key(step, pool, request)?.into_iter().take(1).collect()
        }
        _ => BackendAddresses::new(),
    };
    let guesses = shards_of_branches(snapshot, received, *mode)
        .flat_map(|shard| backend_refs.iter().map(move |&target| (target, shard)));
    for (target, shard) in guesses {
        if targets.is_full() {
            break;
        }
        let text = match shard {
            Some(shard) => branch_of_before(now, snapshot, received, request, target, shard),
            None => Some(stateless_branch(snapshot, received, request)),
        };
        let is_sent = |text: &BranchText| {
            targets.iter().any(|(at, of)| *at == target && of.as_bytes() == text.as_bytes())
        };
        if let Some(text) = text.filter(|text| !is_sent(text)) {
            targets.push((target, text));
        }
    }
    (!targets.is_empty()).then_some(LostTargets { targets, pool, own_routes })
}

/// Returns the shards that may have made the branch parameter of a CANCEL's INVITE, and `None` for
/// the branch of a request without transaction. The caller sends a copy with the first branch to
/// all back ends before it uses the next branch, because the number of copies is limited.
fn shards_of_branches(
    snapshot: &Snapshot,
    received: &Received,
    mode: Mode,
) -> impl Iterator<Item = Option<u16>> {
    let (has_transactions, has_others) = match mode {
        Mode::Transaction => (true, false),
        Mode::Stateless => (false, true),
        Mode::Adaptive => (true, true),
    };
    let own = snapshot.shard;
    let others = shards_before(snapshot, received)
        .filter(move |&shard| has_transactions && shard != own)
        .map(Some);
    let first = [has_transactions.then_some(Some(own)), has_others.then_some(None)];
    first.into_iter().flatten().chain(others)
}

/// Returns whether another shard may have forwarded the INVITE of an ACK to this pool without a
/// transaction.
fn may_be_of_another_shard(snapshot: &Snapshot, received: &Received, pool: u16) -> bool {
    snapshot.shards > 1
        && received.flow.transport.is_reliable()
        && snapshot.pool(pool).mode == Mode::Stateless
        // An INVITE that goes from a stream to datagrams has a transaction.
        && snapshot.transport(pool).is_reliable()
}

/// Returns the back ends of a pool that may have received the INVITE of a CANCEL: those that the
/// policy selects for the INVITE. If the pool forks, or the selection does not depend on the
/// request alone, returns up to [`COPIES_MAX`] back ends of the pool, or `None` if the previous
/// process ended so long ago that this process would know the INVITE.
fn lost_backend_refs(
    step: &mut Step<'_>,
    pool: u16,
    request: &Request<'_>,
) -> Option<BackendAddresses> {
    if let Some(backend_refs) = addresses_by_key(step, pool, request) {
        return Some(backend_refs);
    }
    let Step { now, snapshot, .. } = *step;
    process_before(now, snapshot)?;
    // A back end that takes no new calls may have received the INVITE earlier.
    let backends = step.routing.picker(pool).pool().backends().iter();
    let alive = backends.filter(|backend| backend.is_alive(now));
    let addresses = alive.filter_map(|backend| backend.address().map(canonical));
    Some(addresses.take(COPIES_MAX).collect())
}

/// Returns the back end of a pool that the policy selects for the INVITE of a request, and during a
/// slow start also the back end that it would select without slow start. Returns `None` if the
/// selection does not depend on the request alone.
///
/// RFC 3261 §16.11: "CANCEL and non-Routed ACK requests MUST generate the same choice as their
/// associated INVITE."
fn addresses_by_key(
    step: &mut Step<'_>,
    pool: u16,
    request: &Request<'_>,
) -> Option<BackendAddresses> {
    let Step { now, snapshot, .. } = *step;
    if matches!(snapshot.pool(pool).choice, Choice::All(_)) {
        return None;
    }
    let fingerprint = snapshot.keys.call.fingerprint(request.essentials.call_id);
    let key = choice_key(snapshot, step.routing, pool, request, fingerprint);
    let picker = step.routing.picker_mut(pool);
    let index = picker.pick_by_key(now, key)?;
    // The INVITE may have been sent before a back end went into slow start.
    let settled = picker.pick_by_call(now, key, None).filter(|&settled| settled != index);
    let indices = [Some(index), settled].into_iter().flatten();
    Some(indices.filter_map(|index| picker.backend(index).address().map(canonical)).collect())
}

/// Returns the mark of the previous process, if requests of that process may still wait for a
/// response.
fn process_before(now: Timestamp, snapshot: &Snapshot) -> Option<ProcessMark> {
    // Time is counted from the start of the process.
    snapshot.keys.before.filter(|_| now < Timestamp::ZERO + BEFORE_FOR)
}

/// Returns the shards of the previous process at which the INVITE of a CANCEL may have arrived. All
/// datagrams from one address and port arrive at the same shard of each process, but a new
/// connection may belong to any shard.
fn shards_before(snapshot: &Snapshot, received: &Received) -> Range<u16> {
    match received.flow.transport.is_reliable() {
        true => 0..snapshot.shards,
        false => snapshot.shard..snapshot.shard + 1,
    }
}

/// Returns the branch parameter that `shard` of the previous process would have made for the INVITE
/// of a CANCEL.
fn branch_of_before(
    now: Timestamp,
    snapshot: &Snapshot,
    received: &Received,
    request: &Request<'_>,
    target: SocketAddr,
    shard: u16,
) -> Option<BranchText> {
    let process = process_before(now, snapshot)?;
    let branch = TransactionBranch {
        listener: snapshot.addresses.listener_at(&received.flow) as u8,
        shard: shard as u8,
        process,
        identity: request.identity,
        tag: TargetTag::of(&snapshot.keys, request.identity, target, 0),
        loop_hash: loop_hash(snapshot, request, snapshot.addresses.origin(&received.flow)),
    };
    let back = way_back(&request.essentials.via, &received.flow);
    Some(branch.encode(&snapshot.keys, back))
}

impl Lost {
    fn heard(&self, now: Timestamp, identity: u64) -> &[Heard] {
        if self.heard.is_empty() {
            return &[];
        }
        self.heard.get(now, identity).map_or(&[], |heard| heard)
    }

    /// Returns whether fewer than half of the places for INVITEs of the previous process are taken.
    pub(crate) fn has_spare_room(&mut self, now: Timestamp) -> bool {
        self.heard.len(now) < HEARD_MAX / 2
    }

    /// Returns the number of INVITEs of the previous process, and of CANCELs, for which there was
    /// no room.
    pub(crate) fn overflowed(&self) -> u64 {
        self.heard.overflowed() + self.asked.overflowed()
    }

    /// Records the targets of a CANCEL. Returns `false` if too many CANCELs wait for responses.
    fn ask(&mut self, now: Timestamp, keys: &Keys, identity: u64, targets: &Targets) -> bool {
        let Some(asked) = self.asked.entry(now, identity) else { return false };
        let hash = |text: &BranchText| keys.identity.hash(&[text.as_bytes()]);
        let of = targets.iter().map(|(target, text)| (*target, hash(text))).collect();
        let copies = asked.copies.saturating_add(1);
        *asked = Asked { of, copies, ..Asked::default() };
        true
    }

    /// Records whether a back end has received an INVITE of the previous process, from a response
    /// to the INVITE or to its CANCEL. Returns `false` if the response must not be forwarded,
    /// because another back end may have received the INVITE.
    pub(crate) fn learn(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        received: &Received,
        passage: &Passage<'_>,
    ) -> bool {
        let is_cancel = passage.cseq.method == Method::Cancel;
        if !is_cancel && passage.cseq.method != Method::Invite {
            return true;
        }
        let text = passage.branch.unwrap_or_default();
        let hash = |parts: &[&[u8]]| snapshot.keys.identity.hash(parts);
        let Some(via) = &passage.next else { return true };
        let branch = via.branch().unwrap_or_default();
        // A CANCEL has the identity of its INVITE.
        let identity = identity_of_branch(branch, via.sent_by, Method::Invite, b"", hash);
        let Some(identity) = identity else { return true };
        let text_hash = hash(&[text]);
        let target = canonical(received.flow.remote);
        if is_cancel {
            let asked = self.asked.get_mut(now, identity);
            return asked.is_none_or(|asked| asked.passes(passage.status, (target, text_hash)));
        }
        if snapshot.addresses.backend_ref(target).is_some()
            && let Some(text) = BranchText::copied(text)
            && let Some(all) = self.heard.entry(now, identity)
        {
            let is_same = |heard: &&mut Heard| {
                heard.target == target && heard.text.as_bytes() == text.as_bytes()
            };
            let has_rejected = passage.status >= 300;
            match all.iter_mut().find(is_same) {
                Some(heard) => heard.has_rejected |= has_rejected,
                // If the list is full, the branch is not recorded.
                None => {
                    let _ = all.try_push(Heard { target, text, has_rejected });
                }
            }
        }
        true
    }
}

impl Asked {
    /// Returns whether a response from one of the targets is forwarded to the caller.
    fn passes(&mut self, status: u16, from: (SocketAddr, u64)) -> bool {
        if self.is_answered || status < 200 {
            return false;
        }
        if let Some(index) = self.of.iter().position(|of| *of == from) {
            self.denied |= 1 << index;
        }
        let all = self.denied.count_ones() as usize == self.of.len();
        self.is_answered = status < 300 || all || self.copies >= PATIENCE;
        self.is_answered
    }
}
