//! Records the inputs of a core, and replays them.
//!
//! The inputs of [`Core`] contain everything that a core can know. An identical core that gets the
//! logged inputs with their times produces the same bytes.

use crate::{
    CloseCause, ConnectionId, Core, Failure, Flow, Load, Pool, QueryAnswer, QueryId, Received,
    Timestamp, Transmit, delegate,
};

/// An input of a core: one call of a function of [`Core`]. `B` is the type of the bytes of packets
/// and commands.
#[derive(Clone, Debug, PartialEq)]
pub enum Input<B = Vec<u8>> {
    /// A call of [`Core::offer`]: the arrival time, the flow and the bytes of the packet, and the
    /// number of its handoffs so far.
    Offer(Timestamp, Flow, B, u8),
    /// A call of [`Core::serve`].
    Serve,
    /// A call of [`Core::handle_timeout`].
    Timeout,
    /// A call of [`Core::on_failed`].
    Failed(Failure),
    /// A call of [`Core::on_transmit`], with the flow and the bytes of the message.
    Transmit(Flow, B),
    /// A call of [`Core::on_connected`].
    Connected(Flow),
    /// A call of [`Core::on_closed`].
    Closed(ConnectionId, CloseCause),
    /// A call of [`Core::on_writable`].
    Writable(ConnectionId),
    /// A call of [`Core::on_load`].
    Load(Load),
    /// A call of [`Core::on_command`], with the text of the command.
    Command(B),
    /// A call of [`Core::on_answer`].
    Answer(QueryId, QueryAnswer),
    /// A call of [`Core::on_drain`].
    Drain,
}

/// A recorded input and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<B = Vec<u8>> {
    /// The time `now` that the driver gave with the input.
    pub now: Timestamp,
    /// The input.
    pub input: Input<B>,
}

impl<B: AsRef<[u8]>> Entry<B> {
    /// Gives the input to `core` by calling the recorded function. The bytes of a packet are copied
    /// into a buffer of `pool`.
    pub fn give(&self, core: &mut impl Core, pool: &Pool) {
        let now = self.now;
        match &self.input {
            Input::Offer(arrived, flow, bytes, handoffs) => core.offer(
                now,
                Received {
                    arrived: *arrived,
                    flow: *flow,
                    bytes: pool.copy(bytes.as_ref()),
                    handoffs: *handoffs,
                },
            ),
            Input::Serve => {
                core.serve(now);
            }
            Input::Timeout => core.handle_timeout(now),
            Input::Failed(failure) => core.on_failed(now, failure.clone()),
            Input::Transmit(flow, bytes) => {
                core.on_transmit(now, Transmit::new(*flow, pool.copy(bytes.as_ref())));
            }
            Input::Connected(flow) => core.on_connected(now, *flow),
            Input::Closed(id, cause) => core.on_closed(now, *id, *cause),
            Input::Writable(id) => core.on_writable(now, *id),
            Input::Load(load) => core.on_load(now, *load),
            Input::Command(command) => core.on_command(now, command.as_ref()),
            Input::Answer(id, answer) => core.on_answer(now, *id, answer.clone()),
            Input::Drain => core.on_drain(now),
        }
    }
}

/// A destination for the records of a [`Recorder`].
pub trait Log {
    /// Records an input. A [`Recorder`] calls this before the core gets the input, except for
    /// `serve`: a `serve` without effect is not recorded, and only its result shows whether it had
    /// one.
    fn note(&mut self, entry: Entry<&[u8]>);

    /// Records a packet that the core sends. `now` is the time of the last recorded input.
    fn sent(&mut self, _now: Timestamp, _transmit: &Transmit) {}
}

/// A [`Log`] in memory, which keeps the first inputs of a core.
#[derive(Debug)]
pub struct Memory {
    entries: Vec<Entry>,
    entries_max: usize,
    lost: u64,
}

impl Memory {
    /// Creates a log that keeps the first `entries_max` inputs. Later inputs are only counted.
    pub fn new(entries_max: usize) -> Self {
        Self { entries: Vec::new(), entries_max, lost: 0 }
    }

    /// Returns the recorded inputs, and the number of inputs that were not kept.
    pub fn into_log(self) -> (Vec<Entry>, u64) {
        (self.entries, self.lost)
    }
}

impl Log for Memory {
    fn note(&mut self, Entry { now, input }: Entry<&[u8]>) {
        if self.entries.len() == self.entries_max {
            self.lost += 1;
            return;
        }
        let input = match input {
            Input::Offer(arrived, flow, bytes, handoffs) => {
                Input::Offer(arrived, flow, bytes.to_vec(), handoffs)
            }
            Input::Serve => Input::Serve,
            Input::Timeout => Input::Timeout,
            Input::Failed(failure) => Input::Failed(failure),
            Input::Transmit(flow, bytes) => Input::Transmit(flow, bytes.to_vec()),
            Input::Connected(flow) => Input::Connected(flow),
            Input::Closed(id, cause) => Input::Closed(id, cause),
            Input::Writable(id) => Input::Writable(id),
            Input::Load(load) => Input::Load(load),
            Input::Command(command) => Input::Command(command.to_vec()),
            Input::Answer(id, answer) => Input::Answer(id, answer),
            Input::Drain => Input::Drain,
        };
        self.entries.push(Entry { now, input });
    }
}

/// A wrapper of a core that records the inputs of the core and the packets that it sends.
pub struct Recorder<C, L = Memory> {
    core: C,
    log: L,
    /// The time of the last recorded input.
    now: Timestamp,
    /// True if the last call of `serve` handled a message.
    in_service: bool,
}

impl<C: Core, L: Log> Recorder<C, L> {
    /// Creates a recorder that records the inputs and packets of `core` in `log`.
    pub fn new(core: C, log: L) -> Self {
        Self { core, log, now: Timestamp::ZERO, in_service: false }
    }

    /// Returns the recorded core.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// Returns the log.
    pub fn into_log(self) -> L {
        self.log
    }

    fn note(&mut self, now: Timestamp, input: Input<&[u8]>) {
        self.now = now;
        self.log.note(Entry { now, input });
    }
}

// This records every input: one that is missing in the log would be missing from every replay.
#[deny(clippy::missing_trait_methods)]
impl<C: Core, L: Log> Core for Recorder<C, L> {
    fn offer(&mut self, now: Timestamp, received: Received) {
        let Received { arrived, flow, bytes, handoffs } = &received;
        self.note(now, Input::Offer(*arrived, *flow, bytes, *handoffs));
        self.core.offer(now, received);
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        // A core with a time of its own advances that time in `serve`, even if it serves nothing.
        let due = self.core.poll_timeout().is_some_and(|due| due <= now);
        let served = self.core.serve(now);
        // A `serve` without a waiting message only tells the core how long the service before it
        // lasted. Other inputs may come between that service and this `serve`, because a driver may
        // end a turn before it calls `serve` again.
        if served || self.in_service || due {
            self.note(now, Input::Serve);
        }
        self.in_service = served;
        served
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.note(now, Input::Timeout);
        self.core.handle_timeout(now);
    }

    fn on_failed(&mut self, now: Timestamp, failure: Failure) {
        self.note(now, Input::Failed(failure.clone()));
        self.core.on_failed(now, failure);
    }

    fn on_transmit(&mut self, now: Timestamp, transmit: Transmit) {
        self.note(now, Input::Transmit(transmit.flow, &transmit.bytes));
        self.core.on_transmit(now, transmit);
    }

    fn on_connected(&mut self, now: Timestamp, flow: Flow) {
        self.note(now, Input::Connected(flow));
        self.core.on_connected(now, flow);
    }

    fn on_closed(&mut self, now: Timestamp, id: ConnectionId, cause: CloseCause) {
        self.note(now, Input::Closed(id, cause));
        self.core.on_closed(now, id, cause);
    }

    fn on_writable(&mut self, now: Timestamp, id: ConnectionId) {
        self.note(now, Input::Writable(id));
        self.core.on_writable(now, id);
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        self.note(now, Input::Load(load));
        self.core.on_load(now, load);
    }

    fn on_command(&mut self, now: Timestamp, command: &[u8]) {
        self.note(now, Input::Command(command));
        self.core.on_command(now, command);
    }

    fn on_answer(&mut self, now: Timestamp, id: QueryId, answer: QueryAnswer) {
        self.note(now, Input::Answer(id, answer.clone()));
        self.core.on_answer(now, id, answer);
    }

    fn on_drain(&mut self, now: Timestamp) {
        self.note(now, Input::Drain);
        self.core.on_drain(now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.core.poll_transmit()?;
        self.log.sent(self.now, &transmit);
        Some(transmit)
    }

    delegate!(self.core, only poll_handoff, poll_query, poll_connect, poll_close, poll_shedding,
        last_work, poll_timeout, is_drained);
}

/// Gives the inputs of a log to a core. `sent` is called for each packet that the core sends, with
/// the time of the input that caused the packet.
pub fn replay<B: AsRef<[u8]>>(
    log: impl IntoIterator<Item = Entry<B>>,
    core: &mut impl Core,
    pool: &Pool,
    mut sent: impl FnMut(Timestamp, Transmit),
) {
    for entry in log {
        entry.give(core, pool);
        while let Some(transmit) = core.poll_transmit() {
            sent(entry.now, transmit);
        }
        while core.poll_handoff().is_some() {}
        // The answers to queries and the events of connections follow in the log.
        while core.poll_query().is_some() {}
        while core.poll_connect().is_some() {}
        while core.poll_close().is_some() {}
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
