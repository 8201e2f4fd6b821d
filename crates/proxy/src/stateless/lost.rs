//! Requests whose transaction, or whose call, this process does not know: their CANCEL, and the ACK
//! to their refusal.
//!
//! RFC 3261 §16.10: "If a response context is not found, the element does not have any knowledge of
//! the request to apply the CANCEL to. It MUST statelessly forward the CANCEL request (it may have
//! statelessly forwarded the associated request previously)." A back end matches it if its branch
//! is that of the INVITE (§9.1, §17.2.3). Both kinds of our branches can be made again from a
//! CANCEL: that of a request without transaction from the key alone, the other one if it is known
//! which process made it, which is the one before this.
//!
//! Where it goes:
//!
//! - where a response has come from that was to such a request: its branch stands in it;
//! - where the policy says, if that goes by the request alone;
//! - else to all back ends that may have it, if they are few, and a process was here before this one
//!   not long ago. The caller gets the 200 of the one that has, or, when all have answered, that it is
//!   none's.
//!
//! An ACK goes only where a refusal has come from: it is never answered, and a proxy behind us
//! would send on what it does not know. A refusal is repeated until it is acknowledged (§17.2.1),
//! so one comes by.
//!
//! Who sends it is a stranger, whose word is all there is: no more than [`COPIES_MAX`] packets come
//! of one, and no more than [`ASKED_MAX`] are asked about at the same time.

use std::net::SocketAddr;
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_control::Tier;
use tidegate_sip::{Method, Passage};
use tidegate_transaction::identity_of_branch;
use tidegate_world::{Received, Timestamp};

use crate::dialog::Transaction;
use crate::keys::{Keys, ProcessMark};
use crate::message::branch::BranchText;
use crate::message::request::Request;
use crate::message::transaction_branch::{TargetTag, TransactionBranch};
use crate::message::way_back::way_back;
use crate::network::canonical;
use crate::rejection::Rejection;
use crate::rewrite::{ForwardPlan, write_request};
use crate::routing::loops::loop_hash;
use crate::routing::next_hop::NextHop;
use crate::routing::plan::pool_by_rules;
use crate::routing::select::choice_key;
use crate::settings::{Choice, Mode, PoolSettings};
use crate::snapshot::Snapshot;
use crate::stateless::branch::stateless_branch;
use crate::stateless::recent::Recent;
use crate::step::{Shown, Step};
use crate::target::Target;
use crate::transaction::branches::TIMER_C;

/// Copies of one CANCEL at the most.
const COPIES_MAX: usize = 8;

/// CANCELs about which several back ends are asked at the same time, at the most.
const ASKED_MAX: usize = 4096;

/// Requests of before of which a response has come, at the most.
const HEARD_MAX: usize = 4096;

/// Longest wait for an answer to a CANCEL: 64·T1.
const ASKED_FOR: Duration = Duration::from_secs(32);

/// How long after its start a process cancels what the one before it has sent. What rings longer
/// has sent a response meanwhile.
const BEFORE_FOR: Duration = Duration::from_secs(300);

/// Copies of a CANCEL after which those who have not answered are not waited for any more.
const PATIENCE: u8 = 3;

/// Knowledge of requests that the process before this one sent.
pub(crate) struct Lost {
    heard: Recent<ArrayVec<Heard, 4>>,
    asked: Recent<Asked>,
}

/// A back end that has answered an INVITE of before.
#[derive(Clone)]
struct Heard {
    target: SocketAddr,
    /// The branch under which it has the INVITE.
    text: BranchText,
    has_refused: bool,
}

/// A CANCEL about which several back ends are asked.
#[derive(Default)]
struct Asked {
    /// Targets that are asked, each with a hash of its branch.
    of: ArrayVec<(SocketAddr, u64), COPIES_MAX>,
    /// Targets that do not know it: a bit for each.
    denied: u8,
    /// The caller has his answer.
    is_answered: bool,
    /// Number of its copies so far.
    copies: u8,
}

impl Default for Lost {
    fn default() -> Self {
        Self { heard: Recent::new(TIMER_C, HEARD_MAX), asked: Recent::new(ASKED_FOR, ASKED_MAX) }
    }
}

type Targets = ArrayVec<(SocketAddr, BranchText), COPIES_MAX>;

/// Where a request goes that nothing is known of.
struct LostTargets {
    /// The back ends, each with the branch of what it was sent.
    targets: Targets,
    pool: u16,
    /// Leading Route values that name us and are taken off.
    own_routes: u8,
}

/// Forwards a CANCEL or ACK that nothing here is known of.
pub(crate) fn forward_lost(
    step: &mut Step<'_>,
    lost: &mut Lost,
    received: &Received,
    request: &Request<'_>,
) -> Result<(), Rejection> {
    let Step { now, snapshot, .. } = *step;
    step.shown = Shown::Stray;
    let Some(LostTargets { targets, pool, own_routes }) =
        lost_targets(step, lost, received, request)
    else {
        return Err(Rejection::UNKNOWN_CALL);
    };
    if targets.len() > 1 && request.method == Method::Cancel {
        lost.ask(now, &snapshot.keys, request.identity, &targets)?;
    }
    let ingress = snapshot.addresses.listener_at(&received.flow);
    for (address, text) in targets {
        let target = Target::new(snapshot.transport(pool), address);
        let plan = ForwardPlan {
            target,
            member: None,
            toward_backend: true,
            is_user: false,
            ingress: ingress as u8,
            egress: snapshot.egress(ingress, None, &target)?,
            own_routes,
            is_strict: false,
            max_breadth: None,
            made: snapshot.minutes(now),
        };
        let bytes = write_request(snapshot, &received.flow, request, &plan, text.as_bytes())?;
        step.counters().requests_forwarded.add(1);
        step.output.send_from(snapshot, plan.egress, &target, bytes);
    }
    Ok(())
}

/// Returns the branch of a CANCEL or ACK that goes to `hop`, if its INVITE was not sent by this
/// process and that can be told.
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
        .then(|| branch_of_before(now, snapshot, received, request, hop.target.address))
        .flatten()
}

/// Returns where a request that nothing is known of goes; `None` if nobody could match it.
fn lost_targets(
    step: &mut Step<'_>,
    lost: &Lost,
    received: &Received,
    request: &Request<'_>,
) -> Option<LostTargets> {
    let Step { now, snapshot, .. } = *step;
    let mut targets = Targets::new();
    for heard in lost.heard(now, request.identity) {
        if request.method == Method::Cancel || heard.has_refused {
            targets.push((heard.target, heard.text.clone()));
        }
    }
    let (pool, own_routes) = pool_by_rules(snapshot, received, request)?;
    let is_up = |&pool: &u16| snapshot.pool(pool).pool.is_up(now);
    let pool = snapshot.and_backups(pool).find(is_up).unwrap_or(pool);
    let PoolSettings { choice, mode, .. } = snapshot.pool(pool);
    let is_fork = matches!(choice, Choice::All(_));
    if request.method == Method::Cancel && (targets.is_empty() || is_fork) {
        for target in lost_members(step, pool, request)? {
            let (derived, plain) = match mode {
                Mode::Transaction => (true, false),
                Mode::Stateless => (false, true),
                Mode::Adaptive => (true, true),
            };
            let before = || branch_of_before(now, snapshot, received, request, target);
            let stateless = || stateless_branch(snapshot, received, request);
            let texts = [derived.then(before).flatten(), plain.then(stateless)];
            for text in texts.into_iter().flatten() {
                let is_same = |(at, of): &(SocketAddr, BranchText)| {
                    *at == target && of.as_bytes() == text.as_bytes()
                };
                if !targets.iter().any(is_same) {
                    targets.try_push((target, text)).ok()?;
                }
            }
        }
    }
    (!targets.is_empty()).then_some(LostTargets { targets, pool, own_routes })
}

/// Returns the back ends of a pool that may have the INVITE of a CANCEL; `None` if they are too many,
/// or if this process would know of it.
fn lost_members(
    step: &mut Step<'_>,
    pool: u16,
    request: &Request<'_>,
) -> Option<ArrayVec<SocketAddr, COPIES_MAX>> {
    let Step { now, snapshot, .. } = *step;
    let fingerprint = snapshot.keys.call.fingerprint(request.essentials.call_id);
    let key = choice_key(snapshot, step.routing, pool, request, fingerprint);
    let is_fork = matches!(snapshot.pool(pool).choice, Choice::All(_));
    let picker = step.routing.picker_mut(pool);
    let mut members = ArrayVec::new();
    if !is_fork && let Some(index) = picker.pick_by_key(now, key) {
        members.extend(picker.backend(index).address().map(canonical));
        return Some(members);
    }
    process_before(now, snapshot)?;
    // A back end that takes no new calls may have this one.
    for backend in picker.pool().backends().iter().filter(|backend| backend.is_alive(now)) {
        if let Some(address) = backend.address() {
            members.try_push(canonical(address)).ok()?;
        }
    }
    Some(members)
}

/// Returns the process before this one, if what it has sent may still wait for its answer.
fn process_before(now: Timestamp, snapshot: &Snapshot) -> Option<ProcessMark> {
    // Time is counted from the start of the process.
    snapshot.keys.before.filter(|_| now < Timestamp::ZERO + BEFORE_FOR)
}

/// Returns the branch that the process before this one would have made for the INVITE of a CANCEL.
fn branch_of_before(
    now: Timestamp,
    snapshot: &Snapshot,
    received: &Received,
    request: &Request<'_>,
    target: SocketAddr,
) -> Option<BranchText> {
    let process = process_before(now, snapshot)?;
    let branch = TransactionBranch {
        listener: snapshot.addresses.listener_at(&received.flow) as u8,
        shard: snapshot.shard as u8,
        process,
        identity: request.identity,
        tag: TargetTag::of(&snapshot.keys, request.identity, target, 0),
        loop_hash: loop_hash(snapshot, received, request),
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

    /// Records which back ends are asked; an error if there is no room for that.
    fn ask(
        &mut self,
        now: Timestamp,
        keys: &Keys,
        identity: u64,
        targets: &Targets,
    ) -> Result<(), Rejection> {
        let hash = |text: &BranchText| keys.identity.hash(&[text.as_bytes()]);
        let of = targets.iter().map(|(target, text)| (*target, hash(text))).collect();
        let asked = self.asked.entry(now, identity).ok_or(Rejection::UNKNOWN_CALL)?;
        let copies = asked.copies.saturating_add(1);
        *asked = Asked { of, copies, ..Asked::default() };
        Ok(())
    }

    /// Learns from a response to a request that this process does not know. Returns `false` if it is
    /// not to be passed: another back end may know better.
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
        if snapshot.addresses.member(target).is_some()
            && let Some(text) = BranchText::copied(text)
            && let Some(all) = self.heard.entry(now, identity)
        {
            let is_same = |heard: &&mut Heard| {
                heard.target == target && heard.text.as_bytes() == text.as_bytes()
            };
            let has_refused = passage.status >= 300;
            match all.iter_mut().find(is_same) {
                Some(heard) => heard.has_refused |= has_refused,
                // More branches than that are not told apart.
                None => {
                    let _ = all.try_push(Heard { target, text, has_refused });
                }
            }
        }
        true
    }
}

impl Asked {
    /// Returns whether the answer of one of them goes to the caller.
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
