//! Tests which requests with the Call-ID of a known call count as new work for the limits.

use crate::limited::*;
use crate::script::{BACKEND_A, BACKEND_B, CALLER, Sent, address, invite, request};
use tidegate_balance::{AdminState, Limits};
use tidegate_proxy::Mode;

const MODES: [Mode; 2] = [Mode::Transaction, Mode::Stateless];

/// Makes another INVITE with the Call-ID of `name`.
fn again(name: &str, cseq: u32, more: &str) -> String {
    request("INVITE", "sip:bob@192.0.2.1", name, cseq, more)
}

/// Makes a copy of the INVITE of `name` with this CSeq that took another path, and so has another
/// branch.
fn copy_of(name: &str, cseq: u32) -> String {
    again(name, cseq, "").replacen("z9hG4bK-", "z9hG4bK-copy-", 1)
}

fn route(there: &Sent) -> String {
    format!("Route: {}\r\n", there.header("Record-Route"))
}

#[test]
fn an_invite_back_to_the_calling_back_end_takes_headroom_or_is_rejected() {
    const OUTSIDE: &str = "203.0.113.9:5060";
    for (mode, is_up) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let mut s = limited(mode, [calls(1), calls(2)]);
        assert_eq!(call(&mut s, "1").unwrap().to, address(BACKEND_A));
        let sent = s.send(BACKEND_A, &request("INVITE", "sip:eve@203.0.113.9", "own", 1, ""));
        let outward = sent.into_iter().find(|sent| sent.to == address(OUTSIDE)).unwrap();
        if is_up {
            s.send(OUTSIDE, &outward.answer("200 OK"));
        }
        assert_eq!(s.held(), [1, 0], "what a back end sends is not counted");
        // The other back end has headroom, but is not involved.
        assert_eq!(s.status(CALLER, &again("own", 2, "")), 503);
        assert_eq!((s.held(), rejected(&s)), (vec![1, 0], 1), "{mode:?}");
        end(&mut s, "1");
        let back = forwarded(s.send(CALLER, &again("own", 3, ""))).unwrap();
        assert_eq!((back.to, s.held()), (address(BACKEND_A), vec![1, 0]));
        assert_eq!(call(&mut s, "2").unwrap().to, address(BACKEND_B));
        if !is_up {
            // At the back end where the call is counted, another copy takes no further lease.
            let copy = forwarded(s.send(CALLER, &copy_of("own", 3))).unwrap();
            assert_eq!((copy.to, s.held()), (address(BACKEND_A), vec![1, 1]));
        }
        if is_up {
            end(&mut s, "own");
            assert_eq!(s.held(), [0, 1]);
        }
    }
}

#[test]
fn an_invite_by_the_token_of_an_ended_call_takes_headroom_or_is_rejected() {
    for mode in MODES {
        let mut s = limited(mode, [calls(1), calls(5)]);
        let route = route(&call(&mut s, "1").unwrap());
        end(&mut s, "1");
        let there = ["2", "3"].map(|name| call(&mut s, name).unwrap().to);
        assert_eq!((there, s.held()), ([BACKEND_B, BACKEND_A].map(address), vec![1, 1]));
        assert_eq!(s.status(CALLER, &again("1", 5, &route)), 503);
        assert_eq!((s.held(), rejected(&s)), (vec![1, 1], 1), "{mode:?}");
        end(&mut s, "3");
        let there = forwarded(s.send(CALLER, &again("1", 6, &route))).unwrap();
        assert_eq!((there.to, s.held()), (address(BACKEND_A), vec![1, 1]));

        // A restarted process knows the token but not the call.
        let mut s = limited(mode, [calls(1), calls(5)]);
        call(&mut s, "2");
        assert_eq!(s.status(CALLER, &again("1", 7, &route)), 503);
        end(&mut s, "2");
        let there = forwarded(s.send(CALLER, &again("1", 8, &route))).unwrap();
        assert_eq!((there.to, s.held()), (address(BACKEND_A), vec![1, 0]));
        s.send(BACKEND_A, &there.answer("486 Busy Here"));
        assert_eq!(s.held(), [0, 0]);
    }
}

// RFC 3261 §8.2.2.2: "The same request has arrived at the UAS more than once, following different
// paths, most likely due to forking."
#[test]
fn another_copy_of_a_counted_call_is_not_limited_and_does_not_move_it() {
    for mode in MODES {
        let mut s = limited(mode, [calls(1), calls(1)]);
        assert_eq!(forwarded(s.send(CALLER, &invite("1"))).unwrap().to, address(BACKEND_A));
        let copy = forwarded(s.send(CALLER, &copy_of("1", 1))).unwrap();
        assert_eq!((copy.to, s.held(), rejected(&s)), (address(BACKEND_A), vec![1, 0], 0));
        s.send(BACKEND_A, &copy.answer("503 Busy"));
        assert_eq!(s.held(), [1, 0], "the call keeps its lease: {mode:?}");
    }
}

#[test]
fn a_repetition_of_an_ended_call_stays_at_its_back_end_or_counts_again() {
    let rejected = || {
        let mut s = limited(Mode::Stateless, [Limits::default(), calls(1)]);
        let first = forwarded(s.send(CALLER, &invite("1"))).unwrap();
        s.send(BACKEND_A, &first.answer("486 Busy Here"));
        s
    };
    let mut s = rejected();
    s.rejected(BACKEND_A);
    assert_eq!(s.one(CALLER, &invite("1")).to, address(BACKEND_B));
    assert_eq!(s.held(), [0, 1]);

    let mut s = rejected();
    s.backends.backends()[0].set_admin_state(s.now, AdminState::Draining);
    assert_eq!(s.one(CALLER, &invite("1")).to, address(BACKEND_A));
    // The repeated INVITE with credentials is a new call.
    assert_eq!(s.one(CALLER, &again("1", 2, "")).to, address(BACKEND_B));
    assert_eq!(s.held(), [0, 1]);
    // A retransmission of the first call does not move the second: they are different calls.
    s.gone(1);
    s.backends.backends()[0].set_admin_state(s.now, AdminState::InService);
    let late = s.one(CALLER, &invite("1"));
    assert_eq!((late.to, s.held()), (address(BACKEND_A), vec![1, 1]));
    s.send(BACKEND_A, &late.answer("407 Proxy Authentication Required"));
    assert_eq!(s.held(), [0, 1]);
}

#[test]
fn a_repeated_emergency_call_finds_the_reserve() {
    let mut s = limited_with(Mode::Stateless, [calls(1), calls(1)], believe_emergencies);
    assert_eq!(forwarded(s.send(CALLER, &emergency("112"))).unwrap().to, address(BACKEND_A));
    assert_eq!(call(&mut s, "2").unwrap().to, address(BACKEND_B));
    s.rejected(BACKEND_A);
    let there = forwarded(s.send(CALLER, &emergency("112"))).unwrap();
    assert_eq!((there.to, s.held()), (address(BACKEND_B), vec![0, 2]));
    // Another call with that Call-ID does not get priority because of this call.
    s.send(BACKEND_B, &there.answer("486 Busy Here"));
    s.pass(ms(10_000));
    assert_eq!(call(&mut s, "3").unwrap().to, address(BACKEND_A));
    assert_eq!(s.status(CALLER, &again("112", 2, "")), 503);
}

#[test]
fn a_call_without_room_for_its_transaction_uses_no_rate() {
    let mut s = limited_with(Mode::Transaction, [rate(0.01), rate(0.01)], |settings| {
        settings.transactions_max = 2;
        // The share of one source would be half of the table.
        settings.listeners[0].trust = vec!["198.51.100.7/32".parse().unwrap()];
    });
    let other = forwarded(s.send(CALLER, &invite("other"))).unwrap();
    s.send(BACKEND_A, &other.answer("486 Busy Here"));
    s.pass(ms(20_000));
    let first = forwarded(s.send(CALLER, &invite("1"))).unwrap();
    assert_eq!(first.to, address(BACKEND_B));
    s.send(BACKEND_B, &first.answer("401 Unauthorized"));
    for cseq in 2..10 {
        assert_eq!(s.status(CALLER, &again("1", cseq, "")), 503);
    }
    assert_eq!(rejected(&s), 0);
    // RFC 3261 §17.1.1.2: Timer D of the first call, 32 s.
    s.rest(ms(13_000));
    // The burst is two, and one is left.
    let there = forwarded(s.send(CALLER, &again("1", 20, ""))).unwrap();
    assert_eq!(there.to, address(BACKEND_B));
}
