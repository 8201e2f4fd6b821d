//! Tests of queries for the host name of a back end, in simulated time.

use std::sync::Arc;
use std::time::Duration;

use tidegate_balance::{self as balance, Endpoint, Named, Policy};
use tidegate_proxy::{PoolSettings, Proxy};
use tidegate_sim::{Link, Network, Resolution, Silence};
use tidegate_world::{Pool, Seed, Timestamp};

use crate::topology::{PROXY, address, settings};

const HOST: &str = "kam1.example.com";

fn at(s: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(s)
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
    network.zone_mut().set(HOST, &[[127, 0, 0, 2].into()], Duration::from_secs(60));
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
