//! What messages cost on this machine, by class: the numbers that let a simulation predict it.
//!
//! A Tidegate runs on a real socket, on a thread of its own, between callers and answerers on
//! theirs. Every input of its core is timed by the clock of its thread. The rest of the thread's
//! CPU time is the sockets': the runs mix packets that come and packets that go in different
//! proportions, so that the cost of each can be told ([`fit`]). A message costs its time in the
//! core and that of its packets, as they cost in that run.
//!
//! How many INVITEs a listener's receive buffer holds is tried out ([`room`]).
//!
//! The runs: calls; calls that their callers give up, for CANCEL; calls refused by 503; calls
//! dropped. The server's thread runs in slices ([`slices`]), and has always something to do: of each
//! kind more calls are offered than it can take ([`saturation`]), of which [`OPEN_MAX`] may be under
//! way. A packet costs less the more of them come and go at once; so these are the costs of a server
//! at its capacity.
//!
//! Reading the clock disturbs what it measures. So each run is made twice, the second time without:
//! the first says in what proportion the messages cost, the second how much they cost together.
//!
//! # Known bias
//!
//! An idle server spends more on a packet. What the sum of the costs of a call differs from the
//! CPU time of a call measured whole is told beside them.

mod costs;
mod fit;
mod metered;
mod room;
mod saturation;
mod slices;
mod stage;

use std::time::Duration;

use serde::Serialize;
use tidegate_proxy::{Class, Disposal, Mode};
use tidegate_server::config::Emulate;

use crate::cost;
use crate::machine::Machine;
use crate::summary::Spread;
use costs::Prices;
use fit::{Outside, PerPacket};
use metered::Metering;
use stage::{Action, Played};

/// Calls under way at the most: they wait for the server for less than T1, after which they
/// would be repeated.
const OPEN_MAX: usize = 300;

/// Use of a core from which a thread of the generator may have waited for it.
const GENERATOR_BUSY: f64 = 0.9;

/// Use of its slices below which a server had not always something to do.
const SERVER_IDLE: f64 = 0.9;

/// Seconds of the runs by which is sought what to offer.
const SEEKING_S: f64 = 0.5;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// How the server keeps its calls.
    pub mode: Mode,
    /// Seconds of each run.
    pub seconds: f64,
    /// Rounds of runs; the median of each cost counts.
    pub rounds: u32,
    /// The part of a core that the server is to get where the costs are used, above 0, up to 1.
    pub share: f64,
    /// Seed of the first round.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// The machine it was measured on.
    pub machine: Machine,
    /// Calls/s that were offered, of those that were to be served.
    pub rate_cps: f64,
    /// The part of its slices that the server used, the least of all runs.
    pub server_load: f64,
    /// CPU time of the server for a call that is set up and ended, in µs: the whole thread's.
    pub call_us: Spread,
    /// The same as the sum of the costs of its messages.
    pub call_of_costs_us: f64,
    /// CPU time for a call refused by 503, in µs.
    pub refusal_us: Spread,
    /// The same as the sum of costs.
    pub refusal_of_costs_us: f64,
    /// CPU time for an INVITE that is dropped, in µs.
    pub drop_us: Spread,
    /// CPU time outside the core for a packet that comes, in µs.
    pub packet_in_us: Spread,
    /// CPU time outside the core for a packet that goes, in µs.
    pub packet_out_us: Spread,
    /// Use of a core by the busiest thread of the generator, the most of all runs.
    pub generator_load: f64,
    /// Datagrams that were lost at any socket.
    pub drops: u64,
    /// The costs, with the share applied.
    #[serde(skip)]
    pub emulate: Emulate,
    /// The part of a core for which they are.
    pub share: f64,
}

/// Who is told how far it is.
pub trait Observer {
    /// A run is over.
    fn run(&self, round: u32, action: &str, us: f64);
}

/// Measures what messages cost.
///
/// # Errors
/// When there is no socket or no thread, or nothing could be told from the runs.
pub fn measure(parameters: &Parameters, observer: &dyn Observer) -> Result<Calibration, String> {
    let failed = |error: std::io::Error| error.to_string();
    let play = |action, metering, rate_cps, seconds, seed| {
        stage::play(action, metering, parameters, rate_cps, seconds, seed).map_err(failed)
    };
    let mut offered_cps = [0.0; Action::ALL.len()];
    for action in Action::ALL {
        let each_us = |rate_cps| {
            Ok(stage::play(
                action,
                Metering::Hardly,
                parameters,
                rate_cps,
                SEEKING_S,
                parameters.seed,
            )?
            .each_us())
        };
        offered_cps[action as usize] = saturation::saturating_cps(each_us).map_err(failed)?;
    }
    let mut rounds = Vec::new();
    for round in 0..parameters.rounds {
        let seed = parameters.seed.wrapping_add(u64::from(round));
        let mut actions = Vec::new();
        for action in Action::ALL {
            let rate_cps = offered_cps[action as usize];
            let mut played = play(action, Metering::Each, rate_cps, parameters.seconds, seed)?;
            let whole = play(action, Metering::Hardly, rate_cps, parameters.seconds, seed)?;
            observer.run(round + 1, action.title(), whole.each_us());
            played.take_level_of(&whole);
            actions.push(played);
        }
        rounds.push(Round::of(actions)?);
    }
    let invite_bytes = rounds.iter().flat_map(|round| &round.actions).map(|a| a.tally.invite_bytes);
    let invite_bytes = invite_bytes.max().unwrap_or(0);
    let socket_max = room::datagrams(invite_bytes).map_err(failed)?;
    let rate_cps = offered_cps[Action::Calls as usize];
    Ok(summarise(parameters, rate_cps, socket_max, &rounds))
}

/// The runs of a round.
struct Round {
    actions: Vec<Played>,
    packet: PerPacket,
    prices: Prices,
}

impl Round {
    fn of(actions: Vec<Played>) -> Result<Self, String> {
        let outside: Vec<Outside> = actions.iter().map(Played::outside).collect();
        let packet = fit::fit(&outside)
            .ok_or("the runs do not tell apart what packets that come and that go cost")?;
        // What a run is about is priced by it; the others fill the gaps.
        let packets: Vec<PerPacket> = actions.iter().map(|a| packet.at(a.outside())).collect();
        let of_actions: Vec<Prices> = actions
            .iter()
            .zip(&packets)
            .map(|(played, packet)| Prices::of(&played.tally, *packet))
            .collect();
        let refused = &of_actions[Action::Refused as usize];
        // What one costs at the least is common to all; the rest is its kind's.
        let receive_ns = packets.iter().map(|packet| packet.received_ns).fold(f64::MAX, f64::min);
        let prices = of_actions.iter().fold(Prices::default(), Prices::or);
        let prices = prices.looking_as(refused).receiving_for(receive_ns / 1e3);
        Ok(Self { actions, packet, prices })
    }

    fn each_us(&self, action: Action) -> f64 {
        self.actions[action as usize].each_us()
    }
}

fn summarise(
    parameters: &Parameters,
    rate_cps: f64,
    socket_max: usize,
    rounds: &[Round],
) -> Calibration {
    let spread = |value: &dyn Fn(&Round) -> f64| {
        Spread::of(rounds.iter().map(value)).expect("there is at least one round")
    };
    let actions = || rounds.iter().flat_map(|round| &round.actions);
    let prices: Vec<Prices> = rounds.iter().map(|round| round.prices.clone()).collect();
    let prices = Prices::median(&prices);
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let whole = prices.emulate(1.0, socket_max);
    Calibration {
        machine: Machine::this(),
        rate_cps,
        server_load: actions().map(|played| played.server_load).fold(f64::MAX, f64::min),
        call_us: spread(&|round| round.each_us(Action::Calls)),
        call_of_costs_us: us(cost::call(&whole, &cost::CALL)),
        refusal_us: spread(&|round| round.each_us(Action::Refused)),
        refusal_of_costs_us: us(cost::refusal(&whole, Disposal::Reject)),
        drop_us: spread(&|round| round.each_us(Action::Dropped)),
        packet_in_us: spread(&|round| round.packet.received_ns / 1e3),
        packet_out_us: spread(&|round| round.packet.sent_ns / 1e3),
        generator_load: actions().map(|played| played.generator_load).fold(0.0, f64::max),
        drops: actions().map(|played| played.drops).sum(),
        emulate: prices.emulate(1.0 / parameters.share, socket_max),
        share: parameters.share,
    }
}

impl Calibration {
    /// The file of costs: the table `[emulate]`, and above it how they were measured.
    pub fn file(&self) -> String {
        costs::file(&self.to_string(), &self.emulate)
    }

    /// What it costs to receive a message, in µs.
    pub fn receive_us(&self) -> f64 {
        self.emulate.receive.as_secs_f64() * 1e6
    }

    /// The costs of one class, in µs: to look at it, to serve it, to refuse it.
    pub fn of(&self, class: Class) -> [f64; 3] {
        let Emulate { offer, serve, refuse, .. } = &self.emulate;
        [offer, serve, refuse].map(|costs| costs[class as usize].as_secs_f64() * 1e6)
    }
}

impl std::fmt::Display for Calibration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |spread: &Spread| {
            format!("{:.2} / {:.2} / {:.2}", spread.min, spread.median, spread.max)
        };
        writeln!(f, "What messages cost on {}.", self.machine.processor)?;
        writeln!(f, "Offered {:.0} calls/s; min / median / max of the rounds:", self.rate_cps)?;
        writeln!(
            f,
            "a call           {} µs; {:.2} by the costs of its messages",
            text(&self.call_us),
            self.call_of_costs_us
        )?;
        writeln!(
            f,
            "a refused call   {} µs; {:.2} by the costs",
            text(&self.refusal_us),
            self.refusal_of_costs_us
        )?;
        writeln!(f, "a dropped INVITE {} µs", text(&self.drop_us))?;
        writeln!(
            f,
            "outside the core, a packet in {} µs, a packet out {} µs",
            text(&self.packet_in_us),
            text(&self.packet_out_us)
        )?;
        write!(
            f,
            "the server used {:.2} of its slices or more, the generator's busiest thread {:.2} of a \
             core; {} datagrams were lost",
            self.server_load, self.generator_load, self.drops
        )?;
        let idle = self.server_load < SERVER_IDLE;
        if idle || self.drops > 0 || self.generator_load > GENERATOR_BUSY {
            write!(f, "\nThe costs are in doubt: measure again while nothing else runs.")?;
        }
        if self.share < 1.0 {
            let times = 1.0 / self.share;
            write!(
                f,
                "\nThe costs below are those of {:.2} of a core: {times:.2} times as much.",
                self.share
            )?;
        }
        Ok(())
    }
}
