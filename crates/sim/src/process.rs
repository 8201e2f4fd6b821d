//! A process with several shards, as one core.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tidegate_world::{
    CloseCause, Connect, ConnectionId, Core, Counter, Failure, Flow, Handoff, HandoffInput, Load,
    Query, QueryAnswer, QueryId, Received, ShardIndex, Shedding, Timestamp, Transmit, Work,
};

/// A process with several shards, each with its own core, that acts as one [`Core`].
///
/// In a real process, each shard has its own socket at the same address, and the operating system
/// chooses the shard by the two addresses of a datagram. So here all datagrams between two
/// addresses go to the same shard, and so do reports that such a datagram could not be delivered. A
/// connection belongs to the shard that its [id](ConnectionId::shard) contains.
///
/// An input that a shard [hands off](Core::poll_handoff) reaches the other shard after a fixed
/// time, in order. A real shard needs about this time to wake. No handoff is lost here, although
/// the queues between the shards of a real process have a limit.
pub struct Process<C> {
    shards: Vec<C>,
    /// The index of shard 0, which also contains the number of shards. [`ConnectionId::shard`]
    /// needs this number, because a connection id does not contain it.
    any: ShardIndex,
    handoff_time: Duration,
    /// Handoffs on their way, with the time at which they arrive.
    handoffs: VecDeque<(Timestamp, Handoff)>,
    /// The most recent unanswered queries: the id outside the process, the shard that has asked,
    /// and the id of the query in that shard.
    queries: VecDeque<(QueryId, u16, QueryId)>,
    next_query: QueryId,
    filtered: Arc<Counter>,
    work: Work,
}

/// Maximum number of queries that wait for an answer. If there are more, the oldest gets no answer.
const QUERIES_MAX: usize = 4096;

impl<C: Core> Process<C> {
    /// Creates a process of these cores, in the order of their shards. A handoff takes
    /// `handoff_time`. Datagrams that a core wants to [shed](Core::poll_shedding) are counted in
    /// `filtered`.
    ///
    /// # Panics
    /// Panics if there are no cores, or more than 65,535.
    pub fn new(shards: Vec<C>, handoff_time: Duration, filtered: Arc<Counter>) -> Self {
        let count = u16::try_from(shards.len()).expect("at most 65,535 shards");
        Self {
            shards,
            any: ShardIndex::new(0, count),
            handoff_time,
            handoffs: VecDeque::new(),
            queries: VecDeque::new(),
            next_query: QueryId(0),
            filtered,
            work: Work::default(),
        }
    }

    fn shard_of(&self, flow: Flow) -> u16 {
        if let Some(id) = flow.connection {
            return id.shard(self.any);
        }
        let mut hasher = DefaultHasher::new();
        (flow.local, flow.remote).hash(&mut hasher);
        (hasher.finish() % self.shards.len() as u64) as u16
    }

    fn core(&mut self, shard: u16) -> &mut C {
        &mut self.shards[usize::from(shard)]
    }

    /// Takes the new handoffs of all shards. Gives each handoff whose time has come to its shard.
    fn hand_off(&mut self, now: Timestamp) {
        loop {
            for core in &mut self.shards {
                while let Some(handoff) = core.poll_handoff() {
                    self.handoffs.push_back((now + self.handoff_time, handoff));
                }
            }
            let due = self.handoffs.pop_front_if(|(at, _)| *at <= now);
            let Some((_, Handoff { shard, input })) = due else { return };
            let core = self.core(shard);
            match input {
                HandoffInput::Received(received) => {
                    let handoffs = received.handoffs + 1;
                    core.offer(now, Received { handoffs, ..received });
                }
                HandoffInput::Transmit(transmit) => core.on_transmit(now, transmit),
                HandoffInput::Failure(failure) => core.on_failed(now, failure),
            }
        }
    }

    /// Gives an input to one shard, and then handles the handoffs that it causes.
    fn give(&mut self, now: Timestamp, shard: u16, input: impl FnOnce(&mut C)) {
        input(self.core(shard));
        self.hand_off(now);
    }

    /// Gives an input to each shard, and then handles the handoffs that it causes.
    fn give_all(&mut self, now: Timestamp, input: impl Fn(&mut C)) {
        self.shards.iter_mut().for_each(input);
        self.hand_off(now);
    }
}

#[deny(clippy::missing_trait_methods)]
impl<C: Core> Core for Process<C> {
    fn offer(&mut self, now: Timestamp, received: Received) {
        let shard = self.shard_of(received.flow);
        let Received { flow, bytes, .. } = &received;
        let shedding = self.shards[usize::from(shard)].poll_shedding();
        if !flow.transport.is_reliable() && shedding.drops(flow.remote.ip(), bytes) {
            return self.filtered.add(1);
        }
        self.give(now, shard, |core| core.offer(now, received));
        self.work = self.core(shard).last_work();
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        let Some(shard) = self.shards.iter_mut().position(|core| core.serve(now)) else {
            return false;
        };
        self.work = self.shards[shard].last_work();
        self.hand_off(now);
        true
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.hand_off(now);
        self.give_all(now, |core| {
            if core.poll_timeout().is_some_and(|at| at <= now) {
                core.handle_timeout(now);
            }
        });
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.give(now, self.shard_of(failure.flow), |core| core.on_failed(now, failure));
    }

    fn on_transmit(&mut self, now: Timestamp, transmit: Transmit) {
        self.give(now, self.shard_of(transmit.flow), |core| core.on_transmit(now, transmit));
    }

    fn on_connected(&mut self, now: Timestamp, flow: Flow) {
        self.give(now, self.shard_of(flow), |core| core.on_connected(now, flow));
    }

    fn on_closed(&mut self, now: Timestamp, id: ConnectionId, cause: CloseCause) {
        self.give(now, id.shard(self.any), |core| core.on_closed(now, id, cause));
    }

    fn on_writable(&mut self, now: Timestamp, id: ConnectionId) {
        self.give(now, id.shard(self.any), |core| core.on_writable(now, id));
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        self.give_all(now, |core| core.on_load(now, load));
    }

    fn on_command(&mut self, now: Timestamp, command: &[u8]) {
        self.give_all(now, |core| core.on_command(now, command));
    }

    fn on_answer(&mut self, now: Timestamp, id: QueryId, answer: QueryAnswer) {
        let Some(at) = self.queries.iter().position(|&(outside, ..)| outside == id) else { return };
        let Some((_, shard, id)) = self.queries.remove(at) else { return };
        self.give(now, shard, |core| core.on_answer(now, id, answer));
    }

    fn on_drain(&mut self, now: Timestamp) {
        self.give_all(now, |core| core.on_drain(now));
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.shards.iter_mut().find_map(Core::poll_transmit)
    }

    fn poll_handoff(&mut self) -> Option<Handoff> {
        None
    }

    fn poll_query(&mut self) -> Option<Query> {
        let mut shards = (0..).zip(&mut self.shards);
        let (shard, query) = shards.find_map(|(shard, core)| Some((shard, core.poll_query()?)))?;
        let id = self.next_query;
        self.next_query = QueryId(id.0 + 1);
        self.queries.push_back((id, shard, query.id));
        if self.queries.len() > QUERIES_MAX {
            self.queries.pop_front();
        }
        Some(Query { id, ..query })
    }

    fn poll_connect(&mut self) -> Option<Connect> {
        self.shards.iter_mut().find_map(Core::poll_connect)
    }

    fn poll_close(&mut self) -> Option<ConnectionId> {
        self.shards.iter_mut().find_map(Core::poll_close)
    }

    /// Returns rules that shed nothing, because [`offer`](Self::offer) itself drops the datagrams
    /// that a shard wants to shed.
    fn poll_shedding(&self) -> &Shedding {
        const { &Shedding::NONE }
    }

    fn last_work(&self) -> Work {
        self.work
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        let timers = self.shards.iter().filter_map(Core::poll_timeout);
        timers.chain(self.handoffs.front().map(|(at, _)| *at)).min()
    }

    fn is_drained(&self) -> bool {
        self.handoffs.is_empty() && self.shards.iter().all(Core::is_drained)
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
