//! Measures the CPU time of a server's core, which is the proxy without sockets, separately for
//! each kind of work.

use std::collections::VecDeque;

use tidegate_world::{Core, Load, Received, Timestamp, Transmit, Work, delegate};

use super::slices::{Slice, Slices};
use crate::measure::{pass_inputs, thread_ns};

/// Totals over all inputs of a server's core that are of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// Number of inputs.
    pub inputs: u64,
    /// CPU time in the core, in ns, including the time to fetch the packets that the core sends.
    pub ns: u64,
    /// Number of packets sent because of these inputs.
    pub sent: u64,
}

/// The inputs of a server's core and their CPU time, by kind of work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Messages examined and not rejected, by class.
    pub offered: [Sum; Work::CLASSES_MAX],
    /// Messages examined and rejected, by class.
    pub rejected: [Sum; Work::CLASSES_MAX],
    /// Messages served, by class.
    pub served: [Sum; Work::CLASSES_MAX],
    /// All other inputs: timers, load readings, and attempts to serve that found no message.
    pub rest: Sum,
    /// Number of packets received.
    pub received: u64,
    /// Length of the longest INVITE, in bytes.
    pub invite_bytes: usize,
    /// Approximate CPU time that the measurement itself takes, in ns.
    pub metering_ns: u64,
}

impl Sum {
    /// Returns the mean CPU time of an input in ns, or `None` if there was no input.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        (self.inputs > 0).then(|| self.ns as f64 / self.inputs as f64)
    }

    /// Returns the mean number of packets sent for an input.
    pub(crate) fn sent_each(&self) -> f64 {
        self.sent as f64 / self.inputs.max(1) as f64
    }
}

impl Tally {
    fn sums(&self) -> impl Iterator<Item = &Sum> {
        self.offered.iter().chain(&self.rejected).chain(&self.served).chain([&self.rest])
    }

    /// Multiplies the CPU time of each kind of input by `factor`.
    pub fn scale(&mut self, factor: f64) {
        let Self { offered, rejected, served, rest, .. } = self;
        let sums = [offered, rejected, served].into_iter().flatten().chain([rest]);
        for sum in sums {
            sum.ns = (sum.ns as f64 * factor) as u64;
        }
    }

    /// Returns the CPU time of all inputs in the core, in ns.
    pub fn ns(&self) -> u64 {
        self.sums().map(|sum| sum.ns).sum()
    }

    pub fn sent(&self) -> u64 {
        self.sums().map(|sum| sum.sent).sum()
    }

    pub fn messages_served(&self) -> u64 {
        self.served.iter().map(|sum| sum.inputs).sum()
    }
}

/// The choice of the inputs whose CPU time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metering {
    /// The time of each input is measured.
    Each,
    /// No input is timed, because reading the clock disturbs the measurement. The clock is read
    /// only every `SELDOM` inputs, to pause the thread at the end of its slice.
    Hardly,
}

/// Number of inputs from one reading of the clock to the next, with [`Metering::Hardly`].
const SELDOM: u32 = 16;

/// A server's core whose inputs are timed by the CPU clock of its thread. This clock does not count
/// other work on the processor. The thread runs in [`Slices`].
pub(super) struct Metered<C> {
    core: C,
    metering: Metering,
    /// Number of inputs since the last reading of the clock, with [`Metering::Hardly`].
    unread: u32,
    out: VecDeque<Transmit>,
    tally: Tally,
    slices: Slices,
    /// Two times in ns: the CPU time that two readings of the clock take, and the time that a
    /// measurement shows if nothing happens between its two readings.
    clock_ns: (u64, u64),
}

impl<C: Core> Metered<C> {
    /// Creates the timed core. The thread that will drive the core must call this function.
    pub fn new(core: C, metering: Metering, slice: Slice) -> Self {
        let clock_ns = clock_cost();
        let slices = Slices::new(slice, thread_ns());
        let (out, tally) = (VecDeque::new(), Tally::default());
        Self { core, metering, unread: 0, out, tally, slices, clock_ns }
    }

    pub(crate) fn into_tally(self) -> Tally {
        self.tally
    }

    /// Gives the core an input and fetches the packets that the core sends. Returns the result of
    /// the input, its CPU time, and the number of these packets. With [`Metering::Hardly`], this
    /// function fetches no packets and returns an empty sum.
    fn meter<R>(&mut self, input: impl FnOnce(&mut C) -> R) -> (R, Sum) {
        if self.metering == Metering::Hardly {
            self.unread += 1;
            if self.unread == SELDOM {
                self.unread = 0;
                self.slices.keep(thread_ns());
            }
            return (input(&mut self.core), Sum::default());
        }
        let (begun, before) = (thread_ns(), self.out.len());
        let result = input(&mut self.core);
        while let Some(transmit) = self.core.poll_transmit() {
            self.out.push_back(transmit);
        }
        let ended = thread_ns();
        let ns = (ended - begun).saturating_sub(self.clock_ns.1);
        self.tally.metering_ns += self.clock_ns.0;
        self.slices.keep(ended);
        (result, Sum { inputs: 1, ns, sent: (self.out.len() - before) as u64 })
    }

    fn rest(&mut self, now: Timestamp, input: impl FnOnce(&mut C, Timestamp)) {
        let ((), sum) = self.meter(|core| input(core, now));
        self.tally.rest.add(sum);
    }
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.inputs += other.inputs;
        self.ns += other.ns;
        self.sent += other.sent;
    }
}

/// Adds `sum` to the totals of `tally` for the kind of `work`.
fn enter(tally: &mut Tally, work: Work, sum: Sum) {
    let place = match work {
        Work { rejected: Some(class), .. } => &mut tally.rejected[usize::from(class)],
        Work { served: Some(class), .. } => &mut tally.served[usize::from(class)],
        Work { offered: Some(class), .. } => &mut tally.offered[usize::from(class)],
        Work { .. } => &mut tally.rest,
    };
    place.add(sum);
}

// `missing_trait_methods` makes sure that every input is metered. An input that is only passed on
// would be missing from the sums.
#[deny(clippy::missing_trait_methods)]
impl<C: Core> Core for Metered<C> {
    fn offer(&mut self, now: Timestamp, received: Received) {
        if received.bytes.starts_with(b"INVITE") {
            self.tally.invite_bytes = self.tally.invite_bytes.max(received.bytes.len());
        }
        let ((), sum) = self.meter(|core| core.offer(now, received));
        self.tally.received += 1;
        enter(&mut self.tally, self.core.last_work(), sum);
    }

    fn serve(&mut self, now: Timestamp) -> bool {
        let (served, sum) = self.meter(|core| core.serve(now));
        let work = if served { self.core.last_work() } else { Work::default() };
        enter(&mut self.tally, work, sum);
        served
    }

    fn on_load(&mut self, now: Timestamp, load: Load) {
        self.rest(now, |core, now| core.on_load(now, load));
    }

    pass_inputs!(self.rest);

    fn poll_transmit(&mut self) -> Option<Transmit> {
        match self.metering {
            Metering::Each => self.out.pop_front(),
            Metering::Hardly => self.core.poll_transmit(),
        }
    }

    delegate!(self.core, only poll_handoff, poll_query, poll_connect, poll_close, poll_shedding,
        last_work, poll_timeout, is_drained);
}

/// Returns two times in ns: the time that two readings of the clock take, and the time that a
/// measurement shows if nothing happens between its two readings. Measures both 1001 times, and
/// returns the pair with the median of the first time.
fn clock_cost() -> (u64, u64) {
    let mut pairs: Vec<(u64, u64)> = (0..1001)
        .map(|_| {
            let outer = thread_ns();
            let inner = thread_ns();
            let seen = thread_ns() - inner;
            // This interval contains three readings of the clock.
            ((thread_ns() - outer) * 2 / 3, seen)
        })
        .collect();
    pairs.sort_unstable();
    pairs[500]
}
