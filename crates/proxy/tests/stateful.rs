//! The stateful proxy over the transactions of RFC 3261 §17: flows of whole calls.

#[path = "script/mod.rs"]
mod script;

use std::time::Duration;

use script::{BACKEND_A, BACKEND_B, CALLER, Script, invite, request, starts};

#[test]
fn a_call_through_leaves_nothing_behind() {
    let mut s = Script::stateful();
    let sent = s.send(CALLER, &invite("c1"));
    assert_eq!(sent.len(), 2, "{sent:#?}");
    assert_eq!(sent[0].start(), "SIP/2.0 100 Trying");
    let out = sent[1].clone();
    assert_eq!(out.to.to_string(), BACKEND_A);
    assert_eq!(s.send(BACKEND_A, &out.answer("100 Trying")).len(), 0);
    let ringing = s.one(BACKEND_A, &out.answer("180 Ringing"));
    assert_eq!((ringing.to.to_string().as_str(), ringing.start()), (CALLER, "SIP/2.0 180 Ringing"));
    // A repeated INVITE gets the 180 again, and is not forwarded.
    let again = s.one(CALLER, &invite("c1"));
    assert_eq!(again, ringing);
    let ok = s.one(BACKEND_A, &out.answer("200 OK"));
    assert_eq!(ok.start(), "SIP/2.0 200 OK");
    let again = s.one(BACKEND_A, &out.answer("200 OK"));
    assert_eq!(again, ok);
    assert_eq!(s.live(), (1, 1));
    let ack = s.one(CALLER, &request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n"));
    assert_eq!(ack.to.to_string(), BACKEND_A);
    let bye = request("BYE", "sip:bob@192.0.2.1", "c1", 2, "Totag\r\n");
    let out = s.one(CALLER, &bye);
    let ok = s.one(BACKEND_A, &out.answer("200 OK"));
    assert_eq!(s.one(CALLER, &bye), ok, "a repeated BYE gets the response again");
    s.pass(Duration::from_secs(33));
    assert_eq!(s.live(), (0, 0));
}

#[test]
fn a_busy_callee_is_acknowledged_here() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    let sent = s.send(BACKEND_A, &out.answer("486 Busy Here"));
    assert_eq!(
        starts(&sent),
        [(BACKEND_A, "ACK sip:bob@192.0.2.1 SIP/2.0"), (CALLER, "SIP/2.0 486 Busy Here")]
    );
    assert_eq!(sent[0].branch(), out.branch());
    assert!(sent[0].header("To").contains("tag=callee"));
    // A repeated rejection is acknowledged again, and not forwarded.
    assert_eq!(starts(&s.send(BACKEND_A, &out.answer("486 Busy Here"))).len(), 1);
    s.pass(Duration::from_millis(500));
    let again = s.sent();
    assert_eq!(starts(&again), [(CALLER, "SIP/2.0 486 Busy Here")]);
    let ack = request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n");
    assert_eq!(s.send(CALLER, &ack).len(), 0);
    s.pass(Duration::from_secs(40));
    assert_eq!(s.sent().len(), 0);
    assert_eq!(s.live(), (0, 0));
}

#[test]
fn a_cancelled_call_ends_with_487() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    let cancel = request("CANCEL", "sip:bob@192.0.2.1", "c1", 1, "");
    // RFC 3261 §9.1: no response has come yet, so the CANCEL waits.
    assert_eq!(s.one(CALLER, &cancel).start(), "SIP/2.0 200 OK");
    let sent = s.send(BACKEND_A, &out.answer("180 Ringing"));
    assert_eq!(
        starts(&sent),
        [(BACKEND_A, "CANCEL sip:bob@192.0.2.1 SIP/2.0"), (CALLER, "SIP/2.0 180 Ringing"),]
    );
    assert_eq!(sent[0].branch(), out.branch());
    assert_eq!(s.send(BACKEND_A, &sent[0].answer("200 OK")).len(), 0);
    s.pass(Duration::from_secs(4));
    assert_eq!(s.sent().len(), 0, "an answered CANCEL is not sent again");
    let sent = s.send(BACKEND_A, &out.answer("487 Request Terminated"));
    assert_eq!(starts(&sent)[1].1, "SIP/2.0 487 Request Terminated");
    s.pass(Duration::from_secs(100));
    assert_eq!(s.live(), (0, 0));
}

#[test]
fn a_refusing_back_end_leads_to_the_next() {
    let mut s = Script::stateful();
    let first = s.send(CALLER, &invite("c1")).remove(1);
    let sent = s.send(BACKEND_A, &first.answer("503 Service Unavailable"));
    assert_eq!(sent.len(), 2, "{sent:#?}");
    assert_eq!(sent[0].start(), "ACK sip:bob@192.0.2.1 SIP/2.0");
    let second = sent[1].clone();
    assert_eq!(second.to.to_string(), BACKEND_B);
    assert_ne!(second.branch(), first.branch());
    // The next one is saturated too: no back end is left.
    let sent = s.send(BACKEND_B, &second.answer("503 Service Unavailable"));
    assert_eq!(starts(&sent)[1], (CALLER, "SIP/2.0 500 Server Internal Error"));
}

#[test]
fn a_silent_back_end_leads_to_the_next() {
    let mut s = Script::stateful();
    let first = s.send(CALLER, &invite("c1")).remove(1);
    s.pass(Duration::from_millis(3999));
    let again = s.sent();
    assert_eq!(again.len(), 3, "after 500, 1500 and 3500 ms");
    assert!(again.iter().all(|sent| *sent == first));
    s.pass(Duration::from_millis(1));
    let second = s.sent().remove(0);
    assert_eq!(second.to.to_string(), BACKEND_B);
    assert_eq!(s.one(BACKEND_B, &second.answer("200 OK")).to.to_string(), CALLER);
    // A late response of the first back end belongs to an abandoned branch.
    let late = s.send(BACKEND_A, &first.answer("180 Ringing"));
    assert_eq!(starts(&late), [(BACKEND_A, "CANCEL sip:bob@192.0.2.1 SIP/2.0")]);
}
