//! The intended behaviour of a called party in a call, drawn at the arrival of the call.

use std::time::Duration;

use tidegate_world::{Purpose, Seed, Stream};

use super::config::AnswererConfig;
use super::mix::Behaviour;

/// The intended behaviour of the called party in one call. It is drawn when the call arrives, and
/// no other part of the program knows it in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    pub behaviour: Behaviour,
    pub ring: Duration,
    /// Time for which the called party talks before it hangs up, or `None` to wait for the caller.
    pub talk: Option<Duration>,
}

/// A generator of [`Intent`]s. Each call draws one number from each random stream that the
/// configuration uses, whatever happens in the call. So the numbers of a call do not depend on the
/// outcomes of previous calls.
pub(crate) struct Intents {
    outcome: Stream,
    ring: Stream,
    hang_up: Stream,
    hold: Stream,
}

impl Intents {
    /// Creates the generator of the answerer numbered `element`.
    pub fn new(seed: Seed, element: u32) -> Self {
        let stream = |purpose| seed.stream(purpose, element);
        Self {
            outcome: stream(Purpose::Outcome),
            ring: stream(Purpose::Ring),
            hang_up: stream(Purpose::HangUp),
            hold: stream(Purpose::Hold),
        }
    }

    /// Draws the next call's intent.
    pub fn draw(&mut self, config: &AnswererConfig) -> Intent {
        let hangs_up = config.hangs_up > 0.0 && self.hang_up.unit() < config.hangs_up;
        let talk = config.hold.draw(&mut self.hold);
        Intent {
            behaviour: config.mix.draw(&mut self.outcome),
            ring: config.ring.draw(&mut self.ring),
            talk: hangs_up.then_some(talk),
        }
    }
}
