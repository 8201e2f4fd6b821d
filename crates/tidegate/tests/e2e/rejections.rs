//! Tests of the information about rejected calls: in the log, and from `tidegate ctl`.

use serde_json::Value;

use crate::stage::{Configuration, Load, Sipp, Stage, Tidegate};

/// SIPp's calls go to a back end that is down. The log shows the time of the outage, and for each
/// rejected call the reason, the callee and the pool.
#[test]
fn an_outage_and_the_calls_that_it_cost_are_found_afterwards() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas");
    // If a pool has only one back end, Tidegate considers it down only after failed probes.
    let more = "[pool.health]\nprobe = \"options\"\ninterval_s = 0.2\ntimeout_ms = 200\nfall = 1\n";
    let more = more.to_owned();
    let configuration = Configuration { more, ..Configuration::new(&stage, &[callee.address()]) };
    let mut tidegate = Tidegate::start(&stage, &configuration);
    let ctl = |arguments: &[&str]| tidegate.ctl(&stage, arguments);
    let name = callee.address().to_string();
    callee.kill();
    tidegate.wait_for("it is down", |metrics| metrics.backend("backend_up", &name) == 0);
    let load = Load { calls: 3, rate_cps: 2, ..Load::default() };
    let calls = Sipp::caller(&stage, tidegate.address(), &load).wait();
    assert_eq!((calls.created, calls.failed), (3, 3), "{calls}");

    let (status, said) = ctl(&["--json", "rejections"]);
    assert_eq!(status, Some(0), "{said}");
    let kept: Value = serde_json::from_str(&said).unwrap();
    let all = kept["rejections"].as_array().unwrap();
    let one =
        all.iter().find(|one| one["reason"] == "pool_down").unwrap_or_else(|| panic!("{said}"));
    assert_eq!((&one["status"], &one["method"]), (&503.into(), &"INVITE".into()));
    assert_eq!((&one["pool"], &one["cause"]), (&"app".into(), &"every back end is down".into()));
    let text = |name: &str| one[name].as_str().unwrap();
    assert!(text("from").contains("sipp") && text("to").contains("service"), "{one}");
    assert!(text("uri").contains(&tidegate.address().to_string()), "{one}");
    assert!(text("time").starts_with("20") && text("time").ends_with('Z'), "{one}");

    let (_, table) = ctl(&["rejections"]);
    assert!(table.contains("pool_down") && table.contains("every back end is down"), "{table}");
    // SIPp's Call-IDs contain an `@`.
    assert!(text("call_id").contains('@'));
    let (status, shown) = ctl(&["call", text("call_id")]);
    assert_eq!(status, Some(0), "{shown}");
    assert!(shown.contains("503, every back end is down (pool_down)"), "{shown}");
    let (_, unknown) = ctl(&["call", "none/such"]);
    assert!(unknown.contains("no call table has this call"), "{unknown}");
    assert!(unknown.contains("there is no record of a rejection of this call"), "{unknown}");

    let rejected = tidegate.metrics().sum("replies_total", &[("reason", "pool_down")]);
    assert!(rejected > 0);
    tidegate.process().wait_for("the log tells of it", |process| {
        let log = process.log();
        let dated = |what: &str| {
            let is = |line: &str| line.starts_with("tidegate: 20") && line.contains(what);
            log.lines().any(is)
        };
        let down = dated(" is down: ") && dated("pool app: no back end");
        (down && dated("no back end of a pool takes new requests: begins")).then_some(())
    });
}
