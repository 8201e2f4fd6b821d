//! Handoffs between the shards of a process while they run and while they stop.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_world::{Cause, Failure, Handoff, HandoffInput, Pool, Received};

use crate::stop::ShutdownBarrier;
use crate::{Counters, Handoffs, Waker};

/// The handoffs of a shard, and its membership in the shutdown barrier of all shards.
///
/// The shards end when none of them has work. A message on its way to another shard is work too: it
/// keeps all shards running until the other shard has handled it.
pub(super) struct ShardHandoffs {
    handoffs: Handoffs,
    barrier: ShutdownBarrier,
    counters: Arc<Counters>,
    /// Messages that could not be handed off and go back to the core.
    returned: VecDeque<Returned>,
    /// Number of [`Returned::Unsent`] failures among `returned`.
    unsent: usize,
    /// Memberships in the shutdown barrier, which keep all shards running until the inputs taken
    /// since the last [`note`](Self::note) are handled.
    held: Vec<ShutdownBarrier>,
}

/// Maximum number of [`Returned::Unsent`] failures that wait for the core, more than a turn usually
/// has. Further failures are lost. Messages that arrived on streams have no such limit, because the
/// core has already limited them, and gets them back in the next turn.
const UNSENT_MAX: usize = 4096;

/// A message that could not be handed off.
#[derive(Debug)]
pub(super) enum Returned {
    /// A message that the other shard was to send. The core gets it back as this failure.
    Unsent(Failure),
    /// A message that arrived on a stream. The core handles it as if another shard had handed it
    /// off.
    Received(Received),
}

impl Returned {
    /// Returns the message that goes back to the core, or `None` for a [`Failure`] and for a
    /// received datagram, because the sender of a datagram retransmits it.
    fn of(input: HandoffInput) -> Option<Self> {
        match input {
            HandoffInput::Transmit(transmit) => {
                let failure = Failure::unsent(transmit.flow, Cause::Full, &transmit.bytes);
                Some(Self::Unsent(failure))
            }
            HandoffInput::Received(received) if received.flow.transport.is_reliable() => {
                let handoffs = received.handoffs.saturating_add(1);
                Some(Self::Received(Received { handoffs, ..received }))
            }
            HandoffInput::Received(_) | HandoffInput::Failure(_) => None,
        }
    }
}

impl ShardHandoffs {
    pub fn new(handoffs: Handoffs, barrier: ShutdownBarrier, counters: Arc<Counters>) -> Self {
        let (returned, held) = (VecDeque::new(), Vec::new());
        Self { handoffs, barrier, counters, returned, unsent: 0, held }
    }

    /// Hands an input off to its shard. If that shard cannot take the input, counts it as lost. If
    /// such an input is a message to send on a stream, or a message that arrived on a stream, it is
    /// kept for the core ([`take_returned`](Self::take_returned)). A datagram is not kept, because
    /// its sender retransmits it.
    pub fn send(&mut self, handoff: Handoff) {
        match self.handoffs.send_held(handoff, Some(self.barrier.hold())) {
            Ok(()) => self.counters.handoffs_out.add(1),
            Err(input) => {
                self.counters.handoffs_lost.add(1);
                self.give_back(input);
            }
        }
    }

    /// Keeps an input that could not be handed off until the core takes it back.
    fn give_back(&mut self, input: HandoffInput) {
        let Some(returned) = Returned::of(input) else { return };
        if matches!(returned, Returned::Unsent(_)) {
            if self.unsent >= UNSENT_MAX {
                return;
            }
            self.unsent += 1;
        }
        self.returned.push_back(returned);
    }

    /// Takes over the next input from another shard.
    pub fn take(&mut self, pool: &Pool) -> Option<HandoffInput> {
        let (input, hold) = self.handoffs.take(pool)?;
        self.held.extend(hold);
        Some(input)
    }

    /// Returns the next message that could not be handed off.
    pub(crate) fn take_returned(&mut self) -> Option<Returned> {
        let returned = self.returned.pop_front()?;
        self.unsent -= usize::from(matches!(returned, Returned::Unsent(_)));
        Some(returned)
    }

    /// Returns the number of messages that wait to go back to the core.
    pub fn returned(&self) -> usize {
        self.returned.len()
    }

    /// Returns whether no input of another shard waits.
    pub fn is_empty(&self) -> bool {
        self.handoffs.is_empty()
    }

    /// Returns this shard's end of the queues between shards.
    pub fn queues(&self) -> &Handoffs {
        &self.handoffs
    }

    pub(crate) fn waker(&self) -> &Waker {
        self.handoffs.waker()
    }

    pub(crate) fn barrier(&self) -> &ShutdownBarrier {
        &self.barrier
    }

    /// Tells the shutdown barrier whether this shard still has work. `holds` is true if it has work
    /// other than handoffs.
    pub fn note(&mut self, holds: bool) {
        self.barrier.note(holds || !self.is_empty() || !self.returned.is_empty());
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{ConnectionId, Flow, ShardIndex, Timestamp, Transmit, Transport};

    use super::*;
    use crate::Stop;

    fn pair(capacity: usize) -> [ShardHandoffs; 2] {
        let stop = Stop::new();
        let mesh = Handoffs::mesh(2, capacity).unwrap();
        let end = |handoffs: Handoffs| {
            let barrier = stop.join(handoffs.waker().clone());
            ShardHandoffs::new(handoffs, barrier, Arc::default())
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

    /// The last response of a call may have to leave on a connection of a shard that has no work.
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
    fn messages_that_do_not_fit_are_counted_and_those_of_streams_go_back() {
        let pool = Pool::new();
        let [mut a, mut b] = pair(1);
        a.send(response(&pool));
        a.send(response(&pool));
        let HandoffInput::Transmit(transmit) = response(&pool).input else { unreachable!() };
        let now = Timestamp::ZERO;
        for flow in [transmit.flow, Flow::udp(transmit.flow.local, transmit.flow.remote)] {
            let received = Received::new(now, flow, pool.copy(b"BYE"));
            a.send(Handoff { shard: 1, input: HandoffInput::Received(received) });
        }
        assert_eq!((a.counters.handoffs_out.get(), a.counters.handoffs_lost.get()), (1, 3));
        a.note(false);
        assert!(b.take(&pool).is_some());
        b.note(false);
        assert!(!b.barrier().all_drained(), "the core has not got them back");
        assert_eq!(a.returned(), 2);
        match a.take_returned() {
            Some(Returned::Unsent(failure)) => assert_eq!(failure.cause, Cause::Full),
            other => panic!("{other:?}"),
        }
        match a.take_returned() {
            Some(Returned::Received(received)) => assert_eq!(received.handoffs, 1),
            other => panic!("{other:?}"),
        }
        a.note(false);
        assert!(b.barrier().all_drained());
    }

    /// A turn can read more than 1,000 messages from connections, and all of them may belong to a
    /// shard whose queue is full.
    #[test]
    fn all_messages_of_streams_and_a_limited_number_of_failures_go_back() {
        let pool = Pool::new();
        let [mut a, _b] = pair(1);
        let HandoffInput::Transmit(transmit) = response(&pool).input else { unreachable!() };
        a.send(response(&pool));
        let count = UNSENT_MAX + 10;
        for _ in 0..count {
            a.send(response(&pool));
            let received = Received::new(Timestamp::ZERO, transmit.flow, pool.copy(b"BYE"));
            a.send(Handoff { shard: 1, input: HandoffInput::Received(received) });
        }
        let returned: Vec<_> = std::iter::from_fn(|| a.take_returned()).collect();
        let is_received = |returned: &&Returned| matches!(returned, Returned::Received(_));
        assert_eq!(returned.iter().filter(is_received).count(), count);
        assert_eq!(returned.len(), count + UNSENT_MAX);
        a.send(response(&pool));
        assert_eq!(a.returned(), 1, "failures have places again");
    }
}
