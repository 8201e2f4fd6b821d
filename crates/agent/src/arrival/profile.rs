//! Profiles: the rate of calls over time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of steps of a [`Profile::Steps`].
const STEPS_MAX: usize = 1024;

/// A factor on the rate of calls, as a function of the time since the start.
///
/// At factor 1, the rate is [`Load::rate_cps`](crate::Load::rate_cps). This is the rate of
/// `constant`, the highest rate of `gradual` and `instant`, and the rate of `flash` and `avalanche`
/// before the event.
///
/// The text forms are `constant`, `gradual:UP,HOLD,DOWN`, `instant:AT`, `steps:T=F,T=F,…` (factor F
/// from the time T), `flash:AT,PEAK,RISE,DECAY` and `avalanche:AT,N,WITHIN` (N calls). All times
/// are in seconds.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Profile {
    /// The factor is always 1.
    #[default]
    Constant,
    /// The factor rises linearly from 0 to 1, stays at 1, and falls linearly to 0, where it stays.
    /// Each of the three durations may be zero. The gradual overload of paper 000 §6.4.1 has 50 s,
    /// 30 s and 50 s at 5,000 calls/s.
    Gradual {
        /// Duration of the rise.
        up: Duration,
        /// Time for which the factor stays at 1.
        hold: Duration,
        /// Duration of the fall.
        down: Duration,
    },
    /// The factor is 0 before the time `at` and 1 after it: the instant overload of paper 000
    /// §6.4.2.
    Instant {
        /// The time at which the factor becomes 1.
        at: Duration,
    },
    /// The factor changes in steps. Each step is a time and the factor from that time on. Before
    /// the first step, the factor is 1. The times are in ascending order.
    Steps(Arc<[(Duration, f64)]>),
    /// A flash crowd: the factor is 1, rises linearly to `peak`, and decays exponentially to 1. At
    /// the time `u` after the peak, the factor is `1 + (peak − 1)·e^(−u/decay)`.
    Flash {
        /// Start of the rise.
        at: Duration,
        /// The factor at the peak, 1 or more.
        peak: f64,
        /// Duration of the rise.
        rise: Duration,
        /// Time in which the excess of the factor over 1 falls to 1/e of its value. It must be
        /// above zero.
        decay: Duration,
    },
    /// An avalanche restart: the factor is 1, and in one time window there are `calls` additional
    /// calls, because all clients come back at the same time. The additional calls are uniformly
    /// distributed in the window, so the rate in the window is higher by `calls / within`. If
    /// arrivals are uniform, the number of additional calls is exact. If arrivals are random, it is
    /// the mean.
    Avalanche {
        /// Start of the window.
        at: Duration,
        /// Number of additional calls in the window.
        calls: u32,
        /// Length of the window, above zero.
        within: Duration,
    },
}

impl Profile {
    /// Returns an error if a value of the profile is invalid.
    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        match self {
            Self::Constant | Self::Gradual { .. } | Self::Instant { .. } => Ok(()),
            Self::Steps(steps) if steps.is_empty() => Err(ProfileError::Form(STEPS)),
            Self::Steps(steps) if steps.len() > STEPS_MAX => Err(ProfileError::TooMany),
            Self::Steps(steps) if !steps.is_sorted_by(|a, b| a.0 < b.0) => Err(ProfileError::Order),
            Self::Steps(steps) => {
                let good = |factor: f64| factor.is_finite() && factor >= 0.0;
                if steps.iter().all(|step| good(step.1)) {
                    Ok(())
                } else {
                    Err(ProfileError::Factor)
                }
            }
            Self::Flash { peak, .. } if !(peak.is_finite() && *peak >= 1.0) => {
                Err(ProfileError::Peak)
            }
            Self::Flash { decay: length, .. } | Self::Avalanche { within: length, .. } => {
                if length.is_zero() { Err(ProfileError::Length) } else { Ok(()) }
            }
        }
    }
}

const FORMS: &str = "constant, gradual:UP,HOLD,DOWN, instant:AT, steps:T=F,…, \
                     flash:AT,PEAK,RISE,DECAY or avalanche:AT,N,WITHIN";
const GRADUAL: &str = "gradual:UP,HOLD,DOWN";
const INSTANT: &str = "instant:AT";
const STEPS: &str = "steps:T=F,T=F,…";
const FLASH: &str = "flash:AT,PEAK,RISE,DECAY";
const AVALANCHE: &str = "avalanche:AT,N,WITHIN";

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let (name, values) = text.split_once(':').unwrap_or((text, ""));
        let profile = match name {
            "constant" if text == name => Self::Constant,
            "gradual" => {
                let [up, hold, down] = fields(values, GRADUAL)?;
                Self::Gradual { up: seconds(up)?, hold: seconds(hold)?, down: seconds(down)? }
            }
            "instant" => {
                let [at] = fields(values, INSTANT)?;
                Self::Instant { at: seconds(at)? }
            }
            "steps" => {
                let step = |text: &str| {
                    let (at, factor) = text.split_once('=').ok_or(ProfileError::Form(STEPS))?;
                    Ok((seconds(at)?, factor.parse().map_err(|_| ProfileError::Factor)?))
                };
                Self::Steps(values.split(',').map(step).collect::<Result<_, ProfileError>>()?)
            }
            "flash" => {
                let [at, peak, rise, decay] = fields(values, FLASH)?;
                Self::Flash {
                    at: seconds(at)?,
                    peak: peak.parse().map_err(|_| ProfileError::Peak)?,
                    rise: seconds(rise)?,
                    decay: seconds(decay)?,
                }
            }
            "avalanche" => {
                let [at, calls, within] = fields(values, AVALANCHE)?;
                Self::Avalanche {
                    at: seconds(at)?,
                    calls: calls.parse().map_err(|_| ProfileError::Calls)?,
                    within: seconds(within)?,
                }
            }
            _ => return Err(ProfileError::Form(FORMS)),
        };
        profile.check()?;
        Ok(profile)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = Duration::as_secs_f64;
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Gradual { up, hold, down } => {
                write!(f, "gradual:{},{},{}", s(up), s(hold), s(down))
            }
            Self::Instant { at } => write!(f, "instant:{}", s(at)),
            Self::Steps(steps) => {
                let mut separator = "steps:";
                for (at, factor) in steps.iter() {
                    write!(f, "{separator}{}={factor}", s(at))?;
                    separator = ",";
                }
                Ok(())
            }
            Self::Flash { at, peak, rise, decay } => {
                write!(f, "flash:{},{peak},{},{}", s(at), s(rise), s(decay))
            }
            Self::Avalanche { at, calls, within } => {
                write!(f, "avalanche:{},{calls},{}", s(at), s(within))
            }
        }
    }
}

/// An error in a [`Profile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// The text does not have the expected form, which the string states.
    Form(&'static str),
    /// A time is not a number of seconds of at least 0.
    Time,
    /// A factor is not a number of at least 0.
    Factor,
    /// A peak is not a number of at least 1.
    Peak,
    /// A number of calls is invalid.
    Calls,
    /// The duration of a decay or of a window is zero.
    Length,
    /// A step is not later than the step before it.
    Order,
    /// There are more than 1,024 steps.
    TooMany,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(wanted) => write!(f, "expected {wanted}"),
            Self::Time => f.write_str("a time must be a number of seconds from 0 up"),
            Self::Factor => f.write_str("a factor must be a number from 0 up"),
            Self::Peak => f.write_str("the peak must be a number from 1 up"),
            Self::Calls => f.write_str("the calls must be a whole number from 0 up"),
            Self::Length => f.write_str("a decay or a window must be longer than 0 s"),
            Self::Order => f.write_str("each step must be later than the one before"),
            Self::TooMany => write!(f, "the profile has more than {STEPS_MAX} steps"),
        }
    }
}

impl std::error::Error for ProfileError {}

fn fields<'a, const N: usize>(
    values: &'a str,
    form: &'static str,
) -> Result<[&'a str; N], ProfileError> {
    let fields: Vec<&str> = values.split(',').collect();
    fields.try_into().map_err(|_| ProfileError::Form(form))
}

fn seconds(text: &str) -> Result<Duration, ProfileError> {
    let seconds = text.parse().map_err(|_| ProfileError::Time)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| ProfileError::Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_profile_is_read_as_it_is_written() {
        let steps = [(s(0.0), 0.5), (s(10.0), 2.0), (s(20.5), 0.0)];
        let profiles = [
            ("constant", Profile::Constant),
            ("gradual:50,30,50", Profile::Gradual { up: s(50.0), hold: s(30.0), down: s(50.0) }),
            ("instant:10", Profile::Instant { at: s(10.0) }),
            ("steps:0=0.5,10=2,20.5=0", Profile::Steps(steps.into())),
            (
                "flash:5,8.5,0,20",
                Profile::Flash { at: s(5.0), peak: 8.5, rise: s(0.0), decay: s(20.0) },
            ),
            (
                "avalanche:5,9000,0.25",
                Profile::Avalanche { at: s(5.0), calls: 9000, within: s(0.25) },
            ),
        ];
        for (text, profile) in profiles {
            assert_eq!(profile.to_string(), text);
            assert_eq!(text.parse(), Ok(profile));
        }
    }

    #[test]
    fn an_invalid_profile_is_rejected_with_the_expected_syntax() {
        let many: Vec<_> = (0..=STEPS_MAX).map(|at| format!("{at}=1")).collect();
        let rejected = [
            ("", ProfileError::Form(FORMS)),
            ("ramp:1", ProfileError::Form(FORMS)),
            ("constant:1", ProfileError::Form(FORMS)),
            ("gradual", ProfileError::Form(GRADUAL)),
            ("gradual:1,2", ProfileError::Form(GRADUAL)),
            ("gradual:1,2,3,4", ProfileError::Form(GRADUAL)),
            ("gradual:1,2,x", ProfileError::Time),
            ("instant:-1", ProfileError::Time),
            ("instant:inf", ProfileError::Time),
            ("instant:1,2", ProfileError::Form(INSTANT)),
            ("steps:", ProfileError::Form(STEPS)),
            ("steps:1=2,3", ProfileError::Form(STEPS)),
            ("steps:1=2,1=3", ProfileError::Order),
            ("steps:1=2,0=3", ProfileError::Order),
            ("steps:1=-2", ProfileError::Factor),
            ("steps:1=inf", ProfileError::Factor),
            ("steps:1=x", ProfileError::Factor),
            ("flash:1,2,3", ProfileError::Form(FLASH)),
            ("flash:1,0.9,1,1", ProfileError::Peak),
            ("flash:1,nan,1,1", ProfileError::Peak),
            ("flash:1,inf,1,1", ProfileError::Peak),
            ("flash:1,2,1,0", ProfileError::Length),
            ("avalanche:1,2", ProfileError::Form(AVALANCHE)),
            ("avalanche:1,-2,1", ProfileError::Calls),
            ("avalanche:1,2,0", ProfileError::Length),
            (&format!("steps:{}", many.join(",")), ProfileError::TooMany),
        ];
        for (text, why) in rejected {
            assert_eq!(text.parse::<Profile>(), Err(why), "{text}");
        }
        assert_eq!(ProfileError::Form(GRADUAL).to_string(), "expected gradual:UP,HOLD,DOWN");
        assert!(format!("steps:{}", many[..STEPS_MAX].join(",")).parse::<Profile>().is_ok());
    }

    #[test]
    fn steps_made_elsewhere_are_checked_too() {
        assert_eq!(Profile::Steps([].into()).check(), Err(ProfileError::Form(STEPS)));
    }
}
