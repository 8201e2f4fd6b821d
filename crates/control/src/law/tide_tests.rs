//! Tests of the law `tide`.

use super::super::bench::Bench;
use super::*;

/// Runs `count` ticks of 10 ms with this occupancy. In each tick `taken` calls are taken and
/// `rejected` calls are rejected.
fn ticks(bench: &mut Bench, count: usize, occupancy: f64, taken: u64, rejected: u64) {
    for _ in 0..count {
        bench.pass(TICK, occupancy);
        let flow = bench.signals.flow_mut(Bucket::Session);
        flow.offered += taken + rejected;
        flow.taken += taken;
        flow.rejected += rejected;
        bench.tick();
    }
}

/// Like [`ticks`], and in each tick a limit rejects `limited` further calls.
fn ticks_beside_limits(
    bench: &mut Bench,
    count: usize,
    occupancy: f64,
    [taken, rejected, limited]: [u64; 3],
) {
    for _ in 0..count {
        let flow = bench.signals.flow_mut(Bucket::Session);
        flow.offered += limited;
        flow.rejected += limited;
        flow.limited += limited;
        ticks(bench, 1, occupancy, taken, rejected);
    }
}

fn window(bench: &Bench) -> f64 {
    match bench.allowance() {
        Allowance::Window(size) => size,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_window(bench: &Bench, expected: f64) {
    let window = window(bench);
    assert!((window - expected).abs() < 1.0, "{window}");
}

#[test]
fn it_admits_everything_until_there_is_evidence() {
    let mut bench = Bench::of(&ENTRY, &[]);
    // Other work shows nothing.
    ticks(&mut bench, 50, 1.0, 0, 0);
    assert_eq!(bench.allowance(), Allowance::Open);
    ticks(&mut bench, 19, 0.5, 1, 0);
    assert_eq!(bench.allowance(), Allowance::Open);
    ticks(&mut bench, 2, 0.5, 1, 0);
    assert!(matches!(bench.allowance(), Allowance::Window(_)));
    // The server makes no progress while calls wait.
    bench.signals.in_progress[Bucket::Session as usize] = 3;
    ticks(&mut bench, 1000, 1.0, 0, 5);
    assert_eq!(bench.allowance(), Allowance::Window(WINDOW_MIN));
}

#[test]
fn waiting_calls_that_are_not_taken_are_evidence_too() {
    let mut bench = Bench::of(&ENTRY, &[]);
    bench.signals.in_progress[Bucket::Session as usize] = 3;
    ticks(&mut bench, 11, 1.0, 0, 0);
    assert_eq!(bench.allowance(), Allowance::Window(WINDOW_MIN));
}

#[test]
fn a_stall_at_the_start_is_no_more_evidence_than_a_tick() {
    let mut bench = Bench::of(&ENTRY, &[]);
    for _ in 0..9 {
        bench.pass(Duration::from_millis(100), 1.0);
        bench.signals.flow_mut(Bucket::Session).taken += 1;
        bench.tick();
    }
    assert_eq!(bench.allowance(), Allowance::Open);
}

#[test]
fn a_pause_shrinks_the_window_only_after_its_calls_have_arrived() {
    let mut bench = Bench::of(&ENTRY, &[]);
    ticks(&mut bench, 300, 0.5, 10, 0);
    bench.pass(Duration::from_millis(100), 1.0);
    bench.signals.flow_mut(Bucket::Session).taken += 1;
    bench.tick();
    assert!((window(&bench) - 320.0).abs() < 10.0, "{}", window(&bench));
    ticks(&mut bench, 1, 1.0, 20, 0);
    assert!(window(&bench) < 240.0, "{}", window(&bench));
}

#[test]
fn the_window_is_what_the_server_takes_in_the_wait() {
    let mut bench = Bench::of(&ENTRY, &[]);
    // 1,000 calls/s occupy half of the time, so the capacity is 2,000 calls/s.
    ticks(&mut bench, 300, 0.5, 10, 0);
    assert_window(&bench, 320.0);
    // Now 2,000 calls/s are taken and 8,000 are rejected.
    ticks(&mut bench, 10, 1.0, 20, 80);
    assert!((window(&bench) - 160.0).abs() < 5.0, "{}", window(&bench));
    ticks(&mut bench, 10, 1.0, 20, 80);
    assert!((window(&bench) - 100.0).abs() < 5.0, "{}", window(&bench));
    assert!(!bench.law.is_at_rest());
    // In this hundredth of a second the processor is idle for half of the time, so there is
    // room. But many calls were rejected in the last two seconds.
    ticks(&mut bench, 30, 1.0, 20, 80);
    ticks(&mut bench, 1, 0.5, 10, 0);
    assert!((window(&bench) - 160.0).abs() < 10.0, "{}", window(&bench));
    assert!(!bench.law.is_at_rest());
    // Idle time shows that the overload is over.
    ticks(&mut bench, 60, 0.5, 10, 0);
    assert!((window(&bench) - 320.0).abs() < 10.0, "{}", window(&bench));
    assert!(bench.law.is_at_rest());
}

/// A queue of fewer than 16 calls would often be empty. Here 118 calls/s are taken.
#[test]
fn a_slow_server_keeps_enough_calls_waiting() {
    let mut bench = Bench::of(&ENTRY, &[]);
    for _ in 0..500 {
        ticks(&mut bench, 2, 1.0, 1, 1);
        ticks(&mut bench, 8, 1.0, 1, 0);
        ticks(&mut bench, 1, 0.9, 3, 0);
    }
    assert!((window(&bench) - 16.0).abs() < 2.0, "{}", window(&bench));
}

#[test]
fn the_wait_reaches_its_maximum_only_while_few_calls_are_rejected() {
    // 25 and 200 calls are rejected for 1,000 calls that are taken. The processor is idle for a
    // hundredth of the time, so D would grow without the ceiling.
    for (rejected, wait_s) in [(25, 0.16), (200, 0.08)] {
        let mut bench = Bench::of(&ENTRY, &[]);
        ticks(&mut bench, 100, 1.0, 100, 300);
        for _ in 0..60 {
            ticks(&mut bench, 9, 0.99, 100, rejected / 10);
            ticks(&mut bench, 1, 0.99, 100, rejected - 9 * (rejected / 10));
        }
        let expected = 10_000.0 / 0.99 * wait_s;
        assert!(
            (window(&bench) - expected).abs() < 0.03 * expected,
            "{} {rejected}",
            window(&bench)
        );
    }
}

/// At ten times the capacity nine in ten INVITEs are dropped before they are read, and few of the
/// others are rejected.
#[test]
fn dropped_calls_keep_the_wait_below_half_of_its_maximum() {
    for (dropped, wait_s) in [([0.9, 0.0], 0.08), ([0.0, 0.9], 0.16)] {
        let mut bench = Bench::of(&ENTRY, &[]);
        ticks(&mut bench, 100, 1.0, 100, 300);
        bench.signals.dropped = dropped;
        ticks(&mut bench, 1000, 0.99, 100, 1);
        let expected = 10_000.0 / 0.99 * wait_s;
        assert!(
            (window(&bench) - expected).abs() < 0.03 * expected,
            "{} {dropped:?}",
            window(&bench)
        );
    }
}

/// A fifth of the calls are dropped, and a fifth of the others are rejected, so .36 are lost. The
/// idle share of .136 leaves a shortage of .02.
#[test]
fn only_calls_that_are_read_can_be_rejected() {
    let mut bench = Bench::of(&ENTRY, &[]);
    ticks(&mut bench, 100, 1.0, 8, 24);
    bench.signals.dropped = [0.2, 0.0];
    ticks(&mut bench, 1000, 0.864, 8, 2);
    assert!((window(&bench) - 800.0 / 0.864 * 0.16).abs() < 5.0, "{}", window(&bench));
}

/// A fifth of the calls are rejected. One idle tick then raises D to its ceiling.
#[test]
fn an_overload_lasts_after_about_a_second() {
    for (count, wait_s) in [(50, 0.16), (150, 0.08)] {
        let mut bench = Bench::of(&ENTRY, &[]);
        ticks(&mut bench, count, 1.0, 8, 2);
        ticks(&mut bench, 1, 0.0, 8, 2);
        assert!((window(&bench) / 800.0 - wait_s).abs() < 0.01, "{} {count}", window(&bench));
    }
}

/// Nearly all calls of a source above its limit are dropped, and a few calls of others are rejected
/// because they come in bursts. The processor has room.
#[test]
fn calls_dropped_of_a_source_above_its_limit_do_not_shorten_the_queue() {
    let mut bench = Bench::of(&ENTRY, &[]);
    bench.signals.dropped = [0.85, 0.0];
    for _ in 0..20 {
        ticks_beside_limits(&mut bench, 5, 1.0, [8, 8, 40]);
        ticks_beside_limits(&mut bench, 95, 0.8, [8, 0, 40]);
    }
    assert!((window(&bench) - 1000.0 * 0.16).abs() < 5.0, "{}", window(&bench));
}

/// No call that was read is rejected, so D stays at its maximum while most calls are dropped.
#[test]
fn it_is_at_rest_only_when_the_shortage_has_ended() {
    let mut bench = Bench::of(&ENTRY, &[]);
    bench.signals.dropped = [0.9, 0.0];
    ticks(&mut bench, 300, 0.99, 8, 0);
    assert!(!bench.law.is_at_rest());
    bench.signals.dropped = [0.0, 0.0];
    ticks(&mut bench, 100, 0.1, 1, 0);
    assert!(bench.law.is_at_rest());
}

/// In each period of 0.4 s the processor is idle for half of the time. As many calls are rejected
/// as in a lasting overload.
#[test]
fn bursts_with_pauses_find_the_whole_queue() {
    let mut bench = Bench::of(&ENTRY, &[]);
    for _ in 0..20 {
        ticks(&mut bench, 20, 1.0, 20, 10);
        ticks(&mut bench, 20, 0.0, 0, 0);
        // The occupied time of the last busy tick does not count yet.
        assert!((window(&bench) - 330.0).abs() < 15.0, "{}", window(&bench));
    }
}

/// 1,000 registrations/s are taken, and 3,000/s are rejected. Beside them 1,000 calls/s are taken,
/// and none is rejected.
#[test]
fn rejected_registrations_shorten_their_own_wait_and_not_that_of_calls() {
    let mut bench = Bench::of(&ENTRY, &[]);
    for _ in 0..300 {
        bench.pass(TICK, 1.0);
        let flow = bench.signals.flow_mut(Bucket::Single);
        flow.offered += 40;
        flow.taken += 10;
        flow.rejected += 30;
        let flow = bench.signals.flow_mut(Bucket::Session);
        flow.offered += 10;
        flow.taken += 10;
        bench.tick();
    }
    assert!(!bench.law.is_at_rest());
    let Allowance::Window(size) = bench.control.admit(Bucket::Single) else { panic!() };
    assert!((size - 50.0).abs() < 1.0, "{size}");
    assert_window(&bench, 160.0);
}

#[test]
fn other_work_and_rest_do_not_shrink_the_window() {
    let mut bench = Bench::of(&ENTRY, &[]);
    ticks(&mut bench, 300, 0.5, 10, 0);
    ticks(&mut bench, 1000, 0.9, 0, 0);
    assert_window(&bench, 320.0);
    ticks(&mut bench, 100_000, 0.001, 0, 0);
    assert_window(&bench, 320.0);
}

/// A night with few calls must not make the window large: each call takes 0.5 ms, for any time
/// between two calls.
#[test]
fn rests_between_calls_do_not_enlarge_the_window() {
    let mut bench = Bench::of(&ENTRY, &[]);
    for _ in 0..1000 {
        bench.pass(Duration::from_secs(10), 0.0);
        assert!(bench.law.is_at_rest());
        bench.law.on_wake(bench.now, &bench.signals);
        bench.arrival();
        ticks(&mut bench, 1, 0.05, 1, 0);
    }
    ticks(&mut bench, 1, 1.0, 20, 0);
    // The occupied time of the last tick does not count yet.
    assert!((window(&bench) - 336.0).abs() < 2.0, "{}", window(&bench));
}

#[test]
fn a_longer_stall_counts_less() {
    for (length_ms, counted_s) in [(50, 0.05), (100, 0.1), (200, 0.05), (5000, 0.002)] {
        assert!((step_s(Duration::from_millis(length_ms)) - counted_s).abs() < 1e-9);
        let mut bench = Bench::of(&ENTRY, &[]);
        ticks(&mut bench, 300, 0.5, 10, 0);
        bench.pass(Duration::from_millis(length_ms), 1.0);
        bench.signals.flow_mut(Bucket::Session).taken += 1;
        bench.tick();
        ticks(&mut bench, 1, 0.5, 10, 0);
        // 2,000 calls/s for 0.2 s of occupied time, and eleven calls in the stall.
        let kept = (-counted_s / FORGET_S).exp();
        let rate = (400.0 * kept + 11.0) / (0.2 * kept + counted_s);
        assert!((window(&bench) - 0.16 * rate).abs() < 9.0, "{} {length_ms}", window(&bench));
    }
}

#[test]
fn a_standing_lag_takes_from_the_wait_and_a_single_one_does_not() {
    let mut bench = Bench::of(&ENTRY, &[]);
    bench.signals.queue.lag = Some(Duration::ZERO);
    ticks(&mut bench, 100, 1.0, 10, 0);
    // Each tick takes 10 ms, so 80 ms of this wait are standing.
    bench.signals.queue.lag = Some(Duration::from_millis(90));
    ticks(&mut bench, 9, 1.0, 10, 0);
    assert_window(&bench, 160.0);
    ticks(&mut bench, 1, 1.0, 10, 0);
    assert_window(&bench, 80.0);
    bench.signals.queue.lag = Some(Duration::from_millis(500));
    ticks(&mut bench, 10, 1.0, 10, 0);
    assert_window(&bench, 40.0);
    assert_eq!(bench.control.queue.wait_max, None);
    // The kernel drops what does not fit.
    bench.signals.socket_fill = 1.0;
    ticks(&mut bench, 1, 1.0, 10, 0);
    assert_eq!(bench.control.queue.wait_max, Some(Duration::from_millis(690)));
}

/// A turn of a slow processor reads for some ticks, and then serves for some ticks.
#[test]
fn a_busy_tick_without_reading_shows_no_shorter_wait() {
    let mut bench = Bench::of(&ENTRY, &[]);
    for lag in [Some(Duration::from_millis(90)), None].repeat(50) {
        bench.signals.queue.lag = lag;
        ticks(&mut bench, 1, 1.0, 10, 0);
    }
    // 20 ms pass between two ticks with messages.
    assert_window(&bench, 90.0);
    bench.signals.queue.lag = None;
    ticks(&mut bench, 1, 0.5, 10, 0);
    assert_window(&bench, 160.0);
}

#[test]
fn requests_that_stand_alone_have_their_own_window() {
    let mut bench = Bench::of(&ENTRY, &[]);
    for _ in 0..100 {
        bench.signals.flow_mut(Bucket::Single).taken += 100;
        ticks(&mut bench, 1, 1.0, 10, 0);
    }
    assert!((window(&bench) - 160.0).abs() < 1.0);
    let single = bench.control.admit(Bucket::Single);
    assert!(matches!(single, Allowance::Window(size) if (size - 1600.0).abs() < 10.0));
}

#[test]
fn it_ignores_events_before_it_began() {
    let mut bench = Bench::of(&ENTRY, &[]);
    bench.signals.flow_mut(Bucket::Session).taken = 1_000_000;
    bench.signals.flow_mut(Bucket::Session).offered = 3_000_000;
    bench.signals.flow_mut(Bucket::Session).rejected = 2_000_000;
    bench.law.on_begin(bench.now, &bench.signals);
    ticks(&mut bench, 1, 1.0, 0, 0);
    assert_eq!(bench.allowance(), Allowance::Open);
    ticks(&mut bench, 100, 1.0, 10, 0);
    assert_window(&bench, 160.0);
}

/// If the law began cold, it would admit the whole flood until it has measured the rate again.
#[test]
fn other_parameters_keep_the_measurements() {
    let mut bench = Bench::of(&ENTRY, &[]);
    ticks(&mut bench, 300, 1.0, 20, 80);
    assert_window(&bench, 100.0);
    assert!(bench.law.adjust(&ENTRY.values(&[("wait_min", 0.06)]).unwrap()));
    ticks(&mut bench, 1, 1.0, 20, 80);
    assert_window(&bench, 120.0);
    let long = ENTRY.values(&[("wait_max", 0.2), ("stale", 0.4)]).unwrap();
    assert!(bench.law.adjust(&long));
    ticks(&mut bench, 30, 1.0, 20, 80);
    assert_window(&bench, 100.0);
    ticks(&mut bench, 60, 0.0, 0, 0);
    assert_window(&bench, 400.0);
}

#[test]
fn calls_become_too_old_only_in_a_long_overload() {
    let mut bench = Bench::of(&ENTRY, &[]);
    // A short overload: four of five calls are rejected.
    ticks(&mut bench, 5, 1.0, 20, 80);
    assert_eq!(bench.control.queue.wait_max, None);
    ticks(&mut bench, 20, 1.0, 20, 80);
    assert_eq!(bench.control.queue.wait_max, Some(Duration::from_millis(150)));
    ticks(&mut bench, 1, 0.5, 10, 0);
    assert_eq!(bench.control.queue.wait_max, Some(Duration::from_millis(200)));
    ticks(&mut bench, 40, 0.5, 10, 0);
    assert_eq!(bench.control.queue.wait_max, None);
}

/// Runs `count` busy ticks in each of which two calls are sent to back ends and answered after
/// 300 ms.
fn answers(bench: &mut Bench, count: usize, rejected: u64) {
    for _ in 0..count {
        let answers = &mut bench.signals.answers;
        (answers.sent, answers.ended) = (answers.sent + 2, answers.ended + 2);
        answers.waited += 2 * Duration::from_millis(300);
        ticks(bench, 1, 1.0, 2, rejected);
    }
}

#[test]
fn if_back_ends_are_slow_unanswered_calls_are_limited_for_two_seconds_after_a_rejection() {
    let mut bench = Bench::of(&ENTRY, &[]);
    ticks(&mut bench, 100, 1.0, 2, 1);
    assert!(!bench.control.queue.takes_turns && bench.control.queue.unanswered_max.is_infinite());
    answers(&mut bench, 900, 0);
    assert!(bench.control.queue.takes_turns);
    assert_eq!(bench.control.queue.unanswered_max, f64::INFINITY);
    answers(&mut bench, 1, 1);
    let limit = bench.control.queue.unanswered_max;
    assert!((limit - 200.0 * (0.3 + 0.05)).abs() < 1.0, "{limit}");
    answers(&mut bench, 199, 0);
    assert!(bench.control.queue.unanswered_max.is_finite());
    answers(&mut bench, 1, 0);
    assert_eq!(bench.control.queue.unanswered_max, f64::INFINITY);
}

// A call to a phone goes through the proxy twice if the registrar is a back end: once to the
// registrar, and then to the phone. The registrar answers the first INVITE when the phone has
// answered the second one, so the second one must not wait for this answer.
#[test]
fn back_ends_that_send_invites_are_not_slow() {
    let mut bench = Bench::of(&ENTRY, &[]);
    answers(&mut bench, 900, 1);
    assert!(bench.control.queue.takes_turns && bench.control.queue.unanswered_max.is_finite());
    bench.signals.back_ends_called = Some(bench.now);
    answers(&mut bench, 1, 1);
    assert!(!bench.control.queue.takes_turns && bench.control.queue.unanswered_max.is_infinite());
    answers(&mut bench, 997, 1);
    assert!(!bench.control.queue.takes_turns);
    answers(&mut bench, 3, 1);
    assert!(bench.control.queue.takes_turns);
}

// The limit once stayed in force, and was shown, after the law had come to rest.
#[test]
fn it_is_not_at_rest_while_unanswered_calls_are_limited() {
    let mut bench = Bench::of(&ENTRY, &[]);
    answers(&mut bench, 900, 1);
    ticks(&mut bench, 100, 0.0, 0, 0);
    assert!(!bench.law.is_at_rest());
    ticks(&mut bench, 101, 0.0, 0, 0);
    assert!(bench.law.is_at_rest());
    assert_eq!(bench.control.queue.unanswered_max, f64::INFINITY);
}

#[test]
fn waits_are_in_order() {
    assert!(ENTRY.values(&[("wait_min", 0.2)]).is_err());
    assert!(ENTRY.values(&[("stale", 0.1)]).is_err());
    assert!(ENTRY.values(&[("wait_min", 0.16), ("stale", 0.16)]).is_ok());
}

// A source may be told that it exceeds its limit while the processor has room for all others.
#[test]
fn calls_above_the_limit_of_their_source_do_not_shorten_the_queue_of_others() {
    let mut bench = Bench::of(&ENTRY, &[]);
    ticks(&mut bench, 300, 0.8, 10, 0);
    let whole = window(&bench);
    ticks_beside_limits(&mut bench, 300, 0.8, [10, 0, 90]);
    assert_window(&bench, whole);
    // In an overload, the rejected share is that of the other calls.
    let mut overloaded = [[10, 10, 0], [10, 10, 480]].map(|calls| {
        let mut bench = Bench::of(&ENTRY, &[]);
        ticks_beside_limits(&mut bench, 20, 1.0, calls);
        window(&bench)
    });
    overloaded.sort_by(f64::total_cmp);
    assert_eq!(overloaded[0], overloaded[1]);
}

#[test]
fn calls_that_a_full_pool_rejects_do_not_limit_the_unanswered_calls() {
    let mut bench = Bench::of(&ENTRY, &[]);
    ticks(&mut bench, 100, 1.0, 2, 0);
    for _ in 0..900 {
        let flow = bench.signals.flow_mut(Bucket::Session);
        (flow.offered, flow.rejected, flow.limited) =
            (flow.offered + 1, flow.rejected + 1, flow.limited + 1);
        answers(&mut bench, 1, 0);
    }
    assert!(bench.control.queue.takes_turns);
    assert_eq!(bench.control.queue.unanswered_max, f64::INFINITY);
}
