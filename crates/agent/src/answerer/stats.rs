//! What an answerer counts.

use std::fmt;

use serde::Serialize;

/// What came to an answerer and what it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnswererStats {
    /// New calls.
    pub calls: u64,
    /// Of these, calls not taken because the table was full or the agent was stopping: 503.
    pub overflowed: u64,
    /// Requests left without any response on purpose.
    pub ignored: u64,
    /// Calls answered with 200.
    pub answered: u64,
    /// Calls whose 200 was acknowledged.
    pub acknowledged: u64,
    /// Answered calls that ended with a BYE.
    pub completed: u64,
    /// Calls refused with the status asked for, or for being within a dialog.
    pub refused: u64,
    /// Calls cancelled while ringing.
    pub cancelled: u64,
    /// Answered calls that were never acknowledged.
    pub not_acknowledged: u64,
    /// Acknowledged calls that never ended with a BYE.
    pub forgotten: u64,
    /// Calls that are not over.
    pub open: u64,
    /// Final responses to an INVITE sent again.
    pub repeated: u64,
    /// Copies of an INVITE already seen.
    pub invites_again: u64,
    /// Copies of a BYE already answered.
    pub byes_again: u64,
    /// OPTIONS, MESSAGE and REGISTER requests, all answered with 200.
    pub others: u64,
    /// Requests of methods that are not understood: 405.
    pub not_allowed: u64,
    /// ACK, BYE and CANCEL requests that belong to no call.
    pub stray: u64,
    /// Responses, though nothing was asked.
    pub unexpected: u64,
    /// Packets that are not SIP, and requests that cannot be answered.
    pub malformed: u64,
    /// Deliveries that the transport reported as failed.
    pub undelivered: u64,
}

impl AnswererStats {
    /// Adds what another answerer did.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            calls,
            overflowed,
            ignored,
            answered,
            acknowledged,
            completed,
            refused,
            cancelled,
            not_acknowledged,
            forgotten,
            open,
            repeated,
            invites_again,
            byes_again,
            others,
            not_allowed,
            stray,
            unexpected,
            malformed,
            undelivered,
        } = other;
        self.calls += calls;
        self.overflowed += overflowed;
        self.ignored += ignored;
        self.answered += answered;
        self.acknowledged += acknowledged;
        self.completed += completed;
        self.refused += refused;
        self.cancelled += cancelled;
        self.not_acknowledged += not_acknowledged;
        self.forgotten += forgotten;
        self.open += open;
        self.repeated += repeated;
        self.invites_again += invites_again;
        self.byes_again += byes_again;
        self.others += others;
        self.not_allowed += not_allowed;
        self.stray += stray;
        self.unexpected += unexpected;
        self.malformed += malformed;
        self.undelivered += undelivered;
    }
}

/// A table, one line for each group.
impl fmt::Display for AnswererStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, answered, acknowledged, completed, refused, cancelled, .. } = self;
        writeln!(
            f,
            "calls           {calls}: answered {answered}, acknowledged {acknowledged}, \
             completed {completed}, refused {refused}, cancelled {cancelled}"
        )?;
        writeln!(
            f,
            "lost            not acknowledged {}, forgotten {}, no room {}, ignored {}, open {}",
            self.not_acknowledged, self.forgotten, self.overflowed, self.ignored, self.open
        )?;
        writeln!(
            f,
            "again           INVITE {}, BYE {}, final responses sent {}",
            self.invites_again, self.byes_again, self.repeated
        )?;
        writeln!(
            f,
            "other messages  answered {}, not allowed {}, stray {}, unexpected {}, malformed {}, \
             undelivered {}",
            self.others,
            self.not_allowed,
            self.stray,
            self.unexpected,
            self.malformed,
            self.undelivered
        )
    }
}
