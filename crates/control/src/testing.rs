//! Points in time for the unit tests.

use std::time::Duration;

use tidegate_world::Timestamp;

/// Returns the time this number of milliseconds after the start.
pub(crate) fn at_ms(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

/// Returns the time this number of seconds after the start.
pub(crate) fn at_s(s: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(s)
}
