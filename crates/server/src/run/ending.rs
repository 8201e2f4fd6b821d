//! The ways in which a process ends.

use std::fmt;
use std::time::Duration;

use tidegate_io::{Ended, Summary};

use crate::StartError;
use crate::recording::Recorded;

/// The way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// All work was finished. The duration is the time from the first request to stop to the end.
    Drained(Duration),
    /// The time to drain was over before all work was finished. The duration is the time from the
    /// first request to stop to the end.
    Late(Duration),
    /// A second stop request stopped the process at once.
    Forced,
}

/// An error that ended a process without a request to stop.
#[derive(Debug)]
pub enum RunError {
    /// The process could not start.
    Start(StartError),
    /// A shard failed.
    Shard(String),
}

impl From<StartError> for RunError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Shard(what) => write!(f, "a shard failed: {what}"),
        }
    }
}

impl std::error::Error for RunError {}

/// The end of a process, and its recording.
#[derive(Debug)]
pub struct Ending {
    /// The way in which the process ended.
    pub finish: Finish,
    /// The recording, if there was one.
    pub recorded: Option<Recorded>,
}

impl Finish {
    /// Combines this result with the result of a shard. Returns the worse of the two results, with
    /// the longer of their durations.
    pub(super) fn and(self, summary: Summary) -> Self {
        let after = |so_far: Duration| so_far.max(summary.after);
        match (self, summary.ended) {
            (Self::Forced, _) | (_, Ended::Forced) => Self::Forced,
            (Self::Late(d) | Self::Drained(d), Ended::Late) => Self::Late(after(d)),
            (Self::Late(d), Ended::Drained) => Self::Late(after(d)),
            (Self::Drained(d), Ended::Drained) => Self::Drained(after(d)),
        }
    }
}
