//! Queues under a law that paces the release of new calls, and the single queue: which messages
//! wait where and in which order, and that none waits forever.

use std::time::Duration;

use crate::fixed::*;
use crate::script::*;
use proptest::prelude::*;
use tidegate_control::{Decide, Reason, registry};
use tidegate_proxy::{Class, DropReason, Queueing};
use tidegate_world::Core;

const SLOW: &[(&str, f64)] = &[("rate", 10.0)];
const TICK: Duration = Duration::from_millis(10);

/// Passes time and serves all ready messages after each tick. Returns each packet with its time of
/// sending, in ms since this function began.
fn watch(script: &mut Script, time: Duration) -> Vec<(u128, Sent)> {
    let begun = script.now;
    let mut seen = Vec::new();
    while script.now < begun + time {
        let sent = script.serve();
        let ms = script.now.since(begun).as_millis();
        seen.extend(sent.into_iter().map(|packet| (ms, packet)));
        script.pass(TICK);
    }
    seen
}

fn starts(seen: &[(u128, Sent)]) -> Vec<&str> {
    seen.iter().map(|(_, sent)| sent.start().split(' ').next().unwrap()).collect()
}

#[test]
fn calls_are_released_at_the_rate_and_all_else_is_served_at_once() {
    for scheme in SCHEMES {
        let mut script = under(scheme, SLOW);
        for call in ["a", "b", "c"] {
            script.offer(CALLER, invite(call).as_bytes());
        }
        script.offer(CALLER, own("REGISTER", "r", 1, "").as_bytes());
        script.offer(CALLER, own("BYE", "x", 1, "Totag\r\n").as_bytes());
        let seen = watch(&mut script, Duration::from_secs(1));
        let at: Vec<_> = seen.iter().map(|(ms, _)| *ms).collect();
        assert_eq!(at, [0, 0, 100, 200, 300], "{scheme:?}");
        let order = starts(&seen);
        assert_eq!(order[2..], ["INVITE"; 3], "{scheme:?}");
        assert!(order[..2].contains(&"REGISTER") && order[..2].contains(&"SIP/2.0"));
    }
}

// RFC 3261 §9.1: a CANCEL that overtakes its INVITE cancels nothing.
#[test]
fn the_cancel_of_a_call_that_is_held_back_stays_behind_it() {
    for scheme in SCHEMES {
        let mut script = under(scheme, SLOW);
        script.offer(CALLER, invite("a").as_bytes());
        script.offer(CALLER, own("CANCEL", "a", 1, "").as_bytes());
        script.offer(CALLER, invite("b").as_bytes());
        let seen = watch(&mut script, Duration::from_secs(1));
        assert_eq!(starts(&seen), ["INVITE", "CANCEL", "INVITE"], "{scheme:?}");
        // The CANCEL does not wait for another release.
        let at: Vec<_> = seen.iter().map(|(ms, _)| *ms).collect();
        assert_eq!(at, [100, 100, 200], "{scheme:?}");
    }
}

// A CANCEL that arrives after its INVITE was served does not wait.
#[test]
fn the_cancel_of_a_call_that_was_served_is_not_held_back() {
    for scheme in SCHEMES {
        let mut script = under(scheme, SLOW);
        script.offer(CALLER, invite("a").as_bytes());
        watch(&mut script, Duration::from_millis(150));
        script.offer(CALLER, invite("b").as_bytes());
        script.offer(CALLER, own("CANCEL", "a", 1, "").as_bytes());
        let sent = script.serve();
        assert_eq!(sent.len(), 1, "{scheme:?}");
        assert!(sent[0].start().starts_with("CANCEL"));
    }
}

#[test]
fn a_stopping_proxy_releases_what_it_held_back() {
    for scheme in SCHEMES {
        let mut script = under(scheme, SLOW);
        for call in ["a", "b", "c"] {
            script.offer(CALLER, invite(call).as_bytes());
        }
        assert!(script.serve().is_empty(), "{scheme:?}");
        script.proxy.on_drain(script.now);
        assert!(!script.proxy.is_drained());
        let sent = script.serve();
        assert_eq!(sent.len(), 3, "{scheme:?}");
        assert_eq!(script.status(CALLER, &invite("d")), 503, "{scheme:?}");
        assert_eq!(script.counters.rejected(Reason::Stopping).get(), 1);
        for invite in sent {
            script.one(&invite.to.to_string(), &invite.answer("486 Busy Here"));
        }
        assert!(script.proxy.is_drained(), "{scheme:?}");
    }
}

// Messages that wait unread when a proxy stops have not been admitted.
#[test]
fn a_stopping_proxy_rejects_what_it_has_not_read() {
    let mut script = under((Queueing::Fifo, Decide::Service), &[]);
    script.offer(CALLER, invite("a").as_bytes());
    script.proxy.on_drain(script.now);
    assert!(!script.proxy.is_drained());
    assert!(script.serve()[0].start().contains(" 503 "));
    assert!(script.proxy.is_drained());
}

// Any source can send a BYE. With class queues, one in sixteen served messages is new work while
// any waits.
#[test]
fn a_flood_of_messages_that_finish_work_does_not_lock_new_work_out() {
    let mut script = under(SCHEMES[0], &[]);
    for i in 0..40 {
        script.offer(CALLER, own("BYE", &format!("x{i}"), 1, "Totag\r\n").as_bytes());
    }
    for call in ["a", "b"] {
        script.offer(CALLER, invite(call).as_bytes());
    }
    let sent = script.serve();
    let new = |sent: &Sent| sent.start().starts_with("INVITE");
    let places: Vec<_> = (0..sent.len()).filter(|&i| new(&sent[i])).collect();
    assert_eq!(places, [15, 31]);
}

// RFC 3261 does not mention queues. The single queue models the server of the papers, where a call
// waits behind all earlier messages.
#[test]
fn one_queue_of_all_is_served_in_the_order_of_arrival() {
    for decide in [Decide::Arrival, Decide::Service] {
        let mut script = under((Queueing::Fifo, decide), &[]);
        script.offer(CALLER, own("REGISTER", "r", 1, "").as_bytes());
        script.offer(CALLER, invite("a").as_bytes());
        script.offer(CALLER, own("BYE", "x", 1, "Totag\r\n").as_bytes());
        script.offer(CALLER, invite("b").as_bytes());
        assert_eq!(
            script.counters.received(Class::Invite).get(),
            u64::from(decide == Decide::Arrival) * 2
        );
        let order: Vec<_> = script.serve().iter().map(|s| s.start()[..3].to_owned()).collect();
        assert_eq!(order, ["REG", "INV", "SIP", "INV"], "{decide:?}");
        assert_eq!(script.counters.received(Class::Invite).get(), 2);
    }
}

#[test]
fn a_full_queue_rejects_messages_that_were_read_and_loses_others() {
    for (decide, rejected, lost) in [(Decide::Arrival, 1, 1), (Decide::Service, 0, 2)] {
        let mut script = adjusted((Queueing::Fifo, decide), &[], |settings| settings.queue_max = 2);
        for call in ["a", "b", "c"] {
            script.offer(CALLER, invite(call).as_bytes());
        }
        script.offer(CALLER, own("BYE", "x", 1, "Totag\r\n").as_bytes());
        let replies = script.sent();
        assert_eq!(replies.len(), rejected, "{decide:?}");
        assert!(replies.iter().all(|reply| reply.header("Call-ID") == "c"));
        assert_eq!(script.counters.rejected(Reason::QueueFull).get(), rejected as u64);
        assert_eq!(script.counters.dropped(DropReason::QueueFull).get(), lost);
        script.serve();
        assert_eq!(script.counters.requests_forwarded.get(), 2, "{decide:?}");
    }
}

// If an INVITE could not move to the queue of paced calls, it would be served too early, or block
// all messages behind it.
#[test]
fn no_more_calls_are_held_back_than_there_is_room_for() {
    for scheme in SCHEMES {
        let mut script = adjusted(scheme, SLOW, |settings| settings.queue_max = 2);
        let mut replies = Vec::new();
        for call in ["a", "b", "c", "d"] {
            replies.extend(script.send(CALLER, &invite(call)));
        }
        assert_eq!(replies.len(), 2, "{scheme:?}");
        assert!(replies.iter().all(|reply| reply.start().contains(" 503 ")));
        assert_eq!(script.counters.rejected(Reason::QueueFull).get(), 2);
        // Messages that are not paced overtake the calls that are held back.
        assert_eq!(script.one(CALLER, &own("REGISTER", "r", 1, "")).to, address(BACKEND_A));
        let seen = watch(&mut script, Duration::from_secs(1));
        let at: Vec<_> = seen.iter().map(|(ms, _)| *ms).collect();
        assert_eq!((at, starts(&seen)), (vec![100, 200], vec!["INVITE"; 2]), "{scheme:?}");
    }
}

// Many calls are offered before the first is served, so that all wait in the single queue.
#[test]
fn calls_wait_in_the_one_queue_only_if_they_can_move_on() {
    let scheme = (Queueing::Fifo, Decide::Arrival);
    let mut script = adjusted(scheme, SLOW, |settings| settings.queue_max = 2);
    assert!(script.send(CALLER, &invite("a")).is_empty());
    for call in ["b", "c"] {
        script.offer(CALLER, invite(call).as_bytes());
    }
    // One call is held back, and another waits behind it. The remaining room is for other messages.
    assert_eq!(script.sent()[0].header("Call-ID"), "c");
    script.offer(CALLER, own("REGISTER", "r", 1, "").as_bytes());
    assert_eq!(script.serve().len(), 1);
    assert_eq!(script.counters.requests_forwarded.get(), 1);
    assert_eq!(watch(&mut script, Duration::from_secs(1)).len(), 2);
}

#[test]
fn the_queue_of_all_is_what_a_law_sees_unless_it_paces() {
    // The law `ohta` rejects if at least four messages wait. In the single queue, all waiting
    // messages count.
    let ohta = |scheme| {
        adjusted(scheme, &[], |settings| {
            let marks = [("hi_wm", 4.0), ("lo_wm", 1.0), ("buffer", 4.0)];
            settings.overload.gate.law = registry::find("ohta").unwrap().values(&marks).unwrap();
        })
    };
    for (queueing, rejected) in [(Queueing::Fifo, 1), (Queueing::Class, 0)] {
        let mut script = ohta((queueing, Decide::Arrival));
        for call in ["r", "s", "t", "u"] {
            script.offer(CALLER, own("REGISTER", call, 1, "").as_bytes());
        }
        script.offer(CALLER, invite("a").as_bytes());
        assert_eq!(script.sent().len(), rejected, "{queueing:?}");
    }
    // With pacing, only messages that are held back count. Here this is one message, and not the
    // six behind it.
    let mut script = under((Queueing::Fifo, Decide::Arrival), SLOW);
    script.send(CALLER, &invite("a"));
    for call in ["r", "s", "t", "u", "v", "w"] {
        script.offer(CALLER, own("REGISTER", call, 1, "").as_bytes());
    }
    assert_eq!(script.counters.queued.get(), 1);
    assert_eq!(script.serve().len(), 6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Under every law and scheme each admitted message is served, with or without a stop, and then
    /// the gate asks for no more ticks.
    #[test]
    fn nothing_waits_for_ever(
        law in prop::sample::select(vec!["none", "occupancy", "ohta", "pi"]),
        scheme in prop::sample::select(SCHEMES.to_vec()),
        t_q in prop::sample::select(vec![0.0, 0.05, 2.0]),
        gaps in prop::collection::vec((0u64..3_000, 0usize..12), 1..12),
        stops in any::<bool>(),
    ) {
        let mut script = adjusted(scheme, &[], |settings| {
            let given: &[(&str, f64)] = if law == "pi" { &[("t_q", t_q)] } else { &[] };
            settings.overload.gate.law = registry::find(law).unwrap().values(given).unwrap();
        });
        let mut calls = 0;
        for (ms, count) in gaps {
            for _ in 0..count {
                calls += 1;
                script.offer(CALLER, invite(&format!("c{calls}")).as_bytes());
            }
            watch(&mut script, Duration::from_millis(ms));
        }
        if stops {
            script.proxy.on_drain(script.now);
            script.serve();
            prop_assert_eq!(script.counters.queued.get(), 0);
        }
        watch(&mut script, Duration::from_secs(10));
        prop_assert_eq!(script.counters.queued.get(), 0);
        let rejected: u64 = Reason::ALL.iter().map(|&why| script.counters.rejected(why).get()).sum();
        prop_assert_eq!(script.counters.requests_forwarded.get() + rejected, calls);
        // Unanswered calls have timers of many seconds, which must expire too.
        script.pass(Duration::from_secs(60));
        prop_assert_eq!(script.proxy.poll_timeout(), None);
    }
}
