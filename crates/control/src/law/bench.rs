//! A law on signals that are set by hand: what the tests of the laws stand on.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{Allowance, Bucket, Control, Entry, Law, Signals};

/// A law, what it is given, and what it sets.
pub(super) struct Bench {
    pub law: Box<dyn Law>,
    pub signals: Signals,
    pub control: Control,
    pub now: Timestamp,
}

impl Bench {
    /// The law of `entry` with its defaults but for what is `given`.
    pub fn of(entry: &'static Entry, given: &[(&str, f64)]) -> Self {
        Self {
            law: (entry.build)(&entry.values(given).unwrap()),
            signals: Signals::default(),
            control: Control::OPEN,
            now: Timestamp::ZERO,
        }
    }

    /// Time passes, of which the processor is occupied that part.
    pub fn pass(&mut self, time: Duration, occupancy: f64) {
        self.now = self.now + time;
        self.signals.processor.at = self.now;
        self.signals.processor.occupied += time.mul_f64(occupancy);
    }

    pub fn arrival(&mut self) {
        self.law.on_arrival(self.now, &self.signals, &mut self.control);
    }

    pub fn service(&mut self) {
        self.law.on_service(self.now, &self.signals, &mut self.control);
    }

    pub fn completion(&mut self) {
        self.law.on_completion(self.now, &self.signals, &mut self.control);
    }

    pub fn tick(&mut self) {
        self.law.on_tick(self.now, &self.signals, &mut self.control);
    }

    /// A new call is taken from the queue, after it waited so long.
    pub fn taken(&mut self, sojourn: Duration) {
        self.signals.service.is_new = true;
        self.signals.service.sojourn = sojourn;
        self.service();
    }

    /// What new calls are allowed.
    pub fn allowance(&self) -> Allowance {
        self.control.admit(Bucket::Session)
    }

    /// The share of them that is admitted.
    pub fn share(&self) -> f64 {
        self.allowance().fraction(0.0)
    }
}

#[track_caller]
pub(super) fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
}
