//! Tests of a ladder whose share applies only to heavy sources.

use super::super::{Ladder, LadderSettings, Tally};
use super::*;
use crate::testing::at_ms as at;

/// The counts of a period of 100 ms with 1,000 messages that were read.
#[derive(Clone, Copy)]
struct Counts {
    /// Messages of sources whose messages are not dropped.
    others: u64,
    /// The messages among `others` that are never dropped.
    spared: u64,
    /// Copies that heavy sources send.
    repeated: u64,
    taken: u64,
    overflow: u64,
    busy_ms: u64,
}

const FLOOD: Counts =
    Counts { others: 100, spared: 0, repeated: 0, taken: 100, overflow: 0, busy_ms: 95 };

/// Returns a ladder after these periods. The ladder may not drop messages, so the counts do not
/// depend on its decisions.
fn after(is_targeted: bool, periods: impl IntoIterator<Item = Counts>) -> Ladder {
    let mut ladder = Ladder::new(LadderSettings { drops: false, ..LadderSettings::default() });
    ladder.set_targeted(is_targeted);
    let mut tally = Tally::default();
    ladder.on_reading(at(0), tally);
    for (counts, number) in periods.into_iter().zip(1..) {
        let Counts { others, spared, repeated, taken, overflow, busy_ms } = counts;
        tally.messages += 1_000;
        tally.asked += 1_000;
        tally.datagrams += 1_000;
        tally.fresh += 1_000 - others - repeated;
        tally.repeated += repeated;
        tally.spared += spared;
        tally.taken += taken;
        tally.overflow += overflow;
        let busy = Duration::from_millis(busy_ms);
        tally.occupied += busy;
        tally.cpu += busy;
        tally.served += busy;
        ladder.on_reading(at(100 * number), tally);
    }
    ladder
}

#[test]
fn an_overflow_that_others_suffer_from_halves_the_limit() {
    let flood = Counts { overflow: 1_000, ..FLOOD };
    for (is_targeted, last, expected_cps) in [
        (true, flood, 5_000.0),
        // At least three quarters of the served messages pass.
        (true, Counts { taken: 800, ..flood }, 6_000.0),
        // The process stood still.
        (true, Counts { busy_ms: 40, ..flood }, 9_000.0),
        (false, flood, 9_000.0),
    ] {
        let ceiling_cps = after(is_targeted, [FLOOD, FLOOD, FLOOD, last]).measurements.ceiling;
        assert!((ceiling_cps - expected_cps).abs() < 1e-6, "{ceiling_cps}");
    }
    // If the others are few, all served messages pass.
    let few = Counts { others: 10, ..FLOOD };
    for (taken, expected_cps) in [(100, 5_000.0), (700, 7_000.0), (950, 9_000.0)] {
        let last = Counts { taken, overflow: 1_000, ..few };
        let ceiling_cps = after(true, [few, few, few, last]).measurements.ceiling;
        assert!((ceiling_cps - expected_cps).abs() < 1e-6, "{ceiling_cps}");
    }
    // The others send nothing, but the flood sends copies.
    for repeated in [0, 600] {
        let calm = Counts { others: 0, repeated, ..FLOOD };
        let last = Counts { overflow: 1_000, ..calm };
        let ceiling_cps = after(true, [calm, calm, calm, last]).measurements.ceiling;
        assert!((ceiling_cps - 9_000.0).abs() < 1e-6, "{ceiling_cps}");
    }
}

#[test]
fn the_limit_grows_slowly_while_others_suffer() {
    let overflows = Counts { overflow: 1_000, ..FLOOD };
    let growth = |is_targeted: bool, calm: usize| {
        let periods =
            |calm: usize| [FLOOD, FLOOD, FLOOD, overflows].into_iter().chain(vec![FLOOD; calm]);
        let [before, later] =
            [0, calm].map(|calm| after(is_targeted, periods(calm)).measurements.ceiling);
        later / before
    };
    let [slow, fast] = [true, false].map(|is_targeted| growth(is_targeted, 15));
    assert!((slow - 0.15f64.exp()).abs() < 1e-6 && fast > 1.1 * slow, "{slow} {fast}");
}

#[test]
fn the_share_applies_to_all_for_ten_seconds_if_the_others_are_too_many() {
    let others = Counts { others: 600, overflow: 500, ..FLOOD };
    assert!(after(true, [others; 2]).may_target(at(200)));
    let ladder = after(true, [others; 3]);
    for (ms, may_target) in [(300, false), (10_299, false), (10_300, true)] {
        assert_eq!(ladder.may_target(at(ms)), may_target, "at {ms} ms");
    }
    // A period between the others, in which the messages of the other sources are not too many.
    let between = Counts { others: 400, ..others };
    let periods = [others, others, between, others, others];
    assert!(after(true, periods).may_target(at(500)));
    assert!(!after(true, periods.into_iter().chain([others])).may_target(at(600)));
    assert!(after(false, [others; 10]).may_target(at(1_000)));
}

/// Dropping messages of all sources does not help against messages that are never dropped.
#[test]
fn messages_that_are_never_dropped_do_not_make_the_share_apply_to_all() {
    let flood = Counts { others: 800, overflow: 500, ..FLOOD };
    for (spared, may_target) in [(0, false), (400, false), (600, true), (800, true)] {
        let ladder = after(true, [Counts { spared, ..flood }; 10]);
        assert_eq!(ladder.may_target(at(1_000)), may_target, "{spared}");
    }
}

/// Each message of the flood is sent three times.
#[test]
fn copies_of_a_flood_are_not_messages_of_the_others() {
    let flood = Counts { others: 10, repeated: 660, overflow: 500, ..FLOOD };
    for periods in 1..30 {
        let ladder = after(true, vec![flood; periods]);
        assert!(ladder.may_target(at(100 * periods as u64)), "after {periods} periods");
    }
}

/// Emergency calls on streams are spared, and anybody can send them.
#[test]
fn many_spared_messages_do_not_make_the_share_apply_to_all() {
    let tally = Tally::default();
    let none = Period::between(&tally, &tally, Duration::from_millis(100));
    let period = Period { asked: 22_100.0, fresh: 20_000.0, spared: 1_500.0, ..none };
    let mut target = Target::new();
    target.set(true);
    for _ in 0..FAILED_MAX {
        target.judge(at(0), &period, true, 2_000.0);
    }
    assert!(target.may_be_heavy_only(at(0)));
}

#[test]
fn the_rate_of_the_others_is_an_average() {
    let mut target = Target::new();
    let tally = Tally::default();
    let none = Period::between(&tally, &tally, Duration::from_millis(100));
    for expected in [300.0, 510.0, 657.0] {
        target.measure(&Period { asked: 1_500.0, fresh: 500.0, ..none });
        assert!((target.others_cps - expected).abs() < 1e-6, "{}", target.others_cps);
    }
}
