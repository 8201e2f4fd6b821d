//! Protects a worker thread with a gate, without SIP.
//!
//! A worker does jobs of 2 ms, 500 a second, and gets 1000 a second. A client waits 100 ms for its
//! job. Later results are useless. Without control the queue soon has seconds of work and every job
//! is late. With a gate before the queue, the worker gets only as many jobs as it can finish in
//! time, and the others are rejected at once.
//!
//! `cargo run -p tidegate-control --example guard` takes eight seconds.

#![allow(
    clippy::disallowed_methods,
    reason = "the library has no clock, so the example reads one and sleeps"
)]

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_control::{Bucket, Gate, Settings, Ticket, Verdict, bound, registry};
use tidegate_world::{Load, Purpose, Seed, Timestamp};

const JOB: Duration = Duration::from_millis(2);
const LOAD: f64 = 2.0;
const PATIENCE: Duration = Duration::from_millis(100);
const LASTS: Duration = Duration::from_secs(4);
/// Maximum number of waiting jobs, whatever the law decides.
const QUEUE_MAX: usize = 10_000;

fn main() {
    let capacity = 1.0 / JOB.as_secs_f64();
    println!("offered {:.0} jobs/s, capacity {capacity:.0} jobs/s", LOAD * capacity);
    // Rejecting a job costs next to nothing here.
    println!("bound: {:.0} jobs/s in time", bound::goodput(LOAD, 0.0) * capacity);
    for law in ["none", "pi"] {
        let desk = Desk::new(law);
        thread::scope(|scope| {
            scope.spawn(|| desk.work());
            desk.submit(LOAD * capacity);
        });
        let state = desk.state.into_inner().expect("nobody panicked");
        let rejected = state.gate.signals().flow(Bucket::Session).rejected;
        let in_time = state.in_time as f64 / LASTS.as_secs_f64();
        println!("{law}: {in_time:.0} jobs/s in time, {} late, {rejected} rejected", state.late);
    }
}

/// The front end that takes jobs.
struct Desk {
    begun: Instant,
    state: Mutex<State>,
    news: Condvar,
}

struct State {
    gate: Gate,
    queue: VecDeque<(Instant, Ticket)>,
    /// Time for which the worker was busy.
    busy: Duration,
    in_time: u64,
    late: u64,
    over: bool,
}

impl Desk {
    fn new(law: &str) -> Self {
        let settings = Settings {
            // No client submits a job twice.
            sticky: false,
            ..Settings::new(registry::find(law).expect("it is registered").defaults())
        };
        let state = State {
            gate: Gate::new(settings, Seed(1), 0).with_room(QUEUE_MAX),
            queue: VecDeque::new(),
            busy: Duration::ZERO,
            in_time: 0,
            late: 0,
            over: false,
        };
        Self { begun: Instant::now(), state: Mutex::new(state), news: Condvar::new() }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.begun.elapsed()
    }

    /// Submits `rate` jobs a second, and runs the gate's timer when it is due.
    fn submit(&self, rate: f64) {
        let mut arrivals = Seed(1).stream(Purpose::Arrivals, 0);
        let mut next = self.begun;
        while self.begun.elapsed() < LASTS {
            next += Duration::from_secs_f64(arrivals.exponential(1.0 / rate));
            thread::sleep(next.saturating_duration_since(Instant::now()));
            let now = self.now();
            let mut state = self.state.lock().expect("the worker does not panic");
            let State { gate, queue, .. } = &mut *state;
            gate.on_arrival(now, queue.len());
            if let Verdict::Admit(ticket) =
                gate.on_new(now, Bucket::Session, 0, None, queue.len() < QUEUE_MAX)
            {
                queue.push_back((Instant::now(), ticket));
            }
            if gate.poll_timeout().is_some_and(|due| due <= now) {
                gate.handle_timeout(now, queue.len());
            }
            self.news.notify_one();
        }
        self.state.lock().expect("the worker does not panic").over = true;
        self.news.notify_one();
    }

    fn work(&self) {
        let mut state = self.state.lock().expect("the submitter does not panic");
        while !state.over {
            let State { gate, queue, .. } = &mut *state;
            let Some((submitted, ticket)) = queue.pop_front() else {
                state = self.news.wait(state).expect("the submitter does not panic");
                continue;
            };
            let now = self.now();
            gate.on_service(now, Some(&ticket), submitted.elapsed(), queue.len());
            if gate.on_taken(now, ticket).is_some() {
                continue;
            }
            drop(state);
            let began = Instant::now();
            thread::sleep(JOB);
            let cost = began.elapsed();
            state = self.state.lock().expect("the submitter does not panic");
            state.busy += cost;
            let load = Load { busy: state.busy, cpu: state.busy, ..Load::default() };
            let now = self.now();
            state.gate.on_load(now, &load);
            state.gate.on_completion(now, 0, cost);
            let in_time = submitted.elapsed() <= PATIENCE;
            *(if in_time { &mut state.in_time } else { &mut state.late }) += 1;
        }
    }
}
