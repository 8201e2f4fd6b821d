//! Messages and failures handed off from shard to shard.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crossbeam_channel::{Receiver, Sender, bounded};
use tidegate_world::{
    Cause, Failure, Flow, Handoff, HandoffInput, Pool, Received, ShardIndex, Timestamp, Transmit,
};

use crate::Waker;
use crate::stop::ShutdownBarrier;

/// Maximum number of bytes of the inputs that wait for one shard.
const BYTES_MAX: usize = 16 << 20;

/// One shard's end of the queues between all shards of a process.
///
/// A shard's buffers belong to its thread, so a handoff copies the message twice. Three kinds of
/// input are handed off: messages that belong to a call or transaction of another shard, messages
/// that leave on a connection of another shard, and failed deliveries of messages that another
/// shard has sent.
#[derive(Debug)]
pub struct Handoffs {
    shard: usize,
    outgoing: Vec<Outgoing>,
    incoming: Receiver<Parcel>,
    /// Number of bytes of the inputs that wait for this shard.
    bytes: Arc<AtomicUsize>,
    waker: Waker,
}

/// The sending end of the queue towards a shard.
#[derive(Clone, Debug)]
struct Outgoing {
    sender: Sender<Parcel>,
    bytes: Arc<AtomicUsize>,
    waker: Waker,
}

/// The input of a [`Handoff`], with its bytes copied out of the buffer of the sending shard.
#[derive(Debug)]
struct Parcel {
    kind: Kind,
    flow: Flow,
    bytes: Box<[u8]>,
    /// Keeps all shards running until the receiving shard has handled the input.
    hold: Option<ShutdownBarrier>,
}

/// The kind of an input, with the values that only this kind has.
#[derive(Debug)]
enum Kind {
    Received { arrived: Timestamp, handoffs: u8 },
    Transmit { is_to_stranger: bool, may_reconnect: bool },
    Failure(Cause),
}

impl Parcel {
    /// Copies an input. The sending shard keeps the original, because the queue may be full.
    fn pack(input: &HandoffInput, hold: Option<ShutdownBarrier>) -> Self {
        match input {
            HandoffInput::Received(received) => {
                let handoffs = received.handoffs.saturating_add(1);
                let kind = Kind::Received { arrived: received.arrived, handoffs };
                Self { kind, flow: received.flow, bytes: (*received.bytes).into(), hold }
            }
            HandoffInput::Transmit(transmit) => {
                let Transmit { flow, is_to_stranger, may_reconnect, .. } = *transmit;
                let kind = Kind::Transmit { is_to_stranger, may_reconnect };
                Self { kind, flow, bytes: (*transmit.bytes).into(), hold }
            }
            HandoffInput::Failure(failure) => {
                let (kind, bytes) = (Kind::Failure(failure.cause), failure.quote.clone());
                Self { kind, flow: failure.flow, bytes, hold }
            }
        }
    }

    fn unpack(self, pool: &Pool) -> (HandoffInput, Option<ShutdownBarrier>) {
        let Self { kind, flow, bytes, hold } = self;
        let input = match kind {
            Kind::Received { arrived, handoffs } => {
                let bytes = pool.copy(&bytes);
                HandoffInput::Received(Received { arrived, flow, bytes, handoffs })
            }
            Kind::Transmit { is_to_stranger, may_reconnect } => {
                let transmit = Transmit::new(flow, pool.copy(&bytes));
                HandoffInput::Transmit(Transmit { is_to_stranger, may_reconnect, ..transmit })
            }
            Kind::Failure(cause) => HandoffInput::Failure(Failure { flow, cause, quote: bytes }),
        };
        (input, hold)
    }
}

impl Handoffs {
    /// Creates the ends for `shards` shards. The queue towards each shard has room for `capacity`
    /// messages.
    ///
    /// # Errors
    /// Returns the errors of `eventfd(2)`.
    pub fn mesh(shards: u16, capacity: usize) -> io::Result<Vec<Self>> {
        let mut outgoing = Vec::new();
        let mut incoming = Vec::new();
        for _ in 0..shards {
            let (sender, receiver) = bounded(capacity);
            let (bytes, waker) = (Arc::default(), Waker::new()?);
            outgoing.push(Outgoing { sender, bytes, waker });
            incoming.push(receiver);
        }
        let end = |(shard, incoming)| {
            let Outgoing { bytes, waker, .. } = Clone::clone(&outgoing[shard]);
            Self { shard, outgoing: outgoing.clone(), incoming, bytes, waker }
        };
        Ok(incoming.into_iter().enumerate().map(end).collect())
    }

    /// Creates the end for the only shard of a process.
    ///
    /// # Errors
    /// Returns the errors of `eventfd(2)`.
    pub fn alone() -> io::Result<Self> {
        let mut mesh = Self::mesh(1, 1)?;
        Ok(mesh.remove(0))
    }

    /// Hands an input to another shard, and wakes that shard.
    ///
    /// # Errors
    /// Returns the input if the queue has no room, if the other shard has ended, or if there is no
    /// other shard with this index.
    pub fn send(&self, handoff: Handoff) -> Result<(), HandoffInput> {
        self.send_held(handoff, None)
    }

    /// Hands an input to another shard, as [`send`](Self::send) does. `hold` is a membership in the
    /// shutdown barrier, which keeps all shards running until the input is handled.
    pub(crate) fn send_held(
        &self,
        handoff: Handoff,
        hold: Option<ShutdownBarrier>,
    ) -> Result<(), HandoffInput> {
        let Handoff { shard, input } = handoff;
        let to = self.outgoing.get(usize::from(shard));
        // The check for a full queue comes first, because it saves the copy of the message.
        let Some(to) = to.filter(|to| usize::from(shard) != self.shard && !to.sender.is_full())
        else {
            return Err(input);
        };
        let length = bytes_of(&input).len();
        if to.bytes.fetch_add(length, Relaxed) + length > BYTES_MAX {
            to.bytes.fetch_sub(length, Relaxed);
            return Err(input);
        }
        // Another shard may have taken the last place meanwhile, or the shard has ended.
        if to.sender.try_send(Parcel::pack(&input, hold)).is_err() {
            to.bytes.fetch_sub(length, Relaxed);
            return Err(input);
        }
        to.waker.wake();
        Ok(())
    }

    /// Takes the next input from another shard, with the membership in the shutdown barrier that
    /// keeps all shards running until this shard has handled the input. A message is copied into a
    /// buffer of `pool`.
    pub(crate) fn take(&self, pool: &Pool) -> Option<(HandoffInput, Option<ShutdownBarrier>)> {
        let parcel = self.incoming.try_recv().ok()?;
        self.bytes.fetch_sub(parcel.bytes.len(), Relaxed);
        Some(parcel.unpack(pool))
    }

    pub(crate) fn shard(&self) -> ShardIndex {
        ShardIndex::new(self.shard as u16, self.outgoing.len() as u16)
    }

    /// Returns whether no input waits for this shard.
    pub(crate) fn is_empty(&self) -> bool {
        self.incoming.is_empty()
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}

/// Returns the bytes of an input that a queue has to hold.
fn bytes_of(input: &HandoffInput) -> &[u8] {
    match input {
        HandoffInput::Received(received) => &received.bytes,
        HandoffInput::Transmit(transmit) => &transmit.bytes,
        HandoffInput::Failure(failure) => &failure.quote,
    }
}

/// Drops the waiting inputs, so that inputs for a shard that has ended keep no other shard running.
impl Drop for Handoffs {
    fn drop(&mut self) {
        while self.incoming.try_recv().is_ok() {}
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

    fn input(mesh: &Handoffs, pool: &Pool) -> HandoffInput {
        mesh.take(pool).expect("something was handed off").0
    }

    fn take(mesh: &Handoffs, pool: &Pool) -> Received {
        match input(mesh, pool) {
            HandoffInput::Received(received) => received,
            other => panic!("no message: {other:?}"),
        }
    }

    #[test]
    fn a_message_arrives_at_its_shard_unchanged() {
        let mesh = Handoffs::mesh(3, 8).unwrap();
        let (here, there) = (Pool::new(), Pool::new());
        assert!(mesh[0].send(handoff(&here, 2, "BYE")).is_ok());
        assert!(mesh[1].send(handoff(&here, 2, "ACK")).is_ok());
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
        let id = ConnectionId::first_accepted(ShardIndex::new(1, 2));
        let (local, remote) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let flow = Flow::connected(Transport::Tcp, local, remote, id);
        let transmit = Transmit::new(flow, pool.copy(b"BYE"));
        let transmit = Transmit { is_to_stranger: true, may_reconnect: true, ..transmit };
        assert!(
            mesh[0].send(Handoff { shard: 1, input: HandoffInput::Transmit(transmit) }).is_ok()
        );
        let failure = Failure::new(flow, Cause::Gone, b"INVITE");
        let expected = failure.clone();
        assert!(mesh[0].send(Handoff { shard: 1, input: HandoffInput::Failure(failure) }).is_ok());
        match input(&mesh[1], &pool) {
            HandoffInput::Transmit(transmit) => {
                assert_eq!((transmit.flow, &transmit.bytes[..]), (flow, &b"BYE"[..]));
                assert!(transmit.is_to_stranger && transmit.may_reconnect);
            }
            other => panic!("no message to send: {other:?}"),
        }
        match input(&mesh[1], &pool) {
            HandoffInput::Failure(failure) => assert_eq!(failure, expected),
            other => panic!("no failure: {other:?}"),
        }
    }

    #[test]
    fn a_full_queue_and_a_wrong_shard_are_refused() {
        let mesh = Handoffs::mesh(2, 3).unwrap();
        let pool = Pool::new();
        let sent = (0..5).filter(|_| mesh[0].send(handoff(&pool, 1, "BYE")).is_ok()).count();
        assert_eq!(sent, 3);
        assert!(mesh[0].send(handoff(&pool, 0, "to itself")).is_err());
        assert!(mesh[0].send(handoff(&pool, 2, "to nobody")).is_err());
        assert_eq!(std::iter::from_fn(|| mesh[1].take(&pool)).count(), 3);
        assert!(mesh[0].send(handoff(&pool, 1, "BYE")).is_ok(), "there is room again");
    }

    /// A peer does not repeat a message over TCP. So a message that cannot be handed off stays at its
    /// shard.
    #[test]
    fn an_input_for_a_shard_that_has_ended_comes_back_unchanged() {
        let mut mesh = Handoffs::mesh(2, 3).unwrap();
        let pool = Pool::new();
        drop(mesh.pop());
        match mesh[0].send(handoff(&pool, 1, "BYE")) {
            Err(HandoffInput::Received(received)) => {
                assert_eq!((&received.bytes[..], received.handoffs), (&b"BYE"[..], 0));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(mesh[0].outgoing[1].bytes.load(Relaxed), 0);
    }

    #[test]
    fn the_bytes_of_a_queue_are_limited() {
        let mesh = Handoffs::mesh(2, 4096).unwrap();
        let pool = Pool::new();
        let large = "x".repeat(60_000);
        let sent = (0..1000).filter(|_| mesh[0].send(handoff(&pool, 1, &large)).is_ok()).count();
        assert_eq!(sent, BYTES_MAX / 60_000);
        assert!(mesh[1].take(&pool).is_some());
        assert!(mesh[0].send(handoff(&pool, 1, &large)).is_ok(), "there is room again");
    }
}
