//! The mean costs of serving, examining and rejecting a message.

use std::time::Duration;

use tidegate_world::Work;

/// Weight of the newest message in a mean cost. The mean depends mostly on the last hundred
/// messages.
const WEIGHT: f64 = 0.02;
/// The weight of all messages before the newest one in a mean cost.
const KEPT: f64 = 1.0 - WEIGHT;

/// Exponentially weighted means of three costs: of serving a message of each class, of examining a
/// message that has arrived, and of rejecting a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    served: [Option<f64>; Work::CLASSES_MAX],
    looked: Option<f64>,
    rejected: Option<f64>,
}

impl Costs {
    /// Returns the mean service time of a class, or `None` before its first message.
    pub fn of(&self, class: u8) -> Option<Duration> {
        self.served.get(usize::from(class)).copied().flatten().map(Duration::from_secs_f64)
    }

    /// Returns the mean of the service times of all classes that have been served, in seconds, or
    /// `None` before the first message. Each class counts the same, however many messages it has.
    pub(crate) fn mean(&self) -> Option<f64> {
        let (count, sum) =
            self.served.iter().flatten().fold((0, 0.0), |(n, sum), s| (n + 1, sum + s));
        (count > 0).then(|| sum / f64::from(count))
    }

    pub(crate) fn record(&mut self, class: u8, cost: Duration) {
        if let Some(mean) = self.served.get_mut(usize::from(class)) {
            weigh_in(mean, cost.as_secs_f64(), 1);
        }
    }

    /// Returns the cost of examining and judging a message that is not rejected, or `None` before
    /// the first such message.
    pub fn looked(&self) -> Option<Duration> {
        self.looked.map(Duration::from_secs_f64)
    }

    /// Returns the cost of rejecting a message, including the cost of examining it, or `None`
    /// before the first rejection.
    pub fn rejected(&self) -> Option<Duration> {
        self.rejected.map(Duration::from_secs_f64)
    }

    /// Records that examining `looked` messages, and rejecting `rejected` of them, took `cost`.
    pub(crate) fn record_looks(&mut self, looked: u32, rejected: u32, cost: Duration) {
        let cost = cost.as_secs_f64();
        let kept = f64::from(looked.saturating_sub(rejected));
        if rejected == 0 {
            weigh_in(&mut self.looked, cost / f64::from(looked.max(1)), looked);
        } else {
            let rest = cost - kept * self.looked.unwrap_or(cost / f64::from(looked.max(1)));
            weigh_in(&mut self.rejected, (rest / f64::from(rejected)).max(0.0), rejected);
        }
    }
}

/// Adds `count` messages with the mean cost `cost` to a moving average.
fn weigh_in(mean: &mut Option<f64>, cost: f64, count: u32) {
    let weight = 1.0 - if count == 1 { KEPT } else { kept_by(count) };
    *mean = Some(mean.map_or(cost, |mean| mean + weight * (cost - mean)));
}

/// Returns the weight of earlier messages in a mean after `count` further messages. The function is
/// not inlined. Otherwise the compiler would also compute the power for a single message, and
/// discard the result.
#[inline(never)]
fn kept_by(count: u32) -> f64 {
    KEPT.powi(count.try_into().unwrap_or(i32::MAX))
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

    #[test]
    fn a_rejection_costs_more_than_an_examination_by_the_difference() {
        let us = Duration::from_micros;
        let mut costs = Costs::default();
        costs.record_looks(4, 0, us(40));
        costs.record_looks(10, 5, us(200));
        assert_eq!((costs.looked(), costs.rejected()), (Some(us(10)), Some(us(30))));
        for _ in 0..10 {
            costs.record_looks(64, 64, us(640));
        }
        assert!(costs.rejected().unwrap().abs_diff(us(10)) < us(1));
        // Until a message has been examined without a rejection, all examined messages are assumed
        // to cost the same.
        let mut first = Costs::default();
        first.record_looks(4, 2, us(40));
        assert_eq!((first.looked(), first.rejected()), (None, Some(us(10))));
        // The cost that is left for the rejection is zero, not negative.
        costs.record_looks(100, 1, Duration::ZERO);
        assert!(costs.rejected().is_some());
    }

    #[test]
    fn a_batch_weighs_as_much_as_its_messages_one_by_one() {
        let (mut at_once, mut one_by_one) = (Costs::default(), Costs::default());
        for costs in [&mut at_once, &mut one_by_one] {
            costs.record_looks(1, 0, Duration::from_micros(5));
        }
        at_once.record_looks(50, 0, Duration::from_micros(1000));
        (0..50).for_each(|_| one_by_one.record_looks(1, 0, Duration::from_micros(20)));
        assert!(
            at_once.looked().unwrap().abs_diff(one_by_one.looked().unwrap())
                <= Duration::from_nanos(1)
        );
    }
}
