//! Balances jobs over worker threads, without SIP.
//!
//! Four workers do jobs of 2 ms. One of them takes five times as long, and the balancer does not
//! know this. 1,200 jobs arrive each second. The slow worker can do 100 of them. Round robin gives
//! it 300, so its queue grows without end. The policies that select by the least open work, or by
//! the shorter expected response time of two workers, give it only as many jobs as it can do.
//!
//! `cargo run -p tidegate-balance --example workers` takes six seconds.

#![allow(
    clippy::disallowed_methods,
    reason = "the library has no clock, so the example reads one and sleeps"
)]

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_balance::{Picker, Policy, Pool, TransactionLease, Work};
use tidegate_world::{Purpose, Seed, Timestamp};

const JOBS_MS: [u64; 4] = [2, 2, 2, 10];
const RATE: f64 = 1200.0;
const LASTS: Duration = Duration::from_secs(2);

/// A job: the time of its arrival, and its lease on the worker.
type Job = (Instant, TransactionLease);

fn main() {
    for policy in [Policy::Rr, Policy::Tlwl, Policy::PeakEwma] {
        let mut waits = run(policy);
        waits.sort();
        let [median, last] = [waits[waits.len() / 2], waits[waits.len() * 99 / 100]];
        println!("{:<10} median {median:>7.1?}, 99th percentile {last:>7.1?}", policy.name());
    }
}

/// Returns the time of each job from its arrival to its end.
fn run(policy: Policy) -> Vec<Duration> {
    // A back end has an address. Workers are known by index, so the address is not used.
    let names = ["a", "b", "c", "d"];
    let nowhere = "0.0.0.0:0".parse().expect("an address");
    let pool = Pool::new("workers", &names.map(|name| (name, nowhere, 1)));
    let seed = Seed(1);
    let mut picker = Picker::new(pool, policy, seed.stream(Purpose::Balance, 0));
    let waits = Mutex::new(Vec::new());
    let begun = Instant::now();
    let now = || Timestamp::ZERO + begun.elapsed();
    thread::scope(|scope| {
        let workers = JOBS_MS.map(|ms| {
            let (give, take) = mpsc::channel::<Job>();
            let waits = &waits;
            scope.spawn(move || {
                for (handed_in, mut lease) in take {
                    thread::sleep(Duration::from_millis(ms));
                    lease.on_answered(now());
                    waits.lock().expect("no worker panics").push(handed_in.elapsed());
                }
            });
            give
        });
        let mut arrivals = seed.stream(Purpose::Arrivals, 0);
        let mut next = begun;
        while begun.elapsed() < LASTS {
            next += Duration::from_secs_f64(arrivals.exponential(1.0 / RATE));
            thread::sleep(next.saturating_duration_since(Instant::now()));
            let worker = picker.pick(now(), arrivals.next_u64(), None).expect("all are up");
            let lease = picker.transaction_lease(now(), worker, Work::CallStart);
            workers[worker].send((Instant::now(), lease)).expect("it takes jobs to the end");
        }
        drop(workers);
    });
    waits.into_inner().expect("no worker panicked")
}
