//! A scenario: one experiment, as a TOML file says it.
//!
//! What is not swept holds for every point; each variant is run under each combination of the
//! swept conditions, several times.

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

/// A scenario that was found right.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The name of its file, without folder and ending.
    pub name: String,
    /// What it shows, in one line.
    pub title: String,
    /// What holds for every point, but for what is swept.
    pub conditions: Conditions,
    /// What is varied, and its values.
    pub sweep: Vec<(Axis, Vec<f64>)>,
    /// What is compared; at least one.
    pub variants: Vec<Variant>,
    /// When and how often is measured.
    pub schedule: Schedule,
    /// What is to come of it.
    pub expectations: Vec<Expectation>,
    /// The file as it was read.
    pub text: String,
}

/// When and how often is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Time before measuring, under the same load.
    pub warm_up: Duration,
    /// Time of which all calls are measured.
    pub measured: Duration,
    /// How often servers and callers are looked at; by the world if `None`.
    pub sample: Option<Duration>,
    /// Runs of each point, at least 1.
    pub repetitions: u32,
    /// Seed of the first run; the next ones follow.
    pub seed: u64,
}

/// One way to meet overload, and to choose among servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// What tells it from others that decide and queue alike: the law's name unless another
    /// is given.
    pub label: String,
    /// How new work is admitted and waits.
    pub overload: Overload,
    /// How servers choose among several others that say nothing of it themselves, and how much they
    /// give each; in turn and without limits if it is not said.
    pub pool: Option<Balancing>,
}

/// What is to come of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The variant's name.
    pub variant: String,
    /// Under which loads; all if empty.
    pub loads: Vec<f64>,
    /// The least part of the bound that its goodput may be, the median of its runs.
    pub goodput_of_bound_min: Option<f64>,
    /// The greatest.
    pub goodput_of_bound_max: Option<f64>,
}

impl Scenario {
    /// Reads the scenario at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or with everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        Self::parse(path, &schema::read(path)?)
    }

    /// Reads `bytes`, the content of the file at `path`, which is only named.
    ///
    /// # Errors
    /// With everything that is wrong with it.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Diagnostics> {
        read::parse(path, bytes)
    }
}

impl Variant {
    /// Its name in tables and expectations, such as `pi (arrival, class)`. No other variant
    /// has it.
    pub fn name(&self) -> String {
        format!("{} ({}, {})", self.label, self.decide(), self.queue())
    }

    /// When it decides, as one writes it.
    pub fn decide(&self) -> &'static str {
        decide_word(self.overload.gate.decide)
    }

    /// How messages wait, as one writes it.
    pub fn queue(&self) -> &'static str {
        queue_word(self.overload.queueing)
    }
}

#[cfg(test)]
#[path = "scenario/tests.rs"]
mod tests;
