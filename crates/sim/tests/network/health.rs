//! Tests of back ends that die, return and are drained under load, in simulated time.

use std::sync::Arc;
use std::time::Duration;

use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, CallerStats, Load};
use tidegate_balance::{AdminState, COUNT_MAX, Policy, Pool, State};
use tidegate_proxy::{Counters, Health, PoolSettings, Probe, Proxy};
use tidegate_sim::{Link, Network, NodeId, Silence, Trace};
use tidegate_world::{Pool as Buffers, Seed, Timestamp};

use crate::topology::{BACKENDS, CALLER, Node, PROXY, address, backends, settings};

const SEED: Seed = Seed(7);

/// One caller, the proxy, three answerers.
struct World {
    network: Network<Node, Trace>,
    pool: Pool,
    caller: NodeId,
    answerers: Vec<NodeId>,
}

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

fn answerer(index: usize) -> Node {
    let config = AnswererConfig::new(address(BACKENDS[index]));
    Node::Answerer(Box::new(Answerer::new(config, SEED, index as u32 + 1, Buffers::new())))
}

/// Returns health checks that only use a probe every second. Unanswered requests have no effect on
/// the health.
fn probed() -> Health {
    let probe = Probe {
        interval: Duration::from_secs(1),
        timeout: Duration::from_millis(500),
        ..Probe::default()
    };
    Health { probe: Some(probe), error_limit: COUNT_MAX, ..Health::default() }
}

impl World {
    /// Returns a world with `rate_cps` calls a second for the time `lasts`. Each call is held for
    /// two seconds.
    fn new(health: Health, rate_cps: f64, lasts: Duration) -> Self {
        let callers = CallerConfig {
            load: Load { rate_cps, calls: u32::MAX, duration: lasts, ..Load::default() },
            hold: Duration::from_secs(2).into(),
            ..CallerConfig::new(address(CALLER), address(PROXY))
        };
        let pool = backends();
        let in_turn = PoolSettings { health, ..PoolSettings::new(pool.clone(), Policy::Rr) };
        let proxy = Proxy::new(settings(in_turn), Arc::<Counters>::default(), Buffers::new());
        let caller = Caller::new(callers, SEED, 0, Timestamp::ZERO, Buffers::new()).unwrap();
        let link = Link::delaying(Duration::from_millis(1));
        let mut network = Network::new(SEED, link, Trace::new());
        let caller = network.add(&[address(CALLER)], Node::Caller(Box::new(caller)));
        network.add(&[address(PROXY)], Node::Proxy(Box::new(proxy)));
        let answerers = BACKENDS.iter().enumerate();
        let answerers = answerers.map(|(i, at)| network.add(&[address(at)], answerer(i)));
        let answerers = answerers.collect();
        Self { network, pool, caller, answerers }
    }

    fn until(&mut self, ms: u64) {
        self.network.run_until(at(ms));
    }

    fn state(&self, backend: usize, ms: u64) -> State {
        self.pool.backends()[backend].state(at(ms)).0
    }

    fn assigned(&self) -> [u64; 3] {
        [0, 1, 2].map(|i| self.pool.backends()[i].assigned())
    }

    /// Returns the number of calls that each back end got from `from_ms` to `to_ms`.
    fn assigned_from(&mut self, from_ms: u64, to_ms: u64) -> [u64; 3] {
        self.until(from_ms);
        let before = self.assigned();
        self.until(to_ms);
        let after = self.assigned();
        [0, 1, 2].map(|i| after[i] - before[i])
    }

    fn stats(&self) -> &CallerStats {
        match self.network.core(self.caller) {
            Node::Caller(caller) => caller.stats(),
            Node::Proxy(_) | Node::Answerer(_) => unreachable!("it was added as a caller"),
        }
    }
}

/// A dead back end is down after three unanswered probes. Each probe is sent at most 1.1 s after
/// the one before, and the last timeout takes half a second.
#[test]
fn a_silently_dead_back_end_is_excluded_within_fall_intervals() {
    let mut world = World::new(probed(), 100.0, Duration::from_secs(30));
    world.until(10_000);
    world.network.crash(world.answerers[1], Silence::Silent);
    world.until(12_200);
    assert_ne!(world.state(1, 12_200), State::Down, "two are not three");
    world.until(13_800);
    assert_eq!([0, 1, 2].map(|i| world.state(i, 13_800)), [State::Up, State::Down, State::Up]);
    assert_eq!(world.assigned_from(13_800, 20_000)[1], 0);
    world.until(100_000);
    let stats = world.stats();
    assert_eq!(stats.begun, stats.set_up, "another back end answered the rest: {stats:?}");
    assert!(stats.completed < stats.set_up, "what it held went with it");
    let held = |i: usize| world.pool.backends()[i].calls() + world.pool.backends()[i].work();
    assert_eq!([0, 1, 2].map(held), [0; 3], "and was given back");
}

#[test]
fn a_returning_back_end_starts_at_a_tenth_and_reaches_its_share() {
    let health = Health { slow_start: Duration::from_secs(10), ..probed() };
    let mut world = World::new(health, 300.0, Duration::from_secs(60));
    let [a, b, c] = world.assigned_from(0, 2_000);
    assert!(b > 150 && b.abs_diff(a) <= 1 && b.abs_diff(c) <= 1, "at a start all are whole");
    world.until(10_000);
    world.network.crash(world.answerers[1], Silence::Refused);
    world.until(20_000);
    assert_eq!(world.state(1, 20_000), State::Down);
    world.network.restart(world.answerers[1], answerer(1));
    // Two answered probes in a row bring the back end back.
    let mut back = 20_000;
    while world.state(1, back) == State::Down {
        back += 100;
        world.until(back);
        assert!(back <= 22_300, "two intervals are over");
    }
    assert_eq!(world.state(1, back), State::SlowStart);
    let mut share = |from: u64| {
        let [a, b, c] = world.assigned_from(back + from, back + from + 1000);
        b as f64 / (a + b + c) as f64
    };
    // With the weight w, the back end gets w / (2 + w) of the calls. The mean of w is .145 in the
    // first second, .595 in the middle one, and .955 in the last one. With 300 calls, one call is a
    // third of a percent.
    for (from, weight) in [(0, 0.145), (5_000, 0.595), (9_000, 0.955), (12_000, 1.0)] {
        let (seen, expected) = (share(from), weight / (2.0 + weight));
        assert!((seen - expected).abs() < 0.015, "{seen:.3} after {from} ms, not {expected:.3}");
    }
    let now = back + 13_000;
    assert_eq!(world.state(1, now), State::Up);
}

#[test]
fn a_back_end_drained_under_load_loses_no_call_and_gets_none() {
    let mut world = World::new(Health::default(), 300.0, Duration::from_secs(20));
    world.until(5_000);
    let drained = Arc::clone(&world.pool.backends()[2]);
    assert!(drained.calls() > 150, "{} calls are up there", drained.calls());
    drained.set_admin_state(at(5_000), AdminState::Draining);
    assert_eq!(world.assigned_from(5_000, 8_000)[2], 0);
    assert_eq!((drained.calls(), drained.work()), (0, 0), "two seconds are the longest call");
    drained.set_admin_state(at(8_000), AdminState::InService);
    assert!(world.assigned_from(8_000, 9_000)[2] > 90);
    world.until(60_000);
    let stats = world.stats();
    assert!(stats.begun > 5_000);
    assert_eq!((stats.completed, stats.failed.total()), (stats.begun, 0));
}
