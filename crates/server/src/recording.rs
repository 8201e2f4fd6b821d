//! Recordings of all inputs of a process's core, in a file of limited size.
//!
//! `tidegate run --record FILE` records every input of the core with its time: datagrams, failed
//! deliveries, connections, timers, turns of service, readings of the load, commands, the start
//! of a drain. If a core that is built in the same way gets these inputs, it sends the same packets
//! at the same times ([`Recording::replay`]). The recorder is between the driver and the core. An
//! emulated processor is part of the core.
//!
//! # The file
//!
//! A *head* ([`Head`]) describes how the core was built. It includes the keys, so only the owner of
//! the file may read the file. After the head there are [`SLOTS`] *slots* of equal size, which form
//! a ring: when the last slot is full, the first is overwritten. A slot contains *blocks*. Each
//! block has up to a thousand inputs, a number, a checksum, and a hash of the packets that the core
//! sent because of these inputs. A replay compares this hash with the hash of its own packets.
//!
//! If a file still contains block 0, the recording includes the start of the core, and a replay is
//! exact. Block 0 may have been overwritten, or inputs may be missing because the disk was slower
//! than the core. Then a replay starts with an empty core, and the result is similar to the
//! original, but not the same. The report of the replay says so.
//!
//! # Off the packet path
//!
//! The thread of the core appends inputs to a block in memory. Another thread computes hashes and
//! writes blocks. At most [`WAITING_MAX`] blocks wait between the two threads. Further blocks are
//! dropped and their inputs are counted as lost, so that the disk cannot slow the core.

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

use std::path::PathBuf;
use std::{fmt, io};

pub use block::COMMAND_MAX;
pub use head::{Head, VERSION, VERSION_MIN};
pub use layout::{SIZE_MIN, SLOTS};
pub use reader::{Checked, Recording};
pub use rerun::{Difference, Inputs, Passing, Verdict};
pub use writer::{Recorded, WAITING_MAX};

pub(crate) use journal::Journal;
pub(crate) use tally::Tally;
pub(crate) use writer::Recorder;

use crate::StartError;

/// The path, size and configuration of a new recording.
#[derive(Clone, Debug)]
pub struct RecordingTarget {
    /// The path of the file.
    pub path: PathBuf,
    /// Total size of the slots in bytes, at least [`SIZE_MIN`]. The head of the file is not
    /// included.
    pub size: u64,
    /// The text of the configuration file.
    pub configuration: String,
}

impl RecordingTarget {
    /// Checks that a process with this number of shards can be recorded, without changing a file.
    ///
    /// # Errors
    /// Returns an error if there are several shards, or if the file cannot be created.
    pub(crate) fn check(&self, shards: u16) -> Result<(), StartError> {
        if shards != 1 {
            // All shards access shared state, in an order that no single recording contains.
            let what = format!("a process with {shards} shards cannot be recorded");
            let remedy = "record with `[server] shards = 1`";
            return Err(StartError::new("--record", what, remedy).lasting());
        }
        ring::check(&self.path).map_err(|error| {
            let failed = self.failed(&error);
            // Tidegate never replaces another file, so each further start would fail too.
            let is_occupied = error.kind() == io::ErrorKind::AlreadyExists;
            if is_occupied { failed.lasting() } else { failed }
        })
    }

    /// Returns the error that prevents the start, because the recording cannot be created.
    pub(crate) fn failed(&self, error: &io::Error) -> StartError {
        let remedy = "give `--record` the path of a new file or of an earlier recording, in a \
                      directory in which the user that runs Tidegate may create files";
        StartError::new(self.path.display(), error.to_string(), remedy)
    }
}

/// The reason why a recording cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    /// The operating system returned an error.
    Io(io::Error),
    /// The file is not a recording.
    Foreign,
    /// The recording has this version of the format, which this program does not support.
    Version(u32),
    /// The data at this offset, in bytes, differ from those that were written. Also contains a
    /// description of the error.
    Corrupt(u64, &'static str),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
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
                "a recording in format {version}, but this program reads formats {VERSION_MIN} to \
                 {VERSION}; replay it with the version of Tidegate that recorded it"
            ),
            Self::Corrupt(offset, what) => write!(f, "corrupt at byte {offset}: {what}"),
        }
    }
}

impl std::error::Error for Unreadable {}

#[cfg(test)]
mod tests;
