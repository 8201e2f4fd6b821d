//! Tests of calls between our caller and our callee, and of each with SIPp.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::stage::{Running, TIDEGATE, answerer, caller, complete, json, scenario, sipp};

#[test]
fn our_caller_and_our_answerer_agree() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, ours) = (folder.path().join("uas.json"), folder.path().join("uac.json"));
    let (uas, address) = answerer(&["--name", "be-1", "--json", theirs.to_str().unwrap()]);
    let calls = ["--rate", "500", "--calls", "1000", "--json", ours.to_str().unwrap()];
    let table = complete(&address, &calls);
    for row in
        ["completed       1000 calls", "failed          0 calls (none)", "set-up delay    p50"]
    {
        assert!(table.contains(row), "{table}");
    }
    uas.stop();
    let (ours, theirs) = (json(&ours), json(&theirs));
    assert_eq!(ours["stats"]["completed"], 1000);
    assert_eq!(ours["stats"]["set_up_delay"]["count"], 1000);
    assert_eq!(ours["usage"]["socket_drops"], 0);
    assert_eq!(theirs["stats"]["completed"], 1000);
    assert_eq!(theirs["stats"]["stray"], 0);
    assert_eq!(theirs["name"], "be-1");
}

#[test]
fn sipp_answers_our_caller() {
    let (uas, address) = sipp(&["-sn", "uas", "-m", "1000"]);
    let table = complete(&address, &["--rate", "500", "--calls", "1000", "--arrivals", "uniform"]);
    assert!(table.contains("unexpected 0, late 0, malformed 0, undelivered 0"), "{table}");
    uas.assert_all_well();
}

#[test]
fn sipp_calls_our_answerer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("uas.json");
    let (uas, address) = answerer(&["--json", file.to_str().unwrap()]);
    let (uac, _) = sipp(&[&address, "-sn", "uac", "-r", "500", "-m", "1000", "-d", "0"]);
    uac.assert_all_well();
    uas.stop();
    let stats = &json(&file)["stats"];
    assert_eq!((&stats["calls"], &stats["completed"]), (&1000.into(), &1000.into()));
    for nothing in ["stray", "malformed", "unexpected", "not_acknowledged", "open"] {
        assert_eq!(stats[nothing], 0, "{nothing}");
    }
}

#[test]
fn our_answerer_answers_from_the_address_that_was_asked() {
    let (uas, address) = answerer(&["--all-addresses"]);
    let port = address.strip_prefix("127.0.0.1:").unwrap();
    let caller = UdpSocket::bind("127.0.0.1:0").unwrap();
    caller.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for (number, host) in ["127.0.0.1", "127.1.2.3"].into_iter().enumerate() {
        let asked = format!("{host}:{port}");
        let at = caller.local_addr().unwrap();
        let invite = format!(
            "INVITE sip:b@{asked} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bK-{number}\r\n\
             From: <sip:a@{at}>;tag=1\r\nTo: <sip:b@{asked}>\r\nCall-ID: {number}@{at}\r\n\
             CSeq: 1 INVITE\r\nContact: <sip:a@{at}>\r\nMax-Forwards: 70\r\n\
             Content-Length: 0\r\n\r\n"
        );
        caller.send_to(invite.as_bytes(), &asked).unwrap();
        let mut answer = [0; 2048];
        // The answerer sends a 180 and a 200.
        for _ in 0..2 {
            let (length, from) = caller.recv_from(&mut answer).unwrap();
            assert_eq!(from.to_string(), asked);
            let text = String::from_utf8_lossy(&answer[..length]);
            assert!(text.contains(&format!("127.0.0.1:{port}>")), "the Contact: {text}");
        }
    }
    uas.terminate();
    uas.end();
}

#[test]
fn our_answerer_hangs_up_on_sipp() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("uas.json");
    let behaviour = ["--provisionals", "183,180", "--ring", "exp:50", "--hang-up", "1"];
    let (uas, address) =
        answerer(&[&behaviour[..], &["--hold", "0.1", "--json", file.to_str().unwrap()]].concat());
    let scenario = scenario("uac-hung-up");
    let (uac, _) = sipp(&[&address, "-sf", &scenario, "-r", "200", "-m", "200"]);
    uac.assert_all_well();
    uas.stop();
    let stats = &json(&file)["stats"];
    assert_eq!((&stats["calls"], &stats["hung_up"]), (&200.into(), &200.into()));
    for nothing in ["completed", "byes_unanswered", "unexpected", "stray", "malformed"] {
        assert_eq!(stats[nothing], 0, "{nothing}");
    }
}

#[test]
fn sipp_hangs_up_on_our_caller() {
    let scenario = scenario("uas-hangs-up");
    let (uas, address) = sipp(&["-sf", &scenario, "-d", "100", "-m", "200"]);
    let table = complete(&address, &["--rate", "200", "--calls", "200", "--hold", "30"]);
    assert!(table.contains("completed       200 calls, 200 hung up by the other side"), "{table}");
    uas.assert_all_well();
}

#[test]
fn our_caller_gives_up_on_sipp() {
    let scenario = scenario("uas-cancel");
    let (uas, address) = sipp(&["-sf", &scenario, "-m", "200"]);
    let calls = ["--rate", "200", "--calls", "200", "--patience", "0.2"];
    let done = caller(&address, &calls);
    assert_eq!(done.status.code(), Some(1), "none completes");
    let table = String::from_utf8(done.stdout).unwrap();
    assert!(table.contains("failed          200 calls (abandoned: 200)"), "{table}");
    assert!(table.contains("unexpected 0, late 0, malformed 0"), "{table}");
    uas.assert_all_well();
}

/// Both ends once drew the same random numbers from one seed. Then the callee's holding time was
/// always twice the caller's, so the callee never hung up.
#[test]
fn one_seed_gives_caller_and_callee_different_holding_times() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("uas.json");
    let theirs = ["--seed", "1", "--hang-up", "1", "--hold", "exp:0.4"];
    let (uas, address) = answerer(&[&theirs[..], &["--json", file.to_str().unwrap()]].concat());
    let ours = ["--seed", "1", "--hold", "exp:0.2", "--rate", "200", "--calls", "200"];
    complete(&address, &ours);
    uas.stop();
    // The callee hangs up first with the probability (1/0.4) / (1/0.4 + 1/0.2), which is a third.
    let hung_up = json(&file)["stats"]["hung_up"].as_u64().unwrap();
    assert!((30..=110).contains(&hung_up), "{hung_up}");
}

#[test]
fn rejected_calls_give_status_1() {
    for rejects in [["--status", "486"], ["--outcomes", "busy=1"]] {
        let (_uas, address) = answerer(&rejects);
        let done = caller(&address, &["--rate", "100", "--calls", "10"]);
        assert_eq!(done.status.code(), Some(1));
        let table = String::from_utf8(done.stdout).unwrap();
        assert!(table.contains("failed          10 calls (486: 10)"), "{table}");
    }
}

#[test]
fn an_absent_server_is_distinguished_from_a_silent_one() {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let done = caller(&closed, &["--rate", "100", "--calls", "3", "--t1", "20"]);
    assert_eq!(done.status.code(), Some(1));
    let table = String::from_utf8(done.stdout).unwrap();
    assert!(table.contains("failed          3 calls (transport: 3)"), "{table}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("uas.json");
    let (uas, silent) = answerer(&["--silent", "--json", file.to_str().unwrap()]);
    let done = caller(&silent, &["--rate", "100", "--calls", "3", "--t1", "20"]);
    let table = String::from_utf8(done.stdout).unwrap();
    assert!(table.contains("failed          3 calls (timeout: 3)"), "{table}");
    // The callee once reported its whole CPU time as the cost of a call, although it counts none.
    let text = uas.stop();
    assert!(text.contains("own cost        CPU ") && !text.contains("µs a call"), "{text}");
    let theirs = json(&file);
    assert!(theirs["stats"]["ignored"].as_u64() >= Some(3), "{theirs}");
    assert_eq!((&theirs["stats"]["calls"], &theirs["cpu_us_per_call"]), (&0.into(), &Value::Null));
}

#[test]
fn an_interrupted_caller_ends_open_calls_and_reports() {
    let (_uas, address) = answerer(&[]);
    let mut command = Command::new(TIDEGATE);
    command.args(["load", "uac", &address, "--rate", "100", "--duration", "600", "--progress"]);
    let mut uac = Running::start(&mut command);
    uac.wait_for_progress(|line| line.contains(", open ") && !line.starts_with("offered 0,"));
    uac.terminate();
    let (status, text) = uac.end();
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("failed          0 calls (none)"), "{text}");
}

/// A regression: such a run continued until a signal, because no packet and no timer showed that it
/// was done.
#[test]
fn a_run_without_calls_ends_and_fails() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (kind, none) in [("uac", "offered         0 calls"), ("register", "offered         0 reg")]
    {
        let mut command = Command::new(TIDEGATE);
        command.args(["load", kind, &nobody, "--rate", "1", "--duration", "0"]);
        let (status, text) = Running::start(&mut command).end();
        assert_eq!(status, Some(1), "{kind}: {text}");
        assert!(text.contains(none), "{kind}: {text}");
    }
}

#[test]
fn impossible_runs_are_usage_errors() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
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
        let done = Command::new(TIDEGATE).arg("load").args(&args).output().unwrap();
        let text = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains(said), "{args:?}: {text}");
    }
}
