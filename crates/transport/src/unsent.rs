//! Messages that were not sent, and why.

use tidegate_world::{Cause, CloseCause, Failure, Transmit};

/// A message that was not sent.
///
/// RFC 3261 §18.4: "If the transport user asks for a request to be sent over a reliable transport,
/// and the result is a connection failure, the transport layer SHOULD inform the transport user of
/// a failure in sending."
#[derive(Debug)]
pub struct Unsent {
    /// The message, with the flow for which it was given.
    pub transmit: Transmit,
    /// Why.
    pub why: WhyUnsent,
}

/// A reason for which a message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyUnsent {
    /// The flow names a connection that is no more. RFC 3261 §18.2.2: "If that connection is no
    /// longer open, the server SHOULD open a connection to the IP address in the "received"
    /// parameter", which is to send it again on a flow that names none.
    Gone,
    /// There are as many connections as may be.
    TooMany,
    /// There is no room where it would wait.
    NoRoom,
    /// The connection failed or was closed while it waited.
    Closed(CloseCause),
}

impl Unsent {
    /// Returns what its sender is told.
    pub fn failure(&self) -> Failure {
        let cause = match self.why {
            WhyUnsent::Closed(cause) => cause_of(cause),
            WhyUnsent::Gone => Cause::Gone,
            WhyUnsent::TooMany | WhyUnsent::NoRoom => Cause::Full,
        };
        Failure::new(self.transmit.flow, cause, &self.transmit.bytes)
    }
}

/// Returns what is told of a connection that has ended.
pub(crate) fn cause_of(cause: CloseCause) -> Cause {
    match cause {
        CloseCause::Refused => Cause::Refused,
        CloseCause::Unreachable | CloseCause::TimedOut => Cause::Unreachable,
        _ => Cause::Closed,
    }
}
