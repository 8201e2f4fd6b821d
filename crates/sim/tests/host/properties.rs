//! Tests of the host against its formula, and with drivers of any delay.

use proptest::prelude::*;

use crate::driver::Run;
use crate::{at, serving, span};
use tidegate_emulate::HostSettings;
use tidegate_world::Timestamp;

type Datagrams = Vec<(Timestamp, String)>;

/// Generates up to a hundred datagrams of three classes, with gaps of 0 to 3 ms. Many gaps are 0,
/// as in a burst.
fn datagrams(words: &'static [&'static str]) -> impl Strategy<Value = Datagrams> {
    let gap = prop_oneof![Just(0u64), 0..3_000u64];
    let datagram = (gap, prop::sample::select(words), 0..3);
    prop::collection::vec(datagram, 0..100).prop_map(|list| {
        let mut now = 0;
        let each = list.into_iter().enumerate().map(|(i, (gap, word, class))| {
            now += gap;
            (at(now), format!("{word} {class} {i}"))
        });
        each.collect()
    })
}

fn cost() -> impl Strategy<Value = [u64; 3]> {
    prop::array::uniform3(0..2_000u64)
}

fn class(text: &str) -> usize {
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

proptest! {
    #[test]
    fn messages_are_processed_one_after_the_other_each_at_its_cost(
        datagrams in datagrams(&["BYE", "NO"]), serve in cost(), reject in cost(),
    ) {
        // A datagram is rejected when it is offered, and served when no more are offered. So the
        // order of arrival is kept only among datagrams of the same kind.
        for word in ["BYE", "NO"] {
            let of_kind: Datagrams =
                datagrams.iter().filter(|(_, text)| text.starts_with(word)).cloned().collect();
            let mut settings = serving(&serve);
            for (class, &cost) in reject.iter().enumerate() {
                settings.costs.reject[class] = span(cost);
            }
            let costs = if word == "BYE" { serve } else { reject };
            let mut completion = Timestamp::ZERO;
            let expected = of_kind.iter().map(|(arrival, text)| {
                completion = completion.max(*arrival) + span(costs[class(text)]);
                (completion, text.clone())
            });
            let expected: Datagrams = expected.collect();
            prop_assert_eq!(Run::new(settings, &of_kind).go().sent, expected);
        }
    }

    #[test]
    fn a_late_driver_changes_only_the_times_of_outputs(
        datagrams in datagrams(&["INVITE", "BYE", "NO", "NO"]),
        (offer, serve, reject) in (cost(), cost(), cost()),
        timers in prop::collection::vec(0..200_000u64, 0..10),
        (split, buffer_max) in (any::<bool>(), 1..20usize),
        period in prop_oneof![2..1_000u64, 1_000..50_000u64],
    ) {
        let mut settings = HostSettings { split, buffer_max, ..serving(&serve) };
        for class in 0..3 {
            settings.costs.offer[class] = span(offer[class]);
            settings.costs.reject[class] = span(reject[class]);
        }
        let mut timers: Vec<_> = timers.into_iter().map(at).collect();
        timers.sort();
        let run = || Run { timers: timers.clone(), ..Run::new(settings.clone(), &datagrams) };
        let prompt = run().go();
        let late = Run { period: span(period), ..run() }.go();
        prop_assert_eq!(&late.seen, &prompt.seen);
        prop_assert_eq!(late.overflow, prompt.overflow);
        prop_assert_eq!(late.sent.len(), prompt.sent.len());
        let period = span(period).as_nanos() as u64;
        for ((left, what), (due, same)) in late.sent.iter().zip(&prompt.sent) {
            prop_assert_eq!(what, same);
            let wake = due.as_nanos().div_ceil(period) * period;
            prop_assert_eq!(left.as_nanos(), wake, "{} was due at {:?}", what, due);
        }
        // A second run gives the same result.
        prop_assert_eq!(run().go().seen, prompt.seen);
    }
}
