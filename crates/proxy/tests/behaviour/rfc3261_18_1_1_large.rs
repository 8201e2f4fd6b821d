//! RFC 3261 §18.1.1: requests that are too long for a datagram.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::script::{BACKEND_A, BACKEND_B, CALLER, PROXY, Sent, address, request, secret};
use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_proxy::{Counters, Listener, Mode, PoolSettings, Proxy, Settings};
use tidegate_transport::{ConnectionLimits, Streams};
use tidegate_world::{
    CloseCause, Connect, ConnectionId, Core, Flow, Pool, Received, Timestamp, Transport,
};

/// A proxy with listeners for UDP and TCP before a back end over UDP.
struct Scene {
    streams: Streams<Proxy>,
    counters: Arc<Counters>,
    now: Timestamp,
    pool: Pool,
}

impl Scene {
    fn new(mode: Mode, large_over_tcp: bool) -> Self {
        let backends = balance::Pool::new("app", &[("a", address(BACKEND_A), 1)]);
        Self::with(backends, mode, large_over_tcp)
    }

    fn with(backends: balance::Pool, mode: Mode, large_over_tcp: bool) -> Self {
        let udp = Listener::new(address(PROXY));
        let tcp = Listener { transport: Transport::Tcp, ..udp.clone() };
        let pool = PoolSettings {
            mode,
            large_over_tcp,
            tries_max: 2,
            transport: Some(Transport::Udp),
            ..PoolSettings::new(backends, Policy::Rr)
        };
        let settings = Settings::new(vec![udp, tcp], vec![pool], secret(1));
        let (pool, counters) = (Pool::new(), Arc::<Counters>::default());
        let proxy = Proxy::new(settings, Arc::clone(&counters), pool.clone());
        let streams = Streams::new(proxy, ConnectionLimits::default(), pool.clone());
        Self { streams, counters, now: Timestamp::from_nanos(100_000_000_000), pool }
    }

    fn sent(&mut self) -> Vec<(Flow, Sent)> {
        let sent = std::iter::from_fn(|| self.streams.poll_transmit());
        let sent = sent.map(|t| {
            let text = String::from_utf8(t.bytes.to_vec()).unwrap();
            let (from, to) = (t.flow.local, t.flow.remote);
            (t.flow, Sent { from, to, text, batching: t.batching })
        });
        sent.collect()
    }

    fn offer(&mut self, flow: Flow, text: &str) -> Vec<(Flow, Sent)> {
        let received = Received::new(self.now, flow, self.pool.copy(text.as_bytes()));
        self.streams.offer(self.now, received);
        while self.streams.serve(self.now) {}
        self.sent()
    }

    fn call(&mut self, call: &str, length: usize) -> Vec<(Flow, Sent)> {
        self.offer(Flow::udp(address(PROXY), address(CALLER)), &invite(call, length))
    }

    /// Opens the connection that the proxy wants; returns the messages that waited for it.
    fn open(&mut self) -> (Flow, Vec<(Flow, Sent)>) {
        let Connect { id, transport, local, remote } = self.streams.poll_connect().expect("one");
        let local = SocketAddr::new(local.ip(), 50_000);
        let flow = Flow::connected(transport, local, remote, id);
        self.streams.on_connected(self.now, flow);
        (flow, self.sent())
    }

    fn pass(&mut self, by: Duration) -> Vec<(Flow, Sent)> {
        let (end, mut sent) = (self.now + by, Vec::new());
        while let Some(at) = self.streams.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.streams.handle_timeout(self.now);
            sent.extend(self.sent());
        }
        self.now = end;
        sent
    }
}

/// Returns an INVITE of so many bytes.
fn invite(call: &str, length: usize) -> String {
    let text = request("INVITE", "sip:bob@192.0.2.1", call, 1, "Subject: \r\n");
    let missing = length - text.len();
    text.replace("Subject: ", &format!("Subject: {}", "x".repeat(missing)))
}

fn only(sent: Vec<(Flow, Sent)>, start: &str) -> (Flow, Sent) {
    let found = sent.iter().find(|(_, sent)| sent.start().starts_with(start)).cloned();
    found.unwrap_or_else(|| panic!("no {start} in {sent:#?}"))
}

/// RFC 3261 §18.1.1: "If a request is within 200 bytes of the path MTU, or if it is larger than
/// 1300 bytes and the path MTU is unknown, the request MUST be sent using an RFC 2914 [43]
/// congestion controlled transport protocol, such as TCP." "If this causes a change in the
/// transport protocol from the one indicated in the top Via, the value in the top Via MUST be
/// changed."
///
/// RFC 3261 §18: "It has arisen out of the need to handle larger messages, which MUST use TCP, as
/// discussed below."
#[test]
fn a_large_request_leaves_over_tcp_and_its_dialog_stays_on_udp() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = Scene::new(mode, true);
        scene.call("c", 2000);
        let (backend, sent) = scene.open();
        let (to, sent) = only(sent, "INVITE");
        assert_eq!((to.transport, to.remote), (Transport::Tcp, address(BACKEND_A)));
        assert!(sent.header("Via").starts_with("SIP/2.0/TCP 192.0.2.1:5060;"), "{}", sent.text);
        // The back end sends its own requests by UDP, as before.
        assert_eq!(sent.all("Record-Route").len(), 1);
        assert!(sent.header("Record-Route").ends_with("@192.0.2.1:5060;lr>"), "{}", sent.text);
        assert!(scene.pass(Duration::from_secs(3)).is_empty(), "it is not repeated on a stream");
        let (to, ok) = only(scene.offer(backend, &sent.answer("200 OK")), "SIP/2.0 200");
        assert_eq!((to.transport, to.remote), (Transport::Udp, address(CALLER)));
        let ack = request("ACK", "sip:bob@10.0.0.1:5070", "c", 1, "Totag\r\n");
        let route = format!("Route: {}\r\nMax-Forwards:", ok.header("Record-Route"));
        let caller = Flow::udp(address(PROXY), address(CALLER));
        let (to, _) = only(scene.offer(caller, &ack.replace("Max-Forwards:", &route)), "ACK");
        assert_eq!((to.transport, to.remote), (Transport::Udp, address(BACKEND_A)));
        assert_eq!(scene.counters.large_over_tcp.get(), 1);
        assert_eq!(scene.counters.large_by_udp.get(), 0);
    }
}

/// RFC 3261 §18.1.1: "To handle this case, the transport layer MUST also be prepared to receive an
/// incoming connection on the source IP address from which the request was sent and port number in
/// the "sent-by" field."
#[test]
fn a_response_may_come_on_a_connection_of_the_back_end() {
    let mut scene = Scene::new(Mode::Transaction, true);
    scene.call("c", 2000);
    let (_, sent) = scene.open();
    let (_, sent) = only(sent, "INVITE");
    let id = ConnectionId::FIRST_ACCEPTED;
    let flow = Flow::connected(Transport::Tcp, address(PROXY), address("10.0.0.1:40000"), id);
    scene.streams.on_connected(scene.now, flow);
    let (to, _) = only(scene.offer(flow, &sent.answer("200 OK")), "SIP/2.0 200");
    assert_eq!(to.remote, address(CALLER));
}

/// The request that leaves counts, with our Via and Record-Route.
#[test]
fn the_length_as_sent_decides() {
    for (large_over_tcp, length) in [(true, 700), (false, 2000)] {
        let mut scene = Scene::new(Mode::Transaction, large_over_tcp);
        let (to, _) = only(scene.call("c", length), "INVITE");
        assert_eq!(to.transport, Transport::Udp);
        assert!(scene.streams.poll_connect().is_none());
    }
    let mut scene = Scene::new(Mode::Transaction, true);
    let (mut longest, mut shortest) = (0, usize::MAX);
    for (length, call) in (1000..1300).zip(100..) {
        let sent = scene.call(&call.to_string(), length);
        let by_udp = sent.iter().find(|(_, sent)| sent.start().starts_with("INVITE"));
        match by_udp {
            Some((_, sent)) => longest = longest.max(sent.text.len()),
            None => shortest = shortest.min(length),
        }
    }
    assert_eq!(longest, 1300);
    assert!(shortest < 1300);
}

/// RFC 3261 §18.1.1: "If an element sends a request over TCP because of these message size
/// constraints, and that request would have otherwise been sent over UDP, if the attempt to
/// establish the connection generates either an ICMP Protocol Not Supported, or results in a TCP
/// reset, the element SHOULD retry the request, using UDP."
#[test]
fn a_back_end_without_tcp_gets_the_request_by_udp() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = Scene::new(mode, true);
        scene.call("c", 2000);
        let refused = scene.streams.poll_connect().expect("one");
        scene.streams.on_closed(scene.now, refused.id, CloseCause::Refused);
        let (to, sent) = only(scene.pass(Duration::ZERO), "INVITE");
        assert_eq!((to.transport, to.remote), (Transport::Udp, address(BACKEND_A)));
        assert!(sent.header("Via").starts_with("SIP/2.0/UDP 192.0.2.1:5060;"), "{}", sent.text);
        let backend = Flow::udp(address(PROXY), address(BACKEND_A));
        only(scene.offer(backend, &sent.answer("200 OK")), "SIP/2.0 200");
        assert_eq!(scene.counters.large_by_udp.get(), 1);
        // It is not asked again for a minute, and has failed in nothing else.
        let (to, _) = only(scene.call("d", 2000), "INVITE");
        assert_eq!(to.transport, Transport::Udp);
        scene.pass(Duration::from_secs(61));
        scene.call("e", 2000);
        assert!(scene.streams.poll_connect().is_some());
    }
}

/// The second attempt by UDP is no failover: `tries_max` counts back ends.
#[test]
fn a_large_request_fails_over_after_it_was_sent_by_udp() {
    let both = [("a", address(BACKEND_A), 1), ("b", address(BACKEND_B), 1)];
    let backends = balance::Pool::new("app", &both);
    let mut scene = Scene::with(backends, Mode::Transaction, true);
    scene.call("c", 2000);
    let refused = scene.streams.poll_connect().expect("one");
    scene.streams.on_closed(scene.now, refused.id, CloseCause::Refused);
    let (to, _) = only(scene.pass(Duration::ZERO), "INVITE");
    assert_eq!((to.transport, to.remote), (Transport::Udp, refused.remote));
    scene.pass(Duration::from_secs(5));
    let (other, sent) = scene.open();
    assert_ne!(other.remote, refused.remote);
    let (to, _) = only(sent, "INVITE");
    assert_eq!((to.transport, to.remote), (Transport::Tcp, other.remote));
}
