//! Occupancy: the share of admitted calls follows the use of the processor.
//!
//! Signal: the processor's occupancy ρ, measured every `measure` messages over the last `k`
//! measurements and smoothed: ρ̂ ← (1−w)·ρ̂ + w·ρ. At each measurement the share is multiplied
//! by ρ_targ/ρ̂: f ← clamp(f_min, (ρ_targ/ρ̂)·f, 1). Trips when ρ̂ exceeds the target. Recovers
//! by the same factor, which is larger the idler the processor. Cold start: f = 1; nothing
//! happens before k samples, and ρ̂ starts as the first measurement.
//!
//! Known bias: ρ cannot exceed 1, so the share falls by 5 % a measurement at the most,
//! however large the overload, and the window of k measurements makes it act on the past:
//! it overshoots in both directions. With a floor of f_min, an overload beyond 1/f_min is not
//! controlled at all.
//!
//! The window spans k−1 intervals. A measurement is also taken after a second, since 125
//! messages take long at night.
//!
//! Source: 000 §3.1, equations 1-3.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_world::Timestamp;

use crate::registry::{Entry, Param};
use crate::signals::Reading;
use crate::{Allowance, Control, Law, Signals, Values};

static K: Param = Param {
    name: "k",
    doc: "Measurements in the window.",
    unit: "measurements",
    default: 25.0,
    min: 2.0,
    max: 1000.0,
};

static MEASURE: Param = Param {
    name: "measure",
    doc: "Messages from one measurement to the next.",
    unit: "messages",
    default: 125.0,
    min: 1.0,
    max: 100_000.0,
};

static TARGET: Param = Param {
    name: "rho_targ",
    doc: "Occupancy that is aimed at.",
    unit: "fraction",
    default: 0.95,
    min: 0.01,
    max: 1.0,
};

static FLOOR: Param = Param {
    name: "f_min",
    doc: "Least share of new work that is admitted.",
    unit: "fraction",
    default: 0.05,
    min: 0.0001,
    max: 1.0,
};

static WEIGHT: Param = Param {
    name: "w",
    doc: "Weight of the newest occupancy in the smoothed one.",
    unit: "fraction",
    default: 0.1,
    min: 0.001,
    max: 1.0,
};

pub(crate) static ENTRY: Entry = Entry {
    name: "occupancy",
    summary: "multiplies the admitted share by target/occupancy every few messages",
    source: "000 §3.1",
    doc: "Every `measure` messages: ρ over the last `k` measurements, smoothed with weight `w`; \
          the admitted share becomes clamp(`f_min`, (`rho_targ`/ρ)·f, 1).",
    params: &[&K, &MEASURE, &TARGET, &FLOOR, &WEIGHT],
    check: |_| Ok(()),
    build: |values: &Values| {
        Box::new(Occupancy {
            k: values.of(&K) as usize,
            measure: values.of(&MEASURE) as u64,
            target: values.of(&TARGET),
            floor: values.of(&FLOOR),
            weight: values.of(&WEIGHT),
            readings: VecDeque::new(),
            measured_at: (Timestamp::ZERO, 0),
            smoothed: None,
            fraction: 1.0,
        })
    },
};

/// The longest time between two measurements, in whatever few messages.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Occupancy {
    k: usize,
    measure: u64,
    target: f64,
    floor: f64,
    weight: f64,
    /// The last k, oldest first.
    readings: VecDeque<Reading>,
    /// When the last measurement was taken, and at how many messages.
    measured_at: (Timestamp, u64),
    smoothed: Option<f64>,
    fraction: f64,
}

impl Law for Occupancy {
    fn on_begin(&mut self, now: Timestamp, signals: &Signals) {
        self.measured_at = (now, signals.messages);
    }

    fn on_arrival(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        let (then, messages) = self.measured_at;
        if signals.messages - messages < self.measure && now.since(then) < PATIENCE {
            return;
        }
        // Messages may come faster than the processor is read.
        if self.readings.back().is_some_and(|last| last.at >= signals.processor.at) {
            return;
        }
        self.measured_at = (now, signals.messages);
        self.readings.push_back(signals.processor);
        if self.readings.len() < self.k {
            return;
        }
        let newest = signals.processor;
        let oldest = self.readings.pop_front().unwrap_or(newest);
        let Some(occupancy) = newest.occupancy_since(oldest) else { return };
        let smoothed = match self.smoothed {
            None => occupancy,
            Some(smoothed) => (1.0 - self.weight) * smoothed + self.weight * occupancy,
        };
        self.smoothed = Some(smoothed);
        if smoothed > 0.0 {
            self.fraction = (self.target / smoothed * self.fraction).clamp(self.floor, 1.0);
            control.admit_of_all(Allowance::Fraction(self.fraction));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bucket;

    /// Messages a millisecond apart, on a processor of constant occupancy.
    struct Bench {
        law: Box<dyn Law>,
        signals: Signals,
        control: Control,
        now: Timestamp,
    }

    impl Bench {
        fn new() -> Self {
            let values =
                ENTRY.values(&[("k", 3.0), ("measure", 10.0), ("w", 1.0), ("rho_targ", 0.8)]);
            Self {
                law: (ENTRY.build)(&values.unwrap()),
                signals: Signals::default(),
                control: Control::OPEN,
                now: Timestamp::ZERO,
            }
        }

        fn messages(&mut self, count: u32, occupancy: f64) -> f64 {
            for _ in 0..count {
                let ms = Duration::from_millis(1);
                self.now = self.now + ms;
                self.signals.messages += 1;
                self.signals.processor.at = self.now;
                self.signals.processor.occupied += ms.mul_f64(occupancy);
                self.law.on_arrival(self.now, &self.signals, &mut self.control);
            }
            self.control.admit(Bucket::Session).fraction(0.0)
        }
    }

    #[test]
    fn the_share_is_multiplied_by_target_over_occupancy() {
        let mut bench = Bench::new();
        assert_eq!(bench.messages(29, 1.0), 1.0, "no action before k samples");
        assert!((bench.messages(1, 1.0) - 0.8).abs() < 1e-9);
        assert!((bench.messages(10, 1.0) - 0.64).abs() < 1e-9);
        // The window of three measurements is two intervals: half old, half new.
        let half = 0.8 / 0.7 * 0.64;
        assert!((bench.messages(10, 0.4) - half).abs() < 1e-9);
        assert_eq!(bench.messages(10, 0.4), 1.0, "never above one");
    }

    #[test]
    fn the_share_never_falls_below_its_floor() {
        let mut bench = Bench::new();
        assert_eq!(bench.messages(2000, 1.0), 0.05);
    }

    #[test]
    fn nothing_is_decided_by_an_idle_processor() {
        let mut bench = Bench::new();
        assert_eq!(bench.messages(100, 0.0), 1.0);
        bench.messages(2000, 1.0);
        // Half of the window is old: 0.8/0.5·0.05. In the next nothing was done.
        assert!((bench.messages(100, 0.0) - 0.08).abs() < 1e-9);
    }

    #[test]
    fn few_messages_are_measured_after_a_second() {
        let mut bench = Bench::new();
        for second in 1..=3 {
            bench.now = Timestamp::ZERO + Duration::from_secs(second);
            bench.signals.processor.occupied += Duration::from_secs(1);
            bench.messages(1, 1.0);
        }
        assert!(bench.control.admit(Bucket::Session).fraction(0.0) < 0.81);
    }
}
