//! A test bench that runs a law on signals that a test sets.

use std::time::Duration;

use tidegate_world::Timestamp;

use crate::{Allowance, Bucket, Control, Entry, Law, Service, Signals};

pub(super) struct Bench {
    pub law: Box<dyn Law>,
    pub signals: Signals,
    pub control: Control,
    pub now: Timestamp,
}

impl Bench {
    /// Creates the law of `entry` with its defaults, overridden by the `given` values.
    pub fn of(entry: &'static Entry, given: &[(&str, f64)]) -> Self {
        Self {
            law: (entry.build)(&entry.values(given).unwrap()),
            signals: Signals::default(),
            control: Control::OPEN,
            now: Timestamp::ZERO,
        }
    }

    /// Lets the time `time` pass. The processor is occupied for the part `occupancy` of it.
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

    /// Takes a new call from the queue after it waited for `sojourn`.
    pub fn taken(&mut self, sojourn: Duration) {
        self.signals.service.is_session = true;
        self.signals.service.sojourn = sojourn;
        self.service();
    }

    /// Serves `count` calls with a latency of `ms` milliseconds each. While each of them is served,
    /// `behind` calls wait in the queue. Returns the window.
    pub fn served(&mut self, count: u32, ms: u64, behind: u64) -> f64 {
        self.signals.service = Service {
            is_session: true,
            sojourn: Duration::from_millis(ms - 1),
            cost: Duration::from_millis(1),
        };
        self.signals.in_progress[Bucket::Session as usize] = behind;
        for _ in 0..count {
            self.completion();
        }
        self.window()
    }

    #[track_caller]
    pub fn window(&self) -> f64 {
        match self.allowance() {
            Allowance::Window(window) => window,
            other => panic!("{other:?}"),
        }
    }

    pub fn allowance(&self) -> Allowance {
        self.control.admit(Bucket::Session)
    }

    /// Returns the admitted share of new calls.
    pub fn share(&self) -> f64 {
        self.allowance().fraction(0.0)
    }
}

#[track_caller]
pub(super) fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
}
