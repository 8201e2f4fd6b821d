//! Tests of users in a store, in simulated time. The store is late, is silent, fails, or does not
//! have the user. Calls to a pool continue in all cases.

use std::sync::Arc;
use std::time::Duration;

use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, CallerStats, Load};
use tidegate_balance::{self as balance, Policy};
use tidegate_proxy::{Counters, PoolSettings, Proxy, Rule, RuleTarget, Senders};
use tidegate_sim::{Link, Network, Resolution, Zone};
use tidegate_world::{Core, LookupKind, Pool, Seed, Timestamp};

use crate::topology::{CALLER, PROXY, address, settings};

const OTHER_CALLER: &str = "127.0.0.4:5080";
const BACKEND: &str = "127.0.0.2:5070";
const PHONE: &str = "127.0.0.3:5062";
const ALICE: &str = "sip:alice@example.com";
const CALLS: u32 = 60;

/// The outcome of a run.
struct Ended {
    /// Counts of the calls to the user, and of those to the pool.
    users: CallerStats,
    pool: CallerStats,
    /// Calls that the phone has completed.
    answered: u64,
    counters: Arc<Counters>,
}

impl Ended {
    /// Returns the calls to the user that were rejected with this status.
    fn rejected(&self, status: u16) -> u64 {
        self.users.failed.status.get(&status).copied().unwrap_or_default()
    }
}

/// Runs one caller that calls a user, and another one that calls the pool, with one call a second
/// each.
fn run(resolution: Resolution, fill: impl FnOnce(&mut Zone)) -> Ended {
    let (seed, link) = (Seed(1), Link::delaying(Duration::from_millis(1)));
    let caller = |local: &str, uri: String, stream| {
        let config = CallerConfig {
            load: Load { rate_cps: 1.0, calls: CALLS, ..Load::default() },
            hold: Duration::from_secs(3).into(),
            uri,
            ..CallerConfig::new(address(local), address(PROXY))
        };
        Caller::new(config, seed, stream, Timestamp::ZERO, Pool::new()).unwrap()
    };
    let mut to_user = caller(CALLER, ALICE.to_owned(), 0);
    let mut to_pool = caller(OTHER_CALLER, format!("sip:service@{PROXY}"), 1);
    let pool = balance::Pool::new("app", &[("a", address(BACKEND), 1)]);
    let mut settings = settings(PoolSettings::new(pool, Policy::Rr));
    let domains = vec!["example.com".to_owned()];
    let users = Rule { domains, ..Rule::new(Senders::Any, RuleTarget::Users) };
    settings.rules.insert(0, users);
    let counters = Arc::<Counters>::default();
    let mut proxy = Proxy::new(settings, Arc::clone(&counters), Pool::new());
    let [mut backend, mut phone] = [BACKEND, PHONE]
        .map(|place| Answerer::new(AnswererConfig::new(address(place)), seed, 2, Pool::new()));

    let mut network = Network::<&mut dyn Core>::new(seed, link, ());
    network.add(&[address(CALLER)], &mut to_user);
    network.add(&[address(OTHER_CALLER)], &mut to_pool);
    network.add(&[address(PROXY)], &mut proxy);
    network.add(&[address(BACKEND)], &mut backend);
    network.add(&[address(PHONE)], &mut phone);
    network.zone_mut().resolve_by(resolution);
    fill(network.zone_mut());
    network.run_until(Timestamp::NEVER);
    drop(network);
    assert_eq!(counters.parked.get(), 0, "nothing waits forever");
    assert_eq!(counters.lookups.outstanding.get(), 0);
    Ended {
        users: to_user.stats().clone(),
        pool: to_pool.stats().clone(),
        answered: phone.stats().completed,
        counters,
    }
}

fn reached_at(zone: &mut Zone, contact: &str) {
    zone.set_value(LookupKind::User, ALICE.as_bytes(), format!("<{contact}>\n").as_bytes());
}

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[test]
fn calls_to_a_user_wait_for_a_store_that_is_late() {
    let late = Resolution { delay: seconds(2), jitter: seconds(1), ..Resolution::default() };
    let ended = run(late, |zone| reached_at(zone, "sip:alice@127.0.0.3:5062"));
    assert_eq!(ended.users.completed, u64::from(CALLS), "{:?}", ended.users.failed);
    // The callers' BYEs reached the phone by the Record-Route of the proxy.
    assert_eq!(ended.answered, u64::from(CALLS));
    assert_eq!(ended.pool.completed, u64::from(CALLS), "{:?}", ended.pool.failed);
    assert_eq!(ended.counters.lookups.given_up.get(), 0);
}

#[test]
fn calls_to_a_user_are_rejected_while_the_store_is_silent_or_fails() {
    for resolution in [
        Resolution { lost: 1.0, ..Resolution::default() },
        Resolution { fails: 1.0, delay: seconds(1), ..Resolution::default() },
        // An answer that is later than any caller waits.
        Resolution { delay: seconds(60), ..Resolution::default() },
    ] {
        let ended = run(resolution, |zone| reached_at(zone, "sip:alice@127.0.0.3:5062"));
        assert_eq!(ended.rejected(480), u64::from(CALLS), "{:?}", ended.users.failed);
        assert_eq!(ended.answered, 0);
        assert_eq!(ended.pool.completed, u64::from(CALLS), "{:?}", ended.pool.failed);
    }
}

#[test]
fn failed_and_lost_look_ups_affect_only_their_own_calls() {
    let resolution =
        Resolution { fails: 0.2, lost: 0.2, delay: seconds(1), ..Resolution::default() };
    let ended = run(resolution, |zone| reached_at(zone, "sip:alice@127.0.0.3:5062"));
    let (completed, rejected) = (ended.users.completed, ended.rejected(480));
    assert_eq!(completed + rejected, u64::from(CALLS), "{:?}", ended.users.failed);
    assert!(completed > 15 && rejected > 5, "{completed}, {rejected}");
    assert_eq!(ended.pool.completed, u64::from(CALLS));
}

#[test]
fn a_user_that_the_store_does_not_have_is_not_found() {
    let ended = run(Resolution::default(), |_| {});
    assert_eq!(ended.rejected(404), u64::from(CALLS), "{:?}", ended.users.failed);
    assert!(ended.counters.lookups.not_found.get() > 0);
}

#[test]
fn a_contact_that_is_a_name_is_resolved_after_a_late_look_up() {
    let late = Resolution { delay: seconds(1), ..Resolution::default() };
    let ended = run(late, |zone| {
        reached_at(zone, "sip:alice@phone.example:5062");
        zone.set("phone.example", &[address(PHONE).ip()], seconds(3600));
    });
    assert_eq!(ended.users.completed, u64::from(CALLS), "{:?}", ended.users.failed);
    assert_eq!(ended.answered, u64::from(CALLS));
}
