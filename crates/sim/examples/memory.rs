//! What the proxy holds in memory for each of many calls, by mode and by how far they have come.
//!
//! `cargo run -p tidegate-sim --example memory -- N` prints one line of JSON: bytes for each of
//! N calls. What is counted are the bytes that dropping the proxy gives back: tables with the
//! room they grew, and everything in them.

#[path = "../tests/topology/mod.rs"]
mod topology;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use tidegate_agent::{Caller, CallerConfig, Load, Process};
use tidegate_balance::Policy;
use tidegate_proxy::{Counters, Mode, PoolSettings, Proxy};
use tidegate_sip::{HeaderName, Message, Reply, reason, write_reply};
use tidegate_world::{Core, Path, Pool, Received, Seed, Timestamp, Transmit};

use topology::{CALLER, PROXY, address, backends, settings};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// How far each call has come when memory is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// INVITE forwarded, 180 forwarded: its transactions are live.
    Live,
    /// Answered with 200: its transactions are final, the call goes on.
    Answered,
    /// Refused with 486, not acknowledged by the caller: the response is kept.
    Refused,
    /// Refused with 486 and acknowledged: its transactions are final, the call is over.
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
            "refused": held(mode, Stage::Refused, &invites),
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

/// The INVITEs of so many calls, as our caller writes them.
fn invites(calls: u32) -> Vec<Box<[u8]>> {
    let load = Load { process: Process::Uniform, rate_cps: 1e6, calls, ..Load::default() };
    let config = CallerConfig {
        load,
        open_max: calls as usize,
        ..CallerConfig::new(address(CALLER), address(PROXY))
    };
    let mut caller = Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new())
        .expect("a possible configuration");
    let mut invites = Vec::new();
    while caller.stats().begun < u64::from(calls) {
        caller.handle_timeout(Timestamp::ZERO + Duration::from_secs(1));
        while let Some(transmit) = caller.poll_transmit() {
            invites.push(transmit.bytes[..].into());
        }
    }
    invites.truncate(calls as usize);
    invites
}

/// Bytes for each call when all have come to `stage`.
fn held(mode: Mode, stage: Stage, invites: &[Box<[u8]>]) -> f64 {
    let pool = PoolSettings { mode, ..PoolSettings::new(backends(), Policy::Rr) };
    let counters = Arc::new(Counters::default());
    let mut line = Line {
        proxy: Proxy::new(settings(pool), Arc::clone(&counters), Pool::new()),
        pool: Pool::new(),
        sent: Vec::new(),
    };
    for invite in invites {
        line.bring(invite, stage);
    }
    assert_eq!(counters.calls.get(), invites.len() as u64, "every call is held");
    let with = ALLOCATOR.current_usage();
    drop(line.proxy);
    (with - ALLOCATOR.current_usage()) as f64 / invites.len() as f64
}

/// A proxy and those it talks with, at one moment: no timer fires.
struct Line {
    proxy: Proxy,
    pool: Pool,
    sent: Vec<Transmit>,
}

impl Line {
    /// Takes one call as far as `stage`.
    fn bring(&mut self, invite: &[u8], stage: Stage) {
        self.tell(address(CALLER), invite);
        let forwarded = self.request_sent();
        self.respond(&forwarded, 180);
        match stage {
            Stage::Live => {}
            Stage::Answered => self.respond(&forwarded, 200),
            Stage::Refused => self.respond(&forwarded, 486),
            Stage::Acknowledged => {
                self.respond(&forwarded, 486);
                let refusal = self.sent.iter().find(|t| t.path.remote == address(CALLER));
                let refusal = refusal.expect("the 486 goes up").bytes[..].to_vec();
                self.tell(address(CALLER), &ack(invite, &refusal));
            }
        }
    }

    fn tell(&mut self, remote: SocketAddr, bytes: &[u8]) {
        let now = Timestamp::ZERO + Duration::from_secs(2);
        let path = Path::udp(address(PROXY), remote);
        self.sent.clear();
        self.proxy.offer(now, Received::new(now, path, self.pool.copy(bytes)));
        while self.proxy.serve(now) {}
        while let Some(transmit) = self.proxy.poll_transmit() {
            self.sent.push(transmit);
        }
    }

    /// The request the proxy has just sent, and to whom.
    fn request_sent(&self) -> (SocketAddr, Vec<u8>) {
        let request = self.sent.iter().find(|sent| sent.bytes.starts_with(b"INVITE"));
        let request = request.expect("the INVITE is forwarded");
        (request.path.remote, request.bytes[..].to_vec())
    }

    fn respond(&mut self, (who, request): &(SocketAddr, Vec<u8>), status: u16) {
        let message = Message::parse(request).expect("the proxy sends SIP");
        let contact = format!("<sip:called@{who}>");
        let reply = Reply {
            status,
            reason: reason(status),
            to_tag: Some(b"called"),
            source: Some(address(PROXY)),
            headers: &[("Contact", contact.as_bytes())],
        };
        let mut bytes = self.pool.take();
        write_reply(&message, &reply, &mut bytes).expect("it fits");
        self.tell(*who, &bytes);
    }
}

// RFC 3261 §17.1.1.3: all as in the INVITE, but for the To, which is that of the response.
fn ack(invite: &[u8], refusal: &[u8]) -> Vec<u8> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).expect("our own texts").to_owned();
    let invite = Message::parse(invite).expect("our own INVITE");
    let refusal = Message::parse(refusal).expect("the proxy sends SIP");
    let value = |message: &Message<'_>, name| text(message.field(name).expect("present").value);
    format!(
        "ACK {} SIP/2.0\r\nVia: {}\r\nMax-Forwards: 70\r\nFrom: {}\r\nTo: {}\r\nCall-ID: {}\r\n\
         CSeq: 1 ACK\r\nContent-Length: 0\r\n\r\n",
        text(invite.request_uri().expect("a request")),
        value(&invite, HeaderName::Via),
        value(&invite, HeaderName::From),
        value(&refusal, HeaderName::To),
        value(&invite, HeaderName::CallId),
    )
    .into_bytes()
}
