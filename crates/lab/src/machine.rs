//! The machine of a measurement.

use std::fs;
use std::thread;

use serde::Serialize;

/// The machine this process runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The processor, as its maker calls it; empty if unknown.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The version of Linux.
    pub kernel: String,
}

impl Machine {
    /// Returns this machine.
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
