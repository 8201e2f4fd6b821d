//! Handoffs between the shards of a process while they run and while they stop.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_world::{Failure, Handoff, HandoffInput, Pool};

use crate::stop::ShutdownBarrier;
use crate::{Counters, Handoffs, Waker};

/// The handoffs of a shard, and its membership in the group that stops together.
///
/// The shards end when none of them has work. A message on its way to another shard is work too: it
/// holds all shards until the other shard has handled it.
pub(super) struct Crossings {
    handoffs: Handoffs,
    barrier: ShutdownBarrier,
    counters: Arc<Counters>,
    /// Messages that could not be handed off, to be reported to the core.
    unsent: VecDeque<Failure>,
    /// The holds of the inputs taken since the barrier was last noted.
    held: Vec<ShutdownBarrier>,
}

impl Crossings {
    pub fn new(handoffs: Handoffs, barrier: ShutdownBarrier, counters: Arc<Counters>) -> Self {
        Self { handoffs, barrier, counters, unsent: VecDeque::new(), held: Vec::new() }
    }

    /// Hands an input to its shard. If this is not possible, it is counted, and
    /// [`take_unsent`](Self::take_unsent) returns the failure of a message to send.
    pub fn send(&mut self, handoff: Handoff) {
        match self.handoffs.send_held(handoff, Some(self.barrier.hold())) {
            Ok(()) => self.counters.handoffs_out.add(1),
            Err(failure) => {
                self.counters.handoffs_lost.add(1);
                self.unsent.extend(failure);
            }
        }
    }

    /// Takes over the next input from another shard.
    pub fn take(&mut self, pool: &Pool) -> Option<HandoffInput> {
        let (input, hold) = self.handoffs.take_held(pool)?;
        self.held.extend(hold);
        Some(input)
    }

    /// Returns the failure of the next message that could not be handed off.
    pub fn take_unsent(&mut self) -> Option<Failure> {
        self.unsent.pop_front()
    }

    /// Returns the number of messages that could not be handed off and are not reported yet.
    pub fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Returns whether no input of another shard waits.
    pub fn is_empty(&self) -> bool {
        self.handoffs.is_empty()
    }

    /// Returns the end of the queues of this shard.
    pub fn handoffs(&self) -> &Handoffs {
        &self.handoffs
    }

    /// Returns the waker of this shard.
    pub fn waker(&self) -> &Waker {
        self.handoffs.waker()
    }

    /// Returns the membership of this shard.
    pub fn barrier(&self) -> &ShutdownBarrier {
        &self.barrier
    }

    /// Records whether this shard still has work, apart from the inputs of other shards.
    pub fn note(&mut self, holds: bool) {
        self.barrier.note(holds || !self.is_empty() || !self.unsent.is_empty());
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{Cause, ConnectionId, Flow, ShardIndex, Transmit, Transport};

    use super::*;
    use crate::Stop;

    fn pair(capacity: usize) -> [Crossings; 2] {
        let stop = Stop::new();
        let mesh = Handoffs::mesh(2, capacity).unwrap();
        let end = |handoffs: Handoffs| {
            let barrier = stop.join(handoffs.waker().clone());
            Crossings::new(handoffs, barrier, Arc::default())
        };
        mesh.into_iter().map(end).collect::<Vec<_>>().try_into().ok().expect("two")
    }

    fn response(pool: &Pool) -> Handoff {
        let (local, remote) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let id = ConnectionId::first_accepted(ShardIndex::new(1, 2));
        let flow = Flow::connected(Transport::Tcp, local, remote, id);
        let transmit = Transmit::new(flow, pool.copy(b"SIP/2.0 200 OK"));
        Handoff { shard: 1, input: HandoffInput::Transmit(transmit) }
    }

    /// The last response of a call may leave on a connection of a shard that has no work.
    #[test]
    fn shards_do_not_end_while_a_message_is_on_its_way() {
        let pool = Pool::new();
        let [mut a, mut b] = pair(8);
        b.note(false);
        a.send(response(&pool));
        a.note(false);
        assert!(!a.barrier().all_drained());
        assert!(b.take(&pool).is_some());
        assert!(!a.barrier().all_drained(), "it is not handled yet");
        b.note(false);
        assert!(a.barrier().all_drained() && b.barrier().all_drained());
    }

    #[test]
    fn a_message_that_does_not_fit_is_counted_and_reported() {
        let pool = Pool::new();
        let [mut a, mut b] = pair(1);
        a.send(response(&pool));
        a.send(response(&pool));
        assert_eq!((a.counters.handoffs_out.get(), a.counters.handoffs_lost.get()), (1, 1));
        a.note(false);
        b.take(&pool);
        b.note(false);
        assert!(!b.barrier().all_drained(), "the core has not been told");
        assert_eq!(a.unsent(), 1);
        assert_eq!(a.take_unsent().map(|failure| failure.cause), Some(Cause::Full));
        a.note(false);
        assert!(b.barrier().all_drained());
    }
}
