//! Simulates the calls of a recording under another overload-control law.
//!
//! The calls start at their recorded times, from their recorded sources. Everything else depends on
//! the law, so it cannot be taken from the recording. Under another law, a call that was rejected
//! might have been answered, and the INVITE of a call that was answered might have been
//! retransmitted. So everything but the starts of the calls is simulated. Callers retransmit by RFC
//! 3261 and have the patience of the recorded callers. Callees answer like the recorded callees on
//! average ([`Scene`]). The proxy of the recording runs on an emulated processor.
//!
//! The first row of the result is the recording. The second row is the recorded law, simulated like
//! the other laws. So the difference between these two rows shows the accuracy of the simulation.
//! All rows are measured in the same way, by the packets at the proxy.

mod figures;
mod observer;
mod scene;
mod stage;

use std::fmt;
use std::time::Duration;

use tidegate_control::Values;
use tidegate_server::config::{Config, Emulate};
use tidegate_server::recording::Recording;
use tidegate_world::Timestamp;

pub use figures::{Figures, Row, render};
pub use observer::{Call, Observer};
pub use scene::Scene;

/// The parameters of a simulation of a recording's calls under other laws.
#[derive(Clone, Debug)]
pub struct Question {
    /// Costs of messages that replace the recorded server's emulated costs, or `None` to keep the
    /// recorded costs.
    pub costs: Option<Emulate>,
    /// Maximum set-up delay of a call that counts as set up in time.
    pub deadline: Duration,
    /// The overload-control laws to simulate in place of the recorded law.
    pub laws: Vec<Values>,
}

/// The simulated calls of a recording: the answer to a [`Question`].
#[derive(Debug)]
pub struct Answer {
    /// The callers and callees that the simulation imitates.
    pub scene: Scene,
    /// The outcomes of the calls. The first row is the recording, the second is a simulation under
    /// the recorded law, and each further row is a simulation under a law of the question.
    pub rows: Vec<Row>,
}

/// The reason why a [`Question`] has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// Neither the recording nor the question contains the costs of messages.
    Costs,
    /// The recorded configuration names back ends by host names, so their addresses are not known.
    Names,
    /// The recording contains no start of a call.
    NoCalls,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Costs => f.write_str(
                "the recorded configuration has no [emulate], so the costs of messages are not \
                 known: measure them with `tidegate lab calibrate`, and give the file with --costs",
            ),
            Self::Names => f.write_str(
                "the recorded configuration names back ends by host names; other laws can be \
                 simulated only if the URI of each back end has an IP address",
            ),
            Self::NoCalls => {
                f.write_str("no call starts in this recording, so there is nothing to simulate")
            }
        }
    }
}

impl std::error::Error for NoAnswer {}

/// Simulates the calls of `recording` under the laws of `question`. `recorded` has observed the
/// replay of the recording, which ends at `end`.
///
/// # Errors
/// Returns the reason if the calls cannot be simulated.
pub fn answer(
    question: &Question,
    recording: &Recording,
    config: &Config,
    recorded: &Observer,
    end: Timestamp,
) -> Result<Answer, NoAnswer> {
    if config.has_names() {
        return Err(NoAnswer::Names);
    }
    let mut config = config.clone();
    config.emulate = question.costs.clone().or(config.emulate);
    if config.emulate.is_none() {
        return Err(NoAnswer::Costs);
    }
    let scene =
        Scene::of(recorded, &config, &recording.head().listeners, end).ok_or(NoAnswer::NoCalls)?;
    let figures = |observer: &Observer| Figures::of(observer, question.deadline, end);
    let own = config.overload.gate.law;
    let mut rows = vec![Row::new("as recorded", &own, figures(recorded))];
    let laws = [("simulated", own)].into_iter();
    for (how, law) in laws.chain(question.laws.iter().map(|law| ("simulated", *law))) {
        config.overload.gate.law = law;
        let simulated = stage::run(&scene, &config, recording.head(), end);
        rows.push(Row::new(how, &law, figures(&simulated)));
    }
    Ok(Answer { scene, rows })
}
