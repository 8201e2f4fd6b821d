//! Counts of the inputs of a recording.

use tidegate_world::Counter;

/// What becomes of inputs, counted while they come.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Written.
    pub written: Counter,
    /// Lost because writing failed before.
    pub unwritten: Counter,
    /// Lost because too many waited to be written. The core's thread counts them.
    pub overrun: Counter,
}
