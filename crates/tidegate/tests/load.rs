//! `tidegate load` on real sockets: against itself and against SIPp (Debian: sip-tester).
#![allow(clippy::disallowed_methods)] // Real processes take real time.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// What a run of 1,000 calls at 500 calls/s takes at the most, with SIPp's 4 s of linger.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that does not outlive its test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(child.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Asks it to stop.
    fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits for its end: whether it was a success, and what it printed.
    fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status.code(), text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An answerer of ours and its address.
fn answerer(args: &[&str]) -> (Running, String) {
    let mut command = Command::new(TIDEGATE);
    command.args(["load", "uas", "--bind", "127.0.0.1"]).args(args);
    let mut running = Running::start(&mut command);
    let mut line = String::new();
    let mut out = BufReader::new(running.0.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    running.0.stdout = Some(out.into_inner());
    let address = line.trim().strip_prefix("answering at ").unwrap_or_else(|| panic!("{line}"));
    (running, address.to_owned())
}

fn caller(target: &str, args: &[&str]) -> Output {
    Command::new(TIDEGATE).args(["load", "uac", target]).args(args).output().unwrap()
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// SIPp at a free port of its own.
fn sipp(args: &[&str]) -> (Running, String) {
    // The port is free again when SIPp binds it: a small gap, but SIPp cannot be asked
    // which port it took.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut command = Command::new("sipp");
    command.args(args).args(["-i", "127.0.0.1", "-p", &port, "-nostdin", "-buff_size", "4000000"]);
    let running = Running::start(&mut command);
    let bound = format!(":{:04X} ", port.parse::<u16>().unwrap());
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string("/proc/net/udp").unwrap().contains(&bound) {
        assert!(Instant::now() < deadline, "SIPp does not bind its port");
        std::thread::sleep(Duration::from_millis(10));
    }
    (running, format!("127.0.0.1:{port}"))
}

#[test]
fn our_caller_and_our_answerer_agree() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, ours) = (folder.path().join("uas.json"), folder.path().join("uac.json"));
    let (uas, address) = answerer(&["--name", "be-1", "--json", theirs.to_str().unwrap()]);
    let calls = ["--rate", "500", "--calls", "1000", "--json", ours.to_str().unwrap()];
    let done = caller(&address, &calls);
    let table = String::from_utf8(done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(0), "{table}");
    for row in
        ["completed       1000 calls", "failed          0 calls (none)", "set-up delay    p50"]
    {
        assert!(table.contains(row), "{table}");
    }
    uas.terminate();
    assert_eq!(uas.end().0, Some(0));
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
    let done = caller(&address, &["--rate", "500", "--calls", "1000", "--arrivals", "uniform"]);
    let table = String::from_utf8(done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(0), "{table}");
    assert!(table.contains("unexpected 0, late 0, malformed 0, undelivered 0"), "{table}");
    let (status, text) = uas.end();
    assert_eq!(status, Some(0), "SIPp counts a failed call:\n{text}");
}

#[test]
fn sipp_calls_our_answerer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("uas.json");
    let (uas, address) = answerer(&["--json", file.to_str().unwrap()]);
    let (uac, _) = sipp(&[&address, "-sn", "uac", "-r", "500", "-m", "1000", "-d", "0"]);
    let (status, text) = uac.end();
    assert_eq!(status, Some(0), "SIPp counts a failed call:\n{text}");
    uas.terminate();
    assert_eq!(uas.end().0, Some(0));
    let stats = &json(&file)["stats"];
    assert_eq!((&stats["calls"], &stats["completed"]), (&1000.into(), &1000.into()));
    for nothing in ["stray", "malformed", "unexpected", "not_acknowledged", "open"] {
        assert_eq!(stats[nothing], 0, "{nothing}");
    }
}

/// A SIPp scenario of ours.
fn scenario(name: &str) -> String {
    format!("{}/../../tests/sipp/{name}.xml", env!("CARGO_MANIFEST_DIR"))
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
    let (status, text) = uac.end();
    assert_eq!(status, Some(0), "SIPp counts a failed call:\n{text}");
    uas.terminate();
    assert_eq!(uas.end().0, Some(0));
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
    let done = caller(&address, &["--rate", "200", "--calls", "200", "--hold", "30"]);
    let table = String::from_utf8(done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(0), "{table}");
    assert!(table.contains("completed       200 calls, 200 hung up by the other side"), "{table}");
    let (status, text) = uas.end();
    assert_eq!(status, Some(0), "SIPp counts a failed call:\n{text}");
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
    let (status, text) = uas.end();
    assert_eq!(status, Some(0), "SIPp counts a failed call:\n{text}");
}

#[test]
fn calls_of_every_outcome_are_accounted_for_at_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, ours) = (folder.path().join("uas.json"), folder.path().join("uac.json"));
    let mix = ["--outcomes", "answer=70,busy=15,ring=10,503=5", "--ring", "exp:100"];
    let (uas, address) =
        answerer(&[&mix[..], &["--hang-up", "0.5", "--json", theirs.to_str().unwrap()]].concat());
    let behaviour = ["--hold", "exp:0.1", "--patience", "exp:0.5", "--json"];
    let load = ["--rate", "500", "--calls", "1000"];
    let done = caller(&address, &[&load, &behaviour[..], &[ours.to_str().unwrap()]].concat());
    assert_eq!(done.status.code(), Some(1), "some fail");
    uas.terminate();
    assert_eq!(uas.end().0, Some(0));
    let (ours, theirs) = (&json(&ours)["stats"], &json(&theirs)["stats"]);
    let count = |stats: &Value, names: &[&str]| -> u64 {
        names.iter().map(|name| stats[name].as_u64().unwrap()).sum()
    };
    let failed = &ours["failed"];
    let refused = count(&failed["status"], &["486", "503"]);
    assert_eq!(count(ours, &["completed"]) + refused + count(failed, &["abandoned"]), 1000);
    assert!(count(ours, &["hung_up"]) > 100 && refused > 100, "{ours}");
    assert_eq!(count(theirs, &["completed", "hung_up", "refused", "cancelled"]), 1000, "{theirs}");
}

#[test]
fn refused_calls_are_a_condition_that_did_not_hold() {
    let (_uas, address) = answerer(&["--status", "486"]);
    let done = caller(&address, &["--rate", "100", "--calls", "10"]);
    assert_eq!(done.status.code(), Some(1));
    let table = String::from_utf8(done.stdout).unwrap();
    assert!(table.contains("failed          10 calls (486: 10)"), "{table}");
}

#[test]
fn a_server_that_is_not_there_is_told_from_a_silent_one() {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let done = caller(&closed, &["--rate", "100", "--calls", "3", "--t1", "20"]);
    assert_eq!(done.status.code(), Some(1));
    let table = String::from_utf8(done.stdout).unwrap();
    assert!(table.contains("failed          3 calls (transport: 3)"), "{table}");

    let (_uas, silent) = answerer(&["--silent"]);
    let done = caller(&silent, &["--rate", "100", "--calls", "3", "--t1", "20"]);
    let table = String::from_utf8(done.stdout).unwrap();
    assert!(table.contains("failed          3 calls (timeout: 3)"), "{table}");
}

#[test]
fn an_interrupted_caller_ends_what_is_open_and_reports() {
    let (_uas, address) = answerer(&[]);
    let mut command = Command::new(TIDEGATE);
    command.args(["load", "uac", &address, "--rate", "100", "--duration", "600", "--progress"]);
    let uac = Running::start(&mut command);
    std::thread::sleep(Duration::from_millis(1500));
    uac.terminate();
    let (status, text) = uac.end();
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("failed          0 calls (none)"), "{text}");
    assert!(text.contains("\noffered ") && text.contains(", open "), "progress: {text}");
}

#[test]
fn what_cannot_be_tried_is_a_usage_error() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (args, said) in [
        (vec!["uac", "127.0.0.1:9", "--rate", "0", "--calls", "1"], "above zero"),
        (vec!["uac", "127.0.0.1:9", "--rate", "1"], "--calls"),
        (vec!["uac", "no host", "--rate", "1", "--calls", "1"], "is wanted"),
        (vec!["uac", "127.0.0.1:9", "--rate", "1", "--calls", "1", "--slack", "2"], "slack"),
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
