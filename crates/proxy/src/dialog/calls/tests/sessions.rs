//! Tests of session timers (RFC 4028).

use super::*;

// RFC 4028 §8.2: "the time when the 2xx response is forwarded upstream, plus the session interval";
// 64·T1 more for a refresh that is still to be answered.
#[test]
fn rfc4028_8_3_a_session_that_is_not_refreshed_is_given_up_when_it_has_expired() {
    let (mut t, call) = Table::calling();
    t.refreshed(call, Method::Invite, 1, 1800);
    t.request(call, Method::Ack, 1);
    t.request(call, Method::Ack, 1);
    t.pass(Duration::from_secs(1000));
    // RFC 4028 §10: "only a 2xx response to a session refresh request extends the session
    // expiration".
    t.request(call, Method::Info, 2);
    t.response(call, Method::Info, 2, 200);
    t.pass(Duration::from_secs(831));
    assert_eq!((t.counts(), t.calls.abandoned()), ((1, 0, 0), 0));
    t.pass(Duration::from_secs(1));
    assert_eq!((t.counts(), t.calls.len(), t.calls.abandoned()), ((0, 0, 0), 0, 1));
}

#[test]
fn rfc4028_8_2_each_2xx_to_a_refresh_updates_the_expiration() {
    for method in [Method::Invite, Method::Update] {
        let (mut t, call) = Table::calling();
        t.refreshed(call, Method::Invite, 1, 200);
        t.request(call, Method::Ack, 1);
        for cseq in 2..5 {
            t.pass(Duration::from_secs(150));
            t.request(call, method, cseq);
            // The response to this refresh, and a late response to the INVITE.
            t.refreshed(call, method, cseq, 200);
            t.refreshed(call, Method::Invite, 1, 9999);
        }
        t.pass(Duration::from_secs(231));
        assert_eq!(t.counts(), (1, 0, 0));
        t.pass(Duration::from_secs(1));
        assert_eq!(t.counts(), (0, 0, 0));
    }
}

// RFC 4028 §6: the 422 rejects the interval, and §10: the expiration "has not changed".
#[test]
fn rfc4028_6_a_rejected_refresh_changes_nothing() {
    let (mut t, call) = Table::calling();
    t.refreshed(call, Method::Invite, 1, 200);
    t.request(call, Method::Ack, 1);
    t.pass(Duration::from_secs(100));
    t.request(call, Method::Update, 2);
    t.response(call, Method::Update, 2, 422);
    t.pass(Duration::from_secs(131));
    assert_eq!(t.counts(), (1, 0, 0));
    t.pass(Duration::from_secs(1));
    assert_eq!(t.counts(), (0, 0, 0));
}

// RFC 4028 §9: "If the most recent 2xx response had no Session-Expires header field, there is no
// session expiration".
#[test]
fn rfc4028_9_a_2xx_without_an_interval_ends_the_session_timer() {
    let (mut t, call) = Table::calling();
    t.refreshed(call, Method::Invite, 1, 90);
    t.request(call, Method::Ack, 1);
    t.request(call, Method::Invite, 2);
    t.response(call, Method::Invite, 2, 200);
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 0, 0));
    t.pass(Duration::from_secs(1));
    assert_eq!((t.counts(), t.calls.abandoned()), ((0, 0, 0), 1));
}

// RFC 3261 §13.2.2.4: the caller gets several 2xx, keeps a dialog and leaves the others. The timer of
// a session that it has left must not end the call.
#[test]
fn rfc4028_9_a_2xx_of_another_callee_ends_the_session_timer() {
    let (mut t, call) = Table::calling();
    t.refreshed(call, Method::Invite, 1, 90);
    t.request(call, Method::Ack, 1);
    t.second_answer(call);
    t.bye(call, 2, DIALOG);
    t.response(call, Method::Bye, 2, 200);
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 0, 0));
    // A refresh sets a new timer, and a copy of the 2xx does not change it.
    t.request(call, Method::Update, 3);
    t.refreshed(call, Method::Update, 3, 200);
    t.second_answer(call);
    t.pass(Duration::from_secs(231));
    assert_eq!((t.counts(), t.calls.abandoned()), ((1, 0, 0), 0));
    t.pass(Duration::from_secs(1));
    assert_eq!((t.counts(), t.calls.abandoned()), ((0, 0, 0), 1));
}

// RFC 4028 §4: at least 90 seconds. A long interval that a peer states must not keep a call
// forever.
// RFC 3261 §8.2.2.2: a proxy before this one has forked the INVITE, and another back end has accepted
// the second copy. Its dialog is no part of the call, and neither is its session timer.
#[test]
fn the_session_timer_of_another_back_end_does_not_end_the_call() {
    let mut t = Table::new(10);
    let call = t.forked_before();
    t.calls.on_response(
        t.now,
        call,
        COPIES[0],
        Answer { dialog: DIALOG, ..Answer::new(200, true) },
    );
    t.request(call, Method::Ack, 1);
    let session = Some(Duration::from_secs(1800));
    t.calls.on_response(t.now, call, COPIES[1], Answer { session, ..Answer::new(200, true) });
    t.pass(Duration::from_secs(2000));
    assert_eq!(t.counts(), (1, 0, 0));
}

#[test]
fn a_session_interval_is_held_within_its_bounds() {
    for (interval_s, kept_s) in [(0, 90 + 32), (u64::from(u32::MAX), 86_400 + 32)] {
        let (mut t, call) = Table::calling();
        t.refreshed(call, Method::Invite, 1, interval_s);
        t.request(call, Method::Ack, 1);
        t.pass(Duration::from_secs(kept_s - 1));
        assert_eq!(t.counts(), (1, 0, 0), "{interval_s}");
        t.pass(Duration::from_secs(1));
        assert_eq!(t.counts(), (0, 0, 0), "{interval_s}");
    }
}
