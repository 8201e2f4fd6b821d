//! The methods of a shard that the driver calls: an implementation of [`Core`].

use tidegate_world::{
    Core, Failure, Handoff, Load, Query, QueryAnswer, QueryId, Received, Shedding, Timestamp,
    Transmit, Work,
};

use super::{InService, Proxy};
use crate::admission::decision::{Decided, Decision, Read};
use crate::failure::{Learning, on_failed};
use crate::parked::ParkedRequest;
use crate::response::unsent::reject_unsent;
use crate::step::Step;
use crate::transaction::fire_expired;

impl Core for Proxy {
    fn offer(&mut self, now: Timestamp, received: Received) {
        self.now = now;
        self.interrupt(now, received.arrived);
        self.tell_looks(now);
        self.follow_names(now);
        let (ingress, view) = self.view();
        let decided = ingress.offer(now, received, view);
        self.carry_out(now, decided);
        self.record_look(now);
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        self.now = now;
        self.complete_service(now);
        self.tell_looks(now);
        let decided = match self.parked.next() {
            Some(request) => Some(resumed(request)),
            None => {
                let answers = self.ingress.invites_wait().then(|| self.routing.calls.answers(now));
                let (ingress, view) = self.view();
                ingress.next(now, answers, view)
            }
        };
        let Some(decided) = decided else {
            self.work = Work::default();
            self.counters.overload.publish_flows(self.ingress.gate());
            return false;
        };
        if let (Decision::Serve(_, admitted), Some(class)) = (&decided.decision, decided.class) {
            let is_stray = admitted.is_unverified;
            self.in_service = Some(InService { class, since: now, is_stray });
        }
        self.carry_out(now, decided);
        if self.work.rejected.is_some() {
            self.record_look(now);
        }
        self.publish();
        true
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.now = now;
        self.interrupt_all(now);
        self.slack.on_fired(now);
        // Many timers fire in a second, and there may be thousands of peers. So the peers are
        // published only after a measurement.
        let answers = self.routing.calls.answers(now);
        if self.ingress.handle_timeout(now, answers) {
            let upstream = &self.ingress.upstream;
            self.counters.upstream.publish(upstream.is_active(), || upstream.views());
        }
        // Usually the ladder has nothing to decide when a timer fires.
        if self.kernel_shed.as_mut().is_some_and(|kernel_shed| kernel_shed.handle_timeout(now)) {
            self.apply_ladder(now);
        }
        let Self { snapshot, routing, peers, output, transactions, .. } = self;
        // A due timer of a transaction may continue its call: at Timer B another back end is tried.
        fire_expired(&mut Step::new(now, snapshot, routing, peers, output), transactions);
        self.routing.calls.handle_timeout(now);
        self.names.handle_timeout(now);
        for ticket in self.resolution.handle_timeout(now) {
            self.parked.resume(ticket);
        }
        for ticket in self.lookups.handle_timeout(now) {
            self.parked.resume(ticket);
        }
        self.parked.handle_timeout(now);
        self.probe_suspects(now);
        self.probes.fire(now, &self.snapshot, &mut self.output);
        self.publish();
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.now = now;
        self.interrupt_all(now);
        let Self { snapshot, transactions, probes, peers, output, .. } = self;
        let learning = Learning { transactions, probes, peers, output };
        on_failed(now, snapshot, learning, &failure);
        // Only our own transport knows for certain that a request was not sent. An ICMP error may be
        // forged, and its quote may be cut off.
        if failure.flow.transport.is_reliable() {
            let Self { snapshot, routing, peers, output, transactions, lost, .. } = self;
            let mut step = Step::new(now, snapshot, routing, peers, output);
            reject_unsent(&mut step, transactions, lost, &failure);
        }
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        if load.ends_service {
            self.complete_service(now);
            self.tell_looks(now);
        }
        self.ingress.on_load(now, &load);
        let Self { ingress, kernel_shed, shedding, counters, .. } = self;
        self.routing.tiering.on_reading(ingress.gate());
        counters.overload.publish(now, ingress.gate(), ingress.unanswered_max());
        counters.overload.publish_tiers(self.routing.tiering.tiers());
        counters.overload.sources_overflowed.set(ingress.sources_overflowed());
        counters.overload.challenges_forgotten.set(ingress.challenges.overflowed());
        counters.in_force.publish(ingress.gate());
        if let Some(kernel_shed) = kernel_shed {
            kernel_shed.on_load(now, &load, ingress.gate(), counters);
            let policy = &ingress.source_policy;
            self.kernel_lists.list_spared(now, policy, &self.snapshot, &mut shedding.spared);
        }
        self.kernel_lists.list_banned(now, &mut ingress.source_policy, &mut shedding.banned);
        self.apply_ladder(now);
    }

    fn on_answer(&mut self, now: Timestamp, id: QueryId, answer: QueryAnswer) {
        self.interrupt_all(now);
        let addresses = &self.snapshot.addresses;
        self.names.on_answer(now, id, &answer, |address| addresses.may_be_backend(address));
        self.follow_names(now);
        let ticket = self.resolution.on_answer(now, id, &answer);
        if let Some(ticket) = ticket.or_else(|| self.lookups.on_answer(now, id, &answer)) {
            self.parked.resume(ticket);
        }
    }

    fn on_drain(&mut self, now: Timestamp) {
        self.interrupt_all(now);
        self.ingress.close();
        self.names.on_drain();
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.output.poll_transmit();
        if !self.ingress.upstream.is_active() {
            return transmit;
        }
        transmit.map(|transmit| self.ingress.upstream.answer(self.now, &self.snapshot, transmit))
    }

    fn poll_handoff(&mut self) -> Option<Handoff> {
        self.output.poll_handoff()
    }

    fn poll_query(&mut self) -> Option<Query> {
        let query = self.names.poll_query().or_else(|| self.resolution.poll_query());
        query.or_else(|| self.lookups.poll_query())
    }

    fn poll_shedding(&self) -> &Shedding {
        &self.shedding
    }

    fn last_work(&self) -> Work {
        self.work
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        let calls = self.routing.calls.poll_timeout();
        let transactions = self.transactions.poll_timeout();
        let tick = self.ingress.poll_timeout();
        let kernel_shed = self.kernel_shed.as_ref().and_then(|t| t.ladder().poll_timeout());
        let names = self.names.poll_timeout();
        let probes = self.probes.poll_timeout();
        let resolution = self.resolution.poll_timeout();
        let parked = self.parked.poll_timeout();
        // Look-ups matter only while a request is parked, because only parked requests wait for
        // them.
        let parked = parked.map(|at| self.lookups.poll_timeout().map_or(at, |due| at.min(due)));
        let timers = [calls, transactions, names, probes, resolution, parked];
        let timers = timers.into_iter().flatten().min().map(|due| self.slack.defer(due));
        // Timers that take measurements for overload control are not deferred.
        [timers, tick, kernel_shed].into_iter().flatten().min()
    }

    fn is_drained(&self) -> bool {
        let calls = &self.routing.calls;
        self.ingress.waiting() == 0
            && self.parked.len() == 0
            && calls.open() == 0
            && calls.unacknowledged() == 0
            && self.transactions.unfinished() == 0
    }
}

impl Proxy {
    /// Applies and publishes the way of shedding that the ladder has chosen: a 503, a padded 503 or
    /// a drop by the kernel.
    fn apply_ladder(&mut self, now: Timestamp) {
        let Self { ingress, kernel_shed, kernel_lists, shedding, counters, .. } = self;
        let Some(kernel_shed) = kernel_shed else { return };
        kernel_shed.fill(shedding);
        ingress.gate_mut().set_dropped(shedding.shares);
        kernel_lists.list_heavy(now, ingress.gate_mut(), kernel_shed.ladder(), shedding, counters);
        kernel_shed.set_targeted(!shedding.heavy.is_empty());
        ingress.set_pads(kernel_shed.ladder().pads());
        counters.overload.publish_ladder(kernel_shed.ladder());
    }
}

/// Returns the decision to serve a parked request that may continue. The gate admitted the request
/// before it was parked.
fn resumed(request: ParkedRequest) -> Decided {
    let ParkedRequest { received, class, admitted, .. } = request;
    let decision = Decision::Serve(received, admitted);
    Decided { class: Some(class), read: Read::NotNow, decision }
}
