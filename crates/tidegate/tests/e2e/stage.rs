//! Test fixture: an address, a scratch directory and processes.

mod generator;
mod impair;
mod metrics;
mod name_server;
mod peer;
mod process;
mod retransmission;
mod sipp;
mod text_stream;
mod tidegate;

use std::cell::Cell;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use generator::{Ended, Generator};
pub use impair::Impair;
pub use metrics::Metrics;
pub use name_server::NameServer;
pub use peer::{Message, Peer};
pub use process::Process;
pub use retransmission::repeat_what_is_due;
pub use sipp::{Load, Sipp};
pub use text_stream::TextStream;
pub use tidegate::{Configuration, Tidegate, assert_exact, run_to_end};

/// Maximum time that a test waits for an event. It is far longer than the event takes even on a
/// busy machine, because the tests do not measure time.
const PATIENCE: Duration = Duration::from_secs(40);

/// Polls `condition` until it returns a value.
///
/// # Panics
/// Panics if `condition` returns no value within [`PATIENCE`].
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// An IP address, a scratch directory, and the logs of the programs that run there.
pub struct Stage {
    ip: IpAddr,
    ports: Cell<u16>,
    directory: TempDir,
}

impl Stage {
    /// Creates a stage on an IPv4 address that no other test uses.
    pub fn new() -> Self {
        static STAGES: AtomicU16 = AtomicU16::new(1);
        let [low, high, ..] = (std::process::id() % 62_500).to_le_bytes();
        let run = u16::from_le_bytes([low, high]);
        // The address is 127.x.y.z: x and y identify the run of this program, and z the test within
        // the run.
        let [x, y] = [run / 250 + 1, run % 250 + 1].map(|part| part as u8);
        let z = u8::try_from(STAGES.fetch_add(1, Ordering::Relaxed)).expect("at most 255 stages");
        Self::at(Ipv4Addr::new(127, x, y, z).into())
    }

    /// Creates a stage on `::1`, which all tests share.
    pub fn ipv6() -> Self {
        Self::at(Ipv6Addr::LOCALHOST.into())
    }

    fn at(ip: IpAddr) -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        Self { ip, ports: Cell::new(5070), directory }
    }

    /// Returns the IP address that all programs of this stage have.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Returns an address with an unused port.
    pub fn free_address(&self) -> SocketAddr {
        if self.ip.is_ipv6() {
            let probe = UdpSocket::bind((self.ip, 0)).expect("a free port");
            return probe.local_addr().expect("a bound socket has an address");
        }
        let port = self.ports.get();
        self.ports.set(port + 1);
        SocketAddr::new(self.ip, port)
    }

    /// Returns a path in the scratch directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a program in the scratch directory. Its output goes to `NAME.log`.
    pub fn start(&self, name: &str, command: &mut Command) -> Process {
        Process::start(name, command.current_dir(self.directory.path()), self.path(name))
    }
}

impl Drop for Stage {
    /// Prints the logs of the programs if the test failed.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let Ok(entries) = fs::read_dir(self.directory.path()) else { return };
        let logs = entries.filter_map(|entry| Some(entry.ok()?.path()));
        for log in logs.filter(|path| path.extension().is_some_and(|e| e == "log" || e == "errors"))
        {
            eprintln!("--- {}\n{}", log.display(), end_of(&log));
        }
    }
}

/// Returns the last lines of a file.
fn end_of(file: &Path) -> String {
    const LINES: usize = 30;
    let text = String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
    let skipped = text.lines().count().saturating_sub(LINES);
    text.lines().skip(skipped).collect::<Vec<_>>().join("\n")
}
