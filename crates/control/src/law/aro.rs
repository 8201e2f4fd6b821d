//! Acceptance rate and occupancy: the admitted share follows the stricter of the two.
//!
//! Signals: the occupancy ρ̂ as in [`occupancy`], and the acceptance α as in [`acceptance`], both
//! over the last `k` measurements, which are taken every `measure` messages. f ← clamp(f_min,
//! min(f_α, f_ρ), 1), where f_ρ = (ρ_targ/ρ̂)·f and f_α = (α_targ/α)·f. In both formulas, f is the
//! same admitted share. The law trips when ρ̂ or α exceeds its target. It recovers when both are
//! below their targets, by the smaller of the two factors. Cold start: f = 1, and nothing happens
//! before k measurements.
//!
//! Known bias of the law as the paper describes it: f_α treats complete acceptance as an overload.
//! *Without any load* α is 1, so f falls by 5 % a measurement until the window of k measurements
//! contains enough rejections. Then α is below its target, and f rises to 1 until the rejections
//! have left the window. So f cycles between about 0.8 and 1, and some 7 % of the calls are
//! rejected although the server has time for them. Under load f_ρ is smaller from the start, and
//! the law acts like [`occupancy`], except that f_α delays each recovery. It serves the fewest
//! calls a second of the paper's three laws (paper 000 §6.6; §6.5 calls it "very aggressive").
//!
//! If `sustainable` is set, α is the rate of admitted calls divided by this sustainable rate. Then
//! α does what the paper intends: it shows by how much the server is overloaded, and has no effect
//! without load. ρ cannot show an overload, because it is never above 1.
//!
//! Source: paper 000 §3.2, equations 4 and 5.

use super::acceptance::{self, Acceptance};
use super::cadence::{ACCEPT, Cadence, MEASURE, NOTICE};
use super::occupancy::{self, Occupancy};
use super::target_ratio::TargetRatio;
use crate::{Entry, Values};

pub(crate) static ENTRY: Entry = Entry {
    name: "aro",
    summary: "multiplies the admitted share by target/acceptance or target/occupancy, whichever is \
              smaller",
    source: "paper 000 §3.2",
    doc: "At each measurement (see `measure`) the admitted share f becomes clamp(`f_min`, \
          min(`alpha_targ`/α, `rho_targ`/ρ)·f, 1). α is the acceptance and ρ the occupancy over \
          the last `k` measurements. ρ is smoothed with weight `w`. If `alpha_targ` is below 1 \
          and `sustainable` is 0, as in paper 000, the law rejects some calls even without load.",
    params: &[
        &occupancy::K,
        &MEASURE,
        &NOTICE,
        &ACCEPT,
        &occupancy::TARGET,
        &acceptance::TARGET,
        &occupancy::FLOOR,
        &occupancy::WEIGHT,
        &acceptance::SUSTAINABLE,
    ],
    check: |_| Ok(()),
    build: |values: &Values| {
        let [target, weight] = [&occupancy::TARGET, &occupancy::WEIGHT].map(|p| values.of(p));
        let cadence = Cadence::new(values, target, weight);
        let acceptance = Box::new(Acceptance::new(values));
        let occupancy = Box::new(Occupancy::new(values));
        let floor = values.of(&occupancy::FLOOR);
        Box::new(TargetRatio::new(cadence, floor, vec![occupancy, acceptance]))
    },
};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::bench::{Bench, assert_near};
    use super::*;

    fn fresh() -> Bench {
        let given =
            [("k", 3.0), ("measure", 10.0), ("w", 1.0), ("rho_targ", 0.5), ("alpha_targ", 0.8)];
        Bench::of(&ENTRY, &given)
    }

    /// Runs `count` messages, one each millisecond. The first `rejected` of them are rejected.
    fn messages(bench: &mut Bench, count: u64, rejected: u64, occupancy: f64) -> f64 {
        for i in 0..count {
            bench.pass(Duration::from_millis(1), occupancy);
            bench.signals.messages += 1;
            bench.arrival();
            bench.signals.messages_rejected += u64::from(i < rejected);
        }
        bench.share()
    }

    #[test]
    fn the_stricter_of_the_two_holds() {
        let mut bench = fresh();
        assert_near(messages(&mut bench, 29, 0, 0.1), 1.0);
        assert!(bench.law.is_at_rest());
        // f_α = 0.8 of 1, and f_ρ = 5.
        assert_near(messages(&mut bench, 1, 0, 0.1), 0.8);
        // f_ρ = 0.5/0.55. In the window 9 messages were rejected: f_α = 0.8/0.55.
        assert_near(messages(&mut bench, 10, 10, 1.0), 0.5 / 0.55 * 0.8);
        // f_ρ = 0.5/0.625, and 10 were rejected.
        let before = 0.5 / 0.55 * 0.8;
        assert_near(messages(&mut bench, 10, 0, 0.25), 0.5 / 0.625 * before);
        // f_ρ = 2. The last of those ten was rejected within the window.
        assert_near(messages(&mut bench, 10, 0, 0.25), 0.8 / 0.95 * 0.5 / 0.625 * before);
    }

    #[test]
    fn without_messages_occupancy_alone_counts() {
        let mut bench = fresh();
        let share = messages(&mut bench, 60, 0, 1.0);
        assert!(share < 0.1 && !bench.law.is_at_rest(), "{share}");
        // The window is then the tick and an interval of 10 messages.
        bench.pass(bench.law.tick().unwrap(), 0.4);
        bench.tick();
        let occupancy = (0.01 + 0.4) / 1.01;
        assert_near(bench.share(), 0.5 / occupancy * share);
    }

    #[test]
    fn without_a_new_reading_nothing_is_measured() {
        let mut bench = fresh();
        messages(&mut bench, 30, 0, 0.1);
        bench.signals.messages += 10;
        bench.arrival();
        assert_near(bench.share(), 0.8);
        assert_near(messages(&mut bench, 1, 0, 0.1), 0.64);
    }
}
