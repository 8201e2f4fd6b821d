//! The laws that compute the rate of a back end from its rejections.
//!
//! A new law is one file with a state and a `step`, a variant of [`RateLaw`] and a variant of
//! [`LawState`].

use super::aimd::Aimd;
use super::rate_learning::{Interval, RateLaw, RateLearning};
use super::sre::Sre;

/// The learned rate of a back end, with the state of the law that computes it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LawState {
    Aimd(Aimd),
    Sre(Sre),
}

impl LawState {
    /// Returns the state of the law of `learning` before the first rejection.
    pub(crate) fn cold(learning: Option<RateLearning>) -> Self {
        match learning.unwrap_or_default().law {
            RateLaw::Aimd => Self::Aimd(Aimd::COLD),
            RateLaw::Sre => Self::Sre(Sre::COLD),
        }
    }

    /// Returns the rate in requests a second, or infinity if nothing is learned.
    pub(crate) const fn rate(&self) -> f64 {
        match self {
            Self::Aimd(law) => law.rate,
            Self::Sre(law) => law.rate,
        }
    }

    /// Returns whether the law ignores rejections of requests that were sent within an interval
    /// after a decrease. A law that counts over a long time needs all rejections.
    pub(crate) const fn needs_rest(&self) -> bool {
        match self {
            Self::Aimd(_) => true,
            Self::Sre(_) => false,
        }
    }

    /// Returns the state after `interval`. The rate becomes at most `cps_max` when it changes.
    pub(crate) fn step(self, learning: &RateLearning, interval: &Interval, cps_max: f64) -> Self {
        match self {
            Self::Aimd(law) => Self::Aimd(law.step(learning, interval, cps_max)),
            Self::Sre(law) => Self::Sre(law.step(learning, interval, cps_max)),
        }
    }
}

#[cfg(test)]
mod tests;
