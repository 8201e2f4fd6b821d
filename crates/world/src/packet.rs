//! Packets that enter and leave a core.

use crate::{Buffer, Flow, Timestamp};

/// A packet that has arrived, in the buffer that the driver filled.
#[derive(Debug)]
pub struct Received {
    /// Time of arrival: the time that the kernel recorded, if it did, so that the sojourn includes
    /// the wait in the socket's queue.
    pub arrived: Timestamp,
    /// The flow on which the packet came.
    pub flow: Flow,
    /// The bytes of the packet.
    pub bytes: Buffer,
    /// Number of handoffs from shard to shard so far.
    pub handoffs: u8,
}

impl Received {
    /// Creates a packet that came directly from outside.
    pub fn new(arrived: Timestamp, flow: Flow, bytes: Buffer) -> Self {
        Self { arrived, flow, bytes, handoffs: 0 }
    }
}

/// A packet to send. Over a stream it is one whole message.
#[derive(Debug)]
pub struct Transmit {
    /// The source and the destination of the packet.
    pub flow: Flow,
    /// The bytes of the packet.
    pub bytes: Buffer,
    /// Rules for sending the packet together with others.
    pub batching: Batching,
    /// True if the packet is a request that begins new work, and its sender can send it elsewhere or
    /// reject it. Such a request does not wait for a peer that reads its connection too slowly.
    pub is_new_work: bool,
}

impl Transmit {
    /// Creates a packet that is neither padded nor reordered, and that does not begin new work.
    pub fn new(flow: Flow, bytes: Buffer) -> Self {
        Self { flow, bytes, batching: Batching::default(), is_new_work: false }
    }
}

/// Rules for sending a datagram together with others to its destination. Several datagrams of one
/// length cost a driver little more than one datagram. A driver may ignore the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batching {
    /// A number for the order. The driver keeps the order of datagrams with the same number, and
    /// may change the order of datagrams with different numbers. A datagram with 0 keeps its order
    /// with all others.
    pub sequence: u32,
    /// Offset in the bytes at which meaningless spaces may be inserted, or 0 if there is none.
    pub pad_at: u16,
}

/// The reason why a packet could not be delivered. For datagrams it may be forged. For streams the
/// transport itself reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Nothing listens at the port (ICMP port unreachable, or a refused connection).
    Refused,
    /// The network or the host is unreachable.
    Unreachable,
    /// The packet is larger than the path MTU (EMSGSIZE, ICMP fragmentation needed).
    TooLarge,
    /// The connection ended, and data sent on it may not have arrived.
    Closed,
    /// The connection that the flow names no longer exists.
    Gone,
    /// A limit is reached, for example on the number of connections, or on the messages that wait
    /// for a connection or for another shard.
    Full,
    /// The packet begins [new work](Transmit::is_new_work), and the peer of its connection reads too
    /// slowly.
    BackedUp,
    /// Any other reason, such as another error of the kernel.
    Other,
}

/// Maximum length of the quote in a [`Failure`], in bytes: an ICMP error has at most 576 bytes over
/// IPv4 (RFC 1812 §4.3.2.3), which include the headers before the quoted payload.
pub const QUOTE_MAX: usize = 576;

/// A failed delivery, as far as the transport could tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The flow on which the delivery failed.
    pub flow: Flow,
    /// The reason why the delivery failed.
    pub cause: Cause,
    /// Beginning of the lost message. For a datagram, the part that the report quotes: at most
    /// [`QUOTE_MAX`] bytes, which may be forged. A message that was not sent on a stream is quoted
    /// whole. Empty if nothing is quoted.
    pub quote: Box<[u8]>,
}

impl Failure {
    /// Creates the failure of a datagram with these bytes. Quotes the first [`QUOTE_MAX`] of them.
    pub fn new(flow: Flow, cause: Cause, bytes: &[u8]) -> Self {
        Self { flow, cause, quote: bytes[..bytes.len().min(QUOTE_MAX)].into() }
    }

    /// Creates the failure of a message that could not be sent on its stream. Quotes the whole
    /// message, because its branch may come after a long Request-URI.
    pub fn unsent(flow: Flow, cause: Cause, bytes: &[u8]) -> Self {
        Self { flow, cause, quote: bytes.into() }
    }
}
