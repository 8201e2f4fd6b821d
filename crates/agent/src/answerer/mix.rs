//! Behaviours of an answerer towards calls, and the fraction of calls that each gets.

use std::fmt;
use std::str::FromStr;

use tidegate_world::Stream;

/// The behaviour of an [`Answerer`](crate::Answerer) towards a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// Answers the call with 200.
    #[default]
    Answer,
    /// Rejects the call with this final status, 300..=699. A status of 500..=599 is sent at once,
    /// without ringing, like the response of a failing server.
    Reject(u16),
    /// Rings until the caller hangs up.
    Ring,
    /// Sends no response.
    Silent,
}

impl Behaviour {
    pub(crate) fn rings(self) -> bool {
        !matches!(self, Self::Reject(500..600) | Self::Silent)
    }

    /// Returns the final status of the response, or `None` if this behaviour sends no final
    /// response.
    pub(crate) fn status(self) -> Option<u16> {
        match self {
            Self::Answer => Some(200),
            Self::Reject(status) => Some(status),
            Self::Ring | Self::Silent => None,
        }
    }
}

/// Parses `answer`, `busy` (486), `ring`, `silent`, or a final status from 300 to 699.
impl FromStr for Behaviour {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Self, MixError> {
        match text {
            "answer" => Ok(Self::Answer),
            "busy" => Ok(Self::Reject(486)),
            "ring" => Ok(Self::Ring),
            "silent" => Ok(Self::Silent),
            _ => match text.parse() {
                Ok(status @ 300..700) => Ok(Self::Reject(status)),
                _ => Err(MixError::Behaviour(text.to_owned())),
            },
        }
    }
}

/// Behaviours, each with the fraction of calls that it gets. The behaviour of each call is drawn at
/// random.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix(Vec<(Behaviour, f64)>);

impl Mix {
    /// Creates a mix. The share of each behaviour is its weight divided by the sum of all weights.
    ///
    /// # Errors
    /// Returns an error when a weight is negative or not a finite number, or when all weights are
    /// 0.
    pub fn new(weights: &[(Behaviour, f64)]) -> Result<Self, MixError> {
        if let Some(&(_, weight)) = weights.iter().find(|(_, w)| !(w.is_finite() && *w >= 0.0)) {
            return Err(MixError::Weight(weight));
        }
        let some: Vec<_> = weights.iter().copied().filter(|(_, weight)| *weight > 0.0).collect();
        if some.is_empty() { Err(MixError::Empty) } else { Ok(Self(some)) }
    }

    /// Returns whether every call gets [`Behaviour::Silent`].
    pub(crate) fn is_silent(&self) -> bool {
        self.0.iter().all(|(behaviour, _)| *behaviour == Behaviour::Silent)
    }

    /// Draws the behaviour of the next call. A mix of one behaviour takes no random number.
    pub(crate) fn draw(&self, stream: &mut Stream) -> Behaviour {
        let (last, others) = self.0.split_last().expect("a mix has a behaviour");
        if others.is_empty() {
            return last.0;
        }
        let total: f64 = self.0.iter().map(|(_, weight)| weight).sum();
        let mut left = stream.unit() * total;
        for &(behaviour, weight) in others {
            if left < weight {
                return behaviour;
            }
            left -= weight;
        }
        last.0
    }
}

impl From<Behaviour> for Mix {
    fn from(behaviour: Behaviour) -> Self {
        Self(vec![(behaviour, 1.0)])
    }
}

/// Parses behaviours with their weights, such as `answer=70,busy=15,ring=10,503=5`. A single
/// behaviour needs no weight.
impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Self, MixError> {
        let weights = text.split(',').map(|part| match part.split_once('=') {
            None => Ok((part.parse()?, 1.0)),
            Some((behaviour, weight)) => match weight.parse() {
                Ok(weight) => Ok((behaviour.parse()?, weight)),
                Err(_) => Err(MixError::Weight(f64::NAN)),
            },
        });
        Self::new(&weights.collect::<Result<Vec<_>, _>>()?)
    }
}

/// An error in a [`Mix`].
#[derive(Clone, Debug, PartialEq)]
pub enum MixError {
    /// The text is not a behaviour.
    Behaviour(String),
    /// A weight is negative or not a finite number.
    Weight(f64),
    /// No behaviour has a weight above 0.
    Empty,
}

impl fmt::Display for MixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Behaviour(text) => {
                write!(
                    f,
                    "'{text}': expected answer, busy, ring, silent or a status from 300 to 699"
                )
            }
            Self::Weight(_) => f.write_str("a weight must be a number from 0 up"),
            Self::Empty => f.write_str("no behaviour has a weight above 0"),
        }
    }
}

impl std::error::Error for MixError {}

#[cfg(test)]
mod tests {
    use tidegate_world::{Purpose, Seed};

    use super::*;

    #[test]
    fn a_mix_is_read_as_it_is_written() {
        let mix: Mix = "answer=70,busy=15,404=0,ring=10.5,silent=4.5".parse().unwrap();
        let parts = [
            (Behaviour::Answer, 70.0),
            (Behaviour::Reject(486), 15.0),
            (Behaviour::Ring, 10.5),
            (Behaviour::Silent, 4.5),
        ];
        assert_eq!(mix, Mix(parts.into()));
        assert_eq!("603".parse(), Ok(Mix::from(Behaviour::Reject(603))));
    }

    #[test]
    fn not_a_mix() {
        let rejected = |text: &str| text.parse::<Mix>().unwrap_err();
        for behaviour in ["", "200", "700", "bussy"] {
            assert_eq!(rejected(behaviour), MixError::Behaviour(behaviour.to_owned()));
        }
        assert!(matches!(rejected("busy=x"), MixError::Weight(_)));
        assert_eq!(rejected("busy=-1"), MixError::Weight(-1.0));
        assert!(matches!(rejected("busy=inf"), MixError::Weight(_)));
        assert_eq!(rejected("busy=0,ring=0"), MixError::Empty);
    }

    #[test]
    fn each_behaviour_gets_its_share() {
        let mix: Mix = "answer=6,busy=3,silent=1".parse().unwrap();
        let mut stream = Seed(1).stream(Purpose::Outcome, 0);
        let (mut drawn, n) = ([0u32; 3], 100_000);
        for _ in 0..n {
            drawn[match mix.draw(&mut stream) {
                Behaviour::Answer => 0,
                Behaviour::Reject(_) => 1,
                _ => 2,
            }] += 1;
        }
        for (count, share) in drawn.into_iter().zip([0.6, 0.3, 0.1]) {
            let (n, share): (f64, f64) = (n.into(), share);
            // The tolerance is five standard deviations of a binomial distribution.
            let spread = 5.0 * (n * share * (1.0 - share)).sqrt();
            assert!((f64::from(count) - n * share).abs() < spread, "{drawn:?}");
        }
    }

    #[test]
    fn a_mix_of_one_draws_nothing() {
        let mut stream = Seed(1).stream(Purpose::Outcome, 0);
        assert_eq!(Mix::from(Behaviour::Ring).draw(&mut stream), Behaviour::Ring);
        assert_eq!(stream.next_u64(), Seed(1).stream(Purpose::Outcome, 0).next_u64());
    }
}
