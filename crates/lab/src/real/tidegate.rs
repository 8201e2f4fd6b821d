//! Runs Tidegate as a child process.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use rustix::process::{Pid, Signal, kill_process};

use super::cpu;

/// Longest time from the start of a process until it is ready for calls.
const READY_MAX: Duration = Duration::from_secs(10);

/// Longest time from the request to stop a process until its end.
const END_MAX: Duration = Duration::from_secs(5);

/// Number of lines of the process's standard error that are kept.
const LINES_MAX: usize = 20;

/// Maximum length of a response to `/status`, in bytes.
const STATUS_MAX: u64 = 1 << 20;

/// The content of Tidegate's `/status`.
pub type Status = serde_json::Value;

/// A running `tidegate run` process. Dropping a `Tidegate` kills the process. The kernel also kills
/// the process when the thread that started the process ends.
pub struct Tidegate {
    child: Child,
    address: SocketAddr,
    admin: String,
    agent: ureq::Agent,
    said: Said,
}

/// The last lines of the process's standard error, at most [`LINES_MAX`].
type Said = Arc<Mutex<VecDeque<String>>>;

/// The addresses that the process reports when it is ready.
struct Reached {
    address: SocketAddr,
    admin: String,
}

impl Tidegate {
    /// Writes `configuration` to `file`, runs `program` with this file, and waits until the process
    /// accepts calls. The configuration must name one listener and an admin interface. Their ports
    /// may be 0.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, the program cannot be started, or the
    /// process is not ready in time. In the last case, the error contains the last lines of
    /// standard error.
    pub fn start(program: &Path, file: &Path, configuration: &str) -> io::Result<Self> {
        fs::write(file, configuration)?;
        let mut child = Command::new(program)
            .args(["run".as_ref(), "--config".as_ref(), file.as_os_str()])
            .args(["--end-with", &std::process::id().to_string()])
            // In its own process group, the server does not get the Ctrl-C that is meant for its
            // parent. The parent stops it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let said = Said::default();
        let (ready, reached) = bounded(1);
        let stderr = child.stderr.take().expect("it is piped");
        let listen = {
            let said = Arc::clone(&said);
            move || listen(stderr, &said, &ready)
        };
        thread::Builder::new().name("stderr".to_owned()).spawn(listen)?;
        match reached.recv_timeout(READY_MAX) {
            Ok(Reached { address, admin }) => {
                let agent = ureq::Agent::config_builder()
                    .timeout_global(Some(Duration::from_secs(2)))
                    .build()
                    .into();
                Ok(Self { child, address, admin, agent, said })
            }
            Err(why) => {
                // Killing the process fails if it has ended already, which does not matter.
                let _ = child.kill();
                let _ = child.wait();
                let what = match why {
                    RecvTimeoutError::Timeout => "was not ready in time",
                    RecvTimeoutError::Disconnected => "ended before it was ready",
                };
                Err(io::Error::other(format!("tidegate {what}:\n{}", told(&said))))
            }
        }
    }

    /// Returns the address to which calls are sent.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the content of the process's `/status`.
    ///
    /// # Errors
    /// Returns an error when the process does not answer.
    pub fn status(&self) -> io::Result<Status> {
        let url = format!("{}/status", self.admin);
        let mut response = self.agent.get(&url).call().map_err(io::Error::other)?;
        let text = response.body_mut().with_config().limit(STATUS_MAX).read_to_string();
        let text = text.map_err(io::Error::other)?;
        serde_json::from_str(&text).map_err(io::Error::other)
    }

    /// Returns the CPU time that the existing threads of the process have used. The value is read
    /// from the `schedstat` of each thread in `/proc/PID/task`, in ns. The kernel updates the value
    /// of a running thread only at each tick.
    ///
    /// # Errors
    /// Returns an error when the process has ended.
    pub fn cpu(&self) -> io::Result<Duration> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        threads.map(|thread| cpu::of_thread(&thread?.path())).sum()
    }

    /// Stops the process and waits for its end. If the process has not ended after 5 s, kills it.
    ///
    /// # Errors
    /// Returns an error when the operating system does not report the end of the process.
    pub fn stop(mut self) -> io::Result<ExitStatus> {
        // The second signal ends the wait for open calls, which do not matter here.
        for _ in 0..2 {
            self.signal(Signal::TERM);
            thread::sleep(Duration::from_millis(20));
        }
        let until = Instant::now() + END_MAX;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()
    }

    /// Kills the process at once.
    ///
    /// # Errors
    /// Returns an error when the operating system does not report the end of the process.
    pub fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// Suspends the process if `stalled` is true. Otherwise lets the process continue.
    pub fn stall(&self, stalled: bool) {
        self.signal(if stalled { Signal::STOP } else { Signal::CONT });
    }

    /// Returns the last lines of the process's standard error.
    pub fn said(&self) -> String {
        told(&self.said)
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // The process may have just ended.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        // There is nothing to do if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the standard error of the process and keeps the last lines in `said`. When the process
/// reports that it is ready, sends the addresses that it has printed to `ready`.
fn listen(stderr: ChildStderr, said: &Said, ready: &Sender<Reached>) {
    let (mut address, mut admin) = (None, None);
    let mut waiting = Some(ready);
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if let Some(text) = line.strip_prefix("tidegate: listening on udp ") {
            address = text.parse().ok();
        } else if let Some(text) = line.strip_prefix("tidegate: admin on ") {
            admin = Some(text.to_owned());
        } else if line == "tidegate: ready"
            && let (Some(address), Some(admin)) = (address, admin.take())
            && let Some(ready) = waiting.take()
        {
            // The receiver no longer exists if the start took too long.
            let _ = ready.send(Reached { address, admin });
        }
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() == LINES_MAX {
            said.pop_front();
        }
        said.push_back(line);
    }
}

fn told(said: &Said) -> String {
    let said = said.lock().unwrap_or_else(PoisonError::into_inner);
    said.iter().map(|line| format!("{line}\n")).collect()
}
