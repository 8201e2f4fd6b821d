//! Tests of back ends with host names, in simulated time: a resolver that is late, fails or loses
//! queries, and names that get other addresses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, CallerStats, Load};
use tidegate_balance::{self as balance, Endpoint, Named, Policy};
use tidegate_proxy::{Mode, PoolSettings, Proxy};
use tidegate_sim::{Fault, Link, Network, NodeId, Resolution, Silence};
use tidegate_world::{Core, Pool, Seed, Timestamp};

use crate::topology::{CALLER, PROXY, address, settings};

const HOST: &str = "kam1.example.com";
/// The addresses that the name has, one after the other.
const PLACES: [&str; 2] = ["127.0.0.2:5070", "127.0.0.3:5070"];

/// One call a second, each held for a while.
struct Stage<'c> {
    network: Network<&'c mut dyn Core>,
    proxy: NodeId,
    answerers: [NodeId; 2],
    pool: balance::Pool,
}

/// The result of a run.
struct Ended {
    caller: CallerStats,
    answered: [u64; 2],
}

impl Ended {
    fn rejected(&self) -> u64 {
        self.caller.failed.status.get(&503).copied().unwrap_or_default()
    }
}

fn at(s: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(s)
}

/// Makes 60 calls, held for `hold_s` each, while `act` runs.
fn run(mode: Mode, hold_s: u64, act: impl FnOnce(&mut Stage<'_>)) -> Ended {
    let (seed, link) = (Seed(1), Link::delaying(Duration::from_millis(1)));
    let config = CallerConfig {
        load: Load { rate_cps: 1.0, calls: 60, ..Load::default() },
        hold: Duration::from_secs(hold_s).into(),
        ..CallerConfig::new(address(CALLER), address(PROXY))
    };
    let mut caller = Caller::new(config, seed, 0, Timestamp::ZERO, Pool::new()).unwrap();
    let pool = balance::Pool::located("app", [(HOST, Endpoint::Name(Named::new(HOST, 5070)), 1)]);
    let settings = settings(PoolSettings { mode, ..PoolSettings::new(pool.clone(), Policy::Rr) });
    let mut proxy = Proxy::new(settings, Arc::default(), Pool::new());
    let mut answerers = PLACES
        .map(|place| Answerer::new(AnswererConfig::new(address(place)), seed, 1, Pool::new()));
    let [first, second] = &mut answerers;

    let mut network = Network::<&mut dyn Core>::new(seed, link, ());
    network.add(&[address(CALLER)], &mut caller);
    let proxy = network.add(&[address(PROXY)], &mut proxy);
    let answerers_at =
        [network.add(&[address(PLACES[0])], first), network.add(&[address(PLACES[1])], second)];
    let mut stage = Stage { network, proxy, answerers: answerers_at, pool };
    stage.lead_to(&[0], 10);
    act(&mut stage);
    // The proxy sends queries forever, so the run needs an end.
    stage.network.run_until(at(500));
    stage.network.drain(stage.proxy);
    stage.network.run_until(Timestamp::NEVER);
    let backend = &stage.pool.backends()[0];
    assert_eq!((backend.calls(), backend.work()), (0, 0), "every count came back");
    drop(stage);
    let answered = answerers.each_ref().map(|answerer| answerer.stats().completed);
    Ended { caller: caller.stats().clone(), answered }
}

impl Stage<'_> {
    /// Sets the addresses of the name.
    fn lead_to(&mut self, places: &[usize], ttl_s: u64) {
        let ips: Vec<_> = places.iter().map(|&place| address(PLACES[place]).ip()).collect();
        self.network.zone_mut().set(HOST, &ips, Duration::from_secs(ttl_s));
    }

    fn resolve_by(&mut self, resolution: Resolution) {
        self.network.zone_mut().resolve_by(resolution);
    }

    fn apply(&mut self, s: u64, fault: Fault) {
        self.network.apply(at(s), &fault, |_| unreachable!("nobody restarts"));
    }

    fn named(&self) -> &Named {
        self.pool.backends()[0].named().unwrap()
    }

    fn present(&self) -> Option<SocketAddr> {
        self.named().address()
    }

    /// Returns the numbers of look-ups: found, not found, unanswered, moved.
    fn lookups(&self) -> [u64; 4] {
        let lookups = &self.named().lookups;
        [&lookups.found, &lookups.not_found, &lookups.unanswered, &lookups.moved]
            .map(|count| count.load(Relaxed))
    }
}

#[test]
fn calls_are_rejected_until_a_late_resolver_has_answered_and_then_served() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let ended = run(mode, 3, |stage| {
            stage
                .resolve_by(Resolution { delay: Duration::from_secs(10), ..Resolution::default() });
            stage.network.run_until(at(9));
            assert_eq!(stage.present(), None);
            stage.network.run_until(at(11));
            assert_eq!(stage.present(), Some(address(PLACES[0])));
        });
        let rejected = ended.rejected();
        // One call starts a second on average, as a Poisson process. Five standard deviations are
        // 16.
        assert!((1..=26).contains(&rejected), "{rejected}");
        assert_eq!(ended.caller.completed, 60 - rejected, "{:?}", ended.caller.failed);
        assert_eq!(ended.answered, [60 - rejected, 0]);
    }
}

#[test]
fn a_resolver_that_fails_is_asked_less_and_less_often() {
    let ended = run(Mode::Transaction, 3, |stage| {
        stage.resolve_by(Resolution { fails: 1.0, ..Resolution::default() });
        // The queries are sent at 0, 1, 3, 7, 15, 31, 63 and 95 s.
        for (s, asked) in [(0, 1), (2, 2), (6, 3), (14, 4), (30, 5), (62, 6), (94, 7), (126, 8)] {
            stage.network.run_until(at(s));
            assert_eq!(stage.lookups(), [0, 0, asked, 0], "at {s} s");
        }
    });
    assert_eq!((ended.rejected(), ended.answered), (60, [0, 0]));
}

#[test]
fn questions_that_are_lost_are_given_up_and_asked_again() {
    let ended = run(Mode::Transaction, 3, |stage| {
        stage.resolve_by(Resolution { lost: 1.0, ..Resolution::default() });
        stage.network.run_until(at(20));
        assert_eq!(stage.lookups(), [0, 0, 1, 0]);
        stage.resolve_by(Resolution::default());
        stage.network.run_until(at(22));
        assert_eq!(stage.lookups(), [1, 0, 1, 1]);
    });
    assert!(ended.caller.completed > 20 && ended.rejected() > 0);
}

#[test]
fn while_a_name_cannot_be_resolved_calls_go_to_its_last_address() {
    let ended = run(Mode::Transaction, 3, |stage| {
        let resolution = Resolution { fails: 1.0, ..Resolution::default() };
        stage.apply(5, Fault::Resolver { resolution });
        stage.network.run_until(at(40));
        assert!(stage.named().is_stale());
        stage.network.zone_mut().remove(HOST);
        stage.apply(41, Fault::Resolves);
        stage.network.run_until(at(120));
        assert!(stage.named().is_stale() && stage.lookups()[1] > 0);
    });
    assert_eq!((ended.caller.completed, ended.answered), (60, [60, 0]));
}

#[test]
fn open_calls_stay_where_they_are_when_the_name_leads_elsewhere() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        // The calls last so long that all earlier ones are open when the name moves. Some calls
        // start later.
        let ended = run(mode, 200, |stage| {
            stage.network.run_until(at(25));
            stage.lead_to(&[1], 10);
            stage.network.run_until(at(36));
            assert_eq!(stage.present(), Some(address(PLACES[1])));
            assert_eq!(stage.lookups()[3], 2);
        });
        assert_eq!(ended.caller.completed, 60, "{:?}", ended.caller.failed);
        let [first, second] = ended.answered;
        assert!(first > 5 && second > 5 && first + second == 60, "{mode:?}: {first}, {second}");
    }
}

#[test]
fn a_dead_back_end_is_up_again_at_the_next_address_of_its_name() {
    let ended = run(Mode::Transaction, 3, |stage| {
        stage.apply(20, Fault::Crash { node: stage.answerers[0], silence: Silence::Refused });
        stage.network.run_until(at(25));
        stage.lead_to(&[0, 1], 10);
        stage.network.run_until(at(32));
        assert_eq!(stage.present(), Some(address(PLACES[0])), "it is still among them");
        stage.lead_to(&[1], 10);
        stage.network.run_until(at(43));
        assert_eq!(stage.present(), Some(address(PLACES[1])));
    });
    assert!(ended.answered[1] > 5, "{:?}", ended.answered);
    // The back end is the only one, so the proxy tries it although it seems down.
    assert!(ended.caller.completed < 60 && ended.rejected() == 0, "{:?}", ended.caller.failed);
}

#[test]
fn queries_from_before_a_crash_are_not_answered_after_it() {
    let pool =
        || balance::Pool::located("app", [(HOST, Endpoint::Name(Named::new(HOST, 5070)), 1)]);
    let proxy = |pool: &balance::Pool| {
        let settings = settings(PoolSettings::new(pool.clone(), Policy::Rr));
        Proxy::new(settings, Arc::default(), Pool::new())
    };
    let (before, after) = (pool(), pool());
    let mut network = Network::new(Seed(1), Link::default(), ());
    network.zone_mut().set(HOST, &[address(PLACES[0]).ip()], Duration::from_secs(60));
    network
        .zone_mut()
        .resolve_by(Resolution { delay: Duration::from_secs(4), ..Resolution::default() });
    let node = network.add(&[address(PROXY)], proxy(&before));
    network.run_until(at(1));
    network.crash(node, Silence::Silent);
    network.restart(node, proxy(&after));
    let known = |pool: &balance::Pool| pool.backends()[0].address().is_some();
    // The query of the new proxy, which has the same number as the old one, is answered a second
    // later.
    network.run_until(at(4) + Duration::from_millis(500));
    assert!(!known(&before) && !known(&after));
    network.run_until(at(6));
    assert!(known(&after) && !known(&before));
}
