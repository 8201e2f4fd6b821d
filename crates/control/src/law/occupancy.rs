//! Occupancy: the share of admitted calls follows the use of the processor.
//!
//! Signal: the processor's occupancy ρ, measured every `measure` messages over the last `k`
//! measurements and smoothed: ρ̂ ← (1−w)·ρ̂ + w·ρ. At each measurement the admitted share f is
//! multiplied by ρ_targ/ρ̂: f ← clamp(f_min, (ρ_targ/ρ̂)·f, 1). The law trips when ρ̂ exceeds the
//! target. The law recovers by the same factor, which is larger if the occupancy is lower. Cold
//! start: f = 1. Nothing happens before k samples, and ρ̂ begins with the first measurement. If ρ̂
//! is 0, f becomes 1.
//!
//! Known bias: ρ cannot exceed 1, so the share falls by at most 5 % a measurement, however large
//! the overload. Because of the window of k measurements, the law reacts to the past, and
//! overshoots in both directions. Because of the floor f_min, the law cannot control a load beyond
//! 1/f_min times the capacity.
//!
//! The window spans k−1 intervals. At low load, 125 messages take long, so a measurement is also
//! taken each second. Otherwise the low share of an overload would still apply after a long time
//! without messages. After more than two seconds without measurements, in which everything is
//! admitted, the law starts cold. Otherwise the idle time would count in the next k−1 measurements,
//! and ρ̂ would then be so low that the law would notice an overload late.
//!
//! Source: paper 000 §3.1, equations 1-3.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::cadence::{ACCEPT, Cadence, MEASURE, NOTICE, PATIENCE};
use super::target_ratio::{Estimate, TargetRatio};
use crate::ewma::Ewma;
use crate::signals::Reading;
use crate::trail::Trail;
use crate::{Entry, Param, Signals, Values};

pub(super) static K: Param = Param::whole("k", "measurements", 25.0, 2, 1000)
    .doc("The number of the latest measurements over which the law averages.");

pub(super) static TARGET: Param =
    Param::real("rho_targ", "fraction", 0.95, 0.01, 1.0).doc("Target occupancy.");

pub(super) static FLOOR: Param = Param::real("f_min", "fraction", 0.05, 0.0001, 1.0)
    .doc("The lowest share of new work that the law admits.");

pub(super) static WEIGHT: Param = Param::real("w", "fraction", 0.1, 0.001, 1.0)
    .doc("Weight of the newest measurement in the smoothed occupancy.");

pub(crate) static ENTRY: Entry = Entry {
    name: "occupancy",
    summary: "measures the occupancy at intervals, and multiplies the admitted share by \
              target/measured",
    source: "paper 000 §3.1",
    doc: "At each measurement (see `measure`) the law computes ρ, the occupancy over the last `k` \
          measurements, smoothed with weight `w`. The admitted share f then becomes clamp(`f_min`, \
          (`rho_targ`/ρ)·f, 1).",
    params: &[&K, &MEASURE, &NOTICE, &ACCEPT, &TARGET, &FLOOR, &WEIGHT],
    check: |_| Ok(()),
    build: |values: &Values| {
        let cadence = Cadence::new(values, values.of(&TARGET), values.of(&WEIGHT));
        let occupancy = Box::new(Occupancy::new(values));
        Box::new(TargetRatio::new(cadence, values.of(&FLOOR), vec![occupancy]))
    },
};

/// Time without a measurement after which the estimate starts cold. While messages arrive or a part
/// of the new work is rejected, a measurement is taken at least every [`PATIENCE`].
const REST: Duration = Duration::from_secs(2 * PATIENCE.as_secs());

/// A smoothed estimate of the occupancy over the last `k` measurements.
#[derive(Debug)]
pub(super) struct Occupancy {
    target: f64,
    trail: Trail<Reading>,
    weight: f64,
    smoothed: Ewma,
}

impl Occupancy {
    pub(super) fn new(values: &Values) -> Self {
        let weight = values.of(&WEIGHT);
        Self {
            target: values.of(&TARGET),
            trail: Trail::new(values.of(&K) as usize),
            weight,
            smoothed: Ewma::new(weight),
        }
    }
}

impl Estimate for Occupancy {
    /// Returns whether the processor has been read since the last measurement. Messages may arrive
    /// more often than the processor is read.
    fn is_news(&self, signals: &Signals) -> bool {
        self.trail.newest().is_none_or(|last| last.at < signals.processor.at)
    }

    /// Returns the factor for the admitted share, or infinity if the occupancy was 0.
    fn factor(&mut self, _: Timestamp, _: u64, signals: &Signals) -> Option<f64> {
        let newest = signals.processor;
        if self.trail.newest().is_some_and(|last| newest.at.since(last.at) > REST) {
            self.trail.clear();
            self.smoothed = Ewma::new(self.weight);
        }
        let oldest = self.trail.push(newest)?;
        let occupancy = newest.occupancy_since(oldest)?;
        Some(self.target / self.smoothed.update(occupancy))
    }

    fn occupancy_aimed_at(&self) -> Option<f64> {
        Some(self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;

    fn fresh() -> Bench {
        let given = [("k", 3.0), ("measure", 10.0), ("w", 1.0), ("rho_targ", 0.8)];
        Bench::of(&ENTRY, &given)
    }

    /// Runs `count` messages, one each millisecond, at this occupancy. Returns the admitted share.
    fn messages(bench: &mut Bench, count: u32, occupancy: f64) -> f64 {
        for _ in 0..count {
            bench.pass(Duration::from_millis(1), occupancy);
            bench.signals.messages += 1;
            bench.arrival();
        }
        bench.share()
    }

    #[test]
    fn the_share_is_multiplied_by_target_over_occupancy() {
        let mut bench = fresh();
        assert_eq!(messages(&mut bench, 29, 1.0), 1.0, "no action before k samples");
        assert!((messages(&mut bench, 1, 1.0) - 0.8).abs() < 1e-9);
        assert!((messages(&mut bench, 10, 1.0) - 0.64).abs() < 1e-9);
        // The window of three measurements is two intervals: half old, half new.
        let half = 0.8 / 0.7 * 0.64;
        assert!((messages(&mut bench, 10, 0.4) - half).abs() < 1e-9);
        assert_eq!(messages(&mut bench, 10, 0.4), 1.0, "never above one");
    }

    #[test]
    fn the_share_never_falls_below_its_floor() {
        let mut bench = fresh();
        assert_eq!(messages(&mut bench, 2000, 1.0), 0.05);
    }

    #[test]
    fn an_idle_processor_admits_everything() {
        let mut bench = fresh();
        assert_eq!(messages(&mut bench, 100, 0.0), 1.0);
        messages(&mut bench, 2000, 1.0);
        // Half of the window was measured before: 0.8/0.5·0.05.
        assert!((messages(&mut bench, 10, 0.0) - 0.08).abs() < 1e-9);
        // In the next interval no work was done.
        assert_eq!(messages(&mut bench, 10, 0.0), 1.0);
    }

    #[test]
    fn few_messages_are_measured_after_a_second() {
        let mut bench = fresh();
        for second in 1..=3 {
            bench.now = Timestamp::ZERO + Duration::from_secs(second);
            bench.signals.processor.occupied += Duration::from_secs(1);
            messages(&mut bench, 1, 1.0);
        }
        assert!(bench.share() < 0.81);
    }

    #[test]
    fn after_a_rest_it_reacts_as_on_a_new_server() {
        let given = [("k", 3.0), ("measure", 10.0), ("w", 0.1), ("rho_targ", 0.8)];
        let mut bench = Bench::of(&ENTRY, &given);
        assert_eq!(messages(&mut bench, 100, 0.1), 1.0);
        assert!(bench.law.is_at_rest());
        bench.pass(Duration::from_secs(3600), 0.0);
        // The first message is measured at once.
        assert_eq!(messages(&mut bench, 20, 1.0), 1.0);
        assert!((messages(&mut bench, 1, 1.0) - 0.8).abs() < 1e-9);
    }

    #[test]
    fn without_messages_it_is_measured_each_second_until_everything_is_admitted() {
        let mut bench = fresh();
        assert_eq!(messages(&mut bench, 2000, 1.0), 0.05);
        assert!(!bench.law.is_at_rest());
        let mut tick = || {
            let second = bench.law.tick().unwrap();
            bench.now = bench.now + second;
            bench.signals.processor.at = bench.now;
            bench.signals.processor.occupied += second / 10;
            bench.tick();
            bench.share()
        };
        // At first the window covers the last second and the ten messages before it. Then it covers
        // two seconds.
        let occupancy = (0.1 + 0.01) / 1.01;
        assert!((tick() - 0.8 / occupancy * 0.05).abs() < 1e-6);
        assert_eq!(tick(), 1.0);
        assert!(bench.law.is_at_rest());
    }
}
