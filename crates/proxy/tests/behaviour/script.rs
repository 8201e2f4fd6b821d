//! Scripts of sent and received packets, for a proxy without sockets. Packets are texts.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_proxy::{Choice, Counters, Listener, Mode, PoolSettings, Proxy, Secret, Settings};
use tidegate_world::{Batching, Cause, Core, Failure, Flow, Pool, Received, Timestamp, Transmit};

pub const PROXY: &str = "192.0.2.1:5060";
pub const CALLER: &str = "198.51.100.7:5060";
pub const BACKEND_A: &str = "10.0.0.1:5070";
pub const BACKEND_B: &str = "10.0.0.2:5070";
pub const BACKEND_C: &str = "10.0.0.3:5070";

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn secret(byte: u8) -> Secret {
    Secret::of([byte; 32])
}

/// Makes a pool whose requests are forwarded without transactions.
pub fn stateless(pool: balance::Pool) -> PoolSettings {
    PoolSettings::new(pool, Policy::Rr).stateless()
}

/// One packet that the proxy sent. Copies are equal even if they were batched differently.
#[derive(Clone, Debug, Eq)]
pub struct Sent {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub text: String,
    pub batching: Batching,
}

impl PartialEq for Sent {
    fn eq(&self, other: &Self) -> bool {
        (self.from, self.to, &self.text) == (other.from, other.to, &other.text)
    }
}

impl Sent {
    pub fn of(transmit: &Transmit) -> Self {
        let Flow { local, remote, .. } = transmit.flow;
        let text = String::from_utf8(transmit.bytes.to_vec()).unwrap();
        Self { from: local, to: remote, text, batching: transmit.batching }
    }

    pub fn start(&self) -> &str {
        self.text.lines().next().unwrap()
    }

    /// Returns the values of all header lines of this name, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let head = self.text.split("\r\n\r\n").next().unwrap();
        let fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
        fields.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    /// Returns the value of the first header line of this name.
    pub fn header(&self, name: &str) -> &str {
        self.all(name).first().copied().unwrap_or_else(|| panic!("no {name} in\n{}", self.text))
    }

    pub fn branch(&self) -> &str {
        let (_, after) = self.header("Via").split_once("branch=").unwrap();
        after.split(';').next().unwrap()
    }

    /// Returns a response to this request as a back end would write it.
    pub fn answer(&self, status: &str) -> String {
        let mut text = format!("SIP/2.0 {status}\r\n");
        for name in ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"] {
            for value in self.all(name) {
                let tag = if name == "To" && !value.contains("tag=") { ";tag=callee" } else { "" };
                text += &format!("{name}: {value}{tag}\r\n");
            }
        }
        text + "Content-Length: 0\r\n\r\n"
    }
}

/// Returns the first packet whose first line begins with `start`, with its flow or connection.
pub fn only<T: Clone + Debug>(sent: Vec<(T, Sent)>, start: &str) -> (T, Sent) {
    let found = sent.iter().find(|(_, sent)| sent.start().starts_with(start)).cloned();
    found.unwrap_or_else(|| panic!("no {start} in {sent:#?}"))
}

/// Returns the destination and the first line of each packet.
pub fn starts(sent: &[Sent]) -> Vec<(&str, &str)> {
    let name = |to: &SocketAddr| {
        let known = [CALLER, BACKEND_A, BACKEND_B, BACKEND_C];
        known.into_iter().find(|&at| address(at) == *to).unwrap_or("elsewhere")
    };
    sent.iter().map(|sent| (name(&sent.to), sent.start())).collect()
}

/// A proxy with two back ends, at a time that only the script advances.
pub struct Script {
    pub proxy: Proxy,
    pub counters: Arc<Counters>,
    /// The back ends of the first pool.
    pub backends: balance::Pool,
    pools: Vec<balance::Pool>,
    pub now: Timestamp,
    pub pool: Pool,
    /// Packets sent while time passed.
    carried: Vec<Sent>,
    /// The last packet sent to each address.
    last: BTreeMap<String, String>,
    /// Probes that were sent ahead of schedule. The sent packets contain them only if the pools are
    /// probed.
    pub questions: Vec<Sent>,
    hides_probes: bool,
}

/// Returns whether a packet is a probe of the proxy.
pub fn is_probe(sent: &Sent) -> bool {
    sent.start().starts_with("OPTIONS ") && sent.text.contains("\r\nUser-Agent: Tidegate")
}

impl Script {
    pub fn new() -> Self {
        Self::with(Policy::Rr, |_| {})
    }

    pub fn with(policy: Policy, adjust: impl FnOnce(&mut Settings)) -> Self {
        let backends = balance::Pool::new(
            "app",
            &[("a", address(BACKEND_A), 1), ("b", address(BACKEND_B), 1)],
        );
        let mut settings = Settings::new(
            vec![Listener::new(address(PROXY))],
            vec![PoolSettings::new(backends.clone(), policy).stateless()],
            secret(1),
        );
        adjust(&mut settings);
        let backends = settings.pools[0].pool.clone();
        let pools = settings.pools.iter().map(|pool| pool.pool.clone()).collect();
        let hides_probes = settings.pools.iter().all(|pool| pool.health.probe.is_none());
        let pool = Pool::new();
        let counters = Arc::<Counters>::default();
        let proxy = Proxy::new(settings, Arc::clone(&counters), pool.clone());
        Self {
            proxy,
            counters,
            backends,
            pools,
            pool,
            now: Timestamp::from_nanos(1_000_000_000),
            carried: Vec::new(),
            last: BTreeMap::new(),
            questions: Vec::new(),
            hides_probes,
        }
    }

    /// Makes a proxy with transactions and two back ends, which get calls in turn.
    pub fn stateful() -> Self {
        Self::with(Policy::Rr, |settings| settings.pools[0].mode = Mode::Transaction)
    }

    /// Makes a proxy with transactions that forks every request to these back ends by their `q`, in
    /// thousandths.
    pub fn forking(backends: &[(&str, u16)]) -> Self {
        Self::with(Policy::Rr, |settings| {
            let named: Vec<_> = backends.iter().map(|&(at, _)| (at, address(at), 1)).collect();
            settings.pools = vec![PoolSettings {
                choice: Choice::All(backends.iter().map(|&(_, q)| q).collect()),
                ..PoolSettings::new(balance::Pool::new("app", &named), Policy::Rr)
            }];
        })
    }

    /// Returns the number of calls of each back end.
    pub fn held(&self) -> Vec<u64> {
        self.backends.backends().iter().map(|backend| backend.calls()).collect()
    }

    /// Returns the numbers of live server and client transactions.
    pub fn live(&self) -> (u64, u64) {
        (self.counters.server_transactions.get(), self.counters.client_transactions.get())
    }

    /// Queues a packet without serving it.
    pub fn offer(&mut self, from: &str, bytes: &[u8]) {
        self.offer_at(PROXY, from, bytes, 0);
    }

    pub fn offer_at(&mut self, local: &str, from: &str, bytes: &[u8], handoffs: u8) {
        let flow = Flow::udp(address(local), address(from));
        let mut received = Received::new(self.now, flow, self.pool.copy(bytes));
        received.handoffs = handoffs;
        self.proxy.offer(self.now, received);
    }

    /// Queues a packet that has waited in the receive buffer, without serving it.
    pub fn offer_after(&mut self, waited: Duration, from: &str, bytes: &[u8]) {
        let flow = Flow::udp(address(PROXY), address(from));
        let bytes = self.pool.copy(bytes);
        let arrived = Timestamp::ZERO + self.now.since(Timestamp::ZERO + waited);
        self.proxy.offer(self.now, Received::new(arrived, flow, bytes));
    }

    /// Serves all queued messages and returns the packets that the proxy sends.
    pub fn serve(&mut self) -> Vec<Sent> {
        while self.proxy.serve(self.now) {}
        self.sent()
    }

    pub fn sent(&mut self) -> Vec<Sent> {
        self.carry();
        std::mem::take(&mut self.carried)
    }

    fn carry(&mut self) {
        let sent = std::iter::from_fn(|| self.proxy.poll_transmit());
        let (carried, last) = (&mut self.carried, &mut self.last);
        let (hides, questions) = (self.hides_probes, &mut self.questions);
        sent.for_each(|t| {
            let sent = Sent::of(&t);
            if hides && is_probe(&sent) {
                questions.push(sent);
            } else {
                last.insert(t.flow.remote.to_string(), sent.text.clone());
                carried.push(sent);
            }
        });
    }

    /// Returns the shard of the next handoff.
    pub fn handoff(&mut self) -> Option<u16> {
        self.proxy.poll_handoff().map(|handoff| handoff.shard)
    }

    /// Delivers a packet and serves it.
    pub fn send(&mut self, from: &str, text: &str) -> Vec<Sent> {
        self.offer(from, text.as_bytes());
        self.serve()
    }

    /// Delivers a packet for which the proxy sends exactly one packet.
    pub fn one(&mut self, from: &str, text: &str) -> Sent {
        let mut sent = self.send(from, text);
        assert_eq!(sent.len(), 1, "one packet for\n{text}\nbut {sent:#?}");
        sent.remove(0)
    }

    /// Returns the status of the reply to a request.
    pub fn status(&mut self, from: &str, text: &str) -> u16 {
        let reply = self.one(from, text);
        assert_eq!(reply.to.ip(), address(from).ip(), "a reply goes to the sender of the request");
        reply.start().split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        let mut fired = 0;
        while let Some(at) = self.proxy.poll_timeout().filter(|&at| at <= end) {
            fired += 1;
            assert!(fired < 100_000, "timers fire without end");
            self.proxy.handle_timeout(at);
            self.carry();
        }
        self.now = end;
    }

    /// Lets time pass, and discards the packets that are sent.
    pub fn rest(&mut self, by: Duration) {
        self.pass(by);
        self.sent();
    }

    /// Advances time by a period in which exactly one packet is sent.
    pub fn pass_and_take(&mut self, by: Duration) -> Sent {
        self.pass(by);
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:#?}");
        sent.remove(0)
    }

    /// Marks the back end at this index as down for five seconds, as after failed probes.
    pub fn gone(&self, backend: usize) {
        let backend = &self.backends.backends()[backend];
        backend.on_question_unanswered(self.now, Duration::from_secs(5), true);
    }

    /// Reports that no socket listens at `backend`, for the last packet to it and for the next
    /// probe. Returns whether the proxy then counts a failure of a back end.
    pub fn rejected(&mut self, backend: &str) -> bool {
        let quote = self.last.get(backend).cloned().unwrap_or_default();
        self.rejected_with_its_probe(backend, &quote)
    }

    /// Does the same as [`rejected`](Self::rejected), but the first report quotes `quote`.
    pub fn rejected_with_its_probe(&mut self, backend: &str, quote: &str) -> bool {
        let all = |s: &Self| s.pools.iter().flat_map(|p| p.backends().to_vec()).collect::<Vec<_>>();
        let failures = |s: &Self| all(s).iter().map(|b| b.failures()).sum::<u64>();
        let before = failures(self);
        self.rejected_quoting(backend, quote.as_bytes());
        self.carry();
        let is_it = |sent: &Sent| sent.to == address(backend) && is_probe(sent);
        let all = self.carried.iter().chain(&self.questions);
        let probes: Vec<Sent> = all.filter(|sent| is_it(sent)).cloned().collect();
        self.carried.retain(|sent| !is_it(sent));
        self.questions.retain(|sent| !is_it(sent));
        for Sent { text, .. } in probes {
            self.rejected_quoting(backend, text.as_bytes());
        }
        failures(self) > before
    }

    /// Reports that no socket listens at `backend`, with a quote of the undelivered packet.
    pub fn rejected_quoting(&mut self, backend: &str, quote: &[u8]) {
        let flow = Flow::udp(address(PROXY), address(backend));
        self.proxy.on_failed(self.now, Failure::new(flow, Cause::Refused, quote));
    }
}

/// Returns a request from the caller. `more` are further header lines, each with its CRLF.
pub fn request(method: &str, uri: &str, call: &str, cseq: u32, more: &str) -> String {
    let tag = if more.contains("Totag") { ";tag=callee" } else { "" };
    let more = more.replace("Totag\r\n", "");
    format!(
        "{method} {uri} SIP/2.0\r\n\
         Via: SIP/2.0/UDP 198.51.100.7:5060;branch=z9hG4bK-{call}-{cseq}-{}\r\n\
         {more}From: <sip:alice@example.com>;tag=caller\r\n\
         To: <sip:bob@example.com>{tag}\r\n\
         Call-ID: {call}\r\n\
         CSeq: {cseq} {method}\r\n\
         Max-Forwards: 70\r\n\
         Content-Length: 0\r\n\r\n",
        // RFC 3261 §9.1, §17.1.1.3: CANCEL and this ACK have the branch of their INVITE.
        if matches!(method, "CANCEL" | "ACK") { "INVITE" } else { method },
    )
}

/// Returns a request from the caller to the proxy's own address.
pub fn own(method: &str, call: &str, cseq: u32, more: &str) -> String {
    request(method, "sip:bob@192.0.2.1", call, cseq, more)
}

pub fn invite(call: &str) -> String {
    own("INVITE", call, 1, "")
}
