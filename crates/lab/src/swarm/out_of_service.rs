//! Describes back ends that operators take out of service for a while.

use serde::{Deserialize, Serialize};

/// A time in which a back end of a proxy gets no new calls, because an operator has taken it out of
/// service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutOfService {
    /// Index of the proxy whose back end is taken out of service.
    pub proxy: usize,
    /// Index of the back end among the back ends of the proxy.
    pub behind: usize,
    /// The method by which the operator takes the back end out of service.
    pub by: Means,
    /// Start of the time out of service, in milliseconds after the start of the run.
    pub begins_ms: u64,
    /// Duration of the time out of service, in milliseconds.
    pub lasts_ms: u64,
}

/// The method by which an operator takes a back end out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// The back end is drained.
    Drain,
    /// The back end is disabled.
    Disable,
    /// The back end is removed from the configuration, unless it is the last one.
    Remove,
}
