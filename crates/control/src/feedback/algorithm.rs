//! The algorithms of overload control that two servers can agree on.

use tidegate_world::unit_enum;

unit_enum! {
    /// An algorithm of overload control, which defines the meaning of a feedback value. The names
    /// are those in SIP messages.
    // RFC 7339 §9: "other-algo = %x41-5A / %x61-7A / %x30-39": letters and digits only.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Algorithm {
        /// The value is the percentage of requests to hold back (RFC 7339 §7).
        Loss = "loss",
        /// The value is the maximum number of requests a second (RFC 7415).
        Rate = "rate",
    }
}

impl Algorithm {
    /// Returns the algorithm with this [name](Self::name), or `None` if it is unknown. Case makes
    /// no difference.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }
}

/// A set of algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithms(u8);

impl Algorithms {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// The set of `loss`, the algorithm that every participant in overload control supports.
    // RFC 7339 §5.1: "This list MUST include "loss" and MAY include other algorithm names".
    pub const LOSS: Self = Self::NONE.with(Algorithm::Loss);
    /// All algorithms.
    pub const ALL: Self = Self::LOSS.with(Algorithm::Rate);

    /// Returns the set with `algorithm` added.
    pub const fn with(self, algorithm: Algorithm) -> Self {
        Self(self.0 | 1 << algorithm as u8)
    }

    /// Returns whether the algorithm is in the set.
    pub const fn contains(self, algorithm: Algorithm) -> bool {
        self.0 & 1 << algorithm as u8 != 0
    }

    /// Returns whether the set has no algorithm.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the algorithms that are in both sets.
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the algorithms of the set, `loss` first.
    pub fn iter(self) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL.into_iter().filter(move |&algorithm| self.contains(algorithm))
    }
}

impl FromIterator<Algorithm> for Algorithms {
    fn from_iter<I: IntoIterator<Item = Algorithm>>(algorithms: I) -> Self {
        algorithms.into_iter().fold(Self::NONE, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_one_algorithm() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::by_name(algorithm.name()), Some(algorithm));
        }
        assert_eq!(Algorithm::by_name("LOSS"), Some(Algorithm::Loss));
        assert_eq!(Algorithm::by_name("losses"), None);
    }

    #[test]
    fn a_set_has_what_was_added() {
        let set: Algorithms = [Algorithm::Rate, Algorithm::Loss].into_iter().collect();
        assert!(set.iter().eq([Algorithm::Loss, Algorithm::Rate]));
        assert_eq!(set.common(Algorithms::LOSS), Algorithms::LOSS);
        assert!(!set.is_empty() && set.common(Algorithms::NONE).is_empty());
        assert_eq!(Algorithms::ALL.iter().count(), 2);
    }
}
