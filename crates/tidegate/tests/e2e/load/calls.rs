//! Tests of calls between our caller and our callee, and of each with SIPp.

use std::net::SocketAddr;

use serde_json::Value;

use crate::stage::{Generator, Load, Peer, Sipp, Stage, run_to_end};

#[test]
fn our_caller_and_our_answerer_agree() {
    let stage = Stage::new();
    let (uas, address) = Generator::answerer(&stage, &["--name", "be-1"]);
    let ours = Generator::complete(&stage, address, &["--rate", "500", "--calls", "1000"]);
    for row in
        ["completed       1000 calls", "failed          0 calls (none)", "set-up delay    p50"]
    {
        assert!(ours.text.contains(row), "{}", ours.text);
    }
    let (ours, theirs) = (ours.figures, uas.stop().figures);
    assert_eq!(ours["stats"]["completed"], 1000);
    assert_eq!(ours["stats"]["set_up_delay"]["count"], 1000);
    assert_eq!(ours["usage"]["socket_drops"], 0);
    assert_eq!(theirs["stats"]["completed"], 1000);
    assert_eq!(theirs["stats"]["stray"], 0);
    assert_eq!(theirs["name"], "be-1");
}

#[test]
fn sipp_answers_our_caller() {
    let stage = Stage::new();
    let uas = Sipp::callee(&stage, "uas");
    let load = ["--rate", "500", "--calls", "1000", "--arrivals", "uniform"];
    let text = Generator::complete(&stage, uas.address(), &load).text;
    assert!(text.contains("unexpected 0, late 0, malformed 0, undelivered 0"), "{text}");
    uas.finish().assert_all_well(1000);
}

#[test]
fn sipp_calls_our_answerer() {
    let stage = Stage::new();
    let (uas, address) = Generator::answerer(&stage, &[]);
    let load = Load { calls: 1000, rate_cps: 500, ..Load::default() };
    Sipp::caller(&stage, address, &load).wait().assert_all_well(1000);
    let stats = &uas.stop().figures["stats"];
    assert_eq!((&stats["calls"], &stats["completed"]), (&1000.into(), &1000.into()));
    for nothing in ["stray", "malformed", "unexpected", "not_acknowledged", "open"] {
        assert_eq!(stats[nothing], 0, "{nothing}");
    }
}

#[test]
fn our_answerer_answers_from_the_address_that_was_asked() {
    let (stage, elsewhere) = (Stage::new(), Stage::new());
    let (uas, address) = Generator::answerer(&stage, &["--all-addresses"]);
    for ip in [stage.ip(), elsewhere.ip()] {
        let (caller, asked) = (Peer::new(stage.ip()), SocketAddr::new(ip, address.port()));
        caller.send(asked, &caller.request("INVITE", &format!("sip:b@{asked}"), 1, 1));
        // The answerer sends a 180 and a 200.
        for _ in 0..2 {
            let (response, from) = caller.receive_from();
            assert_eq!(from, asked);
            assert!(response.field("Contact").contains(&format!("{address}>")), "{}", response.0);
        }
    }
    uas.stop();
}

#[test]
fn our_answerer_hangs_up_on_sipp() {
    let stage = Stage::new();
    let behaviour = ["--provisionals", "183,180", "--ring", "exp:50", "--hang-up", "1"];
    let (uas, address) =
        Generator::answerer(&stage, &[&behaviour[..], &["--hold", "0.1"]].concat());
    let load = Load { scenario: "uac-hung-up", calls: 200, rate_cps: 200, ..Load::default() };
    Sipp::caller(&stage, address, &load).wait().assert_all_well(200);
    let stats = &uas.stop().figures["stats"];
    assert_eq!((&stats["calls"], &stats["hung_up"]), (&200.into(), &200.into()));
    for nothing in ["completed", "byes_unanswered", "unexpected", "stray", "malformed"] {
        assert_eq!(stats[nothing], 0, "{nothing}");
    }
}

#[test]
fn sipp_hangs_up_on_our_caller() {
    let stage = Stage::new();
    let uas = Sipp::callee(&stage, "uas-hangs-up");
    let load = ["--rate", "200", "--calls", "200", "--hold", "30"];
    let text = Generator::complete(&stage, uas.address(), &load).text;
    assert!(text.contains("completed       200 calls, 200 hung up by the other side"), "{text}");
    uas.finish().assert_all_well(200);
}

#[test]
fn our_caller_gives_up_on_sipp() {
    let stage = Stage::new();
    let uas = Sipp::callee(&stage, "uas-cancel");
    let load = ["--rate", "200", "--calls", "200", "--patience", "0.2"];
    let ended = Generator::call(&stage, uas.address(), &load);
    assert_eq!(ended.status, Some(1), "none completes");
    let text = ended.text;
    assert!(text.contains("failed          200 calls (abandoned: 200)"), "{text}");
    assert!(text.contains("unexpected 0, late 0, malformed 0"), "{text}");
    uas.finish().assert_all_well(200);
}

/// Both ends once drew the same random numbers from one seed. Then the callee's holding time was
/// always twice the caller's, so the callee never hung up.
#[test]
fn one_seed_gives_caller_and_callee_different_holding_times() {
    let stage = Stage::new();
    let theirs = ["--seed", "1", "--hang-up", "1", "--hold", "exp:0.4"];
    let (uas, address) = Generator::answerer(&stage, &theirs);
    let ours = ["--seed", "1", "--hold", "exp:0.2", "--rate", "200", "--calls", "200"];
    Generator::complete(&stage, address, &ours);
    // The callee hangs up first with the probability (1/0.4) / (1/0.4 + 1/0.2), which is a third.
    let hung_up = uas.stop().figures["stats"]["hung_up"].as_u64().unwrap();
    assert!((30..=110).contains(&hung_up), "{hung_up}");
}

#[test]
fn rejected_calls_give_status_1() {
    let stage = Stage::new();
    for rejects in [["--status", "486"], ["--outcomes", "busy=1"]] {
        let (_uas, address) = Generator::answerer(&stage, &rejects);
        let ended = Generator::call(&stage, address, &["--rate", "100", "--calls", "10"]);
        assert_eq!(ended.status, Some(1));
        let text = ended.text;
        assert!(text.contains("failed          10 calls (486: 10)"), "{text}");
    }
}

#[test]
fn an_absent_server_is_distinguished_from_a_silent_one() {
    let stage = Stage::new();
    let load = ["--rate", "100", "--calls", "3", "--t1", "20"];
    let ended = Generator::call(&stage, stage.free_address(), &load);
    assert_eq!(ended.status, Some(1));
    assert!(ended.text.contains("failed          3 calls (transport: 3)"), "{}", ended.text);

    let (uas, silent) = Generator::answerer(&stage, &["--silent"]);
    let text = Generator::call(&stage, silent, &load).text;
    assert!(text.contains("failed          3 calls (timeout: 3)"), "{text}");
    // The callee once reported its whole CPU time as the cost of a call, although it counts none.
    let theirs = uas.stop();
    let (text, theirs) = (theirs.text, theirs.figures);
    assert!(text.contains("own cost        CPU ") && !text.contains("µs a call"), "{text}");
    assert!(theirs["stats"]["ignored"].as_u64() >= Some(3), "{theirs}");
    assert_eq!((&theirs["stats"]["calls"], &theirs["cpu_us_per_call"]), (&0.into(), &Value::Null));
}

#[test]
fn an_interrupted_caller_ends_open_calls_and_reports() {
    let stage = Stage::new();
    let (_uas, address) = Generator::answerer(&stage, &[]);
    let address = address.to_string();
    let load = ["uac", &address, "--rate", "100", "--duration", "600", "--progress"];
    let mut uac = Generator::start(&stage, &load);
    uac.wait_for_progress(|line| line.contains(", open ") && !line.starts_with("offered 0,"));
    uac.terminate();
    let ended = uac.end();
    assert_eq!(ended.status, Some(1), "{}", ended.text);
    assert!(ended.text.contains("failed          0 calls (none)"), "{}", ended.text);
}

/// A regression: such a run continued until a signal, because no packet and no timer showed that it
/// was done.
#[test]
fn a_run_without_calls_ends_and_fails() {
    let stage = Stage::new();
    let nobody = stage.free_address().to_string();
    for (kind, none) in [("uac", "offered         0 calls"), ("register", "offered         0 reg")]
    {
        let load = [kind, &nobody, "--rate", "1", "--duration", "0"];
        let ended = Generator::start(&stage, &load).end();
        assert_eq!(ended.status, Some(1), "{kind}: {}", ended.text);
        assert!(ended.text.contains(none), "{kind}: {}", ended.text);
    }
}

#[test]
fn impossible_runs_are_usage_errors() {
    let stage = Stage::new();
    let peer = Peer::new(stage.ip());
    let taken = peer.address().to_string();
    for (args, said) in [
        (vec!["uac", "127.0.0.1:9", "--rate", "0", "--calls", "1"], "above zero"),
        (vec!["uac", "127.0.0.1:9", "--rate", "1"], "--calls"),
        (vec!["uac", "127.0.0.1:9", "--rate", "1", "--calls", "0"], "0 is not in 1.."),
        (vec!["register", "127.0.0.1:9", "--rate", "1", "--count", "0"], "0 is not in 1.."),
        (vec!["uac", "127.0.0.1:9", "--calls", "1"], "--rate"),
        (vec!["uac", "127.0.0.1:9", "--rate", "1", "--arrivals", "mmpp:1=1"], "2 to 8"),
        (vec!["uac", "127.0.0.1:9", "--rate", "1", "--arrivals", "trace:/dev/null"], "has no call"),
        (
            vec!["uac", "127.0.0.1:9", "--rate", "1", "--profile", "gradual:5"],
            "gradual:UP,HOLD,DOWN",
        ),
        (vec!["uac", "127.0.0.1:9", "--rate", "1", "--profile", "instant:5"], "--calls"),
        (
            vec!["uac", "127.0.0.1:9", "--rate", "1", "--calls", "1", "--open-limit", "0"],
            "open calls is 0",
        ),
        (vec!["uac", "no host", "--rate", "1", "--calls", "1"], "expected HOST"),
        (vec!["uac", "127.0.0.1:9", "--rate", "1", "--calls", "1", "--slack", "2"], "slack"),
        (
            vec!["uac", "127.0.0.1:9", "--rate", "1", "--calls", "1", "--t2", "0"],
            "T2 must be above 0 ms",
        ),
        (vec!["uas", "--bind", "0.0.0.0:5060"], "wildcard"),
        (vec!["uas", "--bind", &taken], "cannot listen on"),
        (vec!["uas", "--bind", "127.0.0.1", "--status", "200"], "300..700"),
        (vec!["uas", "--bind", "127.0.0.1", "--outcomes", "answer=1,bussy=1"], "'bussy'"),
        (vec!["uas", "--bind", "127.0.0.1", "--hang-up", "2"], "from 0 to 1"),
        (vec!["uas", "--bind", "127.0.0.1", "--ring", "exp:x"], "milliseconds"),
    ] {
        let (status, text) = run_to_end(&stage, &[&["load"], &args[..]].concat());
        assert_eq!(status, Some(2), "{args:?}: {text}");
        assert!(text.contains(said), "{args:?}: {text}");
    }
}
