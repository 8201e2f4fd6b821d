//! The processor time of a call in each tier.
//!
//! The cost of a call in a tier is computed from the average number of messages of each class in a
//! call, and from the mean service time of these messages in the tier. The numbers of messages are
//! the same for both tiers. So both tiers are compared with the same mix of messages, even if the
//! last message of a call comes long after the first, when the share of calls with state has
//! changed. Means are quotients of long sums. An interrupted service may take a thousand times as
//! long as another, and would dominate an average with a short memory.

use std::time::Duration;

use tidegate_world::Work;

use super::Tier;

/// Number of measured messages of a class in a tier at which their count and their total time are
/// halved. From then on a mean covers at least half of this number.
const MESSAGES: f64 = 16_384.0;

/// Number of calls at which the count of calls and the counts of their messages are halved, so that
/// old calls lose weight.
const CALLS: f64 = 4096.0;

/// Number of messages that must have been measured in a tier before its cost is known.
const KNOWN: f64 = 30.0;

/// Number of messages that must have been measured in each tier before both tiers may count as
/// equally expensive.
const SURE: f64 = 1000.0;

/// Relative difference of the costs of both tiers below which the costs count as equal.
const ERROR: f64 = 0.02;

/// Counts and service times of messages, from which the cost of a call in each tier is computed.
#[derive(Clone, Debug, Default)]
pub(super) struct CallCosts {
    begun: f64,
    served: [f64; Work::CLASSES_MAX],
    timed: [[Timed; Work::CLASSES_MAX]; Tier::ALL.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Timed {
    count: f64,
    seconds: f64,
}

impl CallCosts {
    pub(super) fn on_begun(&mut self) {
        self.begun += 1.0;
        if self.begun >= CALLS {
            self.begun /= 2.0;
            self.served = self.served.map(|count| count / 2.0);
        }
    }

    pub(super) fn on_served(&mut self, class: u8) {
        if let Some(count) = self.served.get_mut(usize::from(class)) {
            *count += 1.0;
        }
    }

    pub(super) fn on_completion(&mut self, class: u8, tier: Tier, cost: Duration) {
        let Some(timed) = self.timed[tier as usize].get_mut(usize::from(class)) else { return };
        timed.count += 1.0;
        timed.seconds += cost.as_secs_f64();
        if timed.count >= MESSAGES {
            *timed = Timed { count: timed.count / 2.0, seconds: timed.seconds / 2.0 };
        }
    }

    /// Returns the processor time of a call in `tier`, in seconds, or `None` until [`KNOWN`]
    /// messages in this tier have been measured. A class without messages in this tier is assumed
    /// to take as long as in the other tier.
    pub(super) fn of(&self, tier: Tier) -> Option<f64> {
        if self.begun == 0.0 || self.count(tier) < KNOWN {
            return None;
        }
        let [own, other] = match tier {
            Tier::Stateful => [Tier::Stateful, Tier::Stateless],
            Tier::Stateless => [Tier::Stateless, Tier::Stateful],
        }
        .map(|tier| &self.timed[tier as usize]);
        let mean = |class: usize| own[class].mean().or(other[class].mean()).unwrap_or(0.0);
        let sum: f64 = self.served.iter().enumerate().map(|(class, n)| n * mean(class)).sum();
        Some(sum / self.begun)
    }

    /// Returns whether all measurements show that a call costs the same with state as without.
    pub(super) fn is_state_free(&self) -> bool {
        let is_sure = Tier::ALL.iter().all(|&tier| self.count(tier) >= SURE);
        let [stateful, stateless] = Tier::ALL.map(|tier| self.of(tier).unwrap_or(0.0));
        is_sure && stateless >= (1.0 - ERROR) * stateful
    }

    fn count(&self, tier: Tier) -> f64 {
        self.timed[tier as usize].iter().map(|timed| timed.count).sum()
    }
}

impl Timed {
    fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.seconds / self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn serve(costs: &mut CallCosts, count: u32, tier: Tier, class: u8, cost: Duration) {
        for _ in 0..count {
            costs.on_served(class);
            costs.on_completion(class, tier, cost);
        }
    }

    fn us(cost: Option<f64>) -> Option<f64> {
        cost.map(|seconds| (seconds * 1e9).round() / 1e3)
    }

    #[test]
    fn a_call_takes_the_mean_of_each_of_its_messages_in_either_tier() {
        let mut costs = CallCosts::default();
        (0..40).for_each(|_| costs.on_begun());
        serve(&mut costs, 20, Tier::Stateful, 0, 30 * US);
        serve(&mut costs, 40, Tier::Stateful, 1, 10 * US);
        assert_eq!((us(costs.of(Tier::Stateful)), costs.of(Tier::Stateless)), (Some(25.0), None));
        serve(&mut costs, 20, Tier::Stateless, 0, 20 * US);
        assert_eq!(costs.of(Tier::Stateless), None, "20 messages are few");
        serve(&mut costs, 40, Tier::Stateless, 1, 5 * US);
        // Of class 0 each call has one, of class 1 two.
        assert_eq!(us(costs.of(Tier::Stateful)), Some(50.0));
        assert_eq!(us(costs.of(Tier::Stateless)), Some(30.0));
        // Only one tier has had messages of class 2.
        serve(&mut costs, 40, Tier::Stateful, 2, 7 * US);
        assert_eq!(us(costs.of(Tier::Stateless)), Some(37.0));
        costs.on_served(200);
        costs.on_completion(200, Tier::Stateful, US);
        assert_eq!(us(costs.of(Tier::Stateful)), Some(57.0), "no class");
    }

    #[test]
    fn old_values_are_forgotten() {
        let mut costs = CallCosts::default();
        for cost in [100 * US, 10 * US] {
            for _ in 0..100_000 {
                costs.on_begun();
                serve(&mut costs, 2, Tier::Stateful, 0, cost);
            }
        }
        assert!((19.9..20.1).contains(&us(costs.of(Tier::Stateful)).unwrap()));
    }

    #[test]
    fn state_is_found_to_be_free_only_by_many_messages() {
        let mut costs = CallCosts::default();
        costs.on_begun();
        serve(&mut costs, 2000, Tier::Stateful, 0, 10 * US);
        serve(&mut costs, 900, Tier::Stateless, 0, 11 * US);
        assert!(!costs.is_state_free());
        serve(&mut costs, 100, Tier::Stateless, 0, 11 * US);
        assert!(costs.is_state_free());
        serve(&mut costs, 1000, Tier::Stateless, 0, 8 * US);
        assert!(!costs.is_state_free());
    }
}
