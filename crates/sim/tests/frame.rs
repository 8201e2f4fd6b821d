//! The frame holds: the very proxy and the very agents, without a socket, in time
//! that a seed drives.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, Load, Process};
use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_proxy::{Listener, Proxy, Secret, Settings};
use tidegate_sim::{Link, Network, Summary};
use tidegate_world::{Core, Entry, Pool, Recorder, Seed, Timestamp, replay};

const CALLER: &str = "127.0.0.1:5080";
const PROXY: &str = "127.0.0.1:5060";
const BACKENDS: [&str; 3] = ["127.0.0.1:5070", "127.0.0.1:5071", "127.0.0.1:5072"];

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

struct Run {
    seed: u64,
    calls: u32,
    rate_cps: f64,
    hold: Duration,
    policy: Policy,
    link: Link,
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

struct Outcome {
    summary: Summary,
    lasted: Timestamp,
    caller: Caller,
    answered: Vec<u64>,
    backends: balance::Pool,
    log: Vec<Entry>,
}

fn backends() -> balance::Pool {
    let named: Vec<_> = BACKENDS.iter().map(|&b| (b, address(b), 1)).collect();
    balance::Pool::new("app", &named)
}

fn proxy(policy: Policy, backends: balance::Pool) -> Proxy {
    let listeners = vec![Listener::new(address(PROXY))];
    let secret = Secret { current: [7; 32], previous: Vec::new() };
    let settings = Settings::new(listeners, vec![(backends, policy)], secret);
    Proxy::new(settings, Arc::default(), Pool::new())
}

impl Run {
    fn go(self) -> Outcome {
        let seed = Seed(self.seed);
        let config = CallerConfig {
            load: Load {
                process: Process::Poisson,
                rate_cps: self.rate_cps,
                calls: self.calls,
                duration: Duration::MAX,
            },
            hold: self.hold,
            ..CallerConfig::new(address(CALLER), address(PROXY))
        };
        let mut caller = Caller::new(config, seed, 0, Timestamp::ZERO, Pool::new()).unwrap();
        let backends = backends();
        let mut proxy = Recorder::new(proxy(self.policy, backends.clone()), 1_000_000);
        let mut answerers: Vec<_> = (1..)
            .zip(BACKENDS)
            .map(|(element, at)| {
                Answerer::new(AnswererConfig::new(address(at)), seed, element, Pool::new())
            })
            .collect();

        let mut network = Network::new(seed, self.link);
        network.add(&[address(CALLER)], &mut caller);
        network.add(&[address(PROXY)], &mut proxy);
        for (at, answerer) in BACKENDS.iter().zip(&mut answerers) {
            network.add(&[address(at)], answerer);
        }
        let summary = network.run_until(Timestamp::NEVER);
        let lasted = network.now();
        drop(network);
        let answered = answerers.iter().map(|a| a.stats().completed).collect();
        let (log, _) = proxy.into_log();
        Outcome { summary, lasted, caller, answered, backends, log }
    }
}

#[test]
fn ten_thousand_calls_go_through_to_three_answerers() {
    for policy in Policy::ALL {
        let run = Run { policy, ..Run::default() }.go();
        let stats = run.caller.stats();
        assert_eq!((stats.offered, stats.completed), (10_000, 10_000), "{policy:?}");
        assert_eq!(run.answered.iter().sum::<u64>(), 10_000, "{policy:?}");
        // A third each; by chance under hash (sigma 47), nearly exactly otherwise.
        for (&answered, backend) in run.answered.iter().zip(run.backends.backends()) {
            assert!(answered.abs_diff(3333) < 300, "{policy:?}: {:?}", run.answered);
            assert_eq!(backend.assigned(), answered);
            assert_eq!((backend.calls(), backend.work()), (0, 0), "every count came back");
        }
    }
}

#[test]
fn one_seed_gives_one_trace_and_another_seed_another() {
    let first = Run::default().go().summary;
    assert_eq!(Run::default().go().summary, first);
    assert_ne!(Run { seed: 2, ..Run::default() }.go().summary.trace, first.trace);
}

#[test]
fn an_hour_of_calls_passes_in_seconds() {
    let run = Run { calls: 36_000, rate_cps: 10.0, ..Run::default() }.go();
    assert!(run.lasted >= Timestamp::ZERO + Duration::from_secs(3500), "{:?}", run.lasted);
    assert_eq!(run.caller.stats().completed, 36_000);
}

#[test]
fn lost_packets_are_made_up_for_by_the_agents() {
    let link = Link { loss: 0.05, ..Run::default().link };
    let run = Run { link, calls: 2000, ..Run::default() }.go();
    let stats = run.caller.stats();
    assert!(run.summary.lost > 500, "{:?}", run.summary);
    // Each message crosses two links; the proxy of this mode repeats nothing itself,
    // so a call is lost when seven INVITEs, or ten BYEs, or their answers are.
    assert!(stats.completed >= 1998, "{} of 2000, {:?}", stats.completed, stats.failed);
    for backend in run.backends.backends() {
        assert_eq!((backend.calls(), backend.work()), (0, 0), "every count came back");
    }
}

#[test]
fn the_proxys_log_played_back_brings_out_the_same_bytes() {
    let played = |log: &[Entry]| {
        let mut sent = Vec::new();
        let mut proxy = proxy(Policy::Tlwl, backends());
        replay(log, &mut proxy, &Pool::new(), |now, t| sent.push((now, t.path, t.bytes.to_vec())));
        assert!(proxy.poll_transmit().is_none());
        sent
    };
    let log = Run { calls: 500, ..Run::default() }.go().log;
    let sent = played(&log);
    assert_eq!(sent.len(), 500 * 6, "INVITE, 180, 200, ACK, BYE, 200");
    assert_eq!(played(&log), sent);
    assert_ne!(played(&log[1..]), sent, "the comparison can fail");
}
