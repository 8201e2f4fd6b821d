//! A running `tidegate load`.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use super::{Process, Stage};

/// A traffic generator: a caller, a callee, or users that register.
pub struct Generator {
    process: Process,
    figures: PathBuf,
}

/// The result of a generator that has ended.
pub struct Ended {
    /// The exit status.
    pub status: Option<i32>,
    /// The output.
    pub text: String,
    /// The results that it wrote as JSON.
    pub figures: Value,
}

impl Generator {
    /// Starts `tidegate load` with these arguments.
    pub fn start(stage: &Stage, args: &[&str]) -> Self {
        // Each generator has its own files.
        static GENERATORS: AtomicU32 = AtomicU32::new(1);
        let name = format!("load-{}", GENERATORS.fetch_add(1, Ordering::Relaxed));
        let figures = stage.path(&format!("{name}.json"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("load").args(args).arg("--json").arg(&figures);
        Self { process: stage.start(&name, &mut command), figures }
    }

    /// Starts a callee. Returns it with the address at which it answers.
    pub fn answerer(stage: &Stage, args: &[&str]) -> (Self, SocketAddr) {
        let ip = stage.ip().to_string();
        let mut answerer = Self::start(stage, &[&["uas", "--bind", &ip], args].concat());
        let address = answerer.process.wait_for("the callee answers", |process| {
            let log = process.log();
            log.lines().find_map(|line| line.strip_prefix("answering at ")?.parse().ok())
        });
        (answerer, address)
    }

    /// Runs a caller to its end.
    pub fn call(stage: &Stage, target: impl ToString, args: &[&str]) -> Ended {
        Self::start(stage, &[&["uac", &target.to_string()], args].concat()).end()
    }

    /// Runs a caller to its end. All its calls must complete.
    #[track_caller]
    pub fn complete(stage: &Stage, target: impl ToString, args: &[&str]) -> Ended {
        let ended = Self::call(stage, target, args);
        assert_eq!(ended.status, Some(0), "{}", ended.text);
        ended
    }

    /// Waits for a line of `--progress` for which `is_it` is true.
    pub fn wait_for_progress(&mut self, is_it: impl Fn(&str) -> bool) {
        self.process.wait_for("it reports progress", |process| {
            let log = process.log();
            // The last line may be incomplete.
            let (complete, _) = log.rsplit_once('\n')?;
            complete.lines().any(&is_it).then_some(())
        });
    }

    /// Sends SIGTERM to the program.
    pub fn terminate(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Waits until the program ends.
    pub fn end(mut self) -> Ended {
        let status = self.process.exit().code();
        let text = self.process.log();
        let figures = fs::read(&self.figures).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        let figures = serde_json::from_slice(&figures).expect("JSON");
        Ended { status, text, figures }
    }

    /// Ends the program with SIGTERM.
    #[track_caller]
    pub fn stop(self) -> Ended {
        self.terminate();
        let ended = self.end();
        assert_eq!(ended.status, Some(0), "{}", ended.text);
        ended
    }
}
