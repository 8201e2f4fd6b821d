//! RFC 3326: tests of the Reason in CANCELs.

use crate::script::{BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, Sent, invite, request};

const FORK: [(&str, u16); 3] = [(BACKEND_A, 1000), (BACKEND_B, 1000), (BACKEND_C, 1000)];

fn cancels(sent: &[Sent]) -> Vec<&Sent> {
    sent.iter().filter(|sent| sent.start().starts_with("CANCEL")).collect()
}

/// §2: "Proxies generating a CANCEL request upon reception of a CANCEL from the previous hop that
/// contains a Reason header field SHOULD copy it into the new CANCEL request."
#[test]
fn the_reason_of_a_cancel_is_copied_to_every_branch() {
    let mut s = Script::forking(&FORK);
    let sent = s.send(CALLER, &invite("c1"));
    s.send(BACKEND_A, &sent[1].answer("180 Ringing"));
    s.send(BACKEND_B, &sent[2].answer("180 Ringing"));
    let more = "Reason: SIP ;cause=480\r\nreason: Q.850;cause=16;text=\"a, b\"\r\n";
    let out = s.send(CALLER, &request("CANCEL", "sip:bob@192.0.2.1", "c1", 1, more));
    let reasons = ["SIP ;cause=480", "Q.850;cause=16;text=\"a, b\""];
    assert_eq!(cancels(&out).len(), 2);
    for cancel in cancels(&out) {
        assert_eq!(cancel.all("Reason"), reasons);
    }
    // A branch without a response is cancelled as soon as it responds.
    let late = s.send(BACKEND_C, &sent[3].answer("180 Ringing"));
    assert_eq!(cancels(&late)[0].all("Reason"), reasons);
}

/// A stranger can choose the length of a Reason.
#[test]
fn a_reason_that_is_too_long_is_left_out() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("180 Ringing"));
    let more = format!("Reason: SIP;text=\"{}\"\r\nReason: SIP;cause=487\r\n", "x".repeat(600));
    let sent = s.send(CALLER, &request("CANCEL", "sip:bob@192.0.2.1", "c1", 1, &more));
    assert_eq!(cancels(&sent)[0].all("Reason"), ["SIP;cause=487"]);
}

/// §3.1: "A proxy forks an INVITE request and one of the branches returns a 200 (OK). The forking
/// proxy includes this status code in a Reason header field in the CANCEL request that it sends to
/// the rest of the branches." Without this Reason, the other phones log a missed call.
#[test]
fn losers_of_a_fork_are_told_that_the_call_was_answered() {
    let mut s = Script::forking(&FORK);
    let sent = s.send(CALLER, &invite("c1"));
    s.send(BACKEND_A, &sent[1].answer("180 Ringing"));
    let out = s.send(BACKEND_B, &sent[2].answer("200 OK"));
    let elsewhere = "SIP;cause=200;text=\"Call completed elsewhere\"";
    assert_eq!(cancels(&out)[0].all("Reason"), [elsewhere]);
    let late = s.send(BACKEND_C, &sent[3].answer("180 Ringing"));
    assert_eq!(cancels(&late)[0].all("Reason"), [elsewhere]);
}

/// §2 has `Reason: SIP ;cause=600 ;text="Busy Everywhere"`.
#[test]
fn branches_that_a_6xx_ends_are_told_its_status() {
    let mut s = Script::forking(&FORK);
    let sent = s.send(CALLER, &invite("c1"));
    s.send(BACKEND_A, &sent[1].answer("180 Ringing"));
    let out = s.send(BACKEND_B, &sent[2].answer("603 Decline"));
    assert_eq!(cancels(&out)[0].all("Reason"), ["SIP;cause=603;text=\"Decline\""]);
}

/// A second CANCEL of the caller does not change the Reason of ours.
#[test]
fn the_first_reason_stays() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    for reason in ["Reason: SIP;cause=480\r\n", "Reason: SIP;cause=600\r\n"] {
        s.one(CALLER, &request("CANCEL", "sip:bob@192.0.2.1", "c1", 1, reason));
    }
    let late = s.send(BACKEND_A, &out.answer("180 Ringing"));
    assert_eq!(cancels(&late)[0].all("Reason"), ["SIP;cause=480"]);
}

/// Neither a CANCEL without Reason nor an abandoned branch gets an invented Reason.
#[test]
fn no_reason_is_invented() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("180 Ringing"));
    let sent = s.send(CALLER, &request("CANCEL", "sip:bob@192.0.2.1", "c1", 1, ""));
    assert!(cancels(&sent)[0].all("Reason").is_empty());
}
