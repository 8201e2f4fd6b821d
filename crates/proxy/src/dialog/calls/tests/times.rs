//! Tests of the lifetime of a call, and of its timers.

use super::*;

#[test]
fn an_unanswered_request_counts_for_64_t1() {
    let mut t = Table::new(10);
    let call = t.established(1);
    t.request(call, Method::Info, 2);
    t.pass(TRANSACTION_MAX);
    assert_eq!(t.counts(), (1, 0, 0));
    t.pass(Duration::from_secs(20));
    t.request(call, Method::Info, 3);
    // The call's own timer fires in between.
    t.pass(Duration::from_secs(31));
    assert_eq!(t.counts(), (1, 100, 1));
    t.pass(Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 0, 0));
}

// RFC 3261 §16.6 item 11, §16.7 item 2: from the first provisional response on, Timer C
// alone ends an INVITE.
#[test]
fn messages_while_ringing_do_not_shorten_timer_c() {
    let (mut t, call) = Table::calling();
    t.response(call, Method::Invite, 1, 183);
    t.request(call, Method::Other, 2);
    t.response(call, Method::Other, 2, 200);
    t.pass(TIMER_C - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 175, 1));
}

// Swarm seed 871. RFC 3261 §16.8: a proxy behind this one ends an INVITE by its own Timer C, just
// when this one would forget the call, and retransmits its 408 for 64·T1 (§17.2.1).
#[test]
fn a_call_that_another_gives_up_after_timer_c_is_known_until_its_last_408() {
    let (mut t, call) = Table::calling();
    t.response(call, Method::Invite, 1, 180);
    t.pass(TIMER_C);
    t.response(call, Method::Invite, 1, 408);
    assert_eq!(t.counts(), (0, 0, 0));
    t.pass(TRANSACTION_MAX - Duration::from_millis(1));
    assert_eq!(t.calls.find_of(1, transaction(Method::Invite, 1)), Some(call));
    t.pass(Duration::from_millis(1));
    assert_eq!(t.calls.find(1), None);
}

#[test]
fn a_call_of_the_back_ends_lasts_as_long_as_one_to_it() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request_from_backend(call, Method::Invite);
    t.response(call, Method::Invite, 1 << 31, 200);
    t.request_from_backend(call, Method::Ack);
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.calls.find(1), Some(call));
    t.request_from_backend(call, Method::Info);
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.calls.find(1), Some(call));
    // A BYE of the back end ends the call, even without a response.
    t.request_from_backend(call, Method::Bye);
    t.pass(TRANSACTION_MAX * 2);
    assert_eq!(t.calls.find(1), None);
}

// RFC 3261 §13.3.1.4: "If the server retransmits the 2xx response for 64*T1 seconds without receiving
// an ACK, the dialog is confirmed, but the session SHOULD be terminated." The 2xx passes twice if
// the back end sends the call on through this proxy.
#[test]
fn the_second_leg_of_a_call_does_not_acknowledge_it() {
    let (mut t, call) = Table::calling();
    t.request_from_backend(call, Method::Invite);
    t.response(call, Method::Invite, 1 << 31, 200);
    t.response(call, Method::Invite, 1, 200);
    t.pass(TRANSACTION_MAX * 2 - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 0, 0));
    t.pass(Duration::from_secs(1));
    assert_eq!((t.counts(), t.calls.abandoned()), ((0, 0, 0), 1));
}

#[test]
fn a_challenged_bye_leaves_the_call_all_its_time() {
    let mut t = Table::new(10);
    let call = t.established(1);
    t.request(call, Method::Bye, 2);
    t.response(call, Method::Bye, 2, 407);
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 0, 0));
}

#[test]
fn an_entry_whose_request_was_never_forwarded_is_forgotten() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.pass(TRANSACTION_MAX - Duration::from_millis(1));
    assert_eq!(t.calls.find(1), Some(call));
    t.pass(Duration::from_millis(1));
    assert_eq!(t.calls.find(1), None);
}

#[test]
fn a_timeout_that_comes_too_early_changes_nothing() {
    let mut t = Table::new(10);
    t.established(1);
    let due = t.calls.poll_timeout().unwrap();
    t.calls.handle_timeout(due - Duration::from_nanos(1));
    assert_eq!(t.calls.poll_timeout(), Some(due));
    t.calls.handle_timeout(due);
    assert!(t.calls.poll_timeout() > Some(due));
}

#[test]
fn the_back_end_is_remembered_for_64_t1_after_the_end() {
    let mut t = Table::new(10);
    let call = t.established(1);
    t.pass(Duration::from_secs(10));
    t.request(call, Method::Bye, 2);
    t.response(call, Method::Bye, 2, 200);
    t.pass(TRANSACTION_MAX - Duration::from_millis(1));
    assert_eq!(t.calls.find(1), Some(call));
    t.pass(TRANSACTION_MAX);
    assert_eq!((t.calls.find(1), t.calls.len()), (None, 0));
    assert!(t.calls.get(call).is_none());
}

#[test]
fn there_is_one_timer_for_each_entry_however_often_it_is_touched() {
    let mut t = Table::new(100);
    for f in 0..50 {
        let call = t.established(f);
        for cseq in 2..20 {
            t.request(call, Method::Invite, cseq);
            t.response(call, Method::Invite, cseq, 200);
        }
    }
    t.pass(TRANSACTION_MAX * 5);
    assert_eq!((t.calls.len(), t.calls.timers.len()), (50, 50));
}

// RFC 3261 §13.3.1.4: the callee waits 64·T1 for the ACK.
#[test]
fn an_answered_call_is_unacknowledged_until_its_ack_its_end_or_64_t1() {
    let mut table = Table::new(10);
    let [acked, ended, left, rejected] = [1, 2, 3, 4].map(|fingerprint| table.insert(fingerprint));
    for call in [acked, ended, left, rejected] {
        table.request(call, Method::Invite, 1);
        assert_eq!(table.calls.unacknowledged(), 0);
    }
    for (call, status) in [(acked, 200), (ended, 200), (left, 200), (rejected, 486)] {
        table.response(call, Method::Invite, 1, status);
        table.response(call, Method::Invite, 1, status);
    }
    assert_eq!(table.calls.unacknowledged(), 3);
    for _ in 0..2 {
        table.request(acked, Method::Ack, 1);
    }
    assert_eq!(table.calls.unacknowledged(), 2);
    table.request(ended, Method::Bye, 2);
    table.response(ended, Method::Bye, 2, 200);
    assert_eq!(table.calls.unacknowledged(), 1);
    table.request(ended, Method::Ack, 1);
    table.pass(TRANSACTION_MAX - Duration::from_secs(1));
    assert_eq!(table.calls.unacknowledged(), 1);
    table.pass(Duration::from_secs(2));
    assert_eq!(table.calls.unacknowledged(), 0);
    assert!(table.calls.get(left).is_some(), "it is not over for us");
}

// RFC 3261 §15.1.1: a UA that sends a BYE considers the session ended, answered or not.
#[test]
fn messages_after_an_unanswered_bye_do_not_keep_the_call() {
    let mut t = Table::new(10);
    let call = t.established(1);
    t.request(call, Method::Bye, 2);
    t.pass(Duration::from_secs(10));
    t.request(call, Method::Ack, 1);
    t.pass(Duration::from_secs(31));
    assert_eq!(t.counts().0, 1);
    t.pass(Duration::from_secs(1));
    assert_eq!((t.counts(), t.calls.len()), ((0, 0, 0), 0));
    assert_eq!(t.calls.abandoned(), 0, "somebody has ended it");
}

// Both ends hang up at once, and one BYE is rejected.
#[test]
fn a_rejected_bye_does_not_prolong_a_call_that_the_other_end_has_left() {
    let mut t = Table::new(10);
    let call = t.established(1);
    t.request(call, Method::Bye, 2);
    t.request_from_backend(call, Method::Bye);
    t.response(call, Method::Bye, 2, 401);
    t.pass(TRANSACTION_MAX - Duration::from_secs(1));
    assert_eq!(t.counts().0, 1);
    t.pass(Duration::from_secs(1));
    assert_eq!((t.counts(), t.calls.len()), ((0, 0, 0), 0));
}
