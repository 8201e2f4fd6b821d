//! A list of all policies by name, with their parameters. The configuration, the documentation and
//! the command line take the policies from this list.

use tidegate_world::Registry;
pub use tidegate_world::{Param, Range, Wrong};

use crate::Policy;
pub use crate::policy::{Entry, Values};
use crate::policy::{
    Policies, cjsq, fnv, hash, hash_to, p2c, peak_ewma, rendezvous, rr, rwma, tjsq, tlwl,
};

/// All policies: first the policies of paper 003 and of its reference 1, then the policies of
/// current products.
pub static POLICIES: Registry<Policies> = Registry::new(&[
    &rr::ENTRY,
    &hash::ENTRY,
    &fnv::ENTRY,
    &cjsq::ENTRY,
    &tjsq::ENTRY,
    &tlwl::ENTRY,
    &hash_to::ENTRY,
    &rwma::ENTRY,
    &p2c::ENTRY,
    &peak_ewma::ENTRY,
    &rendezvous::ENTRY,
]);

/// Returns the entry of the policy with this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    POLICIES.find(name)
}

impl Policy {
    /// Returns the registry entry of the policy.
    pub fn entry(self) -> &'static Entry {
        POLICIES[self as usize]
    }

    /// Returns the name of the policy in the configuration.
    pub fn name(self) -> &'static str {
        self.entry().name
    }
}

impl From<Policy> for Values {
    /// Returns the policy with the default values of its parameters.
    fn from(policy: Policy) -> Self {
        policy.entry().defaults()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_complete_and_is_what_it_says() {
        POLICIES.assert_complete();
        let policies: Vec<_> = POLICIES.iter().map(|entry| entry.build.policy).collect();
        assert_eq!(policies, Policy::ALL);
    }

    #[test]
    fn a_wrong_value_is_named() {
        let wrong = |name: &str, given: &[(&str, f64)]| {
            find(name).unwrap().values(given).unwrap_err().to_string()
        };
        assert_eq!(wrong("rr", &[("weight", 1.0)]), "there is no parameter `weight`");
        assert_eq!(
            wrong("tlwl", &[("invite", 0.0)]),
            "invite = 0, but it must be a number from 0.01 to 100"
        );
        assert_eq!(
            wrong("tlwl", &[("learned", 0.5)]),
            "learned = 0.5, but it must be a whole number from 0 to 1"
        );
        assert_eq!(
            wrong("p2c", &[("choices", 2.5)]),
            "choices = 2.5, but it must be a whole number from 1 to 16"
        );
    }

    // Configurations use these names.
    #[test]
    fn the_names_do_not_change() {
        assert_eq!(
            POLICIES.iter().map(|entry| entry.name).collect::<Vec<_>>(),
            [
                "rr",
                "hash",
                "fnv",
                "cjsq",
                "tjsq",
                "tlwl",
                "hash-to",
                "rwma",
                "p2c",
                "peak-ewma",
                "rendezvous"
            ]
        );
    }
}
