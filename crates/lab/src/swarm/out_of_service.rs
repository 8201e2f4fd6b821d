//! Back ends that operators take out of service for a while.

use serde::{Deserialize, Serialize};

/// One of those behind a proxy gets no new calls for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutOfService {
    /// The proxy that is told so.
    pub proxy: usize,
    /// Which of those behind it.
    pub behind: usize,
    /// How it is kept from them.
    pub by: Means,
    /// When it begins.
    pub begins_ms: u64,
    /// How long it lasts.
    pub lasts_ms: u64,
}

/// How a back end is kept from new calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// It is drained.
    Drain,
    /// It is put into maintenance.
    Disable,
    /// It is taken out of the configuration; the last one that is left there stays.
    Remove,
}
