//! Tests of `tidegate ctl` with a running Tidegate.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stage::{Configuration, Load, Sipp, Stage, Tidegate, run_to_end};

struct Reconfigurable {
    stage: Stage,
    tidegate: Tidegate,
    callee: Sipp,
}

impl Reconfigurable {
    /// Starts SIPp as the callee, and Tidegate, which is slowed down to 50 calls/s.
    fn set_up() -> Self {
        let stage = Stage::new();
        let callee = Sipp::callee(&stage, "uas");
        let mut configuration = Configuration::new(&stage, &[callee.address()]);
        configuration.more = "[overload]\nlaw = \"pi\"\n[emulate]\nserve_us = 3_300\n".to_owned();
        let tidegate = Tidegate::start(&stage, &configuration);
        Self { stage, tidegate, callee }
    }

    fn ctl(&self, arguments: &[&str]) -> (Option<i32>, String) {
        self.tidegate.ctl(&self.stage, arguments)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (status, said) = self.ctl(&[&["--json"], arguments].concat());
        assert_eq!(status, Some(0), "{said}");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

/// The load is four times the capacity, and the law changes ten times. Each call of SIPp is set up
/// and ended, or rejected at once.
#[test]
fn laws_are_switched_under_a_flood_of_sipp_calls_and_none_is_lost() {
    const CALLS: u32 = 300;
    const LAWS: [&str; 5] = ["codel", "occ", "gradient2", "sired", "pi"];
    let steered = Reconfigurable::set_up();
    let load = Load { scenario: "uac-overload", calls: CALLS, rate_cps: 200, ..Load::default() };
    let caller = Sipp::caller(&steered.stage, steered.tidegate.address(), &load);
    for law in LAWS.iter().chain(&LAWS) {
        let await_applied = steered.json(&["law", law]);
        assert_eq!(await_applied["shards"][0]["law"], *law);
        let shadow = steered.json(&["law", "--shadow", "ohta", "--param", "hi_wm=700"]);
        assert_eq!(shadow["shards"][0]["shadow"]["law"], "ohta");
    }
    caller.wait().assert_all_well(CALLS);
    let metrics = steered.tidegate.metrics();
    assert_eq!(metrics.sum("commands_total", &[("outcome", "applied")]), 20);
    let sessions = |name| metrics.sum(name, &[("bucket", "session")]);
    assert_eq!(sessions("work_offered_total"), u64::from(CALLS));
    let admitted = sessions("work_admitted_total");
    assert!((1..u64::from(CALLS)).contains(&admitted), "{admitted} admitted");
    // A law such as `codel` first admits calls, and later rejects those that have waited too long.
    let stale =
        metrics.sum("work_rejected_beside_total", &[("bucket", "session"), ("when", "after")]);
    assert!(sessions("shadow_work") > 0);
    metrics.assert_nothing_held();
    assert_eq!(u64::from(steered.callee.finish().created), admitted - stale);
}

#[test]
fn queries_are_answered_in_tables_and_json() {
    let steered = Reconfigurable::set_up();
    let (status, said) = steered.ctl(&["status"]);
    assert_eq!(status, Some(0));
    assert!(said.contains("admitting, law pi") && said.contains("socket drops"), "{said}");
    assert!(said.contains("pool app: 1 of 1 back ends up"), "{said}");
    let (_, said) = steered.ctl(&["backends"]);
    assert!(
        said.contains(&steered.callee.address().to_string()) && said.contains(" up "),
        "{said}"
    );
    let (_, said) = steered.ctl(&["overload"]);
    assert!(said.starts_with("law pi: ") && said.contains("c_t "), "{said}");
    assert!(said.contains("kernel drops"), "{said}");
    assert_eq!(steered.ctl(&["rejections"]).1, "nothing was rejected\n");
    assert_eq!(steered.json(&["backends"])[0]["name"], "app");
    assert_eq!(steered.json(&["overload"])["law"]["name"], "pi");
    steered.callee.kill();
}

#[test]
fn invalid_commands_are_reported_and_change_nothing() {
    let steered = Reconfigurable::set_up();
    let (status, said) = steered.ctl(&["law", "pie"]);
    assert_eq!(status, Some(2));
    assert!(said.contains("did you mean `\"pi\"`?"), "{said}");
    let (status, said) = steered.ctl(&["law", "pi", "--param", "c_t=7"]);
    assert_eq!(status, Some(2));
    assert!(said.contains("more than 1"), "{said}");
    assert_eq!(steered.ctl(&["law", "pi", "--param", "c_t"]).0, Some(2));
    assert_eq!(steered.json(&["overload"])["commands"], 0);
    let nobody = steered.stage.free_address().to_string();
    let (status, said) = run_to_end(&steered.stage, &["ctl", "--admin", &nobody, "status"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("no connection to"), "{said}");
    steered.callee.kill();
}

/// Datagrams of a source above its limit are dropped unread, until an operator lifts the ban.
#[test]
fn a_flood_is_banned_and_an_operator_lifts_the_ban() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas");
    let mut configuration = Configuration::new(&stage, &[callee.address()]);
    configuration.more = "[overload]\nlaw = \"none\"\n[overload.sources]\nban_above_cps = 100\n\
                          ban_s = 3600\n"
        .to_owned();
    let tidegate = Tidegate::start(&stage, &configuration);
    let ctl = |arguments: &[&str]| tidegate.ctl(&stage, arguments);
    assert_eq!(ctl(&["bans"]), (Some(0), "no source is banned\n".to_owned()));

    // The flood comes from another address than that of the back end, because back ends are never
    // banned.
    let flood = UdpSocket::bind("127.0.0.9:0").unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !ctl(&["bans"]).1.contains("127.0.0.9") {
        assert!(Instant::now() < deadline, "it was not banned");
        for _ in 0..200 {
            flood.send_to(b"INVITE nonsense\r\n\r\n", tidegate.address()).unwrap();
        }
    }
    let (status, said) = ctl(&["unban", "192.0.2.1"]);
    assert!(status == Some(1) && said.contains("is not banned"), "{said}");
    assert_eq!(ctl(&["unban", "127.0.0.9"]), (Some(0), "no source is banned\n".to_owned()));
    let (status, said) = ctl(&["unban", "nobody"]);
    assert!(status == Some(2), "{said}");
    callee.finish();
}
