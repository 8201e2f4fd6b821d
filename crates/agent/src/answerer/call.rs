//! One incoming call: an INVITE server transaction, its dialog, and possibly our own BYE.
//!
//! A [`Call`] has only state, and parses nothing. It stays in the table for 64·T1 after its end. So
//! a late copy of its INVITE does not count as a new call (RFC 6026 §7.1, timer L), and a
//! retransmitted BYE gets the same answer (RFC 3261 §17.2.2, timer J).

use std::time::Duration;

use tidegate_transaction::{Backoff, Firing, InviteServer, OtherClient, Timing};
use tidegate_world::{Flow, Timestamp};

use super::bye_sender::{Answer, PendingBye};
use super::ringing::{Ringing, RingingAction};

/// The phase of a call.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The call has arrived, and nothing has been done yet.
    New,
    /// The answerer sends no response to the call on purpose. The call stays in the table until
    /// this time.
    Ignored(Timestamp),
    /// The call rings. It has no final response yet.
    Ringing(Box<Ringing>),
    /// A 2xx was sent. It is retransmitted until the ACK arrives, or until this time.
    Answered(Option<Backoff>, Timestamp, Answer),
    /// A final response other than 2xx was sent. Contains the server transaction of the INVITE, and
    /// the response for retransmissions.
    Refused(InviteServer, Box<[u8]>),
    /// The call is acknowledged. The dialog lasts until the caller sends a BYE, or until this time.
    /// The 2xx is kept only if we have to hang up, because our BYE is made from it.
    Talking(Timestamp, Option<Answer>),
    /// We have hung up. Contains the client transaction of our BYE, the BYE, and how the call
    /// ended.
    Leaving(OtherClient, PendingBye, Ending),
    /// The call has ended. It is kept until this time, with the BYE that ended it, if any.
    Over(Timestamp, Option<Ended>),
}

/// The BYE that ended a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// The CSeq number of the BYE.
    pub cseq: u32,
    /// Fingerprint of the transaction of the BYE, or of its last copy.
    pub key: u128,
}

/// The way in which an answered call ended without a BYE of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// We have hung up.
    HungUp,
    /// No ACK arrived for the 2xx.
    NotAcknowledged,
    /// The call lasted too long.
    Forgotten,
}

/// An incoming call, from its INVITE until no late copy can arrive.
#[derive(Debug)]
pub(crate) struct Call {
    /// Fingerprint of the INVITE's transaction.
    pub key: u128,
    /// Fingerprint of the Call-ID.
    pub dialog: u128,
    /// The flow on which responses are sent.
    pub flow: Flow,
    /// Arrival of the first INVITE.
    pub came: Timestamp,
    /// Time for which we talk before we hang up, or `None` to wait for the caller.
    pub talk: Option<Duration>,
    /// Time until which a copy of the CANCEL gets the same answer, or `None` without a CANCEL. A
    /// BYE that comes while the call rings sets this time too.
    pub cancelled: Option<Timestamp>,
    /// The BYE that ended the call while it rang, or `None` without one.
    pub early_bye: Option<Ended>,
    pub phase: Phase,
}

/// An action of the answerer for a call whose alarm fired.
#[derive(Debug)]
pub(crate) enum Action {
    Wait,
    /// Send the provisional response that is due.
    Ring,
    /// Send the final response.
    Decide(Box<Ringing>),
    /// Retransmit the final response or our BYE.
    Again,
    /// Hang up with a BYE made from the answer.
    HangUp(Answer, Ending),
    /// End the call.
    End(Ending),
    /// End the call. Our BYE was never answered.
    EndUnanswered(Ending),
    /// Remove the call from the table, because no late copies can arrive any more.
    Drop,
}

/// The relation of a BYE to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bye {
    /// The BYE ends the call.
    Ends,
    /// The BYE ends a call that rings, which is then rejected as if it had been cancelled.
    EndsEarly,
    /// The BYE is a copy of the one that ended the call.
    Again,
    /// The BYE matches no dialog that it could end.
    Unknown,
}

impl Call {
    /// Returns the time at which [`on_timeout`](Self::on_timeout) is next needed.
    pub fn due(&self) -> Timestamp {
        match &self.phase {
            Phase::New => Timestamp::NEVER,
            Phase::Ringing(ringing) => ringing.due(),
            Phase::Answered(resend, give_up, _) => {
                resend.map_or(*give_up, |resend| resend.at().min(*give_up))
            }
            Phase::Refused(invite, _) => invite.deadline().unwrap_or(Timestamp::ZERO),
            Phase::Leaving(bye, ..) => bye.deadline().unwrap_or(Timestamp::ZERO),
            Phase::Ignored(at) | Phase::Talking(at, _) | Phase::Over(at, _) => *at,
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ignored(_) | Phase::Over(..))
    }

    /// Returns whether the call was rejected and waits for the ACK.
    pub fn is_refused(&self) -> bool {
        matches!(self.phase, Phase::Refused(..))
    }

    /// Handles the expiry of [`due`](Self::due).
    pub fn on_timeout(&mut self, now: Timestamp, timing: &Timing) -> Action {
        if now < self.due() {
            return Action::Wait;
        }
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::New => Action::Wait,
            Phase::Ringing(mut ringing) => match ringing.on_timeout(now) {
                RingingAction::Provisional => {
                    self.phase = Phase::Ringing(ringing);
                    Action::Ring
                }
                RingingAction::Enough => Action::Decide(ringing),
            },
            // RFC 3261 §13.3.1.4: "If the server retransmits the 2xx response for 64*T1 seconds
            // without receiving an ACK, the dialog is confirmed, but the session SHOULD be
            // terminated. This is accomplished with a BYE".
            Phase::Answered(_, give_up, answer) if give_up <= now => {
                Action::HangUp(answer, Ending::NotAcknowledged)
            }
            // "an interval that starts at T1 seconds and doubles for each retransmission until
            // it reaches T2 seconds".
            Phase::Answered(resend, give_up, answer) => {
                let resend = resend.map(|resend| resend.double(now, timing, timing.t2));
                self.phase = Phase::Answered(resend, give_up, answer);
                Action::Again
            }
            Phase::Refused(invite, response) => {
                let (invite, firing) = invite.on_timer(now, timing);
                self.phase = Phase::Refused(invite, response);
                match firing {
                    Firing::Resend => Action::Again,
                    // RFC 3261 §17.2.1: timer H fired, "the ACK was never received". A CANCEL
                    // that came late has its own time (§17.2.2, timer J).
                    Firing::TimedOut => match self.cancelled.filter(|&until| until > now) {
                        Some(until) => {
                            self.phase = Phase::Over(until, self.early_bye);
                            Action::Wait
                        }
                        None => Action::Drop,
                    },
                    Firing::Silent => Action::Wait,
                }
            }
            Phase::Talking(_, Some(answer)) => Action::HangUp(answer, Ending::HungUp),
            Phase::Talking(_, None) => {
                self.finish(now, timing, None);
                Action::End(Ending::Forgotten)
            }
            Phase::Leaving(bye, pending_bye, ending) => {
                let (bye, firing) = bye.on_timer(now, timing);
                self.phase = Phase::Leaving(bye, pending_bye, ending);
                match firing {
                    Firing::Resend => Action::Again,
                    Firing::TimedOut => {
                        self.finish(now, timing, None);
                        Action::EndUnanswered(ending)
                    }
                    Firing::Silent => Action::Wait,
                }
            }
            over @ (Phase::Ignored(_) | Phase::Over(..)) => {
                self.phase = over;
                Action::Drop
            }
        }
    }

    /// Returns the message that is retransmitted until it is acknowledged or answered, with its
    /// flow, or `None` if the call has no such message.
    pub fn repeated(&self) -> Option<(Flow, &[u8])> {
        match &self.phase {
            Phase::Answered(.., answer) => Some((self.flow, answer.response())),
            Phase::Refused(_, response) => Some((self.flow, response)),
            Phase::Leaving(_, pending_bye, _) => Some((pending_bye.flow, &pending_bye.bytes)),
            _ => None,
        }
    }

    /// Handles an ACK. Returns whether it is the first ACK to a 2xx. Returns `None` if it does not
    /// acknowledge a response of this call.
    pub fn on_ack(&mut self, now: Timestamp, talk_max: Duration, timing: &Timing) -> Option<bool> {
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Answered(.., answer) => {
                // RFC 3261 §15: "the callee's UA MUST NOT send a BYE on a confirmed dialog until
                // it has received an ACK for its 2xx response".
                let until = now + self.talk.map_or(talk_max, |talk| talk.min(talk_max));
                self.phase = Phase::Talking(until, self.talk.map(|_| answer));
                Some(true)
            }
            Phase::Refused(..) => {
                // RFC 3261 §17.2.1: the Confirmed state absorbs further ACKs for T4 (timer I).
                // §17.2.2: the response to a CANCEL is repeated for 64·T1 (timer J).
                let until = (now + timing.t4).max(self.cancelled.unwrap_or_default());
                self.phase = Phase::Over(until, self.early_bye);
                Some(false)
            }
            other => {
                let known =
                    matches!(other, Phase::Talking(..) | Phase::Leaving(..) | Phase::Over(..));
                self.phase = other;
                known.then_some(false)
            }
        }
    }

    /// Handles a BYE of this dialog.
    pub fn on_bye(&mut self, now: Timestamp, bye: Ended, timing: &Timing) -> Bye {
        match &mut self.phase {
            // RFC 3261 §15.1.2 also applies to a call whose ACK was lost, and to one that both
            // sides end at once.
            Phase::Answered(..) | Phase::Talking(..) | Phase::Leaving(..) => {
                self.finish(now, timing, Some(bye));
                Bye::Ends
            }
            // RFC 3261 §15: "The caller's UA MAY send a BYE for either confirmed or early dialogs".
            Phase::Ringing(_) => {
                self.cancelled = self.cancelled.or(Some(now + timing.patience()));
                self.early_bye = Some(bye);
                Bye::EndsEarly
            }
            Phase::Refused(..) if self.early_bye.is_some_and(|early| early.cseq == bye.cseq) => {
                Bye::Again
            }
            Phase::Over(until, Some(ended)) if ended.cseq == bye.cseq => {
                // If a proxy has forgotten its transaction, a copy of the BYE starts another one at
                // the proxy, with its own timer J (RFC 3261 §17.2.2).
                if ended.key != bye.key {
                    (*until, *ended) = (now + timing.patience(), bye);
                }
                Bye::Again
            }
            _ => Bye::Unknown,
        }
    }

    /// Records that a CANCEL was answered. Its copies are answered for 64·T1 (RFC 3261 §17.2.2,
    /// timer J).
    pub fn on_cancel(&mut self, now: Timestamp, timing: &Timing) {
        let until = *self.cancelled.get_or_insert(now + timing.patience());
        if let Phase::Over(at, _) = &mut self.phase {
            *at = until.max(*at);
        }
    }

    /// Stops ringing. Returns the ringing state, or `None` if the call did not ring.
    pub fn stop_ringing(&mut self) -> Option<Box<Ringing>> {
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Ringing(ringing) => Some(ringing),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Returns whether our BYE waits for its response.
    pub fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving(..))
    }

    /// Handles a response to our BYE. Returns how the call ended, or `None` if it has not ended.
    // RFC 3261 §15.1.1: "If the response for the BYE is a 481 [...] or a 408 [...] or no response
    // at all is received for the BYE [...], the UAC MUST consider the session and the dialog
    // terminated." Any other refusal leaves nothing else to do.
    pub fn on_bye_response(
        &mut self,
        now: Timestamp,
        timing: &Timing,
        status: u16,
    ) -> Option<Ending> {
        let Phase::Leaving(bye, _, ending) = &mut self.phase else { return None };
        (*bye, _) = bye.on_response(now, timing, status);
        let ended = (!bye.is_pending()).then_some(*ending);
        if ended.is_some() {
            self.finish(now, timing, None);
        }
        ended
    }

    /// Ends the call. Late copies are absorbed for 64·T1.
    pub fn finish(&mut self, now: Timestamp, timing: &Timing, bye: Option<Ended>) {
        self.phase = Phase::Over(now + timing.patience(), bye);
    }
}
