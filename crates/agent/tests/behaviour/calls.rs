//! Tests with both agents against each other in simulated time.

use std::collections::BTreeSet;
use std::collections::HashSet;
use std::time::Duration;

use crate::net::{Net, answering, calling, uas};
use tidegate_agent::{AnswererConfig, Behaviour, CallerConfig, CallerStats, Process};
use tidegate_world::Timestamp;

/// Checks that every offered call is accounted for exactly once.
fn balanced(stats: &CallerStats) {
    assert_eq!(stats.offered, stats.begun + stats.not_begun);
    assert_eq!(stats.begun, stats.completed + stats.failed.total() + stats.open);
}

#[test]
fn ten_thousand_calls_complete() {
    let hold = Duration::from_secs(1);
    let mut net =
        Net::new(CallerConfig { hold: hold.into(), ..calling(2000.0, 10_000) }, answering(), 1);
    let (caller, answerer) = net.run_out();
    balanced(&caller);
    assert_eq!((caller.completed, caller.set_up, caller.set_up_in_time), (10_000, 10_000, 10_000));
    assert_eq!(caller.repeated.total() + caller.unexpected + caller.late + caller.malformed, 0);
    assert_eq!((answerer.calls, answerer.answered), (10_000, 10_000));
    assert_eq!((answerer.acknowledged, answerer.completed, answerer.open), (10_000, 10_000, 0));
    assert_eq!(answerer.repeated + answerer.stray + answerer.malformed, 0);
    // A set-up takes one round trip of 2 x 5 ms. Delays have a precision of three digits.
    assert_eq!(caller.set_up_delay.max().as_micros() / 100, 100);
    assert_eq!(caller.lateness.max(), Duration::ZERO);
    assert_eq!(caller.too_slow(), None);
}

#[test]
fn retransmissions_replace_lost_packets_and_no_call_counts_twice() {
    let ring = Duration::from_millis(100);
    let mut net = Net::new(
        CallerConfig { hold: Duration::from_secs(1).into(), ..calling(1000.0, 10_000) },
        AnswererConfig { ring: ring.into(), ..answering() },
        2,
    );
    net.loss = 0.1;
    let (caller, answerer) = net.run_out();
    balanced(&caller);
    // A packet and its answer both arrive with probability 0.81. One of the seven transmissions of
    // an INVITE must succeed (1 - 0.19^7), and one of the ten of a BYE.
    assert!(caller.completed >= 9_990, "{}", caller.completed);
    assert!(caller.repeated.invite > 1000 && caller.repeated.bye > 1000, "{:?}", caller.repeated);
    assert!(caller.repeated.ack > 500, "{:?}", caller.repeated);
    // No copy of an INVITE counts as a second call.
    assert!(answerer.calls <= caller.begun, "{} > {}", answerer.calls, caller.begun);
    assert_eq!(answerer.calls, answerer.answered);
    assert!(answerer.completed + answerer.not_acknowledged <= answerer.calls);
    assert!(answerer.invites_again > 50 && answerer.byes_again > 500, "{answerer:?}");
    assert_eq!(caller.unexpected + caller.malformed + answerer.unexpected + answerer.malformed, 0);
}

#[test]
fn rejected_calls_fail_with_their_status_and_are_acknowledged() {
    let mut net = Net::new(
        calling(1000.0, 1000),
        AnswererConfig { mix: Behaviour::Reject(486).into(), ..answering() },
        3,
    );
    net.loss = 0.1;
    let (caller, answerer) = net.run_out();
    balanced(&caller);
    let busy = caller.failed.status[&486];
    assert_eq!(busy + caller.failed.timeout + caller.failed.abandoned, 1000);
    assert!(busy >= 998, "{:?}", caller.failed);
    assert_eq!((answerer.answered, answerer.rejected), (0, answerer.calls));
    assert!(answerer.repeated > 100, "timer G: {answerer:?}");
}

#[test]
fn the_offered_load_does_not_depend_on_answers() {
    let run = |behaviour: Behaviour, loss| {
        let mut net = Net::new(
            calling(500.0, 2000),
            AnswererConfig { mix: behaviour.into(), ..answering() },
            4,
        );
        net.loss = loss;
        net.trace = Some(Vec::new());
        let (stats, _) = net.run_out();
        balanced(&stats);
        let mut begun = HashSet::new();
        let mut invites = net.trace.unwrap();
        invites.retain(|(_, text)| text.starts_with("INVITE") && begun.insert(text.clone()));
        let moments: Vec<_> = invites.into_iter().map(|(at, _)| at).collect();
        (stats, moments)
    };
    let (answered, first) = run(Behaviour::Answer, 0.0);
    let (silent, first_silent) = run(Behaviour::Silent, 0.0);
    let (cut, first_cut) = run(Behaviour::Answer, 1.0);
    assert_eq!(first.len(), 2000);
    assert!(first == first_silent && first == first_cut, "the same moments");
    assert_eq!(answered.completed, 2000);
    for stats in [silent, cut] {
        assert_eq!((stats.offered, stats.begun, stats.failed.timeout), (2000, 2000, 2000));
        // RFC 3261 §17.1.1.2: six retransmissions before timer B fires.
        assert_eq!(stats.repeated.invite, 6 * 2000);
    }
}

#[test]
fn same_seed_same_packets() {
    let trace = |seed| {
        let mut net = Net::new(calling(300.0, 300), answering(), seed);
        net.loss = 0.05;
        net.trace = Some(Vec::new());
        net.run_out();
        net.trace.unwrap()
    };
    let first = trace(5);
    assert!(first.len() > 1800);
    assert!(first == trace(5), "same seed, same bytes at the same moments");
    assert!(first != trace(6), "another seed, another run");
}

#[test]
fn a_call_without_room_is_not_begun_but_counted() {
    let warm_up = Duration::from_millis(100);
    let mut net = Net::new(
        CallerConfig { open_max: 50, warm_up, ..calling(1000.0, 200) },
        AnswererConfig { mix: Behaviour::Silent.into(), ..answering() },
        7,
    );
    let (caller, _) = net.run_out();
    balanced(&caller);
    assert_eq!((caller.offered, caller.begun, caller.not_begun), (200, 50, 150));
    // All 50 calls begin long before the end of the warm-up, so every measured call did not begin.
    let measured = &caller.measured;
    assert!((1..150).contains(&measured.not_begun), "{measured:?}");
    assert_eq!(measured.not_begun, measured.offered);
    // A call that did not begin has no lateness, and lowers the rate of the calls that began.
    assert_eq!(caller.lateness.count(), 50);
    assert!((caller.begun_cps() / caller.intended_cps() - 0.25).abs() < 1e-6);
    // The calls that begin are punctual, so the caller is not too late.
    assert!(caller.too_slow().is_some() && caller.too_late().is_none());
}

#[test]
fn a_full_answerer_says_503_and_recovers() {
    let mut net =
        Net::new(calling(1000.0, 200), AnswererConfig { calls_max: 50, ..answering() }, 8);
    let (caller, answerer) = net.run_out();
    balanced(&caller);
    assert_eq!((caller.completed, caller.failed.status[&503]), (50, 150));
    assert_eq!((answerer.calls, answerer.overflowed), (200, 150));
}

#[test]
fn a_caller_without_patience_cancels() {
    // RFC 3261 §9.1, §9.2: CANCEL → 200, INVITE → 487 → ACK.
    let mut net = Net::new(
        CallerConfig { patience: Duration::from_secs(2).into(), ..calling(100.0, 300) },
        AnswererConfig { ring: Duration::from_secs(60).into(), ..answering() },
        9,
    );
    net.loss = 0.1;
    let (caller, answerer) = net.run_out();
    balanced(&caller);
    assert_eq!(caller.failed.abandoned + caller.failed.timeout, 300);
    assert!(answerer.cancelled >= 295, "{answerer:?}");
    assert_eq!(caller.unexpected + answerer.unexpected + answerer.malformed, 0);
}

#[test]
fn many_callers_take_turns() {
    let mut net = Net::new(CallerConfig { callers: 3, ..calling(100.0, 30) }, answering(), 10);
    net.trace = Some(Vec::new());
    net.run_out();
    let trace = net.trace.unwrap();
    for caller in 0..3 {
        let from = format!("From: <sip:caller-{caller}@192.0.2.1:5060>");
        let invites = trace.iter().filter(|(_, t)| t.starts_with("INVITE") && t.contains(&from));
        assert_eq!(invites.count(), 10);
    }
}

#[test]
fn many_callees_are_called_in_turn() {
    let mut net = Net::new(CallerConfig { callees: 3, ..calling(100.0, 30) }, answering(), 10);
    net.trace = Some(Vec::new());
    let (caller, _) = net.run_out();
    assert_eq!(caller.completed, 30, "what belongs to a call is for the same");
    let trace = net.trace.unwrap();
    for callee in 0..3 {
        let to = format!("INVITE sip:service-{callee}@");
        assert_eq!(trace.iter().filter(|(_, text)| text.starts_with(&to)).count(), 10);
    }
}

#[test]
fn uneven_callers_have_names_of_16_lengths() {
    let config = CallerConfig { callers: 32, uneven: true, ..calling(100.0, 64) };
    let mut net = Net::new(config, answering(), 10);
    net.trace = Some(Vec::new());
    net.run_out();
    let trace = net.trace.unwrap();
    let invites = || trace.iter().filter(|(_, text)| text.starts_with("INVITE"));
    let lengths: BTreeSet<_> = invites().map(|(_, text)| text.len()).collect();
    assert!(lengths.len() >= 16, "{lengths:?}");
    for (caller, name) in [(0, "0"), (1, "00000001"), (31, "00000000031")] {
        let from = format!("From: <sip:caller-{name}@192.0.2.1:5060>");
        let count = invites().filter(|(_, text)| text.contains(&from)).count();
        assert_eq!(count, 2, "caller {caller}");
    }
}

#[test]
fn the_answerers_name_is_seen() {
    let mut net = Net::new(
        calling(100.0, 1),
        AnswererConfig { name: "be\r\n-7".to_owned(), ..answering() },
        11,
    );
    net.trace = Some(Vec::new());
    net.run_out();
    let trace = net.trace.unwrap();
    let ok = trace.iter().find(|(_, t)| t.starts_with("SIP/2.0 200")).unwrap();
    assert!(ok.1.contains("Contact: <sip:be-7@192.0.2.2:5060>\r\n"), "{}", ok.1);
    assert!(ok.1.contains(";tag=be-7-"), "{}", ok.1);
}

#[test]
fn draining_starts_no_calls_and_ends_open_ones() {
    use tidegate_world::Core;
    let mut config = calling(100.0, u32::MAX);
    config.hold = Duration::from_secs(3).into();
    config.load.process = Process::Uniform;
    let mut net = Net::new(config, answering(), 12);
    net.run(Timestamp::ZERO + Duration::from_secs(5));
    assert!(!net.caller.is_drained());
    net.caller.on_drain(net.now);
    net.answerer.on_drain(net.now);
    let (caller, answerer) = net.run_out();
    balanced(&caller);
    assert!(net.caller.is_drained() && net.answerer.is_drained());
    assert_eq!(caller.begun, 501);
    // The last INVITE was on its way when the answerer began to drain.
    assert_eq!((caller.completed, caller.failed.status[&503], answerer.overflowed), (500, 1, 1));
}

#[test]
fn slack_saves_wakes_and_is_never_exceeded() {
    use tidegate_agent::Caller;
    use tidegate_world::{Core, Pool, Seed};
    let wakes = |slack| {
        let config = CallerConfig { slack, ..calling(5000.0, 1000) };
        let mut caller = Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap();
        let mut wakes = 0;
        while caller.stats().begun < 1000 {
            caller.handle_timeout(caller.poll_timeout().unwrap());
            wakes += 1;
            while caller.poll_transmit().is_some() {}
        }
        (wakes, caller.stats().lateness.max())
    };
    let (each, punctual) = wakes(Duration::ZERO);
    assert!(each >= 1000 && punctual.is_zero());
    let slack = Duration::from_millis(1);
    let (few, late) = wakes(slack);
    // A wake starts the call that waited, and the calls that become due within the same
    // millisecond: five on average.
    assert!(few < 250, "{few}");
    assert!((slack.mul_f64(0.9)..slack.mul_f64(1.01)).contains(&late), "{late:?}");
}

#[test]
fn statistics_of_two_callers_add_up() {
    let run = |seed| Net::new(calling(500.0, 400), answering(), seed).run_out().0;
    let (mut both, other) = (run(13), run(14));
    let mut nothing = CallerStats::default();
    nothing.merge(&both);
    assert_eq!(serde_json::to_string(&nothing).unwrap(), serde_json::to_string(&both).unwrap());
    both.merge(&other);
    balanced(&both);
    assert_eq!((both.offered, both.completed, both.set_up_delay.count()), (800, 800, 800));
    assert!((both.intended_cps() / 1000.0 - 1.0).abs() < 0.2, "{}", both.intended_cps());
    let json: serde_json::Value = serde_json::to_value(&both).unwrap();
    assert_eq!(json["set_up_delay"]["count"], 800);
}

#[test]
fn a_stalled_generator_finds_itself_too_slow() {
    use tidegate_agent::Caller;
    use tidegate_world::{Core, Pool, Seed};
    let mut config = calling(1000.0, 1000);
    config.load.process = Process::Uniform;
    let mut caller = Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap();
    // The caller wakes every 100 ms, and gets no answers.
    let mut invites = 0;
    let mut now = Timestamp::ZERO;
    while caller.stats().begun < 1000 {
        now = now + Duration::from_millis(100);
        while caller.poll_timeout().is_some_and(|at| at <= now) {
            caller.handle_timeout(now);
            let mut burst = 0;
            while let Some(transmit) = caller.poll_transmit() {
                invites += u64::from(transmit.bytes.starts_with(b"INVITE"));
                assert_eq!(transmit.flow.remote, uas());
                burst += 1;
            }
            assert!(burst <= 128, "a burst is bounded");
        }
    }
    assert_eq!(invites, 1000 + caller.stats().repeated.invite);
    let too_slow = caller.stats().too_slow().expect("100 ms are not punctual");
    assert!((98..=100).contains(&too_slow.lateness_p99.as_millis()), "{too_slow}");
    assert!(too_slow.to_string().contains("too slow"));
}
