//! The server transaction of a request other than INVITE: RFC 3261 §17.2.2, figure 8, restricted to
//! the responses that RFC 4320 §4 allows.

use tidegate_world::Timestamp;

use crate::{Dispatch, Firing, Repetition, Timing};

/// The server transaction of a request that is neither INVITE nor ACK.
///
/// If the transport cannot send a response, the state does not change. RFC 6026 §8.8: "the server
/// transaction SHOULD inform the TU that a failure has occurred, and MUST remain in the current
/// state."
///
/// The transaction user decides when to send a 100. RFC 4320 §4.1 forbids a 100 "over any
/// unreliable transport, such as UDP, before the amount of time it takes a client transaction's
/// Timer E to be reset to T2".
///
/// A letter on an arrow names the timer that fires.
///
/// ```text
///  Trying ──100──► Proceeding ──200-699──► Completed ──J──► Terminated
///     └──200-699 as from Proceeding
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherServer {
    /// The request has come.
    Trying,
    /// A provisional response was sent.
    Proceeding,
    /// A final response was sent.
    Completed {
        /// Time at which Timer J fires.
        until: Timestamp,
    },
    /// The transaction has ended.
    Terminated,
}

impl OtherServer {
    /// Starts the transaction of a request that arrives now.
    pub fn start() -> Self {
        Self::Trying
    }

    /// Handles a retransmission of the request.
    pub fn on_repeated(self) -> Repetition {
        match self {
            // RFC 3261 §17.2.2: "Once in the "Trying" state, any further request retransmissions
            // are discarded."
            Self::Trying | Self::Terminated => Repetition::Absorb,
            // RFC 3261 §17.2.2: "If a retransmission of the request is received while in the
            // "Proceeding" state, the most recently sent provisional response MUST be passed to the
            // transport layer for retransmission." "While in the "Completed" state, the server
            // transaction MUST pass the final response to the transport layer for retransmission
            // whenever a retransmission of the request is received."
            Self::Proceeding | Self::Completed { .. } => Repetition::Resend,
        }
    }

    /// Handles a response with this status from the transaction user.
    pub fn on_sending(self, now: Timestamp, timing: &Timing, status: u16) -> (Self, Dispatch) {
        match self {
            // RFC 3261 §17.2.2: "While in the "Trying" state, if the TU passes a provisional
            // response to the server transaction, the server transaction MUST enter the
            // "Proceeding" state. The response MUST be passed to the transport layer for
            // transmission."
            // RFC 3261 §17.2.2: "Any further provisional responses that are received from the TU
            // while in the "Proceeding" state MUST be passed to the transport layer for
            // transmission."
            Self::Trying | Self::Proceeding if status == 100 => (Self::Proceeding, Dispatch::Send),
            // RFC 4320 §4.1: "An SIP element MUST NOT send any provisional response with a
            // Status-Code other than 100 to a non-INVITE request."
            Self::Trying | Self::Proceeding if status < 200 => (self, Dispatch::Discard),
            // RFC 3261 §17.2.2: "If the TU passes a final response (status codes 200-699) to the
            // server while in the "Proceeding" state, the transaction MUST enter the "Completed"
            // state, and the response MUST be passed to the transport layer for transmission."
            // "When the server transaction enters the "Completed" state, it MUST set Timer J to
            // fire in 64*T1 seconds for unreliable transports, and zero seconds for reliable
            // transports."
            Self::Trying | Self::Proceeding => {
                let linger = timing.linger(timing.patience());
                let next = if linger.is_zero() {
                    Self::Terminated
                } else {
                    Self::Completed { until: now + linger }
                };
                // RFC 4320 §4.2: "A transaction-stateful SIP element MUST NOT send a response with
                // Status-Code of 408 to a non-INVITE request." The 408 nevertheless completes the
                // transaction, so that a retransmission does not start another one.
                let dispatch = if status == 408 { Dispatch::Discard } else { Dispatch::Send };
                (next, dispatch)
            }
            // RFC 3261 §17.2.2: "Any other final responses passed by the TU to the server
            // transaction MUST be discarded while in the "Completed" state."
            Self::Completed { .. } | Self::Terminated => (self, Dispatch::Discard),
        }
    }

    /// Fires the timers that have expired by `now`.
    pub fn on_timer(self, now: Timestamp) -> (Self, Firing) {
        match self {
            // RFC 3261 §17.2.2: "The server transaction remains in this state until Timer J
            // fires, at which point it MUST transition to the "Terminated" state."
            Self::Completed { until } if until <= now => (Self::Terminated, Firing::Silent),
            _ => (self, Firing::Silent),
        }
    }

    /// Returns the time at which [`on_timer`](Self::on_timer) is due, or `None` if no timer runs.
    pub fn deadline(&self) -> Option<Timestamp> {
        match *self {
            Self::Completed { until } => Some(until),
            Self::Trying | Self::Proceeding | Self::Terminated => None,
        }
    }

    /// Returns whether a final response may still be sent.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Trying | Self::Proceeding)
    }
}
