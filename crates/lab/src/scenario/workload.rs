//! Durations that depend on people, and the definition of a call's set-up.

use std::fmt;

use std::time::Duration;

use serde::Serialize;
use tidegate_agent::Span;
use tidegate_server::config::schema::Wrong;

/// The distribution of holding times, and of the waits before a redial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// All durations are equal.
    Fixed,
    /// The durations have an exponential distribution.
    Exponential,
    /// The durations have a log-normal distribution, with this standard deviation of the logarithm.
    Lognormal(f64),
}

impl Hold {
    /// Parses the distribution in the syntax of a scenario.
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

    /// Returns the distribution with this mean.
    pub fn span(self, mean: Duration) -> Span {
        match self {
            Self::Fixed => Span::Fixed(mean),
            Self::Exponential => Span::Exponential(mean),
            Self::Lognormal(sigma) => Span::LogNormal { mean, sigma },
        }
    }
}

impl fmt::Display for Hold {
    /// Formats the distribution in the syntax of a scenario.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("fixed"),
            Self::Exponential => f.write_str("exp"),
            Self::Lognormal(sigma) => write!(f, "lognormal:{sigma}"),
        }
    }
}

/// The time at which a call counts as set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goodput {
    /// The call is set up when its 200 has reached the caller.
    Answered,
    /// The call is set up when its ACK has reached the answerer (paper 002 §4.2: "successful
    /// delivery of all five call setup messages from INVITE to ACK").
    Acknowledged,
}
