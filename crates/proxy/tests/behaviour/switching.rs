//! Tests that a switch of the law loses no call, whatever its phase is.

use std::time::Duration;

use crate::fixed::*;
use crate::script::*;
use tidegate_control::{Reason, Values, registry};
use tidegate_proxy::{Mode, ReplyReason, TraceSettings};
use tidegate_world::Core;

fn own(method: &str, call: &str, cseq: u32) -> String {
    request(method, "sip:bob@192.0.2.1", call, cseq, "Totag\r\n")
}

/// Returns a law under which new calls wait for minutes.
fn pacing() -> Values {
    law(&[("rate", 0.001)])
}

/// Returns the laws of successive steps. Every second law holds back new calls.
fn laws() -> [Values; 12] {
    let [none, pi] = ["none", "pi"].map(|name| registry::find(name).unwrap().defaults());
    let closed = law(&[("share", 0.0)]);
    let newest_first = law(&[("lifo", 1.0), ("wait_max", 5000.0)]);
    [
        pacing(),
        closed,
        pacing(),
        none,
        pacing(),
        pi,
        pacing(),
        newest_first,
        pacing(),
        closed,
        pacing(),
        none,
    ]
}

/// A call and its progress.
struct Call {
    name: String,
    forwarded: Option<Sent>,
    steps: u32,
}

impl Call {
    /// Advances the call by one step. Each step sends one packet.
    fn go_on(&mut self, script: &mut Script) {
        let expect_at = |sent: Vec<Sent>, to: &str, start: &str| {
            let mut sent = sent.into_iter().filter(|sent| !sent.start().contains(" 100 "));
            let one = sent.next().unwrap_or_else(|| panic!("{start} to {to}: lost"));
            assert!(one.to == address(to) && one.start().starts_with(start), "{one:?}");
            assert!(sent.next().is_none());
            one
        };
        let Self { name, forwarded, steps } = self;
        if let Some(invite) = forwarded {
            let backend = invite.to.to_string();
            match *steps {
                1 => {
                    let ringing = script.send(&backend, &invite.answer("180 Ringing"));
                    expect_at(ringing, CALLER, "SIP/2.0 180");
                }
                2 => {
                    let answered = script.send(&backend, &invite.answer("200 OK"));
                    expect_at(answered, CALLER, "SIP/2.0 200");
                }
                3 => drop(expect_at(script.send(CALLER, &own("ACK", name, 1)), &backend, "ACK")),
                4 => {
                    let bye = expect_at(script.send(CALLER, &own("BYE", name, 2)), &backend, "BYE");
                    let ended = script.send(&backend, &bye.answer("200 OK"));
                    expect_at(ended, CALLER, "SIP/2.0 200");
                }
                _ => return,
            }
        }
        *steps += 1;
    }
}

fn calls_in_every_phase(scheme: Scheme, mode: Mode) {
    let mut script = adjusted(scheme, &[], |settings| settings.pools[0].mode = mode);
    let mut calls: Vec<Call> = Vec::new();
    for (step, law) in laws().into_iter().enumerate() {
        let case = format!("{scheme:?}, {mode:?}, step {step}");
        script.proxy.switch(script.now, law, Some(pacing()));
        // A call held back by one law continues under the next.
        let released = script.serve();
        let waited = calls.iter_mut().filter(|call| call.forwarded.is_none());
        let invites = released.into_iter().filter(|sent| sent.start().starts_with("INVITE"));
        let mut invites: Vec<_> = invites.collect();
        for call in waited {
            let mine = invites.iter().position(|invite| invite.header("Call-ID") == call.name);
            let mine = mine.unwrap_or_else(|| panic!("{case}: {} is lost", call.name));
            (call.forwarded, call.steps) = (Some(invites.remove(mine)), 1);
        }
        assert!(invites.is_empty(), "{case}");
        for call in &mut calls {
            call.go_on(&mut script);
        }
        if step % 2 == 0 {
            for letter in ["a", "b"] {
                let name = format!("{letter}{step}");
                let sent = script.send(CALLER, &invite(&name));
                assert!(sent.is_empty(), "{case}: it waits");
                calls.push(Call { name, forwarded: None, steps: 0 });
            }
        }
        script.pass(Duration::from_millis(20));
        let passed = script.sent();
        assert!(passed.iter().all(|sent| !sent.start().starts_with("INVITE")), "{case}");
    }
    script.proxy.switch(script.now, registry::find("none").unwrap().defaults(), None);
    for _ in 0..5 {
        script.serve();
        calls.iter_mut().for_each(|call| call.go_on(&mut script));
    }
    assert_eq!(calls.len(), 12);
    assert!(calls.iter().all(|call| call.steps == 5), "every call has come to its end");
    assert_eq!(script.counters.rejected(Reason::Law).get(), 0);
    assert_eq!(script.held(), [0, 0]);
}

#[test]
fn no_call_is_lost_whatever_phase_it_is_in() {
    for scheme in SCHEMES {
        for mode in [Mode::Stateless, Mode::Transaction] {
            calls_in_every_phase(scheme, mode);
        }
    }
}

#[test]
fn rejected_work_stays_rejected_under_the_next_law() {
    for scheme in SCHEMES {
        let mut script = closed_after(scheme, 0);
        let rejected = script.one(CALLER, &invite("a"));
        assert!(rejected.start().contains(" 503 "));
        script.proxy.switch(script.now, registry::find("none").unwrap().defaults(), None);
        script.pass(Duration::from_millis(500));
        assert_eq!(script.one(CALLER, &invite("a")), rejected, "{scheme:?}");
        assert_eq!(script.one(CALLER, &invite("b")).to, address(BACKEND_A), "{scheme:?}");
    }
}

#[test]
fn laws_in_force_are_published_at_once() {
    let mut script = under(SCHEMES[0], &[]);
    let place = |name: &str| {
        let found = registry::LAWS.iter().position(|law| law.name == name);
        found.unwrap() as u64 + 1
    };
    let [pi, ohta] = ["pi", "ohta"].map(|name| registry::find(name).unwrap().defaults());
    script.proxy.switch(script.now, pi, Some(ohta));
    let in_force = &script.counters.in_force;
    assert_eq!((in_force.law.get(), in_force.shadow.get()), (place("pi"), place("ohta")));
    script.proxy.switch(script.now, ohta, None);
    let in_force = &script.counters.in_force;
    assert_eq!((in_force.law.get(), in_force.shadow.get()), (place("ohta"), 0));
}

/// The decision of the shadow law for each call is counted beside the real decision.
#[test]
fn a_shadow_is_compared_with_the_law_in_force() {
    for scheme in SCHEMES {
        let mut script = under(scheme, &[]);
        let now = script.now;
        script.proxy.switch(now, law(&[("share", 0.5)]), Some(law(&[("share", 0.0)])));
        for call in 0..10 {
            assert_eq!(script.send(CALLER, &invite(&format!("c{call}"))).len(), 1);
        }
        // A retransmission is not new work.
        script.send(CALLER, &invite("c0"));
        script.proxy.on_load(script.now, tidegate_world::Load::default());
        let compared = script.counters.in_force.compared[0].get();
        assert_eq!((compared.only_real, compared.neither), (5, 5), "{scheme:?}");
        assert_eq!((compared.both, compared.only_shadow), (0, 0), "{scheme:?}");
        assert_eq!(script.counters.in_force.rejecting_of_shadow[0].get(), 1_000_000);
    }
}

#[test]
fn some_rejections_are_kept_with_the_load_of_that_moment() {
    for scheme in SCHEMES {
        let mut script = adjusted(scheme, &[("share", 0.0)], |settings| {
            settings.trace = TraceSettings { per_second: 2, kept: 3 };
        });
        for call in ["a", "b", "c"] {
            script.send(CALLER, &invite(call));
        }
        script.send(CALLER, &invite("a"));
        let kept = script.counters.rejections.list();
        let names: Vec<_> = kept.iter().map(|r| (&r.call_id[..], r.reason)).collect();
        let [a, b] = [b"a", b"b"].map(|name| &name[..]);
        let expected = [(a, Reason::Law), (b, Reason::Law), (a, Reason::Again)];
        let expected = expected.map(|(call, reason)| (call, ReplyReason::from(reason)));
        assert_eq!(names, expected, "{scheme:?}");
        assert_eq!((kept[0].source, &kept[0].method[..]), (address(CALLER), &b"INVITE"[..]));
        assert_eq!(kept[0].load.map(|load| load.allowance), Some(0.0));
    }
}
