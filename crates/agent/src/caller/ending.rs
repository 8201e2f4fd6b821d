//! Ends calls, and measures their BYEs.

use std::net::SocketAddr;

use tidegate_world::Timestamp;

use super::call::Outcome;
use super::request::Branch;
use super::{Caller, Failure};
use crate::dialog::Dialog;
use crate::identity::Mark;
use crate::table::Id;

impl Caller {
    /// Ends a call with this outcome. If the call was not set up, its person may call again.
    pub(super) fn end(&mut self, now: Timestamp, id: Id, outcome: Outcome) {
        let Some(call) = self.calls.remove(id) else { return };
        self.connections.end(id);
        self.stats.open = self.calls.len() as u64;
        let failure = match outcome {
            Ok(()) => {
                self.stats.completed += 1;
                self.stats.talking -= 1;
                return;
            }
            Err(Failure::Timeout) => match self.undelivered {
                Some((at, cause)) if at >= call.begun => Failure::Transport(cause),
                _ => Failure::Timeout,
            },
            Err(failure) => {
                let rejected = failure == Failure::Status(503) && self.is_measured(call.intended);
                self.stats.measured.rejected += u64::from(rejected);
                failure
            }
        };
        self.stats.failed.note(failure);
        if call.is_served() {
            self.stats.talking -= 1;
        } else {
            self.on_unserved(now, call.person);
        }
    }

    /// Ends a dialog that belongs to no call: the dialog of another branch of a forked INVITE, or a
    /// dialog whose 2xx came after the call had ended.
    // RFC 3261 §13.2.2.4: "If, after acknowledging any 2xx response to an INVITE, the UAC does not
    // want to continue with that dialog, then the UAC MUST terminate the dialog by sending a BYE
    // request". Each copy of the 2xx causes a BYE, so the BYE needs no timer.
    pub(super) fn hang_up_stray(&mut self, mark: &Mark, dialog: &Dialog, server: SocketAddr) {
        self.stats.late += 1;
        let mut bye = self.pool.take();
        self.requests.bye(Branch::StrayBye, mark, dialog, &mut bye);
        self.send(mark, dialog.hop(), server, bye);
    }

    /// Counts the BYE of a call, if it was sent in the measured time.
    pub(super) fn record_bye(&mut self, mark: Mark) {
        let measured = self.measured_bye(mark).is_some();
        self.stats.measured.byes += u64::from(measured);
    }

    /// Counts the 2xx to the BYE of a call. A copy of the 2xx is not counted, because the call has
    /// ended.
    pub(super) fn record_bye_answered(&mut self, mark: Mark, arrived: Timestamp) {
        let Some(sent) = self.measured_bye(mark) else { return };
        let delay = arrived.since(sent);
        let measured = &mut self.stats.measured;
        measured.byes_in_time += u64::from(delay <= self.config.deadline);
        measured.bye_delay.record(delay);
    }

    /// Returns the time at which the BYE of a call was first sent, or `None` if this time is
    /// outside the measured time or after the end of the load.
    fn measured_bye(&mut self, mark: Mark) -> Option<Timestamp> {
        let sent = self.calls.get(mark.id).and_then(|call| call.left())?;
        (self.is_measured(sent) && sent < self.last_begin()).then_some(sent)
    }
}
