//! A core on a processor of a given speed, in model time.
//!
//! A real machine is usually too fast to be overloaded in a demonstration, and every laptop
//! differs. So a [`Host`] charges the wrapped core for every message. A table gives the cost of
//! examining, serving and rejecting a message of each class. The work is complete at
//!
//! ```text
//! completion = max(completion of the work before, arrival) + cost
//! ```
//!
//! This is the single server of queueing theory. If the processor has [several
//! cores](HostSettings::cores), there is one queue for several servers, and work begins as soon as
//! one of the servers is free. The host is itself a [`Core`], so the same model runs in simulated
//! time and behind real sockets. Below, *the core* is the wrapped [`Core`], and the cores of the
//! processor are *processor cores*.
//!
//! # Two times
//!
//! The driver's `now` is the current time. The model has its own time, which never exceeds `now`.
//! Each time the driver calls the host, the model performs all steps up to `now`. If the driver
//! offers a datagram, the model performs only the steps up to the arrival of this datagram. A
//! *step* is one `offer` or one `serve` of the core. The model time of a step is the time at which
//! the processor is free and there is something to do, however late the driver calls. So a driver
//! that wakes late completes as much work as a driver that wakes promptly. Only the packets of this
//! work are sent late. For the same reason, a datagram arrives at the time of its stamp, not at the
//! time when it was read. The host never waits. The driver sleeps until
//! [`poll_timeout`](Core::poll_timeout). While the processor is busy, this is at the latest the
//! next completion. Meanwhile the driver continues to receive.
//!
//! The `now` that the core gets never goes back. A datagram may be read after a timer has fired,
//! although its stamp is earlier than the timer. Then its cost is charged from its stamp on, but
//! the core sees the time of the timer. A message from another shard arrives when it is handed
//! over.
//!
//! In simulated time a driver is never late, except for a process that gets no processor time
//! (`Network::stall` in `tidegate-sim`). The host of such a process must not catch up: if
//! [`catches_up`](HostSettings::catches_up) is false, no step begins before the driver's `now`.
//!
//! # The core's view
//!
//! - Packets of a step leave when the step is complete. Outputs keep their order: if a timer fires
//!   during a step, its output waits for the completion of the step.
//! - The host calls `serve` again at the time of each completion, until `serve` returns `false`. So
//!   the time from one `serve` to the next is the cost of the first, as with a real driver. With
//!   several processor cores, two services can overlap. Then this time is shorter than the cost of
//!   the first. The packets of several processor cores leave in the order of completion.
//! - Timers fire on time, even while the processor is busy, and cost nothing. A timer precedes a
//!   step at the same time. A completion precedes an arrival.
//! - The load in [`Core::on_load`] is that of the modelled processor, as a mean over its cores.
//!   `busy` is the time charged, including the elapsed part of the current steps and the time for
//!   which they were interrupted, plus the [background](HostSettings::background) load. `cpu` is
//!   the CPU time of the steps alone. `socket_fill` is the fill of the fullest buffer. The host
//!   calls `on_load` when at least [`SAMPLE`] has passed since the last call: before the next input
//!   of the core, or when the driver calls the host's `on_load` while the processor is busy. The
//!   values from the driver are not passed on, because they belong to another processor.
//!
//! # Order
//!
//! Datagrams wait in buffers, as in the kernel ([`HostSettings::split`]). Each buffer has a limit
//! on the number of datagrams, and optionally on the [bytes](HostSettings::buffer_bytes). A
//! datagram that does not fit is dropped and counted. Before the buffers, the host drops the
//! datagrams that the core wants [shed](Core::poll_shedding), at no cost. It asks the core for
//! these at each call of `on_load`. Offers come before services, so that the core can reject in
//! time. But service gets half of the processor if it needs so much. While datagrams wait in the
//! buffers and messages wait in the core, up to 64 offers come first, and then services get as much
//! time as these offers took. A driver of sockets alternates in about the same way. With a
//! [batch](HostSettings::batch), the host works in turns, as such a driver does.
//!
//! # Known bias
//!
//! The costs are constant, or [drawn](Variation) independently. So unlike on a real machine, caches
//! have no effect. A batch is cheaper only because the processor [wakes](Costs::wake) once for it.
//! Messages of streams wait in the same buffers as datagrams. So unlike on a real machine, a
//! message can overtake an INVITE that came before it on the same connection. A full buffer loses
//! messages of streams if the driver reads while [`reads_streams`](Host::reads_streams) is false,
//! as the driver of sockets does. A [`Disturbance`] changes the costs or interrupts work. A
//! [`Quota`] interrupts work too. If the real machine is slower than the emulated one, the real
//! times apply.

mod buffer;
mod buffers;
mod contract;
mod distribution;
mod held;
mod processor;
mod quota;
mod settings;
mod share;
mod turn;
mod variation;

use std::sync::Arc;
use std::time::Duration;

use tidegate_world::{ConnectionId, Core, Counter, Handoff, Load, Shedding, Timestamp, Transmit};

use buffers::Buffers;
pub use distribution::{Distribution, Sample};
use held::Held;
use processor::Processor;
pub use quota::Quota;
pub use settings::{Costs, Disturbance, HostSettings};
use share::Share;
use turn::Turn;
pub use variation::Variation;
use variation::Varying;

/// Minimum model time between two reports of the load to the core. The real driver has the same
/// minimum.
pub const SAMPLE: Duration = Duration::from_millis(2);

/// A core on a processor of a given speed: see the [module](self).
pub struct Host<C> {
    core: C,
    costs: Costs,
    varying: Varying,
    catches_up: bool,
    buffers: Buffers,
    /// The host reads from streams while fewer messages than this number wait.
    read_ahead: usize,
    overflow: Arc<Counter>,
    /// Number of datagrams dropped because the buffer in which new work waits was full.
    invite_overflow: u64,
    /// The core's rules for shedding datagrams, as of the last report of the load.
    shedding: Shedding,
    filtered: Arc<Counter>,
    processor: Processor,
    disturbance: Disturbance,
    share: Share,
    /// The turns of a server that reads in batches, or `None` if `share` divides the processor
    /// time.
    turn: Option<Turn>,
    /// Time from which the core may have something to serve, or `None` if it has nothing.
    ready: Option<Timestamp>,
    /// Upper bound on the number of offered messages in the queues of the core. Messages that a
    /// timer or another input has created are not counted.
    kept: usize,
    /// The latest `now` that the core got.
    told: Timestamp,
    /// The latest time to which the model was advanced.
    reached: Timestamp,
    reading_due: Timestamp,
    transmits: Held<Transmit>,
    handoffs: Held<Handoff>,
    closes: Held<ConnectionId>,
}

impl<C: Core> Host<C> {
    /// Wraps `core` in a host.
    ///
    /// # Panics
    /// Panics if a buffer has no room or the processor no cores, if the quota is impossible, if
    /// there is a quota and more than one core, if the cost factor is negative or not finite, or if
    /// the background load is negative or not below 1. Callers must check these settings first.
    pub fn new(core: C, settings: &HostSettings) -> Self {
        let buffers = Buffers::new(settings.split, settings.buffer_max, settings.buffer_bytes);
        let limits = settings.batch.map(|batch| buffers.limits(batch));
        let read_ahead = limits.map_or(share::BURST as usize, |limits| limits.iter().sum());
        Self {
            core,
            costs: settings.charged(),
            varying: Varying::new(&settings.variation),
            catches_up: settings.catches_up,
            turn: limits.map(Turn::new),
            buffers,
            read_ahead: read_ahead.min(settings.buffer_max),
            overflow: Arc::default(),
            invite_overflow: 0,
            shedding: Shedding::NONE,
            filtered: Arc::default(),
            processor: Processor::new(
                settings.cores,
                settings.background,
                settings.disturbance,
                settings.quota,
            ),
            disturbance: settings.disturbance,
            share: Share::default(),
            ready: None,
            kept: 0,
            told: Timestamp::ZERO,
            reached: Timestamp::ZERO,
            reading_due: Timestamp::ZERO,
            transmits: Held::new(settings.cores == 1),
            handoffs: Held::new(settings.cores == 1),
            closes: Held::new(true),
        }
    }

    /// Counts datagrams dropped at full buffers in `counter`, which other threads may read while
    /// the host runs.
    #[must_use]
    pub fn counting_overflow(self, counter: Arc<Counter>) -> Self {
        Self { overflow: counter, ..self }
    }

    /// Counts datagrams dropped at the request of the core in `counter`.
    #[must_use]
    pub fn counting_filtered(self, counter: Arc<Counter>) -> Self {
        Self { filtered: counter, ..self }
    }

    /// Returns the wrapped core.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// Returns whether the emulated server reads from streams now. It does not read while as many
    /// messages wait as it reads in a turn (64 if it has no [batch](HostSettings::batch)), or as
    /// fit in a buffer. Further data then stays in the kernel, and a sender has to wait when the
    /// receive window of its connection is full.
    pub fn reads_streams(&self) -> bool {
        self.buffers.len() < self.read_ahead
    }

    /// Returns the counter of datagrams dropped at full buffers.
    pub fn overflow(&self) -> &Arc<Counter> {
        &self.overflow
    }

    /// Returns the counter of datagrams dropped at the request of the core.
    pub fn filtered(&self) -> &Arc<Counter> {
        &self.filtered
    }

    /// Advances the model to `limit`: performs all timers and steps up to this time, in the order
    /// of their times.
    fn advance(&mut self, limit: Timestamp) {
        self.reached = self.reached.max(limit);
        let earliest = if self.catches_up { Timestamp::ZERO } else { limit };
        let mut timers = true;
        loop {
            let step = self.next_step().filter(|&at| at <= limit);
            let timer = self.core.poll_timeout().filter(|&at| timers && at <= limit);
            match (timer, step) {
                (Some(timer), step) if step.is_none_or(|step| timer <= step) => {
                    // A driver calls a core again if the core leaves a timer expired. Here, this
                    // would go on forever, so no timer fires again before the next `advance`.
                    timers = self.fire(timer.max(earliest));
                }
                (_, Some(step)) => self.step(step.max(earliest)),
                (_, None) => return,
            }
        }
    }

    /// Returns the time of the processor's next step, or `None` if nothing waits for the processor.
    fn next_step(&self) -> Option<Timestamp> {
        let wanted = earlier(self.buffers.earliest(), self.ready)?;
        Some(wanted.max(self.processor.free_at()))
    }

    /// Fires the expired timers. Returns whether all of them have fired.
    fn fire(&mut self, at: Timestamp) -> bool {
        self.give(at, Core::handle_timeout);
        self.core.poll_timeout().is_none_or(|due| due > at)
    }

    /// Gives the core an input that costs no processor time. After this input, the core may have
    /// something to serve.
    fn give(&mut self, at: Timestamp, input: impl FnOnce(&mut C, Timestamp)) {
        let now = self.enter(at);
        input(&mut self.core, now);
        self.ready = Some(now);
        self.collect(now);
    }

    /// Performs one step: offers a datagram to the core, or lets the core serve a message.
    fn step(&mut self, at: Timestamp) {
        let now = self.enter(at);
        let offer = self.buffers.waits(at);
        let serve = self.ready.is_some_and(|ready| ready <= at);
        let received = match &mut self.turn {
            Some(turn) => turn
                .reads(at, self.buffers.waiting(at), serve)
                .and_then(|buffer| self.buffers.take_from(buffer)),
            None if serve && self.share.is_service_due() => None,
            None => self.buffers.take(at),
        };
        if let Some(received) = received {
            let wake = if at > self.processor.free_at() { self.costs.wake } else { Duration::ZERO };
            self.core.offer(now, received);
            let (cost, completion) = self.charge(at, wake.saturating_add(self.costs.receive));
            self.kept += usize::from(self.core.last_work().rejected.is_none());
            self.ready = earlier(self.ready, Some(completion));
            if serve {
                self.share.offered(cost);
            }
        } else if self.core.serve(now) {
            let (cost, completion) = self.charge(at, Duration::ZERO);
            self.kept = self.kept.saturating_sub(1);
            // Another core of the processor may serve the rest of the queue now. If it found the
            // queue empty, the wrapped core would consider this service complete.
            self.ready = Some(if self.kept > 0 { at } else { completion });
            if offer {
                self.share.served(cost);
            }
        } else {
            self.ready = None;
            self.kept = 0;
            self.share = Share::default();
            self.collect(now);
        }
    }

    /// Keeps the processor busy with the step that began at `at`. The cost of the step is the cost
    /// of the core's last work plus the cost `beside`, changed by random variation and by a
    /// disturbance. Returns the cost of the step and the time at which the step is complete.
    fn charge(&mut self, at: Timestamp, beside: Duration) -> (Duration, Timestamp) {
        let cost = beside.saturating_add(self.costs.of(self.core.last_work()));
        let cost = self.varying.of(cost);
        let factor = self.disturbance.cost_factor(at.since(Timestamp::ZERO));
        let cost = if factor == 1.0 { cost } else { cost.mul_f64(factor) };
        let completion = self.processor.work(at, cost);
        self.collect(completion);
        (cost, completion)
    }

    /// Advances the core's time to `at`, and reports the load to the core if a report is due.
    /// Returns the core's `now`.
    fn enter(&mut self, at: Timestamp) -> Timestamp {
        self.told = self.told.max(at);
        let now = self.told;
        if now >= self.reading_due {
            self.reading_due = now + SAMPLE;
            let (busy, cpu) = (self.processor.busy(now), self.processor.cpu(now));
            let socket_fill = self.buffers.fill();
            let (filtered, overflow) = (self.filtered.get(), self.invite_overflow);
            let load = Load { busy, cpu, socket_fill, filtered, overflow, ..Load::default() };
            self.core.on_load(now, load);
            self.collect(now);
            let wanted = self.core.poll_shedding();
            if *wanted != self.shedding {
                self.shedding.clone_from(wanted);
            }
        }
        now
    }

    /// Holds the core's outputs until `release`.
    fn collect(&mut self, release: Timestamp) {
        while let Some(transmit) = self.core.poll_transmit() {
            self.transmits.push(release, transmit);
        }
        while let Some(handoff) = self.core.poll_handoff() {
            self.handoffs.push(release, handoff);
        }
        while let Some(id) = self.core.poll_close() {
            // Everything that was handed out on a connection is sent before it closes.
            self.closes.push(release.max(self.transmits.latest()), id);
        }
    }
}

/// Returns the earlier of two times. `None` stands for a time that never comes.
fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
