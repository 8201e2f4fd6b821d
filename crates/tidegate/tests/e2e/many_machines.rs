//! Tests of a load from several processes: `tidegate-lab load lead` and `load follow`.

mod entrance;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::Value;

use crate::stage::{Configuration, Process, Sipp, Stage, Tidegate, eventually};

const LAB: &str = env!("CARGO_BIN_EXE_tidegate-lab");

/// A running `load follow`.
struct Follower {
    process: Process,
    address: SocketAddr,
}

impl Follower {
    fn start(stage: &Stage, name: &str, options: &[&str]) -> Self {
        let ip = stage.ip().to_string();
        let mut command = Command::new(LAB);
        command.args(["load", "follow", "--listen", &format!("{ip}:0")]);
        let mut process = stage.start(name, command.args(options));
        let address = process.wait_for("the follower waits", |process| {
            let log = process.log();
            let line = log.lines().find_map(|line| line.strip_prefix("waiting at "))?;
            line.split_once(' ')?.0.parse().ok()
        });
        Self { process, address }
    }

    /// Waits until the output contains `text`.
    fn wait_for(&mut self, text: &str) {
        self.process.wait_for(text, |process| process.log().contains(text).then_some(()));
    }
}

/// Returns the command of a leader of these followers, up to the options of the leader.
fn lead(followers: &[SocketAddr]) -> Command {
    let names: Vec<_> = followers.iter().map(ToString::to_string).collect();
    let mut command = Command::new(LAB);
    command.args(["load", "lead", "--followers", &names.join(",")]);
    command
}

fn run(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

/// Makes ten calls with a leader and this follower, to prove that the follower works.
fn assert_works(stage: &Stage, follower: &Follower) {
    let callee = Sipp::callee(stage, "uas");
    let target = callee.address().to_string();
    let calls = ["--", "uac", &target, "--rate", "100", "--calls", "10"];
    let (status, text) = run(lead(&[follower.address]).args(calls));
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("completed       10 calls"), "{text}");
    callee.finish().assert_all_well(10);
}

fn json(stage: &Stage, name: &str) -> Value {
    serde_json::from_slice(&fs::read(stage.path(name)).unwrap()).unwrap()
}

#[test]
fn two_followers_offer_one_load_and_their_results_are_merged() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas");
    let target = callee.address().to_string();
    let ip = stage.ip().to_string();
    let mut followers =
        ["first", "second"].map(|name| Follower::start(&stage, name, &["--once", "--bind", &ip]));
    let addresses = followers.each_ref().map(|follower| follower.address);
    let (status, text) = run(lead(&addresses)
        .arg("--json")
        .arg(stage.path("all.json"))
        .args(["--", "uac", &target, "--rate", "300", "--calls", "401", "--callers", "5"])
        .args(["--arrivals", "uniform", "--hold", "0.1", "--seed", "5"]));
    assert_eq!(status, Some(0), "{text}");
    for row in [
        "offered         401 calls, 300.",
        "(asked 300.0/s)",
        "completed       401 calls",
        "failed          0 calls (none)",
        "start           all followers within ",
        &format!("follower        {}: 201 calls, ", addresses[0]),
        &format!("follower        {}: 200 calls, ", addresses[1]),
    ] {
        assert!(text.contains(row), "{row} in\n{text}");
    }
    // If Call-IDs or branches were equal, SIPp would count unexpected messages.
    callee.finish().assert_all_well(401);

    let all = json(&stage, "all.json");
    assert_eq!((&all["seed"], &all["stats"]["completed"]), (&5.into(), &401.into()));
    assert_eq!(all["stats"]["set_up_delay"]["count"], 401);
    let part = |index: usize, value: &str| {
        all["followers"][index]["report"]["stats"]["set_up_delay"][value].as_u64().unwrap()
    };
    assert_eq!(part(0, "count") + part(1, "count"), 401);
    let max_us = all["stats"]["set_up_delay"]["max_us"].as_u64().unwrap();
    assert_eq!(max_us, part(0, "max_us").max(part(1, "max_us")));
    let within_us = all["started_within_us"].as_u64().unwrap();
    assert!(within_us < 100_000, "{within_us}");
    for follower in &mut followers {
        assert_eq!(follower.process.exit().code(), Some(0), "{}", follower.process.log());
    }
}

/// The request that opens a WebSocket is part of the plan: the proxy rejects other origins.
#[test]
fn followers_open_websockets_as_the_plan_says() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let origin = "https://phone.example.com";
    let ip = stage.ip();
    let more =
        format!("[[listen]]\ntransport = \"ws\"\naddress = \"{ip}:0\"\norigins = [\"{origin}\"]\n");
    let configuration =
        Configuration { more, ..Configuration::with_tcp(&stage, &[callee.address()]) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let target = tidegate.address_of("ws").to_string();
    let followers = ["first", "second"].map(|name| Follower::start(&stage, name, &["--once"]));
    let addresses = followers.each_ref().map(|follower| follower.address);
    let (status, text) = run(lead(&addresses)
        .arg("--json")
        .arg(stage.path("all.json"))
        .args(["--", "uac", &target, "--rate", "100", "--calls", "40", "--transport", "ws"])
        .args(["--connections", "each", "--ws-path", "/sip", "--origin", origin]));
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("; WebSockets 40, failed 0\n"), "{text}");
    callee.finish().assert_all_well(40);
    let all = json(&stage, "all.json");
    let used = |report: &Value| report["usage"]["streams"]["websockets"].clone();
    let parts = [0, 1].map(|index: usize| used(&all["followers"][index]["report"]));
    assert_eq!((used(&all), parts), (40.into(), [20.into(), 20.into()]));
}

#[test]
fn a_follower_that_is_killed_is_named_and_the_other_finishes() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas");
    let mut first = Follower::start(&stage, "first", &[]);
    let mut second = Follower::start(&stage, "second", &[]);
    let target = callee.address().to_string();
    let mut command = lead(&[first.address, second.address]);
    command.args(["--progress", "--json"]).arg(stage.path("all.json"));
    command.args(["--", "uac", &target, "--rate", "100", "--duration", "8"]);
    let mut leader = stage.start("leader", &mut command);
    leader.wait_for("calls", |leader| leader.log().contains("offered ").then_some(()));
    second.process.kill();
    let status = leader.exit();
    let log = leader.log();
    assert_eq!(status.code(), Some(1), "{log}");
    let lost = second.address;
    assert!(log.contains(&format!("tidegate-lab load: lost follower {lost} after ")), "{log}");
    assert!(log.contains(&format!("follower        {lost}: LOST (the ")), "{log}");
    first.wait_for("the load plan was carried out");

    let all = json(&stage, "all.json");
    let followers = all["followers"].as_array().unwrap();
    let finished = &followers[0]["report"]["stats"];
    let completed = finished["completed"].as_u64().unwrap();
    assert!(completed > 200, "50 calls/s for 8 s: {completed}");
    assert_eq!(
        (&all["stats"]["completed"], &finished["offered"]),
        (&completed.into(), &completed.into())
    );
    assert!(followers[1]["lost"].is_string() && followers[1]["report"].is_null(), "{all}");
    callee.kill();
    assert_works(&stage, &first);
}

#[test]
fn a_leader_reports_why_a_follower_does_not_follow() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas");
    let target = callee.address().to_string();
    let plan = ["--", "uac", &target, "--rate", "100", "--calls", "10"];
    let assert_rejected = |follower: SocketAddr, plan: &[&str], why: &str| {
        let (status, text) = run(lead(&[follower]).args(plan));
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(&format!("follower {follower}: ")) && text.contains(why), "{text}");
    };

    let stranger = Follower::start(&stage, "from", &["--from", "192.0.2.1,192.0.2.2"]);
    let why = "the follower accepts no load plans from 127.0.0.1: start it with --from 127.0.0.1";
    assert_rejected(stranger.address, &plan, why);

    let taken = TcpListener::bind((stage.ip(), 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let old = std::thread::spawn(move || {
        let (mut stream, _) = taken.accept().unwrap();
        stream.write_all(b"{\"hello\":{\"program\":\"0.0.0\",\"format\":1}}\n").unwrap();
        taken
    });
    assert_rejected(address, &plan, "the follower has version 0.0.0 (messages 1)");
    drop(old.join().unwrap());
    assert_rejected(address, &plan, "start `tidegate-lab load follow` at");

    // No machine has this address (RFC 5737).
    let elsewhere = Follower::start(&stage, "elsewhere", &["--bind", "192.0.2.1"]);
    assert_rejected(elsewhere.address, &plan, "cannot listen on 192.0.2.1");
    callee.kill();
    let waits = Follower::start(&stage, "waits", &["--from", "127.0.0.1"]);
    assert_works(&stage, &waits);
}

#[test]
fn impossible_plans_are_usage_errors() {
    let follower = ([127, 0, 0, 1], 9).into();
    for (words, said) in [
        ("uac 127.0.0.1 --rate 10 --calls 1", "1 calls cannot be divided"),
        ("uac 127.0.0.1 --rate 0 --calls 5", "above zero"),
        ("uac 127.0.0.1 --rate 10", "--calls"),
        ("uac 127.0.0.1 --arrivals trace:/none", "a trace cannot be divided"),
        ("uac 127.0.0.1 --rate 1 --calls 5 --json x", "--json is an option of `load lead`"),
        ("uac 127.0.0.1 --rate 1 --calls 5 --transport ws --ws-path x", "`x` is not a path"),
        ("uas --bind 127.0.0.1", "unrecognized subcommand"),
    ] {
        let other = ([127, 0, 0, 2], 9).into();
        let (status, text) = run(lead(&[follower, other]).arg("--").args(words.split(' ')));
        assert_eq!(status, Some(2), "{words}: {text}");
        assert!(text.contains(said), "{words}: {text}");
    }
    let plan = ["--", "uac", "127.0.0.1", "--rate", "1", "--calls", "100"];
    let (status, text) = run(lead(&[follower, follower]).args(plan));
    assert_eq!(status, Some(2));
    assert!(text.contains("follower 127.0.0.1:9 is named twice"), "{text}");
    let many: Vec<SocketAddr> = (1..=65).map(|port| ([127, 0, 0, 1], port).into()).collect();
    let (status, text) = run(lead(&many).args(plan));
    assert_eq!(status, Some(2));
    assert!(text.contains("65 followers: there may be at most 64"), "{text}");
}

#[test]
fn followers_stop_with_their_leader() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas");
    let target = callee.address().to_string();
    let mut follower = Follower::start(&stage, "follower", &[]);
    let endless = ["--", "uac", &target, "--rate", "50", "--duration", "600"];
    let lead_endless = |name: &str| {
        let mut leader =
            stage.start(name, lead(&[follower.address]).arg("--progress").args(endless));
        leader.wait_for("calls", |leader| leader.log().contains("offered ").then_some(()));
        leader
    };

    let mut leader = lead_endless("interrupted");
    let (status, text) = run(lead(&[follower.address]).args(endless));
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("the follower works for another leader"), "{text}");
    leader.signal(Signal::INT);
    assert_eq!(leader.exit().code(), Some(1), "{}", leader.log());
    let log = leader.log();
    assert!(log.contains("failed          0 calls (none)"), "{log}");
    assert!(log.contains("; stopped; "), "{log}");

    lead_endless("killed").kill();
    eventually("the follower gives up the plan of the killed leader", || {
        let log = follower.process.log();
        let ends = ["the load plan was stopped", "the load plan failed"];
        let ends: usize = ends.iter().map(|end| log.matches(end).count()).sum();
        (ends == 2).then_some(())
    });
    assert_works(&stage, &follower);
    follower.process.signal(Signal::TERM);
    assert_eq!(follower.process.exit().code(), Some(0));
    callee.kill();
}
