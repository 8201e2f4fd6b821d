//! First-order low-pass filters.

use std::time::Duration;

/// A first-order low-pass filter of a signal that is sampled at uneven intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LowPass {
    time_constant_s: f64,
    value: f64,
}

impl LowPass {
    /// Creates a filter whose output starts at zero.
    pub(crate) fn new(time_constant_s: f64) -> Self {
        Self { time_constant_s, value: 0.0 }
    }

    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    /// Records that the signal had the value `sample` for the time `passed`.
    pub(crate) fn update(&mut self, sample: f64, passed: Duration) {
        // Exact for a signal that is constant between samples.
        let weight = -(-passed.as_secs_f64() / self.time_constant_s).exp_m1();
        self.value += weight * (sample - self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_followed_by_63_percent_in_one_time_constant() {
        for samples in [1, 7, 40] {
            let mut filter = LowPass::new(0.4);
            for _ in 0..samples {
                filter.update(10.0, Duration::from_millis(400) / samples);
            }
            assert!((filter.value() - 6.321).abs() < 0.001, "{samples}: {}", filter.value());
        }
    }
}
