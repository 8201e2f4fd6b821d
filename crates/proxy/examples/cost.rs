//! What a call costs in the proxy alone: no sockets, six messages in, six or seven out.
//!
//! `cargo run --release -p tidegate-proxy --example cost -- CALLS [stateless]` prints
//! nanoseconds a message by kind, and what its timers took. Under `valgrind --tool=callgrind` the same program tells where the
//! instructions go.
#![allow(clippy::disallowed_methods)] // It measures time.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_balance::{Policy, Pool as Backends};
use tidegate_proxy::{Listener, PoolSettings, Proxy, Secret, Settings};
use tidegate_world::{Core, Path, Pool, Received, Timestamp};

const KINDS: [&str; 6] = ["INVITE", "180", "200 (INVITE)", "ACK", "BYE", "200 (BYE)"];

struct Bench {
    proxy: Proxy,
    pool: Pool,
    now: Timestamp,
    spent: [Duration; KINDS.len()],
}

impl Bench {
    /// One message in; what the proxy sends.
    fn pass(&mut self, kind: usize, from: SocketAddr, text: &[u8]) -> Vec<u8> {
        let local: SocketAddr = ([127, 0, 0, 1], 5060).into();
        let received = Received::new(self.now, Path::udp(local, from), self.pool.copy(text));
        let began = Instant::now();
        self.proxy.offer(self.now, received);
        self.proxy.serve(self.now);
        let mut sent = black_box(self.proxy.poll_transmit());
        // Behind a 100 there is the INVITE.
        while let Some(next) = black_box(self.proxy.poll_transmit()) {
            sent = Some(next);
        }
        self.spent[kind] += began.elapsed();
        sent.map_or_else(Vec::new, |transmit| transmit.bytes.to_vec())
    }
}

fn request(method: &str, call: u64, cseq: u32, to_tag: &str, body: &str) -> String {
    format!(
        "{method} sip:service@127.0.0.1:5060 SIP/2.0\r\n\
         Via: SIP/2.0/UDP 127.0.0.1:5080;branch=z9hG4bK-{call}-1-{cseq}\r\n\
         From: sipp <sip:sipp@127.0.0.1:5080>;tag={call}SIPpTag001\r\n\
         To: service <sip:service@127.0.0.1:5060>{to_tag}\r\n\
         Call-ID: {call}-17373@127.0.0.1\r\n\
         CSeq: {cseq} {method}\r\n\
         Contact: sip:sipp@127.0.0.1:5080\r\n\
         Max-Forwards: 70\r\n\
         Subject: Performance Test\r\n\
         Content-Type: application/sdp\r\n\
         Content-Length: {:>5}\r\n\r\n{body}",
        body.len()
    )
}

/// A back end's response: the request's lines that RFC 3261 §8.2.6.2 copies.
fn response(request: &[u8], status: &str) -> String {
    let text = String::from_utf8_lossy(request);
    let copied = ["Via", "From", "To", "Call-ID", "CSeq", "Record-Route"];
    let lines = text.split("\r\n").filter(|line| copied.iter().any(|name| line.starts_with(name)));
    let head: String = lines.map(|line| format!("{line}\r\n")).collect();
    format!("SIP/2.0 {status}\r\n{head}Contact: <sip:127.0.0.1:5070>\r\nContent-Length: 0\r\n\r\n")
}

fn main() {
    let calls = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100_000u64);
    let backend: SocketAddr = ([127, 0, 0, 1], 5070).into();
    let caller: SocketAddr = ([127, 0, 0, 1], 5080).into();
    let pool = Backends::new("app", &[("a", backend, 1)]);
    let secret = Secret { current: [1; 32], previous: Vec::new() };
    let listener = Listener::new(([127, 0, 0, 1], 5060).into());
    let mut pool = PoolSettings::new(pool, Policy::Tlwl);
    if std::env::args().any(|argument| argument == "stateless") {
        pool = pool.stateless();
    }
    let settings = Settings::new(vec![listener], vec![pool], secret);
    let buffers = Pool::new();
    let proxy = Proxy::new(settings, Arc::default(), buffers.clone());
    let mut bench = Bench { proxy, pool: buffers, now: Timestamp::ZERO, spent: Default::default() };
    let body = "v=0\r\no=user1 53655765 2353687637 IN IP4 127.0.0.1\r\ns=-\r\n\
                c=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";
    let mut timers = Duration::ZERO;
    for call in 0..calls {
        // 10,000 calls/s, so that the table holds the 32 s of calls that it keeps.
        bench.now = bench.now + Duration::from_micros(100);
        let began = Instant::now();
        while bench.proxy.poll_timeout().is_some_and(|at| at <= bench.now) {
            bench.proxy.handle_timeout(bench.now);
        }
        timers += began.elapsed();
        let invite = bench.pass(0, caller, request("INVITE", call, 1, "", body).as_bytes());
        bench.pass(1, backend, response(&invite, "180 Ringing").as_bytes());
        bench.pass(2, backend, response(&invite, "200 OK").as_bytes());
        let tag = ";tag=callee";
        bench.pass(3, caller, request("ACK", call, 1, tag, "").as_bytes());
        let bye = bench.pass(4, caller, request("BYE", call, 2, tag, "").as_bytes());
        bench.pass(5, backend, response(&bye, "200 OK").as_bytes());
    }
    let of_call = |spent: Duration| spent.as_nanos() as f64 / calls as f64;
    for (kind, spent) in KINDS.iter().zip(bench.spent) {
        println!("{kind:13} {:6.0} ns", of_call(spent));
    }
    println!("{:13} {:6.0} ns", "timers", of_call(timers));
    let total = bench.spent.iter().sum::<Duration>() + timers;
    println!("{:13} {:6.0} ns a call", "all", of_call(total));
}
