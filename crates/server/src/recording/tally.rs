//! Counts of the inputs of a recording.

use tidegate_world::Counter;

/// The outcome of inputs, counted as they come.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Written.
    pub written: Counter,
    /// Lost because an earlier write failed.
    pub unwritten: Counter,
    /// Lost because too many waited to be written. The core's thread counts them.
    pub overrun: Counter,
}
