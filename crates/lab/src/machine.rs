//! Describes the machine on which measurements were made.

use std::fs;
use std::thread;

use serde::{Deserialize, Serialize};

/// The machine on which measurements were made.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Machine {
    /// Model name of the processor, or empty if unknown.
    pub processor: String,
    /// Number of cores that the process could use.
    pub cores: usize,
    /// Version of the Linux kernel.
    pub kernel: String,
}

impl Machine {
    /// Returns a description of this machine.
    pub fn this() -> Self {
        let said = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let info = said("/proc/cpuinfo");
        let named = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            processor: named.map_or("", |(_, name)| name.trim()).to_owned(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: said("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}
