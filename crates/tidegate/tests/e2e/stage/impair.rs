//! A running `tidegate lab impair`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::{Process, Stage};

/// A relay in front of a target that impairs the datagrams as configured.
pub struct Impair {
    process: Process,
    address: SocketAddr,
    counts: PathBuf,
}

impl Impair {
    /// Starts a relay with these options, and waits until it listens.
    pub fn start(stage: &Stage, target: SocketAddr, options: &[&str]) -> Self {
        let counts = stage.path("impair.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["lab", "impair", "--listen", &stage.ip().to_string()])
            .args(["--target", &target.to_string(), "--json"])
            .arg(&counts)
            .args(options);
        let mut process = stage.start("impair", &mut command);
        let address = process.wait_for("the relay listens", |process| {
            process.log().lines().find_map(|line| line.split_once(" at ")?.1.parse().ok())
        });
        Self { process, address, counts }
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the relay, and returns its counts.
    pub fn finish(mut self) -> Value {
        self.process.signal(Signal::TERM);
        assert!(self.process.exit().success(), "{}", self.process.log());
        let text = std::fs::read_to_string(&self.counts).expect("it has written its counts");
        serde_json::from_str(&text).expect("JSON")
    }
}
