//! Client transactions: RFC 3261 §17.1 with the Accepted state of RFC 6026.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::Timestamp;

use super::message::Message;
use super::timer::{Repetition, T1_64, T2, T4};

/// The states of both machines. Calling is also Trying of the non-INVITE machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Calling,
    Proceeding,
    Completed,
    Accepted,
    Terminated,
}

/// The effect of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The transaction user gets the response.
    Up,
    /// The transaction user gets the response, and this ACK is sent.
    UpAcknowledged(Message),
    /// A retransmission: this ACK is sent.
    Acknowledged(Message),
    /// A retransmission, which has no effect.
    Absorbed,
}

#[derive(Clone, Debug)]
pub struct Client {
    pub request: Message,
    pub to: SocketAddr,
    pub state: State,
    /// Timer A or E.
    repeat: Option<Repetition>,
    /// Timer B or F, then D, K or M.
    end: Option<Timestamp>,
}

impl Client {
    pub fn new(now: Timestamp, request: Message, to: SocketAddr) -> Self {
        // §17.1.1.2: "the client transaction MUST start timer A with a value of T1. [...] For
        // any transport, the client transaction MUST start timer B with a value of 64*T1".
        // §17.1.2.2: "SHOULD set timer F to fire in 64*T1 seconds. [...] MUST set timer E to
        // fire in T1 seconds."
        let (repeat, end) = (Some(Repetition::from(now)), Some(now + T1_64));
        Self { request, to, state: State::Calling, repeat, end }
    }

    pub fn is_invite(&self) -> bool {
        self.request.method() == "INVITE"
    }

    /// §17.1.3: "the same value of the branch parameter in the top Via header field as the
    /// branch parameter in the top Via header field of the request that created the
    /// transaction" and "the method parameter in the CSeq header field matches".
    pub fn matches(&self, response: &Message) -> bool {
        self.state != State::Terminated
            && response.branch() == self.request.branch()
            && response.method() == self.request.method()
    }

    pub fn on_response(&mut self, now: Timestamp, response: &Message) -> Passed {
        let status = response.status().expect("a response has a status");
        match (self.is_invite(), self.state, status) {
            // §17.1.1.2: "it transitions to the "Proceeding" state. In the "Proceeding" state,
            // the client transaction SHOULD NOT retransmit the request any longer." Timer B
            // matters "If the client transaction is still in the "Calling" state".
            (true, State::Calling | State::Proceeding, ..200) => {
                (self.state, self.repeat, self.end) = (State::Proceeding, None, None);
                Passed::Up
            }
            // RFC 6026 §8.4: "the client transaction MUST transition to the "Accepted" state,
            // and Timer M MUST be started with a value of 64*T1."
            (true, State::Calling | State::Proceeding, 200..300) => {
                self.finish(State::Accepted, now, T1_64);
                Passed::Up
            }
            // §17.1.1.2: "reception of a response with status code from 300-699 MUST cause the
            // client transaction to transition to "Completed"."
            (true, State::Calling | State::Proceeding, _) => {
                self.finish(State::Completed, now, T1_64);
                Passed::UpAcknowledged(self.ack(response))
            }
            // "Any retransmissions of the final response that are received while in the
            // "Completed" state MUST cause the ACK to be re-passed to the transport layer".
            (true, State::Completed, 300..) => Passed::Acknowledged(self.ack(response)),
            // RFC 6026 §8.4: "Any 2xx responses that match this client transaction and that
            // are received while in the "Accepted" state MUST be passed up to the TU."
            (true, State::Accepted, 200..300) => Passed::Up,
            (true, ..) => Passed::Absorbed,
            // §17.1.2.2: timer E continues, with T2 from its next firing.
            (false, State::Calling | State::Proceeding, ..200) => {
                self.state = State::Proceeding;
                Passed::Up
            }
            // "Once the client transaction enters the "Completed" state, it MUST set Timer K
            // to fire in T4 seconds for unreliable transports".
            (false, State::Calling | State::Proceeding, _) => {
                self.finish(State::Completed, now, T4);
                Passed::Up
            }
            (false, ..) => Passed::Absorbed,
        }
    }

    pub fn next(&self) -> Option<Timestamp> {
        self.repeat.map(|r| r.at).into_iter().chain(self.end).min()
    }

    /// Returns whether timer A or E retransmits the request now.
    pub fn repeats(&mut self, now: Timestamp) -> bool {
        let Some(due) = self.repeat.filter(|r| r.at <= now) else { return false };
        // If both expire at the same time, B precedes A, and F precedes E.
        if self.end.is_some_and(|end| end <= due.at) {
            return false;
        }
        self.repeat = Some(match (self.is_invite(), self.state) {
            // §17.1.1.2: "the request is retransmitted with intervals that double after each
            // transmission."
            (true, _) => due.doubled(Duration::MAX),
            // §17.1.2.2: "Timer E MUST be reset with a value of T2 seconds."
            (false, State::Proceeding) => due.after(T2),
            // "the timer is reset, but this time with a value of MIN(2*T1, T2)."
            (false, _) => due.doubled(T2),
        });
        true
    }

    /// Returns whether timer B or F ends the transaction now without a final response.
    pub fn times_out(&mut self, now: Timestamp) -> bool {
        if self.end.is_none_or(|end| end > now) {
            return false;
        }
        let waited = matches!(self.state, State::Calling | State::Proceeding);
        self.terminate();
        waited
    }

    /// Ends the transaction: an undeliverable request is not retransmitted.
    pub fn terminate(&mut self) {
        (self.state, self.repeat, self.end) = (State::Terminated, None, None);
    }

    /// Stops retransmissions. The transaction only waits for late responses.
    pub fn stop_repeating(&mut self) {
        self.repeat = None;
    }

    pub fn is_live(&self) -> bool {
        self.state != State::Terminated
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Calling | State::Proceeding)
    }

    /// §17.1.1.3: "The ACK request constructed by the client transaction MUST contain values
    /// for the Call-ID, From, and Request-URI that are equal to the values of those header
    /// fields in the request [...]. The To header field in the ACK MUST equal the To header
    /// field in the response being acknowledged [...]. The ACK MUST contain a single Via header
    /// field, and this MUST be equal to the top Via header field of the original request. The
    /// CSeq header field in the ACK MUST contain the same value for the sequence number [...],
    /// but the method parameter MUST be equal to "ACK". If the INVITE request whose response is
    /// being acknowledged had Route header fields, those header fields MUST appear in the ACK."
    fn ack(&self, response: &Message) -> Message {
        let mut ack = self.request.sibling("ACK");
        ack.set("To", response.first("To"));
        ack
    }

    fn finish(&mut self, state: State, now: Timestamp, lingers: Duration) {
        (self.state, self.repeat, self.end) = (state, None, Some(now + lingers));
    }
}

/// §9.1: "The Request-URI, Call-ID, To, the numeric part of CSeq, and From header fields in the
/// CANCEL request MUST be identical to those in the request being cancelled, including tags. A
/// CANCEL constructed by a client MUST have only a single Via header field value matching the
/// top Via value in the request being cancelled. [...] If the request being cancelled contains
/// a Route header field, the CANCEL request MUST include that Route header field's values."
///
/// RFC 3326 §2: "Proxies generating a CANCEL request upon reception of a CANCEL from the previous
/// hop that contains a Reason header field SHOULD copy it into the new CANCEL request."
pub fn cancel(request: &Message, reasons: &[String]) -> Message {
    let mut cancel = request.sibling("CANCEL");
    for reason in reasons {
        cancel.headers.push(("Reason".to_owned(), reason.clone()));
    }
    cancel
}
