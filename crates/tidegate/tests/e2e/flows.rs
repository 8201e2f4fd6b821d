//! Tests of callers whose Contact is unreachable, and of callees that a back end addresses by
//! domain.

#[path = "../../../io/tests/dns/mod.rs"]
mod dns;

use crate::stage::{Configuration, Impair, Load, Sipp, Stage, Tidegate};

/// RFC 5626 §5.3.1: "the proxy removes the Route header field value and forwards the request over
/// the 'logical flow' identified by the flow token". The BYE of the back end has the name in its
/// Request-URI, and no DNS server knows that name.
#[test]
fn a_back_end_hangs_up_on_callers_known_by_name() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-hangs-up");
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[callee.address()]));
    let load = Load { scenario: "uac-named", calls: 100, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(100);
    callee.finish().assert_all_well(100);
    tidegate.metrics().assert_nothing_held();
}

/// The relay acts as an address translator: only the relay can reach the addresses that callers
/// write in their messages. In a network of one machine the datagrams would arrive regardless, so
/// the test checks the relay's counts for the BYEs.
#[test]
fn a_back_end_hangs_up_on_callers_behind_address_translation() {
    let (stage, home) = (Stage::new(), Stage::new());
    let callee = Sipp::callee(&stage, "uas-hangs-up");
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[callee.address()]));
    let translator = Impair::start(&stage, tidegate.address(), &[]);
    let load = Load { scenario: "uac-translated", calls: 100, ..Load::default() };
    Sipp::caller(&home, translator.address(), &load).wait().assert_all_well(100);
    callee.finish().assert_all_well(100);
    tidegate.metrics().assert_nothing_held();
    let counts = translator.finish();
    // Each of the 100 calls sends the callers a 100, a 180, a 200 and a BYE.
    let back = counts["back"]["received"].as_u64().expect("a count");
    assert!(back >= 400, "{counts}");
}

/// RFC 3263 §4.2: "the client performs an SRV query", preceded by the NAPTR query of §4.1, at a
/// real DNS server.
#[test]
fn a_back_end_calls_a_domain_with_servers_in_the_dns() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let host = format!("--host-record=one.carrier.test,{}", stage.ip());
    let port = callee.address().port();
    let service = format!("--srv-host=_sip._udp.carrier.test,one.carrier.test,{port},10,10");
    let names = dns::NameServer::start(stage.ip(), &[&host, &service]);
    let caller = stage.free_address();
    let more = format!("[resolver]\nservers = [\"{}\"]\n", names.address());
    let configuration = Configuration { more, ..Configuration::new(&stage, &[caller]) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let load = Load { scenario: "uac-domain", calls: 100, ..Load::default() };
    let options = ["-s", "carol", "-key", "domain", "carrier.test"];
    let calls = Sipp::caller_at(&stage, caller, tidegate.address(), &load, &options);
    calls.wait().assert_all_well(100);
    callee.finish().assert_all_well(100);
    let metrics = tidegate.metrics();
    metrics.assert_nothing_held();
    let asked = metrics.sum("resolution_questions_total", &[("outcome", "found")]);
    assert!((2..10).contains(&asked), "asked once for all calls: {asked}");
}
