//! Packets that enter and leave a core.

use crate::{Buffer, Flow, Timestamp};

/// A packet that has arrived, in the buffer that the driver filled.
#[derive(Debug)]
pub struct Received {
    /// Time of arrival: the kernel's stamp if there is one, so that time in the socket's queue is
    /// part of the sojourn.
    pub arrived: Timestamp,
    /// Flow on which it came.
    pub flow: Flow,
    /// Its bytes.
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
    /// Source and destination.
    pub flow: Flow,
    /// Its bytes.
    pub bytes: Buffer,
    /// Rules for sending it together with others.
    pub batching: Batching,
}

impl Transmit {
    /// Creates a packet that is neither padded nor reordered.
    pub fn new(flow: Flow, bytes: Buffer) -> Self {
        Self { flow, bytes, batching: Batching::default() }
    }
}

/// Rules for sending a datagram together with others to its destination: several of one length cost
/// a driver little more than one. A driver may ignore them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batching {
    /// Datagrams with the same number keep their order. Datagrams with different numbers may be
    /// reordered. A datagram with 0 keeps its order with all others.
    pub sequence: u32,
    /// Offset in the bytes at which meaningless spaces may be inserted, or 0 if there is none.
    pub pad_at: u16,
}

/// The reason why a packet could not be delivered. For datagrams it may be forged. For streams the
/// transport itself reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Nothing listens at the port (ICMP port unreachable).
    Refused,
    /// The network or the host is unreachable.
    Unreachable,
    /// The packet is larger than the path MTU (EMSGSIZE, ICMP fragmentation needed).
    TooLarge,
    /// The connection ended, and data sent on it may not have arrived.
    Closed,
    /// The connection that the flow names no longer exists.
    Gone,
    /// A limit is reached: that of the connections, or that of the messages waiting for one.
    Full,
    /// Any other error of the kernel.
    Other,
}

/// Maximum length of the quote in a [`Failure`], in bytes: an ICMP error has 576 bytes over IPv4
/// (RFC 1812 §4.3.2.3), which include the headers before the quoted payload.
pub const QUOTE_MAX: usize = 576;

/// A failed delivery, as far as the transport could tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The flow on which the delivery failed.
    pub flow: Flow,
    /// Reason.
    pub cause: Cause,
    /// Beginning of the lost datagram, as the report quotes it: at most [`QUOTE_MAX`] bytes, and
    /// none if nothing is quoted. It may be forged.
    pub quote: Box<[u8]>,
}

impl Failure {
    /// Creates the failure of a datagram with these bytes, quoting their beginning.
    pub fn new(flow: Flow, cause: Cause, bytes: &[u8]) -> Self {
        Self { flow, cause, quote: bytes[..bytes.len().min(QUOTE_MAX)].into() }
    }
}
