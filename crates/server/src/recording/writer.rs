//! The thread that writes a recording.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::block::{Header, checksum, fingerprint};
use super::head::Head;
use super::journal::{Draft, Journal};
use super::ring::Ring;
use super::tally::Tally;

/// Maximum number of blocks that wait to be written. Each has about 200 KiB.
pub const WAITING_MAX: usize = 64;

/// Maximum time for which the end of the process waits for the blocks that are not written yet.
const FINISH_WAIT: Duration = Duration::from_secs(10);

/// A handle of a running recording, for the thread that waits for its end.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// A channel on which the writer thread, when it ends, sends the error that made it stop
    /// writing, if any.
    ended: Receiver<Option<io::Error>>,
    tally: Arc<Tally>,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Number of inputs that were written, including inputs that were overwritten later.
    pub inputs: u64,
    /// Number of inputs that were lost because the disk was slower than the core or failed.
    pub lost: u64,
    /// The error that ended the recording before its core ended, if any.
    pub error: Option<io::Error>,
}

impl Recorder {
    /// Starts a recording of up to `size` bytes at `path`. The core's thread passes its inputs to
    /// the returned [`Journal`]. The recording ends when the journal is dropped.
    ///
    /// # Errors
    /// Returns an error when the file or the thread cannot be created.
    pub fn start(path: &Path, head: &Head, size: u64) -> io::Result<(Self, Journal)> {
        let ring = Ring::create(path, head, size)?;
        let (full, to_write) = bounded(WAITING_MAX);
        let (written, empty) = bounded(WAITING_MAX);
        let tally = Arc::new(Tally::default());
        let journal = Journal::new(full, empty, Arc::clone(&tally));
        let (end, ended) = bounded(1);
        thread::Builder::new().name("recorder".to_owned()).spawn({
            let tally = Arc::clone(&tally);
            move || end.send(write(ring, &to_write, &written, &tally))
        })?;
        Ok((Self { ended, tally }, journal))
    }

    /// Returns the counts of recorded and lost inputs.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Waits until all blocks are written, but at most [`FINISH_WAIT`], because the file system may
    /// not respond. The caller must have dropped the journal.
    pub fn finish(self) -> Recorded {
        self.finish_within(FINISH_WAIT)
    }

    fn finish_within(self, wait: Duration) -> Recorded {
        let error = match self.ended.recv_timeout(wait) {
            Ok(error) => error,
            Err(RecvTimeoutError::Timeout) => {
                let what = "the last inputs were not written, because the disk did not respond";
                Some(io::Error::new(io::ErrorKind::TimedOut, what))
            }
            Err(RecvTimeoutError::Disconnected) => panic!("the writer does not panic"),
        };
        Recorded { inputs: self.tally.written.get(), lost: self.tally.lost(), error }
    }
}

/// Writes blocks until the journal is dropped. After an error, only counts the inputs of further
/// blocks as lost. Returns that error, if any.
fn write(
    mut ring: Ring,
    drafts: &Receiver<Draft>,
    written: &Sender<Draft>,
    tally: &Tally,
) -> Option<io::Error> {
    let mut error = None;
    for (number, mut draft) in (0..).zip(drafts) {
        // A reader would not find blocks after a failed write, so no more are written.
        if error.is_none() {
            error = ring.write(&header(number, &draft), &draft.inputs).err();
        }
        let counter = if error.is_none() { &tally.written } else { &tally.unwritten };
        counter.add(draft.count.into());
        draft.clear();
        // If there is no room for the empty draft in the channel, its memory is freed.
        let _ = written.try_send(draft);
    }
    error
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: a stop waited without end for a file system that did not respond.
    #[test]
    fn the_end_does_not_wait_for_a_disk_that_does_not_respond() {
        let (hanging, ended) = bounded(1);
        let recorder = Recorder { ended, tally: Arc::default() };
        let recorded = recorder.finish_within(Duration::from_millis(1));
        drop(hanging);
        assert_eq!(recorded.error.unwrap().kind(), io::ErrorKind::TimedOut);
    }
}
