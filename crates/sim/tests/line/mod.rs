//! The proxy between a caller and scripted back ends, for the example `million`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_agent::{Caller, CallerConfig, Load, Process};
use tidegate_balance::Policy;
use tidegate_proxy::{Counters, Mode, PoolSettings, Proxy, Settings};
use tidegate_sip::{HeaderName, Message, Reply, reason, write_reply};
use tidegate_world::{Core, Flow, Pool, Received, Seed, Timestamp, Transmit};

use super::topology::{CALLER, PROXY, address, backends, settings};

/// Maximum number of calls of the proxy. It allows a million calls of one caller, who may have five
/// eighths of the calls.
const CALLS_MAX: usize = 2_000_000;

/// Returns the INVITEs of this many calls, as a [`Caller`] writes them.
pub fn invites(calls: u32) -> Vec<Box<[u8]>> {
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

/// A proxy and its peers.
pub struct Line {
    pub proxy: Proxy,
    pub counters: Arc<Counters>,
    pub sent: Vec<Transmit>,
    pool: Pool,
    now: Timestamp,
}

impl Line {
    pub fn new(mode: Mode) -> Self {
        let pool = PoolSettings { mode, ..PoolSettings::new(backends(), Policy::Rr) };
        let counters = Arc::new(Counters::default());
        // One unknown caller may have at most five eighths of `calls_max`.
        let settings = Settings { calls_max: CALLS_MAX, ..settings(pool) };
        Self {
            proxy: Proxy::new(settings, Arc::clone(&counters), Pool::new()),
            counters,
            sent: Vec::new(),
            pool: Pool::new(),
            now: Timestamp::ZERO + Duration::from_secs(2),
        }
    }

    /// Advances the time, and fires timers.
    pub fn pass(&mut self, by: Duration) {
        self.now = self.now + by;
        while self.proxy.poll_timeout().is_some_and(|at| at <= self.now) {
            self.proxy.handle_timeout(self.now);
            while self.proxy.poll_transmit().is_some() {}
        }
    }

    pub fn tell(&mut self, remote: SocketAddr, bytes: &[u8]) {
        let now = self.now;
        let flow = Flow::udp(address(PROXY), remote);
        self.sent.clear();
        self.proxy.offer(now, Received::new(now, flow, self.pool.copy(bytes)));
        while self.proxy.serve(now) {}
        while let Some(transmit) = self.proxy.poll_transmit() {
            self.sent.push(transmit);
        }
    }

    /// Returns the request that the proxy has just sent, and its target.
    pub fn request_sent(&self) -> (SocketAddr, Vec<u8>) {
        let request = self.sent.iter().find(|sent| sent.bytes.starts_with(b"INVITE"));
        let request = request.unwrap_or_else(|| {
            let sent = self.sent.first().map(|sent| String::from_utf8_lossy(&sent.bytes));
            panic!("the INVITE is not forwarded, but {sent:?} is sent")
        });
        (request.flow.remote, request.bytes[..].to_vec())
    }

    pub fn respond(&mut self, (who, request): &(SocketAddr, Vec<u8>), status: u16) {
        let message = Message::parse(request).expect("the proxy sends SIP");
        let contact = format!("<sip:called@{who}>");
        let route = message.field(HeaderName::RecordRoute).map_or(&b""[..], |field| field.value);
        // RFC 3261 §12.1.1: "the UAS MUST copy all Record-Route header field values from the
        // request into the response".
        let headers = [("Contact", contact.as_bytes()), ("Record-Route", route)];
        let reply = Reply {
            status,
            reason: reason(status),
            to_tag: Some(b"called"),
            source: Some(address(PROXY)),
            headers: &headers[..if (200..300).contains(&status) { 2 } else { 1 }],
        };
        let mut bytes = self.pool.take();
        write_reply(&message, &reply, &mut bytes).expect("it fits");
        self.tell(*who, &bytes);
    }
}
