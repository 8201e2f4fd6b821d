//! The phase of a process between its start and its end, which `/readyz` reports.

use std::sync::atomic::{AtomicU8, Ordering};

use tidegate_world::unit_enum;

unit_enum! {
    /// The phase of a process. A process goes through the phases in this order. Each name is one
    /// word in lower case.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Phase {
        /// Sockets are being opened.
        Starting = "starting",
        /// New calls are accepted.
        Admitting = "admitting",
        /// The process was asked to stop, and only existing work continues.
        Draining = "draining",
    }
}

/// The phase of this process, shared by its threads.
#[derive(Debug)]
pub struct Life(AtomicU8);

impl Life {
    /// Creates the phase of a starting process.
    pub const fn new() -> Self {
        Self(AtomicU8::new(Phase::Starting as u8))
    }

    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Admitting,
            _ => Phase::Draining,
        }
    }

    /// Advances to `phase`. Does nothing if the process has already gone beyond that phase.
    pub fn advance(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::Relaxed);
    }
}

impl Default for Life {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_drains_never_admits_again() {
        let life = Life::new();
        assert_eq!(life.phase(), Phase::Starting);
        life.advance(Phase::Admitting);
        assert_eq!(life.phase(), Phase::Admitting);
        life.advance(Phase::Draining);
        life.advance(Phase::Admitting);
        assert_eq!(life.phase(), Phase::Draining);
    }
}
