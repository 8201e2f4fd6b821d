//! Tests of the times and kinds of calls: profiles, traces, limits, agents that retransmit nothing.

use std::fs;
use std::net::UdpSocket;

use crate::stage::{PATIENCE, answerer, caller, complete, json, scenario, sipp};

#[test]
fn sipp_answers_calls_by_a_profile() {
    let (uas, address) = sipp(&["-sn", "uas", "-m", "300"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("uac.json");
    // The rates are 50, 200 and 0 for half a second each. The last rate continues until all calls
    // are made.
    let load = ["--rate", "100", "--calls", "300", "--arrivals", "uniform"];
    let profile = ["--profile", "steps:0=1,0.5=4,1=0,1.5=2", "--json", file.to_str().unwrap()];
    complete(&address, &[&load[..], &profile].concat());
    uas.assert_all_well();
    let report = json(&file);
    assert_eq!(report["profile"], "steps:0=1,0.5=4,1=0,1.5=2");
    // 250 calls begin in the first second. The last 50 begin from 1.5 s on, within 0.25 s.
    let intended_cps = report["intended_cps"].as_f64().unwrap();
    assert!((intended_cps - 299.0 / 1.745).abs() < 0.1, "{intended_cps}");
}

#[test]
fn sipp_answers_calls_by_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, file) = (folder.path().join("trace"), folder.path().join("uac.json"));
    let moments: String = (0..100).map(|call| format!("{}\n", f64::from(call) / 200.0)).collect();
    fs::write(&trace, format!("# every 5 ms, and then a straggler\n{moments}1.25\n")).unwrap();
    let (uas, address) = sipp(&["-sn", "uas", "-m", "101"]);
    let arrivals = format!("trace:{}", trace.display());
    complete(&address, &["--arrivals", &arrivals, "--json", file.to_str().unwrap()]);
    uas.assert_all_well();
    let report = json(&file);
    assert_eq!(report["arrivals"], "trace of 101 calls");
    assert_eq!(report["stats"]["completed"], 101);
    assert_eq!(report["intended_cps"].as_f64().unwrap(), 100.0 / 1.25);
}

#[test]
fn sipp_receives_a_100_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("uas.json");
    let (uas, address) = answerer(&["--trying", "--json", file.to_str().unwrap()]);
    // This scenario of SIPp fails if it gets no 100.
    let scenario = scenario("uac-trying");
    let (uac, _) = sipp(&[&address, "-sf", &scenario, "-r", "100", "-m", "50"]);
    uac.assert_all_well();
    uas.stop();
    let stats = &json(&file)["stats"];
    assert_eq!((&stats["completed"], &stats["acknowledged_in_time"]), (&50.into(), &50.into()));
}

#[test]
fn our_closed_loop_caller_calls_sipp() {
    let (uas, address) = sipp(&["-sn", "uas", "-m", "40"]);
    // The calls are due all at once. Ten at a time are open, and each is held for 50 ms.
    let load = ["--rate", "1000000", "--calls", "40", "--open-limit", "10", "--hold", "0.05"];
    let table = complete(&address, &load);
    assert!(table.contains("held back       30 calls, 0 of them to the end"), "{table}");
    uas.assert_all_well();
}

#[test]
fn lost_messages_stay_lost_without_retransmissions() {
    let (_uas, silent) = answerer(&["--silent"]);
    let once = ["--no-retransmissions", "--t1", "20"];
    let done = caller(&silent, &[&["--rate", "100", "--calls", "3"], &once[..]].concat());
    let table = String::from_utf8(done.stdout).unwrap();
    assert!(table.contains("failed          3 calls (timeout: 3)"), "{table}");
    assert!(table.contains("sent again      INVITE 0, ACK 0, CANCEL 0, BYE 0"), "{table}");
}

#[test]
fn without_retransmissions_an_unacknowledged_2xx_is_sent_once() {
    let (_uas, address) = answerer(&["--no-retransmissions", "--t1", "20"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let local = socket.local_addr().unwrap();
    let invite = format!(
        "INVITE sip:{address} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK1\r\n\
         From: <sip:{local}>;tag=a\r\nTo: <sip:{address}>\r\nCall-ID: 1@{local}\r\n\
         CSeq: 1 INVITE\r\nContact: <sip:{local}>\r\nMax-Forwards: 70\r\n\
         Content-Length: 0\r\n\r\n"
    );
    socket.send_to(invite.as_bytes(), address).unwrap();
    let mut heard = Vec::new();
    while heard.last().is_none_or(|start| start != "BYE") {
        let mut bytes = [0; 4096];
        let len = socket.recv(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        let start = text.strip_prefix("SIP/2.0 ").unwrap_or(&text);
        heard.push(start.split(' ').next().unwrap().to_owned());
    }
    // The BYE comes 64·T1 after the 200. With retransmissions, nine copies of the 200 would have
    // come before it.
    assert_eq!(heard, ["180", "200", "BYE"]);
}
