//! Recordings: what entered the core of a process, in a file of bounded size.
//!
//! `tidegate run --record FILE` notes every input of the core with its time: datagrams, failed
//! deliveries, connections, timers, turns of service, readings of the load, orders, the request to drain. Fed to a
//! core that is built alike they bring out the same packets, at the same times
//! ([`Recording::replay`]). The recorder stands between the driver and the core, an emulated processor
//! being part of the core.
//!
//! # The file
//!
//! A *head* ([`Head`]) says how the core was built, its keys included, so the file is readable
//! by its owner only. Behind it lie [`SLOTS`] *slots* of equal size, used as a ring: when the
//! last is full, the first is written anew. In a slot lie *blocks*, each of up to a thousand
//! inputs, with a number, a checksum, and a hash of what the core sent meanwhile: the
//! checkpoints of a replay.
//!
//! A file that still holds block 0 begins with the core, and its replay is exact. One whose
//! beginning was overwritten, or that lacks inputs because the disk was slower than the core,
//! is replayed from an empty core, and says so: it is like the original, not the same.
//!
//! # Off the packet path
//!
//! The core's thread appends to a block in memory; another thread hashes and writes. Between
//! them wait [`WAITING_MAX`] blocks at the most. Beyond that a block is dropped and its inputs
//! are counted as lost: the disk cannot slow the core.

mod block;
mod entry;
mod head;
mod journal;
mod layout;
mod reader;
mod rerun;
mod ring;
mod tally;
mod writer;

use std::fmt;
use std::path::PathBuf;

pub use block::COMMAND_MAX;
pub use head::{Head, VERSION, VERSION_MIN};
pub use layout::{SIZE_MIN, SLOTS};
pub use reader::{Checked, Recording};
pub use rerun::{Difference, Inputs, Passing, Verdict};
pub use writer::{Recorded, WAITING_MAX};

pub(crate) use journal::Journal;
pub(crate) use tally::Tally;
pub(crate) use writer::Recorder;

/// Where to record to.
#[derive(Clone, Debug)]
pub struct RecordTo {
    /// The file.
    pub path: PathBuf,
    /// Bytes it may have, at least [`SIZE_MIN`]; its head comes in addition.
    pub size: u64,
    /// The configuration as it was read.
    pub configuration: String,
}

/// Why a recording cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    /// The system says why.
    Io(std::io::Error),
    /// It is no recording.
    Foreign,
    /// It is one of another version of the format.
    Version(u32),
    /// What stands at this offset is not what was written there.
    Corrupt(u64, &'static str),
}

impl From<std::io::Error> for Unreadable {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Foreign => f.write_str("not a recording of `tidegate run --record`"),
            Self::Version(version) => write!(
                f,
                "a recording in format {version}, but this program reads formats {VERSION_MIN} to {VERSION}"
            ),
            Self::Corrupt(offset, what) => write!(f, "corrupt at byte {offset}: {what}"),
        }
    }
}

impl std::error::Error for Unreadable {}

#[cfg(test)]
mod tests;
