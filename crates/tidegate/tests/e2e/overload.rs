//! Tests of overload control on the wire.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use serde_json::Value;

use crate::stage::{
    Configuration, Load, Message, Peer, Process, Sipp, Stage, Tidegate, eventually, run_to_end,
};

/// Configuration of a server that takes days to release a new call from its queue, in which one
/// call may wait.
const BUSY: &str = "
    [overload]
    law = \"pi\"
    [overload.params]
    t_q = 1
    k_pq = 0.000001
    k_iq = 0.000001
    queue_max = 1
";

struct Busy {
    _stage: Stage,
    tidegate: Tidegate,
    caller: Peer,
    backend: Peer,
    /// Number of the call that waits in the queue. The next call is rejected.
    waits: u32,
}

impl Busy {
    fn set_up(more: &str) -> Self {
        let stage = Stage::new();
        let (caller, backend) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
        let mut configuration = Configuration::new(&stage, &[backend.address()]);
        configuration.more =
            BUSY.replace("[overload.params]", &format!("{more}\n[overload.params]"));
        let tidegate = Tidegate::start(&stage, &configuration);
        let mut busy = Self { _stage: stage, tidegate, caller, backend, waits: 1 };
        // Before its first evaluation, the law releases every call at once.
        busy.call(busy.waits);
        while busy.is_released() {
            busy.waits += 1;
            busy.call(busy.waits);
        }
        busy
    }

    /// Returns whether the last call was forwarded to the back end, and waits until this is
    /// certain. The law inspects the queue every 20 ms, and the metrics show a waiting call only
    /// after that.
    fn is_released(&self) -> bool {
        eventually("a call is released or waits", || {
            if self.backend.next_now().is_some() {
                return Some(true);
            }
            let waits = self.tidegate.metrics().sum("messages_queued", &[]) == 1;
            waits.then_some(false)
        })
    }

    fn invite(&self, number: u32) -> Message {
        let here = self.tidegate.address();
        self.caller.request("INVITE", &format!("sip:bob@{here}"), number, 1)
    }

    fn call(&self, number: u32) {
        self.caller.send(self.tidegate.address(), &self.invite(number));
    }

    fn received(&self, class: &str) -> u64 {
        self.tidegate.metrics().sum("messages_received_total", &[("class", class)])
    }
}

#[test]
fn a_call_that_is_not_admitted_gets_a_503_at_once_and_again_when_it_is_repeated() {
    let busy = Busy::set_up("");
    let next = busy.waits + 1;
    busy.call(next);
    let rejected = busy.caller.receive();
    assert_eq!(rejected.status(), 503);
    // RFC 3261 §21.5.4: a client that receives a Retry-After sends nothing for that long.
    assert_eq!(rejected.fields("Retry-After").count(), 0);
    // RFC 3261 §8.2.7: "the same tag for the same request consistently".
    busy.call(next);
    assert_eq!(busy.caller.receive().field("To"), rejected.field("To"));
    let metrics = busy.tidegate.metrics();
    let rejections = |reason| metrics.sum("work_rejected_total", &[("reason", reason)]);
    assert_eq!(rejections("queue_full"), 1);
    // The caller repeats its INVITE if the 503 takes longer than T1.
    assert!(rejections("again") >= 1);
    assert!(metrics.sum("replies_total", &[("status", "503")]) >= 2);
    assert!(busy.backend.next_now().is_none(), "nothing was forwarded");
}

#[test]
fn a_503_is_padded_to_the_configured_length() {
    const LENGTH: usize = 900;
    let busy = Busy::set_up(&format!("pad = {LENGTH}"));
    for user in ["bob", "robert-with-a-longer-name"] {
        let to = format!("<sip:{user}@example.com>");
        let next = busy.invite(busy.waits + 1).with("To", &to);
        let rejected = busy.caller.ask(busy.tidegate.address(), &next);
        assert_eq!(rejected.status(), 503);
        assert_eq!(rejected.0.len(), LENGTH);
        assert!(rejected.field("Server").starts_with("Tidegate/"));
    }
}

#[test]
fn a_retransmission_of_a_waiting_invite_is_absorbed() {
    let busy = Busy::set_up("");
    busy.call(busy.waits);
    busy.tidegate.wait_for("it is absorbed", |metrics| {
        metrics.sum("messages_dropped_total", &[("reason", "absorbed")]) == 1
    });
    assert!(busy.caller.next_now().is_none());
    busy.tidegate.wait_for("and counted once as offered", |metrics| {
        let of_calls = |name| metrics.sum(name, &[("bucket", "session")]);
        of_calls("work_offered_total") == u64::from(busy.waits)
            && of_calls("work_repeated_total") == 1
    });
}

#[test]
fn dropped_calls_get_no_response() {
    let busy = Busy::set_up("disposal = \"drop\"");
    busy.call(busy.waits + 1);
    let metrics = busy.tidegate.wait_for("it is rejected", |metrics| {
        metrics.sum("work_rejected_total", &[("reason", "queue_full")]) == 1
    });
    assert_eq!(metrics.sum("replies_total", &[("status", "503")]), 0);
    assert!(busy.caller.next_now().is_none());
}

/// A forged To-tag, emergency URN or priority header field does not pass the gate.
#[test]
fn false_claims_of_strangers_do_not_pass_the_gate() {
    let busy = Busy::set_up("");
    let here = busy.tidegate.address();
    let calls = busy.received("invite");
    let forged = [
        busy.invite(1_000_100).with("To", "<sip:bob@example.com>;tag=forged"),
        busy.caller.request("INVITE", "urn:service:sos", 1_000_101, 1),
        busy.invite(1_000_102).and("Resource-Priority", "esnet.0, dsn.flash-override"),
        busy.invite(1_000_103).and("Priority", "emergency"),
    ];
    for invite in &forged {
        assert_eq!(busy.caller.ask(here, invite).status(), 503, "{}", invite.start());
    }
    assert_eq!(busy.received("in_dialog"), 0);
    assert!(busy.received("invite") >= calls + 4);
}

/// A law must reject no call while the load is below the capacity.
#[test]
fn below_its_capacity_pi_rejects_nothing() {
    let stage = Stage::new();
    let (caller, backend) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
    let mut configuration = Configuration::new(&stage, &[backend.address()]);
    // The processor is emulated, because the operating system may take the real one away for a
    // while.
    configuration.more = "[overload]\nlaw = \"pi\"\n[emulate]\nserve_us = 1\n".to_owned();
    let tidegate = Tidegate::start(&stage, &configuration);
    let here = tidegate.address();
    for number in 1..=20 {
        caller.send(here, &caller.request("INVITE", &format!("sip:bob@{here}"), number, 1));
        let invite = backend.receive();
        backend.send(here, &backend.response(&invite, "200 OK"));
        assert_eq!(caller.receive().status(), 200);
    }
}

/// At four times the capacity, each call is either set up or rejected at once, with transactions.
/// The counts of SIPp, Tidegate and the callee agree.
#[test]
fn a_flood_of_sipp_calls_is_admitted_or_rejected_and_counted() {
    const CALLS: u32 = 300;
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas");
    let mut configuration = Configuration::new(&stage, &[callee.address()]);
    // The six messages of a call take 20 ms of processor time.
    configuration.more = "[overload]\nlaw = \"pi\"\n[emulate]\nserve_us = 3_300\n".to_owned();
    let tidegate = Tidegate::start(&stage, &configuration);
    let load = Load { scenario: "uac-overload", calls: CALLS, rate_cps: 200, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(CALLS);
    let metrics = tidegate.metrics();
    let sessions = |name| metrics.sum(name, &[("bucket", "session")]);
    let (offered, admitted) = (sessions("work_offered_total"), sessions("work_admitted_total"));
    // The kernel may have dropped earlier copies of some calls. These calls count as `late`.
    let rejected: u64 = ["law", "late"]
        .map(|reason| metrics.sum("work_rejected_total", &[("reason", reason)]))
        .iter()
        .sum();
    assert_eq!((offered, admitted + rejected), (CALLS.into(), CALLS.into()));
    assert!(admitted > 0 && rejected > 0, "{admitted} admitted, {rejected} rejected");
    assert_eq!(u64::from(callee.finish().created), admitted);
    metrics.assert_nothing_held();
}

/// Serving the first message takes an hour, so the second one waits.
#[test]
fn overflow_of_an_emulated_receive_buffer_is_counted() {
    let stage = Stage::new();
    let (caller, backend) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
    let mut configuration = Configuration::new(&stage, &[backend.address()]);
    configuration.more = "[emulate]\noffer_us = 3_600_000_000\nsocket_max = 1\n".to_owned();
    let tidegate = Tidegate::start(&stage, &configuration);
    let here = tidegate.address();
    for number in 1..=5 {
        caller.send(here, &caller.request("OPTIONS", &format!("sip:{here}"), number, 1));
    }
    tidegate.wait_for("the others are dropped", |metrics| {
        metrics.sum("emulated_overflow_total", &[]) == 3
    });
    let (_, status) = tidegate.get("/status").expect("it answers");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["shards"][0]["emulated_drops"], 3);
}

#[test]
fn the_demonstration_shows_both_servers_and_leaves_nothing_behind() {
    let stage = Stage::new();
    let arguments = ["--seconds", "12", "--picture", "demo.svg", "--json", "demo.json"];
    let (mut demo, servers) = start_demonstration(&stage, &arguments);
    // The status is 1 if this machine is too busy. The figures then mean nothing.
    assert!(matches!(demo.exit().code(), Some(0 | 1)), "{}", demo.log());
    let log = demo.log();
    assert_eq!(log.matches(" x unprotected").count(), 4, "{log}");
    assert_eq!(log.matches(" x protected").count(), 4, "{log}");
    assert!(fs::read_to_string(stage.path("demo.svg")).unwrap().starts_with("<svg"));
    let json: Value = serde_json::from_slice(&fs::read(stage.path("demo.json")).unwrap()).unwrap();
    assert_eq!(json["protected"].as_array().unwrap().len(), 4);
    assert!(servers.into_iter().all(has_ended));
    let left: Vec<_> = fs::read_dir(stage.path(TEMPORARY)).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_demonstration_that_is_ended_early_ends_its_servers() {
    let mut demo = ends_its_servers(Signal::TERM);
    assert_eq!(demo.exit().code(), Some(1));
}

#[test]
fn a_demonstration_that_is_killed_leaves_no_server_behind() {
    ends_its_servers(Signal::KILL);
}

/// Runs a demonstration, ends it with `signal`, and checks that its servers end too. Returns the
/// process of the demonstration.
fn ends_its_servers(signal: Signal) -> Process {
    let stage = Stage::new();
    let (mut demo, servers) = start_demonstration(&stage, &[]);
    demo.wait_for("it has begun", |demo| demo.log().contains("0.5 x").then_some(()));
    demo.signal(signal);
    demo.exit();
    for server in servers {
        eventually("a server has ended", || has_ended(server).then_some(()));
    }
    demo
}

/// Folder of the temporary files of a demonstration. A killed process leaves them behind.
const TEMPORARY: &str = "temporary";

/// Starts a demonstration with further arguments. Returns its process, and the process ids of its
/// two servers.
fn start_demonstration(stage: &Stage, arguments: &[&str]) -> (Process, Vec<u32>) {
    let temporary = stage.path(TEMPORARY);
    fs::create_dir(&temporary).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["demo", "--plain"]).args(arguments).env("TMPDIR", temporary);
    let mut demo = stage.start("demo", &mut command);
    let servers = demo.wait_for("its servers run", |demo| {
        Some(children(demo.id())).filter(|servers| servers.len() == 2)
    });
    (demo, servers)
}

/// Returns whether a process has ended, or is a zombie.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
}

/// Returns the child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let tasks = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = tasks.unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Rejecting takes so much of the emulated processor that INVITEs are dropped unread. `tidegate
/// ctl` shows these drops, and the counts of all outcomes add up to the arrivals.
#[test]
fn drops_before_reading_are_shown_with_what_was_admitted_and_rejected() {
    const CALLS: u32 = 400;
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas");
    let mut configuration = Configuration::new(&stage, &[callee.address()]);
    configuration.more = "[emulate]\nserve_us = 3_000\nreject_us = 2_000\n".to_owned();
    let mut tidegate = Tidegate::start(&stage, &configuration);
    let load = Load { scenario: "uac-overload", calls: CALLS, rate_cps: 250, ..Load::default() };
    // SIPp gives up a call if all copies of its INVITE are dropped.
    let made = Sipp::caller(&stage, tidegate.address(), &load).wait();
    assert_eq!((made.created, made.unexpected), (CALLS, 0), "{made}");

    let ctl = |arguments: &[&str]| tidegate.ctl(&stage, arguments);
    let json = |arguments: &[&str]| -> Value {
        let (status, said) = ctl(&[&["--json"], arguments].concat());
        assert_eq!(status, Some(0), "{said}");
        serde_json::from_str(&said).unwrap()
    };
    let calls = json(&["status"])["shards"][0]["new_calls"].take();
    let count = |name: &str| calls[name].as_u64().unwrap();
    let dropped = count("dropped_in_kernel");
    assert!(dropped > 0, "{calls}");
    assert_eq!(tidegate.metrics().sum("emulated_filtered_total", &[]), dropped);
    assert_eq!(count("arrived"), count("offered") + count("repeated") + dropped, "{calls}");
    let answered = u64::from(made.successful);
    assert_eq!((count("offered"), count("undecided")), (answered, 0), "{calls}");
    assert_eq!(count("admitted") + count("rejected"), answered, "{calls}");
    let reasons = json(&["rejections"])["reasons"].take();
    let kernel = reasons.as_array().unwrap().iter().find(|reason| reason["name"] == "kernel");
    assert_eq!(kernel.unwrap()["rejected"], dropped, "{reasons}");

    for command in ["status", "overload", "rejections"] {
        let (status, said) = ctl(&[command]);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("kernel"), "{command}: {said}");
    }
    let admin = tidegate.admin().to_string();
    let (_, said) = run_to_end(&stage, &["top", "--admin", &admin, "--plain", "--count", "1"]);
    assert!(said.contains(" kernel drops ") && said.contains(" rejected "), "{said}");
    tidegate.process().wait_for("the log tells of it", |process| {
        process.log().contains("INVITEs and REGISTERs are dropped").then_some(())
    });
    callee.finish();
}
