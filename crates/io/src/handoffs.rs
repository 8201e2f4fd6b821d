//! Messages and failures handed off from shard to shard.

use std::io;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use tidegate_world::{
    Cause, Failure, Flow, Handoff, HandoffInput, Pool, Received, Timestamp, Transmit,
};

use crate::Waker;

/// One shard's end of the queues between all shards of a process.
///
/// A shard's buffers belong to its thread, so a handoff copies the message twice. Two kinds of
/// messages are handed off: stateful messages that arrived at the wrong shard, and messages that
/// leave on a connection of another shard.
#[derive(Debug)]
pub struct Handoffs {
    shard: usize,
    outgoing: Vec<(Sender<Parcel>, Waker)>,
    incoming: Receiver<Parcel>,
    waker: Waker,
}

/// The input of a [`Handoff`] without the buffer of its shard.
#[derive(Debug)]
struct Parcel {
    kind: Kind,
    flow: Flow,
    bytes: Box<[u8]>,
}

/// The kind of an input, with the values that only this kind has.
#[derive(Debug)]
enum Kind {
    Received { arrived: Timestamp, handoffs: u8 },
    Transmit,
    Failure(Cause),
}

impl Parcel {
    fn pack(input: HandoffInput) -> Self {
        match input {
            HandoffInput::Received(Received { arrived, flow, bytes, handoffs }) => {
                let kind = Kind::Received { arrived, handoffs: handoffs.saturating_add(1) };
                Self { kind, flow, bytes: (*bytes).into() }
            }
            HandoffInput::Transmit(Transmit { flow, bytes, .. }) => {
                Self { kind: Kind::Transmit, flow, bytes: (*bytes).into() }
            }
            HandoffInput::Failure(Failure { flow, cause, quote }) => {
                Self { kind: Kind::Failure(cause), flow, bytes: quote }
            }
        }
    }

    fn unpack(self, pool: &Pool) -> HandoffInput {
        let Self { kind, flow, bytes } = self;
        match kind {
            Kind::Received { arrived, handoffs } => {
                let bytes = pool.copy(&bytes);
                HandoffInput::Received(Received { arrived, flow, bytes, handoffs })
            }
            Kind::Transmit => HandoffInput::Transmit(Transmit::new(flow, pool.copy(&bytes))),
            Kind::Failure(cause) => HandoffInput::Failure(Failure { flow, cause, quote: bytes }),
        }
    }
}

impl Handoffs {
    /// Creates the ends for `shards` shards, each with a queue of up to `capacity` messages towards
    /// it.
    ///
    /// # Errors
    /// Returns the errors of `eventfd(2)`.
    pub fn mesh(shards: u16, capacity: usize) -> io::Result<Vec<Self>> {
        let mut outgoing = Vec::new();
        let mut incoming = Vec::new();
        for _ in 0..shards {
            let (sender, receiver) = bounded(capacity);
            let waker = Waker::new()?;
            outgoing.push((sender, waker.clone()));
            incoming.push((receiver, waker));
        }
        let end = |(shard, (incoming, waker))| Self {
            shard,
            outgoing: outgoing.clone(),
            incoming,
            waker,
        };
        Ok(incoming.into_iter().enumerate().map(end).collect())
    }

    /// Creates the end of a single shard.
    ///
    /// # Errors
    /// Returns the errors of `eventfd(2)`.
    pub fn alone() -> io::Result<Self> {
        let mut mesh = Self::mesh(1, 1)?;
        Ok(mesh.remove(0))
    }

    /// Hands an input to its shard, and wakes that shard. Returns `false` if the queue is full, or
    /// if there is no such other shard.
    #[must_use]
    pub fn send(&self, handoff: Handoff) -> bool {
        let Handoff { shard, input } = handoff;
        let shard = usize::from(shard);
        let Some((sender, waker)) = self.outgoing.get(shard).filter(|_| shard != self.shard) else {
            return false;
        };
        // Checked first, so that a full queue costs no copy.
        if sender.is_full() {
            return false;
        }
        match sender.try_send(Parcel::pack(input)) {
            Ok(()) => {
                waker.wake();
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Takes over the next input from another shard. A message is copied into a buffer of `pool`.
    #[must_use]
    pub fn take(&self, pool: &Pool) -> Option<HandoffInput> {
        Some(self.incoming.try_recv().ok()?.unpack(pool))
    }

    /// Returns the number of this shard.
    pub(crate) fn shard(&self) -> u16 {
        self.shard as u16
    }

    /// Returns whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.incoming.is_empty()
    }

    /// Returns the waker of this shard.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::{ConnectionId, Transport};

    use super::*;

    fn handoff(pool: &Pool, shard: u16, text: &str) -> Handoff {
        let flow = Flow::udp("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let received = Received::new(Timestamp::from_nanos(7), flow, pool.copy(text.as_bytes()));
        Handoff { shard, input: HandoffInput::Received(received) }
    }

    fn take(mesh: &Handoffs, pool: &Pool) -> Received {
        match mesh.take(pool) {
            Some(HandoffInput::Received(received)) => received,
            other => panic!("no message: {other:?}"),
        }
    }

    #[test]
    fn a_message_arrives_at_its_shard_unchanged() {
        let mesh = Handoffs::mesh(3, 8).unwrap();
        let (here, there) = (Pool::new(), Pool::new());
        assert!(mesh[0].send(handoff(&here, 2, "BYE")));
        assert!(mesh[1].send(handoff(&here, 2, "ACK")));
        assert!(mesh[0].take(&there).is_none() && mesh[1].take(&there).is_none());
        for text in ["BYE", "ACK"] {
            let received = take(&mesh[2], &there);
            assert_eq!(&received.bytes[..], text.as_bytes());
            assert_eq!((received.arrived, received.handoffs), (Timestamp::from_nanos(7), 1));
        }
        assert!(mesh[2].take(&there).is_none());
    }

    #[test]
    fn a_message_to_send_and_a_failure_arrive_unchanged() {
        let mesh = Handoffs::mesh(2, 8).unwrap();
        let pool = Pool::new();
        let id = ConnectionId::FIRST_ACCEPTED.in_shard(1);
        let (local, remote) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let flow = Flow::connected(Transport::Tcp, local, remote, id);
        let transmit = Transmit::new(flow, pool.copy(b"SIP/2.0 200 OK"));
        assert!(mesh[0].send(Handoff { shard: 1, input: HandoffInput::Transmit(transmit) }));
        let failure = Failure::new(flow, Cause::Gone, b"INVITE");
        let expected = failure.clone();
        assert!(mesh[0].send(Handoff { shard: 1, input: HandoffInput::Failure(failure) }));
        match mesh[1].take(&pool) {
            Some(HandoffInput::Transmit(transmit)) => {
                assert_eq!((transmit.flow, &transmit.bytes[..]), (flow, &b"SIP/2.0 200 OK"[..]));
            }
            other => panic!("no message to send: {other:?}"),
        }
        match mesh[1].take(&pool) {
            Some(HandoffInput::Failure(failure)) => assert_eq!(failure, expected),
            other => panic!("no failure: {other:?}"),
        }
    }

    #[test]
    fn a_full_queue_and_a_wrong_shard_are_refused() {
        let mesh = Handoffs::mesh(2, 3).unwrap();
        let pool = Pool::new();
        let sent = (0..5).filter(|_| mesh[0].send(handoff(&pool, 1, "BYE"))).count();
        assert_eq!(sent, 3);
        assert!(!mesh[0].send(handoff(&pool, 0, "to itself")));
        assert!(!mesh[0].send(handoff(&pool, 2, "to nobody")));
        assert_eq!(std::iter::from_fn(|| mesh[1].take(&pool)).count(), 3);
        assert!(mesh[0].send(handoff(&pool, 1, "BYE")), "there is room again");
    }
}
