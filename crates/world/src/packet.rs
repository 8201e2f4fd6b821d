//! Packets as they enter and leave a core.

use crate::{Buffer, Flow, Timestamp};

/// A packet that has arrived, with the buffer the driver filled.
#[derive(Debug)]
pub struct Received {
    /// When it arrived: the kernel's stamp where there is one, so that time spent
    /// in the socket's queue is part of the sojourn.
    pub arrived: Timestamp,
    /// Where it came from.
    pub flow: Flow,
    /// Its bytes.
    pub bytes: Buffer,
    /// How many times it was handed from one shard to another.
    pub handoffs: u8,
}

impl Received {
    /// A packet that came straight from the outside.
    pub fn new(arrived: Timestamp, flow: Flow, bytes: Buffer) -> Self {
        Self { arrived, flow, bytes, handoffs: 0 }
    }
}

/// A packet to be sent: over a stream, one whole message.
#[derive(Debug)]
pub struct Transmit {
    /// Where from and where to.
    pub flow: Flow,
    /// Its bytes.
    pub bytes: Buffer,
    /// How it may leave together with others.
    pub batching: Batching,
}

impl Transmit {
    /// A packet that stays as it is, and in its place among others.
    pub fn new(flow: Flow, bytes: Buffer) -> Self {
        Self { flow, bytes, batching: Batching::default() }
    }
}

/// How a datagram may leave together with others to its destination: several of one length cost a
/// driver little more than one. A driver may disregard it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batching {
    /// Datagrams of one sequence keep their order, those of different sequences need not. 0 for a
    /// datagram that keeps its order with all others.
    pub sequence: u32,
    /// The offset in its bytes where spaces may be inserted that mean nothing; 0 if there is none.
    pub pad_at: u16,
}

/// Why a packet could not be delivered. Of datagrams anybody may say so; what is said of a stream
/// is the transport's own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Nobody listens at the port (ICMP port unreachable).
    Refused,
    /// Network or host unreachable.
    Unreachable,
    /// Larger than the path carries (EMSGSIZE, ICMP fragmentation needed).
    TooLarge,
    /// The connection ended: what was sent on it may not have arrived.
    Closed,
    /// The connection that the flow names is no more.
    Gone,
    /// There is no room for it: too much waits for the connection, or there are too many of them.
    Full,
    /// Any other error the kernel reported.
    Other,
}

/// Bytes of the quote in a [`Failure`] at the most: an ICMP error has 576 bytes over IPv4
/// (RFC 1812 §4.3.2.3), the headers before the quoted payload among them.
pub const QUOTE_MAX: usize = 576;

/// A delivery that failed, as far as the transport could tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The flow that failed.
    pub flow: Flow,
    /// Why.
    pub cause: Cause,
    /// The beginning of the datagram that was lost, as the report quotes it, at most
    /// [`QUOTE_MAX`] bytes; empty if nothing is quoted. Anybody may have written it.
    pub quote: Box<[u8]>,
}

impl Failure {
    /// A failure of a datagram with these bytes, of which the beginning is quoted.
    pub fn new(flow: Flow, cause: Cause, bytes: &[u8]) -> Self {
        Self { flow, cause, quote: bytes[..bytes.len().min(QUOTE_MAX)].into() }
    }
}
