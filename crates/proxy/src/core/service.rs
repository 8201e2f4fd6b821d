//! Carries out the decisions of admission on messages: serves, rejects or drops them.

use tidegate_control::Reason;
use tidegate_world::{HandoffInput, Received, Shedding, Timestamp, Transmit, Work};

use super::Proxy;
use crate::admission::decision::{Decided, Decision, Read};
use crate::admission::kernel_shed::is_droppable;
use crate::admission::reject::RejectedRequest;
use crate::message::admitted::Admitted;
use crate::message::class::Class;
use crate::parked::{ParkedRequest, RequestSource};
use crate::rejection::reply_reason::ReplyReason;
use crate::request::{Served, Stages, serve_request};
use crate::response::{Awaiting, serve_response};
use crate::step::{SourceEvidence, Step};

impl Proxy {
    /// Carries out the decision on a message. The decision is made when the message arrives, or
    /// when it leaves its queue.
    pub(super) fn carry_out(&mut self, now: Timestamp, decided: Decided) {
        self.output.begin();
        let Decided { class, read, decision } = decided;
        // A message that could not be classified took time too.
        let number = Some(class.unwrap_or(Class::Other) as u8);
        self.work = Work { offered: number.filter(|_| read != Read::NotNow), ..Work::default() };
        if let Some(class) = class.filter(|_| read == Read::Now) {
            self.counters.received(class).add(1);
        }
        match decision {
            Decision::Queued => {}
            Decision::Drop(why) => self.counters.dropped(why).add(1),
            Decision::Reject(reason, reply) => {
                self.work.rejected = number;
                self.routing.tiering.on_rejected(reason);
                self.record_rejected(class);
                // Overload feedback has rejected the request, so the gate has not counted it.
                if reason == Reason::PeerShare {
                    self.count_rejected_before(class);
                }
                self.send_rejection(reason, reply);
            }
            Decision::Shed(reply) => {
                self.work.rejected = number;
                self.counters.shed(class.unwrap_or(Class::Other)).add(1);
                if let Some(reply) = reply {
                    self.counters.count_reply(503, ReplyReason::Shed);
                    self.output.send(*reply);
                }
            }
            Decision::NotUnderstood(received) => {
                self.work.rejected = number;
                self.record_rejected(class);
                self.count_rejected_before(class);
                self.output.reject_unread(&self.snapshot, &received, 417);
            }
            Decision::Stun(received) => self.output.answer_stun(&self.snapshot, &received),
            Decision::Malformed(received, malformed) => {
                self.work.rejected = number;
                // The kernel can drop a malformed INVITE or REGISTER, if rejecting costs too much.
                if Shedding::may_be_dropped(&received.bytes) {
                    self.record_rejected(Some(Class::Invite));
                }
                self.output.reject_malformed(&self.snapshot, &received, malformed);
            }
            Decision::Serve(received, admitted) => {
                self.work.served = number;
                let class = class.unwrap_or(Class::Other);
                let (flow, is_unverified) = (received.flow, admitted.is_unverified);
                let shown = match class {
                    Class::Final | Class::Provisional => {
                        let arrived = received.arrived;
                        let shown = self.serve_response(now, received);
                        self.record_served(now, class, arrived);
                        shown
                    }
                    _ => self.serve_request(now, received, class, admitted),
                };
                if shown != SourceEvidence::Nothing {
                    if let Some(in_service) = &mut self.in_service {
                        in_service.is_stray |= shown == SourceEvidence::Stray;
                    }
                    let (ingress, view) = self.view();
                    ingress.on_shown(now, &flow, shown, is_unverified, view);
                }
            }
        }
    }

    /// Serves a request: matches, plans, commits and forwards it. Returns the evidence about its
    /// sender.
    fn serve_request(
        &mut self,
        now: Timestamp,
        received: Box<Received>,
        class: Class,
        admitted: Admitted,
    ) -> SourceEvidence {
        let Admitted { fingerprint, is_again, .. } = admitted;
        let Self { snapshot, routing, peers, output, transactions, lost, .. } = self;
        let mut step = Step::new(now, snapshot, routing, peers, output);
        let Self { resolution, lookups, parked, .. } = self;
        let mut stages = Stages { transactions, lost, resolution, lookups, parked };
        let served = serve_request(&mut step, &mut stages, &received, &admitted);
        let Step { shown, pool, .. } = step;
        if let Some(bucket) = class.bucket()
            && !is_again
            && served.is_rejection()
        {
            self.counters.rejected_after(bucket).add(1);
        }
        // A request that was parked or handed off is served later, and counts then.
        if !served.is_later() && !matches!(served, Served::Unserved(_)) {
            self.record_served(now, class, received.arrived);
            if let Some(kernel_shed) = &mut self.kernel_shed
                && is_droppable(&received)
            {
                kernel_shed.on_served();
            }
        }
        match served {
            Served::Here | Served::Rejected => {}
            Served::RejectedForNow | Served::PoolDown => {
                if let Some(fingerprint) = fingerprint {
                    self.ingress.on_rejected(now, fingerprint);
                }
                if matches!(served, Served::PoolDown) {
                    self.counters.rejected(Reason::PoolDown).add(1);
                }
            }
            Served::Unserved(reason) => {
                // A rejection is not service, so its time must not be measured as service time.
                self.in_service = None;
                self.work = Work { served: None, rejected: self.work.served, ..self.work };
                self.record_rejected(Some(class));
                let Self { ingress, snapshot, .. } = self;
                let pool = snapshot.pool_name(pool);
                let rejected = RejectedRequest {
                    received: &received,
                    class,
                    fingerprint,
                    reason: Some(reason),
                };
                let reply = ingress.reject_served(now, &rejected, reason, snapshot, pool);
                self.send_rejection(reason, reply);
            }
            Served::Elsewhere(shard) => {
                self.output.hand_off(shard, HandoffInput::Received(*received))
            }
            Served::Parked(ticket, key) => {
                // The message is not served yet, so this time must not be measured as service time.
                self.in_service = None;
                self.counters.parked_all.add(1);
                let source = RequestSource::of(&self.snapshot, &received.flow);
                let request = ParkedRequest::new(received, class, admitted, key, source);
                self.parked.park(ticket, request);
            }
        }
        shown
    }

    /// Serves a response: matches and forwards it. Returns the evidence about its sender.
    fn serve_response(&mut self, now: Timestamp, received: Box<Received>) -> SourceEvidence {
        let Self { snapshot, routing, peers, output, transactions, probes, lost, .. } = self;
        let mut step = Step::new(now, snapshot, routing, peers, output);
        serve_response(&mut step, Awaiting { transactions, probes, lost }, received);
        let Step { shown, challenged, .. } = step;
        if let Some(challenge) = challenged {
            self.ingress.challenges.on_challenge(now, challenge);
        }
        shown
    }

    /// Records a rejection, whether the message was rejected on arrival or when it was to be
    /// served. If only one of these two kinds were recorded, the cost of rejections would seem
    /// lower than it is, and the kernel would drop too little.
    fn record_rejected(&mut self, class: Option<Class>) {
        if let Some(kernel_shed) = &mut self.kernel_shed {
            kernel_shed.on_rejected(class);
        }
    }

    /// Counts a served message, and its waiting time since it arrived at `arrived`.
    fn record_served(&mut self, now: Timestamp, class: Class, arrived: Timestamp) {
        self.counters.sojourns(class.is_new_work()).observe(now.since(arrived));
        self.work.stateless = self.routing.tiering.on_served(class);
    }

    /// Counts a request for new work that was rejected before the gate decided on it.
    fn count_rejected_before(&self, class: Option<Class>) {
        if let Some(bucket) = class.and_then(Class::bucket) {
            self.counters.rejected_before(bucket).add(1);
        }
    }

    fn send_rejection(&mut self, reason: Reason, reply: Option<Box<Transmit>>) {
        self.counters.rejected(reason).add(1);
        if let Some(reply) = reply {
            self.counters.count_reply(503, reason.into());
            self.output.send(*reply);
        }
    }
}
