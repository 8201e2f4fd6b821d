//! Tests that a call stays and is counted at its back end, and moves if the back end is down.

use std::time::Duration;

use crate::script::*;
use tidegate_balance::Policy;
use tidegate_proxy::{Mode, PoolSettings};
use tidegate_world::Core;

/// Makes a request from a caller that ignores Record-Route: addressed to us, without Route.
fn bare(method: &str, call: &str, cseq: u32) -> String {
    request(method, "sip:service@192.0.2.1:5060", call, cseq, "Totag\r\n")
}

fn counts(script: &Script) -> Vec<(u64, u64)> {
    script.backends.backends().iter().map(|b| (b.calls(), b.work())).collect()
}

#[test]
fn a_caller_that_ignores_record_route_is_served_by_the_call_table() {
    let mut script = Script::new();
    for call in ["a", "b", "c", "d"] {
        let sent = script.one(CALLER, &invite(call));
        let backend = sent.to.to_string();
        script.one(&backend, &sent.answer("200 OK"));
        for (method, cseq) in [("ACK", 1), ("INVITE", 2), ("ACK", 2), ("INFO", 3), ("BYE", 4)] {
            let next = script.one(CALLER, &bare(method, call, cseq));
            assert_eq!(next.to, sent.to, "{method}");
            if method != "ACK" {
                script.one(&backend, &next.answer("200 OK"));
            }
        }
    }
    assert_eq!(counts(&script), [(0, 0), (0, 0)]);
    let assigned: Vec<_> = script.backends.backends().iter().map(|b| b.assigned()).collect();
    assert_eq!(assigned, [2, 2]);
}

#[test]
fn a_call_counts_on_its_back_end_while_it_lasts() {
    let mut script = Script::with(Policy::Cjsq, |_| {});
    let mut held = Vec::new();
    for call in ["a", "b", "c"] {
        let sent = script.one(CALLER, &invite(call));
        script.one(&sent.to.to_string(), &sent.answer("200 OK"));
        held.push((call, sent.to));
    }
    assert_eq!(counts(&script), [(2, 0), (1, 0)]);
    // The calls a and c are at one back end. After both have ended, it has the fewest calls.
    for (call, to) in [held[0], held[2]] {
        let bye = script.one(CALLER, &bare("BYE", call, 2));
        assert_eq!(bye.to, to);
        script.one(&to.to_string(), &bye.answer("200 OK"));
    }
    assert_eq!(counts(&script), [(0, 0), (1, 0)]);
    assert_eq!(script.one(CALLER, &invite("d")).to, held[0].1);
}

// RFC 3261 §9.1: the CANCEL goes to the target of its INVITE.
#[test]
fn a_cancelled_call_counts_no_more() {
    let mut script = Script::with(Policy::Tlwl, |_| {});
    let sent = script.one(CALLER, &invite("a"));
    let backend = sent.to.to_string();
    script.one(&backend, &sent.answer("180 Ringing"));
    let cancel = script.one(CALLER, &request("CANCEL", "sip:bob@192.0.2.1", "a", 1, ""));
    assert_eq!(cancel.to, sent.to);
    script.one(&backend, &cancel.answer("200 OK"));
    assert_eq!(counts(&script), [(1, 175), (0, 0)]);
    script.one(&backend, &sent.answer("487 Request Terminated"));
    assert_eq!(counts(&script), [(0, 0), (0, 0)]);
    assert_eq!(script.one(CALLER, &bare("ACK", "a", 1)).to, sent.to);
}

#[test]
fn a_back_ends_bye_ends_the_call() {
    let mut script = Script::with(Policy::Cjsq, |_| {});
    let sent = script.one(CALLER, &invite("a"));
    let backend = sent.to.to_string();
    script.one(&backend, &sent.answer("200 OK"));
    let route = format!("Totag\r\nRoute: {}\r\n", sent.header("Record-Route"));
    let bye = script.one(&backend, &request("BYE", "sip:alice@198.51.100.7", "a", 1, &route));
    assert_eq!(counts(&script), [(1, 0), (0, 0)]);
    script.one(CALLER, &bye.answer("200 OK"));
    assert_eq!(counts(&script), [(0, 0), (0, 0)]);
}

// RFC 3261 §12.2.1.1: the callee starts its own CSeq numbers at any value.
#[test]
fn a_back_ends_requests_neither_weigh_on_it_nor_repeat_the_callers() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("a"));
    script.one(BACKEND_A, &sent.answer("200 OK"));
    for cseq in [1, 100] {
        let info = request("INFO", "sip:alice@198.51.100.7", "a", cseq, "Totag\r\n");
        script.one(BACKEND_A, &info);
        assert_eq!(counts(&script), [(1, 0), (0, 0)]);
    }
    assert_eq!(script.counters.retransmissions.get(), 0);
    // The CSeq numbers of the callee do not affect the record of the caller's numbers.
    script.one(CALLER, &bare("INFO", "a", 2));
    script.one(CALLER, &bare("INFO", "a", 2));
    assert_eq!(script.counters.retransmissions.get(), 1);
}

#[test]
fn repetitions_of_an_unanswered_call_leave_a_back_end_that_is_down() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("a"));
    assert_eq!(sent.to, address(BACKEND_A));
    script.rejected(BACKEND_A);
    let again = script.one(CALLER, &invite("a"));
    assert_eq!(again.to, address(BACKEND_B));
    assert_eq!(counts(&script), [(0, 0), (1, 175)]);
    // The call and all its messages stay at the new back end.
    script.pass(Duration::from_secs(10));
    assert_eq!(script.one(CALLER, &invite("a")).to, address(BACKEND_B));
    script.one(BACKEND_B, &again.answer("200 OK"));
    assert_eq!(script.one(CALLER, &bare("BYE", "a", 2)).to, address(BACKEND_B));
}

/// RFC 3261 §16.11: "In particular, a retransmitted request MUST be forwarded to the same
/// destination each time it is processed."
///
/// A back end that is a proxy sends its leg of the call through this proxy, with the address of the
/// callee as Request-URI. Without transactions, a retransmission of the caller became another call.
#[test]
fn a_retransmission_follows_its_call_after_the_leg_of_the_back_end() {
    let leg = request("INVITE", "sip:bob@203.0.113.7:5060", "a", 1, "");
    let leg = leg.replace(CALLER, BACKEND_A).replace("z9hG4bK-a", "z9hG4bK-leg");
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("a"));
    assert_eq!(sent.to, address(BACKEND_A));
    let outward = script.one(BACKEND_A, &leg);
    for (from, text, first) in [(CALLER, invite("a"), &sent), (BACKEND_A, leg, &outward)] {
        assert_eq!(script.one(from, &text), *first);
    }
    assert_eq!((counts(&script), script.counters.calls.get()), (vec![(1, 175), (0, 0)], 1));
    // After a challenge both legs begin again, with another CSeq.
    script.one("203.0.113.7:5060", &outward.answer("407 Proxy Authentication Required"));
    script.one(BACKEND_A, &sent.answer("407 Proxy Authentication Required"));
    assert_eq!(counts(&script), [(0, 0), (0, 0)]);
    let again = request("INVITE", "sip:bob@192.0.2.1", "a", 2, "");
    let sent = script.one(CALLER, &again);
    assert_eq!(sent.to, address(BACKEND_A));
    let leg = request("INVITE", "sip:bob@203.0.113.7:5060", "a", 2, "");
    let leg = leg.replace(CALLER, BACKEND_A).replace("z9hG4bK-a", "z9hG4bK-leg");
    script.one(BACKEND_A, &leg);
    assert_eq!(script.one(CALLER, &again), sent);
    assert_eq!(counts(&script), [(1, 175), (0, 0)]);
}

#[test]
fn an_answered_call_always_stays_with_its_back_end() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("a"));
    script.one(BACKEND_A, &sent.answer("180 Ringing"));
    script.rejected(BACKEND_A);
    assert_eq!(script.one(CALLER, &invite("a")).to, address(BACKEND_A));
    assert_eq!(script.one(CALLER, &invite("b")).to, address(BACKEND_B));
    assert_eq!(script.one(CALLER, &invite("c")).to, address(BACKEND_B));
}

#[test]
fn with_every_back_end_down_new_calls_are_rejected_until_one_is_tried_again() {
    let mut script = Script::new();
    script.gone(0);
    script.gone(1);
    assert_eq!(script.status(CALLER, &invite("a")), 503);
    assert_eq!(script.counters.calls.get(), 0);
    script.pass(Duration::from_secs(5));
    assert_eq!(script.one(CALLER, &invite("b")).to, address(BACKEND_A));
}

#[test]
fn a_full_table_rejects_new_calls_only() {
    let mut script = Script::with(Policy::Rr, |settings| settings.calls_max = 2);
    for call in ["a", "b"] {
        let sent = script.one(CALLER, &invite(call));
        script.one(&sent.to.to_string(), &sent.answer("200 OK"));
    }
    assert_eq!(script.status(CALLER, &invite("c")), 503);
    let bye = script.one(CALLER, &bare("BYE", "a", 2));
    script.one(&bye.to.to_string(), &bye.answer("200 OK"));
    // This INVITE comes from another source, because the first source has used its half of this
    // small table.
    script.one("198.51.100.8:5060", &invite("d"));
    assert_eq!(script.counters.calls_evicted.get(), 1);
    assert_eq!(script.counters.calls_rejected.get(), 1, "c");
}

#[test]
fn a_call_that_nobody_answers_ends_when_its_timer_fires() {
    let mut script = Script::new();
    script.one(CALLER, &invite("a"));
    let published =
        |script: &Script| (script.counters.calls.get(), script.counters.transactions_open.get());
    assert_eq!((counts(&script)[0], published(&script)), ((1, 175), (1, 1)));
    // 64·T1, RFC 3261 §17.1.1.2.
    script.pass(Duration::from_secs(32));
    // The entry is kept for late rejections.
    assert_eq!((counts(&script)[0], published(&script)), ((0, 0), (1, 0)));
    script.pass(Duration::from_secs(32));
    assert_eq!(published(&script), (0, 0));
    assert_eq!(script.proxy.poll_timeout(), None);
}

#[test]
fn the_entry_of_a_registration_is_kept_for_64_t1_only() {
    let mut script = Script::new();
    script.one(CALLER, &request("REGISTER", "sip:192.0.2.1", "r", 1, ""));
    script.pass(Duration::from_secs(32));
    assert_eq!(script.proxy.poll_timeout(), None);
}

// A new request with an old Call-ID moves away from a back end that is down. RFC 3261 §10.2: all
// REGISTERs of a client share one Call-ID. §22.2: an INVITE and its second attempt with credentials
// share one too.
#[test]
fn a_new_request_with_an_old_call_id_leaves_a_back_end_that_is_down() {
    let mut script = Script::new();
    let register = |cseq| request("REGISTER", "sip:192.0.2.1", "r", cseq, "");
    let sent = script.one(CALLER, &register(1));
    script.one(BACKEND_A, &sent.answer("200 OK"));
    assert_eq!(script.one(CALLER, &register(2)).to, address(BACKEND_A));
    let rejected = script.one(CALLER, &invite("i"));
    script.one(BACKEND_B, &rejected.answer("407 Proxy Authentication Required"));
    script.rejected(BACKEND_A);
    assert_eq!(script.one(CALLER, &register(3)).to, address(BACKEND_B));

    script.pass(Duration::from_secs(6));
    script.rejected(BACKEND_B);
    let again = request("INVITE", "sip:bob@192.0.2.1", "i", 2, "");
    assert_eq!(script.one(CALLER, &again).to, address(BACKEND_A));
    assert_eq!(script.counters.moved.get(), 2);
}

#[test]
fn registers_with_one_call_id_stay_at_one_back_end() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &request("REGISTER", "sip:192.0.2.1", "r", 1, ""));
    // A REGISTER is refreshed with the same Call-ID (RFC 3261 §10.2), so it stays at one back end.
    for cseq in 2..6 {
        script.one(&sent.to.to_string(), &sent.answer("200 OK"));
        assert_eq!(
            script.one(CALLER, &request("REGISTER", "sip:192.0.2.1", "r", cseq, "")).to,
            sent.to
        );
    }
    assert_eq!(counts(&script)[1], (0, 0));
}

/// The call `old` of an earlier process had the slot that the call `new` has in this process. A
/// response to `old` is forwarded and does not change `new`.
#[test]
fn a_response_to_a_call_of_before_a_restart_touches_no_call() {
    let old = Script::new().one(CALLER, &invite("old"));
    let mut script = Script::new();
    let new = script.one(CALLER, &invite("new"));
    assert_eq!((old.to, new.to), (address(BACKEND_A), address(BACKEND_A)));
    assert_eq!(counts(&script), [(1, 175), (0, 0)]);

    let back = script.one(BACKEND_A, &old.answer("486 Busy Here"));
    assert_eq!((back.start(), back.to), ("SIP/2.0 486 Busy Here", address(CALLER)));
    assert_eq!(counts(&script), [(1, 175), (0, 0)]);
    script.one(BACKEND_A, &new.answer("486 Busy Here"));
    assert_eq!(counts(&script), [(0, 0), (0, 0)]);
}

// Swarm seed 690235: an INVITE went to one back end before a crash of the proxy, and its copy to
// another one afterwards. Both answered, so the caller got two dialogs and ended both.
#[test]
fn a_dialog_with_a_back_end_of_before_a_restart_does_not_keep_the_call() {
    let first = Script::new().one(CALLER, &invite("a"));
    let mut script = Script::new();
    script.one(CALLER, &invite("other"));
    let second = script.one(CALLER, &invite("a"));
    assert_eq!((first.to, second.to), (address(BACKEND_A), address(BACKEND_B)));

    script.one(BACKEND_B, &second.answer("200 OK"));
    script.one(CALLER, &bare("ACK", "a", 1));
    script.one(BACKEND_A, &first.answer("200 OK").replace("tag=callee", "tag=earlier"));
    let bye = script.one(CALLER, &bare("BYE", "a", 2));
    script.one(BACKEND_B, &bye.answer("200 OK"));
    assert_eq!(counts(&script)[1], (0, 0), "the call at the second back end has ended");
    let route = format!("Totag\r\nRoute: {}\r\n", first.header("Record-Route"));
    let bye = request("BYE", "sip:bob@10.0.0.1:5070", "a", 2, &route).replace("callee", "earlier");
    let bye = script.one(CALLER, &bye.replace("z9hG4bK-a-2", "z9hG4bK-a-3"));
    assert_eq!(bye.to, first.to);
    script.one(BACKEND_A, &bye.answer("200 OK"));
    assert_eq!(counts(&script), [(1, 175), (0, 0)]);
}

/// A regression: the call was not counted at the back end that had answered it, and its ACK did not
/// acknowledge it.
///
/// RFC 3261 §13.2.2.4: "The UAC core considers the INVITE transaction completed 64*T1 seconds after the
/// reception of the first 2xx response." Until then, another back end may answer too.
#[test]
fn the_back_end_that_answers_first_has_the_call_even_if_the_call_has_moved_away() {
    for answers_too in [false, true] {
        let mut script = Script::new();
        let first = script.one(CALLER, &invite("a"));
        script.gone(0);
        let second = script.one(CALLER, &invite("a"));
        assert_eq!((first.to, second.to), (address(BACKEND_A), address(BACKEND_B)));
        script.one(BACKEND_A, &first.answer("200 OK"));
        assert_eq!(counts(&script), [(1, 0), (0, 0)]);
        let more = |sent: &Sent| format!("Totag\r\nRoute: {}\r\n", sent.header("Record-Route"));
        let to_a = more(&first);
        let within = |method, number| request(method, "sip:bob@10.0.0.1:5070", "a", number, &to_a);
        script.one(CALLER, &within("ACK", 1));
        if answers_too {
            let ok = second.answer("200 OK").replace("tag=callee", "tag=other");
            script.one(BACKEND_B, &ok);
            let bye = request("BYE", "sip:bob@10.0.0.2:5070", "a", 2, &more(&second));
            let bye = script.one(CALLER, &bye.replace("tag=callee", "tag=other"));
            assert_eq!(bye.to, second.to);
            script.one(BACKEND_B, &bye.answer("200 OK"));
        }
        assert_eq!(counts(&script)[0], (1, 0));
        assert!(script.proxy.is_drained(), "the ACK has arrived");
        let bye = script.one(CALLER, &within("BYE", 3));
        assert_eq!(bye.to, first.to);
        script.one(BACKEND_A, &bye.answer("200 OK"));
        assert_eq!(counts(&script), [(0, 0), (0, 0)]);
        assert!(script.proxy.is_drained());
    }
}

/// A regression: after a move to a backup pool, the call was not counted at the back end that had answered
/// it. RFC 3261 §13.2.2.4, as above.
#[test]
fn the_back_end_that_answers_first_has_the_call_even_if_it_has_moved_to_a_backup_pool() {
    let [app, spare] = [("app", BACKEND_A), ("spare", BACKEND_B)]
        .map(|(pool, at)| tidegate_balance::Pool::new(pool, &[(at, address(at), 1)]));
    let mut script = Script::with(Policy::Rr, |settings| {
        let app = PoolSettings { backup: Some(1), ..stateless(app) };
        settings.pools = vec![app, stateless(spare.clone())];
    });
    let calls =
        |script: &Script| (script.backends.backends()[0].calls(), spare.backends()[0].calls());
    let first = script.one(CALLER, &invite("a"));
    script.gone(0);
    let second = script.one(CALLER, &invite("a"));
    assert_eq!((first.to, second.to), (address(BACKEND_A), address(BACKEND_B)));
    assert_eq!(calls(&script), (0, 1));
    script.one(BACKEND_A, &first.answer("200 OK"));
    assert_eq!(calls(&script), (1, 0));
    let route = format!("Totag\r\nRoute: {}\r\n", first.header("Record-Route"));
    let within = |method, number| request(method, "sip:bob@10.0.0.1:5070", "a", number, &route);
    script.one(CALLER, &within("ACK", 1));
    assert!(script.proxy.is_drained(), "the ACK has arrived");
    let bye = script.one(CALLER, &within("BYE", 2));
    script.one(BACKEND_A, &bye.answer("200 OK"));
    assert_eq!(calls(&script), (0, 0));
}

/// Makes a proxy without transactions that has these back ends.
fn among(backends: &[&str]) -> Script {
    Script::with(Policy::Rr, |settings| {
        let backends: Vec<_> = backends.iter().map(|&at| (at, address(at), 1)).collect();
        settings.pools[0] = stateless(tidegate_balance::Pool::new("app", &backends));
    })
}

/// A regression: the call settled at the back end of the last leg, which had answered only this leg.
///
/// RFC 3261 §16.6 item 4: the proxy "MUST insert a Record-Route header field value into the copy before any
/// existing Record-Route header field values". So the value of the last leg is first.
#[test]
fn a_call_with_two_legs_through_this_proxy_settles_at_the_back_end_that_answers() {
    // The token of a leg to the third back end.
    let leg = among(&[BACKEND_C]).one(CALLER, &invite("a"));
    assert_eq!(leg.to, address(BACKEND_C));
    let mut script = among(&[BACKEND_A, BACKEND_B, BACKEND_C]);
    let first = script.one(CALLER, &invite("a"));
    script.gone(0);
    let second = script.one(CALLER, &invite("a"));
    assert_eq!((first.to, second.to), (address(BACKEND_A), address(BACKEND_B)));
    let of_leg = format!("Record-Route: {}\r\nRecord-Route", leg.header("Record-Route"));
    let ok = first.answer("200 OK").replacen("Record-Route", &of_leg, 1);
    script.one(BACKEND_A, &ok);
    assert_eq!(counts(&script), [(1, 0), (0, 0), (0, 0)]);
}

/// A regression: the call counted until it was idle for too long, because the dialog with the second back
/// end counted as a dialog of the call.
///
/// RFC 3261 §8.2.2.2: "The same request has arrived at the UAS more than once, following different paths,
/// most likely due to forking."
#[test]
fn a_copy_that_another_back_end_answers_later_does_not_keep_the_call() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let copies = ["z9hG4bK-a", "z9hG4bK-copy"].map(|to| invite("a").replace("z9hG4bK-a", to));
        let first = copies.clone().map(|text| script.send(CALLER, &text).pop().unwrap());
        assert!(first.iter().all(|sent| sent.to == address(BACKEND_A)));
        let second: Vec<Sent> = if mode == Mode::Transaction {
            script.pass(Duration::from_secs(4));
            script.sent()
        } else {
            script.gone(0);
            copies.iter().flat_map(|text| script.send(CALLER, text)).collect()
        };
        let is_copy = |sent: &&Sent| sent.to == address(BACKEND_B) && sent.text.contains("-copy");
        let second = second.iter().find(is_copy).expect("the copy at the second back end");
        script.send(BACKEND_A, &first[0].answer("200 OK"));
        assert_eq!(counts(&script), [(1, 175), (0, 0)], "{mode:?}");
        script.send(BACKEND_B, &second.answer("200 OK").replace("tag=callee", "tag=other"));
        assert_eq!(counts(&script), [(1, 0), (0, 0)], "{mode:?}");
        for (sent, to, tag, number) in [
            (second, "sip:bob@10.0.0.2:5070", "tag=other", 2),
            (&first[0], "sip:bob@10.0.0.1:5070", "tag=callee", 3),
        ] {
            let route = format!("Totag\r\nRoute: {}\r\n", sent.header("Record-Route"));
            let bye = request("BYE", to, "a", number, &route).replace("tag=callee", tag);
            let bye = script.one(CALLER, &bye);
            assert_eq!(bye.to, sent.to, "{mode:?}");
            script.send(&bye.to.to_string(), &bye.answer("200 OK"));
        }
        assert_eq!(counts(&script), [(0, 0), (0, 0)], "{mode:?}");
    }
}

/// A regression of the rule about a dialog with another back end: the INVITE did not go to the back end of
/// the call entry.
#[test]
fn a_call_from_one_back_end_to_another_ends_with_its_bye() {
    let mut script = Script::new();
    let to_b = |method, number, more: &str| {
        request(method, "sip:bob@10.0.0.2:5070", "a", number, more).replace(CALLER, BACKEND_A)
    };
    let sent = script.one(BACKEND_A, &to_b("INVITE", 1, ""));
    assert_eq!(sent.to, address(BACKEND_B));
    script.one(BACKEND_B, &sent.answer("200 OK"));
    let more = format!("Totag\r\nRoute: {}\r\n", sent.header("Record-Route"));
    script.one(BACKEND_A, &to_b("ACK", 1, &more));
    let bye = script.one(BACKEND_A, &to_b("BYE", 2, &more));
    script.one(BACKEND_B, &bye.answer("200 OK"));
    assert_eq!(script.counters.calls_over.get(), 1);
    assert!(script.proxy.is_drained());
}

// Between two back ends our token names the sender. Here it is not the back end of the call entry.
#[test]
fn a_call_between_back_ends_with_the_call_id_of_an_ended_call_ends_with_its_bye() {
    let mut script = among(&[BACKEND_A, BACKEND_B, BACKEND_C]);
    let first = script.one(CALLER, &invite("a"));
    script.one(BACKEND_A, &first.answer("486 Busy Here"));
    let to_c = |method, number, more: &str| {
        let text = request(method, "sip:bob@10.0.0.3:5070", "a", number, more);
        text.replace(CALLER, BACKEND_B).replace("z9hG4bK-", "z9hG4bK-b-").replace("caller", "b")
    };
    let sent = script.one(BACKEND_B, &to_c("INVITE", 7, ""));
    script.one(BACKEND_C, &sent.answer("200 OK"));
    let more = format!("Totag\r\nRoute: {}\r\n", sent.header("Record-Route"));
    script.one(BACKEND_B, &to_c("ACK", 7, &more));
    let bye = script.one(BACKEND_B, &to_c("BYE", 8, &more));
    script.one(BACKEND_C, &bye.answer("200 OK"));
    assert!(script.proxy.is_drained());
}

// A server may answer from another of its addresses, which may be a back end too.
#[test]
fn a_server_may_answer_from_the_address_of_another_back_end() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("a"));
    script.one(BACKEND_B, &sent.answer("200 OK"));
    let more = format!("Totag\r\nRoute: {}\r\n", sent.header("Record-Route"));
    let within = |method, number| request(method, "sip:bob@10.0.0.1:5070", "a", number, &more);
    script.one(CALLER, &within("ACK", 1));
    let bye = script.one(CALLER, &within("BYE", 2));
    assert_eq!((bye.to, counts(&script)[0]), (address(BACKEND_A), (1, 100)));
    script.one(BACKEND_B, &bye.answer("200 OK"));
    assert_eq!(counts(&script)[0], (0, 0));
}

/// Makes a proxy with transactions that abandons back ends only at Timer B.
fn patient() -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.pools[0].failover_after = Duration::from_secs(60);
    })
}

// Swarm seed 443: the call entry expired at the time at which the transaction failed over, so the
// call was counted at no back end.
#[test]
fn a_call_that_goes_elsewhere_at_timer_b_counts_there() {
    let mut script = patient();
    script.send(CALLER, &invite("a"));
    script.pass(Duration::from_secs(32));
    let second = script.sent().pop().unwrap();
    assert_eq!(second.to, address(BACKEND_B));
    assert_eq!(counts(&script), [(0, 0), (1, 175)]);
    script.send(BACKEND_B, &second.answer("200 OK"));
    assert_eq!(counts(&script), [(0, 0), (1, 0)]);
}

// Swarm seed 82: if a retransmission is rejected because no back end is left, the call is over.
#[test]
fn a_call_that_is_rejected_at_its_repetition_counts_no_more() {
    let mut script = Script::new();
    assert_eq!(script.one(CALLER, &invite("a")).to, address(BACKEND_A));
    assert_eq!(counts(&script), [(1, 175), (0, 0)]);
    script.gone(0);
    script.gone(1);
    assert_eq!(script.status(CALLER, &invite("a")), 503);
    assert_eq!(counts(&script), [(0, 0), (0, 0)]);
}

// Swarm seed 69. RFC 3261 §13.2.2.4: two back ends of a fork have answered, and the caller ends the
// dialog that it does not keep.
#[test]
fn a_bye_to_another_dialog_of_a_fork_leaves_the_call_counted() {
    let mut script = Script::forking(&[(BACKEND_A, 1000), (BACKEND_B, 1000)]);
    let sent = script.send(CALLER, &invite("a"));
    let [_trying, first, second] = &sent[..] else { panic!("{sent:#?}") };
    for branch in [first, second] {
        script.send(&branch.to.to_string(), &branch.answer("200 OK"));
    }
    assert_eq!(script.held(), [1, 0]);
    let route = format!("Totag\r\nRoute: {}\r\n", second.header("Record-Route"));
    let bye = script.one(CALLER, &request("BYE", "sip:bob@10.0.0.2:5070", "a", 2, &route));
    assert_eq!(bye.to, second.to);
    script.send(BACKEND_B, &bye.answer("200 OK"));
    assert_eq!(script.held(), [1, 0]);
}

#[test]
fn a_session_expires_by_its_timer_with_transactions_and_without() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut script = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let sent = script.send(CALLER, &invite("a")).pop().unwrap();
        let refreshed = |sent: &Sent| {
            sent.answer("200 OK").replace("CSeq", "Session-Expires: 100;refresher=uac\r\nCSeq")
        };
        script.send(BACKEND_A, &refreshed(&sent));
        script.send(CALLER, &bare("ACK", "a", 1));
        script.pass(Duration::from_secs(90));
        let update = script.send(CALLER, &bare("UPDATE", "a", 2)).pop().unwrap();
        script.send(BACKEND_A, &refreshed(&update));
        // The session expires 100 s after the refresh (RFC 4028 §8.2, §8.3). The call table keeps
        // the call for 64·T1 longer, because a refresh may wait for its response.
        script.pass(Duration::from_secs(100 + 31));
        assert_eq!((counts(&script)[0], script.counters.calls_abandoned.get()), ((1, 0), 0));
        script.pass(Duration::from_secs(1));
        assert_eq!((counts(&script)[0], script.counters.calls_abandoned.get()), ((0, 0), 1));
    }
}
