//! Class schemes: which messages are shed when a law does not admit all, and how they are shed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::fixed::*;
use crate::overload::establish;
use crate::script::*;
use tidegate_control::{Reason, Scheme as Classes, ShedOrder, Weight};
use tidegate_proxy::{Class, Disposal, Settings};
use tidegate_world::Load;

fn classes(classes: Classes) -> impl FnOnce(&mut Settings) {
    move |settings| settings.overload.gate.scheme = classes
}

fn multi(order: &[Class]) -> Classes {
    let order = order.iter().map(|&class| class as u8).collect();
    Classes::Multi(ShedOrder { order, weight: Weight::Count })
}

fn is_503(sent: &[Sent]) -> bool {
    matches!(sent, [one] if one.start().contains(" 503 "))
}

// Paper 000 §6.6: all packets are treated alike. A message that cannot be answered is dropped.
#[test]
fn in_a_single_class_nothing_passes_a_closed_gate() {
    for scheme in SCHEMES {
        let law = [("after", 3.0), ("share", 0.0)];
        let mut script = adjusted(scheme, &law, classes(Classes::Single));
        let sent = establish(&mut script, "a");
        for rejected in [
            own("BYE", "a", 2, "Totag\r\n"),
            own("INFO", "a", 3, "Totag\r\n"),
            own("REGISTER", "r", 1, ""),
            invite("b"),
        ] {
            assert!(is_503(&script.send(CALLER, &rejected)), "{scheme:?} {rejected}");
        }
        let to = sent.to.to_string();
        for dropped in [sent.answer("180 Ringing"), sent.answer("200 OK")] {
            assert!(script.send(&to, &dropped).is_empty(), "{scheme:?} {dropped}");
        }
        assert!(script.send(CALLER, &own("ACK", "a", 1, "Totag\r\n")).is_empty());
        let shed = |class| script.counters.shed(class).get();
        let all = [Class::Bye, Class::InDialog, Class::Provisional, Class::Final, Class::Ack];
        assert_eq!(all.map(shed), [1; 5], "{scheme:?}");
        assert_eq!(script.counters.rejected(Reason::Law).get(), 2);
        // Only decisions on new work are remembered.
        assert_eq!(shed(Class::Invite) + shed(Class::Register), 0);
    }
}

#[test]
fn each_message_is_judged_once() {
    for scheme in SCHEMES {
        let law = [("share", 0.5)];
        let mut script = adjusted(scheme, &law, classes(Classes::Single));
        let decided = |script: &mut Script, i: u32| {
            is_503(&script.send(CALLER, &own("BYE", &format!("b{i}"), 1, "Totag\r\n")))
        };
        let rejected = (0..40).filter(|&i| decided(&mut script, i)).count();
        assert_eq!(rejected, 20, "{scheme:?}");
    }
}

#[test]
fn other_shed_classes_are_disposed_of_like_new_work() {
    let law = [("after", 3.0), ("share", 0.0)];
    let mut script = adjusted(SCHEMES[0], &law, |settings| {
        settings.overload.gate.scheme = Classes::Single;
        settings.overload.disposal = Disposal::Drop;
    });
    establish(&mut script, "a");
    assert!(script.send(CALLER, &own("BYE", "a", 2, "Totag\r\n")).is_empty());
    assert_eq!(script.counters.shed(Class::Bye).get(), 1);
}

// Paper 000 §2.3.2: it is possible to shed only REGISTERs, or only informational messages.
#[test]
fn only_the_classes_in_order_are_shed() {
    for scheme in SCHEMES {
        for (order, registers, rings) in
            [(Class::Register, false, true), (Class::Provisional, true, false)]
        {
            let law = [("after", 4.0), ("share", 0.0)];
            let mut script = adjusted(scheme, &law, classes(multi(&[order])));
            let sent = establish(&mut script, "a");
            script.send(CALLER, &own("REGISTER", "first", 1, ""));
            let ok = |sent: Vec<Sent>| sent.len() == 1 && !is_503(&sent);
            assert_eq!(ok(script.send(CALLER, &own("REGISTER", "r", 1, ""))), registers);
            let next = script.one(CALLER, &invite("b"));
            let ringing = script.send(&next.to.to_string(), &next.answer("180 Ringing"));
            assert_eq!(ringing.len() == 1, rings, "{scheme:?}");
            assert!(ok(script.send(&next.to.to_string(), &next.answer("200 OK"))));
            assert!(ok(script.send(CALLER, &own("BYE", "a", 2, "Totag\r\n"))));
            drop(sent);
        }
    }
}

#[test]
fn the_share_of_each_class_is_published() {
    let law = [("after", 8.0), ("share", 0.75)];
    let order = multi(&[Class::Register, Class::Invite]);
    let mut script = adjusted(SCHEMES[0], &law, classes(order));
    for i in 0..4 {
        script.offer(CALLER, own("REGISTER", &format!("r{i}"), 1, "").as_bytes());
        script.offer(CALLER, invite(&format!("i{i}")).as_bytes());
    }
    // The gate closes at the ninth message and rejects a quarter of the messages. A quarter of nine
    // messages is 2.25, which is the share of the five REGISTERs to reject.
    script.offer(CALLER, own("REGISTER", "r", 1, "").as_bytes());
    tidegate_world::Core::on_load(&mut script.proxy, script.now, Load::default());
    let rejecting = |class: Class| {
        script.counters.overload.rejecting_of_class[class as usize].get() as f64 / 1e6
    };
    assert!((rejecting(Class::Register) - 2.25 / 5.0).abs() < 1e-5);
    assert_eq!((rejecting(Class::Invite), rejecting(Class::Bye)), (0.0, 0.0));
}

// In the simplified scheme of paper 000, every INVITE is in the first class.
#[test]
fn invites_within_a_call_are_judged_if_asked_for() {
    for scheme in SCHEMES {
        for (reinvites, sticky) in [(false, true), (true, true), (true, false)] {
            let law = [("after", 4.0), ("share", 0.0)];
            let mut script = adjusted(scheme, &law, |settings| {
                settings.overload.reinvites = reinvites;
                settings.overload.gate.sticky = sticky;
            });
            establish(&mut script, "a");
            script.send(CALLER, &own("BYE", "x", 1, "Totag\r\n"));
            // A copy of the first INVITE is not a re-INVITE, whether its call is remembered or not.
            assert!(!is_503(&script.send(CALLER, &invite("a"))), "{scheme:?}");
            let again = own("INVITE", "a", 2, "Totag\r\n");
            assert_eq!(is_503(&script.send(CALLER, &again)), reinvites, "{scheme:?}");
            let law = u64::from(reinvites);
            assert_eq!(script.counters.rejected(Reason::Law).get(), law);
            assert!(!is_503(&script.send(CALLER, &own("BYE", "a", 3, "Totag\r\n"))));
        }
    }
}

fn waits(script: &mut Script, text: &str) -> u32 {
    script.one(CALLER, text).header("Retry-After").parse().unwrap()
}

// RFC 3261 §20.33: the value of Retry-After is a number of seconds.
#[test]
fn a_retry_after_is_drawn_within_its_bounds_for_each_rejection() {
    for scheme in SCHEMES {
        let mut script = adjusted(scheme, &[("share", 0.0)], |settings| {
            settings.overload.retry_after = Some((5, 9));
        });
        let drawn: BTreeSet<_> =
            (0..60).map(|i| waits(&mut script, &invite(&format!("c{i}")))).collect();
        assert_eq!(drawn, BTreeSet::from([5, 6, 7, 8, 9]), "{scheme:?}");
        // RFC 3261 §8.2.7: a retransmission gets the same response.
        let first = waits(&mut script, &invite("again"));
        for _ in 0..5 {
            script.pass(Duration::from_millis(500));
            assert_eq!(waits(&mut script, &invite("again")), first);
        }
        // A message with a folded line has no `Outline`, so it is parsed in full.
        let long = invite("folded").replace("From: ", "From:\r\n ");
        assert!((5..=9).contains(&waits(&mut script, &long)));
    }
}

#[test]
fn the_retry_after_of_in_dialog_requests_is_drawn_from_the_seed() {
    let drawn = |seed| {
        let law = [("after", 3.0), ("share", 0.0)];
        let mut script = adjusted(SCHEMES[0], &law, |settings| {
            settings.overload.gate.scheme = Classes::Single;
            settings.overload.retry_after = Some((0, 3600));
            settings.seed = tidegate_world::Seed(seed);
        });
        establish(&mut script, "a");
        [2, 3, 4].map(|cseq| waits(&mut script, &own("BYE", "a", cseq, "Totag\r\n")))
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
    let [a, b, c] = drawn(1);
    assert!(a != b && b != c, "{a} {b} {c}");
}
