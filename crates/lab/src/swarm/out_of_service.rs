//! Describes back ends that operators take out of service for a while.

use serde::{Deserialize, Serialize};

/// A back end that gets no new calls for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutOfService {
    /// Index of the proxy.
    pub proxy: usize,
    /// Index of the back end.
    pub behind: usize,
    /// The method by which the operator takes it out of service.
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
    /// It is drained.
    Drain,
    /// It is put into maintenance.
    Disable,
    /// It is removed from the configuration, unless it is the last back end.
    Remove,
}
