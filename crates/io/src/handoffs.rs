//! Messages handed off from shard to shard.

use std::io;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use tidegate_world::{Flow, Handoff, Pool, Received, Timestamp};

use crate::Waker;

/// One shard's end of the queues between all shards of a process.
///
/// A shard's buffers belong to its thread, so a handoff copies the message twice. Only stateful
/// messages that arrived at the wrong shard are handed off.
#[derive(Debug)]
pub struct Handoffs {
    shard: usize,
    outgoing: Vec<(Sender<Parcel>, Waker)>,
    incoming: Receiver<Parcel>,
    waker: Waker,
}

/// A [`Received`] without the buffer of its shard.
#[derive(Debug)]
struct Parcel {
    arrived: Timestamp,
    flow: Flow,
    handoffs: u8,
    bytes: Box<[u8]>,
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

    /// Hands a message to its shard, and wakes that shard. Returns `false` if the queue is full, or
    /// if there is no such other shard.
    #[must_use]
    pub fn send(&self, handoff: Handoff) -> bool {
        let Handoff { shard, received } = handoff;
        let shard = usize::from(shard);
        let Some((sender, waker)) = self.outgoing.get(shard).filter(|_| shard != self.shard) else {
            return false;
        };
        // Checked first, so that a full queue costs no copy.
        if sender.is_full() {
            return false;
        }
        let Received { arrived, flow, bytes, handoffs } = received;
        let parcel =
            Parcel { arrived, flow, handoffs: handoffs.saturating_add(1), bytes: (*bytes).into() };
        match sender.try_send(parcel) {
            Ok(()) => {
                waker.wake();
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Takes over the next message from another shard, into a buffer of `pool`.
    #[must_use]
    pub fn take(&self, pool: &Pool) -> Option<Received> {
        let Parcel { arrived, flow, handoffs, bytes } = self.incoming.try_recv().ok()?;
        Some(Received { arrived, flow, bytes: pool.copy(&bytes), handoffs })
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
    use super::*;

    fn handoff(pool: &Pool, shard: u16, text: &str) -> Handoff {
        let flow = Flow::udp("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let received = Received::new(Timestamp::from_nanos(7), flow, pool.copy(text.as_bytes()));
        Handoff { shard, received }
    }

    #[test]
    fn a_message_arrives_at_its_shard_unchanged() {
        let mesh = Handoffs::mesh(3, 8).unwrap();
        let (here, there) = (Pool::new(), Pool::new());
        assert!(mesh[0].send(handoff(&here, 2, "BYE")));
        assert!(mesh[1].send(handoff(&here, 2, "ACK")));
        assert!(mesh[0].take(&there).is_none() && mesh[1].take(&there).is_none());
        for text in ["BYE", "ACK"] {
            let received = mesh[2].take(&there).unwrap();
            assert_eq!(&received.bytes[..], text.as_bytes());
            assert_eq!((received.arrived, received.handoffs), (Timestamp::from_nanos(7), 1));
        }
        assert!(mesh[2].take(&there).is_none());
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
