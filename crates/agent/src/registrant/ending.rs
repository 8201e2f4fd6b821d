//! Ends registrations.

use super::Registrant;
use crate::caller::Failure;
use crate::table::Id;

impl Registrant {
    /// Ends a registration with this outcome.
    pub(super) fn end(&mut self, id: Id, outcome: Result<(), Failure>) {
        let Some(registration) = self.registrations.remove(id) else { return };
        self.users[registration.user as usize].is_waiting = false;
        self.connections.end(id);
        self.stats.open = self.registrations.len() as u64;
        let Err(failure) = outcome else { return };
        if failure == Failure::Status(503) && self.is_measured(registration.intended) {
            self.stats.measured.rejected += 1;
        }
        let failure = match (failure, self.undelivered) {
            (Failure::Timeout, Some((at, cause))) if at >= registration.begun => {
                Failure::Transport(cause)
            }
            (failure, _) => failure,
        };
        self.stats.failed.note(failure);
    }
}
