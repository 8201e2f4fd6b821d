//! The counts of an answerer.

use std::fmt;

use serde::Serialize;
use tidegate_world::add_fields;

/// Counts of an answerer.
///
/// When no call is open, `calls` is the sum of `overflowed`, `silent`, `unanswerable`,
/// `unanswered`, `cancelled`, `rejected` and `answered`. Then `answered` is the sum of `completed`,
/// `hung_up`, `not_acknowledged` and `forgotten`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnswererStats {
    /// Calls received. A copy of an INVITE is not a new call.
    pub calls: u64,
    /// Calls that were rejected with 503, because the table was full or the answerer was draining.
    pub overflowed: u64,
    /// Calls to which the answerer intentionally sent no response. If it never responds to any
    /// call, it counts no calls, and counts their requests in `ignored`.
    pub silent: u64,
    /// Calls that got no final response because it could not be written, for example because it was
    /// too long for a datagram.
    pub unanswerable: u64,
    /// Calls that rang for [`talk_max`](crate::AnswererConfig::talk_max) without a CANCEL, and were
    /// then forgotten.
    pub unanswered: u64,
    /// Calls that the caller ended while they rang, by a CANCEL or a BYE.
    pub cancelled: u64,
    /// Calls rejected with the configured status, and INVITEs within a dialog, which are always
    /// rejected.
    pub rejected: u64,
    /// Calls answered with 200.
    pub answered: u64,
    /// Answered calls that the caller ended with a BYE.
    pub completed: u64,
    /// Answered calls that the answerer ended, with a BYE if one could be written.
    pub hung_up: u64,
    /// Answered calls whose ACK never came. The answerer ended them, with a BYE if one could be
    /// written.
    pub not_acknowledged: u64,
    /// Acknowledged calls that the answerer forgot because neither end sent a BYE.
    pub forgotten: u64,
    /// Calls whose 200 was acknowledged.
    pub acknowledged: u64,
    /// Calls whose ACK came within [`deadline`](crate::AnswererConfig::deadline) of the arrival of
    /// their first INVITE.
    ///
    /// Paper 002 §4.2 counts as goodput the calls whose five messages from INVITE to ACK are all
    /// delivered within 10 s. Only the caller knows when the INVITE was first sent, and only the
    /// callee sees the ACK arrive. So the caller's
    /// [`set_up_in_time`](crate::CallerStats::set_up_in_time) includes the travel time of the
    /// INVITE but not that of the ACK. This count includes the travel time of the ACK but not that
    /// of the INVITE. Both counts are at least as large as the goodput of the paper.
    pub acknowledged_in_time: u64,
    /// Calls that have not ended.
    pub open: u64,
    /// Retransmissions of final responses and BYEs by the answerer.
    pub repeated: u64,
    /// BYEs of the answerer that got no response.
    pub byes_unanswered: u64,
    /// Requests that intentionally got no response.
    pub ignored: u64,
    /// Received retransmissions of INVITEs.
    pub invites_again: u64,
    /// Received retransmissions of BYEs that had already been answered.
    pub byes_again: u64,
    /// OPTIONS, MESSAGE and REGISTER requests, and all requests in
    /// [`echo`](crate::AnswererConfig::echo) mode. They were answered with 200.
    pub others: u64,
    /// Requests of methods that the answerer does not support. They were answered with 405.
    pub not_allowed: u64,
    /// ACK, BYE and CANCEL requests that belong to no call.
    pub stray: u64,
    /// Responses to a BYE of the answerer that arrived after the call had ended.
    pub late: u64,
    /// Responses that do not match any request of the answerer.
    pub unexpected: u64,
    /// Packets that are not SIP, and requests that cannot be answered.
    pub malformed: u64,
    /// Messages whose delivery the transport reported as failed.
    pub undelivered: u64,
}

impl AnswererStats {
    /// Adds the counts of another answerer.
    pub fn merge(&mut self, other: &Self) {
        add_fields! { self += other {
            calls, overflowed, silent, unanswerable, unanswered, cancelled, rejected, answered,
            completed, hung_up, not_acknowledged, forgotten, acknowledged, acknowledged_in_time,
            open, repeated, byes_unanswered, ignored, invites_again, byes_again, others,
            not_allowed, stray, late, unexpected, malformed, undelivered
        } }
    }
}

/// Formats the counts as a table. Each line has the counts of one topic.
impl fmt::Display for AnswererStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, answered, rejected, cancelled, completed, hung_up, .. } = self;
        writeln!(
            f,
            "calls           {calls}: answered {answered}, rejected {rejected}, cancelled {cancelled}, \
             completed {completed}, hung up {hung_up}"
        )?;
        writeln!(
            f,
            "acknowledged    {}, in time {}",
            self.acknowledged, self.acknowledged_in_time
        )?;
        writeln!(
            f,
            "lost            not acknowledged {}, forgotten {}, no room {}, silent {}, unanswered {}, \
             unanswerable {}, open {}",
            self.not_acknowledged,
            self.forgotten,
            self.overflowed,
            self.silent,
            self.unanswered,
            self.unanswerable,
            self.open
        )?;
        writeln!(
            f,
            "again           INVITE {}, BYE {}, sent {}",
            self.invites_again, self.byes_again, self.repeated
        )?;
        writeln!(
            f,
            "other messages  answered {}, not allowed {}, ignored {}, stray {}, unexpected {}, \
             late {}, malformed {}, undelivered {}",
            self.others,
            self.not_allowed,
            self.ignored,
            self.stray,
            self.unexpected,
            self.late,
            self.malformed,
            self.undelivered
        )
    }
}
