//! Distributions of service times.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use tidegate_world::Stream;

/// α of the Pareto distribution.
const ALPHA: f64 = 1.5;
/// The smallest cost of the Pareto distribution, as a multiple of the mean. Without the cut at
/// [`LONGEST`] it would be a third. The mean after the cut is 3·[`SHORTEST`] − 2·[`SHORTEST`]^1.5 ÷
/// √[`LONGEST`], which is 1 for this value.
const SHORTEST: f64 = 0.346_957_94;
/// The largest cost of the Pareto distribution, as a multiple of the mean.
const LONGEST: f64 = 100.0;

/// The largest squared coefficient of variation of a hyperexponential distribution. With this
/// value, about one step in 200 is long.
const SCV_MAX: f64 = 100.0;
/// The largest σ of a log-normal distribution. With this value, the squared coefficient of
/// variation is 8,102, and the mean of the costs in one run differs much from the mean of the
/// distribution.
const SIGMA_MAX: f64 = 3.0;
/// Maximum length of a file of measured costs, in bytes.
const FILE_MAX: u64 = 64 << 20;

/// The distribution of a step's cost around its [mean](super::Costs).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// The cost is always the mean.
    #[default]
    Constant,
    /// An exponential distribution, as for the service times of the M/M/1 queue. The whole cost of
    /// a step is one draw from the random numbers of its host.
    Exponential,
    /// A Pareto distribution with α = 1.5, cut at a hundred times the mean. Without this limit, the
    /// variance would be infinite. The most expensive 1 % of the steps take about a fifth of the
    /// processor time.
    Pareto,
    /// A hyperexponential distribution: a mixture of two exponential distributions with balanced
    /// means, so that the short steps together take as much time as the long ones.
    Hyperexponential {
        /// The squared coefficient of variation, from 1 to 100. With 10, about one step in 20 is
        /// long and costs ten times the mean on average. The other steps cost half of the mean on
        /// average.
        scv: f64,
    },
    /// A log-normal distribution. Its squared coefficient of variation is exp(σ²) − 1.
    Lognormal {
        /// σ, the standard deviation of the natural logarithm of the cost, from 0 to 3.
        sigma: f64,
    },
    /// Costs drawn at random, with replacement, from measured costs.
    Empirical(Sample),
}

impl Distribution {
    /// Returns a cost in seconds, drawn from this distribution with the mean `mean_s`.
    pub(super) fn draw(&self, stream: &mut Stream, mean_s: f64) -> f64 {
        match self {
            Self::Constant => mean_s,
            Self::Exponential => stream.exponential(mean_s),
            Self::Pareto => {
                let times = SHORTEST * (1.0 - stream.unit()).powf(-1.0 / ALPHA);
                mean_s * times.min(LONGEST)
            }
            Self::Hyperexponential { scv } => {
                let short = f64::midpoint(1.0, ((scv - 1.0) / (scv + 1.0)).sqrt());
                let part = if stream.unit() < short { short } else { 1.0 - short };
                stream.exponential(mean_s / (2.0 * part))
            }
            Self::Lognormal { sigma } => {
                mean_s * (sigma * stream.normal() - sigma * sigma / 2.0).exp()
            }
            Self::Empirical(sample) => {
                mean_s * sample.factors[stream.below(sample.factors.len() as u64) as usize]
            }
        }
    }

    /// Returns the measured costs of an [empirical](Self::Empirical) distribution, or `None` for
    /// any other.
    pub fn sample(&self) -> Option<&Sample> {
        match self {
            Self::Empirical(sample) => Some(sample),
            _ => None,
        }
    }
}

/// Parses a distribution as written in a configuration. For `empirical:FILE`, this also reads the
/// measured costs in FILE.
impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str, name: &str, from: f64, to: f64| match text.parse::<f64>() {
            Ok(number) if (from..=to).contains(&number) => Ok(number),
            _ => Err(format!("{name} must be a number from {from} to {to}")),
        };
        match text.split_once(':') {
            None if text == "constant" => Ok(Self::Constant),
            None if text == "exponential" => Ok(Self::Exponential),
            None if text == "pareto" => Ok(Self::Pareto),
            Some(("hyperexponential", scv)) => {
                Ok(Self::Hyperexponential { scv: number(scv, "CV2", 1.0, SCV_MAX)? })
            }
            Some(("lognormal", sigma)) => {
                Ok(Self::Lognormal { sigma: number(sigma, "SIGMA", 0.0, SIGMA_MAX)? })
            }
            Some(("empirical", file)) if !file.is_empty() => {
                Sample::load(Path::new(file)).map(Self::Empirical)
            }
            _ => Err("this is not the name of a distribution".to_owned()),
        }
    }
}

impl fmt::Display for Distribution {
    /// Formats the distribution as it is written in a configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Exponential => f.write_str("exponential"),
            Self::Pareto => f.write_str("pareto"),
            Self::Hyperexponential { scv } => write!(f, "hyperexponential:{scv}"),
            Self::Lognormal { sigma } => write!(f, "lognormal:{sigma}"),
            Self::Empirical(sample) => write!(f, "empirical:{}", sample.file.display()),
        }
    }
}

/// Measured costs from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    file: PathBuf,
    /// The costs as multiples of their mean.
    factors: Arc<[f64]>,
}

impl Sample {
    /// Reads the costs from `file`: one number on each line, in any unit. Empty lines and lines
    /// that start with `#` are ignored. The sample keeps the absolute path, so that a configuration
    /// that is written from it can be read in another folder.
    ///
    /// # Errors
    /// Returns a description of the error.
    pub fn load(file: &Path) -> Result<Self, String> {
        let unread = |error: std::io::Error| error.to_string();
        let length = fs::metadata(file).map_err(unread)?.len();
        if length > FILE_MAX {
            return Err(format!("the file has {length} bytes, the limit is {FILE_MAX}"));
        }
        let factors = parse(&fs::read_to_string(file).map_err(unread)?)?;
        Ok(Self { file: fs::canonicalize(file).map_err(unread)?, factors: factors.into() })
    }

    /// Returns the costs as multiples of their mean, in the order of the file.
    pub fn factors(&self) -> &[f64] {
        &self.factors
    }
}

/// Parses costs, and returns them as multiples of their mean.
fn parse(text: &str) -> Result<Vec<f64>, String> {
    let mut costs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.parse::<f64>() {
            Ok(cost) if cost.is_finite() && cost >= 0.0 => costs.push(cost),
            _ => {
                return Err(format!(
                    "line {} of the file is not a number of at least 0",
                    index + 1
                ));
            }
        }
    }
    let mean = costs.iter().sum::<f64>() / costs.len() as f64;
    // Without a cost, the mean is NaN.
    let has_mean = mean > 0.0 && mean.is_finite();
    if !has_mean {
        return Err("no cost in the file is above 0".to_owned());
    }
    Ok(costs.into_iter().map(|cost| cost / mean).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_written_as_it_is_read() {
        for text in [
            "constant",
            "exponential",
            "pareto",
            "hyperexponential:2.5",
            "lognormal:0",
            "lognormal:3",
        ] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_invalid_distribution_is_an_error() {
        for (text, error) in [
            ("normal", "this is not the name of a distribution"),
            ("constant:1", "this is not the name of a distribution"),
            ("hyperexponential", "this is not the name of a distribution"),
            ("empirical:", "this is not the name of a distribution"),
            ("hyperexponential:0.9", "CV2 must be a number from 1 to 100"),
            ("hyperexponential:NaN", "CV2 must be a number from 1 to 100"),
            ("lognormal:-1", "SIGMA must be a number from 0 to 3"),
        ] {
            assert_eq!(text.parse::<Distribution>().unwrap_err(), error, "{text}");
        }
        assert!("empirical:/nonexistent".parse::<Distribution>().is_err());
    }

    #[test]
    fn measured_costs_are_multiples_of_their_mean() {
        assert_eq!(parse("# in us\n10\n\n 20 \n0\n").unwrap(), [1.0, 2.0, 0.0]);
        assert_eq!(
            parse("1\nx\n").unwrap_err(),
            "line 2 of the file is not a number of at least 0"
        );
        assert_eq!(parse("-1\n").unwrap_err(), "line 1 of the file is not a number of at least 0");
        for empty in ["", "# nothing\n", "0\n0\n"] {
            assert_eq!(parse(empty).unwrap_err(), "no cost in the file is above 0");
        }
    }
}
