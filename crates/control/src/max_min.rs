//! Max-min fair shares of a total.
//!
//! If a total is too small for all demands, each demand gets its full amount or the *level*,
//! whichever is less. The level is chosen so that the shares add up to the total. No share can then
//! grow unless a share of the same size or a smaller one shrinks (Bertsekas and Gallager, Data
//! Networks, §6.5.2). A demand with a weight counts as that many equal demands: it gets up to that
//! many times the level.

/// A set of demands, sorted so that the level for any total can be computed.
#[derive(Clone, Debug, Default)]
pub struct MaxMin {
    /// For each demand, the demand divided by its weight, and its weight. Sorted by the first
    /// number.
    demands: Vec<(f64, f64)>,
    /// For each entry of `demands`, the sum of the demands before it, and the sum of their weights.
    before: Vec<(f64, f64)>,
    sum: f64,
    weight: f64,
}

impl MaxMin {
    /// Replaces all demands. Each item is a demand, 0 or more, and its weight, above 0.
    pub fn set(&mut self, demands: impl IntoIterator<Item = (f64, f64)>) {
        self.demands.clear();
        self.demands.extend(demands.into_iter().map(|(demand, weight)| (demand / weight, weight)));
        self.demands.sort_unstable_by(|a, b| f64::total_cmp(&a.0, &b.0));
        self.before.clear();
        (self.sum, self.weight) = (0.0, 0.0);
        for (demand, weight) in &self.demands {
            self.before.push((self.sum, self.weight));
            self.sum += demand * weight;
            self.weight += weight;
        }
    }

    /// Returns the sum of all demands.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns the sum of all weights.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Returns the maximum that a demand of weight 1 gets from `total`, or infinity if `total` is
    /// enough for all demands.
    pub fn level(&self, total: f64) -> f64 {
        if total >= self.sum {
            return f64::INFINITY;
        }
        let Some(last) = self.demands.len().checked_sub(1) else { return f64::INFINITY };
        // The total if each demand gets at most the amount of the demand at this index.
        let filled = |at: usize| {
            let (sum, weight) = self.before[at];
            sum + (self.weight - weight) * self.demands[at].0
        };
        // If the total is just below the sum, rounding may make even the last demand seem to be
        // met. So the search never goes beyond the last demand.
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = (low + high) / 2;
            if filled(middle) <= total {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // The demand at `low` is the first that is not met in full.
        let (sum, weight) = self.before[low];
        (total - sum).max(0.0) / (self.weight - weight)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn level(demands: &[f64], total: f64) -> f64 {
        let mut max_min = MaxMin::default();
        max_min.set(demands.iter().map(|&demand| (demand, 1.0)));
        max_min.level(total)
    }

    #[test]
    fn small_demands_are_met_and_the_rest_is_shared_alike() {
        assert_eq!(level(&[100_000.0, 50.0, 50.0], 200.0), 100.0);
        assert_eq!(level(&[30.0, 10.0, 20.0], 60.0), f64::INFINITY);
        assert_eq!(level(&[30.0, 10.0, 20.0], 45.0), 17.5);
        assert_eq!(level(&[30.0, 10.0, 20.0], 15.0), 5.0);
        assert_eq!(level(&[30.0, 10.0, 20.0], 0.0), 0.0);
        assert_eq!(level(&[], 0.0), f64::INFINITY);
    }

    #[test]
    fn demands_can_change() {
        let mut max_min = MaxMin::default();
        max_min.set([(5.0, 1.0); 10]);
        max_min.set([(4.0, 1.0), (8.0, 1.0)]);
        assert_eq!((max_min.sum(), max_min.level(10.0)), (12.0, 6.0));
    }

    #[test]
    fn a_weight_stands_for_as_many_equal_parties() {
        let mut max_min = MaxMin::default();
        // A trunk with the weight of ten users, a user that floods, and one with a small demand.
        max_min.set([(400.0, 10.0), (1_000.0, 1.0), (5.0, 1.0)]);
        assert_eq!(max_min.level(115.0), 10.0);
        let mut alike = MaxMin::default();
        alike.set([(40.0, 1.0); 10].into_iter().chain([(1_000.0, 1.0), (5.0, 1.0)]));
        assert_eq!((max_min.sum(), max_min.level(115.0)), (alike.sum(), alike.level(115.0)));
    }

    #[test]
    fn a_total_that_differs_from_the_sum_by_rounding_is_enough() {
        for (demands, total) in [
            ([(21.7, 0.2), (2.2, 0.4), (1.2, 0.9)], 25.099_999_999_999_998),
            ([(29.8, 2.6), (12.0, 1.2), (11.1, 2.3)], 52.9),
        ] {
            let mut max_min = MaxMin::default();
            max_min.set(demands);
            let level = max_min.level(total);
            let met = |&(demand, weight): &(f64, f64)| level * weight > demand - 1e-9;
            assert!(demands.iter().all(met), "{demands:?}: {level}");
        }
    }

    /// Gives out the total in small portions, each to the unmet demand that has the least.
    fn by_portions(demands: &[f64], total: f64, portions: u32) -> Vec<f64> {
        let portion = total / f64::from(portions);
        let mut given = vec![0.0; demands.len()];
        for _ in 0..portions {
            let wanting = (0..demands.len()).filter(|&i| given[i] + portion / 2.0 < demands[i]);
            let Some(least) = wanting.min_by(|&a, &b| f64::total_cmp(&given[a], &given[b])) else {
                break;
            };
            given[least] += portion;
        }
        given
    }

    proptest! {
        #[test]
        fn shares_are_those_of_giving_portions_to_who_has_least(
            demands in prop::collection::vec(0.0..100.0f64, 1..12), part in 0.0..1.0f64,
        ) {
            let total = part * demands.iter().sum::<f64>();
            let level = level(&demands, total);
            let shares: Vec<_> = demands.iter().map(|demand| demand.min(level)).collect();
            let sum: f64 = shares.iter().sum();
            prop_assert!((sum - total).abs() <= 1e-9 * total.max(1.0), "{} of {}", sum, total);
            let portions = 4000;
            for (share, given) in shares.iter().zip(by_portions(&demands, total, portions)) {
                let portion = total / f64::from(portions);
                // The amounts are whole portions, so each may be wrong by one portion. One demand
                // may also get the rounding errors of all others.
                let slack = portion * (1.0 + demands.len() as f64);
                prop_assert!((share - given).abs() <= slack, "{} but {}", share, given);
            }
        }
    }
}
