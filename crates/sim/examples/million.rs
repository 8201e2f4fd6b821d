//! Measures the cost of many calls in progress: memory for each of them, and time for an in-dialog
//! request.
//!
//! `cargo run -p tidegate-sim --example million -- MODE N` prints one line of JSON. MODE is
//! `transaction` or `stateless`. N calls are set up and acknowledged, and their transactions have
//! ended. Memory is measured in two ways: as the bytes that the allocator has given out since the
//! proxy was empty, including the spare room of tables, and as the growth of the process. Then INFO
//! requests arrive within randomly chosen calls. Each follows the route set of its call, is
//! forwarded to the back end of the call, and is answered.
#![allow(clippy::disallowed_methods)] // It measures how long a request takes.

#[path = "../tests/line/mod.rs"]
mod line;
#[path = "../tests/network/topology/mod.rs"]
mod topology;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use tidegate_proxy::Mode;
use tidegate_sip::{HeaderName, Message};
use tidegate_world::{Purpose, Seed, Stream};

use line::{Line, invites};
use topology::{CALLER, address};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Requests that are timed together, and the number of such batches.
const BATCH: usize = 10_000;
const BATCHES: usize = 5;

/// The time from one call or request to the next. Without it, the proxy would reject calls, because
/// the transactions of all calls would be open at once, and drop requests, because one call may
/// send 60 requests at once and then 10 a second.
const INTERVAL: Duration = Duration::from_millis(1);

/// A time longer than any transaction lasts after its final response (64·T1).
const SETTLES: Duration = Duration::from_secs(40);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((mode, calls)) = read(&arguments) else {
        eprintln!("usage: million transaction|stateless N");
        return ExitCode::from(2);
    };
    let mut report = measure(mode, calls, BATCH);
    report["mode"] = json!(arguments[0]);
    println!("{report}");
    ExitCode::SUCCESS
}

/// Measures this many calls, with batches of `batch` requests.
fn measure(mode: Mode, calls: u32, batch: usize) -> Value {
    let mut draws = Seed(1).stream(Purpose::Arrivals, 0);
    let invites = invites(calls);
    let mut line = Line::new(mode);
    let mut texts = Drawn::new(batch * BATCHES, &mut draws, invites.len());
    let (allocated, resident) = (ALLOCATOR.current_usage(), resident_bytes());
    for (number, invite) in invites.iter().enumerate() {
        set_up(&mut line, invite, &mut texts, number);
        line.pass(INTERVAL);
    }
    line.sent.clear();
    line.pass(SETTLES);
    let held = ALLOCATOR.current_usage() - allocated - texts.bytes();
    let grown = resident_bytes().saturating_sub(resident).saturating_sub(texts.bytes() as u64);
    assert_eq!(line.counters.calls.get(), u64::from(calls), "every call is held");
    assert_eq!(line.counters.server_transactions.get(), 0, "and no transaction");
    let times = texts.times(&mut line, &mut draws, batch);
    json!({
        "calls": calls,
        "bytes_per_call": held as f64 / f64::from(calls),
        "resident_bytes_per_call": grown as f64 / f64::from(calls),
        "request_ns": times,
    })
}

fn read(arguments: &[String]) -> Option<(Mode, u32)> {
    let [mode, calls] = arguments else { return None };
    let mode = match mode.as_str() {
        "transaction" => Mode::Transaction,
        "stateless" => Mode::Stateless,
        _ => return None,
    };
    Some((mode, calls.parse().ok().filter(|&calls| calls > 0)?))
}

/// Sends INVITE, 180, 200 and ACK of a call.
fn set_up(line: &mut Line, invite: &[u8], texts: &mut Drawn, number: usize) {
    line.tell(address(CALLER), invite);
    let forwarded = line.request_sent();
    line.respond(&forwarded, 180);
    line.respond(&forwarded, 200);
    let answer = line.sent.first().expect("the 200 goes up").bytes[..].to_vec();
    line.tell(address(CALLER), within("ACK", 1, invite, &answer).as_bytes());
    texts.note(number, invite, &answer);
}

/// Returns a request within the call that `invite` and its `answer` have set up. RFC 3261
/// §12.2.1.1.
fn within(method: &str, cseq: usize, invite: &[u8], answer: &[u8]) -> String {
    let invite = Message::parse(invite).expect("our own INVITE");
    let answer = Message::parse(answer).expect("the proxy sends SIP");
    let value = |message: &Message<'_>, name| {
        let value = message.field(name).expect("present").value;
        std::str::from_utf8(value).expect("our own texts").to_owned()
    };
    let contact = value(&answer, HeaderName::Contact);
    format!(
        "{method} {} SIP/2.0\r\nVia: SIP/2.0/UDP {CALLER};branch=z9hG4bK-{method}-{cseq}-{}\r\n\
         Route: {}\r\nMax-Forwards: 70\r\nFrom: {}\r\nTo: {}\r\nCall-ID: {}\r\nCSeq: {cseq} \
         {method}\r\nContent-Length: 0\r\n\r\n",
        contact.trim_matches(['<', '>']),
        value(&invite, HeaderName::CallId),
        value(&answer, HeaderName::RecordRoute),
        value(&invite, HeaderName::From),
        value(&answer, HeaderName::To),
        value(&invite, HeaderName::CallId),
    )
}

/// INFO requests within randomly chosen calls.
struct Drawn {
    /// The indices of the chosen calls in increasing order. A call may occur several times.
    calls: Vec<usize>,
    next: usize,
    requests: Vec<String>,
}

impl Drawn {
    fn new(requests: usize, draws: &mut Stream, calls: usize) -> Self {
        let mut drawn: Vec<_> = (0..requests).map(|_| draws.below(calls as u64) as usize).collect();
        drawn.sort_unstable();
        Self { calls: drawn, next: 0, requests: Vec::with_capacity(requests) }
    }

    /// Writes the requests within the call with this number, which has just been set up.
    fn note(&mut self, number: usize, invite: &[u8], answer: &[u8]) {
        while self.calls.get(self.next) == Some(&number) {
            self.next += 1;
            self.requests.push(within("INFO", 1 + self.next, invite, answer));
        }
    }

    /// Returns the size of the requests in bytes.
    fn bytes(&self) -> usize {
        self.requests.iter().map(String::capacity).sum()
    }

    /// Sends the requests in a random order. Returns, for each batch, the mean time in which the
    /// proxy forwards a request, in nanoseconds.
    fn times(mut self, line: &mut Line, draws: &mut Stream, batch: usize) -> Vec<f64> {
        for last in (1..self.requests.len()).rev() {
            self.requests.swap(last, draws.below(last as u64 + 1) as usize);
        }
        self.requests.chunks(batch).map(|batch| time(line, batch)).collect()
    }
}

fn time(line: &mut Line, requests: &[String]) -> f64 {
    let mut spent = Duration::ZERO;
    for request in requests {
        let began = Instant::now();
        line.tell(address(CALLER), request.as_bytes());
        spent += began.elapsed();
        let forwarded = line.sent.last().expect("it is forwarded");
        let forwarded = (forwarded.flow.remote, forwarded.bytes[..].to_vec());
        assert!(forwarded.1.starts_with(b"INFO"), "and not rejected");
        line.respond(&forwarded, 200);
        line.pass(INTERVAL);
    }
    spent.as_nanos() as f64 / requests.len() as f64
}

/// Returns the resident memory of this process (`VmRSS`).
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

#[cfg(test)]
#[test]
fn requests_within_many_calls_are_forwarded() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let report = measure(mode, 200, 2000);
        assert!(report["request_ns"].as_array().is_some_and(|times| times.len() == BATCHES));
        assert!(report["bytes_per_call"].as_f64().is_some_and(|bytes| bytes > 0.0));
    }
}
