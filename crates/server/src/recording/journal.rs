//! The part of the recorder that runs in the core's thread and collects inputs in blocks.

use std::mem;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use tidegate_world::{Entry, Log, Timestamp, Transmit};

use super::block::{FULL, INPUTS_MAX};
use super::entry;
use super::tally::Tally;

/// Maximum time that a block covers, in nanoseconds. If the process is killed, the inputs of the
/// unfinished block are lost.
const SPAN_NS: u64 = 1_000_000_000;

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
/// The recorder never waits for that thread, except when it is dropped.
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
        if self.draft.count > 0 {
            // The core has ended, so this thread may wait for the writer. If the writer has ended,
            // the channel is closed and this call returns at once.
            let _ = self.full.send(mem::take(&mut self.draft));
        }
    }
}
