//! A program that ends with its test.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{end_of, eventually};

/// Maximum time that a program has to end its children.
const ENDING: Duration = Duration::from_secs(5);

/// A running program.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    last_words: Option<Signal>,
}

impl Process {
    /// Starts a program. Appends its output to `log` with the extension `.log`.
    ///
    /// # Panics
    /// Panics if the program cannot be started. If it is not installed, the message has the remedy.
    pub fn start(name: &str, command: &mut Command, log: PathBuf) -> Self {
        let log = log.with_extension("log");
        let sink = File::options().create(true).append(true).open(&log).expect("a log file");
        let errors = sink.try_clone().expect("another handle of the log");
        let spawned = command.stdin(Stdio::null()).stdout(sink).stderr(errors).spawn();
        let program = command.get_program().to_string_lossy();
        match spawned {
            Ok(child) => Self { name: name.to_owned(), child, log, last_words: None },
            Err(error) if error.kind() == ErrorKind::NotFound => {
                panic!("{program} is not installed, and these tests need it: run `make setup`")
            }
            Err(error) => panic!("{program}: {error}"),
        }
    }

    /// Sets the signal that ends the program. A program with child processes needs it if only the
    /// program itself can end them.
    pub fn ended_by(mut self, signal: Signal) -> Self {
        self.last_words = Some(signal);
        self
    }

    /// Returns the output so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        // A process that has ended stays a zombie until it is waited for, so its pid is not reused.
        let _ = kill_process(self.pid(), signal);
    }

    /// Returns the exit status, if the program has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits until the program ends.
    pub fn exit(&mut self) -> ExitStatus {
        let what = format!("{} ends", self.name);
        eventually(&what, || self.ended())
    }

    /// Waits until `sign` shows that the program is ready.
    ///
    /// # Panics
    /// Panics if the program ends before that.
    pub fn wait_for<T>(&mut self, what: &str, mut sign: impl FnMut(&Self) -> Option<T>) -> T {
        eventually(what, || {
            let found = sign(self);
            if let (None, Some(status)) = (&found, self.ended()) {
                panic!("{} ended ({status}), but: {what}\n{}", self.name, end_of(&self.log));
            }
            found
        })
    }

    /// Returns the resident memory (VmRSS) of the program in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.expect("the memory of a running process") * 1024
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the program.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(signal) = self.last_words {
            self.signal(signal);
            let deadline = Instant::now() + ENDING;
            while self.ended().is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.kill();
    }
}
