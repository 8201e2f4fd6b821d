//! Callers and callees, ours and SIPp. Each process ends with its test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Path of the program.
pub const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// Maximum duration of a run of 1,000 calls at 500 calls/s, with SIPp's 4 s of linger.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Process that ends with its test.
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(child.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Sends SIGTERM to the process.
    pub fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits for a line of `--progress` for which `is_it` is true. [`end`](Self::end) does not
    /// return this line and those before it.
    #[track_caller]
    pub fn wait_for_progress(&mut self, is_it: impl Fn(&str) -> bool) {
        // There is a line a second.
        let lines_max = PATIENCE.as_secs() as usize;
        let mut errors = BufReader::new(self.0.stderr.take().unwrap());
        let is_found = errors.by_ref().lines().take(lines_max).any(|line| is_it(&line.unwrap()));
        self.0.stderr = Some(errors.into_inner());
        assert!(is_found, "no such line of progress");
    }

    /// Waits until the process ends. Returns its exit status and its output.
    pub fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status.code(), text)
    }

    /// Ends the process with SIGTERM. Returns its output.
    #[track_caller]
    pub fn stop(self) -> String {
        self.terminate();
        let (status, text) = self.end();
        assert_eq!(status, Some(0), "{text}");
        text
    }

    /// Waits until SIPp ends. No call may have failed.
    #[track_caller]
    pub fn assert_all_well(self) {
        let (status, text) = self.end();
        assert_eq!(status, Some(0), "SIPp counts a failed call:\n{text}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts our answerer. Returns the process and the address at which it answers.
pub fn answerer(args: &[&str]) -> (Running, String) {
    let mut command = Command::new(TIDEGATE);
    command.args(["load", "uas", "--bind", "127.0.0.1"]).args(args);
    let mut running = Running::start(&mut command);
    let mut line = String::new();
    let mut out = BufReader::new(running.0.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    running.0.stdout = Some(out.into_inner());
    let address = line.trim().strip_prefix("answering at ").unwrap_or_else(|| panic!("{line}"));
    (running, address.to_owned())
}

/// Runs our caller to its end.
pub fn caller(target: &str, args: &[&str]) -> Output {
    Command::new(TIDEGATE).args(["load", "uac", target]).args(args).output().unwrap()
}

/// Runs our caller to its end. All its calls must complete. Returns the table that it prints.
#[track_caller]
pub fn complete(target: &str, args: &[&str]) -> String {
    let done = caller(target, args);
    let table = String::from_utf8(done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(0), "{table}");
    table
}

/// Reads a JSON file that a program wrote.
pub fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// Starts SIPp on a free port.
pub fn sipp(args: &[&str]) -> (Running, String) {
    let (running, port) = sipp_start(args);
    let bound = format!(":{port:04X} ");
    wait_for("/proc/net/udp", |line| line.contains(&bound));
    (running, format!("127.0.0.1:{port}"))
}

/// Starts SIPp as a callee over TCP, on a free port.
pub fn sipp_over_tcp(args: &[&str]) -> (Running, String) {
    let (running, port) = sipp_start(&[&["-t", "t1"], args].concat());
    // The state 0A means that the socket listens.
    let listens = format!(":{port:04X} 00000000:0000 0A");
    wait_for("/proc/net/tcp", |line| line.contains(&listens));
    (running, format!("127.0.0.1:{port}"))
}

/// Starts SIPp, and does not wait until it listens.
pub fn sipp_start(args: &[&str]) -> (Running, u16) {
    // The port may be taken before SIPp binds it. This is unlikely, and SIPp cannot report a port
    // that it has chosen itself.
    let port = loop {
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        if TcpListener::bind(address).is_ok() {
            break address.port();
        }
    };
    let mut command = Command::new("sipp");
    command.args(args).args(["-i", "127.0.0.1", "-p", &port.to_string()]);
    command.args(["-nostdin", "-buff_size", "4000000", "-max_socket", "2000"]);
    (Running::start(&mut command), port)
}

/// Waits until a file of the kernel has a line for which `is_it` is true.
fn wait_for(file: &str, is_it: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(file).unwrap().lines().any(&is_it) {
        assert!(Instant::now() < deadline, "SIPp does not open its port");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the path of one of our SIPp scenarios.
pub fn scenario(name: &str) -> String {
    format!("{}/../../tests/sipp/{name}.xml", env!("CARGO_MANIFEST_DIR"))
}
