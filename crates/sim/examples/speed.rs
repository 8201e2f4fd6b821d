//! Runs calls with every kind of outcome through several proxies, and prints the packets delivered
//! per second of CPU time.
//!
//! `cargo run -p tidegate-sim --example speed -- NODES RATE SECONDS TAP` prints one line of JSON.
//! A third of the nodes, but at least one, are callers. There are as many proxies, one for each
//! caller. The other nodes are callees, and every proxy sends calls to all of them. TAP is `none`
//! or `trace`.
#![allow(clippy::disallowed_methods)] // It measures how long the simulation takes.

#[path = "../tests/measure/mod.rs"]
mod measure;
#[path = "../tests/network/topology/mod.rs"]
mod topology;
#[path = "../tests/network/traffic/mod.rs"]
mod traffic;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_agent::{Answerer, Caller};
use tidegate_balance::{self as balance, Policy};
use tidegate_proxy::{Listener, Mode, PoolSettings, Proxy, Settings};
use tidegate_sim::{Link, Network, Tap, Trace};
use tidegate_world::{Pool, Seed, Timestamp};

use measure::{cpu_s, rss_peak_kib};
use topology::{Node, settings};
use traffic::Traffic;

const LOSS: f64 = 0.001;

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
    traffic: Traffic,
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
        let traffic = Traffic {
            seed: 1,
            mode: Mode::Transaction,
            rate_cps: rate_cps / f64::from(third),
            lasts: Duration::from_secs(seconds.parse().ok()?),
            loss: LOSS,
        };
        let mesh = Self { traffic, callers: third, proxies: third, called: nodes - 2 * third };
        let tapped = match tap.as_str() {
            "none" => false,
            "trace" => true,
            _ => return None,
        };
        Some((mesh, tapped))
    }

    /// Runs until nothing is left to happen, and reports the time.
    fn run<T: Tap>(&self, tap: T, digest: impl FnOnce(&T) -> Option<String>) -> Value {
        let mut network = self.network(tap);
        let begun_s = cpu_s();
        let summary = network.run_until(Timestamp::NEVER);
        let cpu_s = cpu_s() - begun_s;
        let (lasted_s, trace) = (network.now().as_secs_f64(), digest(network.tap()));
        let (cores, _) = network.into_parts();
        let stats = cores.iter().flatten().filter_map(|core| match core {
            Node::Caller(caller) => Some(caller.stats()),
            _ => None,
        });
        let (calls, completed) = stats.fold((0, 0), |(calls, completed), stats| {
            (calls + stats.offered, completed + stats.completed)
        });
        json!({
            "nodes": cores.len(),
            "rate_cps": self.traffic.rate_cps * f64::from(self.callers),
            "lasts_s": self.traffic.lasts.as_secs(),
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

    fn network<T: Tap>(&self, tap: T) -> Network<Node, T> {
        let seed = Seed(self.traffic.seed);
        let link = Link { loss: LOSS, ..Link::delaying(Duration::from_millis(1)) };
        let mut network = Network::new(seed, link, tap);
        // All nodes run on one thread, so they can share one pool of buffers. It gives out the
        // buffer that was returned last.
        let pool = Pool::new();
        for index in 0..self.callers {
            let (local, target) = (at(0, index), at(1, index));
            let config = self.traffic.callers(local, target);
            let element = u32::from(index);
            let caller = Caller::new(config, seed, element, Timestamp::ZERO, pool.clone());
            network.add(&[local], Node::Caller(Box::new(caller.expect("a possible load"))));
        }
        for index in 0..self.proxies {
            let proxy = Proxy::new(self.proxy(at(1, index)), Arc::default(), pool.clone());
            network.add(&[at(1, index)], Node::Proxy(Box::new(proxy)));
        }
        for index in 0..self.called {
            let (config, element) = (self.traffic.called(at(2, index)), 1000 + u32::from(index));
            let answerer = Answerer::new(config, seed, element, pool.clone());
            network.add(&[at(2, index)], Node::Answerer(Box::new(answerer)));
        }
        network
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
        let pool = PoolSettings { mode: self.traffic.mode, ..pool };
        Settings { listeners: vec![Listener::new(local)], ..settings(pool) }
    }
}

/// Returns the address of a node: callers, proxies and callees have a network each.
fn at(kind: u8, index: u8) -> SocketAddr {
    (Ipv4Addr::new(10, kind, 0, index + 1), 5060).into()
}
