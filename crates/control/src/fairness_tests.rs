use proptest::prelude::*;
use tidegate_world::{Purpose, Seed};

use super::*;
use crate::arrival_rate::ArrivalRate;
use crate::{Allowance, Throttle, ThrottleKind};

fn at_us(us: u64) -> Timestamp {
    Timestamp::from_nanos(us * 1000)
}

fn fairness(sources_max: usize) -> Fairness {
    Fairness::new(sources_max, &mut Seed(1).stream(Purpose::Sources, 0))
}

/// The arrivals of a source.
#[derive(Clone, Copy)]
enum Arrivals {
    Even,
    Poisson,
}

/// A run of several sources, each with a rate, under a throttle.
struct Run {
    seconds: f64,
    /// Time before which nothing is counted.
    counted_from_s: f64,
    allowance: Allowance,
    arrivals: Arrivals,
    kind: ThrottleKind,
}

struct Passed {
    /// Pieces a second of each source: those that arrived (`offered`), and those that passed
    /// (`rates`).
    offered: Vec<f64>,
    rates: Vec<f64>,
    /// Pieces that the throttle admitted since the start, pieces that passed, and the maximum by
    /// which the second number exceeded the first.
    let_pass: f64,
    all: f64,
    ahead_max: f64,
}

impl Run {
    fn even(share: f64) -> Self {
        Self {
            seconds: 6.0,
            counted_from_s: 1.0,
            allowance: Allowance::Fraction(share),
            arrivals: Arrivals::Even,
            kind: ThrottleKind::Deterministic,
        }
    }

    fn of(&self, offered: &[f64]) -> Passed {
        let mut draws = Seed(7).stream(Purpose::Arrivals, 0);
        let mut pieces = Vec::new();
        for (source, &rate) in offered.iter().enumerate() {
            let mut at = draws.unit() / rate.max(1e-9);
            while at < self.seconds {
                pieces.push((at, source));
                at += match self.arrivals {
                    Arrivals::Even => 1.0 / rate,
                    Arrivals::Poisson => draws.exponential(1.0 / rate),
                };
            }
        }
        pieces.sort_by(|a, b| f64::total_cmp(&a.0, &b.0));
        let mut fairness = fairness(1000);
        let mut arrivals = ArrivalRate::default();
        let mut throttle = Throttle::new(self.kind, 5, Seed(1).stream(Purpose::Throttle, 0));
        let none = vec![0.0; offered.len()];
        let mut passed =
            Passed { offered: none.clone(), rates: none, let_pass: 0.0, all: 0.0, ahead_max: 0.0 };
        let one = 1.0 / (self.seconds - self.counted_from_s);
        for (at_s, index) in pieces {
            let now = Timestamp::ZERO + Duration::from_secs_f64(at_s);
            let source = fairness.on_arrival(now, index as u128, 1);
            let let_pass = throttle.passes(now, self.allowance, 0);
            arrivals.on_arrival(now);
            let share = self.allowance.fraction(arrivals.rate());
            let pass = fairness.decide_waiting(now, source, share, let_pass);
            passed.let_pass += f64::from(u8::from(let_pass));
            let counts = if at_s >= self.counted_from_s { one } else { 0.0 };
            passed.offered[index] += counts;
            if pass == FairnessDecision::Yes {
                passed.all += 1.0;
                passed.rates[index] += counts;
            }
            passed.ahead_max = passed.ahead_max.max(passed.all - passed.let_pass);
        }
        passed
    }
}

fn fair(offered: &[f64], total: f64) -> Vec<f64> {
    let mut max_min = MaxMin::default();
    max_min.set(offered.iter().map(|&rate| (rate, 1.0)));
    let level = max_min.level(total);
    offered.iter().map(|rate| rate.min(level)).collect()
}

#[track_caller]
fn assert_near(rates: &[f64], expected: &[f64], tolerance: f64) {
    for (rate, wanted) in rates.iter().zip(expected) {
        let close = (rate - wanted).abs() <= tolerance * wanted + 1.0;
        assert!(close, "{rates:.1?} but {expected:.1?}");
    }
}

#[test]
fn a_flood_gets_the_rest_that_the_others_leave() {
    let offered = [10_000.0, 50.0, 30.0, 20.0];
    for arrivals in [Arrivals::Even, Arrivals::Poisson] {
        let passed = Run { arrivals, ..Run::even(0.02) }.of(&offered);
        let all: f64 = passed.offered.iter().sum();
        assert_near(&passed.rates, &fair(&passed.offered, 0.02 * all), 0.03);
    }
}

#[test]
fn two_floods_share_alike() {
    let offered = [8000.0, 1000.0, 20.0, 20.0];
    for arrivals in [Arrivals::Even, Arrivals::Poisson] {
        let passed = Run { arrivals, ..Run::even(0.02) }.of(&offered);
        assert_near(&passed.rates, &fair(&offered, 180.8), 0.1);
    }
}

#[test]
fn throttles_set_the_amount_and_fairness_the_sources() {
    let offered = [5000.0, 40.0, 40.0];
    for kind in ThrottleKind::ALL {
        for allowance in [Allowance::Fraction(0.05), Allowance::Rate(254.0)] {
            let run = Run { kind, allowance, arrivals: Arrivals::Poisson, ..Run::even(0.0) };
            let passed = run.of(&offered);
            let let_pass = passed.let_pass / run.seconds;
            assert_near(&passed.rates, &fair(&passed.offered, let_pass), 0.1);
        }
    }
}

#[test]
fn a_single_source_gets_all_that_the_throttle_lets_pass() {
    let passed = Run { arrivals: Arrivals::Poisson, ..Run::even(0.3) }.of(&[400.0]);
    assert!((passed.let_pass - passed.all).abs() <= 2.0);
}

#[test]
fn a_sudden_flood_hardly_affects_the_others() {
    let (mut fairness, mut passed) = (fairness(100), [0; 2]);
    let mut throttle =
        Throttle::new(ThrottleKind::Deterministic, 1, Seed(1).stream(Purpose::Throttle, 0));
    // 100/s are all admitted until, after 2 s, 10,000/s more come and the law admits 200/s.
    for tick in 0..40_000u64 {
        let now = at_us(tick * 100);
        let floods = tick >= 20_000;
        let share = if floods { 200.0 / 10_100.0 } else { 1.0 };
        let mut offer = |source: usize| {
            let slot = fairness.on_arrival(now, source as u128, 1);
            let let_pass = throttle.passes(now, Allowance::Fraction(share), 0);
            let pass = fairness.decide_waiting(now, slot, share, let_pass);
            passed[source] += u32::from(floods && pass == FairnessDecision::Yes);
        };
        if tick % 100 == 0 {
            offer(0);
        }
        if floods {
            offer(1);
        }
    }
    assert!(passed[0] >= 190, "{passed:?} of 200");
    assert!((180..=230).contains(&passed[1]), "{passed:?}");
}

#[test]
fn a_flood_is_found_out_before_a_tenth_of_a_second_has_passed() {
    let run = Run { seconds: 0.1, counted_from_s: 0.02, ..Run::even(0.02) };
    let passed = run.of(&[10_000.0, 100.0]);
    assert_near(&passed.rates[1..], &[100.0], 0.13);
}

#[test]
fn infrequent_sources_are_not_shut_out() {
    // Each of a thousand sources sends once every two seconds on average. A fifth of all requests is
    // admitted.
    let offered = vec![0.5; 1000];
    let run = Run { seconds: 20.0, arrivals: Arrivals::Poisson, ..Run::even(0.2) };
    let passed = run.of(&offered);
    let ratio = passed.all / passed.let_pass;
    assert!((0.95..=1.05).contains(&ratio), "{ratio}");
    let served = passed.rates.iter().filter(|&&rate| rate > 0.0).count();
    // Each source sends nine or ten pieces, and each piece passes with probability 0.2. So the
    // probability that none of them passes is about 0.8 to the tenth.
    assert!(served > 800, "{served} of 1000");
}

#[test]
fn sources_beyond_the_table_count_as_one() {
    let mut fairness = fairness(2);
    let sources = [1, 2, 3, 4].map(|source| fairness.on_arrival(at_us(0), source, 1));
    assert_eq!((fairness.sources(), fairness.overflowed()), (2, 2));
    assert!(sources[2] == sources[3] && sources[1] != sources[2]);
    // After three seconds, sources 1 and 2 would be forgotten, but source 1 holds a place.
    fairness.hold(sources[0]);
    let late = fairness.on_arrival(at_us(3_000_000), 5, 1);
    assert_eq!((late, fairness.overflowed()), (sources[2], 3), "looked at after it was placed");
    assert_eq!(fairness.sources(), 1);
    fairness.release(sources[0]);
    fairness.on_arrival(at_us(6_000_000), 5, 1);
    assert_eq!(fairness.sources(), 1);
}

#[test]
fn a_trunk_of_many_users_has_the_share_of_all_of_them() {
    // A trunk sends 500/s and a flood 2,000/s. Of the sum, 550/s pass.
    for (weight, trunk_at_least, flood_at_most) in [(1, 270, 280), (10, 495, 60)] {
        let mut fairness = fairness(10);
        let share = 550.0 / 2_500.0;
        let mut throttle =
            Throttle::new(ThrottleKind::Deterministic, 5, Seed(1).stream(Purpose::Throttle, 0));
        let mut passed = [0; 2];
        for tick in 0..10_000 {
            let now = at_us(400 * tick);
            let is_trunk = tick % 5 == 0;
            let weight = if is_trunk { weight } else { 1 };
            let source = fairness.on_arrival(now, u128::from(is_trunk), weight);
            let let_pass = throttle.passes(now, Allowance::Fraction(share), 0);
            let pass = fairness.decide_waiting(now, source, share, let_pass);
            // Count only in the last of the four seconds.
            if tick >= 7_500 && pass == FairnessDecision::Yes {
                passed[usize::from(is_trunk)] += 1;
            }
        }
        assert!(
            passed[1] >= trunk_at_least && passed[0] <= flood_at_most,
            "{passed:?} by {weight}"
        );
    }
}

#[test]
fn a_flood_leaves_a_ninth_of_the_room() {
    let mut fairness = fairness(10);
    let [flood, other] = [1, 2].map(|source| fairness.on_arrival(at_us(0), source, 1));
    let mut held = 0;
    while fairness.may_hold(flood, 90, held) {
        fairness.hold(flood);
        held += 1;
    }
    assert_eq!(held, 80);
    for _ in 0..5 {
        assert!(fairness.may_hold(other, 90, held));
        fairness.hold(other);
        held += 1;
    }
    assert!(!fairness.may_hold(flood, 90, held));
    // The flood may hold eight times the free places. So it gets no place until it holds fewer.
    for _ in 0..45 {
        fairness.release(flood);
        held -= 1;
    }
    assert!(fairness.may_hold(flood, 90, held));
}

#[test]
fn the_last_place_goes_only_to_a_source_without_any() {
    let mut fairness = fairness(10);
    let [first, second] = [1, 2].map(|source| fairness.on_arrival(at_us(0), source, 1));
    assert!(fairness.may_hold(first, 1, 0) && !fairness.may_hold(first, 1, 1));
    fairness.hold(first);
    assert!(!fairness.may_hold(first, 2, 1));
    assert!(fairness.may_hold(second, 2, 1));
}

#[test]
fn a_source_with_a_weight_may_take_the_last_place() {
    let mut fairness = fairness(10);
    let offered = |fairness: &mut Fairness, at_ms: u64| {
        [(1, 1000), (2, 1), (3, 1)]
            .map(|(source, weight)| fairness.on_arrival(at_us(1000 * at_ms), source, weight))
    };
    offered(&mut fairness, 0);
    let [trunk, other, new] = offered(&mut fairness, 200);
    for source in [trunk, other] {
        fairness.hold(source);
    }
    let may =
        |free: usize| [trunk, other, new].map(|source| fairness.may_hold(source, 10, 10 - free));
    assert_eq!(may(2), [true, true, true]);
    assert_eq!(may(1), [true, false, false]);
    assert_eq!(may(0), [false; 3]);
}

#[test]
fn two_sources_with_the_same_large_weight_leave_each_other_room() {
    let mut fairness = fairness(10);
    let offered = |fairness: &mut Fairness, at_ms: u64| {
        [1, 2].map(|source| fairness.on_arrival(at_us(1000 * at_ms), source, 1000))
    };
    offered(&mut fairness, 0);
    let [flood, other] = offered(&mut fairness, 200);
    let mut held = 0;
    while fairness.may_hold(flood, 90, held) {
        fairness.hold(flood);
        held += 1;
    }
    assert_eq!(held, 80);
    assert!(fairness.may_hold(other, 90, held));
}

#[test]
fn a_single_place_is_not_kept_for_a_known_source() {
    let mut fairness = fairness(10);
    let offered = |fairness: &mut Fairness, at_ms: u64| {
        [(1, 1000), (2, 1)]
            .map(|(source, weight)| fairness.on_arrival(at_us(1000 * at_ms), source, weight))
    };
    offered(&mut fairness, 0);
    let [trunk, other] = offered(&mut fairness, 200);
    assert!(fairness.may_hold(trunk, 1, 0) && fairness.may_hold(other, 1, 0));
    // Another source holds a place, so the last one is kept.
    fairness.hold(trunk);
    assert!(!fairness.may_hold(other, 2, 1));
}

/// An address may send from a port with a large weight only for a moment, or a stranger may forge
/// that port for a moment.
#[test]
fn a_weight_counts_for_two_periods_in_which_its_source_sends() {
    let mut fairness = fairness(10);
    let mut weights = |at_ms: u64, weight: u32| {
        fairness.on_arrival(at_us(1000 * at_ms), 1, weight);
        fairness.on_arrival(at_us(1000 * at_ms), 1, 1);
        fairness.look(at_us(1000 * at_ms));
        fairness.max_min.weight()
    };
    assert_eq!(weights(0, 1000), 1000.0);
    assert_eq!(weights(150, 1), 1000.0, "the period before counts");
    assert_eq!(weights(199, 1), 1000.0);
    assert_eq!(weights(250, 1), 1.0);
    assert_eq!(weights(350, 10), 10.0);
    // A source that sends rarely keeps its weight between two messages.
    assert_eq!(weights(950, 10), 10.0);
}

#[test]
fn alone_a_source_may_hold_all_places_except_one() {
    let mut fairness = fairness(10);
    let source = fairness.on_arrival(at_us(0), 1, 1);
    assert!(fairness.may_hold(source, 1, 0), "the only place");
    for held in 0..9 {
        assert!(fairness.may_hold(source, 10, held));
        fairness.hold(source);
    }
    assert!(!fairness.may_hold(source, 10, 9) && !fairness.may_hold(source, 10, 10));
    let next = fairness.on_arrival(at_us(0), 2, 1);
    assert!(fairness.may_hold(next, 10, 9));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_more_passes_than_the_throttle_allows_except_one_piece_of_each_source(
        offered in prop::collection::vec(1.0..1500.0f64, 1..20),
        share in 0.01..1.0f64,
        poisson: bool,
    ) {
        let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Even };
        let run = Run { seconds: 2.0, arrivals, ..Run::even(share) };
        let passed = run.of(&offered);
        // Fractions of a piece round up.
        prop_assert!(passed.ahead_max <= offered.len() as f64 + 1.0, "{}", passed.ahead_max);
    }

    #[test]
    fn shares_are_max_min_fair(
        offered in prop::collection::vec(20.0..2000.0f64, 1..12), share in 0.1..0.9f64,
    ) {
        let run = Run::even(share);
        let passed = run.of(&offered);
        let total = share * offered.iter().sum::<f64>();
        let expected = fair(&offered, total);
        let sum: f64 = passed.rates.iter().sum();
        prop_assert!((sum - total).abs() <= 0.02 * total + 2.0, "{} of {}", sum, total);
        for (index, (rate, wanted)) in passed.rates.iter().zip(&expected).enumerate() {
            let close = (rate - wanted).abs() <= 0.1 * wanted + 4.0;
            prop_assert!(close, "{}: {:.1} but {:.1} of {:.1?}", index, rate, wanted, offered);
        }
    }
}
