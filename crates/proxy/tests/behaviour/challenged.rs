//! Tests of requests that a back end challenges. The request that answers a challenge needs no
//! second admission.

use std::time::Duration;

use crate::fixed::*;
use crate::script::*;
use tidegate_proxy::Mode;

const STRANGER: &str = "203.0.113.66:5060";
const MODES: [Mode; 2] = [Mode::Stateless, Mode::Transaction];

/// Makes a proxy that admits nothing after the first message.
fn closed(scheme: Scheme, mode: Mode) -> Script {
    adjusted(scheme, &[("after", 1.0), ("share", 0.0)], |settings| settings.pools[0].mode = mode)
}

fn asked(method: &str, call: &str, cseq: u32) -> String {
    request(method, "sip:bob@192.0.2.1", call, cseq, "")
}

/// Returns the same request with credentials.
fn with_credentials(method: &str, call: &str, cseq: u32) -> String {
    let name = if method == "REGISTER" { "Authorization" } else { "Proxy-Authorization" };
    let more = format!("{name}: Digest username=\"alice\"\r\n");
    request(method, "sip:bob@192.0.2.1", call, cseq, &more)
}

/// Sends a request. Returns it as the proxy forwarded it, or `None` if it got a 503.
fn forwarded(script: &mut Script, from: &str, text: &str) -> Option<Sent> {
    let sent = script.send(from, text);
    let is_rejected = sent.iter().any(|sent| sent.start().starts_with("SIP/2.0 503"));
    let method = text.split(' ').next().unwrap();
    let forwarded = sent.into_iter().find(|sent| sent.start().starts_with(method));
    assert!(is_rejected == forwarded.is_none(), "{text}");
    forwarded
}

/// Answers a forwarded request with a challenge, which the caller acknowledges.
fn challenge(script: &mut Script, from: &str, sent: &Sent) {
    let status = if sent.start().starts_with("REGISTER") { "401 No" } else { "407 No" };
    let replies = script.send(from, &sent.answer(status));
    assert!(replies.iter().any(|reply| reply.to == address(CALLER)), "{replies:?}");
    if sent.start().starts_with("INVITE") {
        let number = sent.header("CSeq").split(' ').next().unwrap().parse().unwrap();
        let ack = request("ACK", "sip:bob@192.0.2.1", sent.header("Call-ID"), number, "Totag\r\n");
        script.send(CALLER, &ack);
    }
}

/// If a challenged call needed two admissions, the work for the first one would be lost whenever
/// the second one failed.
#[test]
fn the_answer_to_a_challenge_needs_no_second_admission() {
    for scheme in SCHEMES {
        for (mode, method) in MODES
            .into_iter()
            .zip(["INVITE", "REGISTER"])
            .chain(MODES.into_iter().zip(["REGISTER", "INVITE"]))
        {
            let mut script = closed(scheme, mode);
            let first = forwarded(&mut script, CALLER, &asked(method, "a", 1)).unwrap();
            challenge(&mut script, &first.to.to_string(), &first);
            let answer = with_credentials(method, "a", 2);
            let second = forwarded(&mut script, CALLER, &answer);
            let second = second.unwrap_or_else(|| panic!("{scheme:?} {mode:?} {method}"));
            // A retransmission of the answer is not another request.
            script.pass(Duration::from_millis(500));
            let copies = script.send(CALLER, &answer);
            assert!(copies.iter().all(|sent| !sent.start().contains(" 503 ")), "{copies:?}");
            // After a second challenge, the call needs another admission.
            challenge(&mut script, &second.to.to_string(), &second);
            let third = with_credentials(method, "a", 3);
            assert!(forwarded(&mut script, CALLER, &third).is_none(), "{scheme:?} {mode:?}");
        }
    }
}

#[test]
fn only_the_challenged_caller_may_answer_with_credentials_and_in_time() {
    for mode in MODES {
        let challenged = || {
            let mut script = closed(SCHEMES[0], mode);
            let first = forwarded(&mut script, CALLER, &asked("INVITE", "a", 1)).unwrap();
            challenge(&mut script, &first.to.to_string(), &first);
            script
        };
        let mut script = challenged();
        for (from, text) in [
            (CALLER, asked("INVITE", "a", 2)),
            (CALLER, with_credentials("INVITE", "b", 3)),
            (CALLER, with_credentials("REGISTER", "a", 4)),
            (STRANGER, with_credentials("INVITE", "a", 5)),
        ] {
            assert!(forwarded(&mut script, from, &text).is_none(), "{mode:?} {text}");
        }
        assert!(forwarded(&mut script, CALLER, &with_credentials("INVITE", "a", 6)).is_some());
        // Only one request with credentials may follow each challenge.
        assert!(forwarded(&mut script, CALLER, &with_credentials("INVITE", "a", 7)).is_none());
        let mut script = challenged();
        script.rest(Duration::from_secs(65));
        assert!(forwarded(&mut script, CALLER, &with_credentials("INVITE", "a", 2)).is_none());
    }
}

/// The gate does not decide on requests within a call. If their challenges counted, any number of
/// new calls could pass the gate.
///
/// RFC 3261 §12.2.1.1: "The tag in the To header field of the request MUST be set to the remote tag
/// of the dialog ID."
#[test]
fn a_challenge_within_a_call_lets_no_new_call_pass() {
    for mode in MODES {
        let mut script = closed(SCHEMES[0], mode);
        let first = forwarded(&mut script, CALLER, &asked("INVITE", "a", 1)).unwrap();
        let backend = first.to.to_string();
        script.send(&backend, &first.answer("200 OK"));
        script.send(CALLER, &request("ACK", "sip:bob@192.0.2.1", "a", 1, "Totag\r\n"));
        for (method, cseq) in [("INVITE", 2), ("MESSAGE", 4)] {
            let within = request(method, "sip:bob@192.0.2.1", "a", cseq, "Totag\r\n");
            let within = forwarded(&mut script, CALLER, &within).unwrap();
            challenge(&mut script, &backend, &within);
            let new = with_credentials(method, "a", cseq + 1);
            assert!(forwarded(&mut script, CALLER, &new).is_none(), "{mode:?} {method}");
        }
    }
}

/// Only a back end can challenge, and only a request that was sent to it.
#[test]
fn no_other_response_lets_a_request_pass() {
    for mode in MODES {
        let mut script = closed(SCHEMES[0], mode);
        let first = forwarded(&mut script, CALLER, &asked("INVITE", "a", 1)).unwrap();
        script.send(STRANGER, &first.answer("407 No"));
        assert!(forwarded(&mut script, CALLER, &with_credentials("INVITE", "a", 2)).is_none());
        // The back end invents a branch.
        let mut script = closed(SCHEMES[0], mode);
        let first = forwarded(&mut script, CALLER, &asked("INVITE", "a", 1)).unwrap();
        let invented = first.branch().replace(|c: char| c.is_ascii_digit(), "x");
        let text = first.answer("407 No").replace(first.branch(), &invented);
        script.send(&first.to.to_string(), &text);
        assert!(forwarded(&mut script, CALLER, &with_credentials("INVITE", "a", 2)).is_none());
        // Another final response of the back end is not a challenge either.
        let mut script = closed(SCHEMES[0], mode);
        let first = forwarded(&mut script, CALLER, &asked("INVITE", "a", 1)).unwrap();
        script.send(&first.to.to_string(), &first.answer("403 Forbidden"));
        assert!(forwarded(&mut script, CALLER, &with_credentials("INVITE", "a", 2)).is_none());
    }
}
