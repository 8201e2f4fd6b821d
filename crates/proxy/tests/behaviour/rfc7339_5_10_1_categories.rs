//! RFC 7339 §5.10.1: tests which requests a client holds back first.

use std::time::Duration;

use crate::limited::{believe_emergencies, emergency};
use crate::rfc7339_client::{calls, obeying, sent, telling, value};
use crate::script::*;
use tidegate_balance::Policy;
use tidegate_control::Reason;
use tidegate_proxy::{Choice, Mode, Obedience};

/// RFC 7339 §5.10.1: "A SIP client SHOULD honor the local policy for prioritizing SIP requests such as
/// policies based on message type, e.g., INVITEs versus requests associated with existing sessions."
#[test]
fn requests_of_calls_go_before_new_calls() {
    let mut script = obeying(Mode::Stateless);
    let established = calls(&mut script, "a", 2);
    for call in established.iter().flatten() {
        script.send(&call.to.to_string(), &telling(call, "200 OK", &value("loss", 80, 1)));
    }
    let passed = sent(&calls(&mut script, "b", 50));
    assert!(passed <= 12, "at least four fifths of the first category: {passed}");
    for call in ["a0", "a1"] {
        let within = |method, cseq| request(method, "sip:bob@192.0.2.1", call, cseq, "Totag\r\n");
        assert!(script.one(CALLER, &within("ACK", 1)).start().starts_with("ACK"));
        assert!(script.one(CALLER, &within("BYE", 2)).start().starts_with("BYE"));
    }
}

/// An ACK has no response, and without a CANCEL a call goes on ringing.
#[test]
fn an_ack_and_a_cancel_are_never_held_back() {
    let mut script = obeying(Mode::Stateless);
    for call in calls(&mut script, "a", 2).into_iter().flatten() {
        script.send(&call.to.to_string(), &telling(&call, "200 OK", &value("rate", 0, 1)));
    }
    let within = |method, cseq| request(method, "sip:bob@192.0.2.1", "a0", cseq, "Totag\r\n");
    assert!(script.one(CALLER, &within("ACK", 1)).start().starts_with("ACK"));
    assert_eq!(script.status(CALLER, &within("BYE", 2)), 503);
    let cancel = request("CANCEL", "sip:bob@192.0.2.1", "a0", 1, "");
    assert!(script.one(CALLER, &cancel).start().starts_with("CANCEL"));
}

/// Without transactions, each retransmission is forwarded, because a 503 would end a ringing call.
#[test]
fn a_repetition_of_a_request_that_was_sent_is_sent() {
    let mut script = obeying(Mode::Stateless);
    for call in calls(&mut script, "a", 2).into_iter().flatten() {
        script.send(&call.to.to_string(), &telling(&call, "180 Ringing", &value("loss", 100, 1)));
    }
    assert!(script.one(CALLER, &invite("a0")).start().starts_with("INVITE"));
    assert_eq!(script.status(CALLER, &invite("b")), 503);
}

/// A caller may invent a To-tag and use the token of its own call. The INVITE begins a call (RFC 3261
/// §12.2.2), so it has no higher category than other new calls.
#[test]
fn an_invite_with_an_invented_to_tag_is_held_back_as_a_new_call() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = obeying(mode);
        let established = calls(&mut script, "a", 2);
        for call in established.iter().flatten() {
            script.send(&call.to.to_string(), &telling(call, "200 OK", &value("loss", 90, 1)));
        }
        calls(&mut script, "b", 200);
        let route = established[0].as_ref().unwrap().header("Record-Route");
        let more = format!("Totag\r\nRoute: {route}\r\n");
        let held = |script: &Script| script.counters.rejected(Reason::Feedback).get();
        let before = held(&script);
        for cseq in 10..20 {
            script.pass(Duration::from_millis(100));
            let text = request("INVITE", "sip:bob@192.0.2.1", "a0", cseq, &more);
            script.send(CALLER, &text.replace("=callee", &format!("=invented{cseq}")));
        }
        let held = held(&script) - before;
        assert!((8..=10).contains(&held), "{mode:?}: {held} of 10");
    }
}

/// A regression: the second group of a fork treated an emergency call as any other call.
///
/// RFC 7339 §5.10.1: "A SIP client SHOULD honor the local policy for prioritizing SIP requests relating to
/// emergency calls as identified by the SOS URN"
#[test]
fn an_emergency_call_keeps_its_priority_in_later_groups_of_a_fork() {
    let mut script = Script::with(Policy::Rr, |settings| {
        believe_emergencies(settings);
        let pool = &mut settings.pools[0];
        pool.mode = Mode::Transaction;
        pool.obedience = Obedience::Always;
        pool.choice = Choice::All([1000, 500].into());
    });
    let mut seconds = 0;
    let mut reaches_second = |text: &str| {
        seconds += 1;
        script.rest(Duration::from_millis(40));
        let to = |sent: Vec<Sent>, at| sent.into_iter().find(|sent| sent.to == address(at));
        let first = to(script.send(CALLER, text), BACKEND_A).expect("it is in the first group");
        let second = to(script.send(BACKEND_A, &first.answer("486 Busy Here")), BACKEND_B);
        if let Some(second) = &second {
            let told = telling(second, "180 Ringing", &value("loss", 60, seconds));
            script.send(BACKEND_B, &told);
        }
        second.is_some()
    };
    let mut plain = 0;
    let passed = (0..40).filter(|call| {
        plain += (0..5).filter(|i| reaches_second(&invite(&format!("{call}-{i}")))).count();
        reaches_second(&emergency(&format!("sos{call}")))
    });
    assert!(passed.count() >= 38, "of 40 emergency calls");
    assert!(plain < 100, "of 200 other calls: {plain}");
}

/// RFC 7339 §5.10.1: "A SIP client SHOULD honor the local policy for prioritizing SIP requests
/// based on the content of the Resource-Priority header"
#[test]
fn a_call_with_a_resource_priority_goes_before_other_new_calls() {
    let mut script = Script::with(Policy::Rr, |settings| {
        believe_emergencies(settings);
        let priority = settings.overload.sources.priority.as_mut().expect("it was set");
        priority.values.add("ets.0").expect("it is a value of RFC 4412");
        settings.pools[0].obedience = Obedience::Always;
    });
    for call in calls(&mut script, "a", 2).into_iter().flatten() {
        script.send(&call.to.to_string(), &telling(&call, "180 Ringing", &value("loss", 60, 1)));
    }
    let (mut plain, mut preferred) = (0, 0);
    for round in 0..40 {
        script.pass(Duration::from_millis(200));
        plain += sent(&calls(&mut script, &format!("b{round}-"), 5));
        let more = "Resource-Priority: ets.0\r\n";
        let invite = request("INVITE", "sip:bob@192.0.2.1", &format!("c{round}"), 1, more);
        let is_sent = script.one(CALLER, &invite).start().starts_with("INVITE");
        preferred += u32::from(is_sent);
    }
    assert_eq!(preferred, 40);
    assert!(plain < 100, "of 200 other calls: {plain}");
}
