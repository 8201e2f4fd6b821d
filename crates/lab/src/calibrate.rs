//! Measures the CPU time that a server on this machine needs for a message of each class. A
//! simulation uses these times to predict the performance of the server.
//!
//! A server runs on a real socket in its own thread, between callers and answerers in other
//! threads. The CPU clock of the server's thread times every input of its core, which is the proxy
//! without sockets. The remaining CPU time of the thread is spent on sockets. Because the runs have
//! different proportions of received and sent packets, the socket cost of a received and of a sent
//! packet can be computed ([`fit`]). The cost of a message is its time in the core plus the cost of
//! its packets.
//!
//! The module also measures the number of INVITEs that fit in a listener's receive buffer
//! ([`room`]).
//!
//! There are four kinds of runs: calls that are set up and ended, calls that their callers cancel,
//! calls rejected with 503, and dropped calls. The server's thread pauses for a part of each
//! period, such as 4 ms of every 5 ms ([`slices`]). Except during these pauses the server is never
//! idle, because more calls are offered than it can handle ([`saturation`]). In all runs except
//! those with dropped calls, the number of open calls is limited ([`OPEN_MAX`]). A packet costs
//! less if more packets are received and sent at once. So the measured costs are those of a server
//! at its capacity.
//!
//! Reading the clock disturbs the measurement. So each run is made twice, the second time without
//! reading the clock for each input. The first run gives the proportions of the costs, and the
//! second gives their sum.
//!
//! # Known bias
//!
//! A packet costs more in a server that is idle at times. So the measured costs are too low for
//! such a server. The result gives the CPU time of a call twice, as measured and as the sum of the
//! costs of its messages, so that a difference can be seen.

mod costs;
mod fit;
mod metered;
mod room;
mod saturation;
mod slices;
mod stage;

use std::time::Duration;

use serde::Serialize;
pub use tidegate_emulate::Quota;
use tidegate_proxy::{Class, Disposal, Mode};
use tidegate_server::config::Emulate;

use crate::cost;
use crate::machine::Machine;
use crate::summary::Spread;
use costs::Prices;
use fit::{Outside, PerPacket};
use metered::Metering;
use stage::{Action, Played};

/// Maximum number of open calls if the server's thread may use 1 ms of CPU time in each period
/// ([`slices`]). For more CPU time, the maximum is proportionally higher, up to `OPEN_LIMIT`. With
/// at most this many open calls, the server answers within T1 (RFC 3261), so callers do not
/// retransmit INVITEs.
const OPEN_MAX: usize = 300;
const OPEN_LIMIT: usize = 1500;

/// The part of a processor core that a thread of the load generator may use. If it uses more, the
/// generator may have offered too few calls.
const GENERATOR_BUSY: f64 = 0.9;

/// The part of its allowed CPU time that a server must use. If it uses less, its measured costs are
/// in doubt.
const SERVER_IDLE: f64 = 0.9;

/// Duration of each run that searches for the rate of calls to offer, in seconds.
const SEEKING_S: f64 = 0.5;

/// The parameters of [`measure`].
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Mode of the server: with transactions, without, or adaptive.
    pub mode: Mode,
    /// Duration of each run, in seconds.
    pub seconds: f64,
    /// Number of rounds. Each round makes all runs, and each resulting cost is the median over the
    /// rounds.
    pub rounds: u32,
    /// The CPU quota of the server that a simulation will emulate with the measured costs, or
    /// `None` if that server has a whole core.
    pub quota: Option<Quota>,
    /// Seed of the random numbers in the first round. The seed of each further round is higher by
    /// 1.
    pub seed: u64,
}

/// The measured costs of messages on a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// The machine on which the costs were measured.
    pub machine: Machine,
    /// The load in calls/s in the runs in which calls are set up and ended.
    pub rate_cps: f64,
    /// The smallest share of its allowed CPU time, 0 to 1, that the server used in any run, while
    /// calls were offered.
    pub server_load: f64,
    /// CPU time of the server's whole thread for a call that is set up and ended, in µs.
    pub call_us: Spread,
    /// CPU time of a call, computed as the sum of the costs of its messages, in µs.
    pub call_of_costs_us: f64,
    /// CPU time for a call rejected with 503, in µs.
    pub rejection_us: Spread,
    /// CPU time of a call rejected with 503, computed as the sum of the costs of its messages, in
    /// µs.
    pub rejection_of_costs_us: f64,
    /// CPU time for an INVITE that is dropped, in µs.
    pub drop_us: Spread,
    /// CPU time that the server spends on sockets for a received packet, in µs.
    pub packet_in_us: Spread,
    /// CPU time that the server spends on sockets for a sent packet, in µs.
    pub packet_out_us: Spread,
    /// The largest part of a processor core that a thread of the load generator used in a run.
    pub generator_load: f64,
    /// Number of datagrams that sockets lost in all runs. Losses at the server's socket in the runs
    /// with dropped calls are not counted.
    pub drops: u64,
    /// The configuration table `[emulate]`: the costs of messages on a whole core, and the CPU
    /// quota.
    #[serde(skip)]
    pub emulate: Emulate,
}

/// Measures the CPU time of messages of each class on this machine. In each round, calls `on_run`
/// once for each kind of calls, with three values: the round (counted from 1), the name of the kind
/// of calls, and the server's CPU time for one call or one dropped INVITE, in µs.
///
/// # Errors
/// Returns an error if a socket or a thread cannot be created, or if the runs do not determine the
/// costs.
pub fn measure(
    parameters: &Parameters,
    on_run: &dyn Fn(u32, &str, f64),
) -> Result<Calibration, String> {
    let failed = |error: std::io::Error| error.to_string();
    let play = |action, metering, rate_cps, seconds, seed| {
        stage::play(action, metering, parameters, rate_cps, seconds, seed).map_err(failed)
    };
    let share = slices::Slice::of(parameters.quota).share();
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
        offered_cps[action as usize] =
            saturation::saturating_cps(share, each_us).map_err(failed)?;
    }
    let mut rounds = Vec::new();
    for round in 0..parameters.rounds {
        let seed = parameters.seed.wrapping_add(u64::from(round));
        let mut actions = Vec::new();
        for action in Action::ALL {
            let rate_cps = offered_cps[action as usize];
            let mut played = play(action, Metering::Each, rate_cps, parameters.seconds, seed)?;
            let whole = play(action, Metering::Hardly, rate_cps, parameters.seconds, seed)?;
            on_run(round + 1, action.name(), whole.each_us());
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

/// The runs of one round, and the costs that are computed from them.
struct Round {
    actions: Vec<Played>,
    packet: PerPacket,
    prices: Prices,
}

impl Round {
    fn of(actions: Vec<Played>) -> Result<Self, String> {
        let outside: Vec<Outside> = actions.iter().map(Played::outside).collect();
        let packet = fit::fit(&outside).ok_or(
            "the runs do not distinguish the costs of received and sent packets; measure again",
        )?;
        // The cost of each kind of message comes from the run that is made for it. If that run has
        // no such messages, it comes from another run.
        let packets: Vec<PerPacket> = actions.iter().map(|a| packet.at(a.outside())).collect();
        let of_actions: Vec<Prices> = actions
            .iter()
            .zip(&packets)
            .map(|(played, packet)| Prices::of(&played.tally, *packet))
            .collect();
        let rejected = &of_actions[Action::Rejected as usize];
        // All classes have the same cost of reception: the lowest cost of a received packet among
        // all runs. The rest of the cost of a message belongs to its class.
        let receive_ns = packets.iter().map(|packet| packet.received_ns).fold(f64::MAX, f64::min);
        let prices = of_actions.iter().fold(Prices::default(), Prices::or);
        let prices = prices.looking_as(rejected).receiving_for(receive_ns / 1e3);
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
    let whole = prices.emulate(socket_max);
    Calibration {
        machine: Machine::this(),
        rate_cps,
        server_load: actions().map(|played| played.server_load).fold(f64::MAX, f64::min),
        call_us: spread(&|round| round.each_us(Action::Calls)),
        call_of_costs_us: us(cost::call(&whole, &cost::CALL)),
        rejection_us: spread(&|round| round.each_us(Action::Rejected)),
        rejection_of_costs_us: us(cost::rejection(&whole, Disposal::Reject)),
        drop_us: spread(&|round| round.each_us(Action::Dropped)),
        packet_in_us: spread(&|round| round.packet.received_ns / 1e3),
        packet_out_us: spread(&|round| round.packet.sent_ns / 1e3),
        generator_load: actions().map(|played| played.generator_load).fold(0.0, f64::max),
        drops: actions().map(|played| played.drops).sum(),
        emulate: match parameters.quota {
            Some(Quota { period, runtime, tick }) => {
                Emulate { quota: Some(runtime.div_duration_f64(period)), period, tick, ..whole }
            }
            None => whole,
        },
    }
}

impl Calibration {
    /// Returns the content of a file of costs: comments that describe the measurement, and then the
    /// table `[emulate]`.
    pub fn file(&self) -> String {
        costs::file(&self.to_string(), &self.emulate)
    }

    /// Returns the cost of receiving a message, in µs.
    pub fn receive_us(&self) -> f64 {
        self.emulate.receive.as_secs_f64() * 1e6
    }

    /// Returns the costs of examining, serving and rejecting a message of `class`, in µs.
    pub fn of(&self, class: Class) -> [f64; 3] {
        let Emulate { offer, serve, reject, .. } = &self.emulate;
        [offer, serve, reject].map(|costs| costs[class as usize].as_secs_f64() * 1e6)
    }
}

impl std::fmt::Display for Calibration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |spread: &Spread| {
            format!("{:.2} / {:.2} / {:.2}", spread.min, spread.median, spread.max)
        };
        writeln!(f, "The cost of messages on {}.", self.machine.processor)?;
        writeln!(
            f,
            "Offered {:.0} calls/s. CPU time as minimum / median / maximum of the rounds:",
            self.rate_cps
        )?;
        writeln!(
            f,
            "a call           {} µs; the costs of its messages add up to {:.2} µs",
            text(&self.call_us),
            self.call_of_costs_us
        )?;
        writeln!(
            f,
            "a rejected call  {} µs; the costs of its messages add up to {:.2} µs",
            text(&self.rejection_us),
            self.rejection_of_costs_us
        )?;
        writeln!(f, "a dropped INVITE {} µs", text(&self.drop_us))?;
        writeln!(
            f,
            "on sockets, a received packet {} µs, a sent packet {} µs",
            text(&self.packet_in_us),
            text(&self.packet_out_us)
        )?;
        write!(
            f,
            "The server used at least {:.2} of its allowed CPU time. The busiest thread of the \
             load generator used {:.2} of a core. {} datagrams were lost.",
            self.server_load, self.generator_load, self.drops
        )?;
        let idle = self.server_load < SERVER_IDLE;
        if idle || self.drops > 0 || self.generator_load > GENERATOR_BUSY {
            write!(f, "\nThe costs are in doubt: measure again while nothing else runs.")?;
        }
        Ok(())
    }
}
