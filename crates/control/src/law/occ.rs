//! OCC: occupancy control at fixed intervals.
//!
//! Signal: ρ, the mean of the occupancy in a control interval T_c. The occupancy is read every T_m.
//! At the end of each interval the admitted share f changes: f ← clamp(f_min, φ·f, 1), where φ =
//! min(ρ_targ/ρ, φ_max). The law trips when ρ exceeds the target. The law recovers by the same
//! factor φ. If the processor is idle, f rises from the floor of 0.02 to 1 in three intervals,
//! because φ ≤ φ_max = 5. Cold start: f = 1. If the occupancy is 0, φ is φ_max.
//!
//! Known bias: ρ cannot exceed 1. So with a target of 0.9, f falls by at most 10 % a second in any
//! overload. At 1.57 times the capacity the processor is fully occupied for the first 25 s (paper
//! 001, figure 6 b). In this time the queue fills and callers retransmit. A lower target makes the
//! law faster, but leaves more of the processor unused. The law does not see the queue that builds
//! up in the overload.
//!
//! Source: paper 001 §4.2, after Hilt and Widjaja 2008. With one f for all senders it is paper
//! 002's [rate-occ](super::rate_occ) (§3.7).

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::signals::Reading;
use crate::{Allowance, Control, Entry, Law, Param, Signals, Values};

static CONTROL: Param = Param::real("t_c", "s", 1.0, 0.001, 60.0)
    .doc("Control interval T_c: time from one change of the admitted share to the next.");

pub(super) static READ: Param = Param::real("t_m", "s", 0.1, 0.001, 60.0)
    .doc("Measurement interval T_m: time from one reading of the occupancy to the next.");

pub(super) static FACTOR_MAX: Param = Param::real("phi_max", "1", 5.0, 1.001, 1000.0)
    .doc("Largest factor by which the admitted share grows in one control interval.");

pub(super) static FLOOR: Param = Param::real("f_min", "fraction", 0.02, 0.0001, 1.0)
    .doc("The lowest share of new work that the law admits.");

static TARGET: Param = Param::real("rho_targ", "fraction", 0.9, 0.01, 1.0)
    .doc("Target occupancy. Paper 001 uses 0.8 and 0.9.");

pub(crate) static ENTRY: Entry = Entry {
    name: "occ",
    summary: "multiplies the admitted share by target/occupancy every second",
    source: "paper 001 §4.2, after Hilt and Widjaja 2008",
    doc: "Every `t_c` the admitted share f becomes clamp(`f_min`, φ·f, 1), where φ = \
          min(`rho_targ`/ρ, `phi_max`). ρ is the mean of the occupancy, which the law reads every \
          `t_m`.",
    params: &[&CONTROL, &READ, &FACTOR_MAX, &FLOOR, &TARGET],
    check: |values| {
        if values.of(&READ) <= values.of(&CONTROL) { Ok(()) } else { Err("t_m <= t_c") }
    },
    build: |values: &Values| Box::new(Occ::new(values, &CONTROL, &READ, &TARGET)),
};

#[derive(Debug)]
pub(super) struct Occ {
    control: Duration,
    tick: Duration,
    factor_max: f64,
    floor: f64,
    target: f64,
    decided: Timestamp,
    read: Reading,
    /// Sum of the occupancies that were read since the last decision.
    sum: f64,
    readings: u32,
    /// ρ at the last decision: the mean of the occupancies that were read.
    occupancy: f64,
    fraction: f64,
}

impl Occ {
    /// Creates the law. The parameters `control`, `read` and `target` are T_c, T_m and ρ_targ. The
    /// law also uses [`FACTOR_MAX`] and [`FLOOR`].
    pub(super) fn new(values: &Values, control: &Param, read: &Param, target: &Param) -> Self {
        Self {
            control: Duration::from_secs_f64(values.of(control)),
            tick: Duration::from_secs_f64(values.of(read)),
            factor_max: values.of(&FACTOR_MAX),
            floor: values.of(&FLOOR),
            target: values.of(target),
            decided: Timestamp::ZERO,
            read: Reading::default(),
            sum: 0.0,
            readings: 0,
            occupancy: 0.0,
            fraction: 1.0,
        }
    }
}

impl Law for Occ {
    fn on_begin(&mut self, now: Timestamp, signals: &Signals) {
        (self.decided, self.read) = (now, signals.processor);
    }

    fn on_tick(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        if let Some(occupancy) = signals.processor.occupancy_since(self.read) {
            self.read = signals.processor;
            self.sum += occupancy;
            self.readings += 1;
        }
        if now.since(self.decided) < self.control || self.readings == 0 {
            return;
        }
        self.occupancy = self.sum / f64::from(self.readings);
        (self.decided, self.sum, self.readings) = (now, 0.0, 0);
        // Without occupancy the quotient is infinite.
        let factor = (self.target / self.occupancy).min(self.factor_max);
        self.fraction = (factor * self.fraction).clamp(self.floor, 1.0);
        control.admit_of_all(Allowance::Fraction(self.fraction));
    }

    fn tick(&self) -> Option<Duration> {
        Some(self.tick)
    }

    fn occupancy_aimed_at(&self) -> Option<f64> {
        Some(self.target)
    }

    fn is_at_rest(&self) -> bool {
        self.fraction >= 1.0 && self.occupancy < self.target / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;

    /// Runs one tick for each of the occupancies. Returns the admitted share.
    fn ticks(bench: &mut Bench, occupancies: impl IntoIterator<Item = f64>) -> f64 {
        let tick = bench.law.tick().unwrap();
        for occupancy in occupancies {
            bench.pass(tick, occupancy);
            bench.tick();
        }
        bench.share()
    }

    #[test]
    fn the_share_is_multiplied_by_target_over_mean_occupancy_once_a_second() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert_eq!(bench.law.tick(), Some(Duration::from_millis(100)));
        assert_near(ticks(&mut bench, [1.0; 9]), 1.0);
        assert_near(ticks(&mut bench, [1.0]), 0.9);
        assert_near(ticks(&mut bench, [1.0; 9]), 0.9);
        // The mean of nine readings and of one reading.
        assert_near(ticks(&mut bench, [0.5]), 0.9 / 0.95 * 0.9);
        assert_near(ticks(&mut bench, [0.9; 10]), 0.9 / 0.95 * 0.9);
    }

    #[test]
    fn it_climbs_from_its_floor_in_three_seconds_of_an_idle_processor() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert_near(ticks(&mut bench, [1.0; 600]), 0.02);
        assert_near(ticks(&mut bench, [0.1; 10]), 0.1);
        assert_near(ticks(&mut bench, [0.0; 10]), 0.5);
        assert!(!bench.law.is_at_rest());
        assert_near(ticks(&mut bench, [0.0; 10]), 1.0);
    }

    #[test]
    fn it_rests_with_a_processor_that_is_half_idle() {
        let mut bench = Bench::of(&ENTRY, &[]);
        ticks(&mut bench, [0.46; 10]);
        assert!(!bench.law.is_at_rest());
        ticks(&mut bench, [0.44; 10]);
        assert!(bench.law.is_at_rest());
    }

    #[test]
    fn an_interval_without_a_reading_is_not_over() {
        let mut bench = Bench::of(&ENTRY, &[]);
        ticks(&mut bench, [1.0; 10]);
        let late = bench.signals.processor.at + Duration::from_secs(5);
        bench.law.on_tick(late, &bench.signals, &mut bench.control);
        assert_near(bench.share(), 0.9);
        assert_near(ticks(&mut bench, [1.0; 10]), 0.81);
    }

    #[test]
    fn it_is_read_at_least_as_often_as_it_decides() {
        assert!(ENTRY.values(&[("t_c", 0.014), ("t_m", 0.014)]).is_ok());
        assert!(ENTRY.values(&[("t_c", 0.05)]).is_err());
    }
}
