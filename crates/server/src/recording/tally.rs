//! Counts of recorded and lost inputs.

use tidegate_world::Counter;

/// Numbers of inputs of a recording by outcome.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Inputs that were written to the file.
    pub written: Counter,
    /// Inputs that were lost because an earlier write failed.
    pub unwritten: Counter,
    /// Inputs that were lost because too many blocks waited to be written. The core's thread counts
    /// these inputs.
    pub overrun: Counter,
}

impl Tally {
    /// Returns the number of inputs that are missing from the recording.
    pub fn lost(&self) -> u64 {
        self.unwritten.get() + self.overrun.get()
    }
}
