//! Measures the CPU time of a message of each kind, if the server admits, rejects or drops the
//! message, and for different overload control. This repeats paper 000 §6.1 on this machine.
//!
//! Each cost is measured in two ways. The *whole cycle* is the CPU time of a server's thread on
//! loopback sockets, from the receive buffer to the last packet sent. *Processing* is the CPU time
//! in the server's core alone, which is the proxy without sockets. In both ways, the thread's CPU
//! clock is read before and after a batch of messages of one kind, and the time of a batch without
//! messages is subtracted. So reading the clock adds nothing, and other work on the processor does
//! not count.
//!
//! The server stays in one state during a measurement. It has either no overload control, or the
//! law `occupancy`. The law measures the load either only once a second or at each message, and
//! admits all messages or none. Messages of all classes are treated in the same way (`classes =
//! "single"`), as in the paper. A server that rejects gets the same messages as a server that
//! admits.
//!
//! # Known bias
//!
//! Each value is the mean of a batch, while the paper measures single messages. So the minimum does
//! not come from a single exceptional message. As in the paper, a batch has messages of one kind
//! only, so the processor's caches work better than with mixed messages.

pub mod gate;
pub mod model;
pub mod picture;

use serde::Serialize;
use tidegate_proxy::{Disposal, Mode};
use tidegate_world::unit_enum;

use crate::machine::Machine;
use crate::measure::REJECTS;
use crate::measure::alone::{Alone, Diverted};
use crate::measure::loopback::Loopback;
use crate::measure::messages::Parties;
pub use crate::measure::script::Kind;
use crate::measure::script::{Script, Timed, Way};
use crate::measure::subject::{Law, State};
use crate::spread::Spread;
use gate::Gate;
use model::Model;

/// An interval between load measurements, in messages, that is longer than any run. With this
/// interval, the law measures the load only once a second.
const NEVER: u32 = 100_000;

/// Minimum part of a batch that the server must reject in a measurement of rejected messages, and
/// must admit in any other measurement.
const RIGHT: f64 = 0.98;

/// The parameters of [`measure`].
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Mode of the server: with transactions, without, or adaptive.
    pub mode: Mode,
    /// Number of rounds. Minimum, median and mean of each cost are computed for each round.
    pub rounds: u32,
    /// Minimum number of messages of each kind in a round.
    pub messages: u32,
    /// Number of messages in a batch. The messages of a batch are timed together.
    pub batch: u32,
}

unit_enum! {
    /// The overload control of the server. Tables use these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Control {
        /// No overload control (`law = "none"`).
        None = "none",
        /// The law `occupancy`, which measures the load only once a second.
        Idle = "idle",
        /// The law `occupancy`, which measures the load at each message. Each measurement reads the
        /// state of the processor and of the sockets.
        Measuring = "measures",
    }
}

unit_enum! {
    /// The decision of overload control about a message. Tables use these names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Decision {
        /// The server admits the message.
        Accepted = "accepted",
        /// The server answers the message with 503, if the message is a request that can be
        /// answered.
        Rejected = "503",
        /// The server does not answer the message.
        Dropped = "dropped",
    }
}

/// All states of the server in which costs are measured, in the order of the rows of the tables.
const STATES: [(Control, Decision); 7] = [
    (Control::None, Decision::Accepted),
    (Control::Idle, Decision::Accepted),
    (Control::Measuring, Decision::Accepted),
    (Control::Idle, Decision::Rejected),
    (Control::Measuring, Decision::Rejected),
    (Control::Idle, Decision::Dropped),
    (Control::Measuring, Decision::Dropped),
];

/// The CPU time of a message in µs, summarised over the rounds of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The smallest cost: the minimum over all rounds.
    pub min_us: f64,
    /// The median over the rounds of the median cost in each round.
    pub median_us: f64,
    /// The mean over the rounds of the mean cost in each round.
    pub mean_us: f64,
    /// Minimum, median and mean cost in each round.
    pub rounds_us: Vec<[f64; 3]>,
}

/// The cost of messages of one kind in one state of the server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Kind of the messages.
    pub kind: Kind,
    /// True if the messages go to a destination that the server's rules select, or belong to a
    /// known call. The server answers other messages with 403 or 481, or drops them.
    pub good: bool,
    /// Overload control of the server.
    pub control: Control,
    /// Decision of overload control about the messages.
    pub fate: Decision,
    /// Cost of the whole cycle, from socket to socket.
    pub cycle: Cost,
    /// Cost in the server's core alone, without sockets.
    pub processing: Cost,
}

/// The measured costs of messages at a server.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// The machine on which the costs were measured.
    pub machine: Machine,
    /// True if the server kept transactions.
    pub transactions: bool,
    /// Number of rounds.
    pub rounds: u32,
    /// Minimum number of messages of each kind in a round.
    pub messages: u32,
    /// Number of messages in a batch.
    pub batch: u32,
    /// One row for each kind of message, destination and state of the server.
    pub rows: Vec<Row>,
    /// Cost of a datagram that the server reads and drops, and of one that the kernel drops before
    /// the server reads it.
    pub gate: Gate,
}

/// Measures the CPU time of messages of each kind in each state of the server. After each
/// measurement of a state, calls `on_measured` with the round, counted from 1, and the state.
///
/// # Errors
/// Returns an error when a socket or a thread cannot be created, or when a server does not reject
/// or admit as intended.
pub fn measure(
    parameters: &Parameters,
    on_measured: &dyn Fn(u32, Control, Decision),
) -> Result<Costs, String> {
    let (mut rows, mut gate) = (Vec::new(), Gate::default());
    for round in 0..parameters.rounds {
        for (control, fate) in STATES {
            let state = state(parameters.mode, control, fate);
            let server = Loopback::start(&state)?;
            let parties = server.parties;
            let cycle = play(&state, server, parties, parameters)?;
            let processing = play(&state, Alone::new(&state, parties)?, parties, parameters)?;
            enter(&mut rows, control, fate, &cycle, &processing);
            on_measured(round + 1, control, fate);
        }
        gate.measure(parameters.messages)?;
    }
    let Parameters { mode, rounds, messages, batch } = *parameters;
    Ok(Costs {
        machine: Machine::this(),
        transactions: mode == Mode::Transaction,
        rounds,
        messages,
        batch,
        rows: sorted(rows),
        gate,
    })
}

fn state(mode: Mode, control: Control, fate: Decision) -> State {
    let measuring = control == Control::Measuring;
    let params = if fate == Decision::Accepted { "" } else { REJECTS };
    let measure = if measuring { 1 } else { NEVER };
    State {
        mode,
        law: (control != Control::None).then_some(Law { name: "occupancy", measure, params }),
        reads_every: u32::from(measuring),
        rejects: match fate {
            Decision::Accepted => None,
            Decision::Rejected => Some(Disposal::Reject),
            Decision::Dropped => Some(Disposal::Drop),
        },
    }
}

/// Passes as many batches of each kind of message to `server` as `parameters` require. Returns the
/// measured times.
fn play<W: Way>(
    state: &State,
    mut server: W,
    parties: Parties,
    parameters: &Parameters,
) -> Result<Vec<Timed>, String> {
    let mut script = Script::new(parties, parameters.batch as usize);
    let times = 0..parameters.messages.div_ceil(parameters.batch);
    let timed: Result<Vec<_>, String> = if state.rejects.is_none() {
        times.map(|_| script.play(&mut server)).collect()
    } else {
        let admits = State { law: None, reads_every: 0, rejects: None, ..state.clone() };
        let admitting = Alone::new(&admits, parties)?;
        let mut diverted = Diverted { rejecting: server, admitting };
        times.map(|_| script.play(&mut diverted)).collect()
    };
    let timed = timed?.concat();
    timed.iter().try_for_each(|timed| check(timed, state.rejects.is_some()))?;
    Ok(timed)
}

/// Checks that the server rejected nearly all messages of a batch if `rejects` is true, and
/// otherwise admitted nearly all.
fn check(timed: &Timed, rejects: bool) -> Result<(), String> {
    // The ACK to the server's own 503 is never rejected. The server takes it and sends nothing.
    let to_be_rejected = rejects && timed.kind != Kind::AckOfRejection;
    let rejected = timed.rejected as f64 / timed.messages as f64;
    let right = if to_be_rejected { rejected } else { 1.0 - rejected };
    match right >= RIGHT {
        true => Ok(()),
        false => Err(format!(
            "{} of {} {} were rejected, but in this measurement nearly all must be {}; repeat the \
             measurement on an idle machine",
            timed.rejected,
            timed.messages,
            timed.kind.name(),
            if to_be_rejected { "rejected" } else { "admitted" },
        )),
    }
}

/// Adds the times measured in one round to the rows of the state `control` and `fate`.
fn enter(
    rows: &mut Vec<Row>,
    control: Control,
    fate: Decision,
    cycle: &[Timed],
    processing: &[Timed],
) {
    let mut known: Vec<(Kind, bool)> = Vec::new();
    for Timed { kind, good, .. } in cycle {
        if !known.contains(&(*kind, *good)) {
            known.push((*kind, *good));
        }
    }
    for (kind, good) in known {
        let each_us = |timed: &[Timed]| -> Vec<f64> {
            let batches = timed.iter().filter(|timed| (timed.kind, timed.good) == (kind, good));
            batches.map(|batch| batch.ns / 1e3 / batch.messages as f64).collect()
        };
        let is_it =
            |row: &Row| (row.kind, row.good, row.control, row.fate) == (kind, good, control, fate);
        let at = rows.iter().position(is_it).unwrap_or_else(|| {
            let (cycle, processing) = (Cost::default(), Cost::default());
            rows.push(Row { kind, good, control, fate, cycle, processing });
            rows.len() - 1
        });
        rows[at].cycle.add(&each_us(cycle));
        rows[at].processing.add(&each_us(processing));
    }
}

/// Sorts the rows by kind of message, then by destination, then by state of the server.
fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    let state = |row: &Row| STATES.iter().position(|state| *state == (row.control, row.fate));
    rows.sort_by_key(|row| (row.kind as u8, !row.good, state(row)));
    rows
}

impl Default for Cost {
    fn default() -> Self {
        Self { min_us: f64::INFINITY, median_us: 0.0, mean_us: 0.0, rounds_us: Vec::new() }
    }
}

impl Cost {
    fn add(&mut self, batches_us: &[f64]) {
        let Some(round) = Spread::of(batches_us.iter().copied()) else { return };
        self.rounds_us.push([round.min, round.median, round.mean]);
        let over = |which: usize| Spread::of(self.rounds_us.iter().map(|round| round[which]));
        self.min_us = over(0).map_or(f64::INFINITY, |least| least.min);
        self.median_us = over(1).map_or(0.0, |medians| medians.median);
        self.mean_us = over(2).map_or(0.0, |means| means.mean);
    }
}

/// Values that are derived from the costs of the whole cycle, or from the costs in the core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Derived {
    /// The cost of all messages of a call under [`Control::Idle`], in µs (s in formulas).
    pub call_us: f64,
    /// The cost of rejecting a call with 503 and taking its ACK, in µs (r in formulas).
    pub rejection_us: f64,
    /// The cost of dropping an INVITE, in µs.
    pub drop_us: f64,
    /// The model of a server that drops messages. Its t_a is the mean cost of the messages of a
    /// call, and its t_d is the mean cost of these messages when they are dropped.
    pub dropping: Model,
    /// The model of a server that rejects calls. Its t_a is the mean cost of the messages of a
    /// call. Its t_d is the cost of a rejected INVITE and the ACK for its 503, divided by the
    /// number of messages of a call.
    pub rejecting: Model,
}

impl Costs {
    /// Derives the cost of calls and the models from the medians of the costs that `cost` selects.
    /// Returns `None` if the cost of a kind of message is missing.
    pub fn derived(&self, cost: fn(&Row) -> &Cost) -> Option<Derived> {
        let of = |kind, control, fate| -> Option<f64> {
            let is =
                |row: &&Row| row.good && (row.kind, row.control, row.fate) == (kind, control, fate);
            self.rows.iter().find(is).map(|row| cost(row).median_us)
        };
        let of_call = |fate| -> Option<f64> {
            Kind::CALL.iter().map(|kind| of(*kind, Control::Idle, fate)).sum()
        };
        let each = Kind::CALL.len() as f64;
        let call_us = of_call(Decision::Accepted)?;
        let dropped_us = of_call(Decision::Dropped)? / each;
        let rejected = |kind| of(kind, Control::Idle, Decision::Rejected);
        let rejection_us = rejected(Kind::Invite)? + rejected(Kind::AckOfRejection)?;
        let model = |dropped_us| Model { accepted_us: call_us / each, dropped_us };
        Some(Derived {
            call_us,
            rejection_us,
            drop_us: of(Kind::Invite, Control::Idle, Decision::Dropped)?,
            dropping: model(dropped_us),
            rejecting: model(rejection_us / each),
        })
    }
}

impl Row {
    /// Returns the cost of a message from socket to socket.
    pub fn cycle(&self) -> &Cost {
        &self.cycle
    }

    /// Returns the cost of a message in the server's core alone.
    pub fn processing(&self) -> &Cost {
        &self.processing
    }
}

#[cfg(test)]
#[path = "costs/tests.rs"]
mod tests;
