//! What a message of each class costs to serve.

use std::time::Duration;

use tidegate_world::Work;

/// Weight of the newest message: about the last hundred count.
const WEIGHT: f64 = 0.02;

/// Mean service time by class of message, exponentially weighted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs([Option<f64>; Work::CLASSES_MAX]);

impl Costs {
    /// Mean service time of a class; `None` before the first.
    pub fn of(&self, class: u8) -> Option<Duration> {
        self.0.get(usize::from(class)).copied().flatten().map(Duration::from_secs_f64)
    }

    /// The mean of the classes that were served, in seconds; `None` before the first.
    pub(crate) fn mean(&self) -> Option<f64> {
        let (count, sum) = self.0.iter().flatten().fold((0, 0.0), |(n, sum), s| (n + 1, sum + s));
        (count > 0).then(|| sum / f64::from(count))
    }

    pub(crate) fn record(&mut self, class: u8, cost: Duration) {
        let Some(mean) = self.0.get_mut(usize::from(class)) else { return };
        let cost = cost.as_secs_f64();
        *mean = Some(mean.map_or(cost, |mean| mean + WEIGHT * (cost - mean)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_the_mean_of_its_own() {
        let mut costs = Costs::default();
        assert_eq!(costs.of(3), None);
        costs.record(3, Duration::from_micros(10));
        assert_eq!(costs.of(3), Some(Duration::from_micros(10)));
        for _ in 0..300 {
            costs.record(3, Duration::from_micros(20));
        }
        let mean = costs.of(3).unwrap().as_secs_f64() * 1e6;
        assert!((19.9..=20.0).contains(&mean), "{mean}");
        assert_eq!(costs.of(4), None);
        costs.record(200, Duration::from_micros(20));
        assert_eq!(costs.of(200), None);
    }
}
