//! Schemes, which apply the admitted share that a law sets to the classes of messages.
//!
//! A law decides how much work is admitted. A scheme decides which messages are shed. The user of
//! this library gives each kind of message a class: a number below
//! [`CLASSES_MAX`](Work::CLASSES_MAX).
//!
//! Sources: paper 000 §2.3 (multi class), §3.4 (one throttle for each class), §6.6 (single class),
//! §6.8 (simplified multi class).

use tidegate_world::Work;

use crate::signals::BUCKETS;
use crate::{Allowance, Bucket, Costs, Mix};

/// The rule that selects the work to shed when not all work can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Sheds only new work, with one throttle for each [`Bucket`]. Admitted work can finish.
    Simplified {
        /// True if the law's share f is the admitted share of all messages, as in paper 000 §6.8.
        /// Only new work is shed, so the admitted share of new work is smaller than f: f' = max(0,
        /// 1 − (1−f)/p), where p is the share of new work in the arriving messages. False if f is
        /// the admitted share of new work.
        scaled: bool,
    },
    /// Sheds messages of all classes with one throttle. So messages of admitted calls are shed too,
    /// and these calls can fail. This scheme is meant for comparison.
    Single,
    /// Sheds classes of messages in a given order.
    Multi(ShedOrder),
}

/// The order in which classes of messages are shed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShedOrder {
    /// The classes that may be shed, in order. A class is shed only if all classes before it are
    /// shed completely. The law admits all messages of the classes that are not in the list, and
    /// its limits on the queue and on ranks do not apply to them.
    pub order: Vec<u8>,
    /// The rule for the weight of a message.
    pub weight: Weight,
}

/// The rule for the weight of a message. The load of a class is its share of the arriving messages,
/// multiplied by the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The measured mean service time of the message's class. A class without served messages gets
    /// the mean of the service times of the other classes.
    Cost,
    /// The same weight for each message.
    Count,
}

impl Scheme {
    /// Returns the number of throttles that the scheme needs.
    pub(crate) fn throttles(&self) -> usize {
        match self {
            Self::Simplified { .. } => BUCKETS,
            Self::Single => 1,
            Self::Multi(_) => Work::CLASSES_MAX,
        }
    }

    /// Returns the index of the throttle for a message of `class`, or `None` for a message that is
    /// never shed. `bucket` is the bucket of the message, or `None` if it is not new work.
    pub(crate) fn throttle_of(&self, bucket: Option<Bucket>, class: u8) -> Option<usize> {
        match self {
            Self::Simplified { .. } => bucket.map(|bucket| bucket as usize),
            Self::Single => Some(0),
            Self::Multi(shedding) => shedding.order.contains(&class).then_some(class.into()),
        }
    }

    /// Converts the law's `allowance` into the allowance for new work. `of_all` is the share of new
    /// work in the arriving messages, 0 to 1.
    pub(crate) fn of_new_work(&self, allowance: Allowance, of_all: f64) -> Allowance {
        match (self, allowance) {
            (Self::Simplified { scaled: true }, Allowance::Fraction(fraction)) => {
                let shed = (1.0 - fraction) / of_all.max(f64::MIN_POSITIVE);
                Allowance::Fraction((1.0 - shed).max(0.0))
            }
            _ => allowance,
        }
    }
}

impl ShedOrder {
    /// Returns the admitted share of `class`, 0 to 1, when the share `fraction` of all load is
    /// admitted.
    ///
    /// The load to shed is (1−f)·Σ p·s over all classes, where f is `fraction`, p is the share of a
    /// class in the arriving messages, and s is its weight.
    pub(crate) fn share(&self, class: u8, fraction: f64, mix: &Mix, costs: &Costs) -> f64 {
        if fraction >= 1.0 {
            return 1.0;
        }
        let mean = costs.mean().unwrap_or(1.0);
        let load = |class: u8| {
            let weight = match self.weight {
                Weight::Count => 1.0,
                Weight::Cost => costs.of(class).map_or(mean, |cost| cost.as_secs_f64()),
            };
            mix.share(class) * weight
        };
        let all: f64 = (0..Work::CLASSES_MAX as u8).map(load).sum();
        let mut left = (1.0 - fraction.max(0.0)) * all;
        for &next in &self.order {
            let load = load(next);
            let shed = if load > 0.0 { (left / load).clamp(0.0, 1.0) } else { 0.0 };
            if next == class {
                // The load of a class without recent arrivals is unknown. It is shed completely if
                // the classes before it do not have enough load.
                let gone = if load > 0.0 { shed } else { f64::from(u8::from(left > 1e-12 * all)) };
                return 1.0 - gone;
            }
            left = (left - load).max(0.0);
        }
        1.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tidegate_world::Timestamp;

    use super::*;

    fn mix(counts: &[(u8, u32)]) -> Mix {
        let mut mix = Mix::default();
        for &(class, count) in counts {
            (0..count).for_each(|_| mix.record(Timestamp::ZERO, class, false));
        }
        mix
    }

    fn costs(us: &[(u8, u64)]) -> Costs {
        let mut costs = Costs::default();
        for &(class, us) in us {
            costs.record(class, Duration::from_micros(us));
        }
        costs
    }

    fn shares(order: &[u8], weight: Weight, fraction: f64, mix: &Mix, costs: &Costs) -> Vec<f64> {
        let shedding = ShedOrder { order: order.to_vec(), weight };
        let share = |class| (shedding.share(class, fraction, mix, costs) * 1e6).round() / 1e6;
        (0..4).map(share).collect()
    }

    #[test]
    fn a_class_is_shed_when_nothing_is_left_of_those_before_it() {
        let (mix, costs) = (mix(&[(0, 10), (1, 20), (2, 30), (3, 40)]), Costs::default());
        let of = |fraction| shares(&[1, 0, 3], Weight::Count, fraction, &mix, &costs);
        assert_eq!(of(1.0), [1.0, 1.0, 1.0, 1.0]);
        assert_eq!(of(0.9), [1.0, 0.5, 1.0, 1.0]);
        assert_eq!(of(0.8), [1.0, 0.0, 1.0, 1.0]);
        assert_eq!(of(0.75), [0.5, 0.0, 1.0, 1.0]);
        assert_eq!(of(0.6), [0.0, 0.0, 1.0, 0.75]);
        assert_eq!(of(0.0), [0.0, 0.0, 1.0, 0.0], "never what is not in the order");
    }

    #[test]
    fn load_is_weighed_by_cost() {
        let mix = mix(&[(0, 50), (3, 50)]);
        let costs = costs(&[(0, 10), (3, 30)]);
        // A tenth of the load is 0.4 of the load of class 0. A tenth of the messages is 0.2 of its
        // messages.
        assert_eq!(shares(&[0], Weight::Cost, 0.9, &mix, &costs)[0], 0.6);
        assert_eq!(shares(&[0], Weight::Count, 0.9, &mix, &costs)[0], 0.8);
        assert_eq!(shares(&[3], Weight::Cost, 0.9, &mix, &costs)[3], 0.866_667);
    }

    #[test]
    fn a_class_that_was_never_served_counts_for_the_mean_of_the_others() {
        let mix = mix(&[(0, 50), (1, 25), (3, 25)]);
        let costs = costs(&[(1, 10), (3, 30)]);
        // The load is 50·20 + 25·10 + 25·30 = 2000. A quarter of that is half of the load of class 0.
        assert_eq!(shares(&[0], Weight::Cost, 0.75, &mix, &costs)[0], 0.5);
        // No cost was measured, so all classes have the same weight.
        assert_eq!(shares(&[0], Weight::Cost, 0.75, &mix, &Costs::default())[0], 0.5);
    }

    #[test]
    fn a_class_without_recent_arrivals_is_shed_with_the_previous_ones() {
        let (mix, costs) = (mix(&[(0, 50), (1, 50)]), Costs::default());
        assert_eq!(shares(&[0, 2], Weight::Count, 0.6, &mix, &costs)[2], 1.0);
        assert_eq!(shares(&[0, 2], Weight::Count, 0.4, &mix, &costs)[2], 0.0);
        assert_eq!(shares(&[0, 2], Weight::Count, 0.5, &mix, &costs)[2], 1.0);
    }

    #[test]
    fn new_work_sheds_what_all_messages_would() {
        let of = |scaled, allowance| Scheme::Simplified { scaled }.of_new_work(allowance, 0.25);
        assert_eq!(of(false, Allowance::Fraction(0.9)), Allowance::Fraction(0.9));
        let Allowance::Fraction(fraction) = of(true, Allowance::Fraction(0.9)) else { panic!() };
        assert!((fraction - 0.6).abs() < 1e-12);
        assert_eq!(of(true, Allowance::Fraction(0.75)), Allowance::Fraction(0.0));
        assert_eq!(of(true, Allowance::Fraction(0.1)), Allowance::Fraction(0.0));
        assert_eq!(of(true, Allowance::Rate(7.0)), Allowance::Rate(7.0));
        // Nothing has arrived.
        let scheme = Scheme::Simplified { scaled: true };
        assert_eq!(scheme.of_new_work(Allowance::Fraction(1.0), 0.0), Allowance::Fraction(1.0));
    }

    proptest! {
        #[test]
        fn the_load_that_is_shed_is_what_is_asked_as_long_as_there_is_enough(
            counts in prop::collection::vec(1u32..50, 4),
            us in prop::collection::vec(1u64..1000, 4),
            fraction in 0.0..=1.0f64,
            order in Just(vec![0u8, 1, 2, 3]).prop_shuffle(),
            listed in 1usize..=4,
        ) {
            let by_class = |values: &[u32]| -> Vec<(u8, u32)> {
                (0..4).zip(values.iter().copied()).collect()
            };
            let mix = mix(&by_class(&counts));
            let costs = costs(&(0..4).zip(us.iter().copied()).collect::<Vec<_>>());
            let shedding = ShedOrder { order: order[..listed].to_vec(), weight: Weight::Cost };
            let load = |class: u8| {
                f64::from(counts[usize::from(class)]) * us[usize::from(class)] as f64
            };
            let all: f64 = (0..4).map(load).sum();
            let shed = |class| load(class) * (1.0 - shedding.share(class, fraction, &mix, &costs));
            let enough: f64 = shedding.order.iter().map(|&class| load(class)).sum();
            let asked = ((1.0 - fraction) * all).min(enough);
            let sum: f64 = (0..4).map(shed).sum();
            prop_assert!((sum - asked).abs() <= 1e-6 * all, "{} of {}", sum, asked);
        }
    }
}
