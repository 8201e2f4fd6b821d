//! Tests of the information that policies get from requests and responses, in both modes.

use std::time::Duration;

use crate::script::*;
use tidegate_balance::{Policy, fnv1a};
use tidegate_proxy::Mode;

fn with(policy: Policy, mode: Mode) -> Script {
    Script::with(policy, |settings| settings.pools[0].mode = mode)
}

/// Returns the first request that goes to a back end.
fn forwarded_request(sent: &[Sent]) -> &Sent {
    let is_request = |sent: &&Sent| !sent.start().starts_with("SIP/2.0");
    sent.iter().find(is_request).expect("it was forwarded")
}

/// Returns response times of the back end `index` in ms: INVITE, BYE.
fn response_ms(script: &Script, index: usize) -> (u128, u128) {
    let backend = &script.backends.backends()[index];
    (backend.start_response_time().as_millis(), backend.end_response_time().as_millis())
}

/// Makes a call to the callee named by `to`. Returns its back end.
fn placed(script: &mut Script, call: &str, to: &str) -> String {
    let text = invite(call).replace("<sip:bob@example.com>", to);
    forwarded_request(&script.send(CALLER, &text)).to.to_string()
}

#[test]
fn an_invite_is_timed_to_the_first_response_except_100_and_a_bye_to_the_final_one() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = with(Policy::Rr, mode);
        let sent = s.send(CALLER, &invite("a"));
        let sent = forwarded_request(&sent);
        let backend = sent.to.to_string();
        for (ms, status) in [(2, "100 Trying"), (3, "180 Ringing"), (9_000, "200 OK")] {
            s.pass(Duration::from_millis(ms));
            s.send(&backend, &sent.answer(status));
        }
        assert_eq!(response_ms(&s, 0), (5, 0), "{mode:?}");
        let bye = request("BYE", "sip:service@192.0.2.1:5060", "a", 2, "Totag\r\n");
        let bye = s.send(CALLER, &bye);
        s.pass(Duration::from_millis(7));
        s.send(&backend, &forwarded_request(&bye).answer("200 OK"));
        assert_eq!(response_ms(&s, 0), (5, 7), "{mode:?}");
        assert_eq!(response_ms(&s, 1), (0, 0), "{mode:?}");
    }
}

#[test]
fn a_failing_server_is_not_taken_for_a_fast_one() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = with(Policy::Rr, mode);
        for (call, status) in [("a", "500 Oops"), ("b", "486 Busy Here")] {
            let sent = s.send(CALLER, &invite(call));
            s.pass(Duration::from_millis(4));
            let sent = forwarded_request(&sent);
            s.send(&sent.to.to_string(), &sent.answer(status));
        }
        assert_eq!((response_ms(&s, 0), response_ms(&s, 1)), ((0, 0), (4, 0)), "{mode:?}");
    }
}

#[test]
fn hash_to_brings_all_calls_to_one_user_to_one_back_end() {
    let mut s = with(Policy::HashTo, Mode::Stateless);
    let user = |n: u32| format!("<sip:user{n}@example.com>");
    let first: Vec<_> = (0..32).map(|n| placed(&mut s, &format!("first-{n}"), &user(n))).collect();
    let again: Vec<_> = (0..32).map(|n| placed(&mut s, &format!("again-{n}"), &user(n))).collect();
    assert_eq!(first, again);
    let to_a = first.iter().filter(|at| *at == BACKEND_A).count();
    assert!((6..=26).contains(&to_a), "{to_a} of 32");
}

#[test]
fn fnv_hashes_the_call_id_itself() {
    let mut s = with(Policy::Fnv, Mode::Transaction);
    for n in 0..16 {
        let call = format!("{n}@198.51.100.7");
        let expected = [BACKEND_A, BACKEND_B][(fnv1a(call.as_bytes()) % 2) as usize];
        assert_eq!(placed(&mut s, &call, "<sip:bob@example.com>"), expected);
    }
}

// A request that one back end rejects fails over by the same key.
#[test]
fn failover_passes_over_the_one_that_rejected() {
    for policy in Policy::ALL {
        let mut s = with(policy, Mode::Transaction);
        let sent = s.send(CALLER, &invite("a"));
        let sent = forwarded_request(&sent);
        let next = s.send(&sent.to.to_string(), &sent.answer("503 Service Unavailable"));
        let is_invite = |sent: &&Sent| sent.start().starts_with("INVITE");
        let next = next.iter().find(is_invite).expect("it goes to the other");
        assert_ne!(next.to, sent.to, "{policy:?}");
    }
}
