//! Holding times of a workload's calls, and the definition of their set-up.

use std::fmt;

use serde::Serialize;

/// The distribution of holding times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// All calls alike.
    Fixed,
    /// Exponentially.
    Exponential,
    /// Log-normally, with this standard deviation of the logarithm.
    Lognormal(f64),
}

impl fmt::Display for Hold {
    /// In the syntax of a scenario.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("fixed"),
            Self::Exponential => f.write_str("exp"),
            Self::Lognormal(sigma) => write!(f, "lognormal:{sigma}"),
        }
    }
}

/// The time at which a call counts as set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goodput {
    /// When its 200 has reached the caller.
    Answered,
    /// When its ACK has reached the answerer (002 §4.2: "successful delivery of all five call setup
    /// messages from INVITE to ACK").
    Acknowledged,
}
