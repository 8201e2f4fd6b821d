//! A farm of servers in simulated time, and the calls that a picker divides among them.
//!
//! A server is one processor with a queue. It takes requests in the order of their arrival and
//! answers each when its work is done, after an exponentially distributed time. A call is an
//! INVITE, a holding time, and a BYE. There is no network.

use std::time::Duration;

use tidegate_balance::{CallLease, Picker, Pool, TransactionLease, Values, Work};
use tidegate_world::{Calendar, Purpose, Seed, Stream, Timestamp};

/// A farm and its offered load.
#[derive(Clone, Copy)]
pub struct Farm<'a> {
    /// Speed of each server, 1 being 300 calls/s.
    pub speeds: &'a [f64],
    /// Configured weight of each server.
    pub weights: &'a [u32],
    /// Cost of an INVITE as a multiple of a BYE.
    pub ratio: f64,
    /// Offered calls, as a fraction of the total capacity.
    pub load: f64,
    pub hold_mean_s: f64,
    pub lasts_s: f64,
}

/// Capacity of a server of speed 1, in calls/s, as in paper 003, §VI.b.
const CAPACITY_CPS: f64 = 300.0;

/// The outcome of a run.
pub struct Outcome {
    /// Response times in seconds of the INVITEs in the second half of the run, sorted.
    pub responses_s: Vec<f64>,
    /// The server of each call, in the order of arrival.
    pub choices: Vec<Choice>,
    pub pool: Pool,
}

/// The assignment of a call to a server.
#[derive(Clone, Debug)]
pub struct Choice {
    pub at: Timestamp,
    pub server: usize,
    /// Mean response time of each server to INVITEs, in ms, as the pool knows it, or 0 if it is
    /// unknown.
    pub means_ms: Vec<f64>,
    /// Open transactions at each server, without this call.
    pub open: Vec<u64>,
}

impl Outcome {
    pub fn mean_ms(&self) -> f64 {
        self.responses_s.iter().sum::<f64>() / self.responses_s.len() as f64 * 1e3
    }

    pub fn p99_ms(&self) -> f64 {
        self.responses_s[self.responses_s.len() * 99 / 100] * 1e3
    }
}

/// An event of the simulation.
enum Event {
    Arrival,
    /// A server has done the work of a request.
    Done {
        call: usize,
        kind: Work,
    },
    HangUp {
        call: usize,
    },
}

struct Call {
    server: usize,
    since: Timestamp,
    call: Option<CallLease>,
    open: Option<TransactionLease>,
}

struct Run<'a> {
    farm: Farm<'a>,
    picker: Picker,
    /// Time at which each server has done its waiting work.
    free_at: Vec<Timestamp>,
    calls: Vec<Call>,
    calendar: Calendar<Event>,
    service: Stream,
    responses_s: Vec<f64>,
    choices: Vec<Choice>,
}

impl Farm<'_> {
    pub fn run(self, policy: impl Into<Values>) -> Outcome {
        let names: Vec<_> = (0..self.speeds.len()).map(|i| format!("server-{i}")).collect();
        let listed: Vec<_> = names
            .iter()
            .zip(self.weights)
            .enumerate()
            .map(|(i, (name, &weight))| {
                (name.as_str(), format!("192.0.2.{}:5060", i + 1).parse().unwrap(), weight)
            })
            .collect();
        let pool = Pool::new("farm", &listed);
        let seed = Seed(4);
        let mut run = Run {
            farm: self,
            picker: Picker::new(pool.clone(), policy, seed.stream(Purpose::Balance, 0)),
            free_at: vec![Timestamp::ZERO; self.speeds.len()],
            calls: Vec::new(),
            calendar: Calendar::new(),
            service: seed.stream(Purpose::Service, 0),
            responses_s: Vec::new(),
            choices: Vec::new(),
        };
        let mut arrivals = seed.stream(Purpose::Arrivals, 0);
        let mut holds = seed.stream(Purpose::Hold, 0);
        let mut keys = seed.stream(Purpose::Identity, 0);
        let rate = self.load * CAPACITY_CPS * self.speeds.iter().sum::<f64>();
        run.calendar.push(Timestamp::ZERO, Event::Arrival);
        while let Some((now, event)) = run.calendar.pop() {
            match event {
                Event::Arrival => {
                    run.invite(now, keys.next_u64());
                    let next = now + Duration::from_secs_f64(arrivals.exponential(1.0 / rate));
                    if next.as_secs_f64() < self.lasts_s {
                        run.calendar.push(next, Event::Arrival);
                    }
                }
                Event::Done { call, kind } => {
                    run.done(now, call, kind);
                    if kind == Work::CallStart {
                        let held = holds.exponential(self.hold_mean_s);
                        run.calendar
                            .push(now + Duration::from_secs_f64(held), Event::HangUp { call });
                    }
                }
                Event::HangUp { call } => run.request(now, call, Work::CallEnd),
            }
        }
        run.responses_s.sort_by(f64::total_cmp);
        Outcome { responses_s: run.responses_s, choices: run.choices, pool }
    }
}

impl Run<'_> {
    fn invite(&mut self, now: Timestamp, key: u64) {
        let server = self.picker.pick(now, key, None).expect("all are up");
        let backends = self.picker.pool().backends();
        self.choices.push(Choice {
            at: now,
            server,
            means_ms: backends
                .iter()
                .map(|b| b.start_response_time().as_secs_f64() * 1e3)
                .collect(),
            open: backends.iter().map(|b| b.transactions()).collect(),
        });
        let call = Some(self.picker.call_lease(server));
        self.calls.push(Call { server, since: now, call, open: None });
        self.request(now, self.calls.len() - 1, Work::CallStart);
    }

    fn request(&mut self, now: Timestamp, call: usize, kind: Work) {
        let server = self.calls[call].server;
        self.calls[call].open = Some(self.picker.transaction_lease(now, server, kind));
        let Farm { ratio, speeds, .. } = self.farm;
        let part = if kind == Work::CallStart { ratio } else { 1.0 } / (ratio + 1.0);
        let mean_s = part / (CAPACITY_CPS * speeds[server]);
        let cost = Duration::from_secs_f64(self.service.exponential(mean_s));
        let done = self.free_at[server].max(now) + cost;
        self.free_at[server] = done;
        self.calendar.push(done, Event::Done { call, kind });
    }

    fn done(&mut self, now: Timestamp, call: usize, kind: Work) {
        let entry = &mut self.calls[call];
        let mut open = entry.open.take().expect("a request was open");
        open.on_answered(now);
        match kind {
            Work::CallStart => {
                if entry.since.as_secs_f64() >= self.farm.lasts_s / 2.0 {
                    self.responses_s.push(now.since(entry.since).as_secs_f64());
                }
            }
            _ => entry.call = None,
        }
    }
}
