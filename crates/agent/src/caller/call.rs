//! One outgoing call: an INVITE client transaction, a dialog, a BYE client transaction.
//!
//! A [`Call`] is a pure state machine and handles no bytes. The RFC keeps the state of an ended
//! transaction to absorb retransmissions (timers D, K and M). A [`Call`] needs no such state,
//! because a late response contains our [`Mark`](crate::identity::Mark), from which the caller can
//! write the ACK.

use std::time::Duration;

use tidegate_sip::Method;
use tidegate_transaction::{Firing, InviteClient, OtherClient, Timing};
use tidegate_world::{Cause, Timestamp};

use crate::caller::redial::Person;
use crate::caller::stats::Failure;
use crate::dialog::Dialog;

/// The outcome of an ended call: success, or the reason for its failure.
pub(crate) type Outcome = Result<(), Failure>;

/// An action that the caller has to perform for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Wait,
    Send(Method),
    SendAgain(Method),
    /// End the call with this outcome.
    End(Outcome),
    /// End the call, because the other side has sent a BYE.
    HungUp,
}

/// The effect of a 2xx to the INVITE on its call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The 2xx sets up the call.
    SetUp,
    /// The 2xx came after the caller had hung up. The caller must acknowledge it and end its
    /// dialog.
    TooLate,
    /// The 2xx is a copy of the one that set up the call.
    Again,
    /// The 2xx comes from another callee, because a proxy has forked the INVITE. Contains the
    /// dialog with this callee.
    Stray(Dialog),
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The INVITE was sent and has no final response. Contains its transaction.
    Inviting(InviteClient),
    /// The CANCEL was sent. Contains its transaction, and the time at which the INVITE counts as
    /// cancelled even without a response.
    Cancelling(OtherClient, Timestamp),
    /// The call is set up. The caller hangs up at this time.
    Held(Timestamp),
    /// The BYE was sent. Contains its transaction, and the outcome of the call if the BYE gets a
    /// 2xx.
    Leaving(OtherClient, Outcome),
}

/// An outgoing call that has not ended.
#[derive(Debug)]
pub(crate) struct Call {
    /// Intended start of the call.
    pub intended: Timestamp,
    /// Time at which the INVITE was first sent to the current server.
    pub begun: Timestamp,
    /// The person who calls.
    pub person: Person,
    /// Time at which the caller hangs up if the call is not answered.
    hangs_up: Timestamp,
    /// Time from the answer until the caller hangs up.
    hold: Duration,
    /// Number of servers that have rejected the call. It is also the index of the current server.
    pub server: usize,
    /// Time at which the caller first sent the BYE, or `None` if it has sent none.
    left: Option<Timestamp>,
    phase: Phase,
    /// The dialog, or `None` until the call is set up.
    dialog: Option<Dialog>,
    /// True if the call was set up before its caller hung up.
    is_served: bool,
    /// True if the person hung up before there was an answer. The transactions of the call may
    /// still run.
    has_hung_up: bool,
}

/// A person, with the person's patience and holding time in one call. Other parts of the program do
/// not know them in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    pub patience: Duration,
    pub hold: Duration,
    pub person: Person,
}

impl Call {
    /// Creates a call whose INVITE is sent at `now`.
    pub fn new(intended: Timestamp, now: Timestamp, intent: Intent, timing: &Timing) -> Self {
        Self {
            intended,
            begun: now,
            person: intent.person,
            hangs_up: now + intent.patience,
            hold: intent.hold,
            server: 0,
            left: None,
            phase: Phase::Inviting(InviteClient::start(now, timing)),
            dialog: None,
            is_served: false,
            has_hung_up: false,
        }
    }

    /// Returns the state of the call after its INVITE was sent to the next server at `now`.
    pub(crate) fn to_next_server(&self, now: Timestamp, timing: &Timing) -> Self {
        Self {
            begun: now,
            server: self.server + 1,
            phase: Phase::Inviting(InviteClient::start(now, timing)),
            dialog: None,
            ..*self
        }
    }

    /// Returns the time at which [`on_timeout`](Self::on_timeout) is next needed.
    pub fn due(&self) -> Timestamp {
        match self.phase {
            Phase::Inviting(invite) => match invite.deadline() {
                Some(deadline) if self.has_hung_up => deadline,
                Some(deadline) => deadline.min(self.hangs_up),
                None => self.hangs_up,
            },
            Phase::Cancelling(cancel, end) => {
                let repeat = cancel.is_pending().then(|| cancel.deadline()).flatten();
                repeat.map_or(end, |at| at.min(end))
            }
            Phase::Held(until) => until,
            Phase::Leaving(bye, _) => bye.deadline().expect("a BYE without answer has a timer"),
        }
    }

    pub fn is_served(&self) -> bool {
        self.is_served
    }

    /// Returns whether the person hung up before there was an answer.
    pub fn has_hung_up(&self) -> bool {
        self.has_hung_up
    }

    /// Returns whether the patience of the person has not ended at `now`.
    pub fn is_patient(&self, now: Timestamp) -> bool {
        now < self.hangs_up
    }

    /// Lets the person hang up if the call is not answered and the patience has ended. Returns the
    /// person if the person hangs up now. Returns `None` if the person waits, talks, or hung up
    /// before.
    //
    // RFC 3261 §9.1: "If no provisional response has been received, the CANCEL request MUST NOT be
    // sent". This rule holds for the user agent. A person who hears nothing hangs up nevertheless,
    // and the INVITE transaction of the user agent goes on until its end.
    pub fn hang_up(&mut self, now: Timestamp) -> Option<Person> {
        if self.is_served || self.has_hung_up || self.is_patient(now) {
            return None;
        }
        self.has_hung_up = true;
        Some(self.person)
    }

    pub fn dialog(&self) -> Option<&Dialog> {
        self.dialog.as_ref()
    }

    pub fn left(&self) -> Option<Timestamp> {
        self.left
    }

    /// Returns the action that is required at the time [`due`](Self::due).
    pub(crate) fn on_timeout(&mut self, now: Timestamp, timing: &Timing) -> Action {
        match &mut self.phase {
            Phase::Inviting(InviteClient::Proceeding) if now >= self.hangs_up => {
                self.cancel(now, timing)
            }
            // Before a provisional response, this timer may also be the end of the patience.
            Phase::Inviting(invite) => {
                let (next, firing) = invite.on_timer(now, timing);
                *invite = next;
                after(firing, Method::Invite, Failure::Timeout)
            }
            // RFC 3261 §9.1: "If there is no final response for the original request in 64*T1
            // seconds [...], the client SHOULD then consider the original transaction cancelled".
            Phase::Cancelling(_, end) if *end <= now => Action::End(Err(Failure::Abandoned)),
            Phase::Cancelling(cancel, _) => {
                let (next, firing) = cancel.on_timer(now, timing);
                *cancel = next;
                after(firing, Method::Cancel, Failure::Abandoned)
            }
            Phase::Held(until) if *until <= now => self.leave(now, Ok(()), timing),
            Phase::Held(_) => Action::Wait,
            Phase::Leaving(bye, outcome) => {
                let (next, firing) = bye.on_timer(now, timing);
                *bye = next;
                after(firing, Method::Bye, outcome.err().unwrap_or(Failure::ByeTimeout))
            }
        }
    }

    /// Handles a provisional response to the INVITE.
    pub fn on_provisional(&mut self, now: Timestamp, timing: &Timing, status: u16) -> Action {
        let Phase::Inviting(invite) = &mut self.phase else { return Action::Wait };
        (*invite, _) = invite.on_response(now, timing, status);
        // RFC 3261 §9.1: "If no provisional response has been received, the CANCEL request
        // MUST NOT be sent; rather, the client MUST wait for the arrival of a provisional
        // response before sending the request."
        if now >= self.hangs_up { self.cancel(now, timing) } else { Action::Wait }
    }

    /// Handles a 2xx to the INVITE. The 2xx arrived at `arrived` and creates `dialog`.
    pub fn on_answer(
        &mut self,
        now: Timestamp,
        arrived: Timestamp,
        dialog: Dialog,
        timing: &Timing,
    ) -> Answer {
        match self.phase {
            Phase::Inviting(_) if arrived < self.hangs_up && !self.has_hung_up => {
                self.phase = Phase::Held(now + self.hold);
                self.dialog = Some(dialog);
                self.is_served = true;
                Answer::SetUp
            }
            // The phase is still `Inviting` if the caller lost patience before a provisional
            // response came, because then it could not send a CANCEL.
            Phase::Inviting(_) | Phase::Cancelling(..) => {
                self.dialog = Some(dialog);
                self.leave(now, Err(Failure::Abandoned), timing);
                Answer::TooLate
            }
            Phase::Held(_) | Phase::Leaving(..) => {
                let same = self.dialog.as_ref().is_some_and(|own| own.remote() == dialog.remote());
                if same { Answer::Again } else { Answer::Stray(dialog) }
            }
        }
    }

    /// Handles a final response to the INVITE other than 2xx.
    pub(crate) fn on_rejection(&mut self, status: u16) -> Action {
        match self.phase {
            Phase::Inviting(_) => Action::End(Err(Failure::Status(status))),
            Phase::Cancelling(..) => Action::End(Err(Failure::Abandoned)),
            // The rejection comes from another branch of a fork, after one branch has answered.
            Phase::Held(_) | Phase::Leaving(..) => Action::Wait,
        }
    }

    /// Handles a response to the CANCEL. The call lasts until the final response to the INVITE.
    pub(crate) fn on_cancel_response(&mut self, now: Timestamp, timing: &Timing, status: u16) {
        if let Phase::Cancelling(cancel, _) = &mut self.phase {
            (*cancel, _) = cancel.on_response(now, timing, status);
        }
    }

    /// Handles a response to the BYE.
    pub(crate) fn on_bye_response(
        &mut self,
        now: Timestamp,
        timing: &Timing,
        status: u16,
    ) -> Action {
        let Phase::Leaving(bye, outcome) = &mut self.phase else { return Action::Wait };
        (*bye, _) = bye.on_response(now, timing, status);
        match status {
            ..200 => Action::Wait,
            200..300 => Action::End(*outcome),
            _ => Action::End(outcome.and(Err(Failure::ByeStatus(status)))),
        }
    }

    /// Handles the report that a request of the call could not be sent on its connection.
    pub fn on_unsent(&self, method: Method, cause: Cause) -> Action {
        match (self.phase, method) {
            (Phase::Inviting(_), Method::Invite) => Action::End(Err(Failure::Transport(cause))),
            (Phase::Cancelling(..), Method::Cancel) => Action::End(Err(Failure::Abandoned)),
            (Phase::Leaving(_, outcome), Method::Bye) => {
                Action::End(outcome.and(Err(Failure::Transport(cause))))
            }
            // The request is the ACK, or a request whose transaction has ended.
            _ => Action::Wait,
        }
    }

    /// Handles a BYE. Its From tag is `tag`, which identifies the dialog that the BYE ends.
    pub fn on_bye(&self, tag: Option<&[u8]>) -> Action {
        // RFC 3261 §12: both tags identify a dialog. Another branch of a fork may have answered
        // with a dialog that the call does not keep.
        if self.dialog.as_ref().is_some_and(|dialog| dialog.remote_tag() != tag) {
            return Action::Wait;
        }
        match self.phase {
            Phase::Held(_) => Action::HungUp,
            // Both sides hung up at the same time. The dialog has ended, whatever the response to
            // our BYE is. If our BYE was lost, its retransmission will find no dialog.
            Phase::Leaving(_, outcome) => Action::End(outcome),
            Phase::Inviting(_) | Phase::Cancelling(..) => Action::Wait,
        }
    }

    /// Hangs up with a BYE. `outcome` is the outcome of the call if the BYE gets a 2xx.
    fn leave(&mut self, now: Timestamp, outcome: Outcome, timing: &Timing) -> Action {
        self.phase = Phase::Leaving(OtherClient::start(now, timing), outcome);
        self.left = Some(now);
        Action::Send(Method::Bye)
    }

    fn cancel(&mut self, now: Timestamp, timing: &Timing) -> Action {
        self.phase = Phase::Cancelling(OtherClient::start(now, timing), now + timing.patience());
        Action::Send(Method::Cancel)
    }
}

/// Returns the action that an expired timer of a client transaction requires. `failure` is the
/// outcome if the transaction has timed out.
fn after(firing: Firing, method: Method, failure: Failure) -> Action {
    match firing {
        Firing::Silent => Action::Wait,
        Firing::Resend => Action::SendAgain(method),
        Firing::TimedOut => Action::End(Err(failure)),
    }
}
