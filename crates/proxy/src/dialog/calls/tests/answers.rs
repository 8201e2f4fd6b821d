//! Tests of the counts of INVITEs that wait for an answer of their back end.

use super::*;

impl Table {
    fn waiting(&mut self) -> u64 {
        self.calls.answers(self.now).waiting
    }
}

#[test]
fn an_invite_waits_for_a_response_other_than_100() {
    let (mut t, call) = Table::calling();
    t.pass(Duration::from_millis(40));
    t.request(call, Method::Invite, 1);
    assert_eq!(t.waiting(), 1, "a copy is no further INVITE");
    t.response(call, Method::Invite, 1, 100);
    assert_eq!(t.waiting(), 1);
    t.response(call, Method::Invite, 1, 180);
    let waited = Duration::from_millis(40);
    assert_eq!(t.calls.answers(t.now), Answers { sent: 1, ended: 1, waited, waiting: 0 });
    t.response(call, Method::Invite, 1, 200);
    t.request(call, Method::Bye, 2);
    assert_eq!(t.waiting(), 0);
}

#[test]
fn a_rejection_is_an_answer() {
    for status in [404, 486, 503] {
        let (mut t, call) = Table::calling();
        t.response(call, Method::Invite, 1, status);
        assert_eq!(t.waiting(), 0, "{status}");
    }
}

#[test]
fn a_silent_back_end_counts_for_half_a_second() {
    let (mut t, call) = Table::calling();
    t.pass(Duration::from_millis(500));
    assert_eq!(t.waiting(), 1);
    t.pass(Duration::from_millis(50));
    assert_eq!(t.waiting(), 0);
    t.response(call, Method::Invite, 1, 180);
    assert_eq!(t.waiting(), 0);
    t.request(call, Method::Invite, 2);
    assert_eq!(t.waiting(), 1);
}

#[test]
fn a_request_that_could_not_be_sent_waits_for_nothing() {
    let (mut t, call) = Table::calling();
    t.calls.on_unsent(t.now, call, transaction(Method::Invite, 1), UnsentReason::Failed);
    assert_eq!(t.waiting(), 0);
}

#[test]
fn an_invite_within_a_call_is_no_new_call() {
    let mut t = Table::new(10);
    let call = t.established(1);
    t.request(call, Method::Invite, 3);
    assert_eq!(t.waiting(), 0);
}

#[test]
fn a_call_that_fails_over_waits_for_its_next_back_end_only() {
    let (mut t, call) = Table::calling();
    assert!(t.calls.move_to(t.now, call, 1, OTHER));
    assert_eq!(t.waiting(), 0);
    t.request_at(OTHER, call, Method::Invite, 1);
    assert_eq!(
        t.calls.answers(t.now),
        Answers { sent: 2, ended: 1, waiting: 1, ..Answers::default() }
    );
}
