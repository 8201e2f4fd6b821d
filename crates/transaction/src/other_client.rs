//! The client transaction of a request other than INVITE: RFC 3261 §17.1.2, figure 6.

use tidegate_world::Timestamp;

use crate::{Arrival, Backoff, Firing, Timing};

/// The client transaction of a request that is neither INVITE nor ACK.
///
/// A letter on an arrow names the timer that fires.
///
/// ```text
///  Trying ──1xx──► Proceeding ──200-699──► Completed ──K──► Terminated
///    │  └──200-699 as from Proceeding                           ▲
///    └──F, transport error, from Proceeding too─────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherClient {
    /// The request was sent, and no response has come.
    Trying {
        /// The schedule of Timer E, or `None` over a reliable transport.
        resend: Option<Backoff>,
        /// Time at which Timer F fires.
        give_up: Timestamp,
    },
    /// A provisional response has come.
    Proceeding {
        /// The schedule of Timer E, or `None` over a reliable transport.
        resend: Option<Backoff>,
        /// Time at which Timer F fires.
        give_up: Timestamp,
    },
    /// A final response has come.
    Completed {
        /// Time at which Timer K fires.
        until: Timestamp,
    },
    /// The transaction has ended.
    Terminated,
}

impl OtherClient {
    /// Starts the transaction of a request that is sent now.
    pub fn start(now: Timestamp, timing: &Timing) -> Self {
        // RFC 3261 §17.1.2.2: "When entering this state, the client transaction SHOULD set timer
        // F to fire in 64*T1 seconds. [...] If an unreliable transport is in use, the client
        // transaction MUST set timer E to fire in T1 seconds."
        Self::Trying { resend: Backoff::start(now, timing), give_up: now + timing.patience() }
    }

    /// Handles a response with this status.
    pub fn on_response(self, now: Timestamp, timing: &Timing, status: u16) -> (Self, Arrival) {
        match self {
            // RFC 3261 §17.1.2.2: "If a provisional response is received while in the "Trying"
            // state, the response MUST be passed to the TU, and then the client transaction
            // SHOULD move to the "Proceeding" state."
            Self::Trying { resend, give_up } | Self::Proceeding { resend, give_up }
                if status < 200 =>
            {
                (Self::Proceeding { resend, give_up }, Arrival::Deliver)
            }
            // §17.1.2.2: "If a final response (status codes 200-699) is received while in the
            // "Trying" state, the response MUST be passed to the TU, and the client transaction
            // MUST transition to the "Completed" state." The same applies in "Proceeding". "Once
            // the client transaction enters the "Completed" state, it MUST set Timer K to fire in
            // T4 seconds for unreliable transports, and zero seconds for reliable transports."
            // RFC 3261 §17.1.2.2: "If a final response (status codes 200-699) is received while in
            // the "Proceeding" state, the response MUST be passed to the TU, and the client
            // transaction MUST transition to the "Completed" state."
            Self::Trying { .. } | Self::Proceeding { .. } => {
                let linger = timing.linger(timing.t4);
                let next = if linger.is_zero() {
                    Self::Terminated
                } else {
                    Self::Completed { until: now + linger }
                };
                (next, Arrival::Deliver)
            }
            Self::Completed { .. } | Self::Terminated => (self, Arrival::Absorb),
        }
    }

    /// Fires the timers that have expired by `now`.
    pub fn on_timer(self, now: Timestamp, timing: &Timing) -> (Self, Firing) {
        match self {
            // RFC 3261 §17.1.2.2: "If Timer F fires while the client transaction is still in the
            // "Trying" state, the client transaction SHOULD inform the TU about the timeout, and
            // then it SHOULD enter the "Terminated" state." "If timer F fires while in the
            // "Proceeding" state, the TU MUST be informed of a timeout, and the client
            // transaction MUST transition to the terminated state."
            Self::Trying { give_up, .. } | Self::Proceeding { give_up, .. } if give_up <= now => {
                (Self::Terminated, Firing::TimedOut)
            }
            // §17.1.2.2: "If timer E fires while still in this state, the timer is reset, but this
            // time with a value of MIN(2*T1, T2). When the timer fires again, it is reset to a
            // MIN(4*T1, T2). This process continues so that retransmissions occur with an
            // exponentially increasing interval that caps at T2."
            Self::Trying { resend: Some(resend), give_up } if resend.at() <= now => {
                let resend = Some(resend.double(now, timing, timing.t2));
                (Self::Trying { resend, give_up }, Firing::Resend)
            }
            // §17.1.2.2: "If Timer E fires while in the "Proceeding" state, the request MUST be
            // passed to the transport layer for retransmission, and Timer E MUST be reset with a
            // value of T2 seconds."
            Self::Proceeding { resend: Some(resend), give_up } if resend.at() <= now => {
                let resend = Some(resend.again(now, timing.t2));
                (Self::Proceeding { resend, give_up }, Firing::Resend)
            }
            // §17.1.2.2: "If Timer K fires while in this state, the client transaction MUST
            // transition to the "Terminated" state."
            Self::Completed { until } if until <= now => (Self::Terminated, Firing::Silent),
            _ => (self, Firing::Silent),
        }
    }

    /// Returns the time at which [`on_timer`](Self::on_timer) is due, or `None` if no timer runs.
    pub fn deadline(&self) -> Option<Timestamp> {
        match *self {
            Self::Trying { resend, give_up } | Self::Proceeding { resend, give_up } => {
                Some(resend.map_or(give_up, |resend| resend.at().min(give_up)))
            }
            Self::Completed { until } => Some(until),
            Self::Terminated => None,
        }
    }

    /// Returns whether a final response is still expected.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Trying { .. } | Self::Proceeding { .. })
    }
}
