//! Messages that could not be sent, and the reasons.

use tidegate_world::{Cause, CloseCause, Failure, Transmit};

/// A message that could not be sent, and the reason.
///
/// RFC 3261 §18.4: "If the transport user asks for a request to be sent over a reliable transport,
/// and the result is a connection failure, the transport layer SHOULD inform the transport user of
/// a failure in sending."
#[derive(Debug)]
pub struct Unsent {
    /// The message, with its original flow.
    pub transmit: Transmit,
    /// The reason why the message was not sent.
    pub why: WhyUnsent,
}

/// The reason why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyUnsent {
    /// The flow of the message has the id of a connection that has ended, is being closed, or leads
    /// to another host. Or the transport is WebSocket, and there is no connection to the peer. RFC
    /// 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a connection to
    /// the IP address in the "received" parameter". To open another connection, send the message
    /// again on a flow that names no connection.
    Gone,
    /// The limit on the number of connections is reached.
    TooMany,
    /// There is no room for the message in the queue of the connection, or in the memory for all
    /// waiting messages.
    NoRoom,
    /// The message is a request that begins new work, and the peer of the connection reads too
    /// slowly.
    BackedUp,
    /// The connection failed or was closed while the message waited.
    Closed(CloseCause),
}

impl Unsent {
    /// Returns the failure to report to the core for this message.
    pub fn failure(&self) -> Failure {
        let cause = match self.why {
            WhyUnsent::Closed(cause) => cause_of(cause),
            WhyUnsent::Gone => Cause::Gone,
            WhyUnsent::TooMany | WhyUnsent::NoRoom => Cause::Full,
            WhyUnsent::BackedUp => Cause::BackedUp,
        };
        Failure::unsent(self.transmit.flow, cause, &self.transmit.bytes)
    }
}

/// Returns the cause to report to the core when a connection ends.
pub(crate) fn cause_of(cause: CloseCause) -> Cause {
    match cause {
        CloseCause::Refused => Cause::Refused,
        CloseCause::Unreachable | CloseCause::TimedOut => Cause::Unreachable,
        _ => Cause::Closed,
    }
}
