//! Every policy by name, with its parameters: configuration, documentation and the command
//! line are made from this list.

use std::fmt;
use std::sync::Arc;

use tidegate_world::Tunable;
pub use tidegate_world::{Param, Wrong};

use crate::policy::{
    Choose, cjsq, fnv, hash, hash_to, p2c, peak_ewma, rendezvous, rr, rwma, tjsq, tlwl,
};
use crate::{Backend, Key, Policy};

/// All policies: those of 003 and of the paper it draws on, then those of today's practice.
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

/// The values of a policy's parameters, each within its bounds: a policy, ready to be used.
pub type Values = tidegate_world::Values<Entry>;

/// The policy of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    POLICIES.into_iter().find(|entry| entry.name == name)
}

/// A policy, as one chooses it.
pub struct Entry {
    /// Which it is.
    pub policy: Policy,
    /// Its name in configurations.
    pub name: &'static str,
    /// What it does, in a phrase.
    pub summary: &'static str,
    /// Where it comes from: papers by number (000 to 004) and section.
    pub source: &'static str,
    /// What it does, in Markdown.
    pub doc: &'static str,
    /// What of a request it chooses by.
    pub key: Key,
    /// Its parameters.
    pub params: &'static [&'static Param],
    /// Checks values that are each within their bounds; an error says what must hold.
    pub check: fn(&Values) -> Result<(), &'static str>,
    /// The policy with these values, which were checked, over these back ends.
    pub(crate) build: fn(&Values, &[Arc<Backend>]) -> Box<dyn Choose>,
}

impl Entry {
    /// The default of every parameter.
    pub fn defaults(&'static self) -> Values {
        Values::defaults(self)
    }

    /// The defaults, but for what is `given` by name.
    ///
    /// # Errors
    /// With the first value that is [`Wrong`].
    pub fn values(&'static self, given: &[(&str, f64)]) -> Result<Values, Wrong> {
        Values::given(self, given)
    }
}

impl Tunable for Entry {
    fn name(&self) -> &'static str {
        self.name
    }

    fn params(&self) -> &'static [&'static Param] {
        self.params
    }

    fn check(&self, values: &Values) -> Result<(), &'static str> {
        (self.check)(values)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

impl From<Policy> for Values {
    /// The policy with its defaults.
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

    // Configurations are written with these.
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
