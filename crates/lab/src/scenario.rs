//! A scenario: one experiment, described by a TOML file.
//!
//! Conditions that are not swept apply to every run; each variant is run under each combination of
//! the swept conditions, several times.

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
    /// Compared variants; at least one.
    pub variants: Vec<Variant>,
    /// Times and number of the measurements.
    pub schedule: Schedule,
    /// Expected results.
    pub expectations: Vec<Expectation>,
    /// The file as it was read.
    pub text: String,
}

/// The times and number of the measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Time before measuring, under the same load.
    pub warm_up: Duration,
    /// Time of which all calls are measured.
    pub measured: Duration,
    /// Interval of samples of servers and callers; the default of the world if `None`.
    pub sample: Option<Duration>,
    /// Runs of each set of conditions, at least 1.
    pub repetitions: u32,
    /// Seed of the first run; the next ones follow.
    pub seed: u64,
}

/// One treatment of overload, with one balancing of servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Distinguishes it from variants with the same decision and queue: the law's name unless
    /// another is given.
    pub label: String,
    /// Admission and queueing of new work.
    pub overload: Overload,
    /// Balancing of servers that set none themselves; round robin without limits if not set.
    pub pool: Option<Balancing>,
}

/// An expected result of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The variant's name.
    pub variant: String,
    /// Loads to which it applies; all if empty.
    pub loads: Vec<f64>,
    /// Smallest part of the bound that its goodput (the median of its runs) must reach.
    pub goodput_of_bound_min: Option<f64>,
    /// Largest part of the bound that its goodput may reach.
    pub goodput_of_bound_max: Option<f64>,
}

impl Scenario {
    /// Reads the scenario at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or with all its errors.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        Self::parse(path, &schema::read(path)?)
    }

    /// Parses `bytes`, the content of the file at `path`, which is only named.
    ///
    /// # Errors
    /// With all its errors.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Diagnostics> {
        read::parse(path, bytes)
    }
}

impl Variant {
    /// Returns its unique name in tables and expectations, such as `pi (arrival, class)`.
    pub fn name(&self) -> String {
        format!("{} ({}, {})", self.label, self.decide(), self.queue())
    }

    /// Returns its point of decision, in the syntax of the key.
    pub fn decide(&self) -> &'static str {
        decide_word(self.overload.gate.decide)
    }

    /// Returns its queueing, in the syntax of the key.
    pub fn queue(&self) -> &'static str {
        queue_word(self.overload.queueing)
    }
}

#[cfg(test)]
#[path = "scenario/tests.rs"]
mod tests;
