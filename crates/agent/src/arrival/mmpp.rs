//! The Markov-modulated Poisson process: calls in bursts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_world::{Purpose, Seed, Stream};

/// Maximum number of states of a process.
const STATES_MAX: usize = 8;

/// Minimum mean sojourn in a state. With a shorter sojourn, many changes of state would have to be
/// drawn for each call.
const SOJOURN_MIN: Duration = Duration::from_millis(1);

/// A Markov-modulated Poisson process (MMPP; Fischer and Meier-Hellstern, *The Markov-modulated
/// Poisson process cookbook*, 1993).
///
/// At each time, the process is in one of 2 to 8 states. State i has a factor `fᵢ` and a mean
/// sojourn `sᵢ`. The process stays in state i for an exponentially distributed time of mean `sᵢ`,
/// and then changes to any other state with equal probability. So the process is in state i for a
/// share `pᵢ = sᵢ / Σ sⱼ` of the time, and starts in state i with this probability. If `R` is the
/// requested rate multiplied by the profile, calls in state i are a Poisson process with the rate
/// `R·fᵢ / Σ pⱼ·fⱼ`. So the mean rate is `R`, whatever the factors are.
///
/// The text form is `F=S,F=S,…`: factor F and mean sojourn S in seconds of each state.
#[derive(Clone, Debug, PartialEq)]
pub struct Mmpp {
    states: ArrayVec<State, STATES_MAX>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    /// Factor by which the rate is multiplied in this state, as configured and before
    /// normalization.
    factor: f64,
    sojourn: Duration,
}

impl Mmpp {
    /// Creates the process from the factor and the mean sojourn of each state.
    ///
    /// # Errors
    /// Returns an error when there are fewer than 2 states or more than 8, a factor is negative or
    /// not a finite number, all factors are 0, or a sojourn is shorter than 1 ms.
    pub fn new(states: &[(f64, Duration)]) -> Result<Self, MmppError> {
        if !(2..=STATES_MAX).contains(&states.len()) {
            return Err(MmppError::States(states.len()));
        }
        if !states.iter().all(|(factor, _)| factor.is_finite() && *factor >= 0.0) {
            return Err(MmppError::Factor);
        }
        if states.iter().any(|(_, sojourn)| *sojourn < SOJOURN_MIN) {
            return Err(MmppError::Sojourn);
        }
        if states.iter().all(|(factor, _)| *factor == 0.0) {
            return Err(MmppError::Silent);
        }
        let state = |&(factor, sojourn)| State { factor, sojourn };
        Ok(Self { states: states.iter().map(state).collect() })
    }

    /// Returns the sum of the mean sojourns, `Σ sⱼ`, in seconds.
    fn cycle_s(&self) -> f64 {
        self.states.iter().map(|state| state.sojourn.as_secs_f64()).sum()
    }

    /// Returns the mean of the factors over time, `Σ pⱼ·fⱼ`.
    fn mean_factor(&self) -> f64 {
        let weighted = self.states.iter().map(|state| state.factor * state.sojourn.as_secs_f64());
        weighted.sum::<f64>() / self.cycle_s()
    }
}

impl FromStr for Mmpp {
    type Err = MmppError;

    fn from_str(text: &str) -> Result<Self, MmppError> {
        let state = |text: &str| {
            let (factor, sojourn) = text.split_once('=').ok_or(MmppError::Form)?;
            let sojourn = sojourn.parse().map_err(|_| MmppError::Sojourn)?;
            let sojourn = Duration::try_from_secs_f64(sojourn).map_err(|_| MmppError::Sojourn)?;
            Ok((factor.parse().map_err(|_| MmppError::Factor)?, sojourn))
        };
        Self::new(&text.split(',').map(state).collect::<Result<Vec<_>, _>>()?)
    }
}

impl fmt::Display for Mmpp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for State { factor, sojourn } in &self.states {
            write!(f, "{separator}{factor}={}", sojourn.as_secs_f64())?;
            separator = ",";
        }
        Ok(())
    }
}

/// An error in an [`Mmpp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmppError {
    /// The text does not have the form `F=S,F=S,…` (factor and mean sojourn of each state).
    Form,
    /// The number of states is not 2 to 8.
    States(usize),
    /// A factor is negative or not a finite number.
    Factor,
    /// A mean sojourn is not a time of 1 ms or more.
    Sojourn,
    /// All factors are 0.
    Silent,
}

impl fmt::Display for MmppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("expected F=S,F=S,…: factor and mean sojourn of each state"),
            Self::States(n) => write!(f, "{n} states: there must be 2 to {STATES_MAX}"),
            Self::Factor => f.write_str("a factor must be a number from 0 up"),
            Self::Sojourn => f.write_str("a mean sojourn must be 0.001 s or more"),
            Self::Silent => f.write_str("all factors are 0"),
        }
    }
}

impl std::error::Error for MmppError {}

/// The states of an [`Mmpp`] over the time of one run.
#[derive(Clone, Debug)]
pub(super) struct Modulation {
    mmpp: Mmpp,
    mean_factor: f64,
    stream: Stream,
    state: usize,
    /// End of the current state, in seconds after the start of the run.
    until_s: f64,
}

impl Modulation {
    /// Creates the states for the caller numbered `element`, and draws the first state.
    pub fn new(mmpp: &Mmpp, seed: Seed, element: u32) -> Self {
        let mut stream = seed.stream(Purpose::Modulation, element);
        let mut left_s = stream.unit() * mmpp.cycle_s();
        let mut state = 0;
        for (index, candidate) in mmpp.states.iter().enumerate() {
            state = index;
            left_s -= candidate.sojourn.as_secs_f64();
            if left_s < 0.0 {
                break;
            }
        }
        let mean_factor = mmpp.mean_factor();
        let mut modulation = Self { mmpp: mmpp.clone(), mean_factor, stream, state, until_s: 0.0 };
        modulation.stay();
        modulation
    }

    /// Returns the factor by which the current state multiplies the rate. The mean of this factor
    /// over time is 1.
    pub fn factor(&self) -> f64 {
        self.mmpp.states[self.state].factor / self.mean_factor
    }

    pub fn until_s(&self) -> f64 {
        self.until_s
    }

    /// Ends the current state and draws the next one.
    pub fn change(&mut self) {
        let others = self.mmpp.states.len() - 1;
        let chosen = self.stream.below(others as u64) as usize;
        self.state = chosen + usize::from(chosen >= self.state);
        self.stay();
    }

    fn stay(&mut self) {
        let mean_s = self.mmpp.states[self.state].sojourn.as_secs_f64();
        self.until_s += self.stream.exponential(mean_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_as_it_is_written() {
        let mmpp = Mmpp::new(&[(1.0, Duration::from_secs(10)), (5.5, Duration::from_millis(500))]);
        assert_eq!("1=10,5.5=0.5".parse(), mmpp);
        assert_eq!(mmpp.unwrap().to_string(), "1=10,5.5=0.5");
    }

    #[test]
    fn not_a_process() {
        for (text, why) in [
            ("", MmppError::Form),
            ("1", MmppError::Form),
            ("1=1", MmppError::States(1)),
            ("1=1,1=1,1=1,1=1,1=1,1=1,1=1,1=1,1=1", MmppError::States(9)),
            ("x=1,1=1", MmppError::Factor),
            ("-1=1,1=1", MmppError::Factor),
            ("inf=1,1=1", MmppError::Factor),
            ("1=x,1=1", MmppError::Sojourn),
            ("1=-1,1=1", MmppError::Sojourn),
            ("1=0.0009,1=1", MmppError::Sojourn),
            ("0=1,0=1", MmppError::Silent),
        ] {
            assert_eq!(text.parse::<Mmpp>(), Err(why), "{text}");
        }
        assert_eq!(MmppError::States(9).to_string(), "9 states: there must be 2 to 8");
        assert!("1=0.001,0=1".parse::<Mmpp>().is_ok());
        assert!("1=1,1=1,1=1,1=1,1=1,1=1,1=1,1=1".parse::<Mmpp>().is_ok());
    }

    #[test]
    fn each_state_gets_its_share_of_the_time_and_none_follows_itself() {
        let mmpp: Mmpp = "1=1,2=2,4=5".parse().unwrap();
        let mut modulation = Modulation::new(&mmpp, Seed(1), 0);
        let (mut time_s, mut changes) = ([0.0; 3], [[0u32; 3]; 3]);
        let mut before_s = 0.0;
        for _ in 0..100_000 {
            let state = modulation.state;
            time_s[state] += modulation.until_s() - before_s;
            before_s = modulation.until_s();
            modulation.change();
            changes[state][modulation.state] += 1;
        }
        for (time_s, share) in time_s.into_iter().zip([1.0 / 8.0, 2.0 / 8.0, 5.0 / 8.0]) {
            // Each state has about a third of 100,000 sojourns. So the standard error of a share is
            // at most 0.55 %.
            assert!((time_s / before_s / share - 1.0).abs() < 0.025, "{time_s} of {before_s}");
        }
        for (state, next) in changes.into_iter().enumerate() {
            assert_eq!(next[state], 0);
            let [a, b] = [next[(state + 1) % 3], next[(state + 2) % 3]];
            assert!((f64::from(a) / f64::from(b) - 1.0).abs() < 0.06, "{changes:?}");
        }
    }

    #[test]
    fn it_begins_in_any_state_by_its_share_of_the_time() {
        let mmpp: Mmpp = "1=1,2=2,4=5".parse().unwrap();
        let mut begun = [0u32; 3];
        for element in 0..8000 {
            begun[Modulation::new(&mmpp, Seed(1), element).state] += 1;
        }
        // The tolerance is five standard deviations of a binomial distribution.
        for (begun, share) in begun.into_iter().zip([1.0 / 8.0, 2.0 / 8.0, 5.0 / 8.0f64]) {
            let spread = 5.0 * (8000.0 * share * (1.0 - share)).sqrt();
            assert!((f64::from(begun) - 8000.0 * share).abs() < spread, "{begun}");
        }
    }
}
