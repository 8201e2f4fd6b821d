//! Measures the time of each pass of a shard while calls are set up, and the bytes per call.
//!
//! `cargo run -p tidegate-proxy --release --example growth -- MODE STAGE CALLS SEED` prints one
//! line of JSON. MODE is `stateless` or `transaction`. STAGE is `live` (INVITE and 180 forwarded),
//! `answered` (also 200 and ACK; the transactions linger) or `rejected` (486 and ACK instead). A
//! pass is one message from `offer` to the last `poll_transmit`, or one `handle_timeout`. The mean
//! time between calls is 25 µs. Then 40 s pass without a message, in which transactions end and
//! entries expire or are armed again. After the stage `answered`, a BYE then arrives in each of up
//! to 10,000 calls.
//!
//! The time of a pass is the CPU time of the thread: other processes cannot lengthen it, except
//! through caches and clock frequency. The wall time is printed beside it. Memory comes from the
//! same allocator as in the program: glibc's takes 50 ms to merge a million freed blocks. Bytes are
//! those freed when the proxy is dropped. The allocator counts them before the 40 s.
#![allow(clippy::disallowed_methods)] // It measures how long a pass takes.

#[path = "../benches/call/mod.rs"]
mod call;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use call::{Bench, KINDS, REJECTION};
use cap::Cap;
use mimalloc::MiMalloc;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tidegate_proxy::{Mode, Secret};
use tidegate_world::{Core, Purpose, Seed};

#[global_allocator]
static ALLOCATOR: Cap<MiMalloc> = Cap::new(MiMalloc, usize::MAX);

/// The longest time between two calls.
const INTERVAL_MAX_NS: u64 = 50_000;

/// The time without messages at the end. It is longer than the life of a transaction after its
/// final response, which is 64·T1.
const SETTLES: Duration = Duration::from_secs(40);

/// The number of BYEs after the 40 s, at most one in each call.
const BYES: usize = 10_000;

/// The kinds of the messages of an answered call.
const ANSWERED: &[usize] = &[0, 1, 2, 3];

/// The number of longest passes to print.
const LONGEST: usize = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(run) = Run::read(&arguments) else {
        eprintln!("usage: growth stateless|transaction live|answered|rejected CALLS SEED");
        return ExitCode::from(2);
    };
    println!("{}", run.report());
    ExitCode::SUCCESS
}

struct Run {
    mode: Mode,
    /// The kinds of the messages of each call.
    kinds: &'static [usize],
    calls: usize,
    seed: u8,
}

impl Run {
    fn read(arguments: &[String]) -> Option<Self> {
        let [mode, stage, calls, seed] = arguments else { return None };
        let mode = match mode.as_str() {
            "stateless" => Mode::Stateless,
            "transaction" => Mode::Transaction,
            _ => return None,
        };
        let kinds: &[usize] = match stage.as_str() {
            "live" => &[0, 1],
            "answered" => ANSWERED,
            "rejected" => &[0, 1, REJECTION, 3],
            _ => return None,
        };
        let calls = calls.parse().ok().filter(|&calls| calls > 0)?;
        Some(Self { mode, kinds, calls, seed: seed.parse().ok()? })
    }

    fn report(&self) -> Value {
        let mut messages = Passes::with_capacity(self.calls * self.kinds.len());
        let mut timers = Passes::with_capacity(self.calls * self.kinds.len());
        let mut draws = Seed(self.seed.into()).stream(Purpose::Arrivals, 0);
        let before = ALLOCATOR.allocated();
        let mut bench = Bench::new(self.mode, |settings| {
            settings.secret = Secret::of([self.seed; 32]);
            settings.calls_max = 4 * self.calls;
            settings.transactions_max = 4 * self.calls;
            settings.transaction_bytes_max = usize::MAX;
        });
        for number in 0..self.calls {
            bench.now = bench.now + Duration::from_nanos(draws.next_u64() % INTERVAL_MAX_NS);
            fire(&mut bench, &mut timers, number);
            for &kind in self.kinds {
                let name = KINDS.get(kind).copied().unwrap_or("486");
                let received = bench.message(kind);
                let sent = messages.time(number, name, || bench.pass(received));
                bench.note(kind, sent);
            }
        }
        let held = ALLOCATOR.allocated() - before;
        let mut settling = Passes::with_capacity(8 * self.calls);
        for _ in 0..SETTLES.as_millis() {
            bench.now = bench.now + Duration::from_millis(1);
            fire(&mut bench, &mut settling, self.calls);
        }
        json!({
            "calls": self.calls,
            "bytes_per_call": held as f64 / self.calls as f64,
            "messages": messages.report(),
            "timers": timers.report(),
            "settling": settling.report(),
            "in_dialog": (self.kinds == ANSWERED).then(|| self.in_dialog(&mut bench)),
        })
    }

    /// Measures a BYE in each of up to [`BYES`] calls.
    fn in_dialog(&self, bench: &mut Bench) -> Value {
        let mut passes = Passes::with_capacity(BYES);
        for index in 0..self.calls.min(BYES) {
            // Successive calls are far apart in the tables. The factor is prime, so no call occurs
            // twice, unless the number of calls is a multiple of the factor.
            let number = index * 7919 % self.calls;
            bench.now = bench.now + Duration::from_nanos(INTERVAL_MAX_NS / 2);
            bench.revisit(number as u64 + 1);
            let bye = bench.message(4);
            let sent = passes.time(number, KINDS[4], || bench.pass(bye));
            assert!(sent.is_some_and(|sent| sent.bytes.starts_with(b"BYE")), "it is forwarded");
        }
        passes.report()
    }
}

/// Fires expired timers and measures each pass.
fn fire(bench: &mut Bench, passes: &mut Passes, number: usize) {
    while bench.proxy.poll_timeout().is_some_and(|at| at <= bench.now) {
        let now = bench.now;
        passes.time(number, "timers", || {
            bench.proxy.handle_timeout(now);
            while bench.proxy.poll_transmit().is_some() {}
        });
    }
}

/// The times of all passes.
struct Passes {
    cpu_ns: Vec<u32>,
    wall_ns: Vec<u32>,
    /// The longest passes by CPU time, each with the number of the call and the kind of the pass.
    longest: Vec<(u32, usize, &'static str)>,
}

impl Passes {
    fn with_capacity(passes: usize) -> Self {
        let room = || Vec::with_capacity(passes);
        Self { cpu_ns: room(), wall_ns: room(), longest: Vec::with_capacity(LONGEST + 1) }
    }

    fn time<R>(&mut self, number: usize, kind: &'static str, pass: impl FnOnce() -> R) -> R {
        let (wall, cpu) = (Instant::now(), cpu_ns());
        let result = pass();
        let cpu = cpu_ns().saturating_sub(cpu).try_into().unwrap_or(u32::MAX);
        let wall = wall.elapsed().as_nanos().try_into().unwrap_or(u32::MAX);
        self.cpu_ns.push(cpu);
        self.wall_ns.push(wall);
        if self.longest.len() < LONGEST || self.longest.last().is_some_and(|last| last.0 < cpu) {
            let place = self.longest.partition_point(|longest| longest.0 >= cpu);
            self.longest.insert(place, (cpu, number, kind));
            self.longest.truncate(LONGEST);
        }
        result
    }

    fn report(&mut self) -> Value {
        let spread = |times: &mut Vec<u32>| {
            times.sort_unstable();
            let at = |share: f64| {
                let place = (share * times.len() as f64).ceil() as usize;
                times.get(place.saturating_sub(1)).map_or(0.0, |&ns| f64::from(ns) / 1000.0)
            };
            json!({ "median": at(0.5), "p9999": at(0.9999), "max": at(1.0) })
        };
        let longest = self.longest.iter().map(|&(ns, number, kind)| {
            json!({ "cpu_us": f64::from(ns) / 1000.0, "call": number, "pass": kind })
        });
        json!({
            "passes": self.cpu_ns.len(),
            "longest": longest.collect::<Vec<_>>(),
            "cpu_us": spread(&mut self.cpu_ns),
            "wall_us": spread(&mut self.wall_ns),
        })
    }
}

/// Returns the CPU time of this thread.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}
