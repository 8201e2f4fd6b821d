//! One incoming call: an INVITE server transaction, its dialog, and possibly our own BYE.
//!
//! A [`Call`] is only the state: it parses no messages. It stays in memory for 64·T1 after its end.
//! In this time, a copy of its INVITE does not count as a new call (RFC 6026 §7.1, timer L), and a
//! retransmitted BYE gets the same answer (RFC 3261 §17.2.2, timer J).

use std::time::Duration;

use tidegate_transaction::{Backoff, Firing, InviteServer, OtherClient, Timing};
use tidegate_world::{Flow, Timestamp};

use super::bye_sender::{Answer, PendingBye};
use super::ringing::{Ringing, RingingAction};

#[derive(Debug)]
pub(crate) enum Phase {
    /// The INVITE has arrived, and no response was sent.
    New,
    /// The answerer intentionally sends no response. The call is forgotten at this time.
    Ignored(Timestamp),
    /// The call rings. It has no final response yet.
    Ringing(Box<Ringing>),
    /// A 2xx was sent, and its ACK has not arrived. Contains the timer of the retransmissions of
    /// the 2xx, the time at which the answerer stops waiting for the ACK, and the 2xx.
    Answered(Option<Backoff>, Timestamp, Answer),
    /// A final response other than 2xx was sent. Contains the server transaction of the INVITE, and
    /// the response for retransmissions.
    Rejected(InviteServer, Box<[u8]>),
    /// The ACK to the 2xx has arrived. The call ends when the caller sends a BYE, or at this time.
    /// The 2xx is kept only for a call that the answerer ends, because the BYE is written from the
    /// 2xx.
    Talking(Timestamp, Option<Answer>),
    /// We have sent a BYE. Contains its client transaction, the BYE, and the reason for the end of
    /// the call.
    Leaving(OtherClient, PendingBye, Ending),
    /// The call has ended. Contains the time at which the call is forgotten, and the BYE by which
    /// the caller ended the call, if there was one.
    Over(Timestamp, Option<Ended>),
}

/// The BYE that ended a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// The CSeq number of the BYE.
    pub cseq: u32,
    /// Fingerprint of the transaction of the BYE. If a copy of the BYE comes with another
    /// transaction, the fingerprint of that transaction replaces this one.
    pub key: u128,
}

/// The reason for the end of an answered call that the caller did not end with a BYE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The answerer hung up.
    HungUp,
    /// No ACK arrived for the 2xx.
    NotAcknowledged,
    /// The call lasted for [`talk_max`](crate::AnswererConfig::talk_max) without a BYE.
    Forgotten,
}

/// An incoming call. It is kept until no retransmission of its messages can arrive.
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
    /// Time from the ACK until the answerer hangs up, or `None` if the caller hangs up.
    pub talk: Option<Duration>,
    /// Time until which a retransmitted CANCEL gets the same answer. It is `None` until a CANCEL,
    /// or a BYE for the ringing call, has arrived.
    pub cancelled: Option<Timestamp>,
    /// The BYE by which the caller ended the call before it was answered, or `None` if there was
    /// none.
    pub early_bye: Option<Ended>,
    pub phase: Phase,
}

/// An action that a call requires when its alarm fires.
#[derive(Debug)]
pub(crate) enum Action {
    Wait,
    /// Send the provisional response that is due.
    Ring,
    /// Send the final response. If the call is to get none, forget the call.
    Decide(Box<Ringing>),
    /// Retransmit the final response or our BYE.
    Again,
    /// Hang up with a BYE, which is written from the [`Answer`].
    HangUp(Answer, Ending),
    /// Count the call as ended, without sending a message.
    End(Ending),
    /// Count the call as ended by our BYE, which was never answered.
    EndUnanswered(Ending),
    /// Remove the call from the table, because no late copies can arrive any more.
    Drop,
}

/// The effect of a received BYE on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bye {
    /// The BYE ends the call.
    Ends,
    /// The BYE ends a ringing call, which is then rejected as after a CANCEL.
    EndsEarly,
    /// The BYE is a copy of the one that ended the call.
    Again,
    /// The call has no dialog that the BYE could end.
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
            Phase::Rejected(invite, _) => invite.deadline().unwrap_or(Timestamp::ZERO),
            Phase::Leaving(bye, ..) => bye.deadline().unwrap_or(Timestamp::ZERO),
            Phase::Ignored(at) | Phase::Talking(at, _) | Phase::Over(at, _) => *at,
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ignored(_) | Phase::Over(..))
    }

    /// Returns whether the call was rejected and waits for the ACK.
    pub fn is_rejected(&self) -> bool {
        matches!(self.phase, Phase::Rejected(..))
    }

    /// Returns the action that is required at the time [`due`](Self::due).
    pub(crate) fn on_timeout(&mut self, now: Timestamp, timing: &Timing) -> Action {
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
            Phase::Rejected(invite, response) => {
                let (invite, firing) = invite.on_timer(now, timing);
                self.phase = Phase::Rejected(invite, response);
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

    /// Returns the sent message that waits for an ACK or a response, and the flow for its
    /// retransmissions. Returns `None` if there is no such message.
    pub fn repeated(&self) -> Option<(Flow, &[u8])> {
        match &self.phase {
            Phase::Answered(.., answer) => Some((self.flow, answer.response())),
            Phase::Rejected(_, response) => Some((self.flow, response)),
            Phase::Leaving(_, pending_bye, _) => Some((pending_bye.flow, &pending_bye.bytes)),
            _ => None,
        }
    }

    /// Handles an ACK. Returns whether the ACK is the first one to a 2xx, or `None` if the ACK
    /// belongs to no response of this call.
    pub fn on_ack(&mut self, now: Timestamp, talk_max: Duration, timing: &Timing) -> Option<bool> {
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Answered(.., answer) => {
                // RFC 3261 §15: "the callee's UA MUST NOT send a BYE on a confirmed dialog until
                // it has received an ACK for its 2xx response".
                let until = now + self.talk.map_or(talk_max, |talk| talk.min(talk_max));
                self.phase = Phase::Talking(until, self.talk.map(|_| answer));
                Some(true)
            }
            Phase::Rejected(..) => {
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
            Phase::Rejected(..) if self.early_bye.is_some_and(|early| early.cseq == bye.cseq) => {
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

    /// Records that a CANCEL was answered. Copies of the CANCEL are answered for 64·T1 (RFC 3261
    /// §17.2.2, timer J).
    pub fn on_cancel(&mut self, now: Timestamp, timing: &Timing) {
        let until = *self.cancelled.get_or_insert(now + timing.patience());
        if let Phase::Over(at, _) = &mut self.phase {
            *at = until.max(*at);
        }
    }

    /// Stops ringing. Returns the ringing state, or `None` if the call did not ring.
    pub(crate) fn stop_ringing(&mut self) -> Option<Box<Ringing>> {
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

    /// Handles a response to our BYE. Returns the reason for the end of the call, or `None` if the
    /// call has not ended.
    // RFC 3261 §15.1.1: "If the response for the BYE is a 481 [...] or a 408 [...] or no response
    // at all is received for the BYE [...], the UAC MUST consider the session and the dialog
    // terminated." Any other rejection leaves nothing else to do.
    pub(crate) fn on_bye_response(
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

    /// Marks the call as ended. `bye` is the BYE of the caller that ended it, if there was one. The
    /// call is kept for 64·T1 to recognise retransmissions.
    pub fn finish(&mut self, now: Timestamp, timing: &Timing, bye: Option<Ended>) {
        self.phase = Phase::Over(now + timing.patience(), bye);
    }
}
