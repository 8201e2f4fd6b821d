//! The part of the recorder that runs in the core's thread and collects inputs in blocks.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use tidegate_world::{Entry, Log, Timestamp, Transmit};

use super::block::{FULL, INPUTS_MAX};
use super::entry;
use super::tally::Tally;

/// Maximum time that a block covers, in nanoseconds. If the process is killed, the inputs of the
/// unfinished block are lost.
const SPAN_NS: u64 = 1_000_000_000;

/// Maximum time for which the last block waits for room in the channel. The writer makes room with
/// each block that it writes, unless the disk does not respond.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// A block to which inputs are still added.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Number of inputs lost since the previous block.
    pub lost: u64,
    /// Number of inputs in the block.
    pub count: u32,
    /// The encoded inputs of the block.
    pub inputs: Vec<u8>,
    /// Number of packets that the core sent because of the inputs in the block.
    pub sent_count: u32,
    /// The encoded packets that the core sent because of the inputs in the block. They are hashed
    /// later.
    pub sent: Vec<u8>,
}

impl Draft {
    /// Adds an input to the block.
    pub fn note(&mut self, entry: &Entry<&[u8]>) {
        entry::put(&mut self.inputs, entry);
        self.count += 1;
    }

    /// Adds a packet that was sent because of the last input.
    pub(crate) fn record_sent(&mut self, now: Timestamp, transmit: &Transmit) {
        entry::put_sent(&mut self.sent, now, transmit);
        self.sent_count += 1;
    }

    /// Empties the draft for reuse, but keeps its memory.
    pub fn clear(&mut self) {
        self.inputs.clear();
        self.sent.clear();
        (self.lost, self.count, self.sent_count) = (0, 0, 0);
    }

    fn is_full(&self) -> bool {
        self.count >= INPUTS_MAX || self.inputs.len() + self.sent.len() >= FULL
    }
}

/// A recorder of the inputs of a core, which passes full blocks to the thread that writes the file.
/// The recorder never waits for that thread, except for at most [`LAST_WAIT`] when it is dropped.
#[derive(Debug)]
pub(crate) struct Journal {
    draft: Draft,
    began: Timestamp,
    full: Sender<Draft>,
    /// Empty drafts for reuse.
    empty: Receiver<Draft>,
    tally: Arc<Tally>,
}

impl Journal {
    pub(super) fn new(full: Sender<Draft>, empty: Receiver<Draft>, tally: Arc<Tally>) -> Self {
        Self { draft: Draft::default(), began: Timestamp::ZERO, full, empty, tally }
    }

    fn hand_on(&mut self) {
        let next = self.empty.try_recv().unwrap_or_default();
        let draft = mem::replace(&mut self.draft, next);
        if let Err(rejected) = self.full.try_send(draft) {
            let mut draft = rejected.into_inner();
            let lost = draft.lost + u64::from(draft.count);
            self.tally.overrun.add(u64::from(draft.count));
            draft.clear();
            draft.lost = lost;
            self.draft = draft;
        }
    }
}

impl Log for Journal {
    fn note(&mut self, entry: Entry<&[u8]>) {
        // This comes before the input is added, so that all packets of the last input are in the
        // same block as this input.
        let old = entry.now.since(self.began).as_nanos() >= u128::from(SPAN_NS);
        if self.draft.is_full() || (old && self.draft.count > 0) {
            self.hand_on();
        }
        if self.draft.count == 0 {
            self.began = entry.now;
        }
        self.draft.note(&entry);
    }

    fn sent(&mut self, now: Timestamp, transmit: &Transmit) {
        // A full block is passed on only before an input is added, so this block contains the input
        // that caused the packet. Packets before the first input belong to no block.
        if self.draft.count > 0 {
            self.draft.record_sent(now, transmit);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let last = mem::take(&mut self.draft);
        // The core has ended, so this thread may wait for the writer. If the writer has ended, the
        // channel is closed and this call returns at once.
        if last.count > 0
            && let Err(rejected) = self.full.send_timeout(last, LAST_WAIT)
        {
            self.tally.overrun.add(u64::from(rejected.into_inner().count));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crossbeam_channel::bounded;
    use tidegate_world::Input;

    use super::*;

    /// A regression: while the disk did not respond, no signal could stop the process.
    #[test]
    fn a_drop_does_not_wait_without_end_for_a_writer_that_hangs() {
        let (full, to_write) = bounded(1);
        let (_written, empty) = bounded(1);
        let tally = Arc::new(Tally::default());
        let mut journal = Journal::new(full, empty, Arc::clone(&tally));
        for i in 0..1500 {
            journal.note(Entry { now: Timestamp::from_nanos(i), input: Input::Serve });
        }
        let (dropped, drops) = bounded(1);
        thread::spawn(move || {
            drop(journal);
            dropped.send(())
        });
        assert_eq!(drops.recv_timeout(Duration::from_secs(30)), Ok(()));
        assert_eq!((tally.overrun.get(), to_write.len()), (500, 1));
    }
}
