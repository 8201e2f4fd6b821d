//! Tests of a full table: the calls that it holds, and those that are over.

use super::*;

#[test]
fn an_old_reference_does_not_name_the_next_call_in_its_slot() {
    let mut t = Table::new(10);
    let old = t.insert(1);
    t.pass(TRANSACTION_MAX);
    let new = t.insert(2);
    assert_eq!(old.slot, new.slot, "the slot is used again");
    t.request(new, Method::Invite, 1);
    t.response(old, Method::Invite, 1, 486);
    assert_eq!(t.counts(), (1, 175, 1));
}

#[test]
fn a_full_table_evicts_finished_calls_and_rejects_the_rest() {
    let mut t = Table::new(3);
    let calls: Vec<_> = (0..3).map(|f| t.established(f)).collect();
    assert_eq!(t.calls.insert(t.now, 9, BACKEND_REF), Err(NoPlace::TableFull));
    assert_eq!(t.calls.evicted(), 0);
    t.request(calls[1], Method::Bye, 2);
    t.response(calls[1], Method::Bye, 2, 200);
    t.insert(9);
    assert_eq!((t.calls.len(), t.calls.evicted()), (3, 1));
    assert_eq!(t.calls.find(1), None);
    assert!(t.calls.find(0).is_some() && t.calls.find(2).is_some());
}

// RFC 3261 §8.1.1.4: "In a new request created by a UAC outside of any dialog, the Call-ID header
// field MUST be selected by the UAC as a globally unique identifier over space and time".
#[test]
fn many_calls_with_one_call_id_do_not_make_the_table_full() {
    let mut t = Table::new(100);
    (0..SAME_MAX).for_each(|_| {
        t.established(1);
    });
    assert_eq!(t.calls.check_room(1), Err(NoPlace::SameCallId));
    assert_eq!(t.calls.insert(t.now, 1, BACKEND_REF), Err(NoPlace::SameCallId));
    assert_eq!((t.calls.check_room(2), t.calls.len()), (Ok(()), SAME_MAX));
}

#[test]
fn a_peer_that_opens_many_transactions_at_once_is_held_to_the_limit() {
    let mut t = Table::new(10);
    let call = t.established(1);
    for cseq in 2..100 {
        t.request(call, Method::Info, cseq);
    }
    assert_eq!(t.counts(), (1, OPEN_MAX as u64 * 100, OPEN_MAX));
    t.pass(TRANSACTION_MAX * 2);
    assert_eq!(t.counts(), (1, 0, 0));
}

#[test]
fn entries_after_an_eviction_still_expire_in_time() {
    let mut t = Table::new(3);
    let calls: Vec<_> = (0..3).map(|f| t.established(f)).collect();
    t.request(calls[1], Method::Bye, 2);
    t.response(calls[1], Method::Bye, 2, 200);
    t.established(9);
    for f in 10..40 {
        assert_eq!(
            t.calls.insert(t.now, f, BACKEND_REF),
            Err(NoPlace::TableFull),
            "none of the others is over"
        );
    }
    t.pass(IDLE + TRANSACTION_MAX);
    assert_eq!((t.calls.len(), t.counts()), (0, (0, 0, 0)));
    assert!(t.calls.timers.is_empty());
}

#[test]
fn among_many_established_calls_the_one_that_is_over_is_found() {
    let mut t = Table::new(1000);
    let calls: Vec<_> = (0..1000).map(|f| t.established(f)).collect();
    t.request(calls[999], Method::Bye, 2);
    t.response(calls[999], Method::Bye, 2, 200);
    assert!(t.has_room());
    t.established(5000);
    assert_eq!((t.calls.find(999), t.has_room()), (None, false));
}

// 003 fig. 4 line 27: "move entry to expired table"; §V: the trigger "updates Session State and
// Load Estimates after a session has expired".
#[test]
fn an_ended_call_is_in_the_expired_table_until_the_trigger_and_counts_nothing_there() {
    let mut t = Table::new(10);
    let call = t.established(1);
    assert_eq!(t.calls.expired.first(), None);
    t.request(call, Method::Bye, 2);
    assert_eq!(t.calls.expired.first(), None, "its BYE is not answered");
    t.response(call, Method::Bye, 2, 200);
    assert_eq!((t.calls.expired.first(), t.counts()), (Some(call.slot), (0, 0, 0)));
    // Retransmissions find the call there, and are not counted.
    t.request(call, Method::Bye, 2);
    assert_eq!((t.calls.find(1), t.counts()), (Some(call), (0, 0, 0)));
    t.pass(TRANSACTION_MAX);
    assert_eq!((t.calls.find(1), t.calls.expired.first()), (None, None));
}

#[test]
fn a_restarted_call_leaves_the_expired_table() {
    let mut t = Table::new(1);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    t.response(call, Method::Invite, 1, 407);
    assert!(t.has_room());
    t.request(call, Method::Invite, 2);
    assert!(!t.has_room());
    assert_eq!(t.calls.insert(t.now, 9, BACKEND_REF), Err(NoPlace::TableFull));
}

// RFC 3261 §10.2: a client's REGISTERs have one Call-ID, so that one entry is over many times.
#[test]
fn an_entry_that_is_over_again_and_again_does_not_push_others_out_of_the_expired_table() {
    let mut t = Table::new(3);
    let ended = t.established(1);
    t.request(ended, Method::Bye, 2);
    t.response(ended, Method::Bye, 2, 200);
    let register = t.insert(2);
    for cseq in 1..10 {
        t.request(register, Method::Register, cseq);
        t.response(register, Method::Register, cseq, 200);
    }
    t.established(3);
    for fingerprint in [4, 5] {
        t.established(fingerprint);
    }
    assert_eq!((t.calls.evicted(), t.counts().0), (2, 3));
    assert_eq!(t.calls.insert(t.now, 9, BACKEND_REF), Err(NoPlace::TableFull));
}

#[test]
fn an_entry_whose_request_was_never_forwarded_is_the_first_to_go() {
    let mut t = Table::new(1);
    t.insert(1);
    assert!(t.has_room());
    t.established(2);
    assert_eq!((t.calls.find(1), t.has_room()), (None, false));
}
