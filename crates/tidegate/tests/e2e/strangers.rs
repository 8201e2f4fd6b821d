//! Tests of floods of unverified messages from a stranger, beside calls.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::stage::{Configuration, Load, Metrics, Sipp, Stage, Tidegate};

/// An address other than that of the callers and of the back end.
const STRANGER: &str = "127.0.0.9";

/// A thread that sends messages of calls that do not exist, until `end` is set. The thread returns
/// the number of messages.
struct Flood {
    end: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Flood {
    fn begin(kind: &'static str, to: std::net::SocketAddr, pause: Duration) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&end);
        let socket = UdpSocket::bind((STRANGER, 0)).unwrap();
        let thread = thread::spawn(move || {
            let mut sent = 0;
            while !told.load(Relaxed) {
                let start = match kind {
                    "SIP/2.0" => format!("SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP {to};branch=z9hG4bKx"),
                    method => format!("{method} sip:a@{to} SIP/2.0"),
                };
                let cseq = if kind == "SIP/2.0" { "INVITE" } else { kind };
                let text = format!(
                    "{start}\r\nVia: SIP/2.0/UDP {STRANGER};branch=z9hG4bK{sent}\r\n\
                     From: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\nCall-ID: nowhere-{sent}\r\n\
                     CSeq: 1 {cseq}\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
                );
                socket.send_to(text.as_bytes(), to).unwrap();
                sent += 1;
                thread::sleep(pause);
            }
            sent
        });
        Self { end, thread }
    }

    fn end(self) -> u32 {
        self.end.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

/// Runs a server slowed down to 50 calls/s, with SIPp at 20 calls/s and a flood of 25 times as many
/// messages as there are calls.
fn calls_beside(kind: &'static str, sources: &str) -> (Metrics, u32) {
    const CALLS: u32 = 200;
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas");
    let mut configuration = Configuration::new(&stage, &[callee.address()]);
    configuration.more = format!(
        "[overload]\nlaw = \"pi\"\n[overload.sources]\nfair = true\n{sources}\n\
         [emulate]\nserve_us = 3_300\n"
    );
    let tidegate = Tidegate::start(&stage, &configuration);
    let flood = Flood::begin(kind, tidegate.address(), Duration::from_millis(2));
    let load = Load { scenario: "uac-overload", calls: CALLS, rate_cps: 20, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(CALLS);
    let sent = flood.end();
    let metrics = tidegate.metrics();
    let sessions = |name| metrics.sum(name, &[("bucket", "session")]);
    assert_eq!(sessions("work_offered_total"), u64::from(CALLS));
    // The number of calls that the law rejects depends on the other load of this machine, so this
    // bound is loose. The checker `goodput` of the simulator and `make show-strangers` test more.
    let admitted = sessions("work_admitted_total");
    assert!(admitted > u64::from(CALLS / 2), "{admitted} of {CALLS}");
    assert_eq!(metrics.sum("messages_dropped_total", &[("reason", "queue_full")]), 0);
    callee.finish();
    (metrics, sent)
}

#[test]
fn a_flood_of_stray_byes_does_not_affect_callers() {
    let (metrics, sent) = calls_beside("BYE", "");
    let strays = metrics.sum("messages_unverified_total", &[]);
    assert!(strays > u64::from(sent) / 2, "{strays} of {sent}");
}

#[test]
fn a_flood_of_stray_responses_does_not_affect_callers() {
    let (metrics, sent) = calls_beside("SIP/2.0", "");
    let strays = metrics.sum("messages_unverified_total", &[]);
    assert!(strays > u64::from(sent) / 2, "{strays} of {sent}");
}

/// If the configuration limits sources, the source of the flood is banned.
#[test]
fn a_flood_of_cancels_and_acks_has_its_source_banned() {
    for kind in ["CANCEL", "ACK"] {
        let (metrics, _) = calls_beside(kind, "ban_above_cps = 100");
        assert!(metrics.sum("messages_dropped_total", &[("reason", "banned")]) > 0, "{kind}");
        assert_eq!(metrics.sum("bans", &[]), 1, "{kind}");
    }
}
