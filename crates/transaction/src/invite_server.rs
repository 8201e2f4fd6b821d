//! The server transaction of an INVITE: RFC 3261 §17.2.1, figure 7, with the Accepted state of
//! RFC 6026 §7.1.

use tidegate_world::Timestamp;

use crate::{Acknowledgement, Backoff, Dispatch, Firing, Repetition, Timing};

/// The server transaction of an INVITE.
///
/// If the transport cannot send a response, the state does not change. RFC 6026 §7.1: "A server
/// transaction MUST NOT discard transaction state based only on encountering a non-recoverable
/// transport error when sending a response." "Instead, the associated INVITE server transaction
/// state machine MUST remain in its current state. (Timers will eventually cause it to transition
/// to the "Terminated" state)."
///
/// A letter on an arrow names the timer that fires.
///
/// ```text
///  Proceeding ──2xx──► Accepted ──L──────────────────► Terminated
///       └──300-699──► Completed ──ACK──► Confirmed ──I──►  ▲
///                         └──H─────────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InviteServer {
    /// The INVITE has arrived, and no final response has been sent yet.
    Proceeding,
    /// A final response other than a 2xx was sent.
    Completed {
        /// The schedule of Timer G, or `None` over a reliable transport.
        resend: Option<Backoff>,
        /// Time at which Timer H fires.
        give_up: Timestamp,
    },
    /// The final response was acknowledged.
    Confirmed {
        /// Time at which Timer I fires.
        until: Timestamp,
    },
    /// A 2xx was sent, and more may follow.
    Accepted {
        /// Time at which Timer L fires.
        until: Timestamp,
    },
    /// The transaction has ended.
    Terminated,
}

impl InviteServer {
    /// Starts the transaction of an INVITE that arrives now.
    pub fn start() -> Self {
        Self::Proceeding
    }

    /// Handles a retransmission of the INVITE.
    pub fn on_repeated(self) -> Repetition {
        match self {
            // RFC 3261 §17.2.1: "If a request retransmission is received while in the
            // "Proceeding" state, the most recent provisional response that was received from
            // the TU MUST be passed to the transport layer for retransmission."
            // "Furthermore, while in the "Completed" state, if a request retransmission is
            // received, the server SHOULD pass the response to the transport for
            // retransmission."
            Self::Proceeding | Self::Completed { .. } => Repetition::Resend,
            // RFC 6026 §7.1: "While in the "Accepted" state, any retransmissions of the INVITE
            // received will match this transaction state machine and will be absorbed by the
            // machine without changing its state." In Confirmed the client has the response.
            Self::Confirmed { .. } | Self::Accepted { .. } | Self::Terminated => Repetition::Absorb,
        }
    }

    /// Handles a response with this status from the transaction user.
    pub fn on_sending(self, now: Timestamp, timing: &Timing, status: u16) -> (Self, Dispatch) {
        match (self, status) {
            // RFC 3261 §17.2.1: "So long as the server transaction is in the "Proceeding" state,
            // each of these MUST be passed to the transport layer for transmission."
            (Self::Proceeding, ..200) => (self, Dispatch::Send),
            // RFC 6026 §8.5: "If, while in the "Proceeding" state, the TU passes a 2xx response
            // to the server transaction, the server transaction MUST pass this response to the
            // transport layer for transmission. [...] The server transaction MUST then
            // transition to the "Accepted" state." §8.7: "When the INVITE server transaction
            // enters the "Accepted" state, Timer L MUST be set to fire in 64*T1 for all
            // transports."
            // RFC 6026 §7.1: "If the SIP element's TU (Transaction User) issues a 2xx response for
            // this transaction while the state machine is in the "Proceeding" state, the state
            // machine MUST transition to the "Accepted" state and set Timer L to 64*T1, where T1 is
            // the round-trip time estimate defined in Section 17.1.1.1 of [RFC3261]."
            // RFC 3261 §17.2.1: "If, while in the "Proceeding" state, the TU passes a 2xx response
            // to the server transaction, the server transaction MUST pass this response to the
            // transport layer for transmission."
            (Self::Proceeding, ..300) => {
                (Self::Accepted { until: now + timing.patience() }, Dispatch::Send)
            }
            // RFC 3261 §17.2.1: "if the TU passes a response with status code from 300 to 699
            // to the server transaction, the response MUST be passed to the transport layer for
            // transmission, and the state machine MUST enter the "Completed" state. For
            // unreliable transports, timer G is set to fire in T1 seconds [...]. When the
            // "Completed" state is entered, timer H MUST be set to fire in 64*T1 seconds for all
            // transports."
            (Self::Proceeding, _) => {
                let resend = Backoff::start(now, timing);
                (Self::Completed { resend, give_up: now + timing.patience() }, Dispatch::Send)
            }
            // RFC 6026 §8.7: "While in the "Accepted" state, if the TU passes a 2xx response, the
            // server transaction MUST pass the response to the transport layer for
            // transmission."
            // RFC 6026 §7.1: "Any retransmission of the 2xx response passed from the TU to the
            // transaction while in the "Accepted" state MUST be passed to the transport layer for
            // transmission."
            (Self::Accepted { .. }, 200..300) => (self, Dispatch::Send),
            _ => (self, Dispatch::Discard),
        }
    }

    /// Handles an ACK.
    pub fn on_ack(self, now: Timestamp, timing: &Timing) -> (Self, Acknowledgement) {
        match self {
            // RFC 3261 §17.2.1: "If an ACK is received while the server transaction is in the
            // "Completed" state, the server transaction MUST transition to the "Confirmed"
            // state. [...] When this state is entered, timer I is set to fire in T4 seconds for
            // unreliable transports, and zero seconds for reliable transports."
            Self::Completed { .. } => {
                let linger = timing.linger(timing.t4);
                let next = if linger.is_zero() {
                    Self::Terminated
                } else {
                    Self::Confirmed { until: now + linger }
                };
                (next, Acknowledgement::Absorb)
            }
            // RFC 6026 §8.7: "If an ACK is received while the INVITE server transaction is in the
            // "Accepted" state, then the ACK must be passed up to the TU."
            // RFC 6026 §7.1: "Any ACKs received from the network while in the "Accepted" state MUST
            // be passed directly to the TU and not absorbed."
            Self::Accepted { .. } => (self, Acknowledgement::Deliver),
            Self::Proceeding | Self::Confirmed { .. } | Self::Terminated => {
                (self, Acknowledgement::Absorb)
            }
        }
    }

    /// Fires the timers that have expired by `now`.
    pub fn on_timer(self, now: Timestamp, timing: &Timing) -> (Self, Firing) {
        match self {
            // RFC 3261 §17.2.1: "If timer H fires while in the "Completed" state, it implies that
            // the ACK was never received. In this case, the server transaction MUST transition to
            // the "Terminated" state, and MUST indicate to the TU that a transaction failure has
            // occurred."
            Self::Completed { give_up, .. } if give_up <= now => {
                (Self::Terminated, Firing::TimedOut)
            }
            // "If timer G fires, the response is passed to the transport layer once more for
            // retransmission, and timer G is set to fire in MIN(2*T1, T2) seconds. From then on,
            // when timer G fires, the response is passed to the transport again for transmission,
            // and timer G is reset with a value that doubles, unless that value exceeds T2, in
            // which case it is reset with the value of T2."
            Self::Completed { resend: Some(resend), give_up } if resend.at() <= now => {
                let resend = Some(resend.double(now, timing, timing.t2));
                (Self::Completed { resend, give_up }, Firing::Resend)
            }
            // RFC 3261 §17.2.1: "Once timer I fires, the server MUST transition to the
            // "Terminated" state." RFC 6026 §8.7: "If Timer L fires while the INVITE server
            // transaction is in the "Accepted" state, the transaction MUST transition to the
            // "Terminated" state."
            // RFC 6026 §7.1: "When Timer L fires and the state machine is in the "Accepted" state,
            // the machine MUST transition to the "Terminated" state." "The server transaction MUST
            // NOT generate 2xx retransmissions on its own."
            Self::Confirmed { until } | Self::Accepted { until } if until <= now => {
                (Self::Terminated, Firing::Silent)
            }
            _ => (self, Firing::Silent),
        }
    }

    /// Returns the time at which [`on_timer`](Self::on_timer) is due, or `None` if no timer runs.
    pub fn deadline(&self) -> Option<Timestamp> {
        match *self {
            Self::Completed { resend, give_up } => {
                Some(resend.map_or(give_up, |resend| resend.at().min(give_up)))
            }
            Self::Confirmed { until } | Self::Accepted { until } => Some(until),
            Self::Proceeding | Self::Terminated => None,
        }
    }

    /// Returns whether a final response may still be sent.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Proceeding)
    }
}
