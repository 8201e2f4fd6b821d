//! Every policy by name, with its parameters: configuration, documentation and the command
//! line are made from this list.

pub use tidegate_world::{Param, Wrong};

use crate::Policy;
pub use crate::policy::{Entry, Values};
use crate::policy::{cjsq, fnv, hash, hash_to, p2c, peak_ewma, rendezvous, rr, rwma, tjsq, tlwl};

/// All policies: those of 003 and of the paper that it uses, then those of current practice.
pub static POLICIES: [&Entry; 11] = [
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
];

/// Returns the policy with this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    POLICIES.into_iter().find(|entry| entry.name == name)
}

impl Policy {
    /// Returns its registry entry.
    pub fn entry(self) -> &'static Entry {
        POLICIES[self as usize]
    }

    /// Returns its name in the configuration.
    pub fn name(self) -> &'static str {
        self.entry().name
    }
}

impl From<Policy> for Values {
    /// Returns the policy with its defaults.
    fn from(policy: Policy) -> Self {
        policy.entry().defaults()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::PARAMS_MAX;

    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name_and_is_what_it_says() {
        assert_eq!(POLICIES.map(|entry| entry.policy), Policy::ALL);
        for entry in POLICIES {
            assert!(std::ptr::eq(find(entry.name).unwrap(), entry));
            assert!(std::ptr::eq(entry.policy.entry(), entry));
            assert!((entry.check)(&entry.defaults()).is_ok(), "{}", entry.name);
            assert!(format!("{entry:?}").contains(entry.name));
        }
        assert!(find("nothing").is_none());
    }

    #[test]
    fn every_parameter_is_documented_and_its_default_within_its_bounds() {
        for entry in POLICIES {
            assert!(entry.doc.ends_with('.') && !entry.summary.ends_with('.'), "{}", entry.name);
            assert!(entry.params.len() <= PARAMS_MAX);
            for (index, param) in entry.params.iter().enumerate() {
                let Param { name, doc, unit, default, min, max } = param;
                assert!((min..=max).contains(&default), "{} {name}", entry.name);
                assert!(doc.ends_with('.') && !unit.is_empty(), "{} {name}", entry.name);
                let twin = entry.params[..index].iter().any(|other| other.name == *name);
                assert!(!twin, "{} has two {name}", entry.name);
            }
        }
    }

    #[test]
    fn a_wrong_value_is_named() {
        let wrong = |name: &str, given: &[(&str, f64)]| {
            find(name).unwrap().values(given).unwrap_err().to_string()
        };
        assert_eq!(wrong("rr", &[("weight", 1.0)]), "there is no parameter `weight`");
        assert_eq!(wrong("tlwl", &[("invite", 0.0)]), "invite = 0, but it may be 0.01 to 100");
        assert_eq!(wrong("tlwl", &[("learned", 0.5)]), "the values must have learned = 0 or 1");
        assert_eq!(wrong("p2c", &[("choices", 2.5)]), "the values must have a whole `choices`");
    }

    // Configurations use these names.
    #[test]
    fn the_names_stand() {
        assert_eq!(
            POLICIES.map(|entry| entry.name),
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
