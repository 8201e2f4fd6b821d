//! Packets that enter and leave a core.

use crate::{Buffer, Flow, Timestamp, unit_enum};

/// A packet that has arrived, in the buffer that the driver filled.
#[derive(Debug)]
pub struct Received {
    /// The time at which the packet arrived, as the kernel recorded it. So the measured delay of
    /// the packet includes the wait in the socket's queue. If the kernel recorded no time, this is
    /// the time at which the driver read the packet.
    pub arrived: Timestamp,
    /// The flow on which the packet came.
    pub flow: Flow,
    /// The bytes of the packet.
    pub bytes: Buffer,
    /// Number of times that one shard has handed the packet off to another.
    pub handoffs: u8,
}

impl Received {
    /// Creates a packet that no shard has handed off yet.
    pub fn new(arrived: Timestamp, flow: Flow, bytes: Buffer) -> Self {
        Self { arrived, flow, bytes, handoffs: 0 }
    }
}

/// A packet to send: a datagram, or one whole message over a stream.
#[derive(Debug)]
pub struct Transmit {
    /// The source and the destination of the packet.
    pub flow: Flow,
    /// The bytes of the packet.
    pub bytes: Buffer,
    /// Rules for sending the packet in a batch with others.
    pub batching: Batching,
    /// True if the packet is a request that begins new work, such as an INVITE for a new call, and
    /// the core can still send it to another peer or reject it. If the peer of its connection reads
    /// too slowly, such a request fails at once and does not wait.
    pub is_new_work: bool,
    /// True if the packet is a request to a peer that is neither a back end nor a trusted source.
    /// If such a peer has opened a connection from the address to which the packet goes, the packet
    /// leaves on this connection. The transport opens only a limited number of connections to such
    /// peers.
    pub is_to_stranger: bool,
    /// True if the driver may send the packet on another connection to the same peer when the
    /// connection of its flow no longer exists.
    pub may_reconnect: bool,
}

impl Transmit {
    /// Creates a packet that the driver must neither pad nor reorder. The packet is not new work,
    /// and not a request to a stranger. If its flow names a connection, the packet leaves only on
    /// that connection.
    pub fn new(flow: Flow, bytes: Buffer) -> Self {
        let (batching, no) = (Batching::default(), false);
        Self { flow, bytes, batching, is_new_work: no, is_to_stranger: no, may_reconnect: no }
    }
}

/// Rules by which a driver may send a datagram in a batch with others to the same destination. A
/// batch of datagrams of equal length (GSO) costs a driver little more than one datagram. A driver
/// may ignore the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batching {
    /// A number that restricts the order of sending. The driver keeps the order of datagrams with
    /// the same number, and may change the order of datagrams with different numbers. A datagram
    /// with 0 keeps its order with all others.
    pub sequence: u32,
    /// Offset in the datagram at which the driver may insert spaces, to give the datagram the
    /// length of the others in its batch. The spaces do not change the meaning of the message. With
    /// 0, the driver must not insert any.
    pub pad_at: u16,
}

unit_enum! {
    /// The reason why a packet could not be delivered. For a datagram, the reason may be forged,
    /// because it may come from an ICMP message. For a message on a stream, the local transport
    /// itself reports it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Cause {
        /// Nothing listens at the destination port (ICMP port unreachable, or a refused
        /// connection).
        Refused,
        /// The network or the host is unreachable.
        Unreachable,
        /// The packet is larger than the path MTU (EMSGSIZE, ICMP fragmentation needed).
        TooLarge,
        /// The connection ended, and data sent on it may not have arrived.
        Closed,
        /// The connection that the flow of the packet names no longer exists.
        Gone,
        /// A limit is reached, for example on the number of connections, or on the messages that
        /// wait for a connection or for another shard.
        Full,
        /// The packet begins [new work](Transmit::is_new_work), and the peer of its connection
        /// reads too slowly.
        BackedUp,
        /// Any other reason, such as another error of the kernel.
        Other,
    }
}

/// Maximum number of bytes of a lost datagram that a [`Failure`] quotes. An ICMP error over IPv4
/// has at most 576 bytes (RFC 1812 §4.3.2.3), including the headers before the quoted payload.
pub const QUOTE_MAX: usize = 576;

/// A report that a packet could not be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The flow on which the delivery failed.
    pub flow: Flow,
    /// The reason why the delivery failed.
    pub cause: Cause,
    /// The beginning of the lost message, or empty if it is not known. For a datagram, it has at
    /// most [`QUOTE_MAX`] bytes and may be forged. For a message that was not sent on a stream, it
    /// is the whole message.
    pub quote: Box<[u8]>,
}

impl Failure {
    /// Creates the failure of a datagram, and quotes at most the first [`QUOTE_MAX`] of its
    /// `bytes`.
    pub fn new(flow: Flow, cause: Cause, bytes: &[u8]) -> Self {
        Self { flow, cause, quote: bytes[..bytes.len().min(QUOTE_MAX)].into() }
    }

    /// Creates the failure of a message that could not be sent on its stream. Quotes the whole
    /// message: the core needs its branch, which may come after a long Request-URI.
    pub fn unsent(flow: Flow, cause: Cause, bytes: &[u8]) -> Self {
        Self { flow, cause, quote: bytes.into() }
    }
}
