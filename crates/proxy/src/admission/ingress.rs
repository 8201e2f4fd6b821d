//! Ingress: decides which messages are admitted and where they wait, before they are parsed in
//! full.
//!
//! With [`Queueing::Class`], each message is classified on arrival and put into the queue of its
//! class, so that messages of existing calls are served before new ones. With [`Queueing::Fifo`]
//! the shard works like the server in the papers on overload control. It has one bounded queue in
//! the order of arrival, so an admitted call also waits behind earlier messages that will be
//! rejected.

mod admit;
mod droppable;
mod service;

use std::ops::ControlFlow;
use std::time::Duration;

use tidegate_control::{Answers, Backlog, Ban, Decide, Gate, Reason, Recalled, Release, Values};
use tidegate_world::{Flow, Load, Received, Stream, Timestamp, Transmit, Transport};

use super::challenges::Challenges;
use super::decision::{Decided, Decision, Read};
use super::early_verification::{EarlyVerification, Spare};
use super::fifo::{Fifo, Unsorted};
use super::invites::Cancelled;
use super::large::{LargeBuffers, bytes_of};
use super::queue::ClassQueues;
use super::reject::{RejectedRequest, ShedPolicy};
use super::source_policy::SourcePolicy;
use super::upstream::UpstreamPeers;
use super::view::View;
use super::waiting::{QueueClass, Waiting};
use crate::message::class::Class;
use crate::observe::sampler::Trace;
use crate::rejection::DropReason;
use crate::settings::{Overload, Queueing};
use crate::snapshot::Snapshot;
use crate::step::SourceEvidence;
use crate::transport::stun::is_stun;

/// The queues in which messages wait for service, and the gate that decides which messages enter.
pub(crate) struct Ingress {
    gate: Gate,
    pub(crate) upstream: UpstreamPeers,
    queueing: Queueing,
    shed_policy: ShedPolicy,
    reinvites: bool,
    pub(crate) source_policy: SourcePolicy,
    early_verification: EarlyVerification,
    pub(crate) challenges: Challenges,
    spare: Spare,
    trace: Trace,
    queues: ClassQueues,
    fifo: Fifo,
    large: LargeBuffers,
    /// True if the back ends had no headroom for some kind of call when the last new call arrived.
    is_full_behind: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct QueueLimits {
    /// Maximum number of messages in one queue.
    pub(crate) messages_max: usize,
    /// Maximum number of bytes in the buffers of all waiting long messages.
    pub(crate) bytes_max: usize,
    /// T1 of RFC 3261 §17.1.1.1.
    pub(crate) t1: Duration,
}

impl Ingress {
    /// Creates an ingress whose rejections have random Retry-After values from the stream `waits`.
    /// Samples of the rejections are recorded in `trace`.
    pub(crate) fn new(
        gate: Gate,
        upstream: UpstreamPeers,
        overload: &Overload,
        limits: QueueLimits,
        waits: Stream,
        source_policy: SourcePolicy,
        mut trace: Trace,
    ) -> Self {
        let shed_policy = ShedPolicy::new(overload, waits);
        trace.status = shed_policy.answers().then_some(503);
        Self {
            gate: gate.with_room(limits.messages_max),
            upstream,
            queueing: overload.queueing,
            shed_policy,
            reinvites: overload.reinvites,
            source_policy,
            early_verification: EarlyVerification::default(),
            challenges: Challenges::new(overload.gate.memory_max),
            spare: Spare::default(),
            trace,
            queues: ClassQueues::new(limits.messages_max, limits.t1),
            fifo: Fifo::new(limits.messages_max),
            large: LargeBuffers::new(limits.bytes_max),
            is_full_behind: false,
        }
    }

    /// Sets whether rejections are padded to a few lengths, which makes it cheaper to send them.
    pub(crate) fn set_pads(&mut self, pads: bool) {
        self.shed_policy.pads = pads;
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn gate_mut(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// Returns the number of unanswered calls from which new calls wait, or `None` if there is no
    /// limit. There is none if all messages wait in one queue.
    pub(crate) fn unanswered_max(&self) -> Option<f64> {
        let limit = self.gate.unanswered_max();
        (limit.is_finite() && self.queueing != Queueing::Fifo).then_some(limit)
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next due for the gate or the
    /// upstream peers.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        [self.gate.poll_timeout(), self.upstream.poll_timeout()].into_iter().flatten().min()
    }

    /// Returns how often a source or an upstream peer got no entry of its own in a table, because
    /// the table was full.
    pub(crate) fn sources_overflowed(&self) -> u64 {
        self.gate.sources_overflowed()
            + self.source_policy.overflowed()
            + self.upstream.overflowed()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queues.waiting() + self.fifo.len()
    }

    /// Returns the largest number of messages that one queue has held.
    pub(crate) fn queue_peak(&self) -> usize {
        self.queues.peak().max(self.fifo.peak())
    }

    /// Switches to another law and another shadow law, whose decisions are only counted.
    pub(crate) fn switch(&mut self, now: Timestamp, law: Values, shadow: Option<Values>) {
        self.gate.switch(now, law, shadow);
    }

    /// Makes the gate reject all new work, because the process is draining.
    pub(crate) fn close(&mut self) {
        self.gate.stop();
    }

    pub(crate) fn on_load(&mut self, now: Timestamp, load: &Load) {
        self.gate.on_load(now, &self.spare.deduct(load));
        self.trace.on_load(now, &self.gate);
    }

    pub(crate) fn on_completion(&mut self, now: Timestamp, class: Class, cost: Duration) {
        self.gate.on_completion(now, class as u8, cost);
    }

    /// Records the service time, if known, of a message whose claim to belong to a call or
    /// transaction could not be verified.
    pub(crate) fn on_stray_served(&mut self, now: Timestamp, cost: Option<Duration>) {
        let cost = self.spare.add(cost);
        self.early_verification.on_served(now, cost);
    }

    /// Handles the evidence about the sender of a message that was found while the message was
    /// served. A *stray* is a message that claims to belong to a call or transaction that does not
    /// exist. If `is_unverified`, the message was counted as a stray when it arrived, and is not
    /// counted again.
    pub(crate) fn on_shown(
        &mut self,
        now: Timestamp,
        flow: &Flow,
        shown: SourceEvidence,
        is_unverified: bool,
        view: View<'_>,
    ) {
        match shown {
            SourceEvidence::Nothing => {}
            SourceEvidence::Receives => self.source_policy.prove(now, flow.remote.ip()),
            SourceEvidence::Stray | SourceEvidence::Floods if is_unverified => {}
            SourceEvidence::Floods => {
                self.source_policy.on_message(now, flow, &view.snapshot.addresses);
            }
            SourceEvidence::Stray => {
                self.on_stray(now, flow, view);
            }
        }
    }

    /// Handles a message that claims to belong to a call or transaction that does not exist.
    /// Returns whether its sender is now banned because of this message.
    fn on_stray(&mut self, now: Timestamp, flow: &Flow, view: View<'_>) -> bool {
        view.counters.strays.add(1);
        self.early_verification.on_stray(now);
        self.source_policy.on_message(now, flow, &view.snapshot.addresses)
    }

    /// Records the time `cost` that it took to classify `looked` messages and to reject `rejected`
    /// of them.
    pub(crate) fn on_looked(&mut self, looked: u32, rejected: u32, cost: Duration) {
        self.gate.on_looked(looked, rejected, cost);
    }

    /// Runs the due timers of the gate and of the upstream peers. Returns whether the feedback for
    /// the upstream peers was updated.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp, answers: Answers) -> bool {
        self.gate.on_answers(answers);
        self.gate.handle_timeout(now, self.new_sessions());
        self.upstream.handle_timeout(now, &self.gate)
    }

    /// Records that a request for new work was admitted, but rejected when it was served. The gate
    /// then rejects the retransmissions of the request as well.
    ///
    /// RFC 3261 §8.2.7: "A UAS cannot be stateless unless the request processing for that method
    /// would always result in the same response if the requests are identical." A table that was
    /// full may have room again when a retransmission arrives, but the sender already has the
    /// rejection and may have tried another server.
    pub(crate) fn on_rejected(&mut self, now: Timestamp, fingerprint: u64) {
        self.gate.on_rejected(now, fingerprint);
    }

    /// Rejects a request that was admitted but that no back end takes, for `reason`. Returns the
    /// response, which is the same as for a rejection on arrival, or `None` if none is sent.
    pub(crate) fn reject_served(
        &mut self,
        now: Timestamp,
        rejected: &RejectedRequest<'_>,
        reason: Reason,
        snapshot: &Snapshot,
        pool: Option<&str>,
    ) -> Option<Box<Transmit>> {
        let RejectedRequest { received, class, fingerprint, .. } = *rejected;
        if let Some(fingerprint) = fingerprint {
            self.gate.on_full(now, fingerprint);
        }
        self.trace.record_routed(now, received, class, reason, &self.gate, pool);
        self.shed_policy.reply(rejected, None, snapshot)
    }

    /// Returns the queue length that the law sees: the number of waiting new INVITEs without
    /// priority. With [`Queueing::Fifo`], all messages in the single queue count too, unless the
    /// law paces new sessions.
    fn new_sessions(&self) -> usize {
        let paced = self.queues.invites();
        match (self.queueing, self.gate.control().queue.release) {
            (Queueing::Fifo, Release::Open) => paced + self.fifo.len(),
            _ => paced,
        }
    }

    fn backlog(&self) -> Backlog {
        let sessions = self.queues.invites();
        // Unverified messages do not delay other messages.
        let others = self.queues.waiting() - sessions - self.queues.unverified();
        let fifo = self.fifo.backlog();
        Backlog {
            sessions: sessions + fifo.sessions,
            others: others + fifo.others,
            unread: fifo.unread,
        }
    }

    /// Queues an arriving message, or decides on it at once.
    pub(crate) fn offer(&mut self, now: Timestamp, received: Received, view: View<'_>) -> Decided {
        self.gate.on_backlog(self.backlog());
        // RFC 5626 §8: "If a server compliant to this section receives SIP requests on a given
        // interface and UDP port, it MUST also provide a limited version of a STUN server on the
        // same interface and UDP port." Such a message asks for no service, so it passes neither
        // the gate nor a queue. A ban does not apply to it: otherwise all phones behind the NAT of a
        // banned source would lose their bindings, and with them their calls.
        if is_stun(&received.bytes) && received.flow.transport == Transport::Udp {
            return Decided::unread(Decision::Stun(Box::new(received)));
        }
        if let Some(ban) = self.source_policy.ban_of(now, &received.flow, &view.snapshot.addresses)
            && !(may_go_on(&ban, &received) && view.verifies(now, &received))
        {
            self.source_policy.on_banned(now, &received.flow, &view.snapshot.addresses, &ban);
            self.count_droppable(now, &received, view, Recalled::default());
            return Decided::unread(Decision::Drop(DropReason::Banned));
        }
        self.gate.on_arrival(now, self.new_sessions());
        let lag = now.since(received.arrived);
        if let Some(kernel_shed) = view.kernel_shed {
            kernel_shed.record_wait(&received, lag);
        }
        if view.is_in_drop_share(now, &received) {
            self.gate.on_lag(lag);
            let is_banned = self.on_drop_share(now, &received, view);
            let reason = if is_banned { DropReason::Banned } else { DropReason::DropShare };
            let decision = Decision::Drop(reason);
            let read = Read::of(&received);
            let class = Some(Class::of_droppable(&received.bytes));
            return Decided { class, read, decision };
        }
        let large = bytes_of(&received);
        let decided = match (self.queueing, self.gate.decide()) {
            (Queueing::Fifo, Decide::Service) => {
                let has_room = self.large.has_room(&received, true);
                let decision = if self.fifo.has_room(0) && has_room {
                    self.fifo.push(Unsorted::Unread(received));
                    Decision::Queued
                } else {
                    self.count_droppable(now, &received, view, Recalled::default());
                    Decision::Drop(DropReason::QueueFull)
                };
                Decided::unread(decision)
            }
            (Queueing::Fifo, Decide::Arrival) => {
                let push = |ingress: &mut Self, waiting| {
                    if !ingress.fifo.has_room(0) || !ingress.may_wait(&waiting) {
                        return Decision::Drop(DropReason::QueueFull);
                    }
                    ingress.fifo.push(Unsorted::Read(waiting));
                    Decision::Queued
                };
                self.admit(now, received, view, Self::fifo_has_room, push)
            }
            (Queueing::Class, _) => {
                let room = |ingress: &Self, queue_class| ingress.queues.has_room(queue_class);
                self.admit(now, received, view, room, Self::push_to_queue)
            }
        };
        if decided.class.is_some_and(Class::is_droppable) {
            self.gate.on_lag(lag);
        }
        if matches!(decided.decision, Decision::Queued) {
            self.large.add(large);
        }
        decided
    }

    /// Returns whether the single queue has room for a message. If the gate paces INVITEs, a new
    /// INVITE moves on to another queue, so it also needs room there.
    fn fifo_has_room(&self, queue_class: QueueClass) -> bool {
        let is_paced = matches!(queue_class, QueueClass::Invites | QueueClass::Priority);
        let beside = if is_paced { self.queues.waiting() } else { 0 };
        self.fifo.has_room(beside)
    }

    /// Returns whether the message fits into the memory for waiting long messages.
    fn may_wait(&self, waiting: &Waiting) -> bool {
        self.large.has_room(&waiting.received, waiting.ticket.is_some())
    }

    fn push_to_queue(&mut self, waiting: Waiting) -> Decision {
        if !self.may_wait(&waiting) {
            return Decision::Drop(DropReason::QueueFull);
        }
        match self.keep_with_invite(waiting) {
            ControlFlow::Break(decision) => decision,
            ControlFlow::Continue(waiting) if self.queues.has_room(waiting.queue_class) => {
                self.queues.push(waiting);
                Decision::Queued
            }
            ControlFlow::Continue(Waiting { queue_class: QueueClass::Unverified, .. }) => {
                Decision::Drop(DropReason::Unverified)
            }
            ControlFlow::Continue(_) => Decision::Drop(DropReason::QueueFull),
        }
    }

    /// Keeps a CANCEL with its INVITE, if that INVITE waits in its queue. Otherwise returns the
    /// message in [`ControlFlow::Continue`].
    fn keep_with_invite(&mut self, waiting: Waiting) -> ControlFlow<Decision, Waiting> {
        let Some(fingerprint) = waiting.cancels else { return ControlFlow::Continue(waiting) };
        match self.queues.push_cancel(fingerprint, waiting) {
            Cancelled::Waits => ControlFlow::Break(Decision::Queued),
            Cancelled::Repeated => ControlFlow::Break(Decision::Drop(DropReason::Absorbed)),
            Cancelled::Elsewhere(cancel) => ControlFlow::Continue(cancel),
        }
    }

    /// Returns whether new INVITEs without priority wait in their queue.
    pub(crate) fn invites_wait(&self) -> bool {
        self.queues.invites() > 0
    }
}

/// Returns whether this message of a banned source passes the ban if it belongs to a call. An
/// INVITE passes only if the source has shown that it receives messages.
fn may_go_on(ban: &Ban, received: &Received) -> bool {
    ban.is_proven || !received.bytes.starts_with(b"INVITE")
}
