//! Tests of the work that the proxy reports, for models of its cost.

use std::sync::Arc;

use crate::fixed::*;
use crate::script::*;
use proptest::prelude::*;
use tidegate_control::{Decide, Reason};
use tidegate_proxy::{Class, DropReason, Queueing};
use tidegate_world::{Core, Work};

fn work(offered: Option<Class>, served: Option<Class>, rejected: Option<Class>) -> Work {
    let number = |class: Option<Class>| class.map(|class| class as u8);
    Work {
        offered: number(offered),
        served: number(served),
        rejected: number(rejected),
        // The script's pool keeps no transactions.
        stateless: served.is_some(),
    }
}

/// Returns the work of offering a message, and of each service until the queues are empty.
fn works(script: &mut Script, text: &str) -> Vec<Work> {
    script.offer(CALLER, text.as_bytes());
    let mut works = vec![script.proxy.last_work()];
    while script.proxy.serve(script.now) {
        works.push(script.proxy.last_work());
    }
    assert_eq!(script.proxy.last_work(), Work::default(), "the last call did nothing");
    script.sent();
    works
}

#[test]
fn a_message_is_looked_at_and_served() {
    let invite_ = Some(Class::Invite);
    for (scheme, expected) in SCHEMES.into_iter().zip([
        vec![work(invite_, None, None), work(None, invite_, None)],
        vec![work(invite_, None, None), work(None, invite_, None)],
        vec![work(invite_, None, None), work(None, invite_, None)],
        vec![Work::default(), work(invite_, invite_, None)],
    ]) {
        let mut script = under(scheme, &[]);
        assert_eq!(works(&mut script, &invite("a")), expected, "{scheme:?}");
    }
}

#[test]
fn a_message_is_looked_at_and_rejected() {
    let invite_ = Some(Class::Invite);
    for (scheme, expected) in SCHEMES.into_iter().zip([
        vec![work(invite_, None, invite_)],
        vec![work(invite_, None, None), work(None, None, invite_)],
        vec![work(invite_, None, invite_)],
        vec![Work::default(), work(invite_, None, invite_)],
    ]) {
        let mut script = under(scheme, &[("share", 0.0)]);
        assert_eq!(works(&mut script, &invite("a")), expected, "{scheme:?}");
    }
}

// The rejection of a call takes three messages: INVITE, 503 and this ACK.
#[test]
fn the_ack_to_a_rejection_is_looked_at() {
    let mut script = closed_after(SCHEMES[0], 0);
    let reply = script.one(CALLER, &invite("a"));
    let (_, tag) = reply.header("To").split_once(";tag=").unwrap();
    let ack = request("ACK", "sip:bob@192.0.2.1", "a", 1, "Totag\r\n");
    let ack = ack.replace("tag=callee", &format!("tag={tag}"));
    assert_eq!(works(&mut script, &ack), [work(Some(Class::Ack), None, None)]);
}

#[test]
fn messages_without_a_class_are_checked_too() {
    let other = Some(Class::Other);
    let mut script = Script::new();
    assert_eq!(works(&mut script, "\r\n\r\n"), [work(other, None, None)]);
    assert_eq!(works(&mut script, "hello"), [work(other, None, other)]);
}

#[test]
fn a_call_that_is_held_back_is_looked_at_only_once() {
    let mut script = under((Queueing::Fifo, Decide::Service), &[("rate", 10.0)]);
    let moved = work(Some(Class::Invite), None, None);
    assert_eq!(works(&mut script, &invite("a")), [Work::default(), moved]);
    script.pass(std::time::Duration::from_millis(200));
    assert!(script.proxy.serve(script.now));
    assert_eq!(script.proxy.last_work(), work(None, Some(Class::Invite), None));
}

/// Generates a message.
fn message() -> impl Strategy<Value = String> {
    let call = prop::sample::select(vec!["a", "b", "c", "d"]);
    let method = prop::sample::select(vec![
        "INVITE", "INVITE", "INVITE", "ACK", "BYE", "CANCEL", "REGISTER", "OPTIONS",
    ]);
    let tag = prop::sample::select(vec!["", "", "Totag\r\n"]);
    let request = (method, call, tag, 1u32..3).prop_map(|(method, call, tag, cseq)| {
        request(method, "sip:bob@192.0.2.1", call, cseq, tag)
    });
    prop_oneof![
        12 => request,
        1 => Just("\r\n\r\n".to_owned()),
        1 => Just("hello".to_owned()),
        1 => Just(invite("e").replace("CSeq: 1 INVITE", "CSeq: one INVITE")),
        2 => Just("SIP/2.0 180 Ringing\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\r\n".to_owned()),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Offer(String),
    Serve,
    Pass(u64),
    Drain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => message().prop_map(Step::Offer),
        6 => Just(Step::Serve),
        3 => (1u64..20_000).prop_map(Step::Pass),
        1 => prop::bool::weighted(0.1).prop_map(|d| if d { Step::Drain } else { Step::Serve }),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// For any input and order of service, each message that is read is classified once and then
    /// served, rejected or dropped once.
    #[test]
    fn each_message_is_charged_once(
        steps in steps(),
        scheme in prop::sample::select(SCHEMES.to_vec()),
        share in prop::sample::select(vec![0.0, 0.5, 1.0]),
        rate in prop::sample::select(vec![0.0, 2.0, 300.0]),
        sticky in any::<bool>(),
        lifo in prop::sample::select(vec![0.0, 1.0]),
        wait_max in prop::sample::select(vec![0.0, 100.0]),
        floor in prop::sample::select(vec![0.0, 0.3]),
    ) {
        let queue = [("lifo", lifo), ("wait_max", wait_max), ("floor", floor)];
        let law = [&[("share", share), ("rate", rate)], &queue[..]].concat();
        let mut script = adjusted(scheme, &law, |settings| {
            settings.queue_max = 3;
            settings.overload.gate.sticky = sticky;
        });
        let counters = Arc::clone(&script.counters);
        let (mut arrived, mut unread) = (0, 0);
        let (mut offered, mut served, mut rejected) = (0, 0, 0);
        let mut charge = |work: Work| -> Result<(), TestCaseError> {
            offered += usize::from(work.offered.is_some());
            served += usize::from(work.served.is_some());
            rejected += usize::from(work.rejected.is_some());
            prop_assert!(work.served.is_none() || work.rejected.is_none());
            Ok(())
        };
        for step in steps.into_iter().chain([Step::Drain]) {
            match step {
                Step::Offer(text) => {
                    let lost = counters.dropped(DropReason::QueueFull).get();
                    script.offer(CALLER, text.as_bytes());
                    arrived += 1;
                    if scheme == (Queueing::Fifo, Decide::Service) {
                        unread += counters.dropped(DropReason::QueueFull).get() - lost;
                    }
                    charge(script.proxy.last_work())?;
                }
                Step::Serve => {
                    script.proxy.serve(script.now);
                    charge(script.proxy.last_work())?;
                }
                Step::Pass(ms) => script.pass(std::time::Duration::from_millis(ms)),
                Step::Drain => {
                    script.proxy.on_drain(script.now);
                    while script.proxy.serve(script.now) {
                        charge(script.proxy.last_work())?;
                    }
                }
            }
        }
        prop_assert_eq!(counters.queued.get(), 0);
        prop_assert_eq!(offered as u64, arrived - unread);
        let reasons = [
            DropReason::Keepalive,
            DropReason::Absorbed,
            DropReason::OwnAck,
            DropReason::Unverified,
        ];
        let dropped: u64 = reasons.iter().map(|&why| counters.dropped(why).get()).sum();
        let dropped = dropped + counters.dropped(DropReason::QueueFull).get() - unread;
        prop_assert_eq!((served + rejected) as u64 + dropped, arrived - unread);
        let by_gate: u64 = Reason::ALL.iter().map(|&why| counters.rejected(why).get()).sum();
        prop_assert!(by_gate <= rejected as u64);
        let flows = &counters.overload.flows;
        script.proxy.on_load(script.now, tidegate_world::Load::default());
        for flow in flows {
            prop_assert_eq!(flow.arrived.get(), flow.offered.get() + flow.repeated.get());
            prop_assert_eq!(flow.offered.get(), flow.admitted.get() + flow.rejected.get());
        }
    }
}
