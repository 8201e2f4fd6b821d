//! A scenario: one experiment, described by a TOML file.
//!
//! Conditions that are not swept apply to every run. Each variant is run under each combination of
//! the swept conditions, several times with different seeds.

mod conditions;
mod farm;
mod read;
mod tables;
mod workload;

use std::path::Path;

use tidegate_proxy::Overload;
use tidegate_server::config::{Diagnostics, Emulate, decide_word, queue_word, schema};

use crate::balancing::Balancing;

pub use conditions::{Axis, Conditions};
pub use farm::Farm;
pub use tables::{Expectation, Schedule, reference};
pub use workload::{Goodput, Hold};

/// A validated scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name of the scenario file, without folder and extension.
    pub name: String,
    /// Title of the scenario, in one line.
    pub title: String,
    /// Conditions of every run. The swept conditions are replaced in each run.
    pub conditions: Conditions,
    /// The swept conditions, each with its values.
    pub sweep: Vec<(Axis, Vec<f64>)>,
    /// The variants to be compared, at least one.
    pub variants: Vec<Variant>,
    /// The durations, the sampling interval, the repetitions and the seed of the runs.
    pub schedule: Schedule,
    /// Expected results.
    pub expectations: Vec<Expectation>,
    /// The content of the scenario file.
    pub text: String,
}

/// A combination of overload control and balancing that a scenario compares with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// A name that distinguishes the variant from other variants that decide and queue in the same
    /// way. The default is the name of the balancing policy, or of the overload law if the variant
    /// has no policy.
    pub label: String,
    /// Admission and queueing of new requests.
    pub overload: Overload,
    /// The balancing settings of servers that have none of their own. `None` means round robin
    /// without limits.
    pub pool: Option<Balancing>,
}

impl Scenario {
    /// Reads the scenario file at `path`.
    ///
    /// # Errors
    /// Returns all errors in the scenario, or the error of reading the file.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        Self::parse(path, &schema::read(path)?)
    }

    /// Reads the scenario file at `path`, with `costs` instead of the costs in its `[emulate]`.
    ///
    /// # Errors
    /// Returns all errors in the scenario, or the error of reading the file.
    pub fn load_with_costs(path: &Path, costs: &Emulate) -> Result<Self, Diagnostics> {
        read::parse(path, &schema::read(path)?, Some(costs))
    }

    /// Parses `bytes`, the content of the scenario file at `path`. The path is used in error
    /// messages, as the name of the scenario, and to find files that the scenario names.
    ///
    /// # Errors
    /// Returns all errors in the scenario.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Diagnostics> {
        read::parse(path, bytes, None)
    }
}

impl Variant {
    /// Returns the variant's unique name in tables and expectations, such as `pi (arrival, class)`.
    pub fn name(&self) -> String {
        format!("{} ({}, {})", self.label, self.decide(), self.queue())
    }

    /// Returns the value of the key `decide`: the point at which the variant decides on new
    /// requests.
    pub fn decide(&self) -> &'static str {
        decide_word(self.overload.gate.decide)
    }

    /// Returns the value of the key `queue`: the way in which the variant queues admitted requests.
    pub fn queue(&self) -> &'static str {
        queue_word(self.overload.queueing)
    }
}

#[cfg(test)]
#[path = "scenario/tests.rs"]
mod tests;
