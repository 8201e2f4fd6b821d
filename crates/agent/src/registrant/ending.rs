//! Ends registrations.

use super::{Registrant, Registration};
use crate::caller::Failure;
use crate::table::Id;

impl Registrant {
    /// Ends a registration with this outcome.
    pub(super) fn end(&mut self, id: Id, outcome: Result<(), Failure>) {
        let Some(registration) = self.registrations.remove(id) else { return };
        let Registration { user, intended, begun, .. } = registration;
        self.users[user as usize].is_waiting = false;
        let undelivered = self.connections.failure_since(begun, id, user, self.config.target);
        self.connections.end(id);
        self.stats.open = self.registrations.len() as u64;
        let Err(failure) = outcome else { return };
        if failure == Failure::Status(503) && self.is_measured(intended) {
            self.stats.measured.rejected += 1;
        }
        let failure = match (failure, undelivered) {
            (Failure::Timeout, Some(cause)) => Failure::Transport(cause),
            (failure, _) => failure,
        };
        self.stats.failed.note(failure);
    }
}
