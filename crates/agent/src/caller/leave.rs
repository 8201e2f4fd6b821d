//! Ends calls, and measures their BYEs.

use tidegate_world::Timestamp;

use super::Caller;
use crate::identity::Mark;

impl Caller {
    /// Counts the first BYE of a call.
    pub(super) fn record_bye(&mut self, mark: Mark) {
        let measured = self.measured_bye(mark).is_some();
        self.stats.measured.byes += u64::from(measured);
    }

    /// Counts the 2xx to a BYE. A second 2xx finds no call.
    pub(super) fn record_bye_answered(&mut self, mark: Mark, arrived: Timestamp) {
        let Some(sent) = self.measured_bye(mark) else { return };
        let delay = arrived.since(sent);
        let measured = &mut self.stats.measured;
        measured.byes_in_time += u64::from(delay <= self.config.deadline);
        measured.bye_delay.record(delay);
    }

    /// Returns the time of a call's first BYE, if it lay between the warm-up and the end of the
    /// load.
    fn measured_bye(&mut self, mark: Mark) -> Option<Timestamp> {
        let sent = self.calls.get(mark.id).and_then(|call| call.left())?;
        (self.is_measured(sent) && sent < self.last_begin()).then_some(sent)
    }
}
