//! A Call-ID proves nothing. Requests that only claim to belong to a call are new work, or get a
//! 481, and do not affect the call.

use std::time::Duration;

use crate::limited::*;
use crate::script::*;
use tidegate_balance::{AdminState, Limits, Policy};
use tidegate_proxy::{Class, DropReason, Mode};

const MODES: [Mode; 2] = [Mode::Transaction, Mode::Stateless];
const STRANGER: &str = "198.51.100.66:5060";

/// Makes a proxy in front of one available back end with these limits. Its other back end is
/// drained.
fn alone(mode: Mode, limits: Limits) -> Script {
    let s = limited(mode, [limits, Limits::default()]);
    s.backends.backends()[1].set_admin_state(s.now, AdminState::Draining);
    s
}

/// Makes a proxy with room for five calls and the call `name`, which leaves four free. Returns the
/// forwarded INVITE too.
fn with_call(mode: Mode, name: &str) -> (Script, Sent) {
    let mut s = alone(mode, calls(5));
    let there = call(&mut s, name).unwrap();
    (s, there)
}

/// Returns the request `text` with another branch.
fn under(branch: &str, text: &str) -> String {
    let (before, after) = text.split_once("branch=").unwrap();
    let (_, after) = after.split_once("\r\n").unwrap();
    format!("{before}branch={branch}\r\n{after}")
}

fn decided_new(s: &Script) -> u64 {
    [Class::Invite, Class::Other, Class::Register]
        .map(|c| s.counters.received(c).get())
        .iter()
        .sum()
}

// RFC 3261 §12.2.2: "If the request has a tag in the To header field, but the dialog identifier
// does not match any existing dialogs [...] it MUST respond to the request with a 481".
#[test]
fn an_invented_to_tag_on_a_known_call_id_is_new_work_and_goes_nowhere() {
    for mode in MODES {
        let (mut s, _) = with_call(mode, "a");
        let before = decided_new(&s);
        for i in 0..50 {
            let text = request("INVITE", "sip:bob@192.0.2.1", "a", 10 + i, "Totag\r\n");
            let text = text.replace(";tag=callee", &format!(";tag=invented{i}"));
            assert_eq!(s.status(STRANGER, &text), 481, "{mode:?}");
        }
        assert_eq!((decided_new(&s) - before, s.held()), (50, vec![1, 0]));
        // With the tags of the dialog the request is in-dialog.
        let again = request("INVITE", "sip:bob@192.0.2.1", "a", 99, "Totag\r\n");
        assert!(forwarded(s.send(CALLER, &again)).is_some());
        assert_eq!((decided_new(&s) - before, s.held()), (50, vec![1, 0]));
    }
}

// An element behind us may take a request with the token of the caller's own call for another call,
// so it counts as one. RFC 3261 §12.2.2: "Based on the To tag, the UAS MAY either accept or reject
// the request."
#[test]
fn an_invented_to_tag_with_a_token_takes_a_lease() {
    for mode in MODES {
        let (mut s, there) = with_call(mode, "a");
        let more = format!("Totag\r\nRoute: {}\r\n", there.header("Record-Route"));
        let mut passed = 0;
        for i in 0..20 {
            let text = request("INVITE", "sip:bob@192.0.2.1", "a", 10 + i, &more);
            let text = text.replace(";tag=callee", &format!(";tag=invented{i}"));
            passed += usize::from(forwarded(s.send(CALLER, &text)).is_some());
        }
        assert_eq!((passed, s.held()), (4, vec![5, 0]), "{mode:?}");
    }
}

#[test]
fn the_same_call_id_without_to_tag_takes_a_lease_each_time() {
    for mode in MODES {
        let (mut s, _) = with_call(mode, "a");
        let before = decided_new(&s);
        let mut passed = 0;
        for cseq in 2..50 {
            let text = request("INVITE", "sip:bob@192.0.2.1", "a", cseq, "");
            let sent = s.send(STRANGER, &text);
            if let Some(there) = sent.iter().find(|sent| sent.to == address(BACKEND_A)) {
                s.send(BACKEND_A, &there.answer("200 OK"));
                passed += 1;
            }
        }
        assert_eq!((passed, s.held()), (4, vec![5, 0]), "{mode:?}");
        assert_eq!(decided_new(&s) - before, 48);
    }
}

// RFC 3261 §17.2.3, without the magic cookie: "The INVITE request matches a transaction if the
// Request-URI, To tag, From tag, Call-ID, CSeq, and top Via header field match".
#[test]
fn different_invites_with_one_branch_without_magic_cookie_are_different_calls() {
    for mode in MODES {
        let mut s = alone(mode, calls(5));
        let mut passed = 0;
        for i in 0..50 {
            let text = under("1", &invite("a"));
            let text = match i % 2 {
                0 => text.replace("tag=caller", &format!("tag=c{i}")),
                _ => text.replacen("sip:bob@", &format!("sip:b{i}@"), 1),
            };
            let there = forwarded(s.send(CALLER, &text));
            let Some(there) = there.filter(|there| there.start().starts_with("INVITE")) else {
                continue;
            };
            passed += 1;
            s.send(BACKEND_A, &there.answer("200 OK"));
        }
        assert_eq!((passed, s.held()), (5, vec![5, 0]), "{mode:?}");
        assert_eq!(s.counters.received(Class::Invite).get(), 50);
    }
}

// RFC 3261 §8.2.2.2, §17.2.3: one branch is one transaction, of one method.
#[test]
fn other_requests_with_the_branch_of_an_answered_one_are_new_work() {
    for mode in MODES {
        let mut s = alone(mode, rate(1.0));
        let first = forwarded(s.send(CALLER, &invite("a"))).unwrap();
        s.send(BACKEND_A, &first.answer("404 Not Found"));
        s.send(CALLER, &request("ACK", "sip:bob@192.0.2.1", "a", 1, "Totag\r\n"));
        let known = s.counters.received(Class::InDialog).get();
        for i in 0..20 {
            let method = format!("FOO{i}");
            let text =
                under("z9hG4bK-a-1-INVITE", &request(&method, "sip:bob@192.0.2.1", "a", 1, ""));
            s.send(CALLER, &text);
            if mode == Mode::Stateless {
                let text = invite("a").replacen("sip:bob@", &format!("sip:b{i}@"), 1);
                s.send(CALLER, &text);
            }
        }
        assert_eq!(s.counters.received(Class::InDialog).get(), known, "{mode:?}");
        let assigned = s.backends.backends()[0].assigned();
        assert!(assigned <= 3, "{assigned} of {mode:?} at one call a second");
    }
}

// A client may use one branch for requests that differ. Without transactions nothing but the gate
// distinguishes them from retransmissions.
#[test]
fn other_requests_with_the_branch_and_method_of_a_served_one_are_new_work() {
    let mut s = alone(Mode::Stateless, rate(1.0));
    let message = |cseq: u32, user: &str| {
        let text = request("MESSAGE", &format!("sip:{user}@192.0.2.1"), "a", cseq, "");
        under("z9hG4bK-same", &text)
    };
    let first = forwarded(s.send(CALLER, &message(1, "bob"))).unwrap();
    s.send(BACKEND_A, &first.answer("200 OK"));
    for i in 2..22 {
        s.send(CALLER, &message(i, "bob"));
        s.send(CALLER, &message(1, &format!("bob{i}")));
    }
    assert_eq!(s.counters.received(Class::InDialog).get(), 0);
    let assigned = s.backends.backends()[0].assigned();
    assert!(assigned <= 3, "{assigned} at one request a second");
    // A retransmission needs no headroom and goes to the same back end.
    assert!(forwarded(s.send(CALLER, &message(1, "bob"))).is_some());
}

// RFC 3261 §17.1.2.2: "If the client transaction is still in the "Trying" state when Timer F fires",
// which is after 64·T1, the client has sent eleven copies.
#[test]
fn more_copies_of_a_request_than_a_client_sends_are_dropped() {
    for mode in MODES {
        let mut s = alone(mode, Limits::default());
        let there = forwarded(s.send(CALLER, &invite("a"))).unwrap();
        s.send(BACKEND_A, &there.answer("486 Busy Here"));
        for _ in 0..1000 {
            s.send(CALLER, &invite("a"));
        }
        let dropped = s.counters.dropped(DropReason::CallFlood).get();
        // Without transactions the copies of all requests of a call are limited together.
        assert_eq!(dropped, if mode == Mode::Stateless { 1000 - 360 } else { 1000 - 32 });
    }
}

#[test]
fn without_transactions_copies_of_a_single_request_are_limited_too() {
    let mut s = alone(Mode::Stateless, rate(1.0));
    let text = |to: u32| {
        request("MESSAGE", "sip:bob@192.0.2.1", "a", 1, "")
            .replace("To: <sip:bob", &format!("To: <sip:b{to}"))
    };
    let first = forwarded(s.send(CALLER, &text(0))).unwrap();
    s.send(BACKEND_A, &first.answer("200 OK"));
    let passed = (0..1000).filter(|&to| forwarded(s.send(CALLER, &text(to))).is_some()).count();
    assert_eq!(passed, 360);
}

// A stranger may know the Call-ID of a call.
#[test]
fn copies_of_a_single_request_do_not_use_up_the_rate_of_a_call_with_its_call_id() {
    let (mut s, _) = with_call(Mode::Stateless, "a");
    let text = request("MESSAGE", "sip:bob@192.0.2.1", "a", 9, "");
    let first = forwarded(s.send(STRANGER, &text)).unwrap();
    s.send(BACKEND_A, &first.answer("200 OK"));
    for _ in 0..1000 {
        s.send(STRANGER, &text);
    }
    assert_eq!(s.counters.dropped(DropReason::CallFlood).get(), 1000 - 360);
    end(&mut s, "a");
    assert_eq!(s.held(), [0, 0]);
}

// RFC 3261 §8.2.2.2: "The same request has arrived at the UAS more than once, following different
// paths, most likely due to forking." The number is limited to what a fork makes.
#[test]
fn copies_of_an_invite_go_to_its_back_end_and_are_limited() {
    for mode in MODES {
        let mut s = limited(mode, [calls(2), calls(2)]);
        let first = forwarded(s.send(CALLER, &invite("a"))).unwrap();
        assert_eq!(first.to, address(BACKEND_A));
        for i in 0..3 {
            let copy = under(&format!("z9hG4bK-copy-{i}"), &invite("a"));
            let there = forwarded(s.send(CALLER, &copy)).unwrap();
            assert_eq!((there.to, s.held()), (address(BACKEND_A), vec![1, 0]));
        }
        let mut more = 0;
        for i in 3..20 {
            let copy = under(&format!("z9hG4bK-copy-{i}"), &invite("a"));
            more += usize::from(forwarded(s.send(CALLER, &copy)).is_some());
        }
        assert_eq!(s.held().iter().sum::<u64>(), 4, "{mode:?}");
        // Each further lease allows further copies.
        assert!(more <= 3 + 3 * 3, "{more} of {mode:?}");
    }
}

// Swarm seed 10264. A proxy before this one forwards an INVITE, restarts, and forwards the caller's
// retransmission with another branch. RFC 6026 §7.1: the transaction of an answered INVITE
// continues for 64·T1 more.
#[test]
fn a_copy_of_an_answered_invite_is_no_other_call() {
    for mode in MODES {
        let mut s = limited(mode, [calls(2), calls(2)]);
        let there = call(&mut s, "a").unwrap();
        let copy = forwarded(s.send(CALLER, &under("z9hG4bK-copy", &invite("a")))).unwrap();
        assert_eq!((copy.to, s.held()), (there.to, vec![1, 0]), "{mode:?}");
        s.send(BACKEND_A, &copy.answer("482 Loop Detected"));
        end(&mut s, "a");
        assert_eq!(s.held(), [0, 0], "{mode:?}");
    }
}

// RFC 6026 §7.1: the UAS knows an answered INVITE for 64·T1. It takes a later copy for a new call.
#[test]
fn a_late_copy_of_an_answered_invite_is_another_call() {
    for mode in MODES {
        let copies = [under("z9hG4bK-copy", &invite("a")), invite("a")];
        for copy in copies {
            let mut s = alone(mode, calls(2));
            call(&mut s, "a").unwrap();
            s.rest(Duration::from_secs(34));
            let there = forwarded(s.send(CALLER, &copy)).unwrap();
            s.send(BACKEND_A, &there.answer("200 OK"));
            assert_eq!(s.held(), [2, 0], "{mode:?}");
            let copy = under("z9hG4bK-third", &copy).replace("CSeq: 1 ", "CSeq: 2 ");
            assert_eq!(s.status(CALLER, &copy), 503, "{mode:?}");
        }
    }
}

// RFC 3261 §12.2.2: the back end knows no dialog with exchanged tags, so the call continues.
#[test]
fn a_bye_with_exchanged_tags_ends_no_call() {
    for mode in MODES {
        for (number, outcome) in
            [Some("481 Gone"), Some("408 Request Timeout"), None].into_iter().enumerate()
        {
            let (mut s, _) = with_call(mode, "a");
            let bye = request("BYE", "sip:bob@192.0.2.1", "a", 2, "Totag\r\n");
            let bye = bye.replace("tag=caller", "tag=x").replace("tag=callee", "tag=caller");
            let bye = under(&format!("z9hG4bK-{number}"), &bye.replace("tag=x", "tag=callee"));
            let there = forwarded(s.send(CALLER, &bye)).unwrap();
            if let Some(outcome) = outcome {
                s.send(BACKEND_A, &there.answer(outcome));
            }
            s.rest(Duration::from_secs(100));
            assert_eq!(s.held(), [1, 0], "{mode:?} {outcome:?}");
            end(&mut s, "a");
            assert_eq!(s.held(), [0, 0], "{mode:?} {outcome:?}");
        }
    }
}

// RFC 3261 §15.1.2: "If the BYE does not match an existing dialog, the UAS core SHOULD generate a
// 481 (Call/Transaction Does Not Exist) response".
#[test]
fn a_bye_with_a_wrong_tag_ends_no_call() {
    for (mode, by_token) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let (mut s, there) = with_call(mode, "a");
        let route = format!("Route: {}\r\n", there.header("Record-Route"));
        let more = format!("Totag\r\n{}", if by_token { &route } else { "" });
        let bye = request("BYE", "sip:bob@192.0.2.1", "a", 2, &more);
        for (tag, wrong) in
            [(";tag=callee", ";tag=x"), (";tag=callee", ""), ("tag=caller", "tag=x")]
        {
            let forged = under(&format!("z9hG4bK-{tag}{wrong}"), &bye.replace(tag, wrong));
            for sent in s.send(STRANGER, &forged).into_iter().filter(|f| f.to == there.to) {
                s.send(BACKEND_A, &sent.answer("481 Call/Transaction Does Not Exist"));
            }
            s.pass(Duration::from_secs(100));
            assert_eq!(s.held(), [1, 0], "{mode:?} {by_token} {wrong}");
        }
        end(&mut s, "a");
        assert_eq!(s.held(), [0, 0]);
    }
}

// RFC 3261 §12.2.2: "If the remote sequence number was not empty, but the sequence number of the
// request is lower than the remote sequence number, the request is out of order and MUST be
// rejected with a 500 (Server Internal Error) response." The dialog continues.
#[test]
fn a_bye_that_the_back_end_does_not_accept_ends_no_call() {
    for mode in MODES {
        let (mut s, _) = with_call(mode, "a");
        for (cseq, status) in
            [(20, "500 Server Internal Error"), (21, "420 Bad Extension"), (22, "403 Forbidden")]
        {
            let bye = request("BYE", "sip:bob@192.0.2.1", "a", cseq, "Totag\r\n");
            let there = forwarded(s.send(CALLER, &bye)).unwrap();
            s.send(BACKEND_A, &there.answer(status));
            s.rest(Duration::from_secs(70));
            assert_eq!(s.held(), [1, 0], "{mode:?} {status}");
        }
        // A back end that reports overload gets no further request for 64·T1.
        let bye = request("BYE", "sip:bob@192.0.2.1", "a", 30, "Totag\r\n");
        let there = forwarded(s.send(CALLER, &bye)).unwrap();
        s.send(BACKEND_A, &there.answer("503 Service Unavailable"));
        assert_eq!(s.held(), [1, 0]);
        s.pass(Duration::from_secs(64));
        assert_eq!(s.held(), [0, 0], "{mode:?}");
    }
}

// RFC 3261 §9.1: a CANCEL has the branch of its INVITE.
#[test]
fn a_stranger_cancels_refreshes_and_prolongs_nothing() {
    for mode in MODES {
        let mut s = alone(mode, calls(5));
        let ringing = forwarded(s.send(CALLER, &invite("a"))).unwrap();
        s.send(BACKEND_A, &ringing.answer("180 Ringing"));
        let cancel = request("CANCEL", "sip:bob@192.0.2.1", "a", 1, "");
        let forged = under("z9hG4bK-x", &cancel);
        s.send(STRANGER, &forged);
        assert_eq!(s.counters.cancels.get(), 0);
        s.send(BACKEND_A, &ringing.answer("200 OK").replace("CSeq", "Session-Expires: 90\r\nCSeq"));
        s.send(CALLER, &request("ACK", "sip:bob@192.0.2.1", "a", 1, "Totag\r\n"));
        // RFC 4028 §8.2: a 2xx to a session refresh of this dialog sets its expiration.
        for i in 0..6 {
            let route = format!("Totag\r\nRoute: {}\r\n", ringing.header("Record-Route"));
            let update = request("UPDATE", "sip:bob@192.0.2.1", "a", 100 + i, &route);
            let update = update.replace(";tag=callee", ";tag=x");
            if let Some(there) = forwarded(s.send(STRANGER, &update)).filter(|f| f.to == ringing.to)
            {
                let longer =
                    there.answer("200 OK").replace("CSeq", "Session-Expires: 9000\r\nCSeq");
                s.send(BACKEND_A, &longer);
            }
            let options = request("OPTIONS", "sip:bob@192.0.2.1", "a", 200 + i, "");
            s.send(STRANGER, &options);
            assert_eq!(s.held(), [1, 0], "{mode:?}");
            s.rest(Duration::from_secs(20));
        }
        s.pass(Duration::from_secs(3));
        assert_eq!((s.held(), s.counters.calls_abandoned.get()), (vec![0, 0], 1), "{mode:?}");
    }
}

// RFC 3261 §13.3.1.4: "If the server retransmits the 2xx response for 64*T1 seconds without
// receiving an ACK, the dialog is confirmed, but the session SHOULD be terminated."
#[test]
fn an_answered_call_without_ack_is_held_for_twice_64_t1() {
    for mode in MODES {
        let mut s = alone(mode, calls(1));
        let there = forwarded(s.send(CALLER, &invite("a"))).unwrap();
        s.send(BACKEND_A, &there.answer("200 OK"));
        // An ACK from another source does not count.
        let ack = request("ACK", "sip:bob@192.0.2.1", "a", 1, "Totag\r\n");
        s.send(STRANGER, &under("z9hG4bK-x", &ack.replace(";tag=callee", ";tag=x")));
        s.pass(Duration::from_secs(63));
        assert_eq!(s.held(), [1, 0]);
        s.pass(Duration::from_secs(1));
        assert_eq!((s.held(), s.counters.calls_abandoned.get()), (vec![0, 0], 1), "{mode:?}");
    }
}

#[test]
fn one_call_is_no_way_around_the_limits() {
    for (mode, forgets) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let (mut s, there) = with_call(mode, "a");
        if forgets {
            // A new process knows only the route token, and not the call.
            s = alone(mode, calls(5));
        }
        let more = format!("Totag\r\nRoute: {}\r\n", there.header("Record-Route"));
        let info = |cseq| request("INFO", "sip:bob@192.0.2.1", "a", cseq, &more);
        let flood = |from: u32, s: &mut Script| {
            (from..from + 500)
                .filter(|&cseq| forwarded(s.send(CALLER, &info(cseq))).is_some())
                .count()
        };
        let first = flood(1000, &mut s);
        assert!((59..=60).contains(&first), "{first} at once: {mode:?}");
        assert_eq!(s.counters.dropped(DropReason::CallFlood).get(), 500 - first as u64);
        s.rest(Duration::from_secs(1));
        let next = flood(2000, &mut s);
        assert!((9..=11).contains(&next), "{next} a second later: {mode:?}");
        // A person dials digits during a call. Even if each digit is sent three times, the rate
        // stays far below the limit.
        s.rest(Duration::from_secs(40));
        let dropped = s.counters.dropped(DropReason::CallFlood).get();
        for cseq in 3000..3050 {
            let there = forwarded(s.send(CALLER, &info(cseq))).unwrap();
            s.send(CALLER, &info(cseq));
            s.send(CALLER, &info(cseq));
            s.send(BACKEND_A, &there.answer("200 OK"));
            s.pass(Duration::from_millis(150));
        }
        if !forgets {
            // Without a call entry, retransmissions cannot be recognized.
            assert_eq!(s.counters.dropped(DropReason::CallFlood).get(), dropped, "{mode:?}");
        }
    }
}

// A route token does not expire with its call, so an old token alone must prove nothing.
#[test]
fn a_token_of_yesterday_opens_nothing_by_itself() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    const NOW: Duration = Duration::from_secs(1_800_000_000);
    let started = |start: Duration| {
        Script::with(Policy::Rr, |settings| {
            (settings.start, settings.idle_max) = (start, 3 * DAY);
        })
    };
    let mut s = started(NOW);
    let there = call(&mut s, "a").unwrap();
    let more = format!("Totag\r\nRoute: {}\r\n", there.header("Record-Route"));
    let info = |cseq| request("INFO", "sip:bob@192.0.2.1", "a", cseq, &more);
    for (later, status) in [(Duration::ZERO, None), (DAY, None), (2 * DAY, Some(481))] {
        let mut other = started(NOW + later);
        let sent = other.one(CALLER, &info(2));
        assert_eq!(sent.start().starts_with("SIP/2.0 481"), status.is_some(), "{later:?}");
        assert_eq!(sent.to == there.to, status.is_none());
    }
    // A clock that is set back, or was never set, interrupts no call. Time does not interrupt a
    // known call either.
    for start in [Duration::ZERO, NOW - 100 * DAY] {
        assert_eq!(started(start).one(CALLER, &info(2)).to, there.to);
    }
    s.pass(2 * DAY);
    assert_eq!(s.one(CALLER, &info(3)).to, there.to);
}

// An INVITE of a stranger with the Call-ID of a call does not displace the call.
#[test]
fn a_call_ends_although_others_have_its_call_id() {
    for mode in MODES {
        let mut s = alone(mode, Limits::default());
        call(&mut s, "a").unwrap();
        let other = request("INVITE", "sip:eve@192.0.2.1", "a", 7, "").replace("caller", "eve");
        let there = forwarded(
            s.send(STRANGER, &other)
                .into_iter()
                .filter(|f| f.start().starts_with("INVITE"))
                .collect(),
        )
        .unwrap();
        let answer = there.answer("200 OK").replace(";tag=callee", ";tag=other");
        s.send(BACKEND_A, &answer);
        assert_eq!(s.held(), [2, 0]);
        end(&mut s, "a");
        assert_eq!(s.held(), [1, 0], "{mode:?}");
        let bye = request("BYE", "sip:eve@192.0.2.1", "a", 8, "Totag\r\n");
        let bye = bye.replace("caller", "eve").replace(";tag=callee", ";tag=other");
        let there = forwarded(s.send(CALLER, &bye)).unwrap();
        s.send(BACKEND_A, &there.answer("200 OK"));
        assert_eq!(s.held(), [0, 0], "{mode:?}");
    }
}
