//! Kamailio's ratelimit module, algorithm FEEDBACK: the control that operators run today.
//!
//! Signal: the load of the processor, which a timer reads every 10 s. The error is e = setpoint −
//! load, and the rejected share, in whole percent, is K_p·e + K_i·Σe + K_d·Δe. K_i is −25 and the
//! other gains are 0, so this is an integral controller. The law trips when the load exceeds the
//! setpoint. The law recovers as Σe grows again. Cold start: nothing is rejected, and Σe = 0.
//!
//! Known bias: the law is slow. With a setpoint of 0.8, a fully occupied processor adds 5 % of
//! rejections every 10 s. So an overload of 1.5 times the capacity is controlled only after a
//! minute. Callers give up much earlier. Σe stops growing when it is above 0, but the last step of
//! a recovery can raise it above 0 by up to the setpoint. In the next overload Σe first has to fall
//! back to 0. Until then, for at most 40 s, all calls are admitted.
//!
//! After a time without messages, the first load is the average since the message that ended this
//! time. In Kamailio the timer never stops.
//!
//! In Kamailio Σe has no lower bound. During an overload Σe can fall far below the value at which
//! everything is rejected, which delays the recovery. Here Σe stops at this value. From there, the
//! law recovers within 50 s if the processor is idle.
//!
//! Source: Kamailio, `src/modules/ratelimit/ratelimit.c`, and its documentation, which give the
//! timer and K_i. In Kamailio the setpoint is configured for each pipe and has no default.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::signals::Reading;
use crate::{Allowance, Control, Entry, Law, Param, Signals, Values};

static SETPOINT: Param =
    Param::real("setpoint", "fraction", 0.8, 0.01, 1.0).doc("Target load of the processor.");

static INTERVAL: Param = Param::real("timer_interval", "s", 10.0, 0.01, 60.0)
    .doc("Time from one change of the rejected share to the next.");

static K_I: Param = Param::real("k_i", "percent", -25.0, -1000.0, -0.01).doc(
    "Integral gain, which is negative: a load above the setpoint increases the rejected share.",
);

static K_P: Param =
    Param::real("k_p", "percent", 0.0, -1000.0, 0.0).doc("Proportional gain, 0 or negative.");

static K_D: Param =
    Param::real("k_d", "percent", 0.0, -1000.0, 0.0).doc("Differential gain, 0 or negative.");

pub(crate) static ENTRY: Entry = Entry {
    name: "kamailio-feedback",
    summary: "rejects a share of new work, which a controller of the processor's load changes at \
              intervals",
    source: "Kamailio, ratelimit module (FEEDBACK)",
    doc: "Every `timer_interval` the law computes e = `setpoint` − load, which is negative while \
          the load is too high. It then rejects `k_p`·e + `k_i`·Σe + `k_d`·Δe percent of new work, \
          from 0 to 100. The gains are 0 or negative, so a load above the setpoint increases the \
          rejected share. The law needs minutes to respond to a change of the load.",
    params: &[&SETPOINT, &INTERVAL, &K_I, &K_P, &K_D],
    check: |_| Ok(()),
    build: |values: &Values| {
        Box::new(Feedback {
            setpoint: values.of(&SETPOINT),
            interval: Duration::from_secs_f64(values.of(&INTERVAL)),
            gains: (values.of(&K_P), values.of(&K_I), values.of(&K_D)),
            read: Reading::default(),
            sum: 0.0,
            error: 0.0,
            percent: 0.0,
        })
    },
};

#[derive(Debug)]
struct Feedback {
    setpoint: f64,
    interval: Duration,
    /// The gains K_p, K_i and K_d.
    gains: (f64, f64, f64),
    read: Reading,
    /// Σe: the sum of all errors e, within limits.
    sum: f64,
    /// e: the setpoint minus the load, at the last step.
    error: f64,
    /// The rejected share in percent.
    percent: f64,
}

impl Law for Feedback {
    fn on_begin(&mut self, _: Timestamp, signals: &Signals) {
        self.read = signals.processor;
    }

    /// Makes the next reading measure the load from now on. Otherwise it would be the average over
    /// a time without messages.
    fn on_wake(&mut self, _: Timestamp, signals: &Signals) {
        self.read = signals.processor;
    }

    fn on_tick(&mut self, _: Timestamp, signals: &Signals, control: &mut Control) {
        let Some(load) = signals.processor.occupancy_since(self.read) else { return };
        self.read = signals.processor;
        let (k_p, k_i, k_d) = self.gains;
        let error = self.setpoint - load;
        if self.sum < 0.0 || error < 0.0 {
            self.sum = (self.sum + error).max(100.0 / k_i);
        }
        let output = k_p * error + k_i * self.sum + k_d * (error - self.error);
        self.error = error;
        self.percent = output.clamp(0.0, 100.0).floor();
        control.admit_of_all(Allowance::Fraction(1.0 - self.percent / 100.0));
    }

    fn tick(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn occupancy_aimed_at(&self) -> Option<f64> {
        Some(self.setpoint)
    }

    fn is_at_rest(&self) -> bool {
        self.percent == 0.0 && self.error >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;

    /// Runs `count` steps at this load. Returns the rejected percentage.
    fn steps(bench: &mut Bench, count: u32, load: f64) -> f64 {
        for _ in 0..count {
            bench.pass(bench.law.tick().unwrap(), load);
            bench.tick();
        }
        ((1.0 - bench.share()) * 1e6).round() / 1e4
    }

    #[test]
    fn a_full_processor_adds_five_percent_every_ten_seconds() {
        let mut bench = Bench::of(&ENTRY, &[("setpoint", 0.75)]);
        assert_eq!(bench.law.tick(), Some(Duration::from_secs(10)));
        // The share is cut to whole percent: 6.25 and 12.5. Unused capacity before the overload is
        // not summed up.
        assert_eq!(steps(&mut bench, 3, 0.0), 0.0);
        assert_eq!(steps(&mut bench, 1, 1.0), 6.0);
        assert_eq!(steps(&mut bench, 1, 1.0), 12.0);
        assert_eq!(steps(&mut bench, 1, 0.75), 12.0);
        assert!(!bench.law.is_at_rest());
    }

    #[test]
    fn the_sum_stops_when_everything_is_rejected() {
        let mut bench = Bench::of(&ENTRY, &[]);
        assert_eq!(steps(&mut bench, 1000, 1.0), 100.0);
        assert_eq!(steps(&mut bench, 1, 0.0), 80.0);
        assert_eq!(steps(&mut bench, 3, 0.0), 20.0);
        assert_eq!(steps(&mut bench, 1, 0.0), 0.0);
        assert!(bench.law.is_at_rest());
    }

    #[test]
    fn the_rest_of_a_recovery_admits_the_next_overload() {
        let mut bench = Bench::of(&ENTRY, &[("setpoint", 0.75)]);
        assert_eq!(steps(&mut bench, 1, 1.0), 6.0);
        // Σe = −0.25 + 0.75, and does not grow further.
        assert_eq!(steps(&mut bench, 5, 0.0), 0.0);
        assert_eq!(steps(&mut bench, 2, 1.0), 0.0);
        assert_eq!(steps(&mut bench, 1, 1.0), 6.0);
    }

    #[test]
    fn the_other_two_gains_have_an_effect() {
        let mut bench = Bench::of(&ENTRY, &[("setpoint", 0.5), ("k_p", -50.0), ("k_d", -8.0)]);
        // e = −0.5: 25 + 12.5 + 4; e = −0.25: 12.5 + 18.75 − 2.
        assert_eq!(steps(&mut bench, 1, 1.0), 41.0);
        assert_eq!(steps(&mut bench, 1, 0.75), 29.0);
    }

    #[test]
    fn it_rests_while_the_load_does_not_exceed_its_setpoint() {
        let mut bench = Bench::of(&ENTRY, &[("setpoint", 0.5)]);
        assert!(bench.law.is_at_rest());
        // The excess is too small for one percent.
        assert_eq!(steps(&mut bench, 1, 0.51), 0.0);
        assert!(!bench.law.is_at_rest());
        steps(&mut bench, 1, 0.4);
        assert!(bench.law.is_at_rest());
        // Without a reading of the processor, nothing changes.
        bench.tick();
        assert!(bench.law.is_at_rest());
    }

    #[test]
    fn a_rest_is_not_part_of_a_reading() {
        let mut bench = Bench::of(&ENTRY, &[("setpoint", 0.75)]);
        bench.pass(Duration::from_secs(3600), 0.0);
        bench.law.on_wake(bench.now, &bench.signals);
        assert_eq!(steps(&mut bench, 1, 1.0), 6.0);
    }
}
