//! Measures the proxy's memory for each of many calls, by mode and by the stage of the calls.
//!
//! `cargo run -p tidegate-sim --example memory -- N` prints one line of JSON: bytes for each of N
//! calls. It counts the bytes that are freed when the proxy is dropped: the tables with their spare
//! room, and everything in them.

#[path = "../tests/line/mod.rs"]
mod line;
#[path = "../tests/network/topology/mod.rs"]
mod topology;

use std::process::ExitCode;

use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use tidegate_proxy::Mode;
use tidegate_sip::{HeaderName, Message};

use line::{Line, invites};
use topology::{CALLER, address};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The stage of the calls when memory is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The INVITE and a 180 were forwarded. The transactions of the call are open.
    Live,
    /// The call was answered with 200 and goes on. Its transactions have a final response.
    Answered,
    /// The call was rejected with 486, and the caller has not acknowledged it. The proxy keeps the
    /// response.
    Rejected,
    /// The call was rejected with 486 and acknowledged. It has ended, and its transactions have a
    /// final response.
    Acknowledged,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let calls = arguments.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
    let (Some(calls), None) = (calls, arguments.next()) else {
        eprintln!("usage: memory N");
        return ExitCode::from(2);
    };
    let invites = invites(calls);
    let measure = |mode| {
        json!({
            "live": held(mode, Stage::Live, &invites),
            "answered": held(mode, Stage::Answered, &invites),
            "rejected": held(mode, Stage::Rejected, &invites),
            "acknowledged": held(mode, Stage::Acknowledged, &invites),
        })
    };
    let bytes: usize = invites.iter().map(|invite| invite.len()).sum();
    let report: Value = json!({
        "calls": calls,
        "invite_bytes": bytes as f64 / f64::from(calls),
        "transaction": measure(Mode::Transaction),
        "stateless": measure(Mode::Stateless),
    });
    println!("{report}");
    ExitCode::SUCCESS
}

/// Returns the memory of the proxy in bytes, divided by the number of calls, when all calls have
/// reached `stage`.
fn held(mode: Mode, stage: Stage, invites: &[Box<[u8]>]) -> f64 {
    let mut line = Line::new(mode);
    for invite in invites {
        bring(&mut line, invite, stage);
    }
    assert_eq!(line.counters.calls.get(), invites.len() as u64, "every call is held");
    let with = ALLOCATOR.current_usage();
    drop(line.proxy);
    (with - ALLOCATOR.current_usage()) as f64 / invites.len() as f64
}

/// Brings one call to `stage`.
fn bring(line: &mut Line, invite: &[u8], stage: Stage) {
    line.tell(address(CALLER), invite);
    let forwarded = line.request_sent();
    line.respond(&forwarded, 180);
    match stage {
        Stage::Live => {}
        Stage::Answered => line.respond(&forwarded, 200),
        Stage::Rejected => line.respond(&forwarded, 486),
        Stage::Acknowledged => {
            line.respond(&forwarded, 486);
            let rejection = line.sent.iter().find(|t| t.flow.remote == address(CALLER));
            let rejection = rejection.expect("the 486 goes up").bytes[..].to_vec();
            line.tell(address(CALLER), &ack(invite, &rejection));
        }
    }
}

// RFC 3261 §17.1.1.3: the ACK has the fields of the INVITE, but the To of the response.
fn ack(invite: &[u8], rejection: &[u8]) -> Vec<u8> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).expect("our own texts").to_owned();
    let invite = Message::parse(invite).expect("our own INVITE");
    let rejection = Message::parse(rejection).expect("the proxy sends SIP");
    let value = |message: &Message<'_>, name| text(message.field(name).expect("present").value);
    format!(
        "ACK {} SIP/2.0\r\nVia: {}\r\nMax-Forwards: 70\r\nFrom: {}\r\nTo: {}\r\nCall-ID: {}\r\n\
         CSeq: 1 ACK\r\nContent-Length: 0\r\n\r\n",
        text(invite.request_uri().expect("a request")),
        value(&invite, HeaderName::Via),
        value(&invite, HeaderName::From),
        value(&rejection, HeaderName::To),
        value(&invite, HeaderName::CallId),
    )
    .into_bytes()
}
