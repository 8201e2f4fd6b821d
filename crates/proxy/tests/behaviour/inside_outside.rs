//! Tests that a request leaves from the listener that reaches its target: inside or outside.
//!
//! A socket bound to the outside address sends from this address, whatever the route is. So its
//! packets do not reach the inside. RFC 5658 §4 recommends that a proxy between two networks record
//! both of its addresses (double Record-Route).

use crate::script::*;
use tidegate_balance::{Policy, Pool};
use tidegate_proxy::{EgressRoute, Health, Listener, PoolSettings, Probe};

const INSIDE: &str = "10.0.0.100:5060";

fn route(to: &str, listener: usize) -> EgressRoute {
    EgressRoute { to: to.parse().unwrap(), listener }
}

/// Makes a proxy with [`PROXY`], the first listener, outside, and its back ends inside.
fn between(routes: &[EgressRoute], pool_listener: Option<usize>) -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.listeners.push(Listener::new(address(INSIDE)));
        settings.egress_routes = routes.to_vec();
        let pool = Pool::new("app", &[("a", address(BACKEND_A), 1)]);
        settings.pools =
            vec![PoolSettings { listener: pool_listener, ..PoolSettings::new(pool, Policy::Rr) }];
    })
}

fn by_the_kernel() -> Script {
    between(&[route("10.0.0.0/8", 1), route("0.0.0.0/0", 0)], None)
}

/// Returns the forwarded request, without our 100.
fn forwarded(script: &mut Script, local: &str, from: &str, text: &str) -> Sent {
    script.offer_at(local, from, text.as_bytes(), 0);
    let mut sent = script.serve();
    sent.retain(|sent| !sent.start().contains(" 100 "));
    assert_eq!(sent.len(), 1, "{sent:#?}");
    sent.remove(0)
}

#[test]
fn a_request_from_outside_leaves_inside_and_both_addresses_are_recorded() {
    for mut script in [by_the_kernel(), between(&[], Some(1))] {
        let sent = forwarded(&mut script, PROXY, CALLER, &invite("c1"));
        assert_eq!((sent.from, sent.to), (address(INSIDE), address(BACKEND_A)));
        assert!(sent.header("Via").contains(INSIDE), "{}", sent.text);
        let routes = sent.all("Record-Route");
        assert_eq!(routes.len(), 2, "{routes:?}");
        assert!(routes[0].contains("@10.0.0.100:5060;lr>"), "{routes:?}");
        assert!(routes[1].contains("@192.0.2.1:5060;lr>"), "{routes:?}");
        let ok = forwarded(&mut script, INSIDE, BACKEND_A, &sent.answer("200 OK"));
        assert_eq!((ok.from, ok.to), (address(PROXY), address(CALLER)));
    }
}

#[test]
fn a_request_within_the_dialog_leaves_by_the_listener_that_was_recorded() {
    // Only the Record-Route shows which listener leads outside.
    for mut script in [by_the_kernel(), between(&[], Some(1))] {
        let sent = forwarded(&mut script, PROXY, CALLER, &invite("c1"));
        let routes: Vec<_> = sent.all("Record-Route").iter().map(|r| r.to_string()).collect();
        forwarded(&mut script, INSIDE, BACKEND_A, &sent.answer("200 OK"));
        let more = format!("Totag\r\nRoute: {}, {}\r\n", routes[0], routes[1]);
        let bye = request("BYE", "sip:alice@198.51.100.7:5060", "c1", 1, &more);
        let sent = forwarded(&mut script, INSIDE, BACKEND_A, &bye);
        assert_eq!((sent.from, sent.to), (address(PROXY), address(CALLER)));
        let more = format!("Totag\r\nRoute: {}, {}\r\n", routes[1], routes[0]);
        let info = request("INFO", "sip:bob@10.0.0.1:5070", "c1", 2, &more);
        let sent = forwarded(&mut script, PROXY, CALLER, &info);
        assert_eq!((sent.from, sent.to), (address(INSIDE), address(BACKEND_A)));
    }
}

#[test]
fn a_call_that_a_back_end_makes_leaves_by_the_route_of_its_target() {
    let mut script = by_the_kernel();
    let text = request("INVITE", "sip:carol@203.0.113.9", "c2", 1, "");
    let sent = forwarded(&mut script, INSIDE, BACKEND_A, &text);
    assert_eq!((sent.from, sent.to), (address(PROXY), address("203.0.113.9:5060")));
    // If several listeners have one address, the request leaves from the listener that received it.
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.listeners.push(Listener::new(address("192.0.2.1:5080")));
        settings.egress_routes = vec![route("0.0.0.0/0", 0)];
    });
    let sent = forwarded(&mut script, "192.0.2.1:5080", CALLER, &invite("c3"));
    assert_eq!(sent.from, address("192.0.2.1:5080"));
}

#[test]
fn routes_that_a_stranger_writes_choose_no_listener() {
    let mut script = by_the_kernel();
    let more = "Route: <sip:192.0.2.1;lr>, <sip:192.0.2.1;lr>\r\n";
    let text = request("INVITE", "sip:bob@192.0.2.1", "c4", 1, more);
    let sent = forwarded(&mut script, PROXY, CALLER, &text);
    assert_eq!((sent.from, sent.to), (address(INSIDE), address(BACKEND_A)));
}

#[test]
fn probes_leave_inside() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.listeners.push(Listener::new(address(INSIDE)));
        settings.egress_routes = vec![route("10.0.0.0/8", 1), route("0.0.0.0/0", 0)];
        let health = Health { probe: Some(Probe::default()), ..Health::default() };
        let pool = Pool::new("app", &[("a", address(BACKEND_A), 1)]);
        settings.pools = vec![PoolSettings { health, ..PoolSettings::new(pool, Policy::Rr) }];
    });
    script.pass(Probe::default().interval);
    let probes = script.sent();
    assert!(!probes.is_empty());
    assert!(probes.iter().all(|probe| probe.from == address(INSIDE)), "{probes:#?}");
}
