//! The distribution of holding times and of the times before redials, and the event at which a call
//! counts as set up.

use std::fmt;

use std::time::Duration;

use serde::Serialize;
use tidegate_agent::Span;
use tidegate_server::config::schema::Wrong;

/// The distribution of the holding times of calls, or of the waiting times before redials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// All durations are equal.
    Fixed,
    /// The durations have an exponential distribution.
    Exponential,
    /// The durations have a log-normal distribution. The value is the standard deviation of their
    /// natural logarithm.
    Lognormal(f64),
}

impl Hold {
    /// Parses the name of a distribution in the syntax of a scenario, such as `exp` or
    /// `lognormal:1.2`.
    pub(super) fn parse(text: &str) -> Result<Self, Wrong> {
        match text.split_once(':') {
            None if text == "fixed" => Ok(Self::Fixed),
            None if text == "exp" => Ok(Self::Exponential),
            Some(("lognormal", sigma)) => match sigma.parse::<f64>() {
                Ok(sigma) if (0.0..=5.0).contains(&sigma) => Ok(Self::Lognormal(sigma)),
                _ => Err("SIGMA must be a number from 0 to 5".into()),
            },
            _ => Err("this is not the name of a distribution".into()),
        }
    }

    /// Returns the distribution with the mean `mean`.
    pub fn span(self, mean: Duration) -> Span {
        match self {
            Self::Fixed => Span::Fixed(mean),
            Self::Exponential => Span::Exponential(mean),
            Self::Lognormal(sigma) => Span::LogNormal { mean, sigma },
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("fixed"),
            Self::Exponential => f.write_str("exp"),
            Self::Lognormal(sigma) => write!(f, "lognormal:{sigma}"),
        }
    }
}

/// The event at which a call counts as set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goodput {
    /// The call's 200 (OK) has reached the caller.
    Answered,
    /// The call's ACK has reached the answerer (paper 002 §4.2: "successful delivery of all five
    /// call setup messages from INVITE to ACK").
    Acknowledged,
}
