//! A call through a proxy without sockets: the messages of the peers, and functions to pass them.

#![allow(dead_code, reason = "each program uses a part of it")]

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_balance::{Policy, Pool as Backends};
use tidegate_proxy::{Listener, Mode, PoolSettings, Proxy, Secret, Settings};
use tidegate_world::{Core, Flow, Pool, Received, Timestamp, Transmit};

/// The messages of a call in order.
pub const KINDS: [&str; 6] = ["INVITE", "180", "200 (INVITE)", "ACK", "BYE", "200 (BYE)"];

/// The kind of a 486 to the INVITE, which takes the place of the 200. The ACK is the same.
pub const REJECTION: usize = KINDS.len();

const BODY: &str = "v=0\r\no=user1 53655765 2353687637 IN IP4 127.0.0.1\r\ns=-\r\n\
    c=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";

const fn at(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

const PROXY: SocketAddr = at(5060);
const BACKEND: SocketAddr = at(5070);
const CALLER: SocketAddr = at(5080);

/// A proxy with one back end.
pub struct Bench {
    pub proxy: Proxy,
    pub now: Timestamp,
    pool: Pool,
    calls: u64,
    /// The last message that the proxy forwarded.
    forwarded: Vec<u8>,
    /// The forwarded INVITE.
    invite: Vec<u8>,
}

impl Bench {
    pub fn new(mode: Mode, adjust: impl FnOnce(&mut Settings)) -> Self {
        let mut pool = PoolSettings::new(Backends::new("app", &[("a", BACKEND, 1)]), Policy::Tlwl);
        pool.mode = mode;
        let secret = Secret::of([1; 32]);
        let mut settings = Settings::new(vec![Listener::new(PROXY)], vec![pool], secret);
        adjust(&mut settings);
        let buffers = Pool::new();
        Self {
            proxy: Proxy::new(settings, Arc::default(), buffers.clone()),
            now: Timestamp::ZERO,
            pool: buffers,
            calls: 0,
            forwarded: Vec::new(),
            invite: Vec::new(),
        }
    }

    /// Advances time and fires timers.
    pub fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        while self.proxy.poll_timeout().is_some_and(|at| at <= self.now) {
            self.proxy.handle_timeout(self.now);
        }
    }

    /// Makes a received message of [`KINDS`], or a [`REJECTION`]. An INVITE starts a new call.
    pub fn message(&mut self, kind: usize) -> Received {
        if kind == 0 {
            self.calls += 1;
        }
        let (call, tag) = (self.calls, ";tag=callee");
        let (from, text) = match kind {
            0 => (CALLER, request("INVITE", call, 1, "", BODY)),
            1 => (BACKEND, response(&self.invite, "180 Ringing")),
            2 => (BACKEND, response(&self.invite, "200 OK")),
            3 => (CALLER, request("ACK", call, 1, tag, "")),
            4 => (CALLER, request("BYE", call, 2, tag, "")),
            REJECTION => (BACKEND, response(&self.invite, "486 Busy Here")),
            _ => (BACKEND, response(&self.forwarded, "200 OK")),
        };
        Received::new(self.now, Flow::udp(PROXY, from), self.pool.copy(text.as_bytes()))
    }

    /// Makes an earlier call the current one. The first call has the number 1.
    pub fn revisit(&mut self, call: u64) {
        self.calls = call;
    }

    /// Passes one message to the proxy. Returns the last message that the proxy sends. It is not
    /// inlined, so that a profile shows the work of the proxy under the name of this function.
    #[inline(never)]
    pub fn pass(&mut self, received: Received) -> Option<Transmit> {
        self.proxy.offer(self.now, received);
        self.proxy.serve(self.now);
        let mut sent = black_box(self.proxy.poll_transmit());
        // The INVITE follows the 100.
        while let Some(next) = black_box(self.proxy.poll_transmit()) {
            sent = Some(next);
        }
        sent
    }

    /// Remembers the forwarded message, for later messages that answer it.
    pub fn note(&mut self, kind: usize, sent: Option<Transmit>) {
        self.forwarded = sent.map_or_else(Vec::new, |transmit| transmit.bytes.to_vec());
        if kind == 0 {
            self.invite.clone_from(&self.forwarded);
        }
    }

    /// Passes the messages of a call before the one with index `end`.
    pub fn call_up_to(&mut self, end: usize) {
        for kind in 0..end {
            let received = self.message(kind);
            let sent = self.pass(received);
            self.note(kind, sent);
        }
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

/// Makes a back end's response with the request's lines that RFC 3261 §8.2.6.2 copies.
fn response(request: &[u8], status: &str) -> String {
    let text = String::from_utf8_lossy(request);
    let copied = ["Via", "From", "To", "Call-ID", "CSeq", "Record-Route"];
    let lines = text.split("\r\n").filter(|line| copied.iter().any(|name| line.starts_with(name)));
    // RFC 3261 §8.2.6.2: "If the To header field in the request did not contain a tag [...] the UAS
    // MUST add a tag to the To header field in the response".
    let tag = |line: &str| line.starts_with("To:") && !line.contains(";tag=");
    let head: String = lines
        .map(|line| format!("{line}{}\r\n", if tag(line) { ";tag=callee" } else { "" }))
        .collect();
    format!("SIP/2.0 {status}\r\n{head}Contact: <sip:127.0.0.1:5070>\r\nContent-Length: 0\r\n\r\n")
}
