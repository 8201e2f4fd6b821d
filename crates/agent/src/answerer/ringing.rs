//! A call that rings.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::intent::Intent;
use super::mix::Behaviour;

// RFC 3261 §13.3.1.1: "If the UAS desires an extended period of time to answer the INVITE, it will
// need to ask for an "extension" in order to prevent proxies from canceling the transaction. [...]
// To prevent cancellation, the UAS MUST send a non-100 provisional response at every minute".
const EXTENSION: Duration = Duration::from_secs(60);

// RFC 3261 §17.2.1: "MUST generate a 100 (Trying) response unless it knows that the TU will
// generate a provisional or final response within 200 ms".
const TRYING: Duration = Duration::from_millis(200);

/// The ringing of a call: its provisional responses, and their times.
#[derive(Debug)]
pub(crate) struct Ringing {
    pub invite: Box<[u8]>,
    pub behaviour: Behaviour,
    /// Number of provisional responses to send while the call rings.
    statuses: u8,
    /// Number of provisional responses sent so far, without repetitions.
    sent: u8,
    /// True if the call gets a 100 when `statuses` is 0, either because a 100 is configured or
    /// because the call rings for more than 200 ms.
    says_trying: bool,
    /// Time between provisional responses.
    step: Duration,
    /// Time of the next provisional response, whether it is new or repeated.
    next: Timestamp,
    /// Time at which the ringing ends. If the behaviour has a final response, it is sent then.
    end: Timestamp,
}

/// The provisional response that a ringing call got last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProvisionalSent {
    /// No response was sent, because the final response follows within 200 ms.
    Nothing,
    /// A 100 was sent.
    Trying,
    /// The provisional response with this index in the configuration was sent.
    Progress(usize),
}

/// The next action for a ringing call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingingAction {
    /// Send the provisional response that [`said`](Ringing::said) returns.
    Provisional,
    /// End the ringing, because its time is over. If the behaviour has a final response, send it.
    Enough,
}

impl Ringing {
    /// Starts ringing at `now`, for at most `longest`. Of the `statuses` provisional responses, the
    /// first is sent at once and the others at equal intervals. If `statuses` is 0, a 100 is sent
    /// if `says_trying` is set or the call rings for more than 200 ms.
    pub fn new(
        now: Timestamp,
        invite: &[u8],
        intent: Intent,
        statuses: usize,
        says_trying: bool,
        longest: Duration,
    ) -> Self {
        let statuses = u8::try_from(statuses).unwrap_or(u8::MAX);
        let step = intent.ring / u32::from(statuses).max(1);
        let end = match intent.behaviour {
            Behaviour::Ring => now + longest,
            _ => now + intent.ring.min(longest),
        };
        let mut ringing = Self {
            invite: invite.into(),
            behaviour: intent.behaviour,
            statuses,
            sent: 0,
            says_trying: says_trying || end > now + TRYING,
            step,
            next: Timestamp::NEVER,
            end,
        };
        ringing.advance(now);
        ringing
    }

    /// Returns the time at which [`on_timeout`](Self::on_timeout) is next needed.
    pub fn due(&self) -> Timestamp {
        self.next.min(self.end)
    }

    /// Returns the most recent provisional response. A copy of the INVITE gets the same response
    /// again.
    pub fn said(&self) -> ProvisionalSent {
        match usize::from(self.sent).checked_sub(1) {
            Some(number) => ProvisionalSent::Progress(number),
            None if self.says_trying => ProvisionalSent::Trying,
            None => ProvisionalSent::Nothing,
        }
    }

    /// Returns the action that is required at the time [`due`](Self::due).
    pub(crate) fn on_timeout(&mut self, now: Timestamp) -> RingingAction {
        if now >= self.end {
            return RingingAction::Enough;
        }
        self.advance(now);
        RingingAction::Provisional
    }

    /// Advances to the next provisional response. After the last one, schedules its repetition.
    fn advance(&mut self, now: Timestamp) {
        self.sent = (self.sent + 1).min(self.statuses);
        self.next = match self.sent {
            0 => Timestamp::NEVER,
            sent if sent < self.statuses => now + self.step.min(EXTENSION),
            _ => now + EXTENSION,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the provisional responses after the first one, each with its time in seconds and its
    /// number, and the time at which ringing ends.
    fn schedule(behaviour: Behaviour, ring: u64, statuses: usize) -> (Vec<(u64, usize)>, u64) {
        let intent = Intent { behaviour, ring: Duration::from_secs(ring), talk: None };
        let longest = Duration::from_secs(200);
        let mut ringing = Ringing::new(Timestamp::ZERO, b"", intent, statuses, false, longest);
        let mut sent = Vec::new();
        loop {
            let now = ringing.due();
            match ringing.on_timeout(now) {
                RingingAction::Provisional => match ringing.said() {
                    ProvisionalSent::Progress(number) => {
                        sent.push((now.as_secs_f64() as u64, number))
                    }
                    other => panic!("{other:?} was said at once"),
                },
                RingingAction::Enough => return (sent, now.as_secs_f64() as u64),
            }
        }
    }

    #[test]
    fn provisional_responses_come_at_equal_distances() {
        assert_eq!(schedule(Behaviour::Answer, 9, 3), (vec![(3, 1), (6, 2)], 9));
        assert_eq!(schedule(Behaviour::Reject(486), 9, 1), (vec![], 9));
        assert_eq!(schedule(Behaviour::Answer, 9, 0), (vec![], 9));
    }

    #[test]
    fn a_ringing_call_repeats_its_response_every_minute() {
        let extended = vec![(60, 0), (120, 0), (180, 0)];
        assert_eq!(schedule(Behaviour::Ring, 5, 1), (extended, 200));
        assert_eq!(schedule(Behaviour::Answer, 70, 1), (vec![(60, 0)], 70));
        assert_eq!(
            schedule(Behaviour::Ring, 10, 2),
            (vec![(5, 1), (65, 1), (125, 1), (185, 1)], 200)
        );
    }
}
