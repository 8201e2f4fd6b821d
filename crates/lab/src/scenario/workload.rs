//! How long calls of a workload are held, and when one of them counts as set up.

use serde::Serialize;

/// How holding times are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// All the same.
    Fixed,
    /// Exponentially.
    Exponential,
    /// Log-normally, with this standard deviation of the logarithm.
    Lognormal(f64),
}

/// When a call is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goodput {
    /// When its 200 has come to the caller.
    Answered,
    /// When its ACK has come to the answerer (002 §4.2: "successful delivery of all five call
    /// setup messages from INVITE to ACK").
    Acknowledged,
}
