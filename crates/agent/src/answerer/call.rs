//! One incoming call: an INVITE server transaction and its dialog.
//!
//! Pure state without parsing. After its end a call stays for 64·T1, so that a late copy
//! of its INVITE is not taken for a new call (RFC 6026 §7.1, timer L) and a repeated BYE is
//! answered as before (RFC 3261 §17.2.2, timer J).

use tidegate_world::{Path, Timestamp};

use crate::timer::{Fired, Repeat, Timers};

/// What has become of a call.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The final response is due at a time; the INVITE is kept to make it from.
    Ringing(Timestamp, Box<[u8]>),
    /// 2xx sent, repeated until the ACK comes.
    // RFC 3261 §13.3.1.4: "an interval that starts at T1 seconds and doubles for each
    // retransmission until it reaches T2 seconds".
    Answered(Repeat, Box<[u8]>),
    /// Any other final response sent, repeated until the ACK comes: timers G and H.
    Refused(Repeat, Box<[u8]>),
    /// Acknowledged: the dialog lasts until a BYE, or until this time.
    Talking(Timestamp),
    /// Over; kept until a time. The CSeq of the BYE that ended it, if one did.
    Over(Timestamp, Option<u32>),
}

/// An incoming call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Fingerprint of the INVITE's transaction.
    pub key: u128,
    /// Fingerprint of the Call-ID.
    pub dialog: u128,
    /// Where responses go.
    pub path: Path,
    pub phase: Phase,
}

/// What the answerer has to do for a call whose alarm fired.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The final response to this INVITE is due.
    Decide(Box<[u8]>),
    /// Send the final response again.
    Again,
    /// No ACK came to the 2xx.
    NotAcknowledged,
    /// No BYE came for too long.
    Forgotten,
    /// Nothing is left to absorb.
    Drop,
}

/// What a BYE is to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bye {
    /// It ends the call.
    Ends,
    /// A copy of the one that ended it.
    Again,
    /// It finds no dialog.
    Unknown,
}

impl Call {
    /// When [`on_timeout`](Self::on_timeout) is next needed.
    pub fn due(&self) -> Timestamp {
        match &self.phase {
            Phase::Ringing(at, _) | Phase::Talking(at) | Phase::Over(at, _) => *at,
            Phase::Answered(repeat, _) | Phase::Refused(repeat, _) => repeat.due(),
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(..))
    }

    /// What [`due`](Self::due) was waiting for has not come.
    pub fn on_timeout(&mut self, now: Timestamp, timers: &Timers) -> Act {
        match &mut self.phase {
            Phase::Ringing(_, invite) => Act::Decide(std::mem::take(invite)),
            Phase::Answered(repeat, _) => match repeat.fire(now) {
                Fired::Again => Act::Again,
                Fired::GiveUp => {
                    self.finish(now, timers, None);
                    Act::NotAcknowledged
                }
            },
            Phase::Refused(repeat, _) => match repeat.fire(now) {
                Fired::Again => Act::Again,
                // RFC 3261 §17.2.1: timer H fired, "the ACK was never received".
                Fired::GiveUp => Act::Drop,
            },
            Phase::Talking(_) => {
                self.finish(now, timers, None);
                Act::Forgotten
            }
            Phase::Over(..) => Act::Drop,
        }
    }

    /// The final response, while it may have to be sent again.
    pub fn response(&self) -> Option<&[u8]> {
        match &self.phase {
            Phase::Answered(_, response) | Phase::Refused(_, response) => Some(response),
            _ => None,
        }
    }

    /// An ACK: whether it is the first to a 2xx. `None` if it acknowledges nothing of this call.
    pub fn on_ack(&mut self, now: Timestamp, until: Timestamp, timers: &Timers) -> Option<bool> {
        match self.phase {
            Phase::Ringing(..) => None,
            Phase::Answered(..) => {
                self.phase = Phase::Talking(until);
                Some(true)
            }
            Phase::Refused(..) => {
                // RFC 3261 §17.2.1: the Confirmed state absorbs further ACKs for T4 (timer I).
                self.phase = Phase::Over(now + timers.t4, None);
                Some(false)
            }
            Phase::Talking(_) | Phase::Over(..) => Some(false),
        }
    }

    /// A BYE of this dialog with this CSeq number.
    pub fn on_bye(&mut self, now: Timestamp, cseq: u32, timers: &Timers) -> Bye {
        match self.phase {
            // RFC 3261 §15.1.2 holds for a call whose ACK was lost as well.
            Phase::Answered(..) | Phase::Talking(_) => {
                self.finish(now, timers, Some(cseq));
                Bye::Ends
            }
            Phase::Over(_, Some(ended)) if ended == cseq => Bye::Again,
            Phase::Ringing(..) | Phase::Refused(..) | Phase::Over(..) => Bye::Unknown,
        }
    }

    /// The call is over; late copies are absorbed for 64·T1.
    fn finish(&mut self, now: Timestamp, timers: &Timers, bye: Option<u32>) {
        self.phase = Phase::Over(now + timers.patience(), bye);
    }
}
