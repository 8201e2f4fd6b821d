use std::time::Duration;

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns the responses of an interval of 100 ms: 100 of them, the quickest after `least_ms`.
fn seen(least_ms: u64, wanted: bool) -> Responses {
    Responses { lasted: ms(100), heard: 100, late: 0, least: Some(ms(least_ms)), lost: 0, wanted }
}

fn step(law: DelayWindow, seen: &Responses) -> DelayWindow {
    law.step(&WindowLearning::default(), seen)
}

/// A law that has learned a base of 1 ms.
fn warm() -> DelayWindow {
    step(DelayWindow::COLD, &seen(1, false))
}

/// A law after an interval that showed overload. Its first window is 51.
fn tripped() -> DelayWindow {
    step(warm(), &seen(102, false))
}

#[test]
fn it_begins_with_the_requests_that_wait_for_the_target() {
    assert_eq!(warm().window, f64::INFINITY);
    // 1,000 responses a second times 51 ms.
    assert_eq!(tripped().window.round(), 51.0);
    assert_eq!(step(warm(), &seen(100, false)).window, f64::INFINITY, "twice 50 ms, no more");
}

#[test]
fn slow_responses_of_some_requests_do_not_trip_it() {
    // The quickest response in each interval took 1 ms.
    let law = (0..100).fold(warm(), |law, _| step(law, &seen(1, false)));
    assert_eq!(law.window, f64::INFINITY);
}

#[test]
fn a_few_slow_responses_prove_nothing() {
    let few = Responses { heard: 4, ..seen(400, false) };
    assert_eq!(step(warm(), &few).window, f64::INFINITY);
}

#[test]
fn it_follows_the_ratio_of_target_and_delay() {
    let law = tripped();
    let next = |least_ms, wanted| step(law, &seen(least_ms, wanted)).window / law.window;
    assert!((next(68, true) - 0.75).abs() < 1e-9, "three quarters of 51 ms too long");
    assert_eq!(next(1000, true), 0.5, "half is the minimum");
    assert_eq!(next(10, true), 1.05, "a twentieth is the maximum growth");
    assert_eq!(next(10, false), 1.0, "not used up");
    assert!((next(50, true) - 1.02).abs() < 1e-9);
}

#[test]
fn silence_halves_it() {
    let silent = Responses { heard: 0, least: None, lost: 5, ..seen(0, true) };
    assert_eq!(step(tripped(), &silent).window, tripped().window / 2.0);
    let quiet = Responses { lost: 4, ..silent };
    assert_eq!(step(tripped(), &quiet).window, tripped().window, "too few to prove anything");
}

#[test]
fn loss_sets_the_window_to_what_the_back_end_can_hold() {
    // The back end sent 1,000 responses a second, each after 20 ms, so it held 20 requests. It lost
    // half of the requests.
    let lossy = Responses { lost: 100, ..seen(20, false) };
    let law = step(warm(), &lossy);
    assert_eq!(law.window, 10.0);
    let little = Responses { lost: 15, ..seen(20, false) };
    assert_eq!(step(warm(), &little).window, f64::INFINITY, "some paths lose that");
    assert!(step(tripped(), &little).window < tripped().window, "not while there is a window");
}

#[test]
fn a_loss_that_the_window_does_not_cause_belongs_to_the_path() {
    let lossy = Responses { lost: 30, ..seen(2, true) };
    let mut law = tripped();
    for _ in 0..10 {
        law = step(law, &lossy);
    }
    assert!(law.base_lost > 0.2, "{law:?}");
    for _ in 0..60 {
        law = step(law, &lossy);
    }
    assert!(law.window > 51.0, "{law:?}");
    // The law learns that the path loses less.
    law = (0..200).fold(law, |law, _| step(law, &seen(2, true)));
    assert!(law.base_lost < 0.01, "{law:?}");
}

#[test]
fn after_a_loss_requests_wait_for_half_of_what_the_buffer_holds() {
    let lossy = Responses { heard: 1000, lost: 250, ..seen(21, false) };
    let law = step(warm(), &lossy);
    assert!((law.wait_s - 0.010).abs() < 1e-9, "{law:?}");
    // The base is 1 ms, so the target is 11 ms now.
    assert!(step(law, &seen(10, true)).window > law.window);
    assert!(step(law, &seen(12, true)).window < law.window);
    let later = (0..700).fold(law, |law, _| step(law, &seen(1, false)));
    assert!((0.019..0.021).contains(&later.wait_s), "{later:?}");
}

#[test]
fn a_delay_that_the_window_does_not_cause_becomes_the_base() {
    // The path has become longer by 100 ms while the window is used up.
    let mut law = tripped();
    for _ in 0..10 {
        law = step(law, &seen(110, true));
    }
    assert!(law.window >= 51.0 / 4.0, "{law:?}");
    for _ in 0..30 {
        law = step(law, &seen(110, true));
    }
    assert!(law.window > 51.0, "{law:?}");
}

#[test]
fn the_base_rises_slowly_while_the_window_is_not_used_up() {
    let law = (0..200).fold(warm(), |law, _| step(law, &seen(30, false)));
    assert!((0.029..=0.030).contains(&law.base_s));
    // Overload does not raise the base.
    let law = (0..200).fold(tripped(), |law, _| step(law, &seen(50, true)));
    assert!(law.base_s <= 0.002);
}
