//! The algorithms that two servers can agree on.

/// The meaning of a feedback value for the server that receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The percentage of requests to hold back (RFC 7339 §7).
    Loss,
    /// The requests a second to send at most (RFC 7415).
    Rate,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 2] = [Self::Loss, Self::Rate];

    /// Returns the token of the algorithm on the wire.
    // RFC 7339 §9: "other-algo = %x41-5A / %x61-7A / %x30-39": letters and digits only.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Rate => "rate",
        }
    }

    /// Returns the algorithm with this token, if it is known. Case makes no difference.
    pub fn by_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.token().eq_ignore_ascii_case(token))
    }
}

/// A set of algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithms(u8);

impl Algorithms {
    /// No algorithm.
    pub const NONE: Self = Self(0);
    /// The algorithm that every participant in overload control supports.
    // RFC 7339 §5.1: "This list MUST include "loss" and MAY include other algorithm names".
    pub const LOSS: Self = Self::NONE.with(Algorithm::Loss);
    /// All algorithms.
    pub const ALL: Self = Self::LOSS.with(Algorithm::Rate);

    /// Returns the set with one more algorithm.
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
            assert_eq!(Algorithm::by_token(algorithm.token()), Some(algorithm));
        }
        assert_eq!(Algorithm::by_token("LOSS"), Some(Algorithm::Loss));
        assert_eq!(Algorithm::by_token("losses"), None);
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
