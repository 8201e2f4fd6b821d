//! One branch of a response context: a request sent to a target, and its progress.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::Timestamp;

use super::client::{Client, cancel};
use super::message::Message;
use super::surroundings::Surroundings;
use super::timer::{T1_64, TIMER_C};

/// The time of silence after which a back end is abandoned, if the request may arrive twice or the
/// back end is down.
pub const FAILOVER_AFTER: Duration = Duration::from_secs(4);

#[derive(Clone, Debug)]
pub struct Branch {
    pub client: Client,
    /// The transaction of our CANCEL.
    pub cancel: Option<Client>,
    /// The time when the branch counts as ended because of a CANCEL.
    pub cancelled_until: Option<Timestamp>,
    pub sent_at: Timestamp,
    /// The time of the last response.
    pub heard_at: Option<Timestamp>,
    pub timer_c: Option<Timestamp>,
    /// The time when another back end is tried if no response has come.
    pub failover_at: Option<Timestamp>,
    /// True if an INVITE has had a response from 101 to 199: a callee has been found.
    pub progressed: bool,
    /// True if another attempt has replaced the branch.
    pub abandoned: bool,
    /// True if the branch has ended: nothing waits for it.
    pub ended: bool,
}

impl Branch {
    /// Sends a copy of the request to a target.
    pub fn new(around: &mut Surroundings, copy: Message, to: SocketAddr) -> Self {
        around.send(to, &copy);
        let now = around.now;
        let invite = copy.method() == "INVITE";
        Self {
            client: Client::new(now, copy, to),
            cancel: None,
            cancelled_until: None,
            sent_at: now,
            heard_at: None,
            // §16.6 item 11: "Timer C MUST be set for each client transaction when an INVITE
            // request is proxied."
            timer_c: invite.then(|| now + TIMER_C),
            failover_at: None,
            progressed: false,
            abandoned: false,
            ended: false,
        }
    }

    pub fn is_pending(&self) -> bool {
        !self.ended && !self.abandoned
    }

    /// Requests cancellation of the branch.
    pub fn ask_to_cancel(&mut self, around: &mut Surroundings, reasons: &[String]) {
        // §9.1: "A CANCEL request SHOULD NOT be sent to cancel a request other than INVITE."
        let open = self.client.is_invite() && self.client.is_waiting();
        if !open || self.cancelled_until.is_some() {
            return;
        }
        // "If there is no final response for the original request in 64*T1 seconds [...], the
        // client SHOULD then consider the original transaction cancelled and SHOULD destroy the
        // client transaction handling the original request."
        self.cancelled_until = Some(around.now + T1_64);
        self.failover_at = None;
        self.cancel_if_heard(around, reasons);
    }

    /// §9.1: "If no provisional response has been received, the CANCEL request MUST NOT be sent;
    /// rather, the client MUST wait for the arrival of a provisional response before sending the
    /// request."
    pub fn cancel_if_heard(&mut self, around: &mut Surroundings, reasons: &[String]) {
        if self.cancelled_until.is_none() || self.cancel.is_some() || self.heard_at.is_none() {
            return;
        }
        let request = cancel(&self.client.request, reasons);
        around.send(self.client.to, &request);
        self.cancel = Some(Client::new(around.now, request, self.client.to));
    }

    /// Returns the time of the next timer of the branch.
    pub fn next(&self) -> Option<Timestamp> {
        let timers = [
            self.client.next(),
            // An answered CANCEL needs no timer: retransmissions of its response are dropped in any
            // case.
            self.cancel.as_ref().filter(|c| c.is_waiting()).and_then(Client::next),
            self.cancelled_until.filter(|_| self.client.is_waiting()),
            self.timer_c.filter(|_| self.client.is_waiting()),
            self.failover_at.filter(|_| self.client.is_waiting()),
        ];
        timers.into_iter().flatten().min()
    }
}
