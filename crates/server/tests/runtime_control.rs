//! Tests of overload control, shown and changed over HTTP while a shard runs.
#![allow(clippy::disallowed_methods)] // The tests wait for threads.

mod http;
mod process;
mod shard;

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use http::HOST;
use process::Process;
use serde_json::{Value, json};
use tidegate_control::HeavySource;
use tidegate_io::Stop;
use tidegate_proxy::{Secret, source_of};
use tidegate_server::admin::Admin;
use tidegate_server::audit::AuditEntry;
use tidegate_server::config::Config;

/// A configuration with a law that admits nothing after the first call. At most three rejections
/// with the same reason are recorded in a second.
const CONFIGURATION: &str = "
    [[listen]]
    transport = \"udp\"
    address = \"127.0.0.1:0\"
    [[pool]]
    name = \"app\"
    mode = \"adaptive\"
    [[pool.backend]]
    uri = \"sip:127.0.0.1:9\"
    [admin]
    rejections_per_second = 3
    hosts = [\"Tidegate.example\"]
    [overload]
    law = \"occ\"
    [overload.params]
    rho_targ = 0.8
";

struct Running {
    admin: Admin,
    sip: SocketAddr,
    stop: Stop,
    shard: Option<JoinHandle<()>>,
    told: Receiver<AuditEntry>,
}

impl Running {
    fn start(with_shard: bool) -> Self {
        Self::start_with(CONFIGURATION, with_shard)
    }

    fn start_with(configuration: &str, with_shard: bool) -> Self {
        let config = Config::parse(Path::new("f"), configuration.as_bytes());
        let config = config.unwrap_or_else(|wrong| panic!("{wrong}"));
        let (keys, stop) = (Secret::of([1; 32]), Stop::new());
        let Process { assembly, group, clock, commands, admin, told } =
            Process::start(&config, &keys);
        let sip = group.local();
        let shard = with_shard
            .then(|| shard::drive(assembly.part(0), group, clock, stop.clone(), commands));
        Self { admin, sip, stop, shard, told }
    }

    /// Sends a request with these header lines. Returns the status and the body of the response.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        http::ask(self.admin.address(), method, path, headers, body)
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, HOST, "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn put(&self, command: &str) -> (u16, String) {
        self.ask("PUT", "/overload", HOST, command)
    }

    /// Sends a command until it is applied. Returns the settings in force after it.
    fn applied(&self, command: &str) -> Value {
        // The thread of the shard may not have started yet.
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let (status, body) = self.put(command);
            if status == 200 {
                return serde_json::from_str(&body).unwrap();
            }
            assert!(status == 503 && Instant::now() < deadline, "{status} {body}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(shard) = self.shard.take() {
            let ended = shard.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

fn value_of(law: &Value, name: &str) -> Value {
    let params = law["params"].as_array().unwrap();
    let param = params.iter().find(|param| param["name"] == name).unwrap();
    assert!(param["doc"].as_str().unwrap().ends_with('.') && param["max"].is_number());
    param["value"].clone()
}

#[test]
fn laws_are_switched_by_toml_and_json_and_the_shard_reports_it() {
    let running = Running::start(true);
    let before = running.get("/overload");
    assert_eq!((&before["law"]["name"], &before["commands"]), (&"occ".into(), &0.into()));
    assert_eq!(value_of(&before["law"], "rho_targ"), 0.8);
    assert!(before["shadow"].is_null());

    let after = running.applied("[overload]\nlaw = \"pi\"\n[overload.params]\nc_t = 0.75\n");
    assert_eq!((&after["law"]["name"], &after["shards"][0]["law"]), (&"pi".into(), &"pi".into()));
    assert_eq!(value_of(&after["law"], "c_t"), 0.75);
    let shadow = running.applied(r#"{"overload": {"shadow": {"law": "codel"}}}"#);
    let shard = &shadow["shards"][0];
    assert_eq!((&shadow["law"], &shadow["shadow"]["name"]), (&after["law"], &"codel".into()));
    assert_eq!((&shard["law"], &shard["shadow"]["law"]), (&"pi".into(), &"codel".into()));
    assert_eq!(shard["commands"], 2);
    let off = running.applied("[overload.shadow]\nlaw = \"off\"");
    assert!(off["shadow"].is_null() && off["shards"][0]["shadow"].is_null());
    // The shown text is also valid in a configuration file.
    let text = off["configuration"].as_str().unwrap();
    let file = CONFIGURATION.split("[overload]").next().unwrap().to_owned() + text;
    let config = Config::parse(Path::new("f"), file.as_bytes()).unwrap();
    assert_eq!(config.overload.gate.law.entry().name, "pi");
}

/// Returns the entries of the audit log, each without the port of its requester.
fn told(running: &Running) -> Vec<String> {
    let line = |act: AuditEntry| {
        let line = act.to_string();
        let (before, after) =
            line.split_once(", by 127.0.0.1:").unwrap_or_else(|| panic!("{line}"));
        format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
    };
    running.told.try_iter().map(line).collect()
}

#[test]
fn every_operator_request_is_logged_with_its_result() {
    let running = Running::start(true);
    running.applied(r#"{"overload": {"law": "pi", "params": {"c_t": 0.75}}}"#);
    // There may be earlier entries, because the shard had not started when the first command came.
    assert_eq!(told(&running).last().unwrap(), "law pi c_t=0.75: done");
    let ask = |method, path| running.ask(method, path, HOST, "").0;
    assert_eq!(running.put("[overload.shadow]\nlaw = \"codel\"").0, 200);
    assert_eq!(running.put("overload.law = \"pie\"").0, 400);
    assert_eq!(ask("PUT", "/backends/127.0.0.1:9/drain"), 200);
    assert_eq!(ask("PUT", "/backends/127.0.0.1:9/enable"), 200);
    assert_eq!(ask("PUT", "/backends/nobody%0a/disable"), 400);
    assert_eq!(ask("POST", "/reload"), 400);
    assert_eq!(ask("DELETE", "/bans/192.0.2.1"), 404);
    // Requests that only read, or that are rejected, are not logged.
    assert_eq!(ask("GET", "/overload"), 200);
    assert_eq!(running.ask("POST", "/reload", "Host: evil.example\r\n", "").0, 403);
    assert_eq!(
        told(&running),
        [
            "law pi c_t=0.75, shadow codel: done",
            "law: failed: error: `law` cannot be `pie`",
            "drain 127.0.0.1:9: done",
            "enable 127.0.0.1:9: done",
            "disable nobody: failed: no back end has this name or address; the back ends are \
             127.0.0.1:9",
            "reload: failed: error: the file cannot be read: No such file or directory (os error \
             2)",
            "unban 192.0.2.1: failed: 192.0.2.1 is not banned",
        ]
    );
}

#[test]
fn a_back_end_with_a_name_is_drained_by_its_address_too() {
    let backend = "uri = \"sip:127.0.0.1:9\"";
    let two = format!(
        "name = \"one\"\n{backend}\n[[pool.backend]]\nname = \"two\"\nuri = \"sip:127.0.0.1:10\""
    );
    let running = Running::start_with(&CONFIGURATION.replace(backend, &two), true);
    running.applied("overload.law = \"pi\"");
    let put = |path: &str| running.ask("PUT", path, HOST, "");
    let states = || {
        let pools = running.get("/backends");
        let backends = pools[0]["backends"].as_array().unwrap();
        backends.iter().map(|b| b["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(put("/backends/127.0.0.1:9/drain").0, 200);
    assert_eq!(states(), ["draining", "up"]);
    assert_eq!(put("/backends/sip:127.0.0.1:9/enable").0, 200);
    assert_eq!(put("/backends/two/disable").0, 200);
    assert_eq!(states(), ["up", "maintenance"]);
    let (status, said) = put("/backends/127.0.0.1/drain");
    assert_eq!(status, 400);
    assert!(
        said.contains("several back ends have this address; give one of their names: one, two"),
        "{said}"
    );
    let (status, said) = put("/backends/127.0.0.1:11/drain");
    assert_eq!(status, 400);
    assert!(said.contains("one at 127.0.0.1:9, two at 127.0.0.1:10"), "{said}");
    assert_eq!(states(), ["up", "maintenance"]);
}

#[test]
fn an_adaptive_pool_reports_the_tiers_of_its_calls() {
    let running = Running::start(true);
    // After a shard has applied a command, its values are known.
    let tiers = running.applied("overload.law = \"pi\"")["shards"][0]["tiers"].clone();
    assert_eq!(tiers["share_stateful"], 1.0);
    assert!(tiers["occupancy"].as_f64().unwrap() <= 0.85);
    for tier in ["stateful", "stateless"] {
        assert_eq!(tiers[tier]["routed"], 0, "{tiers}");
        assert!(tiers[tier]["call_cost_ms"].is_null(), "{tiers}");
    }
}

#[test]
fn invalid_or_fixed_keys_are_rejected_and_nothing_changes() {
    let running = Running::start(true);
    running.applied("overload.law = \"pi\"");
    let before = running.get("/overload")["configuration"].clone();
    let (status, said) = running.put("[overload]\nlaw = \"pie\"\n");
    assert_eq!(status, 400);
    assert!(said.contains("request:2") && said.contains("did you mean"), "{said}");
    let (status, said) = running.put("[overload]\nlaw = \"none\"\nqueue = \"fifo\"\nsticky = true");
    assert_eq!(status, 409);
    assert!(said.contains("`queue`") && !said.contains("`sticky`"), "{said}");
    let (status, _) = running.put(&format!("#{}", "x".repeat(20_000)));
    assert_eq!(status, 413);
    let (status, _) = running.put("{\"overload\": 7}");
    assert_eq!(status, 400);
    assert_eq!(running.ask("POST", "/overload", HOST, "").0, 405);
    assert_eq!(running.get("/overload")["configuration"], before);
    assert_eq!(running.get("/overload")["commands"], 1);
}

#[test]
fn no_page_of_another_origin_is_served() {
    let running = Running::start(true);
    for headers in [
        "Host: evil.example\r\n",
        "Host: 127.0.0.1\r\nOrigin: http://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
    ] {
        for (method, path) in [("GET", "/overload"), ("PUT", "/overload"), ("GET", "/status")] {
            let (status, _) = running.ask(method, path, headers, "overload.law = \"none\"");
            assert_eq!(status, 403, "{method} {path} {headers}");
        }
    }
    assert_eq!(running.ask("GET", "/overload", "Host: tidegate.example:80\r\n", "").0, 200);
    assert_eq!(running.get("/overload")["law"]["name"], "occ");
}

#[test]
fn the_heavy_sources_are_shown() {
    let config = Config::parse(Path::new("f"), CONFIGURATION.as_bytes());
    let config = config.unwrap_or_else(|wrong| panic!("{wrong}"));
    let keys = Secret::of([1; 32]);
    let process = Process::start(&config, &keys);
    let shown = || {
        let (status, body) = http::ask(process.admin.address(), "GET", "/overload", HOST, "");
        assert_eq!(status, 200, "{body}");
        let page: Value = serde_json::from_str(&body).unwrap();
        (page["kernel_drops"].clone(), page["heavy_sources"].clone())
    };
    assert_eq!(shown(), ("nothing".into(), Value::Array(Vec::new())));
    let counters = &process.assembly.counters()[0].proxy;
    counters.overload.drop_share.set(500_000);
    assert_eq!(shown().0, "all");
    let source = source_of("2001:db8::7".parse().unwrap());
    counters.heavy.publish(true, || vec![HeavySource { source, rate_cps: 900.5 }]);
    let heavy = json!([{ "source": "2001:db8::/64", "rate_cps": 900.5 }]);
    assert_eq!(shown(), ("heavy".into(), heavy));
}

#[test]
fn without_a_running_shard_no_command_is_accepted() {
    let running = Running::start(false);
    let (status, said) = running.put("overload.law = \"pi\"");
    assert_eq!(status, 503, "{said}");
    assert_eq!(running.get("/overload")["law"]["name"], "occ");
}

#[test]
fn a_call_in_progress_is_shown_with_its_back_end_state_and_source() {
    let socket = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket
    };
    let (caller, callee) = (socket(), socket());
    let (from, backend) = (caller.local_addr().unwrap(), callee.local_addr().unwrap());
    let running =
        Running::start_with(&CONFIGURATION.replace("127.0.0.1:9", &backend.to_string()), true);
    let show = || running.get("/calls/in%2Dprogress%40h");
    let hold = |socket: &UdpSocket| {
        let mut bytes = [0; 4000];
        let (length, _) = socket.recv_from(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let invite = format!(
        "INVITE sip:bob@{sip} SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bK1\r\n\
         From: <sip:a@{from}>;tag=1\r\nTo: <sip:bob@{sip}>\r\nCall-ID: in-progress@h\r\n\
         CSeq: 1 INVITE\r\nContact: <sip:a@{from}>\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n",
        sip = running.sip
    );
    caller.send_to(invite.as_bytes(), running.sip).unwrap();
    let forwarded = hold(&callee);
    let page = show();
    assert_eq!((&page["complete"], page["calls"].as_array().unwrap().len()), (&true.into(), 1));
    let entry = &page["calls"][0];
    assert_eq!((&entry["state"], &entry["shard"]), (&"trying".into(), &0.into()));
    assert_eq!((&entry["pool"], &entry["counted"]), (&"app".into(), &true.into()));
    assert_eq!(entry["backend"], backend.to_string());
    assert_eq!(entry["address"], backend.to_string());
    assert_eq!(entry["source"], "127.0.0.1/32");
    assert!(entry["age_s"].as_f64().unwrap() < 30.0 && entry["left_s"].as_f64().unwrap() > 0.0);

    let headers = forwarded.split_once("\r\n").unwrap().1;
    let headers = headers.replace(">\r\nCall-ID", ">;tag=2\r\nCall-ID");
    let ok = format!("SIP/2.0 200 OK\r\n{headers}");
    callee.send_to(ok.as_bytes(), running.sip).unwrap();
    while !hold(&caller).starts_with("SIP/2.0 200") {}
    assert_eq!(show()["calls"][0]["state"], "unacknowledged");
    let other = running.get("/calls/another");
    assert_eq!((&other["complete"], &other["calls"]), (&true.into(), &Value::Array(Vec::new())));
}

#[test]
fn without_a_shard_the_page_of_a_call_says_that_it_is_not_complete() {
    let page = Running::start(false).get("/calls/a");
    assert_eq!((&page["complete"], &page["calls"]), (&false.into(), &Value::Array(Vec::new())));
}

#[test]
fn rejections_are_shown_newest_first_with_explained_reasons() {
    let running = Running::start(true);
    // This law lets no call wait behind the first one, so it rejects all other calls.
    let closed = "[overload]\nlaw = \"clearwater\"\nparams = { rate_start = 1, rate_min = 1 }";
    running.applied(closed);
    let caller = UdpSocket::bind("127.0.0.1:0").unwrap();
    caller.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let from = caller.local_addr().unwrap();
    let mut rejected = 0;
    for number in 0..40 {
        let invite = format!(
            "INVITE sip:bob@{sip} SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bK{number}\r\n\
             From: <sip:a@{from}>;tag=1\r\nTo: <sip:bob@{sip}>\r\nCall-ID: call-{number}\r\n\
             CSeq: 1 INVITE\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n",
            sip = running.sip
        );
        caller.send_to(invite.as_bytes(), running.sip).unwrap();
        let mut answer = [0; 2000];
        let (length, _) = caller.recv_from(&mut answer).unwrap();
        rejected += u64::from(answer[..length].starts_with(b"SIP/2.0 503"));
    }
    assert!(rejected > 20, "{rejected}");
    let shown = running.get("/rejections");
    let time = shown["rejections"][0]["time"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    let call_id = shown["rejections"][0]["call_id"].as_str().unwrap();
    let call = running.get(&format!("/calls/{}", call_id.replace('-', "%2D")));
    assert_eq!(
        (&call["call_id"], &call["rejections"][0]["call_id"]),
        (&call_id.into(), &call_id.into())
    );
    assert_eq!(running.get("/calls/call")["rejections"], Value::Array(Vec::new()));
    let list = shown["rejections"].as_array().unwrap();
    assert!(!list.is_empty() && list.len() < 40);
    let ages: Vec<_> = list.iter().map(|rejection| rejection["age_s"].as_f64().unwrap()).collect();
    assert!(ages.is_sorted(), "{ages:?}");
    assert_eq!((&list[0]["reason"], &list[0]["method"]), (&"law".into(), &"INVITE".into()));
    assert_eq!(list[0]["source"], from.to_string());
    assert!(list[0]["call_id"].as_str().unwrap().starts_with("call-"));
    let law = shown["reasons"].as_array().unwrap().iter().find(|r| r["name"] == "law").unwrap();
    assert!(law["rejected"].as_u64().unwrap() > 0 && law["doc"].as_str().unwrap().ends_with('.'));
    let laws = running.get("/laws");
    assert!(laws.as_array().unwrap().iter().any(|law| law["name"] == "pi"));
}
