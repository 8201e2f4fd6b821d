//! Runs calls through the proxy in simulated time, and prints the results, the run time, and the
//! hash of every packet.
//!
//! `cargo run -p tidegate-sim --example frame -- SEED CALLS RATE` prints one line of JSON.
#![allow(clippy::disallowed_methods)] // It measures how long the simulation takes.

#[path = "../tests/network/topology/mod.rs"]
mod topology;

use std::process::ExitCode;
use std::time::Instant;

use topology::Run;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seed, calls, rate] = arguments.as_slice() else {
        eprintln!("usage: frame SEED CALLS RATE");
        return ExitCode::from(2);
    };
    let (Ok(seed), Ok(calls), Ok(rate_cps)) = (seed.parse(), calls.parse(), rate.parse()) else {
        eprintln!("frame: SEED and CALLS are whole numbers, RATE is calls/s");
        return ExitCode::from(2);
    };
    let began = Instant::now();
    let outcome = Run { seed, calls, rate_cps, ..Run::default() }.go();
    let wall_s = began.elapsed().as_secs_f64();
    let completed = outcome.caller.stats().completed;
    println!(
        "{{\"seed\": {seed}, \"calls\": {calls}, \"completed\": {completed}, \
         \"answered\": {:?}, \"packets\": {}, \"simulated_s\": {:.3}, \"wall_s\": {wall_s:.3}, \
         \"packets_per_s\": {:.0}, \"trace\": \"{:032x}\"}}",
        outcome.answered,
        outcome.summary.delivered,
        outcome.lasted.as_secs_f64(),
        outcome.summary.delivered as f64 / wall_s,
        outcome.trace,
    );
    if completed == u64::from(calls) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
