//! The implementation of [`Core`] for [`Host`].

use tidegate_world::{
    CloseCause, Connect, ConnectionId, Core, Failure, Flow, Handoff, Load, Query, QueryAnswer,
    QueryId, Received, Shedding, Timestamp, Transmit, Transport, Work,
};

use super::{Host, earlier};

// `missing_trait_methods` makes sure that every input first advances the model. An input that is
// only passed on would bypass the model's time.
#[deny(clippy::missing_trait_methods)]
impl<C: Core> Core for Host<C> {
    fn offer(&mut self, now: Timestamp, received: Received) {
        let on_time = received.handoffs == 0 && self.catches_up;
        let arrived = if on_time { received.arrived.min(now) } else { now };
        // The model advances only to the arrival of this datagram, because the driver may next
        // offer another datagram that arrived before `now`.
        self.advance(arrived);
        // A message from another shard has already passed that shard's gate.
        let source = received.flow.remote.ip();
        let is_subject = received.handoffs == 0 && received.flow.transport == Transport::Udp;
        let is_beside_new_work = self.buffers.is_beside_new_work(&received.bytes);
        if is_subject && self.shedding.drops(source, &received.bytes) {
            self.filtered.add(1);
        } else if self.buffers.push(arrived, received) {
            self.advance(arrived);
        } else {
            self.overflow.add(1);
            self.invite_overflow += u64::from(is_beside_new_work);
        }
    }

    /// Advances the model to `now`. Always returns `false`, because the model then has served all
    /// messages that it can by `now`.
    fn serve(&mut self, now: Timestamp) -> bool {
        self.advance(now);
        false
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.advance(now);
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.advance(now);
        self.give(now, |core, now| core.on_failed(now, failure));
        self.advance(now);
    }

    fn on_transmit(&mut self, now: Timestamp, transmit: Transmit) {
        self.advance(now);
        self.give(now, |core, now| core.on_transmit(now, transmit));
        self.advance(now);
    }

    fn on_connected(&mut self, now: Timestamp, flow: Flow) {
        self.advance(now);
        self.give(now, |core, now| core.on_connected(now, flow));
        self.advance(now);
    }

    fn on_closed(&mut self, now: Timestamp, id: ConnectionId, cause: CloseCause) {
        self.advance(now);
        self.give(now, |core, now| core.on_closed(now, id, cause));
        self.advance(now);
    }

    fn on_writable(&mut self, now: Timestamp, id: ConnectionId) {
        self.advance(now);
        self.give(now, |core, now| core.on_writable(now, id));
        self.advance(now);
    }

    fn on_load(&mut self, now: Timestamp, _: Load) {
        self.advance(now);
        // An idle core gets the reading before its next step or timer. A call at `now` would be too
        // early: the core's time would advance to `now`, and a datagram that arrived before `now`
        // and is read next would seem to arrive later.
        if self.processor.free_at() > now {
            self.enter(now);
        }
    }

    fn on_command(&mut self, now: Timestamp, command: &[u8]) {
        self.advance(now);
        self.give(now, |core, now| core.on_command(now, command));
        self.advance(now);
    }

    fn on_answer(&mut self, now: Timestamp, id: QueryId, answer: QueryAnswer) {
        self.advance(now);
        self.give(now, |core, now| core.on_answer(now, id, answer));
        self.advance(now);
    }

    fn on_drain(&mut self, now: Timestamp) {
        self.advance(now);
        self.give(now, Core::on_drain);
        self.advance(now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop(self.reached)
    }

    fn poll_handoff(&mut self) -> Option<Handoff> {
        self.handoffs.pop(self.reached)
    }

    /// Returns the next query. It is not held back, because a query costs nothing and an answer is
    /// not a packet.
    fn poll_query(&mut self) -> Option<Query> {
        self.core.poll_query()
    }

    /// Returns the next connection to open. It is not held back, because opening a connection costs
    /// nothing in the model.
    fn poll_connect(&mut self) -> Option<Connect> {
        self.core.poll_connect()
    }

    /// Returns the next connection to close. It is held back until all packets that the core sent
    /// before have left.
    fn poll_close(&mut self) -> Option<ConnectionId> {
        self.closes.pop(self.reached)
    }

    /// Returns nothing, because the host itself drops the datagrams that its core wants to shed.
    fn poll_shedding(&self) -> &Shedding {
        const { &Shedding::NONE }
    }

    fn last_work(&self) -> Work {
        self.core.last_work()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        let release = earlier(self.transmits.next(), self.handoffs.next());
        let release = earlier(release, self.closes.next());
        earlier(earlier(self.core.poll_timeout(), self.next_step()), release)
    }

    fn is_drained(&self) -> bool {
        let held =
            !(self.transmits.is_empty() && self.handoffs.is_empty() && self.closes.is_empty());
        self.core.is_drained() && self.buffers.is_empty() && !held
    }
}
