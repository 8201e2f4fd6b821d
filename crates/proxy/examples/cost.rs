//! Measures the cost of a call in the proxy alone: no sockets, six messages in, six or seven out.
//!
//! `cargo run --release -p tidegate-proxy --example cost -- CALLS [stateless]` prints nanoseconds
//! per message by kind, and the time for timers. Under `valgrind --tool=callgrind` the same program
//! shows where instructions are spent.
#![allow(clippy::disallowed_methods)] // It measures time.

#[path = "../benches/call/mod.rs"]
mod call;

use std::time::{Duration, Instant};

use call::{Bench, KINDS};
use tidegate_proxy::Mode;

fn main() {
    let calls = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100_000u64);
    let stateless = std::env::args().any(|argument| argument == "stateless");
    let mode = if stateless { Mode::Stateless } else { Mode::Transaction };
    let mut bench = Bench::new(mode, |_| {});
    let mut timers = Duration::ZERO;
    let mut spent = [Duration::ZERO; KINDS.len()];
    for _ in 0..calls {
        // Simulates 10,000 calls/s. The table keeps the transactions of each call for 32 s.
        let began = Instant::now();
        bench.wait(Duration::from_micros(100));
        timers += began.elapsed();
        for (kind, spent) in spent.iter_mut().enumerate() {
            let received = bench.message(kind);
            let began = Instant::now();
            let sent = bench.pass(received);
            *spent += began.elapsed();
            bench.note(kind, sent);
        }
    }
    let of_call = |spent: Duration| spent.as_nanos() as f64 / calls as f64;
    for (kind, spent) in KINDS.iter().zip(spent) {
        println!("{kind:13} {:6.0} ns", of_call(spent));
    }
    println!("{:13} {:6.0} ns", "timers", of_call(timers));
    let total = spent.iter().sum::<Duration>() + timers;
    println!("{:13} {:6.0} ns a call", "all", of_call(total));
}
