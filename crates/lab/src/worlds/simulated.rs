//! The world of simulated time: the very server of a configuration file, and the callers and
//! answerers of the other world, in a network without sockets and clocks.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tidegate_agent::{Answerer, Caller};
use tidegate_server::assembly::Assembly;
use tidegate_server::config::Config;
use tidegate_server::key::Keys;
use tidegate_sim::{Link, Network};
use tidegate_world::{Core, Pool, Seed, Timestamp};

use super::{Kind, World, agents, counted};
use crate::outcome::Outcome;
use crate::point::Point;

/// How much time passes in the simulation between two looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(500);

/// A file of a point: the configuration of its server.
const CONFIGURATION: &str = "tidegate.toml";

/// Simulated time.
///
/// What a point comes to depends on its inputs only. How fast that went is told by
/// [`speed`](Self::speed) and stands in no result.
#[derive(Debug, Default)]
pub struct Simulated {
    deliveries: AtomicU64,
    cpu_ns: AtomicU64,
}

/// What simulating has taken so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Packets handed to whom they were for.
    pub deliveries: u64,
    /// CPU time of all threads.
    pub cpu: Duration,
}

impl Simulated {
    /// Simulated time.
    pub fn new() -> Self {
        Self::default()
    }

    /// What all runs so far have taken.
    pub fn speed(&self) -> Speed {
        let cpu = Duration::from_nanos(self.cpu_ns.load(SeqCst));
        Speed { deliveries: self.deliveries.load(SeqCst), cpu }
    }
}

impl Speed {
    /// Deliveries in a second of CPU time; 0 if there were none.
    pub fn per_cpu_s(self) -> f64 {
        let cpu_s = self.cpu.as_secs_f64();
        if cpu_s > 0.0 { self.deliveries as f64 / cpu_s } else { 0.0 }
    }
}

impl World for Simulated {
    fn kind(&self) -> Kind {
        Kind::Sim
    }

    fn run(&self, point: &Point, folder: &Path, cancelled: &AtomicBool) -> Result<Outcome, String> {
        let began = thread_cpu();
        let (outcome, deliveries) = simulate(point, folder, cancelled)?;
        self.deliveries.fetch_add(deliveries, SeqCst);
        let cpu = thread_cpu().saturating_sub(began);
        self.cpu_ns.fetch_add(u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX), SeqCst);
        Ok(outcome)
    }
}

fn simulate(
    point: &Point,
    folder: &Path,
    cancelled: &AtomicBool,
) -> Result<(Outcome, u64), String> {
    let seed = Seed(point.seed);
    let count = point.conditions.answerers as u8;
    let (server_at, callers_at) = (address(0, 1), address(2, 1));
    let answerers_at: Vec<_> = (1..=count).map(|index| address(1, index)).collect();

    let text = point.configuration(None, server_at, &answerers_at);
    fs::write(folder.join(CONFIGURATION), &text).map_err(|error| error.to_string())?;
    let config = Config::parse(Path::new(CONFIGURATION), text.as_bytes())
        .map_err(|wrong| wrong.to_string())?;
    // Nobody in here guesses.
    let keys = Keys { current: [1; 32], previous: Vec::new() };
    let assembly = Assembly::new(&config, &keys, vec![server_at], seed);
    let mut server = assembly.part(0).core(Pool::new());

    let config = agents::caller(point, callers_at, server_at);
    let mut caller = Caller::new(config, seed, 0, Timestamp::ZERO, Pool::new())
        .map_err(|error| error.to_string())?;
    let answerer = |(index, &at): (usize, &SocketAddr)| {
        Answerer::new(agents::answerer(index, at), seed, 1 + index as u32, Pool::new())
    };
    let mut answerers: Vec<_> = answerers_at.iter().enumerate().map(answerer).collect();

    let mut network = Network::<&mut dyn Core>::new(seed, Link::default(), ());
    network.add(&[callers_at], &mut caller);
    network.add(&[server_at], &mut server);
    for (&at, answerer) in answerers_at.iter().zip(&mut answerers) {
        network.add(&[at], answerer);
    }
    let end = Timestamp::ZERO + agents::lasts(point);
    let mut to = Timestamp::ZERO;
    let mut deliveries = 0;
    while to < end {
        if cancelled.load(SeqCst) {
            return Err("cancelled".to_owned());
        }
        to = (to + LOOK).min(end);
        deliveries = network.run_until(to).delivered;
    }
    drop(network);
    let status = Value::Object(assembly.instruments().read(end));
    Ok((Outcome { status, ..counted::outcome(point, caller.stats()) }, deliveries))
}

/// Addresses of one kind of node.
fn address(kind: u8, index: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, kind, index), 5060).into()
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock counts from zero: neither field is negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
