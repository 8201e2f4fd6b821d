//! Replays a recording, and compares the packets that the replayed core sends with those that the
//! recorded core sent.

use tidegate_world::{Core, Entry, Flow, Input, Pool, Timestamp};

use super::Unreadable;
use super::block::fingerprint;
use super::entry;
use super::journal::Draft;
use super::reader::{Checked, Recording};

/// The number of inputs of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Inputs {
    /// Datagrams.
    pub datagrams: u64,
    /// Calls of [`Core::serve`].
    pub serves: u64,
    /// Calls of [`Core::handle_timeout`].
    pub timeouts: u64,
    /// Reports of failed deliveries.
    pub failures: u64,
    /// Connection events (opened, closed, writable again), and messages that other shards have
    /// handed off for connections of this shard.
    pub connections: u64,
    /// Readings of the shard's load.
    pub loads: u64,
    /// Commands.
    pub commands: u64,
    /// Answers to DNS queries and to look-ups of users.
    pub answers: u64,
    /// Number of times that the core was told to drain.
    pub drains: u64,
}

impl Inputs {
    /// Returns the number of all inputs.
    pub fn total(&self) -> u64 {
        let Self { datagrams, serves, timeouts, failures, connections, .. } = *self;
        let Self { loads, commands, answers, drains, .. } = *self;
        datagrams + serves + timeouts + failures + connections + loads + commands + answers + drains
    }

    fn count<B>(&mut self, input: &Input<B>) {
        *match input {
            Input::Offer(..) => &mut self.datagrams,
            Input::Serve => &mut self.serves,
            Input::Timeout => &mut self.timeouts,
            Input::Failed(_) => &mut self.failures,
            Input::Connected(_) | Input::Closed(..) | Input::Writable(_) | Input::Transmit(..) => {
                &mut self.connections
            }
            Input::Load(_) => &mut self.loads,
            Input::Command(_) => &mut self.commands,
            Input::Answer(..) => &mut self.answers,
            Input::Drain => &mut self.drains,
        } += 1;
    }
}

/// A block of the recording for which the replayed core sent other packets than the recorded core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of the block in the recording.
    pub block: u64,
    /// Index of the first input of the block, counted from the first input of the recording.
    pub first_input: u64,
    /// Time of the first input of the block.
    pub from: Timestamp,
    /// Number of packets that the recorded core sent in this block.
    pub recorded: u32,
    /// Number of packets that the replayed core sent in this block.
    pub sent: u32,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Number of inputs, by kind.
    pub inputs: Inputs,
    /// Number of packets that the replayed core sent.
    pub packets: u64,
    /// Number of blocks that were compared.
    pub blocks: u64,
    /// Number of blocks for which the replayed core sent other packets than the recorded core.
    pub differing: u64,
    /// The first block for which the packets differ, if any.
    pub difference: Option<Difference>,
    /// Times of the first and the last input.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// An event during a replay.
#[derive(Clone, Debug)]
pub enum Passing<'b> {
    /// The core gets this input.
    In(Entry<&'b [u8]>),
    /// The core sends a packet: time of the input that caused it, flow, bytes.
    Out(Timestamp, Flow, &'b [u8]),
}

impl Recording {
    /// Gives the inputs of the recording to `core`, which was built from the head of the recording.
    /// Packets use buffers from `pool`. `see` is called with each event.
    ///
    /// # Errors
    /// Returns an error when a block cannot be read, or has invalid inputs.
    pub fn replay(
        &self,
        core: &mut impl Core,
        pool: &Pool,
        mut see: impl FnMut(Passing<'_>),
    ) -> Result<Verdict, Unreadable> {
        let mut verdict = Verdict::default();
        let mut draft = Draft::default();
        for block in self.blocks() {
            let block = block?;
            let first_input = verdict.inputs.total();
            draft.clear();
            let mut from = None;
            block.each(|entry| {
                from.get_or_insert(entry.now);
                verdict.inputs.count(&entry.input);
                let now = entry.now;
                see(Passing::In(entry.clone()));
                entry.give(core, pool);
                while let Some(transmit) = core.poll_transmit() {
                    see(Passing::Out(now, transmit.flow, &transmit.bytes));
                    draft.record_sent(now, &transmit);
                }
                // A recorded process has only one shard, so nothing is passed to other shards.
                while core.poll_handoff().is_some() {}
                // The recording contains the answers and the events of connections as inputs.
                while core.poll_query().is_some() {}
                while core.poll_connect().is_some() {}
                while core.poll_close().is_some() {}
                let (begin, _) = verdict.span.unwrap_or((now, now));
                verdict.span = Some((begin, now));
            })?;
            verdict.packets += u64::from(draft.sent_count);
            verdict.blocks += 1;
            let Checked { header, .. } = block;
            if (header.sent, header.output) != (draft.sent_count, fingerprint(&draft.sent)) {
                verdict.differing += 1;
                verdict.difference.get_or_insert(Difference {
                    block: header.number,
                    first_input,
                    from: from.unwrap_or_default(),
                    recorded: header.sent,
                    sent: draft.sent_count,
                });
            }
        }
        Ok(verdict)
    }
}

impl Checked {
    /// Passes every input of the block to `take`.
    fn each(&self, mut take: impl FnMut(Entry<&[u8]>)) -> Result<(), Unreadable> {
        let mut rest = &self.payload[..];
        let wrong = |rest: &[u8]| {
            let at = self.offset + (self.payload.len() - rest.len()) as u64;
            Unreadable::Corrupt(at, "this is not an input of a recording")
        };
        for _ in 0..self.header.inputs {
            let at = rest;
            take(entry::take(&mut rest).ok_or_else(|| wrong(at))?);
        }
        if rest.is_empty() { Ok(()) } else { Err(wrong(rest)) }
    }
}
