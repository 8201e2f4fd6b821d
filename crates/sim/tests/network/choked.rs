//! Tests of a link whose queue is as long as a transaction: copies of a request arrive when the
//! nodes that handled it begin to forget it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_agent::{Answerer, AnswererConfig, Caller, CallerConfig, Load, Span};
use tidegate_balance::{Policy, Pool};
use tidegate_proxy::{PoolSettings, Proxy};
use tidegate_sim::check::{Checkers, Role};
use tidegate_sim::{Bandwidth, Link, Network};
use tidegate_world::{Pool as Buffers, Seed, Timestamp};

use crate::topology::{BACKENDS, CALLER, Node, PROXY, address, settings};

/// RFC 3261 §17.2.2: a request gets one final response, however long its copies have waited.
///
/// A copy that reaches a proxy after 64·T1 starts another transaction, with a branch of its own.
/// A 481 must not follow the 200, even if the callee has forgotten the call.
#[test]
fn delayed_copies_get_no_other_final_response_within_their_transaction() {
    let seed = Seed(1);
    let bandwidth = Bandwidth { bits_per_s: 222_132, queue_max_bytes: 300_000 };
    let link = Link { bandwidth: Some(bandwidth), ..Link::delaying(Duration::from_millis(1)) };
    let config = CallerConfig {
        load: Load { rate_cps: 100.0, calls: 300, ..Load::default() },
        patience: Span::Exponential(Duration::from_secs(1)),
        ..CallerConfig::new(address(CALLER), address(PROXY))
    };
    let caller = Caller::new(config, seed, 0, Timestamp::ZERO, Buffers::new()).unwrap();
    let callee = address(BACKENDS[0]);
    let pool = PoolSettings::new(Pool::new("app", &[("callee", callee, 1)]), Policy::Tlwl);
    let proxy = Proxy::new(settings(pool), Arc::default(), Buffers::new());
    let answerer = Answerer::new(AnswererConfig::new(callee), seed, 2, Buffers::new());

    let mut network = Network::new(seed, link, Checkers::new());
    let nodes = [
        network.add(&[address(CALLER)], Node::Caller(Box::new(caller))),
        network.add(&[address(PROXY)], Node::Proxy(Box::new(proxy))),
        network.add(&[callee], Node::Answerer(Box::new(answerer))),
    ];
    let proxy = Role::Proxy { stateful: true, bridges: false, sticky: true, roomy: true };
    for (node, role) in nodes.into_iter().zip([Role::Caller, proxy, Role::Answerer { roomy: true }])
    {
        network.tap_mut().watch(node, role);
    }
    network.run_until(Timestamp::ZERO + Duration::from_secs(600));
    let Node::Answerer(answerer) = network.core(nodes[2]) else { unreachable!("it was added so") };
    assert!(answerer.stats().byes_again > 0 && answerer.stats().stray > 0, "copies come late");
    let report = network.into_parts().1.finish(Timestamp::ZERO, false, &[]);
    let finals: Vec<_> = report.violations.iter().filter(|v| v.checker == "finals").collect();
    assert!(finals.is_empty(), "{finals:#?}");
}
