//! A scenario: one experiment, described by a TOML file.
//!
//! Conditions that are not swept apply to every run. Each variant is run several times under each
//! combination of the swept conditions.

mod conditions;
mod farm;
mod read;
mod tables;
mod workload;

use std::path::Path;
use std::time::Duration;

use tidegate_proxy::Overload;
use tidegate_server::config::{Diagnostics, decide_word, queue_word, schema};

use crate::balancing::Balancing;

pub use conditions::{Axis, Conditions};
pub use farm::Farm;
pub use tables::reference;
pub use workload::{Goodput, Hold};

/// A validated scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name of its file, without folder and extension.
    pub name: String,
    /// Title, in one line.
    pub title: String,
    /// Conditions of every run, apart from the swept ones.
    pub conditions: Conditions,
    /// Swept conditions, with their values.
    pub sweep: Vec<(Axis, Vec<f64>)>,
    /// Compared variants, at least one.
    pub variants: Vec<Variant>,
    /// Times and number of the measurements.
    pub schedule: Schedule,
    /// Expected results.
    pub expectations: Vec<Expectation>,
    /// The file as it was read.
    pub text: String,
}

/// The times of the measurements, and their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Time before the measurement, under the same load.
    pub warm_up: Duration,
    /// Duration of the measurement. All calls in this time are measured.
    pub measured: Duration,
    /// Interval between samples of servers and callers. If `None`, the default of the world
    /// applies.
    pub sample: Option<Duration>,
    /// Number of runs of each parameter set, at least 1.
    pub repetitions: u32,
    /// Seed of the first run of each parameter set. Each further run has the next higher seed.
    pub seed: u64,
}

/// A way to treat overload and to balance servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The name of the variant among those that decide and queue in the same way. Unless another
    /// name is given, it is the name of the policy, or of the law if the variant has no policy.
    pub label: String,
    /// Admission and queueing of new work.
    pub overload: Overload,
    /// Balancing at servers that have no balancing of their own. If `None`, round robin without
    /// limits.
    pub pool: Option<Balancing>,
}

/// An expected result of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The variant's name.
    pub variant: String,
    /// Loads to which the expectation applies. If the list is empty, it applies to all loads.
    pub loads: Vec<f64>,
    /// Minimum goodput of the variant, as a fraction of the greatest possible goodput, or `None` if
    /// there is no minimum. The goodput is the median of the runs.
    pub goodput_of_bound_min: Option<f64>,
    /// Maximum goodput of the variant, as a fraction of the greatest possible goodput, or `None` if
    /// there is no maximum.
    pub goodput_of_bound_max: Option<f64>,
}

impl Scenario {
    /// Reads the scenario at `path`.
    ///
    /// # Errors
    /// Returns all errors of the scenario, or the error of reading the file.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        Self::parse(path, &schema::read(path)?)
    }

    /// Parses `bytes`, the content of the file at `path`. The path is used only in messages.
    ///
    /// # Errors
    /// Returns all errors of the scenario.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Diagnostics> {
        read::parse(path, bytes)
    }
}

impl Variant {
    /// Returns the variant's unique name in tables and expectations, such as `pi (arrival, class)`.
    pub fn name(&self) -> String {
        format!("{} ({}, {})", self.label, self.decide(), self.queue())
    }

    /// Returns the point at which the variant decides about new work: the value of the key
    /// `decide`.
    pub fn decide(&self) -> &'static str {
        decide_word(self.overload.gate.decide)
    }

    /// Returns how the variant queues admitted work: the value of the key `queue`.
    pub fn queue(&self) -> &'static str {
        queue_word(self.overload.queueing)
    }
}

#[cfg(test)]
#[path = "scenario/tests.rs"]
mod tests;
