//! A running Tidegate.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::Signal;

use super::{Metrics, Process, Stage, eventually};

/// The program under test.
const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// What Tidegate is told; everything in the scratch directory and on the stage's
/// address.
#[derive(Clone)]
pub struct Configuration {
    /// Where it listens. Ports of 0 are free ones.
    pub listen: Vec<SocketAddr>,
    /// The back ends of its pool `app`.
    pub backends: Vec<SocketAddr>,
    /// How the pool divides the calls.
    pub policy: &'static str,
    /// How many shards it has.
    pub shards: u16,
    /// Its directory of what outlives it.
    pub state_dir: PathBuf,
    /// Seconds for which a failed back end gets no new calls.
    pub backend_pause_seconds: u32,
    /// Seconds that it goes on for what is open, once it is asked to stop.
    pub drain_seconds: u32,
    /// Further tables.
    pub more: String,
}

impl Configuration {
    /// One listener on a free port, and one pool in turn.
    pub fn new(stage: &Stage, backends: &[SocketAddr]) -> Self {
        Self {
            listen: vec![SocketAddr::new(stage.ip(), 0)],
            backends: backends.to_vec(),
            policy: "rr",
            shards: 1,
            state_dir: stage.path("state"),
            backend_pause_seconds: 5,
            drain_seconds: 35,
            more: String::new(),
        }
    }

    /// As a file of that name.
    pub fn write(&self, stage: &Stage, name: &str) -> PathBuf {
        let file = stage.path(name);
        let mut text = String::new();
        let Self { shards, state_dir, backend_pause_seconds, drain_seconds, policy, .. } = self;
        let admin = SocketAddr::new(stage.ip(), 0);
        writeln!(
            text,
            "[server]\nshards = {shards}\nstate_dir = {state_dir:?}\n\
             backend_pause_seconds = {backend_pause_seconds}\ndrain_seconds = {drain_seconds}\n\
             [admin]\naddress = \"{admin}\""
        )
        .expect("writing to a String does not fail");
        for address in &self.listen {
            text += &format!("[[listen]]\ntransport = \"udp\"\naddress = \"{address}\"\n");
        }
        text += &format!("[[pool]]\nname = \"app\"\npolicy = \"{policy}\"\n");
        for address in &self.backends {
            text += &format!("[[pool.backend]]\nuri = \"sip:{address}\"\n");
        }
        text += &self.more;
        fs::write(&file, text).expect("a configuration file");
        file
    }
}

/// A running `tidegate run`.
pub struct Tidegate {
    process: Process,
    configuration: Configuration,
    listeners: Vec<SocketAddr>,
    admin: SocketAddr,
}

impl Tidegate {
    /// Starts it, and waits until it says that it is ready.
    pub fn start(stage: &Stage, configuration: &Configuration) -> Self {
        Self::start_with(stage, configuration, &[])
    }

    /// The same, with these arguments in addition.
    pub fn start_with(stage: &Stage, configuration: &Configuration, more: &[&str]) -> Self {
        let file = configuration.write(stage, "tidegate.toml");
        let name = "tidegate";
        let said_before = fs::read_to_string(stage.path("tidegate.log")).unwrap_or_default().len();
        let mut process = stage
            .start(name, Command::new(TIDEGATE).args(["run", "--config"]).arg(file).args(more));
        let log = process.wait_for("Tidegate is ready", |process| {
            let log = process.log().split_off(said_before);
            log.contains("tidegate: ready\n").then_some(log)
        });
        let told = |before: &str| -> Vec<SocketAddr> {
            let addresses = log.lines().filter_map(|line| line.strip_prefix(before));
            addresses.map(|text| text.parse().expect("an address")).collect()
        };
        let listeners = told("tidegate: listening on udp ");
        let admin = told("tidegate: admin on http://");
        let configuration = Configuration { listen: listeners.clone(), ..configuration.clone() };
        Self { process, configuration, listeners, admin: admin[0] }
    }

    /// The address of its first listener.
    pub fn address(&self) -> SocketAddr {
        self.listeners[0]
    }

    /// The addresses of all its listeners.
    pub fn listeners(&self) -> &[SocketAddr] {
        &self.listeners
    }

    /// Where its admin interface is.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its configuration, with the ports that it has taken.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for its end.
    pub fn exit(&mut self) -> ExitStatus {
        self.process.exit()
    }

    /// What it counts now.
    pub fn metrics(&self) -> Metrics {
        let (status, body) = self.get("/metrics").expect("Tidegate shows its metrics");
        assert_eq!(status, 200);
        Metrics(body)
    }

    /// Waits until what it counts is as `condition` wants it.
    pub fn wait_for(&self, what: &str, condition: impl Fn(&Metrics) -> bool) -> Metrics {
        eventually(what, || Some(self.metrics()).filter(&condition))
    }

    /// Status and body of a page of its admin interface; `None` if nobody answers.
    pub fn get(&self, page: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        write!(stream, "GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }
}

/// Runs `tidegate` to its end: status, and what it said.
pub fn run_to_end(stage: &Stage, arguments: &[&str]) -> (Option<i32>, String) {
    let said_before = fs::read_to_string(stage.path("brief.log")).unwrap_or_default().len();
    let mut process = stage.start("brief", Command::new(TIDEGATE).args(arguments));
    let status = process.exit();
    (status.code(), process.log().split_off(said_before))
}
