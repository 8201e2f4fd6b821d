//! The order of the queue of new calls, and the limit on the time that a call waits.

use std::time::Duration;

use crate::fixed::*;
use crate::script::*;
use tidegate_control::{Decide, Reason};
use tidegate_proxy::{Class, Disposal, DropReason, Queueing};

/// Schemes in which calls have a queue of their own from the start.
const BY_CLASS: [Scheme; 2] = [SCHEMES[0], SCHEMES[1]];

fn own(method: &str, call: &str, cseq: u32) -> String {
    request(method, "sip:bob@192.0.2.1", call, cseq, "")
}

/// Returns the method or status, and the Call-ID, of each packet.
fn sent(sent: &[Sent]) -> Vec<String> {
    let named = |sent: &Sent| {
        let mut words = sent.start().split(' ');
        let first = words.next().unwrap();
        let what = if first == "SIP/2.0" { words.next().unwrap() } else { first };
        format!("{what} {}", sent.header("Call-ID"))
    };
    sent.iter().map(named).collect()
}

#[test]
fn the_newest_call_is_served_first_if_the_law_says_so() {
    for scheme in BY_CLASS {
        for (lifo, order) in [(0.0, ["a", "b", "c"]), (1.0, ["c", "b", "a"])] {
            let mut script = under(scheme, &[("lifo", lifo)]);
            for call in ["a", "b", "c"] {
                script.offer(CALLER, invite(call).as_bytes());
            }
            let expected = order.map(|call| format!("INVITE {call}"));
            assert_eq!(sent(&script.serve()), expected, "{scheme:?}");
        }
    }
}

#[test]
fn three_calls_are_served_for_each_registration_while_both_wait() {
    for scheme in BY_CLASS {
        let mut script = under(scheme, &[]);
        for call in ["r", "s", "t"] {
            script.offer(CALLER, own("REGISTER", call, 1).as_bytes());
        }
        for call in ["a", "b", "c", "d", "e"] {
            script.offer(CALLER, invite(call).as_bytes());
        }
        let order = sent(&script.serve()).join(", ");
        let expected = "INVITE a, REGISTER r, INVITE b, INVITE c, INVITE d, REGISTER s, INVITE e";
        assert_eq!(order, expected.to_owned() + ", REGISTER t", "{scheme:?}");
    }
}

// Unread messages have no known class. With a paced release all messages are read.
#[test]
fn the_single_queue_keeps_its_order_but_the_queue_of_paced_calls_does_not() {
    for decide in [Decide::Arrival, Decide::Service] {
        let mut script = under((Queueing::Fifo, decide), &[("lifo", 1.0)]);
        for call in ["a", "b"] {
            script.offer(CALLER, invite(call).as_bytes());
        }
        assert_eq!(sent(&script.serve()), ["INVITE a", "INVITE b"], "{decide:?}");
        let mut script = under((Queueing::Fifo, decide), &[("lifo", 1.0), ("rate", 10.0)]);
        for call in ["a", "b"] {
            script.offer(CALLER, invite(call).as_bytes());
        }
        assert!(script.serve().is_empty());
        let mut order = Vec::new();
        for _ in 0..30 {
            script.pass(Duration::from_millis(10));
            order.extend(sent(&script.serve()));
        }
        assert_eq!(order, ["INVITE b", "INVITE a"], "{decide:?}");
    }
}

// RFC 3261 §9.1: a CANCEL that overtakes its INVITE cancels nothing.
#[test]
fn a_cancel_follows_its_invite_in_either_order() {
    for scheme in BY_CLASS {
        for lifo in [0.0, 1.0] {
            let mut script = under(scheme, &[("lifo", lifo)]);
            for call in ["a", "b", "c"] {
                script.offer(CALLER, invite(call).as_bytes());
            }
            script.offer(CALLER, own("CANCEL", "a", 1).as_bytes());
            script.offer(CALLER, own("CANCEL", "c", 1).as_bytes());
            let mut order = vec!["INVITE a", "CANCEL a", "INVITE b", "INVITE c", "CANCEL c"];
            if lifo == 1.0 {
                order = vec!["INVITE c", "CANCEL c", "INVITE b", "INVITE a", "CANCEL a"];
            }
            assert_eq!(sent(&script.serve()), order, "{scheme:?}");
        }
    }
}

#[test]
fn a_cancel_is_kept_once_and_needs_no_room() {
    let mut script = adjusted(SCHEMES[0], &[], |settings| settings.queue_max = 1);
    script.offer(CALLER, invite("a").as_bytes());
    for _ in 0..3 {
        script.offer(CALLER, own("CANCEL", "a", 1).as_bytes());
    }
    assert_eq!(script.counters.dropped(DropReason::Absorbed).get(), 2);
    assert_eq!(script.counters.dropped(DropReason::QueueFull).get(), 0);
    assert_eq!(sent(&script.serve()), ["INVITE a", "CANCEL a"]);
}

// If decisions are not remembered, each retransmission counts as another INVITE.
#[test]
fn a_cancel_follows_the_first_of_several_copies() {
    let mut script = adjusted(SCHEMES[0], &[("lifo", 1.0)], |settings| {
        settings.overload.gate.sticky = false;
    });
    for call in ["a", "a", "b"] {
        script.offer(CALLER, invite(call).as_bytes());
    }
    script.offer(CALLER, own("CANCEL", "a", 1).as_bytes());
    assert_eq!(sent(&script.serve()), ["INVITE b", "INVITE a", "CANCEL a", "INVITE a"]);
    // The copies have left no state: the next CANCEL is handled like the first one.
    script.offer(CALLER, own("CANCEL", "b", 1).as_bytes());
    assert_eq!(sent(&script.serve()), ["CANCEL b"]);
}

// A CANCEL of a stranger goes to the queue of in-dialog requests, not to the queue that the law
// sees.
#[test]
fn a_cancel_of_what_does_not_wait_is_answered_at_once() {
    let mut script = under(SCHEMES[0], &[("rate", 1.0)]);
    script.offer(CALLER, invite("a").as_bytes());
    assert_eq!(sent(&script.send(CALLER, &own("CANCEL", "x", 1))), ["481 x"]);
    assert_eq!(script.counters.received(Class::Cancel).get(), 1);
}

#[test]
fn work_that_waited_too_long_is_rejected_with_its_repetitions() {
    for scheme in SCHEMES {
        let mut script = under(scheme, &[("wait_max", 10.0)]);
        script.offer(CALLER, invite("old").as_bytes());
        script.offer(CALLER, own("REGISTER", "old-register", 1).as_bytes());
        script.pass(Duration::from_millis(11));
        script.offer(CALLER, invite("new").as_bytes());
        let mut all = sent(&script.serve());
        all.sort();
        assert_eq!(all, ["503 old", "INVITE new", "REGISTER old-register"], "{scheme:?}");
        assert_eq!(script.counters.rejected(Reason::Stale).get(), 1);
        script.pass(Duration::from_millis(500));
        assert_eq!(sent(&script.send(CALLER, &invite("old"))), ["503 old"]);
        assert_eq!(script.counters.rejected(Reason::Again).get(), 1, "{scheme:?}");
    }
}

#[test]
fn expired_work_is_disposed_of_as_configured() {
    let mut script = adjusted(SCHEMES[0], &[("wait_max", 10.0)], |settings| {
        settings.overload.disposal = Disposal::Drop;
    });
    script.offer(CALLER, invite("a").as_bytes());
    script.pass(Duration::from_millis(11));
    assert!(script.serve().is_empty());
    assert_eq!(script.counters.rejected(Reason::Stale).get(), 1);
}

// A rejected call cannot be cancelled: RFC 3261 §9.2, 481.
#[test]
fn the_cancel_of_a_stale_call_is_answered_behind_the_rejection() {
    let mut script = under(SCHEMES[0], &[("wait_max", 10.0), ("lifo", 1.0)]);
    script.offer(CALLER, invite("a").as_bytes());
    script.offer(CALLER, own("CANCEL", "a", 1).as_bytes());
    script.pass(Duration::from_millis(11));
    assert_eq!(sent(&script.serve()), ["503 a", "481 a"]);
    // A later CANCEL has no INVITE to wait for.
    assert_eq!(sent(&script.send(CALLER, &own("CANCEL", "a", 1))), ["481 a"]);
}

#[test]
fn below_the_floor_calls_are_rejected_by_rank_and_stay_rejected() {
    for scheme in SCHEMES {
        let mut script = under(scheme, &[("floor", 0.5)]);
        let calls: Vec<_> = (0..100).map(|i| format!("c{i}")).collect();
        let judge = |script: &mut Script| -> Vec<bool> {
            calls.iter().map(|c| script.one(CALLER, &invite(c)).start().contains("503")).collect()
        };
        let rejected = judge(&mut script);
        let count = rejected.iter().filter(|&&rejected| rejected).count();
        assert!((25..75).contains(&count), "{scheme:?}: {count}");
        assert_eq!(script.counters.rejected(Reason::Rank).get(), count as u64);
        script.pass(Duration::from_millis(500));
        assert_eq!(judge(&mut script), rejected, "{scheme:?}");
        assert_eq!(sent(&script.send(CALLER, &own("REGISTER", "r", 1))), ["REGISTER r"]);
    }
}
