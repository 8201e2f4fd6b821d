//! Tests of the times and kinds of calls: profiles, traces, limits, agents that retransmit nothing.

use std::fs;

use crate::stage::{Generator, Load, Peer, Sipp, Stage};

#[test]
fn sipp_answers_calls_by_a_profile() {
    let stage = Stage::new();
    let uas = Sipp::callee(&stage, "uas");
    // The rates are 50, 200 and 0 for half a second each. The last rate continues until all calls
    // are made.
    let load = ["--rate", "100", "--calls", "300", "--arrivals", "uniform"];
    let profile = ["--profile", "steps:0=1,0.5=4,1=0,1.5=2"];
    let ended = Generator::complete(&stage, uas.address(), &[&load[..], &profile].concat());
    uas.finish().assert_all_well(300);
    let report = ended.figures;
    assert_eq!(report["profile"], "steps:0=1,0.5=4,1=0,1.5=2");
    // 250 calls begin in the first second. The last 50 begin from 1.5 s on, within 0.25 s.
    let intended_cps = report["intended_cps"].as_f64().unwrap();
    assert!((intended_cps - 299.0 / 1.745).abs() < 0.1, "{intended_cps}");
}

#[test]
fn sipp_answers_calls_by_a_trace() {
    let stage = Stage::new();
    let trace = stage.path("trace");
    let moments: String = (0..100).map(|call| format!("{}\n", f64::from(call) / 200.0)).collect();
    fs::write(&trace, format!("# every 5 ms, and then a straggler\n{moments}1.25\n")).unwrap();
    let uas = Sipp::callee(&stage, "uas");
    let arrivals = format!("trace:{}", trace.display());
    let ended = Generator::complete(&stage, uas.address(), &["--arrivals", &arrivals]);
    uas.finish().assert_all_well(101);
    let report = ended.figures;
    assert_eq!(report["arrivals"], "trace of 101 calls");
    assert_eq!(report["stats"]["completed"], 101);
    assert_eq!(report["intended_cps"].as_f64().unwrap(), 100.0 / 1.25);
}

#[test]
fn sipp_receives_a_100_first() {
    let stage = Stage::new();
    let (uas, address) = Generator::answerer(&stage, &["--trying"]);
    // This scenario of SIPp fails if it gets no 100.
    let load = Load { scenario: "uac-trying", calls: 50, ..Load::default() };
    Sipp::caller(&stage, address, &load).wait().assert_all_well(50);
    let stats = &uas.stop().figures["stats"];
    assert_eq!((&stats["completed"], &stats["acknowledged_in_time"]), (&50.into(), &50.into()));
}

#[test]
fn our_closed_loop_caller_calls_sipp() {
    let stage = Stage::new();
    let uas = Sipp::callee(&stage, "uas");
    // The calls are due all at once. Ten at a time are open, and each is held for 50 ms.
    let load = ["--rate", "1000000", "--calls", "40", "--open-limit", "10", "--hold", "0.05"];
    let text = Generator::complete(&stage, uas.address(), &load).text;
    assert!(text.contains("held back       30 calls, 0 of them never begun"), "{text}");
    uas.finish().assert_all_well(40);
}

#[test]
fn lost_messages_stay_lost_without_retransmissions() {
    let stage = Stage::new();
    let (_uas, silent) = Generator::answerer(&stage, &["--silent"]);
    let once = ["--no-retransmissions", "--t1", "20"];
    let load = [&["--rate", "100", "--calls", "3"], &once[..]].concat();
    let text = Generator::call(&stage, silent, &load).text;
    assert!(text.contains("failed          3 calls (timeout: 3)"), "{text}");
    assert!(text.contains("sent again      INVITE 0, ACK 0, CANCEL 0, BYE 0"), "{text}");
}

#[test]
fn without_retransmissions_an_unacknowledged_2xx_is_sent_once() {
    let stage = Stage::new();
    let (_uas, address) = Generator::answerer(&stage, &["--no-retransmissions", "--t1", "20"]);
    let caller = Peer::new(stage.ip());
    caller.send(address, &caller.request("INVITE", &format!("sip:{address}"), 1, 1));
    // The BYE comes 64·T1 after the 200. With retransmissions, nine copies of the 200 would have
    // come before it.
    let received = [(); 3].map(|()| caller.receive());
    assert_eq!(received.each_ref().map(|message| message.status()), [180, 200, 0]);
    assert!(received[2].start().starts_with("BYE "), "{}", received[2].0);
}
