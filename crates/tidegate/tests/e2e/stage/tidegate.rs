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

/// Configuration of Tidegate. Everything is in the scratch directory and on the stage's address.
#[derive(Clone)]
pub struct Configuration {
    /// Listening addresses for UDP. Port 0 means a free port.
    pub listen: Vec<SocketAddr>,
    /// Addresses at which TCP connections are accepted.
    pub listen_tcp: Vec<SocketAddr>,
    /// True if the back ends are reached over TCP.
    pub is_tcp_inside: bool,
    /// True if the back ends are reached over TLS.
    pub is_tls_inside: bool,
    /// True if large requests to back ends over UDP leave over TCP.
    pub has_large_over_tcp: bool,
    /// Back ends of the pool `app`.
    pub backends: Vec<SocketAddr>,
    /// Balancing policy of the pool.
    pub policy: &'static str,
    /// True if Tidegate forwards requests without transactions.
    pub is_stateless: bool,
    /// Number of shards.
    pub shards: u16,
    /// Directory of the persistent state.
    pub state_dir: PathBuf,
    /// Seconds for which a failed back end gets no new calls.
    pub backend_pause_seconds: u32,
    /// Seconds for which Tidegate continues to serve open calls after it is asked to stop.
    pub drain_seconds: u32,
    /// Further TOML tables.
    pub more: String,
}

impl Configuration {
    /// Creates a configuration that also has a listener for TCP, on a free port.
    pub fn with_tcp(stage: &Stage, backends: &[SocketAddr]) -> Self {
        let listen_tcp = vec![SocketAddr::new(stage.ip(), 0)];
        Self { listen_tcp, ..Self::new(stage, backends) }
    }

    /// Creates a configuration with one listener on a free port, and one pool with round robin.
    pub fn new(stage: &Stage, backends: &[SocketAddr]) -> Self {
        Self {
            listen: vec![SocketAddr::new(stage.ip(), 0)],
            listen_tcp: Vec::new(),
            is_tcp_inside: false,
            is_tls_inside: false,
            has_large_over_tcp: false,
            backends: backends.to_vec(),
            policy: "rr",
            is_stateless: false,
            shards: 1,
            state_dir: stage.path("state"),
            backend_pause_seconds: 5,
            drain_seconds: 35,
            more: String::new(),
        }
    }

    /// Writes the configuration to a file of that name in the scratch directory.
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
        for address in &self.listen_tcp {
            text += &format!("[[listen]]\ntransport = \"tcp\"\naddress = \"{address}\"\n");
        }
        text += &format!("[[pool]]\nname = \"app\"\npolicy = \"{policy}\"\n");
        if self.is_stateless {
            text += "mode = \"stateless\"\n";
        }
        if self.is_tcp_inside {
            text += "transport = \"tcp\"\n";
        }
        if self.is_tls_inside {
            text += "transport = \"tls\"\n";
        }
        if self.has_large_over_tcp {
            text += "large_requests = \"tcp\"\n";
        }
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
    /// The addresses of all listeners, with their transports.
    listen_all: Vec<(String, SocketAddr)>,
    admin: SocketAddr,
}

impl Tidegate {
    /// Starts Tidegate, and waits until it reports that it is ready.
    pub fn start(stage: &Stage, configuration: &Configuration) -> Self {
        Self::start_with(stage, configuration, &[])
    }

    /// Starts Tidegate with additional arguments.
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
        let listen_tcp = told("tidegate: listening on tcp ");
        let listen_all = log.lines().filter_map(|line| {
            let (transport, address) =
                line.strip_prefix("tidegate: listening on ")?.split_once(' ')?;
            Some((transport.to_owned(), address.parse().expect("an address")))
        });
        let listen_all = listen_all.collect();
        let admin = told("tidegate: admin on http://");
        let configuration =
            Configuration { listen: listeners.clone(), listen_tcp, ..configuration.clone() };
        Self { process, configuration, listeners, listen_all, admin: admin[0] }
    }

    /// Returns the address of the first listener for UDP.
    pub fn address(&self) -> SocketAddr {
        self.listeners[0]
    }

    /// Returns the address of the first listener for TCP.
    pub fn tcp_address(&self) -> SocketAddr {
        self.configuration.listen_tcp[0]
    }

    /// Returns the address of the first listener for TLS.
    pub fn tls_address(&self) -> SocketAddr {
        self.address_of("tls")
    }

    /// Returns the address of the first listener for a transport.
    pub fn address_of(&self, transport: &str) -> SocketAddr {
        let found = self.listen_all.iter().find(|(by, _)| by == transport);
        found.expect("it has such a listener").1
    }

    /// Returns the addresses of all listeners for UDP.
    pub fn listeners(&self) -> &[SocketAddr] {
        &self.listeners
    }

    /// Returns the address of the admin interface.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns the configuration, with the actual ports.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Stops the process with SIGTERM, and waits until it ends with status 0.
    #[track_caller]
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.exit().code(), Some(0));
    }

    /// Waits until the process ends.
    pub fn exit(&mut self) -> ExitStatus {
        self.process.exit()
    }

    /// Kills the process, and starts another one with the same configuration and the same ports.
    pub fn killed_and_restarted(mut self, stage: &Stage) -> Self {
        self.signal(Signal::KILL);
        self.exit();
        Self::start(stage, &self.configuration)
    }

    /// Runs `tidegate ctl` for this process. Returns the exit status and the output.
    pub fn ctl(&self, stage: &Stage, arguments: &[&str]) -> (Option<i32>, String) {
        let admin = self.admin.to_string();
        run_to_end(stage, &[&["ctl", "--admin", &admin], arguments].concat())
    }

    /// Returns the current metrics.
    pub fn metrics(&self) -> Metrics {
        let (status, body) = self.get("/metrics").expect("Tidegate shows its metrics");
        assert_eq!(status, 200);
        Metrics(body)
    }

    /// Checks that all calls have ended and none was lost. Returns the metrics.
    ///
    /// # Panics
    /// Panics if anything was lost or is still held.
    #[track_caller]
    pub fn assert_all_done(&self) -> Metrics {
        let metrics = self.metrics();
        metrics.assert_nothing_lost();
        metrics.assert_nothing_held();
        metrics
    }

    /// Waits until the metrics satisfy `condition`.
    pub fn wait_for(&self, what: &str, condition: impl Fn(&Metrics) -> bool) -> Metrics {
        eventually(what, || Some(self.metrics()).filter(&condition))
    }

    /// Returns status and body of a page of the admin interface, or `None` if nothing answers.
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

/// Runs `tidegate` to its end and returns the exit status and the output.
pub fn run_to_end(stage: &Stage, arguments: &[&str]) -> (Option<i32>, String) {
    let said_before = fs::read_to_string(stage.path("brief.log")).unwrap_or_default().len();
    let mut process = stage.start("brief", Command::new(TIDEGATE).args(arguments));
    let status = process.exit();
    (status.code(), process.log().split_off(said_before))
}

/// Checks the exit status and the output of `tidegate replay`.
///
/// # Panics
/// Panics if the replay did not send the recorded packets.
#[track_caller]
pub fn assert_exact((status, said): (Option<i32>, String)) {
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("\nexact: all "), "{said}");
}
