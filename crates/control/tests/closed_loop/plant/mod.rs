//! A server of calls with a gate before it, and callers that repeat what is not answered.
//!
//! Calls arrive as a Poisson process. A caller sends its INVITE again after T1, 3·T1, 7·T1,
//! ... (RFC 3261 §17.1.1.2, timer A) until it is answered, and gives up after 64·T1 (timer
//! B). A call counts if it is answered within [`PATIENCE`] of its first INVITE, and not at all
//! if it is refused. The rest of a call is in the cost of its INVITE.
//!
//! One processor reads messages, refuses some of them and serves the others. Judged at arrival,
//! a message is read as soon as the processor is free; what is admitted waits in a queue, which
//! is served while nothing is to be read, and half of the time in any case. Judged at
//! service, messages wait unread in one queue.

mod server;

use std::time::Duration;

use tidegate_control::{Bucket, Decide, ThrottleKind, Values};
use tidegate_world::{Seed, Timestamp};

use server::Server;

/// Within what time a call is to be answered.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// What the processor's work takes.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// To read a message and have it judged.
    pub look: Duration,
    /// To serve a call, on the mean.
    pub serve: Duration,
    /// To refuse a call.
    pub refuse: Duration,
    /// Whether service times are exponentially distributed; else they are all alike.
    pub exponential: bool,
}

impl Costs {
    /// Calls a second that can be served.
    pub fn capacity_cps(&self) -> f64 {
        1.0 / (self.look + self.serve).as_secs_f64()
    }

    /// Cost of refusing a call over that of serving it.
    pub fn ratio(&self) -> f64 {
        (self.look + self.refuse).as_secs_f64() * self.capacity_cps()
    }
}

/// A server and what it is offered.
#[derive(Clone, Debug)]
pub struct Setup {
    pub law: Values,
    pub decide: Decide,
    /// The throttle and its burst.
    pub throttle: (ThrottleKind, u32),
    pub costs: Costs,
    /// Messages that a queue holds.
    pub queue_max: usize,
    /// Offered load in multiples of the capacity, each for a time.
    pub profile: Vec<(Duration, f64)>,
    pub seed: Seed,
}

/// The state at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    pub at: Timestamp,
    /// Calls that wait.
    pub waiting: usize,
    /// Occupied share of the time since the note before.
    pub occupancy: f64,
    /// Share of new calls that the law admits.
    pub admitted: f64,
}

/// What became of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Each call: when it began, and when it was answered.
    pub served: Vec<(Timestamp, Timestamp)>,
    pub notes: Vec<Note>,
    /// Messages beyond the first of each call.
    pub repetitions: u64,
    /// When each call began, and when those did that were refused.
    pub began: Vec<Timestamp>,
    pub refused: Vec<Timestamp>,
}

impl Outcome {
    /// Calls a second that began from `from_s` to `to_s` and were answered in time.
    pub fn goodput_cps(&self, from_s: f64, to_s: f64) -> f64 {
        let in_time = |&&(began, answered): &&(Timestamp, Timestamp)| {
            (from_s..to_s).contains(&began.as_secs_f64()) && answered.since(began) <= PATIENCE
        };
        self.served.iter().filter(in_time).count() as f64 / (to_s - from_s)
    }

    /// Time that one in a hundred of the served calls that began in this time had to wait
    /// for its answer; 0 if none was served.
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

    /// Share of the calls that began in this time and were refused.
    pub fn refused_share(&self, from_s: f64, to_s: f64) -> f64 {
        let count = |calls: &[Timestamp]| {
            calls.iter().filter(|at| (from_s..to_s).contains(&at.as_secs_f64())).count() as f64
        };
        count(&self.refused) / count(&self.began)
    }

    /// The notes of a time.
    pub fn noted(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(move |note| (from_s..to_s).contains(&note.at.as_secs_f64()))
    }

    /// The mean of what `of` says of each note of a time.
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
    assert_eq!(flow.offered, flow.admitted + flow.refused + undecided, "{flow:?}");
    assert_eq!(flow.arrived, flow.offered + flow.repeated, "{flow:?}");
    server.outcome
}
