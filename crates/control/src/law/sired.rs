//! SiRED: the share of admitted calls falls linearly with the fill of the queue.
//!
//! Signal: q, the fill of the queue of new calls, or of the receive buffer if that is fuller. Every
//! `measure` messages q̂ ← (1−w)·q̂ + w·q and f = clamp(f_min, (Q_max − q̂)/(Q_max − Q_min), 1).
//! The law trips when q̂ exceeds Q_min. From Q_max on, only the share f_min is admitted. The law
//! recovers as fast as q̂ falls, because f depends only on q̂. Cold start: q̂ = 0.
//!
//! Known bias: the law acts when a queue is two thirds full, and keeps it there. An admitted call
//! waits until the calls ahead of it are served. So the size of the queue is the law's real
//! parameter. For a wait of T in a server of μ calls a second, the queue must have about μ·T/Q_min
//! places. The law is slow: because of the weight w, q̂ reaches Q_min only after some ln(1 −
//! Q_min)/ln(1 − w) = 23 measurements of a full queue. A queue of fewer than 23 · 125 messages
//! overflows long before these measurements.
//!
//! The paper prints the average twice, in equation 6 with swapped indices. We treat both as the
//! same average. A measurement is also taken each second, so that q̂ falls while nothing arrives.
//!
//! Source: paper 000 §3.3, equations 6-8, after Random Early Detection.

use std::time::Duration;

use tidegate_world::Timestamp;

use super::Law;
use super::cadence::{ACCEPT, Cadence, MEASURE, NOTICE, PATIENCE};
use super::occupancy::FLOOR;
use crate::ewma::Ewma;
use crate::{Allowance, Control, Entry, Param, Signals, Values};

static Q_MIN: Param = Param::real("q_min", "fraction", 0.7, 0.0, 1.0)
    .doc("The fill of the queue above which the law rejects some work.");

static Q_MAX: Param = Param::real("q_max", "fraction", 0.9, 0.001, 1.0)
    .doc("The fill of the queue at and above which the law admits only the share `f_min`.");

static WEIGHT: Param = Param::real("w", "fraction", 0.05, 0.001, 1.0)
    .doc("Weight of the newest reading in the smoothed fill.");

pub(crate) static ENTRY: Entry = Entry {
    name: "sired",
    summary: "admits a smaller share the fuller the queue is",
    source: "paper 000 §3.3",
    doc: "At each measurement (see `measure`) the law reads how full the queue of new calls is, \
          and how full the receive buffer is. The fuller of the two gives the fill q, a fraction \
          that is smoothed with weight `w`. The admitted share becomes clamp(`f_min`, (`q_max` − \
          q)/(`q_max` − `q_min`), 1). The size of the queue (`[server] queue_max`) determines how \
          long calls wait.",
    params: &[&MEASURE, &NOTICE, &ACCEPT, &Q_MIN, &Q_MAX, &WEIGHT, &FLOOR],
    check: |values| {
        if values.of(&Q_MIN) < values.of(&Q_MAX) { Ok(()) } else { Err("q_min < q_max") }
    },
    build: |values: &Values| {
        Box::new(Sired {
            cadence: Cadence::new(values, values.of(&Q_MIN), values.of(&WEIGHT)),
            q_min: values.of(&Q_MIN),
            q_max: values.of(&Q_MAX),
            floor: values.of(&FLOOR),
            fill: Ewma::starting_at(0.0, values.of(&WEIGHT)),
        })
    },
};

/// The smoothed fill of the queue, 0 to 1, below which the queue counts as empty.
const REST: f64 = 0.01;

#[derive(Debug)]
struct Sired {
    cadence: Cadence,
    q_min: f64,
    q_max: f64,
    floor: f64,
    /// q̂: the smoothed fill of the queue.
    fill: Ewma,
}

impl Sired {
    /// Handles an arrival or a tick. Measures if a measurement is due.
    fn measure(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        if !self.cadence.is_due(now, signals) {
            return;
        }
        self.cadence.on_taken(now, signals, control);
        let queue = &signals.queue;
        let queued = if queue.room == 0 { 0.0 } else { queue.waiting as f64 / queue.room as f64 };
        let fill = self.fill.update(queued.max(signals.socket_fill).min(1.0));
        let fraction = (self.q_max - fill) / (self.q_max - self.q_min);
        control.admit_of_all(Allowance::Fraction(fraction.clamp(self.floor, 1.0)));
    }
}

impl Law for Sired {
    fn on_begin(&mut self, now: Timestamp, signals: &Signals) {
        self.cadence.start(now, signals);
    }

    fn on_arrival(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        self.measure(now, signals, control);
    }

    fn on_tick(&mut self, now: Timestamp, signals: &Signals, control: &mut Control) {
        self.measure(now, signals, control);
    }

    fn tick(&self) -> Option<Duration> {
        Some(PATIENCE)
    }

    fn is_at_rest(&self) -> bool {
        self.fill.value() < REST
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, assert_near};
    use super::*;

    fn fresh(weight: f64) -> Bench {
        let mut bench = Bench::of(&ENTRY, &[("measure", 10.0), ("w", weight)]);
        bench.signals.queue.room = 100;
        bench
    }

    /// Takes one measurement.
    fn measure(bench: &mut Bench, waiting: usize, socket_fill: f64) -> f64 {
        bench.signals.queue.waiting = waiting;
        bench.signals.socket_fill = socket_fill;
        for _ in 0..10 {
            bench.signals.messages += 1;
            bench.arrival();
        }
        bench.share()
    }

    // 000 §3.3, equation 8.
    #[test]
    fn between_its_two_marks_the_share_falls_linearly() {
        let mut bench = fresh(1.0);
        for (waiting, share) in
            [(0, 1.0), (70, 1.0), (75, 0.75), (80, 0.5), (88, 0.1), (90, 0.05), (300, 0.05)]
        {
            assert_near(measure(&mut bench, waiting, 0.0), share);
        }
    }

    #[test]
    fn the_fuller_of_queue_and_socket_counts() {
        let mut bench = fresh(1.0);
        assert_near(measure(&mut bench, 75, 0.8), 0.5);
        assert_near(measure(&mut bench, 80, 0.75), 0.5);
        bench.signals.queue.room = 0;
        assert_near(measure(&mut bench, 100, 0.8), 0.5);
    }

    #[test]
    fn a_full_queue_is_noticed_as_fast_as_the_weight_allows() {
        let mut bench = fresh(0.05);
        // 1 − 0.95^23 = 0.69, 1 − 0.95^24 = 0.71.
        for _ in 0..23 {
            assert_near(measure(&mut bench, 100, 0.0), 1.0);
        }
        assert!(measure(&mut bench, 100, 0.0) < 1.0);
    }

    #[test]
    fn the_fill_fades_while_nothing_arrives() {
        let mut bench = fresh(0.5);
        assert_eq!(bench.law.tick(), Some(Duration::from_secs(1)));
        for _ in 0..20 {
            measure(&mut bench, 100, 0.0);
        }
        bench.signals.queue.waiting = 0;
        let mut tick = |ms| {
            bench.now = bench.now + Duration::from_millis(ms);
            bench.tick();
            (bench.share(), bench.law.is_at_rest())
        };
        assert_eq!(tick(999), (0.05, false));
        assert_eq!(tick(1), (1.0, false));
        // After seven halvings the fill is 1/128, which is below a hundredth.
        let rests: Vec<bool> = (0..6).map(|_| tick(1000).1).collect();
        assert_eq!(rests, [false, false, false, false, false, true]);
    }

    #[test]
    fn the_marks_are_in_order() {
        assert!(ENTRY.values(&[("q_min", 0.9), ("q_max", 0.9)]).is_err());
        assert!(ENTRY.values(&[("q_min", 0.89), ("q_max", 0.9)]).is_ok());
    }
}
