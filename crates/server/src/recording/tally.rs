//! Counts of the inputs of a recording.

use tidegate_world::Counter;

/// Counts of inputs by outcome.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Inputs that were written.
    pub written: Counter,
    /// Inputs that were lost because an earlier write failed.
    pub unwritten: Counter,
    /// Inputs that were lost because too many waited to be written. The core's thread counts them.
    pub overrun: Counter,
}
