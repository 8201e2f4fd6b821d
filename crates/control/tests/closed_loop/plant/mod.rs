//! A server of calls behind a gate, and callers that retransmit.
//!
//! Calls arrive as a Poisson process. A caller retransmits its INVITE after T1, 3·T1, 7·T1, ...
//! (RFC 3261 §17.1.1.2, timer A) until it is answered, and gives up after 64·T1 (timer B). A call
//! counts for the goodput if it is served within [`PATIENCE`] of its first INVITE. A rejected call
//! does not count. The cost of an INVITE includes the cost of the rest of its call.
//!
//! One processor reads messages, rejects some of them and serves the others. If messages are judged
//! at arrival, a message is read as soon as the processor is free. Admitted messages wait in a
//! queue. The queue is served while there is nothing to read, and for at least half of the time. If
//! messages are judged at service, they wait unread in one queue.

mod server;

use std::time::Duration;

use tidegate_control::{Bucket, Decide, ThrottleKind, Values};
use tidegate_world::{Seed, Timestamp};

use server::Server;

/// Time within which a call should be answered.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// The costs of the processor's work.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Cost of reading a message and deciding on it.
    pub look: Duration,
    /// Mean cost of serving a call.
    pub serve: Duration,
    /// Cost of rejecting a call.
    pub reject: Duration,
    pub spread: Spread,
}

/// The distribution of service times around their mean.
#[derive(Clone, Copy, Debug)]
pub enum Spread {
    Constant,
    Exponential,
    /// A Pareto distribution with α = 1.5: the variance is infinite, and the longest hundredth of
    /// the calls takes a fifth of the whole time. Times are cut at a hundred times the mean.
    Heavy,
}

impl Costs {
    /// Returns the calls a second that can be served.
    pub fn capacity_cps(&self) -> f64 {
        1.0 / (self.look + self.serve).as_secs_f64()
    }

    /// Returns the cost of rejecting a call divided by the cost of serving it.
    pub fn ratio(&self) -> f64 {
        (self.look + self.reject).as_secs_f64() * self.capacity_cps()
    }
}

/// A server and its offered load.
#[derive(Clone, Debug)]
pub struct Setup {
    pub law: Values,
    pub decide: Decide,
    /// The throttle and its burst.
    pub throttle: (ThrottleKind, u32),
    pub costs: Costs,
    /// Maximum number of messages in a queue.
    pub queue_max: usize,
    /// The phases of the run. Each has a length, and an offered load in multiples of the capacity.
    pub profile: Vec<(Duration, f64)>,
    pub seed: Seed,
    pub disturbance: Disturbance,
    /// Pauses of the process, in order, each with an earliest start and a length. A pause begins
    /// with the next job. During a pause the process does not read, and the law does not tick.
    pub pauses: Vec<(Duration, Duration)>,
    /// The law that replaces `law` at this time.
    pub switch: Option<(Duration, Values)>,
}

/// A property of the server or of its callers that a law does not expect.
#[derive(Clone, Copy, Debug)]
pub struct Disturbance {
    /// The gate is told the true service costs multiplied by this factor.
    pub misjudged: f64,
    /// The service cost of all calls is multiplied by the factor from this time on.
    pub dearer_from: Option<(Duration, f64)>,
    /// Other programs use the processor at the end of each period: length of the period, and of
    /// their use.
    pub stolen: Option<(Duration, Duration)>,
    /// Each call causes further work, which is served before new calls: the delay until this work
    /// comes, and its service time.
    pub later: Option<(Duration, Duration)>,
    /// Time to the first repetition.
    pub t1: Duration,
}

impl Disturbance {
    pub const NONE: Self = Self {
        misjudged: 1.0,
        dearer_from: None,
        stolen: None,
        later: None,
        t1: Duration::from_millis(500),
    };
}

/// The state at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    pub at: Timestamp,
    /// Waiting calls.
    pub waiting: usize,
    /// Occupied share of the time since the previous note.
    pub occupancy: f64,
    /// Share of new calls that the law admits.
    pub admitted: f64,
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Each served call: its start, and its answer.
    pub served: Vec<(Timestamp, Timestamp)>,
    pub notes: Vec<Note>,
    /// Messages beyond the first of each call.
    pub repetitions: u64,
    /// Start times of all calls.
    pub began: Vec<Timestamp>,
    /// Start times of the rejected calls.
    pub rejected: Vec<Timestamp>,
}

impl Outcome {
    /// Returns the calls a second that started from `from_s` to `to_s` and were answered in time.
    pub fn goodput_cps(&self, from_s: f64, to_s: f64) -> f64 {
        let in_time = |&&(began, answered): &&(Timestamp, Timestamp)| {
            (from_s..to_s).contains(&began.as_secs_f64()) && answered.since(began) <= PATIENCE
        };
        self.served.iter().filter(in_time).count() as f64 / (to_s - from_s)
    }

    /// Returns the 99th percentile of the delay of the served calls that started in this time, or 0
    /// if none was served.
    pub fn delay_p99_s(&self, from_s: f64, to_s: f64) -> f64 {
        let began_then =
            |&&(began, _): &&(Timestamp, Timestamp)| (from_s..to_s).contains(&began.as_secs_f64());
        let mut delays: Vec<Duration> = self
            .served
            .iter()
            .filter(began_then)
            .map(|&(began, answered)| answered.since(began))
            .collect();
        delays.sort_unstable();
        delays.get(delays.len() * 99 / 100).map_or(0.0, Duration::as_secs_f64)
    }

    /// Returns the share of rejected calls among those that started in this time.
    pub fn rejected_share(&self, from_s: f64, to_s: f64) -> f64 {
        let count = |calls: &[Timestamp]| {
            calls.iter().filter(|at| (from_s..to_s).contains(&at.as_secs_f64())).count() as f64
        };
        count(&self.rejected) / count(&self.began)
    }

    /// Returns the share of the calls that began in this time and were not answered in time.
    pub fn lost_share(&self, from_s: f64, to_s: f64) -> f64 {
        1.0 - self.goodput_cps(from_s, to_s) / self.offered_cps(from_s, to_s)
    }

    /// Returns the calls per second that began in this time.
    pub fn offered_cps(&self, from_s: f64, to_s: f64) -> f64 {
        let began = |at: &&Timestamp| (from_s..to_s).contains(&at.as_secs_f64());
        self.began.iter().filter(began).count() as f64 / (to_s - from_s)
    }

    /// Returns the notes from `from_s` to `to_s`.
    pub fn noted(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(move |note| (from_s..to_s).contains(&note.at.as_secs_f64()))
    }

    /// Returns the mean of `of` over the notes from `from_s` to `to_s`.
    pub fn mean(&self, from_s: f64, to_s: f64, of: impl Fn(&Note) -> f64) -> f64 {
        let (count, sum) =
            self.noted(from_s, to_s).fold((0, 0.0), |(n, sum), note| (n + 1, sum + of(note)));
        sum / f64::from(count)
    }
}

/// Runs a server to the end of its profile.
pub fn run(setup: &Setup) -> Outcome {
    let mut server = Server::new(setup);
    server.run();
    let flow = *server.gate.signals().flow(Bucket::Session);
    let undecided = match setup.decide {
        Decide::Arrival => 0,
        Decide::Service => server.undecided(),
    };
    assert_eq!(flow.offered, flow.admitted + flow.rejected + undecided, "{flow:?}");
    assert_eq!(flow.arrived, flow.offered + flow.repeated, "{flow:?}");
    server.outcome
}
