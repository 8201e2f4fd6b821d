//! One caller, the proxy, three answerers: the topology of the tests. The example `speed` uses a
//! part of it.

#![allow(dead_code, reason = "each program uses a part of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, Load};
use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_proxy::{Listener, PoolSettings, Proxy, Secret, Settings};
use tidegate_sim::{Link, Network, Summary, Trace};
use tidegate_world::{Core, Entry, Memory, Pool, Recorder, Seed, Timestamp, delegate};

pub const CALLER: &str = "127.0.0.1:5080";
pub const PROXY: &str = "127.0.0.1:5060";
pub const BACKENDS: [&str; 3] = ["127.0.0.1:5070", "127.0.0.1:5071", "127.0.0.1:5072"];

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A node of any kind.
pub enum Node {
    Caller(Box<Caller>),
    Proxy(Box<Proxy>),
    Answerer(Box<Answerer>),
}

impl Core for Node {
    delegate!(match self {
        Self::Caller(core) => core,
        Self::Proxy(core) => core,
        Self::Answerer(core) => core,
    });
}

/// The parameters of a run.
pub struct Run {
    pub seed: u64,
    pub calls: u32,
    pub rate_cps: f64,
    pub hold: Duration,
    pub policy: Policy,
    pub link: Link,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            seed: 1,
            calls: 10_000,
            rate_cps: 1000.0,
            hold: Duration::from_secs(3),
            policy: Policy::Tlwl,
            link: Link {
                jitter: Duration::from_millis(2),
                ..Link::delaying(Duration::from_millis(1))
            },
        }
    }
}

/// The result of a run.
pub struct Outcome {
    pub summary: Summary,
    pub trace: u128,
    pub lasted: Timestamp,
    pub caller: Caller,
    pub answered: Vec<u64>,
    pub backends: balance::Pool,
    pub log: Vec<Entry>,
}

pub fn backends() -> balance::Pool {
    let named: Vec<_> = BACKENDS.iter().map(|&b| (b, address(b), 1)).collect();
    balance::Pool::new("app", &named)
}

/// Returns the settings of a proxy with one pool.
pub fn settings(pool: PoolSettings) -> Settings {
    let secret = Secret::of([7; 32]);
    Settings::new(vec![Listener::new(address(PROXY))], vec![pool], secret)
}

pub fn proxy(policy: Policy, backends: balance::Pool) -> Proxy {
    let settings = settings(PoolSettings::new(backends, policy).stateless());
    Proxy::new(settings, Arc::default(), Pool::new())
}

impl Run {
    /// Runs until no event is left.
    pub fn go(self) -> Outcome {
        let seed = Seed(self.seed);
        let config = CallerConfig {
            load: Load { rate_cps: self.rate_cps, calls: self.calls, ..Load::default() },
            hold: self.hold.into(),
            ..CallerConfig::new(address(CALLER), address(PROXY))
        };
        let mut caller = Caller::new(config, seed, 0, Timestamp::ZERO, Pool::new()).unwrap();
        let backends = backends();
        let mut proxy = Recorder::new(proxy(self.policy, backends.clone()), Memory::new(1_000_000));
        let mut answerers: Vec<_> = (1..)
            .zip(BACKENDS)
            .map(|(element, at)| {
                Answerer::new(AnswererConfig::new(address(at)), seed, element, Pool::new())
            })
            .collect();

        let mut network = Network::<&mut dyn Core, _>::new(seed, self.link, Trace::new());
        network.add(&[address(CALLER)], &mut caller);
        network.add(&[address(PROXY)], &mut proxy);
        for (at, answerer) in BACKENDS.iter().zip(&mut answerers) {
            network.add(&[address(at)], answerer);
        }
        let summary = network.run_until(Timestamp::NEVER);
        let lasted = network.now();
        let trace = network.into_parts().1.digest();
        let answered = answerers.iter().map(|a| a.stats().completed).collect();
        let (log, _) = proxy.into_log().into_log();
        Outcome { summary, trace, lasted, caller, answered, backends, log }
    }
}
