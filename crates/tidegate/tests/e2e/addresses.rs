//! IPv6, and from there to IPv4.

use crate::stage::{Configuration, Load, Sipp, Stage, Tidegate};

const CALLS: u32 = 100;

#[test]
fn calls_go_over_ipv6() {
    let stage = Stage::ipv6();
    let callees = ["uas-record-route"; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let backends = callees.each_ref().map(Sipp::address);
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &backends));
    let load = Load { scenario: "uac-routes", calls: CALLS, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(CALLS);
    for calls in callees.map(Sipp::finish) {
        calls.assert_all_well(CALLS / 2);
    }
    let metrics = tidegate.metrics();
    metrics.assert_nothing_lost();
    metrics.assert_nothing_held();
}

/// Between two listeners there are two Record-Routes, one for each side.
#[test]
fn calls_go_from_ipv6_to_ipv4() {
    let (outside, inside) = (Stage::ipv6(), Stage::new());
    let callee = Sipp::callee(&inside, "uas-record-route");
    let configuration = Configuration::new(&inside, &[callee.address()]);
    let listen = vec![(outside.ip(), 0).into(), (inside.ip(), 0).into()];
    let tidegate = Tidegate::start(&inside, &Configuration { listen, ..configuration });
    let load = Load { scenario: "uac-routes", calls: CALLS, ..Load::default() };
    Sipp::caller(&outside, tidegate.listeners()[0], &load).wait().assert_all_well(CALLS);
    callee.finish().assert_all_well(CALLS);
    let metrics = tidegate.metrics();
    metrics.assert_nothing_lost();
    metrics.assert_nothing_held();
}
