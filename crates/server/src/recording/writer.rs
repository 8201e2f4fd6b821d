//! The thread that writes a recording.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::block::{Header, checksum, fingerprint};
use super::head::Head;
use super::journal::{Draft, Journal};
use super::ring::Ring;
use super::tally::Tally;

/// Blocks that wait to be written at the most: about 200 KiB each.
pub const WAITING_MAX: usize = 64;

/// A recording in the making.
#[derive(Debug)]
pub(crate) struct Recorder {
    writer: JoinHandle<Option<io::Error>>,
    tally: Arc<Tally>,
}

/// What a recording has become.
#[derive(Debug)]
pub struct Recorded {
    /// Inputs written, those overwritten since included.
    pub inputs: u64,
    /// Inputs lost, because the disk was slower than the core or failed.
    pub lost: u64,
    /// Why it ended before its core, if it did.
    pub error: Option<io::Error>,
}

impl Recorder {
    /// Begins a recording of up to `size` bytes at `path`. The journal is for the core's thread;
    /// the recording ends when it is dropped.
    ///
    /// # Errors
    /// When the file cannot be made, or the thread.
    pub fn start(path: &Path, head: &Head, size: u64) -> io::Result<(Self, Journal)> {
        let ring = Ring::create(path, head, size)?;
        let (full, to_write) = bounded(WAITING_MAX);
        let (written, empty) = bounded(WAITING_MAX);
        let tally = Arc::new(Tally::default());
        let journal = Journal::new(full, empty, Arc::clone(&tally));
        let writer = thread::Builder::new().name("recorder".to_owned()).spawn({
            let tally = Arc::clone(&tally);
            move || write(ring, &to_write, &written, &tally)
        })?;
        Ok((Self { writer, tally }, journal))
    }

    /// What it counts.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Waits for the end, which comes when the journal has been dropped.
    pub fn finish(self) -> Recorded {
        let error = self.writer.join().expect("the writer does not panic");
        let Tally { written, unwritten, overrun } = &*self.tally;
        Recorded { inputs: written.get(), lost: unwritten.get() + overrun.get(), error }
    }
}

/// Writes what comes, until the journal is dropped. Returns the error after which it wrote no
/// more.
fn write(
    mut ring: Ring,
    drafts: &Receiver<Draft>,
    written: &Sender<Draft>,
    tally: &Tally,
) -> Option<io::Error> {
    let mut error = None;
    for (number, mut draft) in (0..).zip(drafts) {
        // A block that was written in part is the last: nothing could be read behind it.
        if error.is_none() {
            error = ring.write(&header(number, &draft), &draft.inputs).err();
        }
        let counter = if error.is_none() { &tally.written } else { &tally.unwritten };
        counter.add(draft.count.into());
        draft.clear();
        // One too many is freed.
        let _ = written.try_send(draft);
    }
    error
}

/// The header of a block.
fn header(number: u64, draft: &Draft) -> Header {
    Header {
        len: u32::try_from(draft.inputs.len()).expect("bounded by its journal"),
        number,
        lost: draft.lost,
        inputs: draft.count,
        sent: draft.sent_count,
        output: fingerprint(&draft.sent),
        check: checksum(&draft.inputs),
    }
}
