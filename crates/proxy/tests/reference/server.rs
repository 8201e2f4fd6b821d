//! Server transactions: RFC 3261 §17.2 with the Accepted state of RFC 6026.

use tidegate_world::Timestamp;

use super::message::{COOKIE, Message};
use super::timer::{Repetition, T1_64, T2, T4};

/// The states of both machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Trying,
    Proceeding,
    Completed,
    Confirmed,
    Accepted,
    Terminated,
}

#[derive(Clone, Debug)]
pub struct Server {
    pub request: Message,
    arrived: Timestamp,
    pub state: State,
    /// The last response sent.
    last: Option<Message>,
    /// Timer G.
    repeat: Option<Repetition>,
    /// Timer H, I, J or L.
    end: Option<Timestamp>,
}

impl Server {
    pub fn new(now: Timestamp, request: Message) -> Self {
        // §17.2.1: "When a server transaction is constructed for a request, it enters the
        // "Proceeding" state." §17.2.2: "The state machine is initialized in the "Trying"
        // state".
        let invite = request.method() == "INVITE";
        let state = if invite { State::Proceeding } else { State::Trying };
        Self { request, arrived: now, state, last: None, repeat: None, end: None }
    }

    pub fn is_invite(&self) -> bool {
        self.request.method() == "INVITE"
    }

    /// Returns whether a final response may still be sent.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Trying | State::Proceeding)
    }

    /// §17.2.3, "except for ACK, where the method of the request that created the transaction
    /// is INVITE"; §9.2 for CANCEL: "assuming that the request method is anything but CANCEL or
    /// ACK and applying the transaction matching procedures".
    pub fn matches(&self, request: &Message) -> bool {
        let (mine, method) = (&self.request, request.method());
        let of_method = match method {
            "ACK" => self.is_invite(),
            "CANCEL" => mine.method() != "CANCEL",
            _ => mine.method() == method,
        };
        // An ended transaction matches as long as its response context is kept: §16.7 item 9,
        // "until all of its associated transactions have been terminated". Such a late request is
        // absorbed.
        if !of_method {
            return false;
        }
        if request.branch().is_some_and(|branch| branch.starts_with(COOKIE)) {
            return request.branch() == mine.branch() && request.sent_by() == mine.sent_by();
        }
        // "If the branch parameter in the top Via header field is not present, or does not
        // contain the magic cookie, [...] the Request-URI, To tag, From tag, Call-ID, CSeq, and
        // top Via header field match". For an ACK, "the To tag of the ACK matches the To tag of
        // the response sent by the server transaction."
        let to_tag = match method {
            "ACK" if super::lenience::OLD_ACK_WITHOUT_TAG => request.tag("To"),
            "ACK" => self.last.as_ref().and_then(|response| response.tag("To")),
            _ => mine.tag("To"),
        };
        request.uri() == mine.uri()
            && request.tag("To") == to_tag
            && request.tag("From") == mine.tag("From")
            && request.first("Call-ID") == mine.first("Call-ID")
            && request.cseq_number() == mine.cseq_number()
            && request.first("Via") == mine.first("Via")
    }

    /// Returns the response to a retransmission of the request.
    pub fn on_repeated(&self) -> Option<&Message> {
        match self.state {
            // §17.2.1: "the most recent provisional response that was received from the TU MUST
            // be passed to the transport layer for retransmission." "while in the "Completed"
            // state, if a request retransmission is received, the server SHOULD pass the
            // response to the transport for retransmission." §17.2.2 says the same; "Once in the
            // "Trying" state, any further request retransmissions are discarded."
            State::Proceeding | State::Completed => self.last.as_ref(),
            // RFC 6026 §7.1: "any retransmissions of the INVITE received will match this
            // transaction state machine and will be absorbed by the machine".
            State::Trying | State::Confirmed | State::Accepted | State::Terminated => None,
        }
    }

    /// Takes a response from the transaction user. Returns whether to send it.
    pub fn send(&mut self, now: Timestamp, response: &Message) -> bool {
        let status = response.status().expect("a response has a status");
        match (self.state, status) {
            (State::Trying | State::Proceeding, ..200) => self.state = State::Proceeding,
            // RFC 6026 §7.1: "the state machine MUST transition to the "Accepted" state and set
            // Timer L to 64*T1".
            (State::Proceeding, 200..300) if self.is_invite() => {
                (self.state, self.end) = (State::Accepted, Some(now + T1_64));
            }
            // "Any retransmission of the 2xx response passed from the TU to the transaction
            // while in the "Accepted" state MUST be passed to the transport layer".
            (State::Accepted, 200..300) => {}
            (State::Trying | State::Proceeding, _) => {
                // §17.2.1: "timer G is set to fire in T1 seconds". "When the "Completed" state
                // is entered, timer H MUST be set to fire in 64*T1 seconds". §17.2.2: "it MUST
                // set Timer J to fire in 64*T1 seconds for unreliable transports".
                self.repeat = self.is_invite().then(|| Repetition::from(now));
                (self.state, self.end) = (State::Completed, Some(now + T1_64));
            }
            // §16.7 item 5: "After a final response has been sent on the server transaction, the
            // following responses MUST be forwarded immediately: [...] Any 2xx response to an
            // INVITE request". Item 9: "If the server transaction is no longer available to handle
            // the transmission, the element MUST forward the response statelessly".
            (_, 200..300) if self.is_invite() => return true,
            // §17.2.2: "Any other final responses passed by the TU to the server transaction
            // MUST be discarded while in the "Completed" state."
            _ => return false,
        }
        self.last = Some(response.clone());
        true
    }

    /// Returns whether an ACK is absorbed.
    pub fn on_ack(&mut self, now: Timestamp) -> bool {
        match self.state {
            // §17.2.1: "If an ACK is received while the server transaction is in the
            // "Completed" state, the server transaction MUST transition to the "Confirmed"
            // state." "When this state is entered, timer I is set to fire in T4 seconds".
            State::Completed => {
                (self.state, self.repeat) = (State::Confirmed, None);
                self.end = Some(now + T4);
                true
            }
            // "to absorb any additional ACK messages that arrive".
            State::Confirmed => true,
            // The context is kept: see `matches`.
            State::Terminated => true,
            // RFC 6026 §7.1: "Any ACKs received from the network while in the "Accepted" state
            // MUST be passed directly to the TU and not absorbed."
            State::Proceeding => super::lenience::OLD_ACK_WITHOUT_TAG,
            _ => false,
        }
    }

    pub fn next(&self) -> Option<Timestamp> {
        self.repeat.map(|r| r.at).into_iter().chain(self.end).min()
    }

    /// Returns the response that timer G retransmits now.
    pub fn repeats(&mut self, now: Timestamp) -> Option<&Message> {
        let due = self.repeat.filter(|r| r.at <= now)?;
        // "timer G is reset with a value that doubles, unless that value exceeds T2, in which
        // case it is reset with the value of T2."
        self.repeat = Some(due.doubled(T2));
        self.last.as_ref()
    }

    /// Fires timers H, I, J and L.
    pub fn ends(&mut self, now: Timestamp) {
        if self.end.is_some_and(|end| end <= now) {
            self.terminate();
        }
    }

    /// Ends the transaction without a final response. RFC 4320 §4.2: "an element that cannot
    /// respond before the transaction expires will not send a final response at all." The
    /// transaction expires when Timer F of its client fires.
    pub fn expire(&mut self, now: Timestamp) {
        let expires = self.arrived + T1_64;
        if expires <= now {
            return self.terminate();
        }
        self.end = Some(expires);
    }

    fn terminate(&mut self) {
        (self.state, self.repeat, self.end) = (State::Terminated, None, None);
    }
}
