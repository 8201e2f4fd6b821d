//! SIPp as caller and callee, and its counts.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use super::{Process, Stage};

/// Folder of the scenarios that are not built into SIPp.
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/sipp");

/// Load of a caller.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    /// Scenario: `uac`, which is built in, or a file of `tests/sipp`.
    pub scenario: &'a str,
    /// Number of calls.
    pub calls: u32,
    /// Rate of new calls per second.
    pub rate_cps: u32,
    /// Duration of each call.
    pub hold_ms: u32,
    /// True if each call has a socket, and therefore a port, of its own.
    pub socket_each: bool,
    /// True if the calls travel over TCP.
    pub is_tcp: bool,
}

impl Default for Load<'_> {
    fn default() -> Self {
        Self {
            scenario: "uac",
            calls: 100,
            rate_cps: 100,
            hold_ms: 0,
            socket_each: false,
            is_tcp: false,
        }
    }
}

/// A running SIPp.
pub struct Sipp {
    process: Process,
    address: SocketAddr,
    statistics: PathBuf,
    errors: PathBuf,
}

impl Sipp {
    /// Starts a callee that follows `scenario`.
    pub fn callee(stage: &Stage, scenario: &str) -> Self {
        Self::callee_at(stage, scenario, stage.free_address())
    }

    /// Starts a callee over TCP.
    pub fn tcp_callee(stage: &Stage, scenario: &str) -> Self {
        Self::start(stage, scenario, stage.free_address(), &["-t".to_owned(), "t1".to_owned()])
    }

    /// Starts a callee at a given address.
    pub fn callee_at(stage: &Stage, scenario: &str, address: SocketAddr) -> Self {
        Self::start(stage, scenario, address, &[])
    }

    /// Starts a caller that makes its calls through `target`.
    pub fn caller(stage: &Stage, target: SocketAddr, load: &Load) -> Self {
        Self::caller_at(stage, stage.free_address(), target, load, &[])
    }

    /// Starts a caller at a given address, with further options of SIPp.
    pub fn caller_at(
        stage: &Stage,
        address: SocketAddr,
        target: SocketAddr,
        load: &Load,
        more: &[&str],
    ) -> Self {
        let Load { scenario, calls, rate_cps, hold_ms, socket_each, is_tcp } = *load;
        let transport = match (is_tcp, socket_each) {
            (false, false) => "u1",
            (false, true) => "un",
            (true, false) => "t1",
            (true, true) => "tn",
        };
        let mut options = vec![target.to_string(), "-t".to_owned(), transport.to_owned()];
        // Without `-l`, SIPp holds back new calls when earlier ones are slow.
        for (option, value) in [("-m", calls), ("-l", calls), ("-r", rate_cps), ("-d", hold_ms)] {
            options.extend([option.to_owned(), value.to_string()]);
        }
        options.extend(more.iter().map(|&option| option.to_owned()));
        Self::start(stage, scenario, address, &options)
    }

    fn start(stage: &Stage, scenario: &str, address: SocketAddr, options: &[String]) -> Self {
        let name = format!("{scenario}-{}", address.port());
        let statistics = stage.path(&format!("{name}.csv"));
        let mut command = Command::new("sipp");
        match scenario {
            "uac" | "uas" => command.args(["-sn", scenario]),
            file => command.arg("-sf").arg(format!("{SCENARIOS}/{file}.xml")),
        };
        command
            .args(["-i", &address.ip().to_string(), "-p", &address.port().to_string()])
            // With its default buffers, SIPp loses datagrams in a burst of a few hundred.
            .args(["-nostdin", "-buff_size", "4194304", "-max_socket", "2000"])
            .args(["-trace_stat", "-fd", "1", "-stf"])
            .arg(&statistics)
            .args(["-trace_err", "-error_file"])
            .arg(stage.path(&format!("{name}.errors")))
            .args(options);
        let mut process = stage.start(&name, &mut command);
        // A caller over TCP does not listen, so there is nothing to wait for.
        let is_tcp = |option: &String| matches!(option.as_str(), "t1" | "tn");
        let listens = if options.iter().any(is_tcp) { "tcp" } else { "udp" };
        if listens == "udp" || options.len() == 2 {
            let what = format!("SIPp listens on {address}");
            process.wait_for(&what, |_| is_bound(listens, address).then_some(()));
        }
        let errors = statistics.with_extension("errors");
        Self { process, address, statistics, errors }
    }

    /// Returns the address at which SIPp sends and receives.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until all calls of a caller have ended.
    pub fn wait(mut self) -> Calls {
        self.process.exit();
        self.calls()
    }

    /// Ends a callee once its open calls have ended.
    pub fn finish(self) -> Calls {
        self.process.signal(Signal::USR1);
        self.wait()
    }

    /// Kills the process.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Returns the counts. They are complete once SIPp has ended.
    fn calls(&self) -> Calls {
        let text = fs::read_to_string(&self.statistics).unwrap_or_default();
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split(';').collect();
        let values: Vec<&str> = lines.last().unwrap_or_default().split(';').collect();
        let column = |name: &str| -> u32 {
            let at = names.iter().position(|&n| n == name);
            let value = at.and_then(|at| values.get(at)?.parse().ok());
            value.unwrap_or_else(|| panic!("{name} in {}:\n{text}", self.statistics.display()))
        };
        Calls {
            created: column("TotalCallCreated"),
            successful: column("SuccessfulCall(C)"),
            failed: column("FailedCall(C)"),
            unexpected: column("FailedUnexpectedMessage(C)"),
            repeated: column("Retransmissions(C)"),
            first_unexpected: self.first_unexpected(),
        }
    }

    /// Returns what SIPp logged about the first message that its scenario does not expect, up to
    /// the start line of the message.
    fn first_unexpected(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&fs::read(&self.errors).ok()?).into_owned();
        text.lines().find(|line| line.contains("unexpected")).map(str::to_owned)
    }
}

/// The counts of a run of SIPp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calls {
    pub created: u32,
    pub successful: u32,
    pub failed: u32,
    /// Calls that failed because of a message that the scenario does not expect at that point.
    pub unexpected: u32,
    /// Retransmitted messages.
    pub repeated: u32,
    /// The log entry of the first unexpected message.
    pub first_unexpected: Option<String>,
}

impl Calls {
    /// Checks that all calls succeeded.
    ///
    /// # Panics
    /// Panics unless there were `expected` calls and all of them succeeded.
    #[track_caller]
    pub fn assert_all_well(&self, expected: u32) {
        assert_eq!((self.created, self.successful), (expected, expected), "{self}");
        assert_eq!((self.failed, self.unexpected), (0, 0), "{self}");
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { created, successful, failed, unexpected, repeated, .. } = self;
        write!(
            f,
            "{created} calls, {successful} successful, {failed} failed, {unexpected} of them by \
             an unexpected message; {repeated} retransmissions"
        )?;
        self.first_unexpected.iter().try_for_each(|entry| write!(f, "; {entry}"))
    }
}

/// Returns whether any UDP socket of this machine is bound to `address`, or any TCP socket listens
/// there.
fn is_bound(transport: &str, address: SocketAddr) -> bool {
    // The kernel prints each word of an address as a number in the byte order of this machine.
    let words = |octets: &[u8]| -> String {
        let word = |w: &[u8]| format!("{:08X}", u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
        octets.chunks(4).map(word).collect()
    };
    let (table, ip) = match address {
        SocketAddr::V4(v4) => (format!("/proc/net/{transport}"), words(&v4.ip().octets())),
        SocketAddr::V6(v6) => (format!("/proc/net/{transport}6"), words(&v6.ip().octets())),
    };
    let wanted = format!("{ip}:{:04X}", address.port());
    let sockets = fs::read_to_string(table).unwrap_or_default();
    sockets.lines().any(|line| line.split_whitespace().nth(1) == Some(&wanted))
}
