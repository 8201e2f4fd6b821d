//! Ends calls and measures their BYEs. A message that could not be sent may end its call too.

use std::net::SocketAddr;

use tidegate_sip::{Method, branch_in_quote};
use tidegate_world::{Failure as Undelivered, Timestamp};

use super::call::Outcome;
use super::request::Branch;
use super::{Caller, Failure};
use crate::dialog::Dialog;
use crate::identity::Mark;
use crate::table::Id;

impl Caller {
    /// Ends a call with this outcome. If the call was not set up, its person may call again, unless
    /// the person hung up before.
    pub(super) fn end(&mut self, now: Timestamp, id: Id, outcome: Outcome) {
        let outcome = match outcome {
            Err(Failure::Timeout) => Err(self.timed_out(id)),
            outcome => outcome,
        };
        let Some(call) = self.calls.remove(id) else { return };
        self.connections.end(id);
        self.stats.open = self.calls.len() as u64;
        let failure = match outcome {
            Ok(()) => {
                self.stats.completed += 1;
                self.stats.talking -= 1;
                return;
            }
            Err(failure) => {
                let rejected = failure == Failure::Status(503) && self.is_measured(call.intended);
                self.stats.measured.rejected += u64::from(rejected);
                failure
            }
        };
        self.stats.failed.note(failure);
        if call.is_served() {
            self.stats.talking -= 1;
        } else if call.has_hung_up() {
            self.stats.abandoned_open -= 1;
        } else {
            self.on_unserved(now, call.person);
        }
    }

    /// Lets the person of a call hang up if the call is not answered and the patience of the person
    /// has ended. The person may call again even if the transactions of the call go on.
    pub(super) fn hang_up(&mut self, now: Timestamp, id: Id) {
        let Some(person) = self.calls.get(id).and_then(|call| call.hang_up(now)) else { return };
        self.stats.abandoned_open += 1;
        self.on_unserved(now, person);
    }

    /// Returns the failure of a call whose INVITE got no response.
    fn timed_out(&mut self, id: Id) -> Failure {
        let server = self.server_of(id);
        let user = self.requests.user_of(&self.namer.mark(id));
        let begun = self.calls.get(id).map_or(Timestamp::NEVER, |call| call.begun);
        let cause = self.connections.failure_since(begun, id, user, server);
        cause.map_or(Failure::Timeout, Failure::Transport)
    }

    /// Handles a request that could not be sent on its connection. Ends its call, unless the
    /// request is an ACK or its transaction has ended.
    //
    // RFC 3261 §8.1.3.1: "If a fatal transport error is reported by the transport layer (generally,
    // due to fatal ICMP errors in UDP or connection failures in TCP), the condition MUST be treated
    // as a 503 (Service Unavailable) status code."
    pub(super) fn on_unsent(&mut self, now: Timestamp, failure: &Undelivered) {
        self.stats.unsent += 1;
        let branch = branch_in_quote(&failure.quote).and_then(Branch::split);
        let Some((Branch::Invite | Branch::Bye, text)) = branch else { return };
        let Some(mark) = self.namer.recognise(text) else { return };
        let name = failure.quote.split(|&byte| byte == b' ').next().unwrap_or_default();
        let method = Method::from_bytes(name);
        let Some(call) = self.calls.get(mark.id) else { return };
        let action = call.on_unsent(method, failure.cause);
        self.action(now, mark, action);
        self.start_delayed(now);
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
