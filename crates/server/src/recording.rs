//! Recordings: the inputs of a process's core, in a file of bounded size.
//!
//! `tidegate run --record FILE` records every input of the core with its time: datagrams, failed
//! deliveries, connections, timers, turns of service, readings of the load, commands, the request
//! to drain. Fed to a core that is built alike they produce the same packets, at the same times
//! ([`Recording::replay`]). The recorder sits between the driver and the core; an emulated
//! processor is part of the core.
//!
//! # The file
//!
//! A *head* ([`Head`]) describes how the core was built, including its keys, so only the file's
//! owner may read it. Behind it lie [`SLOTS`] *slots* of equal size, used as a ring: when the last
//! is full, the first is overwritten. A slot contains *blocks*, each of up to a thousand inputs,
//! with a number, a checksum, and a hash of the core's packets meanwhile: the checkpoints of a
//! replay.
//!
//! A file that still contains block 0 starts with the core, and its replay is exact. If the
//! beginning was overwritten, or if inputs are missing because the disk was slower than the core,
//! the replay starts with an empty core. The result is then similar to the original, not the same,
//! and the report says so.
//!
//! # Off the packet path
//!
//! The core's thread appends to a block in memory; another thread hashes and writes. At most
//! [`WAITING_MAX`] blocks wait between them. Further blocks are dropped and their inputs are
//! counted as lost, so that the disk cannot slow the core.

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

/// The file and size of a recording.
#[derive(Clone, Debug)]
pub struct RecordTo {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes, at least [`SIZE_MIN`], without its head.
    pub size: u64,
    /// The configuration as it was read.
    pub configuration: String,
}

/// The reason why a recording cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    /// An error of the operating system.
    Io(std::io::Error),
    /// The file is not a recording.
    Foreign,
    /// The recording has another version of the format.
    Version(u32),
    /// The data at this offset differ from those that were written.
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
