//! Runs calls with every kind of outcome through several proxies, and prints the packets delivered
//! per second of CPU time.
//!
//! `cargo run -p tidegate-sim --example speed -- NODES RATE SECONDS TAP` prints one line of JSON.
//! A third of the nodes, but at least one, are callers. There are as many proxies, one for each
//! caller. The other nodes are callees, and every proxy sends calls to all of them. TAP is `none`
//! or `trace`.
#![allow(clippy::disallowed_methods)] // It measures how long the simulation takes.

#[path = "../tests/network/topology/mod.rs"]
mod topology;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, Load, Span};
use tidegate_balance::{self as balance, Policy};
use tidegate_proxy::{Listener, PoolSettings, Proxy, Settings};
use tidegate_sim::{Link, Network, Tap, Trace};
use tidegate_world::{Core, Pool, Seed, Timestamp};

use topology::settings;

const SEED: Seed = Seed(1);
/// Fraction of packets that are lost.
const LOSS: f64 = 0.001;
/// The behaviour of the callees. About 70 % of the calls are set up, because some callers do not
/// wait for the answer. A 503 is rare, because it means that the server is overloaded: for a
/// second, the proxy sends this server no request that another back end has rejected.
const OUTCOMES: &str = "answer=76,busy=9,ring=8,404=2,480=2,500=1.9,503=0.1,silent=1";
const CALLS_MAX: usize = 2_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((mesh, tapped)) = Mesh::read(&arguments) else {
        eprintln!("usage: speed NODES RATE SECONDS none|trace");
        return ExitCode::from(2);
    };
    let report = if tapped {
        mesh.run(Trace::new(), |trace| Some(format!("{:032x}", trace.digest())))
    } else {
        mesh.run((), |()| None)
    };
    println!("{report}");
    ExitCode::SUCCESS
}

/// Callers, proxies and callees.
struct Mesh {
    /// Calls per second of each group of callers.
    rate_cps: f64,
    /// Time in which calls start.
    lasts: Duration,
    callers: u8,
    proxies: u8,
    called: u8,
}

impl Mesh {
    fn read(arguments: &[String]) -> Option<(Self, bool)> {
        let [nodes, rate, seconds, tap] = arguments else { return None };
        let nodes: u8 = nodes.parse().ok().filter(|&nodes| nodes >= 3)?;
        let rate_cps: f64 = rate.parse().ok()?;
        let third = nodes / 3;
        let mesh = Self {
            rate_cps: rate_cps / f64::from(third),
            lasts: Duration::from_secs(seconds.parse().ok()?),
            callers: third,
            proxies: third,
            called: nodes - 2 * third,
        };
        let tapped = match tap.as_str() {
            "none" => false,
            "trace" => true,
            _ => return None,
        };
        Some((mesh, tapped))
    }

    /// Runs until nothing is left to happen, and reports the time.
    fn run<T: Tap>(&self, tap: T, digest: impl FnOnce(&T) -> Option<String>) -> Value {
        // All nodes run on one thread, so they can share one pool of buffers. It gives out the
        // buffer that was returned last.
        let pool = Pool::new();
        let mut callers: Vec<Caller> = (0..self.callers)
            .map(|index| {
                let config = self.calling(at(0, index), at(1, index));
                let caller = Caller::new(config, SEED, index.into(), Timestamp::ZERO, pool.clone());
                caller.expect("a possible load")
            })
            .collect();
        let mut proxies: Vec<Proxy> = (0..self.proxies)
            .map(|index| Proxy::new(self.proxy(at(1, index)), Arc::default(), pool.clone()))
            .collect();
        let mut called: Vec<Answerer> = (0..self.called)
            .map(|index| {
                let element = 1000 + u32::from(index);
                Answerer::new(answering(at(2, index)), SEED, element, pool.clone())
            })
            .collect();

        // The nodes are called through a table of functions, so that a profile shows the functions
        // of each kind of node.
        let link = Link { loss: LOSS, ..Link::delaying(Duration::from_millis(1)) };
        let mut network = Network::<&mut dyn Core, _>::new(SEED, link, tap);
        for (index, caller) in (0..).zip(&mut callers) {
            network.add(&[at(0, index)], caller);
        }
        for (index, proxy) in (0..).zip(&mut proxies) {
            network.add(&[at(1, index)], proxy);
        }
        for (index, answerer) in (0..).zip(&mut called) {
            network.add(&[at(2, index)], answerer);
        }
        let begun_s = cpu_s();
        let summary = network.run_until(Timestamp::NEVER);
        let cpu_s = cpu_s() - begun_s;
        let (lasted_s, trace) = (network.now().as_secs_f64(), digest(network.tap()));
        drop(network);
        let stats = callers.iter().map(Caller::stats);
        let (calls, completed) = stats.fold((0, 0), |(calls, completed), stats| {
            (calls + stats.offered, completed + stats.completed)
        });
        json!({
            "nodes": callers.len() + proxies.len() + called.len(),
            "rate_cps": self.rate_cps * f64::from(self.callers),
            "lasts_s": self.lasts.as_secs(),
            "simulated_s": lasted_s,
            "calls": calls,
            "completed": completed,
            "deliveries": summary.delivered,
            "cpu_s": cpu_s,
            "deliveries_per_cpu_s": summary.delivered as f64 / cpu_s,
            "rss_peak_kib": rss_peak_kib(),
            "trace": trace,
        })
    }

    /// Returns the configuration of a group of callers at `local` that call `target`.
    fn calling(&self, local: SocketAddr, target: SocketAddr) -> CallerConfig {
        CallerConfig {
            load: Load {
                rate_cps: self.rate_cps,
                calls: u32::MAX,
                duration: self.lasts,
                ..Load::default()
            },
            hold: Span::Exponential(Duration::from_secs(60)),
            patience: Span::Exponential(Duration::from_secs(60)),
            open_max: CALLS_MAX,
            ..CallerConfig::new(local, target)
        }
    }

    /// Returns the settings of a proxy that knows all callees.
    fn proxy(&self, local: SocketAddr) -> Settings {
        let named: Vec<_> =
            (0..self.called).map(|index| (format!("b{index}"), at(2, index), 1)).collect();
        let named: Vec<_> = named
            .iter()
            .map(|(name, address, weight)| (name.as_str(), *address, *weight))
            .collect();
        let pool = PoolSettings::new(balance::Pool::new("app", &named), Policy::Tlwl);
        Settings { listeners: vec![Listener::new(local)], ..settings(pool) }
    }
}

/// Returns the configuration of the callees at an address.
fn answering(local: SocketAddr) -> AnswererConfig {
    AnswererConfig {
        mix: OUTCOMES.parse().expect("a mix of outcomes"),
        provisionals: vec![183, 180],
        ring: Span::Exponential(Duration::from_secs(5)),
        hangs_up: 0.4,
        hold: Span::Exponential(Duration::from_secs(60)),
        calls_max: CALLS_MAX,
        ..AnswererConfig::new(local)
    }
}

/// Returns the time that this process, which has one thread, has been on a processor.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.unwrap_or(f64::NAN) / 1e9
}

/// Returns the peak memory of this process.
fn rss_peak_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Returns the address of a node: callers, proxies and callees have a network each.
fn at(kind: u8, index: u8) -> SocketAddr {
    (Ipv4Addr::new(10, kind, 0, index + 1), 5060).into()
}
