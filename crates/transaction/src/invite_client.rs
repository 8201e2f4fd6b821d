//! The client transaction of an INVITE: RFC 3261 §17.1.1, figure 5, with the Accepted state of
//! RFC 6026 §7.2.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{Arrival, Backoff, Firing, Timing};

/// RFC 6026 §8.4: Timer D has "a value of at least 32 seconds for unreliable transports".
const TIMER_D: Duration = Duration::from_secs(32);

/// The client transaction of an INVITE.
///
/// A letter on an arrow names the timer that fires.
///
/// ```text
///  Calling ──1xx──► Proceeding ──2xx──► Accepted ──M──► Terminated
///     │  │               └──300-699──► Completed ──D──►     ▲
///     │  └──2xx, 300-699 as from Proceeding                 │
///     └──B, transport error─────────────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InviteClient {
    /// The INVITE was sent, and no response has come.
    ///
    /// RFC 3261 §17.1.1.2: "The initial state, "calling", MUST be entered when the TU initiates a
    /// new client transaction with an INVITE request."
    Calling {
        /// The schedule of Timer A, or `None` over a reliable transport.
        resend: Option<Backoff>,
        /// Time at which Timer B fires.
        give_up: Timestamp,
    },
    /// A provisional response has come. This state has no timer. If the transaction user wants a
    /// limit, it sets its own timer (a proxy uses Timer C, RFC 3261 §16.6 item 11).
    Proceeding,
    /// A final response other than a 2xx has come.
    Completed {
        /// Time at which Timer D fires.
        until: Timestamp,
    },
    /// A 2xx has come, and more may follow.
    Accepted {
        /// Time at which Timer M fires.
        until: Timestamp,
    },
    /// The transaction has ended.
    Terminated,
}

impl InviteClient {
    /// Starts the transaction of an INVITE that is sent now.
    pub fn start(now: Timestamp, timing: &Timing) -> Self {
        // RFC 3261 §17.1.1.2: "If an unreliable transport is being used, the client transaction
        // MUST start timer A with a value of T1. [...] For any transport, the client transaction
        // MUST start timer B with a value of 64*T1 seconds".
        Self::Calling { resend: Backoff::start(now, timing), give_up: now + timing.patience() }
    }

    /// Handles a response with this status.
    pub fn on_response(self, now: Timestamp, timing: &Timing, status: u16) -> (Self, Arrival) {
        match (self, status) {
            // RFC 3261 §17.1.1.2: "the provisional response MUST be passed to the TU. Any
            // further provisional responses MUST be passed up to the TU while in the
            // "Proceeding" state."
            // RFC 3261 §17.1.1.2: "In the "Proceeding" state, the client transaction SHOULD NOT
            // retransmit the request any longer."
            (Self::Calling { .. } | Self::Proceeding, ..200) => {
                (Self::Proceeding, Arrival::Deliver)
            }
            // RFC 6026 §8.4: "When a 2xx response is received while in either the "Calling" or
            // "Proceeding" states, the client transaction MUST transition to the "Accepted"
            // state, and Timer M MUST be started with a value of 64*T1. The 2xx response MUST be
            // passed up to the TU."
            // RFC 6026 §7.2: "If a 2xx response is received while the client INVITE state machine
            // is in the "Calling" or "Proceeding" states, it MUST transition to the "Accepted"
            // state, pass the 2xx response to the TU, and set Timer M to 64*T1." "The client
            // transaction MUST NOT generate an ACK to any 2xx response on its own."
            (Self::Calling { .. } | Self::Proceeding, ..300) => {
                (Self::Accepted { until: now + timing.patience() }, Arrival::Deliver)
            }
            // RFC 6026 §8.4: "When in either the "Calling" or "Proceeding" states, reception of
            // a response with status code from 300-699 MUST cause the client transaction to
            // transition to "Completed". The client transaction MUST pass the received response
            // up to the TU, and the client transaction MUST generate an ACK request, even if the
            // transport is reliable". Timer D has "a value of zero seconds for reliable
            // transports".
            // RFC 3261 §17.1.1.2: "When in either the "Calling" or "Proceeding" states, reception
            // of a response with status code from 300-699 MUST cause the client transaction to
            // transition to "Completed"." "The client transaction MUST pass the received response
            // up to the TU, and the client transaction MUST generate an ACK request, even if the
            // transport is reliable (guidelines for constructing the ACK from the response are
            // given in Section 17.1.1.3) and then pass the ACK to the transport layer for
            // transmission." "The client transaction SHOULD start timer D when it enters the
            // "Completed" state, with a value of at least 32 seconds for unreliable transports, and
            // a value of zero seconds for reliable transports."
            // RFC 6026 §8.4: "The client transaction MUST start Timer D when it enters the
            // "Completed" state for any reason, with a value of at least 32 seconds for unreliable
            // transports, and a value of zero seconds for reliable transports."
            (Self::Calling { .. } | Self::Proceeding, _) => {
                let linger = timing.linger(TIMER_D);
                let next = if linger.is_zero() {
                    Self::Terminated
                } else {
                    Self::Completed { until: now + linger }
                };
                (next, Arrival::DeliverAndAcknowledge)
            }
            // RFC 6026 §8.4: "Any retransmissions of a response with status code 300-699 that
            // are received while in the "Completed" state MUST cause the ACK to be re-passed to
            // the transport layer for retransmission, but the newly received response MUST NOT
            // be passed up to the TU."
            // RFC 3261 §17.1.1.2: "Any retransmissions of the final response that are received
            // while in the "Completed" state MUST cause the ACK to be re-passed to the transport
            // layer for retransmission, but the newly received response MUST NOT be passed up to
            // the TU."
            (Self::Completed { .. }, 300..) => (self, Arrival::Acknowledge),
            // RFC 6026 §8.4: "Any 2xx responses that match this client transaction and that are
            // received while in the "Accepted" state MUST be passed up to the TU."
            // RFC 6026 §7.2: "A 2xx response received while in the "Accepted" state MUST be passed
            // to the TU and the machine remains in the "Accepted" state."
            // RFC 6026 §8.4: "The client transaction MUST NOT generate an ACK to the 2xx response."
            (Self::Accepted { .. }, 200..300) => (self, Arrival::Deliver),
            _ => (self, Arrival::Absorb),
        }
    }

    /// Fires the timers that have expired by `now`.
    pub fn on_timer(self, now: Timestamp, timing: &Timing) -> (Self, Firing) {
        match self {
            // RFC 3261 §17.1.1.2: "If the client transaction is still in the "Calling" state
            // when timer B fires, the client transaction SHOULD inform the TU that a timeout has
            // occurred. The client transaction MUST NOT generate an ACK."
            Self::Calling { give_up, .. } if give_up <= now => (Self::Terminated, Firing::TimedOut),
            // RFC 3261 §17.1.1.2: "When timer A fires, the client transaction MUST retransmit the
            // request by passing it to the transport layer, and MUST reset the timer with a value
            // of 2*T1. [...] When timer A fires 2*T1 seconds later, the request MUST be
            // retransmitted again [...]. This process MUST continue so that the request is
            // retransmitted with intervals that double after each transmission. These
            // retransmissions SHOULD only be done while the client transaction is in the "calling"
            // state."
            Self::Calling { resend: Some(resend), give_up } if resend.at() <= now => {
                let resend = Some(resend.double(now, timing, Duration::MAX));
                (Self::Calling { resend, give_up }, Firing::Resend)
            }
            // RFC 6026 §8.4: "If Timer D fires while the client transaction is in the
            // "Completed" state, the client transaction MUST move to the "Terminated" state."
            // "If Timer M fires while the client transaction is in the "Accepted" state, the
            // client transaction MUST move to the "Terminated" state."
            // RFC 6026 §7.2: "When Timer M fires and the state machine is in the "Accepted" state,
            // the machine MUST transition to the "Terminated" state."
            // RFC 3261 §17.1.1.2: "If timer D fires while the client transaction is in the
            // "Completed" state, the client transaction MUST move to the terminated state."
            Self::Completed { until } | Self::Accepted { until } if until <= now => {
                (Self::Terminated, Firing::Silent)
            }
            _ => (self, Firing::Silent),
        }
    }

    /// Returns the time at which [`on_timer`](Self::on_timer) is due, or `None` if no timer runs.
    pub fn deadline(&self) -> Option<Timestamp> {
        match *self {
            Self::Calling { resend, give_up } => {
                Some(resend.map_or(give_up, |resend| resend.at().min(give_up)))
            }
            Self::Completed { until } | Self::Accepted { until } => Some(until),
            Self::Proceeding | Self::Terminated => None,
        }
    }

    /// Returns whether a final response is still expected.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Calling { .. } | Self::Proceeding)
    }
}
