use tidegate_world::{Purpose, Seed};

use super::*;
use crate::testing::at_ms as at;

/// Returns a table for this number of sources that counts from the start.
fn table(sources_max: usize) -> Heavy {
    let mut heavy = Heavy::new(sources_max, &mut Seed(1).stream(Purpose::Sources, 0));
    assert!(heavy.set_counting(at(0), true));
    heavy
}

/// A source whose messages are read.
#[derive(Clone, Copy, Debug)]
struct Sender {
    source: u128,
    weight: u32,
    /// Messages that are read in a second.
    read: u32,
    arrived: Arrived,
    repeats: bool,
    is_emergency: bool,
}

/// Returns a source of weight 1. All its messages are read.
fn sends(source: u128, read: u32) -> Sender {
    let arrived = Arrived::ONE;
    Sender { source, weight: 1, read, arrived, repeats: false, is_emergency: false }
}

/// Returns a source that repeats decided work.
fn repeats(source: u128, read: u32) -> Sender {
    Sender { repeats: true, ..sends(source, read) }
}

/// Returns a source that calls an emergency service.
fn calls_for_help(source: u128, read: u32) -> Sender {
    Sender { is_emergency: true, ..sends(source, read) }
}

/// Returns a source whose messages overflow a buffer, so that one in `per_read` of them is read.
fn overflows(source: u128, read: u32, per_read: f64) -> Sender {
    Sender { arrived: Arrived { per_read, ..Arrived::ONE }, ..sends(source, read) }
}

/// Returns a source whose messages are dropped, except one in `per_passing` of them.
fn is_dropped(source: u128, read: u32, per_passing: f64) -> Sender {
    Sender { arrived: Arrived { per_passing, ..Arrived::ONE }, ..sends(source, read) }
}

/// Lets each source send for a second from `from_s`. The first messages that are no repetitions get
/// a place, up to `places` a second.
fn send(heavy: &mut Heavy, from_s: u64, senders: &[Sender], places: u32) {
    let mut placed = 0;
    for ms in 0..1000u32 {
        let now = at(1000 * from_s + u64::from(ms));
        for &Sender { source, weight, read, arrived, repeats, is_emergency } in senders {
            let due = |ms: u32| u64::from(ms) * u64::from(read) / 1000;
            for _ in due(ms)..due(ms + 1) {
                heavy.on_read(now, source, weight, arrived, repeats, is_emergency);
                if !repeats && placed * 1000 < places * (ms + 1) {
                    placed += 1;
                    heavy.on_placed(now);
                }
            }
        }
    }
}

/// Lists at most three heavy sources. The source 77 is spared.
fn list(heavy: &mut Heavy, at_ms: u64) -> Vec<HeavySource> {
    let mut listed = vec![HeavySource { source: 99, rate_cps: 1.0 }];
    heavy.list(at(at_ms), 3, |source| source == 77, &mut listed);
    listed
}

fn sources(heavy: &mut Heavy, at_ms: u64) -> Vec<u128> {
    list(heavy, at_ms).iter().map(|heavy| heavy.source).collect()
}

#[test]
fn sources_that_cause_the_overload_are_heavy() {
    let trunk = Sender { weight: 1000, ..sends(1, 300) };
    for (senders, places, expected) in [
        // Source 2 floods. All messages of the other sources could be served.
        (&[sends(1, 20), sends(2, 9_000), sends(3, 80)][..], 500, &[2][..]),
        // A trunk is above the level of 240, but dropping the flood is enough.
        (&[sends(1, 20), sends(2, 9_000), sends(3, 300)], 500, &[2]),
        // There is room for all messages.
        (&[sends(1, 20), sends(2, 300)], 500, &[]),
        // Source 1 has the weight of a thousand users.
        (&[trunk, sends(2, 300)], 310, &[2]),
        // All sources send at the same rate.
        (&[sends(3, 300), sends(2, 300), sends(1, 300)], 400, &[1, 2, 3]),
        // There are more than three heavy sources.
        (&[sends(1, 300), sends(2, 300), sends(3, 300), sends(4, 300)], 400, &[]),
        // The source that floods is spared.
        (&[sends(1, 20), sends(77, 9_000)], 500, &[]),
        // The flood prevents all service.
        (&[sends(1, 40), sends(2, 9_000)], 0, &[2]),
    ] {
        let mut heavy = table(10);
        send(&mut heavy, 0, senders, places);
        assert_eq!(sources(&mut heavy, 1000), expected, "{senders:?}");
    }
}

/// The server serves all that it reads, but buffers overflow.
#[test]
fn a_source_is_heavy_if_only_the_buffers_are_too_small_for_it() {
    for (per_read, expected) in [(1.0, &[][..]), (1.2, &[1u128])] {
        let mut heavy = table(10);
        send(&mut heavy, 0, &[overflows(1, 900, per_read), overflows(2, 80, per_read)], 1000);
        let listed = list(&mut heavy, 1000);
        assert!(listed.iter().map(|heavy| heavy.source).eq(expected.iter().copied()));
        assert!(listed.iter().all(|heavy| (heavy.rate_cps - 1080.0).abs() < 10.0), "{listed:?}");
    }
}

/// If the messages on a stream were multiplied too, both sources would be above the level.
#[test]
fn a_source_on_a_stream_is_not_charged_for_the_overflow_of_a_buffer() {
    let mut heavy = table(10);
    send(&mut heavy, 0, &[overflows(1, 900, 1.2), sends(2, 850)], 2000);
    assert_eq!(sources(&mut heavy, 1000), [1]);
}

/// The flood gets no place in the queue. Few messages of the trunk are read, and all of them are
/// served.
#[test]
fn an_overflow_that_a_flood_causes_does_not_make_a_trunk_heavy() {
    let mut heavy = table(10);
    let flood = |from_s: u64, heavy: &mut Heavy| {
        // Of 2,500 messages a second of the trunk, 500 are read.
        let trunk = overflows(1, 500, 5.0);
        send(heavy, from_s, &[trunk], 500);
        (0..20_000).for_each(|_| {
            let arrived = Arrived { per_read: 5.0, ..Arrived::ONE };
            heavy.on_read(at(1000 * from_s + 999), 2, 1, arrived, false, false);
        });
    };
    for second in 0..3 {
        flood(second, &mut heavy);
        assert_eq!(sources(&mut heavy, 1000 * second + 1000), [2]);
    }
}

// RFC 3261 §17.1.2.2: "For the default values of T1 and T2, this results in intervals of 500 ms, 1 s,
// 2 s, 4 s, 4 s, 4 s, etc." So in the 32 s until Timer F a REGISTER is sent eleven times, and an INVITE seven
// times (§17.1.1.2).
#[test]
fn a_source_that_repeats_its_share_ten_times_is_not_heavy() {
    let mut heavy = table(10);
    send(&mut heavy, 0, &[sends(1, 100), repeats(1, 1_000), sends(2, 9_000)], 200);
    assert_eq!(sources(&mut heavy, 1000), [2]);
    // If the repetitions counted like other messages, it would be heavy.
    let mut heavy = table(10);
    send(&mut heavy, 0, &[sends(1, 1_100), sends(2, 9_000)], 200);
    assert_eq!(sources(&mut heavy, 1000), [1, 2]);
}

#[test]
fn a_source_that_floods_with_repetitions_is_heavy() {
    // Either all other messages are served, or none.
    for places in [100, 0] {
        let mut heavy = table(10);
        send(&mut heavy, 0, &[sends(1, 80), repeats(2, 20_000)], places);
        assert_eq!(sources(&mut heavy, 1000), [2], "{places}");
    }
    let is_heavy = |heavy: &mut Heavy, source: u128, ms: u64| {
        heavy.on_read(at(ms), source, 1, Arrived::ONE, true, false)
    };
    let mut heavy = table(10);
    send(&mut heavy, 0, &[sends(1, 80), repeats(2, 20_000)], 100);
    assert!(!is_heavy(&mut heavy, 2, 1000), "nothing was listed");
    sources(&mut heavy, 1000);
    assert_eq!([1, 2].map(|source| is_heavy(&mut heavy, source, 2999)), [false, true]);
    assert!(!is_heavy(&mut heavy, 2, 3000));
}

#[test]
fn a_source_of_which_little_is_seen_stays_heavy() {
    let mut heavy = table(10);
    send(&mut heavy, 0, &[sends(1, 9_000), sends(2, 80)], 500);
    let is_about = |listed: &[HeavySource], cps: f64| {
        assert_eq!(listed.len(), 1);
        let HeavySource { source, rate_cps } = listed[0];
        assert!(source == 1 && (rate_cps / cps - 1.0).abs() < 0.01, "{listed:?}");
    };
    is_about(&list(&mut heavy, 1000), 9_000.0);
    // From now on a share is dropped. A tenth of the messages is read, and nearly all of them get a
    // place.
    for second in 1..6 {
        send(&mut heavy, second, &[is_dropped(1, 900, 10.0), sends(2, 80)], 500);
        is_about(&list(&mut heavy, second * 1000 + 1000), 9_000.0);
    }
    // The flood has ended.
    for second in 6..10 {
        send(&mut heavy, second, &[sends(1, 40), sends(2, 80)], 500);
        list(&mut heavy, second * 1000 + 1000);
    }
    assert!(sources(&mut heavy, 10_000).is_empty());
}

/// One message of the source 1 is read by chance. It represents many.
#[test]
fn chance_makes_no_source_heavy() {
    let mut heavy = table(10);
    send(&mut heavy, 0, &[sends(2, 9_000)], 0);
    heavy.on_read(
        at(999),
        1,
        1,
        Arrived { per_read: 5.0, per_passing: 100.0, ..Arrived::ONE },
        false,
        false,
    );
    assert_eq!(sources(&mut heavy, 1000), [2]);
}

#[test]
fn no_source_is_heavy_if_some_that_are_have_no_entry() {
    let mut heavy = table(1);
    send(&mut heavy, 0, &[sends(1, 900), sends(2, 9_000)], 500);
    assert!(sources(&mut heavy, 1000).is_empty());
    assert_eq!(heavy.overflowed(), 900);
}

#[test]
fn a_count_begins_with_nothing_known() {
    let mut heavy = table(10);
    send(&mut heavy, 0, &[sends(1, 20), sends(2, 9_000)], 500);
    assert_eq!(sources(&mut heavy, 1000), [2]);
    assert!(!heavy.set_counting(at(1000), true), "it has begun before");
    assert!(!heavy.set_counting(at(1000), false));
    assert!(!heavy.is_counting() && sources(&mut heavy, 1000).is_empty());
    send(&mut heavy, 1, &[sends(1, 9_000)], 500);
    assert!(heavy.set_counting(at(2000), true));
    assert!(sources(&mut heavy, 2000).is_empty());
    send(&mut heavy, 2, &[sends(1, 9_000), sends(2, 20)], 500);
    assert_eq!(sources(&mut heavy, 3000), [1]);
}

#[test]
fn the_limits_of_a_source_grow_with_its_weight() {
    let limits = HeavyLimits { all: 100.0, firsts: 10.0 };
    let exceeds = |certain_all: f64, certain_firsts: f64| {
        let certain = Demand {
            all: certain_all,
            firsts: certain_firsts,
            certain_all,
            certain_firsts,
            weight: 10.0,
            is_heavy: false,
            peak: 0.0,
        };
        limits.are_exceeded(&certain)
    };
    assert!(!exceeds(999.0, 99.0) && exceeds(1_001.0, 99.0) && exceeds(999.0, 101.0));
}

/// Otherwise a source that has flooded for a moment could hide another one for as long as it likes.
#[test]
fn the_peak_of_a_heavy_source_halves_in_two_seconds() {
    let mut heavy = table(10);
    send(&mut heavy, 0, &[sends(1, 100_000), sends(2, 320)], 100);
    let mut listed = vec![sources(&mut heavy, 1000)];
    // Half a percent of the peak must fall below 320/s less the uncertainty of that estimate.
    for second in 1..4 {
        send(&mut heavy, second, &[sends(1, 6_000), sends(2, 320)], 100);
        listed.push(sources(&mut heavy, 1000 * second + 1000));
    }
    assert_eq!(listed, [&[1][..], &[1], &[1, 2], &[1, 2]]);
}

/// Lists the heavy sources. Returns those that flood with emergency calls, with the rate of these.
fn floods(heavy: &mut Heavy, at_ms: u64) -> Vec<(u128, f64)> {
    list(heavy, at_ms);
    let floods = heavy.emergency_floods().iter();
    floods.map(|flood| (flood.source, flood.rate_cps.round())).collect()
}

#[test]
fn only_heavy_sources_that_send_many_emergency_calls_flood_with_them() {
    let user_of = |weight: u32, sender: Sender| Sender { weight, ..sender };
    let copies = |sender: Sender| Sender { repeats: true, ..sender };
    for (senders, places, expected) in [
        (&[calls_for_help(1, 9_000), sends(2, 20)][..], 500, &[(1, 9_000.0)][..]),
        // Copies of decided calls cost as much.
        (&[copies(calls_for_help(1, 9_000)), sends(2, 20)], 20, &[(1, 9_000.0)]),
        // Callers for help share an address with a flood of other calls.
        (&[sends(1, 9_000), calls_for_help(1, 40), sends(2, 20)], 500, &[]),
        (&[sends(1, 9_000), calls_for_help(1, 2_000), sends(2, 20)], 500, &[]),
        (&[sends(1, 9_000), calls_for_help(1, 5_000), sends(2, 20)], 500, &[(1, 5_000.0)]),
        // The calls are most of the messages, but few.
        (&[sends(1, 20), calls_for_help(1, 40), sends(2, 1)], 5, &[]),
        (&[sends(1, 20), calls_for_help(1, 100), sends(2, 1)], 5, &[(1, 100.0)]),
        // The source has the weight of many users.
        (&[user_of(10, calls_for_help(1, 9_000)), sends(2, 20)], 500, &[(1, 9_000.0)]),
        (&[user_of(200, calls_for_help(1, 9_000)), sends(2, 20)], 500, &[]),
        // The callers for help are not those that cause the overload.
        (&[sends(1, 9_000), calls_for_help(2, 200)], 500, &[]),
        (&[sends(1, 20), calls_for_help(77, 9_000)], 500, &[]),
        // The one that floods most comes first. There are too many heavy sources to list.
        (
            &[sends(4, 20), calls_for_help(1, 700), calls_for_help(2, 900), sends(3, 20)],
            1,
            &[(2, 900.0), (1, 700.0)],
        ),
    ] {
        let mut heavy = table(10);
        send(&mut heavy, 0, senders, places);
        assert_eq!(floods(&mut heavy, 1000), expected, "{senders:?}");
    }
}

/// Each source sends a sixth of the messages that arrive. If a buffer overflows, this is as much as
/// is read of all sources together.
#[test]
fn floods_of_emergency_calls_that_overflow_a_buffer_are_found_even_if_they_are_many() {
    let found = |(read, per_read): (u32, f64)| {
        let flood =
            |source: u128| Sender { is_emergency: true, ..overflows(source, read, per_read) };
        let mut heavy = table(10);
        send(&mut heavy, 0, &[1, 2, 3, 4, 5, 6].map(flood), 100);
        floods(&mut heavy, 1000).len()
    };
    assert_eq!([(6_000, 1.0), (1_000, 6.0)].map(found), [0, 6]);
}

/// A fifth of a flood consists of calls to an emergency service. The kernel first drops nine tenths
/// of the rest, and then these calls are most of the messages that are read.
#[test]
fn other_calls_of_a_flood_do_not_hide_its_emergency_calls() {
    let mut heavy = table(10);
    send(&mut heavy, 0, &[sends(1, 8_000), calls_for_help(1, 2_000), sends(2, 20)], 500);
    assert!(floods(&mut heavy, 1000).is_empty());
    let rest = is_dropped(1, 800, 10.0);
    send(&mut heavy, 1, &[rest, calls_for_help(1, 2_000), sends(2, 20)], 500);
    assert_eq!(floods(&mut heavy, 2000).first().map(|flood| flood.0), Some(1));
}

/// If the source had a rate after a few messages in the first milliseconds, a single emergency call
/// of a trunk would cause drops of the others.
#[test]
fn a_few_emergency_calls_at_the_start_are_no_flood() {
    let found = |(messages, calls): (u32, u32)| {
        let mut heavy = table(10);
        for message in 0..messages {
            heavy.on_read(at(5), 1, 1, Arrived::ONE, false, message < calls);
        }
        assert_eq!(sources(&mut heavy, 10), [1]);
        !heavy.emergency_floods().is_empty()
    };
    assert_eq!([(1, 1), (4, 4), (10, 10)].map(found), [false, false, true]);
    assert_eq!([(1_000, 10), (1_000, 270), (1_000, 300)].map(found), [false, false, true]);
}

/// Of 1,200 emergency calls a second, 60 are read. The limit does not depend on the messages of
/// others that are not read, so it must be compared with the 1,200.
#[test]
fn emergency_calls_that_are_dropped_like_those_of_all_sources_count() {
    for (per_passing, expected) in [(1.0, &[][..]), (20.0, &[(1u128, 1_200.0)])] {
        let mut heavy = table(10);
        let arrived = Arrived { per_passing, drops_all: true, ..Arrived::ONE };
        let flood = Sender { arrived, ..calls_for_help(1, 60) };
        send(&mut heavy, 0, &[flood, sends(2, 20)], 40);
        let found = floods(&mut heavy, 1000);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.0 == expected.0 && (found.1 / expected.1 - 1.0).abs() < 0.1, "{found:?}");
        }
        // In the comparison with the other source, only messages that are read count.
        let listed = list(&mut heavy, 1000);
        let is_read = |heavy: &HeavySource| (heavy.rate_cps - 60.0).abs() < 6.0;
        assert!(
            matches!(&listed[..], [heavy] if heavy.source == 1 && is_read(heavy)),
            "{listed:?}"
        );
    }
}

/// A message that was read by chance represents many.
#[test]
fn chance_makes_no_flood_of_emergency_calls() {
    let mut heavy = table(10);
    send(&mut heavy, 0, &[sends(1, 9_000)], 100);
    let arrived = Arrived { per_passing: 1_000.0, ..Arrived::ONE };
    heavy.on_read(at(999), 1, 1, arrived, false, true);
    assert!(floods(&mut heavy, 1000).is_empty());
}

#[test]
fn a_flood_of_emergency_calls_ends_two_seconds_after_the_last_excess() {
    let mut heavy = table(10);
    send(&mut heavy, 0, &[calls_for_help(1, 9_000)], 100);
    assert!(!floods(&mut heavy, 1000).is_empty());
    // The source floods with other calls from now on.
    for (second, is_flood) in [(1, true), (2, false), (3, false)] {
        send(&mut heavy, second, &[sends(1, 9_000)], 100);
        let is_found = !floods(&mut heavy, 1000 * second + 1000).is_empty();
        assert_eq!(is_found, is_flood, "after {second} s");
    }
    assert_eq!(sources(&mut heavy, 5000), [1]);
    heavy.set_counting(at(5000), false);
    send(&mut heavy, 5, &[calls_for_help(1, 9_000)], 100);
    assert!(floods(&mut heavy, 6000).is_empty(), "nothing is counted");
}
