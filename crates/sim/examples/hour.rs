//! Runs calls with every kind of outcome through the proxy in simulated time, and prints their
//! results, the sizes of the proxy's tables, and the speed.
//!
//! `cargo run -p tidegate-sim --example hour -- MODE SEED RATE SECONDS` prints one line of JSON.
//! MODE is `transaction` or `stateless`.
#![allow(clippy::disallowed_methods)] // It measures how long the simulation takes.

#[path = "../tests/measure/mod.rs"]
mod measure;
#[path = "../tests/network/topology/mod.rs"]
mod topology;
#[path = "../tests/network/traffic/mod.rs"]
mod traffic;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use measure::{cpu_s, rss_peak_kib};
use serde_json::{Value, json};
use tidegate_proxy::Mode;
use traffic::{Outcome, Sizes, Traffic};

/// Fraction of packets that are lost.
const LOSS: f64 = 0.001;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(traffic) = read(&arguments) else {
        eprintln!("usage: hour transaction|stateless SEED RATE SECONDS");
        return ExitCode::from(2);
    };
    let (began, cpu) = (Instant::now(), cpu_s());
    let outcome = traffic.go();
    let (wall_s, cpu_s) = (began.elapsed().as_secs_f64(), cpu_s() - cpu);
    println!("{}", report(&traffic, &arguments[0], &outcome, wall_s, cpu_s));
    ExitCode::SUCCESS
}

fn read(arguments: &[String]) -> Option<Traffic> {
    let [mode, seed, rate, seconds] = arguments else { return None };
    let mode = match mode.as_str() {
        "transaction" => Mode::Transaction,
        "stateless" => Mode::Stateless,
        _ => return None,
    };
    let lasts = Duration::from_secs(seconds.parse().ok()?);
    let (seed, rate_cps) = (seed.parse().ok()?, rate.parse().ok()?);
    Some(Traffic { seed, mode, rate_cps, lasts, loss: LOSS })
}

fn report(traffic: &Traffic, mode: &str, run: &Outcome, wall_s: f64, cpu_s: f64) -> Value {
    let counters = &run.counters;
    json!({
        "mode": mode,
        "seed": traffic.seed,
        "rate_cps": traffic.rate_cps,
        "lasts_s": traffic.lasts.as_secs(),
        "conserved": run.conserved(),
        "settled": run.is_settled(),
        "simulated_s": run.lasted.as_secs_f64(),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "deliveries": run.summary.delivered,
        "deliveries_per_cpu_s": run.summary.delivered as f64 / cpu_s,
        "lost": run.summary.lost,
        "trace": format!("{:032x}", run.trace),
        "peak": sizes(run.peak),
        "left": sizes(run.left),
        "rss_peak_kib": rss_peak_kib(),
        "proxy": {
            "requests_resent": counters.requests_resent.get(),
            "responses_resent": counters.responses_resent.get(),
            "cancels": counters.cancels.get(),
            "timeouts": counters.timeouts.get(),
        },
        "caller": run.caller,
        "answerers": run.answerers,
    })
}

fn sizes(sizes: Sizes) -> Value {
    json!({
        "calls": sizes.calls,
        "server_transactions": sizes.server_transactions,
        "client_transactions": sizes.client_transactions,
    })
}
