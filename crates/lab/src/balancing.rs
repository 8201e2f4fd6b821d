//! The load balancing of a server: the policy that selects a target for each call, and the limits
//! of the targets.

use tidegate_balance::{Learning, Policy};
use tidegate_server::config::{Selection, learning_toml, selection_toml};

/// The load balancing of a server: the policy that selects the target of a call, and the limits of
/// the targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Balancing {
    /// The policy that selects the target of the next call.
    pub selection: Selection,
    /// Maximum number of open calls at each target, in the order of the targets. If there are more
    /// targets than numbers, the list is repeated. An empty list means no limit.
    pub calls_max: Vec<u64>,
    /// Maximum number of new calls and single requests a second to each target, in the order of the
    /// targets. If there are more targets than numbers, the list is repeated. An empty list means
    /// no limit.
    pub cps_max: Vec<f64>,
    /// The limits that the server learns for each target: a rate (learned from rejections), a
    /// maximum number of requests without a response (learned from delay), both, or none.
    pub learning: Learning,
}

impl Default for Balancing {
    /// Returns round-robin selection without limits.
    fn default() -> Self {
        Self {
            selection: Selection::One(Policy::Rr.into()),
            calls_max: Vec::new(),
            cps_max: Vec::new(),
            learning: Learning::default(),
        }
    }
}

impl Balancing {
    /// Returns the policy and the parameters for learning limits as keys of the configuration table
    /// `[[pool]]`, in TOML.
    pub(crate) fn pool_toml(&self) -> String {
        let mut keys = selection_toml(&self.selection);
        if self.learning != Learning::default() {
            keys += &learning_toml(&self.learning);
        }
        keys
    }

    /// Returns the limits of the target at index `place` as keys of the configuration table
    /// `[[pool.backend]]`, in TOML.
    pub(crate) fn backend_toml(&self, place: usize) -> String {
        let calls_max = in_turn(&self.calls_max, place).map(|n| format!("calls_max = {n}\n"));
        let cps_max = in_turn(&self.cps_max, place).map(|n| format!("cps_max = {n}\n"));
        calls_max.into_iter().chain(cps_max).collect()
    }

    /// Returns a text with all load-balancing settings. Different settings have different texts.
    pub fn inputs(&self) -> String {
        let mut inputs = self.pool_toml();
        // The lists are written in full, because the limits of the existing targets do not show the
        // length of a list that is repeated.
        if !self.calls_max.is_empty() {
            inputs += &format!("calls_max = {:?}\n", self.calls_max);
        }
        if !self.cps_max.is_empty() {
            inputs += &format!("cps_max = {:?}\n", self.cps_max);
        }
        inputs
    }
}

fn in_turn<T>(values: &[T], place: usize) -> Option<&T> {
    values.get(place.checked_rem(values.len())?)
}

#[cfg(test)]
mod tests {
    use tidegate_balance::RateLearning;

    use super::*;

    #[test]
    fn limits_apply_to_the_targets_in_turn() {
        let balancing =
            Balancing { calls_max: vec![7], cps_max: vec![10.0, 2.5], ..Balancing::default() };
        let keys = [0, 1, 2].map(|place| balancing.backend_toml(place));
        let of = |cps: &str| format!("calls_max = 7\ncps_max = {cps}\n");
        assert_eq!(keys, [of("10"), of("2.5"), of("10")]);
        assert_eq!(Balancing::default().backend_toml(3), "");
    }

    #[test]
    fn without_limits_the_inputs_are_those_of_the_policy() {
        let plain = Balancing::default();
        assert_eq!(plain.inputs(), selection_toml(&plain.selection));
        let limited = Balancing { cps_max: vec![1.0], ..Balancing::default() };
        let learned = Balancing {
            learning: Learning { rate: Some(RateLearning::default()), window: None },
            ..Balancing::default()
        };
        assert!(limited.inputs() != plain.inputs() && learned.inputs() != plain.inputs());
    }

    #[test]
    fn lists_that_differ_only_when_they_are_repeated_are_different_inputs() {
        let with = |calls_max: &[u64]| Balancing {
            calls_max: calls_max.to_vec(),
            cps_max: vec![1.0, 2.0, 3.0],
            ..Balancing::default()
        };
        let (two, three) = (with(&[7, 8]), with(&[7, 8, 7]));
        let first_three = |of: &Balancing| [0, 1, 2].map(|place| of.backend_toml(place));
        assert_eq!(first_three(&two), first_three(&three));
        assert_ne!(two.backend_toml(3), three.backend_toml(3));
        assert_ne!(two.inputs(), three.inputs());
    }
}
