//! One outgoing call: an INVITE client transaction, a dialog, a BYE client transaction.
//!
//! A pure state machine without bytes. What the RFC keeps after a transaction's end
//! to absorb late copies (timers D, K and M) is not kept: a late response still
//! bears our [`Mark`](crate::identity::Mark), from which the caller acknowledges it.

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use crate::caller::dialog::Dialog;
use crate::caller::stats::Failure;
use crate::timer::{Fired, Repeat, Timers};

/// How a call ended.
pub(crate) type Outcome = Result<(), Failure>;

/// What the caller has to do for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Wait,
    Send(Method),
    SendAgain(Method),
    End(Outcome),
}

/// A 2xx to the INVITE, as the call takes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The call is set up.
    SetUp,
    /// It came after the caller had hung up: acknowledge it and leave.
    TooLate,
    /// A copy of the one that set it up.
    Again,
    /// Another fork's, with its dialog.
    Stray(Dialog),
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// INVITE sent, nothing came back: timers A and B.
    Calling(Repeat),
    /// A provisional response came.
    Proceeding,
    /// CANCEL sent; it and the INVITE may still be answered.
    Cancelling(Repeat),
    /// Set up, until the caller hangs up.
    Held(Timestamp),
    /// BYE sent: timers E and F. The outcome is that if the BYE is answered well.
    Leaving(Repeat, Outcome),
}

/// An outgoing call that is not over.
#[derive(Debug)]
pub(crate) struct Call {
    /// When it should have begun.
    pub intended: Timestamp,
    /// When it began.
    pub begun: Timestamp,
    /// When its caller loses patience.
    hangs_up: Timestamp,
    phase: Phase,
    /// Once it is set up.
    dialog: Option<Dialog>,
}

impl Call {
    /// A call whose INVITE is sent at `now`.
    pub fn new(intended: Timestamp, now: Timestamp, hangs_up: Timestamp, timers: &Timers) -> Self {
        let phase = Phase::Calling(Repeat::invite(now, timers));
        Self { intended, begun: now, hangs_up, phase, dialog: None }
    }

    /// When [`on_timeout`](Self::on_timeout) is next needed.
    pub fn due(&self) -> Timestamp {
        match self.phase {
            Phase::Calling(repeat) | Phase::Cancelling(repeat) | Phase::Leaving(repeat, _) => {
                repeat.due()
            }
            Phase::Proceeding => self.hangs_up,
            Phase::Held(until) => until,
        }
    }

    /// The dialog, once there is one.
    pub fn dialog(&self) -> Option<&Dialog> {
        self.dialog.as_ref()
    }

    /// What [`due`](Self::due) was waiting for has not come.
    pub fn on_timeout(&mut self, now: Timestamp, timers: &Timers) -> Act {
        match &mut self.phase {
            Phase::Calling(repeat) => match repeat.fire(now) {
                Fired::Again => Act::SendAgain(Method::Invite),
                Fired::GiveUp => Act::End(Err(Failure::Timeout)),
            },
            Phase::Proceeding => self.cancel(now, timers),
            Phase::Cancelling(repeat) => match repeat.fire(now) {
                Fired::Again => Act::SendAgain(Method::Cancel),
                // RFC 3261 §9.1: "if there is no final response for the original request
                // in 64*T1 seconds …, the client SHOULD then consider the original
                // transaction cancelled".
                Fired::GiveUp => Act::End(Err(Failure::Abandoned)),
            },
            Phase::Held(_) => self.leave(now, Ok(()), timers),
            Phase::Leaving(repeat, _) => match repeat.fire(now) {
                Fired::Again => Act::SendAgain(Method::Bye),
                Fired::GiveUp => Act::End(Err(Failure::ByeTimeout)),
            },
        }
    }

    /// A provisional response to the INVITE.
    pub fn on_provisional(&mut self, now: Timestamp, timers: &Timers) -> Act {
        if !matches!(self.phase, Phase::Calling(_)) {
            return Act::Wait;
        }
        self.phase = Phase::Proceeding;
        // RFC 3261 §9.1: "If no provisional response has been received, the CANCEL request
        // MUST NOT be sent; rather, the client MUST wait for the arrival of a provisional
        // response before sending the request."
        if now >= self.hangs_up { self.cancel(now, timers) } else { Act::Wait }
    }

    /// A 2xx to the INVITE. The call is held until `until`.
    pub fn on_answer(
        &mut self,
        now: Timestamp,
        dialog: Dialog,
        until: Timestamp,
        timers: &Timers,
    ) -> Answer {
        match self.phase {
            Phase::Calling(_) | Phase::Proceeding => {
                self.phase = Phase::Held(until);
                self.dialog = Some(dialog);
                Answer::SetUp
            }
            Phase::Cancelling(_) => {
                self.dialog = Some(dialog);
                self.leave(now, Err(Failure::Abandoned), timers);
                Answer::TooLate
            }
            Phase::Held(_) | Phase::Leaving(..) => {
                let same = self.dialog.as_ref().is_some_and(|own| own.to() == dialog.to());
                if same { Answer::Again } else { Answer::Stray(dialog) }
            }
        }
    }

    /// A final response to the INVITE that is no 2xx.
    pub fn on_refusal(&mut self, status: u16) -> Act {
        match self.phase {
            Phase::Calling(_) | Phase::Proceeding => Act::End(Err(Failure::Status(status))),
            Phase::Cancelling(_) => Act::End(Err(Failure::Abandoned)),
            // Another branch of a fork, after one has answered.
            Phase::Held(_) | Phase::Leaving(..) => Act::Wait,
        }
    }

    /// A final response to the CANCEL: the INVITE's is still to come.
    pub fn on_cancel_answered(&mut self) {
        if let Phase::Cancelling(repeat) = &mut self.phase {
            repeat.hush();
        }
    }

    /// A response to the BYE.
    pub fn on_bye_response(&mut self, status: u16) -> Act {
        let Phase::Leaving(repeat, outcome) = &mut self.phase else { return Act::Wait };
        match status {
            ..200 => {
                repeat.slow_down();
                Act::Wait
            }
            200..300 => Act::End(*outcome),
            _ => Act::End(outcome.and(Err(Failure::ByeStatus(status)))),
        }
    }

    /// The other side has hung up.
    pub fn on_bye(&self) -> Act {
        match self.phase {
            Phase::Held(_) => Act::End(Err(Failure::HungUp)),
            // Both hung up at once: our BYE will be answered too.
            _ => Act::Wait,
        }
    }

    /// Hangs up an established call.
    fn leave(&mut self, now: Timestamp, outcome: Outcome, timers: &Timers) -> Act {
        self.phase = Phase::Leaving(Repeat::capped(now, timers), outcome);
        Act::Send(Method::Bye)
    }

    fn cancel(&mut self, now: Timestamp, timers: &Timers) -> Act {
        self.phase = Phase::Cancelling(Repeat::capped(now, timers));
        Act::Send(Method::Cancel)
    }
}
