//! Tests of the counts of calls and work on each back end, and of when they end.

use super::*;
use crate::rejection::UnsentReason;

#[test]
fn a_call_counts_from_its_invite_to_the_end_of_its_bye() {
    let mut t = Table::new(10);
    let call = t.insert(7);
    assert_eq!(t.calls.find(7), Some(call));
    t.request(call, Method::Invite, 1);
    assert_eq!(t.counts(), (1, 175, 1));
    t.response(call, Method::Invite, 1, 180);
    assert_eq!(t.counts(), (1, 175, 1));
    t.response(call, Method::Invite, 1, 200);
    assert_eq!(t.counts(), (1, 0, 0));
    t.request(call, Method::Ack, 1);
    t.request(call, Method::Bye, 2);
    assert_eq!(t.counts(), (1, 100, 1));
    t.response(call, Method::Bye, 2, 200);
    assert_eq!(t.counts(), (0, 0, 0));
}

#[test]
fn a_request_that_could_not_be_sent_counts_nothing_and_is_remembered() {
    let mut t = Table::new(10);
    let call = t.insert(7);
    let [unsent, sent] = [100, 200].map(|cseq| transaction(Method::Invite, cseq));
    t.request(call, Method::Invite, 100);
    assert_eq!(t.counts(), (1, 175, 1));
    assert_eq!(t.calls.unsent_reason(call, unsent), None);
    t.calls.on_unsent(t.now, call, unsent, UnsentReason::BackedUp);
    assert_eq!(t.counts(), (0, 0, 0));
    assert_eq!(t.calls.unsent_reason(call, unsent), Some(UnsentReason::BackedUp));
    assert!(t.calls.is_repeated(call, unsent));
    t.request(call, Method::Invite, 200);
    assert_eq!(t.counts(), (1, 175, 1));
    t.response(call, Method::Invite, 200, 486);
    assert_eq!(t.counts(), (0, 0, 0));
    // The INVITE was sent, but its CANCEL could not be sent.
    let cancel = Transaction { method: Method::Cancel, ..sent };
    t.calls.on_unsent(t.now, call, cancel, UnsentReason::Failed);
    let reasons = [unsent, sent].map(|transaction| t.calls.unsent_reason(call, transaction));
    assert_eq!(reasons, [Some(UnsentReason::BackedUp), None]);
}

/// RFC 3261 §17.2.3: a request matches a transaction only if "the method of the request matches the
/// one that created the transaction".
#[test]
fn an_unsent_request_says_nothing_about_another_method_with_its_branch() {
    let mut t = Table::new(10);
    let call = t.established(7);
    let [invite, bye] = [Method::Invite, Method::Bye].map(|method| transaction(method, 100));
    let reasons = |t: &Table| [invite, bye].map(|of| t.calls.unsent_reason(call, of));
    t.request(call, Method::Invite, 100);
    t.calls.on_unsent(t.now, call, invite, UnsentReason::Failed);
    assert_eq!(reasons(&t), [Some(UnsentReason::Failed), None]);
    // The BYE is sent, and its copies get no rejection.
    t.request(call, Method::Bye, 100);
    t.response(call, Method::Bye, 100, 200);
    assert!(t.calls.has_ended(call, bye));
    assert_eq!(reasons(&t), [Some(UnsentReason::Failed), None]);
}

/// RFC 3261 §8.2.7: "A UAS cannot be stateless unless the request processing for that method would
/// always result in the same response if the requests are identical." So the copies of several
/// unsent requests of one call must all be recognized.
#[test]
fn an_unsent_request_takes_no_more_room_than_another_one() {
    let mut t = Table::new(10);
    let call = t.insert(7);
    let unsent = [(100, UnsentReason::Failed), (200, UnsentReason::FlowGone)];
    for (cseq, reason) in unsent {
        t.request(call, Method::Invite, cseq);
        t.calls.on_unsent(t.now, call, transaction(Method::Invite, cseq), reason);
    }
    t.request(call, Method::Invite, 300);
    t.response(call, Method::Invite, 300, 486);
    for (cseq, reason) in unsent {
        let invite = transaction(Method::Invite, cseq);
        assert_eq!(t.calls.unsent_reason(call, invite), Some(reason));
        assert!(t.calls.is_repeated(call, invite));
    }
    let sent = transaction(Method::Invite, 300);
    assert!(t.calls.has_ended(call, sent));
    assert_eq!(t.calls.unsent_reason(call, sent), None);
}

// 003 fig. 4 as printed decrements again at a retransmitted 200, increments again at a
// retransmitted BYE, and loses a count at each re-INVITE.
#[test]
fn retransmissions_count_nothing() {
    let mut t = Table::new(10);
    let call = t.insert(7);
    for _ in 0..3 {
        t.request(call, Method::Invite, 1);
        assert_eq!(t.counts(), (1, 175, 1));
    }
    for _ in 0..3 {
        t.response(call, Method::Invite, 1, 200);
        assert_eq!(t.counts(), (1, 0, 0));
    }
    // The INVITE is retransmitted, although its 200 has passed.
    t.request(call, Method::Invite, 1);
    assert_eq!(t.counts(), (1, 0, 0));
    t.request(call, Method::Invite, 2);
    assert_eq!(t.counts(), (1, 175, 1));
    t.response(call, Method::Invite, 2, 200);
    assert_eq!(t.counts(), (1, 0, 0));
    for _ in 0..3 {
        t.request(call, Method::Bye, 3);
        assert_eq!(t.counts(), (1, 100, 1));
    }
    for _ in 0..3 {
        t.response(call, Method::Bye, 3, 200);
        assert_eq!(t.counts(), (0, 0, 0));
    }
    t.request(call, Method::Bye, 3);
    assert_eq!(t.counts(), (0, 0, 0));
}

#[test]
fn every_ending_releases_the_counts() {
    // The INVITE is rejected.
    let (mut t, call) = Table::calling();
    t.response(call, Method::Invite, 1, 486);
    assert_eq!(t.counts(), (0, 0, 0));

    // The INVITE is challenged, and then accepted: both requests count as one call.
    let call = t.insert(2);
    t.request(call, Method::Invite, 1);
    t.response(call, Method::Invite, 1, 407);
    assert_eq!(t.counts(), (0, 0, 0));
    t.request(call, Method::Invite, 2);
    t.response(call, Method::Invite, 2, 200);
    assert_eq!(t.counts(), (1, 0, 0));

    // A BYE that is challenged does not end the call. A BYE that is answered with 481 does.
    t.request(call, Method::Bye, 3);
    t.response(call, Method::Bye, 3, 401);
    assert_eq!(t.counts(), (1, 0, 0));
    t.request(call, Method::Bye, 4);
    t.response(call, Method::Bye, 4, 481);
    assert_eq!(t.counts(), (0, 0, 0));

    // Nobody answers the INVITE.
    let call = t.insert(3);
    t.request(call, Method::Invite, 1);
    t.pass(TRANSACTION_MAX);
    assert_eq!(t.counts(), (0, 0, 0));
    assert_eq!(t.calls.find(3), Some(call), "kept for a rejection of the next proxy");
    t.pass(TRANSACTION_MAX);
    assert_eq!(t.calls.find(3), None);

    // Nobody answers the BYE.
    let call = t.established(4);
    t.request(call, Method::Bye, 2);
    t.pass(TRANSACTION_MAX * 2);
    assert_eq!(t.counts(), (0, 0, 0));

    // The call rings beyond Timer C.
    let call = t.insert(5);
    t.request(call, Method::Invite, 1);
    t.response(call, Method::Invite, 1, 180);
    t.pass(TIMER_C - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 175, 1));
    t.pass(TRANSACTION_MAX);
    assert_eq!(t.counts(), (1, 0, 0));
    t.pass(TRANSACTION_MAX);
    assert_eq!(t.counts(), (0, 0, 0));

    // Both parties of the call stop sending messages.
    t.established(6);
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 0, 0));
    t.pass(TRANSACTION_MAX);
    assert_eq!(t.counts(), (0, 0, 0));

    // A request within the call gets no response: the call continues without it.
    let call = t.established(7);
    t.request(call, Method::Info, 2);
    assert_eq!(t.counts(), (1, 100, 1));
    t.pass(TRANSACTION_MAX * 2);
    assert_eq!(t.counts(), (1, 0, 0));
}

// RFC 3261 §15.1.1: the party that sends a BYE considers the session terminated.
#[test]
fn a_bye_beside_many_open_transactions_ends_the_call() {
    let mut t = Table::new(10);
    let call = t.established(1);
    for cseq in 2..6 {
        t.request(call, Method::Info, cseq);
    }
    t.bye(call, 9, DIALOG);
    t.response(call, Method::Bye, 9, 200);
    t.pass(TRANSACTION_MAX);
    assert_eq!(t.counts(), (0, 0, 0));
}

// RFC 3261 §21.3: a redirection establishes no call.
#[test]
fn a_redirected_call_is_over() {
    let (mut t, call) = Table::calling();
    t.response(call, Method::Invite, 1, 300);
    assert_eq!(t.counts(), (0, 0, 0));
}

// RFC 3261 §14.1: after a re-INVITE that was rejected, all is "as if no re-INVITE had
// been issued".
#[test]
fn a_rejected_re_invite_leaves_the_call_as_it_was() {
    let mut t = Table::new(10);
    let call = t.established(1);
    t.request(call, Method::Invite, 2);
    t.response(call, Method::Invite, 2, 488);
    assert_eq!(t.counts(), (1, 0, 0));
    t.request_from_backend(call, Method::Invite);
    assert_eq!(t.counts(), (1, 0, 1), "open, and no work of the back end's");
    t.response(call, Method::Invite, 1 << 31, 488);
    assert_eq!(t.counts(), (1, 0, 0));
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 0, 0));
}

#[test]
fn a_request_outside_any_call_counts_as_work_and_not_as_a_call() {
    let mut t = Table::new(10);
    let single = t.insert(1);
    t.request(single, Method::Options, 1);
    assert_eq!(t.counts(), (0, 100, 1));
    t.response(single, Method::Options, 1, 200);
    assert_eq!(t.counts(), (0, 0, 0));
}

#[test]
fn a_call_that_moves_takes_its_counts_along() {
    let (mut t, call) = Table::calling();
    assert!(t.calls.move_to(t.now, call, 1, OTHER));
    assert_eq!(t.counts(), (0, 0, 0));
    t.request_at(OTHER, call, Method::Invite, 1);
    assert_eq!((t.counts(), t.load(OTHER)), ((0, 0, 1), (1, 175)));
}

// Another balancer before us has sent the same call here twice.
#[test]
fn a_call_that_moves_leaves_its_other_transactions_where_they_are() {
    let (mut t, call) = Table::calling();
    t.request(call, Method::Invite, 2);
    assert!(t.calls.move_to(t.now, call, 2, OTHER));
    t.request_at(OTHER, call, Method::Invite, 2);
    assert_eq!((t.load(BACKEND_REF), t.load(OTHER)), ((0, 175), (1, 175)));
    t.response(call, Method::Invite, 1, 486);
    assert_eq!((t.load(BACKEND_REF), t.load(OTHER)), ((0, 0), (1, 175)));
    t.response(call, Method::Invite, 2, 200);
    assert_eq!((t.load(BACKEND_REF), t.load(OTHER)), ((0, 0), (1, 0)));
}

#[test]
fn a_call_that_is_already_at_the_target_does_not_move() {
    let (mut t, call) = Table::calling();
    assert!(!t.calls.move_to(t.now, call, 2, BACKEND_REF));
    assert_eq!(t.counts(), (1, 175, 1));
}

/// A regression: the back end that answered late was measured with a response time of 0.
///
/// RFC 3261 §13.2.2.4: "Multiple 2xx responses may arrive at the UAC for a single INVITE request due to
/// a forking proxy." The call is at the first one.
#[test]
fn a_call_settles_where_it_is_answered_without_a_response_time() {
    let (mut t, call) = Table::calling();
    assert!(t.calls.move_to(t.now, call, 1, OTHER));
    t.request_at(OTHER, call, Method::Invite, 1);
    let waited = Duration::from_millis(40);
    t.pass(waited);
    assert!(t.calls.settle(t.now, call, 1, BACKEND_REF, &t.picker));
    t.response(call, Method::Invite, 1, 200);
    assert_eq!((t.counts(), t.load(OTHER)), ((1, 0, 0), (0, 0)));
    for backend_ref in [BACKEND_REF, OTHER] {
        let times = t.picker.backend(backend_ref.backend.into()).start_response_times();
        assert_eq!(times.buckets().map(|bucket| bucket.1).sum::<u64>(), 0);
    }
    assert_eq!(t.calls.answers(t.now), Answers { sent: 2, ended: 2, waited, waiting: 0 });
}

// RFC 3261 §16.6: a proxy before us may fork one INVITE into two that both pass through this one.
#[test]
fn a_fork_that_is_rejected_does_not_end_the_one_that_rings() {
    let mut t = Table::new(10);
    let call = t.forked_before();
    assert_eq!(t.counts(), (1, 350, 2), "one call, two transactions");
    t.calls.on_response(t.now, call, COPIES[0], Answer::new(486, true));
    assert_eq!(t.counts(), (1, 175, 1));
    t.calls.on_response(t.now, call, COPIES[1], Answer::new(200, true));
    assert_eq!(t.counts(), (1, 0, 0));
}

#[test]
fn a_request_to_another_back_end_is_no_part_of_the_call() {
    let mut t = Table::new(10);
    let call = t.established(1);
    let other = BackendRef { pool: 0, backend: 7 };
    t.request_at(other, call, Method::Info, 2);
    assert_eq!(t.counts(), (1, 0, 0));
}

// RFC 3261 §13.2.2.4: several back ends of a fork answer one INVITE. The caller keeps one dialog
// and sends the others a BYE.
#[test]
fn a_bye_to_another_back_end_does_not_end_the_call() {
    let mut t = Table::new(10);
    let call = t.established(1);
    t.request_at(OTHER, call, Method::Bye, 2);
    t.response(call, Method::Bye, 2, 200);
    assert_eq!(t.counts(), (1, 0, 0));
    t.request(call, Method::Bye, 3);
    t.response(call, Method::Bye, 3, 200);
    assert_eq!(t.counts(), (0, 0, 0));
}

// RFC 3261 §13.2.2.4: two callees answer one INVITE, and the caller ends both dialogs at once.
#[test]
fn a_call_with_two_byes_counts_until_both_are_answered() {
    let mut t = Table::new(10);
    let call = t.forked(1);
    t.bye(call, 2, DIALOG);
    t.bye(call, 3, SECOND_DIALOG);
    assert_eq!(t.counts(), (1, 200, 2));
    t.response(call, Method::Bye, 3, 200);
    assert_eq!(t.counts(), (1, 100, 1));
    t.response(call, Method::Bye, 2, 200);
    assert_eq!(t.counts(), (0, 0, 0));
}

#[test]
fn the_response_to_a_bye_does_not_end_another_dialog_of_the_call() {
    for (statuses, left) in [([401, 200], DIALOG), ([200, 401], SECOND_DIALOG)] {
        let mut t = Table::new(10);
        let call = t.forked(1);
        t.bye(call, 2, DIALOG);
        t.bye(call, 3, SECOND_DIALOG);
        for (cseq, status) in (2..).zip(statuses) {
            t.response(call, Method::Bye, cseq, status);
        }
        assert_eq!(t.counts(), (1, 0, 0), "{statuses:?}: the challenged BYE has ended nothing");
        t.bye(call, 4, left);
        t.response(call, Method::Bye, 4, 200);
        assert_eq!(t.counts(), (0, 0, 0), "{statuses:?}");
    }
}

// RFC 3261 §15.1.1: a UA that sends a BYE has left, whether it is answered or not.
#[test]
fn a_bye_without_an_answer_does_not_prolong_a_call_whose_other_dialog_has_ended() {
    for status in [None, Some(503)] {
        let mut t = Table::new(10);
        let call = t.forked(1);
        t.bye(call, 2, DIALOG);
        match status {
            Some(status) => t.response(call, Method::Bye, 2, status),
            None => t.pass(TRANSACTION_MAX),
        }
        assert_eq!(t.counts(), (1, 0, 0), "{status:?}: the other dialog continues");
        t.bye(call, 3, SECOND_DIALOG);
        t.response(call, Method::Bye, 3, 200);
        assert_eq!(t.counts(), (0, 0, 0), "{status:?}");
    }
}
