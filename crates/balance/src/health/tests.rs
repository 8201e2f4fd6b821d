use proptest::prelude::*;

use super::*;
use crate::UNTIL_PROBED;

const PAUSE: Duration = Duration::from_secs(5);

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos((1_000 + ms) * 1_000_000)
}

fn share(health: &Health, ms: u64) -> u64 {
    health.share(at(ms))
}

#[test]
fn the_state_machine_follows_its_table() {
    use Liveness::{Down, Up};
    const NEVER: u64 = (1 << 59) - 1;
    let ns = |ms: u64| at(ms).as_nanos();
    let (up, old) = (Up { since: 0, errors: 0 }, Up { since: 7, errors: 2 });
    let (pausing, probed) = (Down { until: ns(50), good: 0 }, Down { until: NEVER, good: 1 });
    let now = at(20);
    let down_for_pause = Down { until: (now + PAUSE).as_nanos(), good: 0 };
    let table: &[(Liveness, Liveness, Liveness)] = &[
        // An answer resets the count. With probes, it does not bring the back end up.
        (old.on_answered(now), Up { since: 7, errors: 0 }, old),
        (pausing.on_answered(now), Up { since: ns(20), errors: 0 }, pausing),
        (pausing.on_answered(at(70)), Up { since: ns(50), errors: 0 }, pausing),
        (probed.on_answered(now), probed, probed),
        // Unanswered requests count up to the limit.
        (up.on_unanswered(now, 3, PAUSE), Up { since: 0, errors: 1 }, up),
        (old.on_unanswered(now, 3, PAUSE), down_for_pause, old),
        (up.on_unanswered(now, 1, PAUSE), down_for_pause, up),
        (up.on_unanswered(now, 1, UNTIL_PROBED), Down { until: NEVER, good: 0 }, up),
        // A report by the transport takes the back end down at once.
        (up.on_failed(now, PAUSE), down_for_pause, up),
        (pausing.on_failed(now, PAUSE), down_for_pause, pausing),
        (probed.on_failed(now, PAUSE), Down { until: NEVER, good: 0 }, probed),
        // Probes bring the back end up when enough of them were answered in a row.
        (old.on_probe_answered(now, 2), Up { since: 7, errors: 0 }, old),
        (probed.on_probe_answered(now, 3), Down { until: NEVER, good: 2 }, probed),
        (probed.on_probe_answered(now, 2), Up { since: ns(20), errors: 0 }, probed),
        (pausing.on_probe_answered(at(70), 1), Up { since: ns(50), errors: 0 }, pausing),
        // Without probes, the back end comes up by itself.
        (probed.on_unprobed(now + PAUSE), down_for_pause, probed),
        (probed.on_unprobed(Timestamp::NEVER), Down { until: NEVER - 1, good: 0 }, probed),
        (pausing.on_unprobed(now + PAUSE), pausing, pausing),
        (old.on_unprobed(now + PAUSE), Up { since: 7, errors: 0 }, old),
    ];
    for (i, (after, expected, before)) in table.iter().enumerate() {
        assert_eq!(after, expected, "row {i}, from {before:?}");
        assert_eq!(Liveness::unpack(after.pack()), *after, "row {i}");
    }
    assert!(!pausing.is_up(at(49)) && pausing.is_up(at(50)));
    assert!(!probed.is_up(Timestamp::NEVER), "only probes bring it back");
    assert_eq!([pausing.up_since(at(49)), pausing.up_since(at(50))], [Timestamp::ZERO, at(50)]);
    // A value that does not fit is clamped.
    let most = Up { since: NEVER, errors: COUNT_MAX };
    assert_eq!(Liveness::unpack(Up { since: NEVER + 1, errors: COUNT_MAX + 1 }.pack()), most);
}

#[test]
fn states_have_the_names_that_metrics_and_commands_show() {
    let names = State::ALL.map(State::name);
    let expected = [
        "up",
        "suspect",
        "slow-start",
        "busy",
        "spared",
        "down",
        "draining",
        "maintenance",
        "removed",
    ];
    assert_eq!(names, expected);
}

#[test]
fn after_a_return_the_share_grows_and_after_a_start_it_is_whole() {
    let health = Health::default();
    health.set_slow_start(Duration::from_millis(900));
    assert_eq!(share(&health, 0), 1000, "a cold start");
    health.change(at(0), |l| l.on_failed(at(0), UNTIL_PROBED));
    health.change(at(100), |l| l.on_probe_answered(at(100), 1));
    assert_eq!(health.state(at(100)), (State::SlowStart, at(100)));
    let shares: Vec<_> = [100, 101, 400, 550, 999, 1000].map(|ms| share(&health, ms)).into();
    assert_eq!(shares, [100, 101, 400, 550, 999, 1000]);
    assert_eq!(health.state(at(1000)), (State::Up, at(100)));
    health.set_slow_start(Duration::ZERO);
    assert_eq!(share(&health, 101), 1000);
}

#[test]
fn every_kind_of_return_begins_slowly() {
    let slow = || {
        let health = Health::default();
        health.set_slow_start(Duration::from_millis(900));
        health
    };
    // A return after the pause that follows a failure.
    let health = slow();
    health.change(at(0), |l| l.on_failed(at(0), Duration::from_millis(10)));
    assert_eq!((share(&health, 10), share(&health, 110)), (100, 200));
    // A return after the pause that Retry-After asked for.
    let health = slow();
    health.pause(at(0), Duration::from_millis(10));
    assert_eq!([9, 10].map(|ms| health.state(at(ms)).0), [State::Busy, State::SlowStart]);
    assert_eq!((share(&health, 10), share(&health, 110)), (100, 200));
    // A return by a command of an operator.
    let health = slow();
    health.set_admin_state(at(0), AdminState::Draining);
    health.set_admin_state(at(10), AdminState::InService);
    assert_eq!((share(&health, 10), share(&health, 110)), (100, 200));
}

#[test]
fn a_drained_back_end_takes_no_calls_and_keeps_its_health() {
    let health = Health::default();
    for (admin_state, state) in [
        (AdminState::Draining, State::Draining),
        (AdminState::Removed, State::Removed),
        (AdminState::Maintenance, State::Maintenance),
    ] {
        health.set_admin_state(at(0), AdminState::InService);
        health.set_admin_state(at(1), admin_state);
        health.set_admin_state(at(2), admin_state);
        assert_eq!(
            health.state(at(3)),
            (state, at(1)),
            "the same state again does not change its start"
        );
        assert!(health.is_alive(at(3)) && !health.takes_calls(at(3)));
    }
    // Failures in maintenance are ignored, and earlier failures are forgotten.
    health.change(at(4), |l| l.on_failed(at(4), UNTIL_PROBED));
    assert!(health.is_alive(at(4)));
    health.set_admin_state(at(5), AdminState::InService);
    health.change(at(6), |l| l.on_failed(at(6), UNTIL_PROBED));
    assert!(!health.takes_calls(at(6)));
    health.set_admin_state(at(7), AdminState::Maintenance);
    health.set_admin_state(at(8), AdminState::InService);
    assert!(health.takes_calls(at(8)));
    assert_eq!(health.transitions(), (1, 0));
    // A draining back end keeps the record of its failures.
    health.change(at(9), |l| l.on_failed(at(9), UNTIL_PROBED));
    health.set_admin_state(at(10), AdminState::Draining);
    assert!(!health.is_alive(at(10)));
    health.set_admin_state(at(11), AdminState::InService);
    assert!(!health.takes_calls(at(11)));
}

#[test]
fn a_silent_back_end_is_suspect_and_then_down() {
    let health = Health::default();
    let silent = |ms| health.change(at(ms), |l| l.on_unanswered(at(ms), 3, UNTIL_PROBED));
    silent(0);
    assert_eq!(health.state(at(1)), (State::Suspect, at(0)));
    assert!(health.takes_calls(at(1)));
    health.change(at(2), |l| l.on_answered(at(2)));
    assert_eq!(health.state(at(2)), (State::Up, Timestamp::ZERO));
    (3..5).for_each(silent);
    assert_eq!(health.state(at(4)), (State::Suspect, at(3)), "the first of two failures");
    silent(5);
    assert_eq!(health.state(at(6)), (State::Down, at(5)));
    silent(7);
    assert_eq!(health.state(at(8)), (State::Down, at(5)), "it was down already");
}

#[test]
fn a_back_end_is_busy_since_it_first_asked_for_the_pause() {
    let health = Health::default();
    health.pause(at(0), Duration::from_millis(100));
    assert_eq!(health.state(at(50)), (State::Busy, at(0)));
    health.pause(at(60), Duration::from_millis(100));
    assert_eq!(health.state(at(150)), (State::Busy, at(0)), "the pause was prolonged");
    assert_eq!(health.state(at(160)), (State::Up, at(160)));
    health.pause(at(200), Duration::from_millis(100));
    assert_eq!(health.state(at(250)), (State::Busy, at(200)), "this is another pause");
    // A pause that was forgotten is not prolonged. A new pause begins.
    health.forget();
    health.pause(at(260), Duration::from_millis(100));
    assert_eq!(health.state(at(270)), (State::Busy, at(260)));
    // A pause that began while the back end was down, or was not in service.
    health.change(at(400), |l| l.on_failed(at(400), Duration::from_millis(50)));
    health.pause(at(410), Duration::from_millis(100));
    assert_eq!(health.state(at(449)), (State::Down, at(400)));
    assert_eq!(health.state(at(451)), (State::Busy, at(450)));
    health.set_admin_state(at(460), AdminState::Draining);
    health.pause(at(470), Duration::from_millis(100));
    health.set_admin_state(at(480), AdminState::InService);
    assert_eq!(health.state(at(490)), (State::Busy, at(480)));
}

#[test]
fn a_pause_is_never_shortened() {
    let health = Health::default();
    health.pause(at(0), Duration::from_millis(100));
    health.pause(at(10), Duration::from_millis(10));
    assert!(!health.takes_calls(at(99)) && health.takes_calls(at(100)) && health.is_alive(at(50)));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Answered,
    Silent,
    Failed,
    Probe(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let plain = [Step::Answered, Step::Silent, Step::Failed, Step::Probe(true), Step::Probe(false)];
    prop::sample::select(plain.to_vec())
}

proptest! {
    /// A probed back end goes down after `fall` failures in a row, or at a report by the transport.
    /// It stays down until `rise` probes in a row were answered. Nothing else changes this.
    #[test]
    fn it_is_down_from_fall_failures_until_rise_answers(
        steps in prop::collection::vec(step(), 0..100), fall in 1..=COUNT_MAX, rise in 1..=COUNT_MAX
    ) {
        let health = Health::default();
        let (mut down, mut bad, mut good) = (false, 0, 0);
        for (i, step) in (1u64..).zip(steps) {
            let now = at(i);
            health.change(now, |l| match step {
                Step::Answered => l.on_answered(now),
                Step::Silent | Step::Probe(false) => l.on_unanswered(now, fall, UNTIL_PROBED),
                Step::Failed => l.on_failed(now, UNTIL_PROBED),
                Step::Probe(true) => l.on_probe_answered(now, rise),
            });
            let failed = matches!(step, Step::Silent | Step::Failed | Step::Probe(false));
            bad = if failed { bad + 1 } else { 0 };
            good = match step {
                Step::Probe(true) if down => good + 1,
                Step::Answered => good,
                _ => 0,
            };
            if down && good >= rise {
                (down, bad, good) = (false, 0, 0);
            } else if !down && (bad >= fall || matches!(step, Step::Failed)) {
                (down, good) = (true, 0);
            }
            prop_assert_eq!(health.is_alive(now), !down, "after step {}", i);
        }
        let (falls, returns) = health.transitions();
        prop_assert_eq!(falls - returns, u64::from(down));
    }

    /// Each word can be unpacked and packed again without a change, and no word causes a panic.
    #[test]
    fn every_word_is_a_state(word in any::<u64>(), ns in any::<u64>()) {
        let liveness = Liveness::unpack(word);
        prop_assert_eq!(liveness.pack(), word);
        let now = Timestamp::from_nanos(ns);
        for next in [
            liveness.on_answered(now),
            liveness.on_failed(now, PAUSE),
            liveness.on_unanswered(now, COUNT_MAX, UNTIL_PROBED),
            liveness.on_probe_answered(now, COUNT_MAX),
            liveness.on_unprobed(now),
        ] {
            Liveness::unpack(next.pack()).is_up(now);
        }
    }
}
