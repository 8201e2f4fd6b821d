use tidegate_balance::{Policy, Pool};
use tidegate_sip::Method;
use tidegate_world::{Purpose, Seed};

use super::call::{OPEN_MAX, TIMER_C};
use super::*;

const T0: Timestamp = Timestamp::from_nanos(1_000_000_000);
const IDLE: Duration = Duration::from_secs(3600);
const MEMBER: Member = Member { pool: 0, backend: 0 };
const OTHER: Member = Member { pool: 0, backend: 1 };

/// A branch of its own for each CSeq, as a client makes it.
fn transaction(method: Method, cseq: u32) -> Transaction {
    Transaction { identity: cseq.into(), method }
}

struct Table {
    calls: Calls,
    picker: Picker,
    now: Timestamp,
}

impl Table {
    fn new(calls_max: usize) -> Self {
        let [a, b] = ["127.0.0.1:5070", "127.0.0.1:5071"].map(|at| at.parse().unwrap());
        let pool = Pool::new("app", &[("a", a, 1), ("b", b, 1)]);
        Self {
            calls: Calls::new(calls_max, IDLE),
            picker: Picker::new(pool, Policy::Tlwl, Seed(1).stream(Purpose::Balance, 0)),
            now: T0,
        }
    }

    fn insert(&mut self, fingerprint: u128) -> CallRef {
        self.calls.insert(self.now, fingerprint, MEMBER).unwrap()
    }

    fn request(&mut self, call: CallRef, method: Method, cseq: u32) {
        self.request_at(MEMBER, call, method, cseq);
    }

    fn request_at(&mut self, member: Member, call: CallRef, method: Method, cseq: u32) {
        let transaction = transaction(method, cseq);
        self.calls.on_request(self.now, call, transaction, member, &self.picker, None);
    }

    /// Calls and work on a back end.
    fn load(&self, member: Member) -> (u64, u64) {
        let backend = self.picker.backend(member.backend.into());
        (backend.calls(), backend.work())
    }

    fn request_from_backend(&mut self, call: CallRef, method: Method) {
        self.calls.on_request_from_backend(self.now, call, transaction(method, 1 << 31));
    }

    fn response(&mut self, call: CallRef, method: Method, cseq: u32, status: u16) {
        let answer = Answer::new(status, true);
        self.calls.on_response(self.now, call, transaction(method, cseq), answer);
    }

    /// A 2xx that sets a session interval.
    fn refreshed(&mut self, call: CallRef, method: Method, cseq: u32, interval_s: u64) {
        let session = Some(Duration::from_secs(interval_s));
        let answer = Answer { session, ..Answer::new(200, true) };
        self.calls.on_response(self.now, call, transaction(method, cseq), answer);
    }

    /// Calls and work on the back end, and transactions open in the table.
    fn counts(&self) -> (u64, u64, usize) {
        let (calls, work) = self.load(MEMBER);
        (calls, work, self.calls.open())
    }

    /// Lets `by` pass as a driver would, timer by timer.
    fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        let mut fired = 0;
        while let Some(at) = self.calls.poll_timeout().filter(|&at| at <= end) {
            fired += 1;
            assert!(fired < 100_000, "timers fire without end");
            self.calls.handle_timeout(at);
        }
        self.now = end;
    }

    fn established(&mut self, fingerprint: u128) -> CallRef {
        let call = self.insert(fingerprint);
        self.request(call, Method::Invite, 1);
        self.response(call, Method::Invite, 1, 200);
        call
    }
}

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

// 003 fig. 4 as printed decrements again at a retransmitted 200, increments again at a
// retransmitted BYE, and loses a count at each re-INVITE.
#[test]
fn repetitions_count_nothing() {
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
    // The INVITE again, although its 200 has passed.
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
fn every_ending_gives_back_what_was_counted() {
    // Refused.
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    t.response(call, Method::Invite, 1, 486);
    assert_eq!(t.counts(), (0, 0, 0));

    // Challenged, then accepted: one call.
    let call = t.insert(2);
    t.request(call, Method::Invite, 1);
    t.response(call, Method::Invite, 1, 407);
    assert_eq!(t.counts(), (0, 0, 0));
    t.request(call, Method::Invite, 2);
    t.response(call, Method::Invite, 2, 200);
    assert_eq!(t.counts(), (1, 0, 0));

    // A BYE that is challenged does not end the call; one that fails otherwise does.
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
    assert_eq!(t.calls.find(3), None);

    // Nobody answers the BYE.
    let call = t.established(4);
    t.request(call, Method::Bye, 2);
    t.pass(TRANSACTION_MAX * 2);
    assert_eq!(t.counts(), (0, 0, 0));

    // It rings beyond Timer C.
    let call = t.insert(5);
    t.request(call, Method::Invite, 1);
    t.response(call, Method::Invite, 1, 180);
    t.pass(TIMER_C - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 175, 1));
    t.pass(TRANSACTION_MAX);
    assert_eq!(t.counts(), (0, 0, 0));

    // Both sides vanish.
    t.established(6);
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 0, 0));
    t.pass(TRANSACTION_MAX);
    assert_eq!(t.counts(), (0, 0, 0));

    // A request within the call gets no answer: the call goes on without it.
    let call = t.established(7);
    t.request(call, Method::Info, 2);
    assert_eq!(t.counts(), (1, 100, 1));
    t.pass(TRANSACTION_MAX * 2);
    assert_eq!(t.counts(), (1, 0, 0));
}

// RFC 3261 §21.3: a redirection sets nothing up.
#[test]
fn a_redirected_call_is_over() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    t.response(call, Method::Invite, 1, 300);
    assert_eq!(t.counts(), (0, 0, 0));
}

// RFC 3261 §14.1: after a re-INVITE that was refused, all is "as if no re-INVITE had
// been issued".
#[test]
fn a_refused_re_invite_leaves_the_call_as_it_was() {
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
fn what_is_sent_while_it_rings_does_not_shorten_timer_c() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    t.response(call, Method::Invite, 1, 183);
    t.request(call, Method::Other, 2);
    t.response(call, Method::Other, 2, 200);
    t.pass(TIMER_C - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 175, 1));
}

#[test]
fn a_call_of_the_back_ends_lasts_as_long_as_one_to_it() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request_from_backend(call, Method::Invite);
    t.response(call, Method::Invite, 1 << 31, 200);
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.calls.find(1), Some(call));
    t.request_from_backend(call, Method::Info);
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.calls.find(1), Some(call));
    // Its BYE, though unanswered, ends it.
    t.request_from_backend(call, Method::Bye);
    t.pass(TRANSACTION_MAX * 2);
    assert_eq!(t.calls.find(1), None);
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
fn the_choice_is_kept_for_64_t1_after_the_end() {
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
fn a_full_table_gives_up_what_is_over_and_refuses_the_rest() {
    let mut t = Table::new(3);
    let calls: Vec<_> = (0..3).map(|f| t.established(f)).collect();
    assert_eq!(t.calls.insert(t.now, 9, MEMBER), Err(Full));
    assert_eq!(t.calls.evicted(), 0);
    t.request(calls[1], Method::Bye, 2);
    t.response(calls[1], Method::Bye, 2, 200);
    t.insert(9);
    assert_eq!((t.calls.len(), t.calls.evicted()), (3, 1));
    assert_eq!(t.calls.find(1), None);
    assert!(t.calls.find(0).is_some() && t.calls.find(2).is_some());
}

#[test]
fn a_call_that_moves_takes_its_counts_along() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    assert!(t.calls.move_to(call, 1, OTHER));
    assert_eq!(t.counts(), (0, 0, 0));
    t.request_at(OTHER, call, Method::Invite, 1);
    assert_eq!((t.counts(), t.load(OTHER)), ((0, 0, 1), (1, 175)));
}

// Another balancer before us has sent the same call here twice.
#[test]
fn a_call_that_moves_leaves_its_other_transactions_where_they_are() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    t.request(call, Method::Invite, 2);
    assert!(t.calls.move_to(call, 2, OTHER));
    t.request_at(OTHER, call, Method::Invite, 2);
    assert_eq!((t.load(MEMBER), t.load(OTHER)), ((0, 175), (1, 175)));
    t.response(call, Method::Invite, 1, 486);
    assert_eq!((t.load(MEMBER), t.load(OTHER)), ((0, 0), (1, 175)));
    t.response(call, Method::Invite, 2, 200);
    assert_eq!((t.load(MEMBER), t.load(OTHER)), ((0, 0), (1, 0)));
}

#[test]
fn a_call_that_is_where_it_is_to_go_does_not_move() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    assert!(!t.calls.move_to(call, 2, MEMBER));
    assert_eq!(t.counts(), (1, 175, 1));
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
    let [acked, ended, left, refused] = [1, 2, 3, 4].map(|fingerprint| table.insert(fingerprint));
    for call in [acked, ended, left, refused] {
        table.request(call, Method::Invite, 1);
        assert_eq!(table.calls.unacknowledged(), 0);
    }
    for (call, status) in [(acked, 200), (ended, 200), (left, 200), (refused, 486)] {
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

#[test]
fn what_stays_after_an_eviction_still_ends_in_its_time() {
    let mut t = Table::new(3);
    let calls: Vec<_> = (0..3).map(|f| t.established(f)).collect();
    t.request(calls[1], Method::Bye, 2);
    t.response(calls[1], Method::Bye, 2, 200);
    t.established(9);
    for f in 10..40 {
        assert_eq!(t.calls.insert(t.now, f, MEMBER), Err(Full), "none of the others is over");
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
    assert!(t.calls.has_room());
    t.established(5000);
    assert_eq!((t.calls.find(999), t.calls.has_room()), (None, false));
}

// RFC 3261 §16.6: a proxy before us may fork one INVITE into two that both pass here.
#[test]
fn a_fork_that_is_refused_does_not_end_the_one_that_rings() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    let fork = |identity| Transaction { identity, method: Method::Invite };
    for identity in [7, 8] {
        t.calls.on_request(t.now, call, fork(identity), MEMBER, &t.picker, None);
    }
    assert_eq!(t.counts(), (1, 350, 2), "one call, two transactions");
    t.calls.on_response(t.now, call, fork(7), Answer::new(486, true));
    assert_eq!(t.counts(), (1, 175, 1));
    t.calls.on_response(t.now, call, fork(8), Answer::new(200, true));
    assert_eq!(t.counts(), (1, 0, 0));
}

#[test]
fn a_request_to_another_back_end_is_no_part_of_the_call() {
    let mut t = Table::new(10);
    let call = t.established(1);
    let other = Member { pool: 0, backend: 7 };
    t.calls.on_request(t.now, call, transaction(Method::Info, 2), other, &t.picker, None);
    assert_eq!(t.counts(), (1, 0, 0));
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
    // Repetitions find it there, and take nothing.
    t.request(call, Method::Bye, 2);
    assert_eq!((t.calls.find(1), t.counts()), (Some(call), (0, 0, 0)));
    t.pass(TRANSACTION_MAX);
    assert_eq!((t.calls.find(1), t.calls.expired.first()), (None, None));
}

#[test]
fn a_call_that_begins_anew_leaves_the_expired_table() {
    let mut t = Table::new(1);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    t.response(call, Method::Invite, 1, 407);
    assert!(t.calls.has_room());
    t.request(call, Method::Invite, 2);
    assert!(!t.calls.has_room());
    assert_eq!(t.calls.insert(t.now, 9, MEMBER), Err(Full));
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
    assert_eq!(t.calls.insert(t.now, 9, MEMBER), Err(Full));
}

// RFC 4028 §8.2: "the time when the 2xx response is forwarded upstream, plus the session interval";
// 64·T1 more for a refresh that is still to be answered.
#[test]
fn rfc4028_8_3_a_session_that_is_not_refreshed_is_given_up_when_it_has_expired() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    t.refreshed(call, Method::Invite, 1, 1800);
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
        let mut t = Table::new(10);
        let call = t.insert(1);
        t.request(call, Method::Invite, 1);
        t.refreshed(call, Method::Invite, 1, 200);
        for cseq in 2..5 {
            t.pass(Duration::from_secs(150));
            t.request(call, method, cseq);
            // Its own answer, and a late copy of the first.
            t.refreshed(call, method, cseq, 200);
            t.refreshed(call, Method::Invite, 1, 9999);
        }
        t.pass(Duration::from_secs(231));
        assert_eq!(t.counts(), (1, 0, 0));
        t.pass(Duration::from_secs(1));
        assert_eq!(t.counts(), (0, 0, 0));
    }
}

// RFC 4028 §6: the 422 refuses the interval, and §10: the expiration "has not changed".
#[test]
fn rfc4028_6_a_refused_refresh_changes_nothing() {
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    t.refreshed(call, Method::Invite, 1, 200);
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
    let mut t = Table::new(10);
    let call = t.insert(1);
    t.request(call, Method::Invite, 1);
    t.refreshed(call, Method::Invite, 1, 90);
    t.request(call, Method::Invite, 2);
    t.response(call, Method::Invite, 2, 200);
    t.pass(IDLE - Duration::from_secs(1));
    assert_eq!(t.counts(), (1, 0, 0));
    t.pass(Duration::from_secs(1));
    assert_eq!((t.counts(), t.calls.abandoned()), ((0, 0, 0), 1));
}

// RFC 4028 §4: 90 seconds at the least; and what a peer names is no reason to keep a call for ever.
#[test]
fn a_session_interval_is_held_within_its_bounds() {
    for (interval_s, kept_s) in [(0, 90 + 32), (u64::from(u32::MAX), 86_400 + 32)] {
        let mut t = Table::new(10);
        let call = t.insert(1);
        t.request(call, Method::Invite, 1);
        t.refreshed(call, Method::Invite, 1, interval_s);
        t.pass(Duration::from_secs(kept_s - 1));
        assert_eq!(t.counts(), (1, 0, 0), "{interval_s}");
        t.pass(Duration::from_secs(1));
        assert_eq!(t.counts(), (0, 0, 0), "{interval_s}");
    }
}

// RFC 3261 §15.1.1: whoever sends a BYE has left, whether it is answered or not.
#[test]
fn what_comes_after_an_unanswered_bye_does_not_keep_the_call() {
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

#[test]
fn an_entry_whose_request_was_never_forwarded_is_the_first_to_go() {
    let mut t = Table::new(1);
    t.insert(1);
    assert!(t.calls.has_room());
    t.established(2);
    assert_eq!((t.calls.find(1), t.calls.has_room()), (None, false));
}

// RFC 3261 §13.2.2.4: several back ends of a fork answer one INVITE; the caller keeps one dialog
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
