//! RFC 3261 §18.1.1: requests that are too long for a datagram.

use std::net::SocketAddr;
use std::time::Duration;

use crate::connected::{Carried, Scene};
use crate::script::{BACKEND_A, BACKEND_B, CALLER, PROXY, address, only, request, secret};
use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_proxy::{Choice, Listener, Mode, PoolSettings, Settings};
use tidegate_transport::ConnectionLimits;
use tidegate_world::{CloseCause, Core, Flow, Received, Timestamp, Transport};

/// Returns the settings of a pool over UDP whose large requests leave over TCP.
fn pool_of(backends: &[(&str, SocketAddr, u32)]) -> PoolSettings {
    PoolSettings {
        large_over_tcp: true,
        tries_max: 2,
        transport: Some(Transport::Udp),
        ..PoolSettings::new(balance::Pool::new("app", backends), Policy::Rr)
    }
}

fn pool_of_two() -> PoolSettings {
    pool_of(&[("a", address(BACKEND_A), 1), ("b", address(BACKEND_B), 1)])
}

fn listener(transport: Transport, at: &str) -> Listener {
    Listener { transport, ..Listener::new(address(at)) }
}

/// Makes a proxy with listeners for UDP and TCP in front of a back end over UDP.
fn scene_of(mode: Mode, large_over_tcp: bool) -> Scene {
    let pool = pool_of(&[("a", address(BACKEND_A), 1)]);
    scene_with(PoolSettings { mode, large_over_tcp, ..pool })
}

fn scene_with(pool: PoolSettings) -> Scene {
    let listeners = [Transport::Udp, Transport::Tcp].map(|by| listener(by, PROXY));
    scene_listening(listeners.to_vec(), pool, ConnectionLimits::default())
}

fn scene_listening(
    listeners: Vec<Listener>,
    pool: PoolSettings,
    limits: ConnectionLimits,
) -> Scene {
    scene_from(Settings::new(listeners, vec![pool], secret(1)), limits)
}

fn scene_from(settings: Settings, limits: ConnectionLimits) -> Scene {
    Scene { now: Timestamp::from_nanos(100_000_000_000), ..Scene::of(settings, limits) }
}

impl Scene {
    fn call(&mut self, call: &str, length: usize) -> Vec<Carried> {
        self.offer(Flow::udp(address(PROXY), address(CALLER)), &invite(call, length))
    }

    /// Opens the connection that the proxy wants and answers the request that waited for it.
    fn open_and_answer(&mut self) -> Flow {
        let (flow, invite) = self.open_for("INVITE");
        only(self.offer(flow, &invite.answer("200 OK")), "SIP/2.0 200");
        flow
    }
}

/// Returns an INVITE of this many bytes.
fn invite(call: &str, length: usize) -> String {
    let text = request("INVITE", "sip:bob@192.0.2.1", call, 1, "Subject: \r\n");
    let missing = length - text.len();
    text.replace("Subject: ", &format!("Subject: {}", "x".repeat(missing)))
}

/// RFC 3261 §18.1.1: "If this causes a change in the transport protocol from the one indicated in
/// the top Via, the value in the top Via MUST be changed."
#[test]
fn a_large_request_leaves_over_tcp_and_its_dialog_stays_on_udp() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_of(mode, true);
        scene.call("c", 2000);
        let (backend, sent) = scene.open();
        let (to, sent) = only(sent, "INVITE");
        assert_eq!((to.transport, to.remote), (Transport::Tcp, address(BACKEND_A)));
        assert!(sent.header("Via").starts_with("SIP/2.0/TCP 192.0.2.1:5060;"), "{}", sent.text);
        // The Record-Route names the listener for UDP, so the back end's own requests come by UDP.
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
    let mut scene = scene_of(Mode::Transaction, true);
    scene.call("c", 2000);
    let (_, sent) = scene.open_for("INVITE");
    let flow = scene.accept(2, "10.0.0.1:40000");
    let (to, _) = only(scene.offer(flow, &sent.answer("200 OK")), "SIP/2.0 200");
    assert_eq!(to.remote, address(CALLER));
}

/// By RFC 3261 §18.1.1 a back end that is reached over UDP sends its own large requests over TCP. Its
/// Via distinguishes it from other programs on its machine.
#[test]
fn a_large_request_of_a_back_end_comes_over_tcp() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_of(mode, false);
        let (backend, invite) = only(scene.call("c", 900), "INVITE");
        only(scene.offer(backend, &invite.answer("200 OK")), "SIP/2.0 200");
        let own = scene.accept(2, "10.0.0.1:40000");
        for (port, cseq, target) in [(5070, 1, CALLER), (5071, 2, BACKEND_A)] {
            let update = format!(
                "UPDATE sip:alice@198.51.100.7:5060 SIP/2.0\r\n\
                 Via: SIP/2.0/TCP 10.0.0.1:{port};branch=z9hG4bK-{cseq}\r\n\
                 Route: {}\r\nFrom: <sip:bob@example.com>;tag=callee\r\n\
                 To: <sip:alice@example.com>;tag=caller\r\nCall-ID: c\r\nCSeq: {cseq} UPDATE\r\n\
                 Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n",
                invite.header("Record-Route")
            );
            let (to, _) = only(scene.offer(own, &update), "UPDATE");
            assert_eq!((to.transport, to.remote), (Transport::Udp, address(target)), "{port}");
        }
    }
}

/// Returns the INVITE of a back end for a phone, over TCP and with this Via.
fn outward(sent_by: &str, more: &str) -> String {
    let text = request("INVITE", "sip:carol@203.0.113.9", "out", 1, more);
    text.replace("SIP/2.0/UDP 198.51.100.7:5060", &format!("SIP/2.0/TCP {sent_by}"))
}

#[test]
fn a_large_invite_of_a_back_end_reaches_a_phone() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_of(mode, false);
        let own = scene.accept(2, "10.0.0.1:40000");
        only(scene.offer(own, &outward("10.0.0.1:5071", "")), "SIP/2.0 403");
        let (to, _) = only(scene.offer(own, &outward(BACKEND_A, "")), "INVITE");
        assert_eq!((to.transport, to.remote), (Transport::Udp, address("203.0.113.9:5060")));
    }
}

/// RFC 3325 §5: "If the proxy receives a message (request or response) from a node that it trusts, it
/// can use the information in the P-Asserted-Identity header field, if any, as if it had authenticated
/// the user itself."
#[test]
fn a_large_invite_of_a_back_end_keeps_its_asserted_identity() {
    const ASSERTED: &str = "P-Asserted-Identity: <sip:boss@example.com>\r\n";
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_of(mode, false);
        let own = scene.accept(2, "10.0.0.1:40000");
        let (to, sent) = only(scene.offer(own, &outward(BACKEND_A, ASSERTED)), "INVITE");
        assert_eq!(to.remote, address("203.0.113.9:5060"));
        assert_eq!(sent.all("P-Asserted-Identity"), ["<sip:boss@example.com>"], "{mode:?}");

        let mut scene = scene_of(mode, false);
        let other = scene.accept(2, "10.0.0.1:40000");
        let invite = outward("10.0.0.1:5071", ASSERTED).replace("carol@203.0.113.9", "b@192.0.2.1");
        let (to, sent) = only(scene.offer(other, &invite), "INVITE");
        assert_eq!(to.remote, address(BACKEND_A), "it is a stranger");
        assert!(sent.all("P-Asserted-Identity").is_empty(), "{mode:?}");
    }
}

/// A reverse proxy on the machine of Tidegate gives all callers an address of the machine. If a back
/// end over UDP has this address too, the Via of a caller proves nothing.
#[test]
fn a_caller_at_an_address_of_tidegate_is_no_back_end_over_udp() {
    for source in [None, Some("192.0.2.1/32")] {
        let mut pool = pool_of(&[("a", address("192.0.2.1:5070"), 1)]);
        pool.sources = vec![source.iter().map(|net| net.parse().unwrap()).collect()];
        let mut scene = scene_with(pool);
        let caller = scene.accept(2, "192.0.2.1:40000");
        let start = if source.is_some() { "INVITE" } else { "SIP/2.0 403" };
        only(scene.offer(caller, &outward("192.0.2.1:5070", "")), start);
    }
}

/// The length of the forwarded request decides, which includes our Via and Record-Route.
#[test]
fn the_length_as_sent_decides() {
    for (large_over_tcp, length) in [(true, 700), (false, 2000)] {
        let mut scene = scene_of(Mode::Transaction, large_over_tcp);
        let (to, _) = only(scene.call("c", length), "INVITE");
        assert_eq!(to.transport, Transport::Udp);
        assert!(scene.streams.poll_connect().is_none());
    }
    let mut scene = scene_of(Mode::Transaction, true);
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
        let mut scene = scene_of(mode, true);
        scene.call("c", 2000);
        scene.refuse();
        let (to, sent) = only(scene.pass(Duration::ZERO), "INVITE");
        assert_eq!((to.transport, to.remote), (Transport::Udp, address(BACKEND_A)));
        assert!(sent.header("Via").starts_with("SIP/2.0/UDP 192.0.2.1:5060;"), "{}", sent.text);
        let backend = Flow::udp(address(PROXY), address(BACKEND_A));
        only(scene.offer(backend, &sent.answer("200 OK")), "SIP/2.0 200");
        assert_eq!(scene.counters.large_by_udp.get(), 1);
        // For a minute, no other connection to this back end is tried.
        let (to, _) = only(scene.call("d", 2000), "INVITE");
        assert_eq!(to.transport, Transport::Udp);
        scene.pass(Duration::from_secs(61));
        scene.call("e", 2000);
        assert!(scene.streams.poll_connect().is_some());
    }
}

/// A back end that accepts connections has to get a large request over TCP, even if it reads slowly.
#[test]
fn a_large_request_does_not_leave_by_udp_because_the_back_end_reads_slowly() {
    let mut scene = scene_of(Mode::Transaction, true);
    scene.call("first", 2000);
    scene.open();
    for number in 0..40 {
        scene.call(&format!("long-{number}"), 2000);
    }
    scene.pass(Duration::from_millis(100));
    let mut sent = scene.call("late", 2000);
    sent.extend(scene.pass(Duration::ZERO));
    let (to, _) = only(sent, "SIP/2.0 503");
    assert_eq!(to.remote, address(CALLER));
    assert_eq!(scene.streams.connections().counters().backed_up.get(), 1);
    assert_eq!(scene.counters.large_by_udp.get(), 0);
}

/// A back end over UDP need not listen for connections.
#[test]
fn a_back_end_without_tcp_has_failed_in_nothing_else() {
    let mut scene = scene_with(pool_of_two());
    scene.call("c", 2000);
    let refused = scene.refuse();
    only(scene.pass(Duration::ZERO), "INVITE");
    let sent: Vec<_> = ["d", "e"].into_iter().flat_map(|call| scene.call(call, 2000)).collect();
    let (to, _) = only(sent, "INVITE");
    assert_eq!((to.transport, to.remote), (Transport::Udp, refused.remote));
    assert_ne!(
        scene.streams.poll_connect().expect("a connection to the other one").remote,
        refused.remote
    );
    assert!(scene.backends.backends().iter().all(|backend| backend.failures() == 0));
}

/// A connection that ended does not mean that another connection would fail.
#[test]
fn a_connection_that_ended_is_opened_again_at_once() {
    for cause in [CloseCause::Ended, CloseCause::Reset] {
        let mut scene = scene_of(Mode::Transaction, true);
        scene.call("c", 2000);
        let flow = scene.open_and_answer();
        scene.close(flow, cause);
        let sent = scene.call("d", 2000);
        assert!(sent.iter().all(|(_, sent)| !sent.start().starts_with("INVITE")), "{sent:#?}");
        let (to, _) = only(scene.open().1, "INVITE");
        assert_eq!(to.transport, Transport::Tcp);
    }
}

/// Only a connection that cannot be established leads to UDP. A back end that may have the request
/// does not get it twice.
#[test]
fn a_request_whose_connection_ends_later_goes_to_another_back_end() {
    let mut scene = scene_with(pool_of_two());
    scene.call("c", 2000);
    let (first, _) = scene.open_for("INVITE");
    scene.close(first, CloseCause::Reset);
    let sent = scene.pass(Duration::from_secs(2));
    assert!(sent.iter().all(|(_, sent)| !sent.start().starts_with("INVITE")), "{sent:#?}");
    let second = scene.open_and_answer();
    assert_ne!(second.remote, first.remote);
    assert_eq!(scene.counters.large_by_udp.get(), 0);
}

/// Many ended connections of strangers do not hide the ended connection of a back end over UDP.
#[test]
fn strangers_do_not_hide_the_end_of_a_connection() {
    let mut scene = scene_with(pool_of_two());
    scene.call("c", 2000);
    let (first, _) = scene.open_for("INVITE");
    scene.close(first, CloseCause::Reset);
    for n in 0..100 {
        let flow = scene.accept(2 + 2 * n, &format!("198.51.100.9:{}", 40_000 + n));
        let options = request("OPTIONS", "sip:192.0.2.1", &format!("o{n}"), 1, "");
        only(scene.offer(flow, &options), "SIP/2.0 200");
        scene.close(flow, CloseCause::Ended);
    }
    scene.pass(Duration::from_secs(2));
    assert_ne!(scene.streams.poll_connect().expect("a failover").remote, first.remote);
}

/// If this proxy has reached its own limit of connections, no back end has failed.
#[test]
fn a_limit_of_connections_is_no_failure_of_the_back_end() {
    let limits = ConnectionLimits { opened_max: 1, ..ConnectionLimits::default() };
    let listeners = [Transport::Udp, Transport::Tcp].map(|by| listener(by, PROXY));
    let mut scene = scene_listening(listeners.to_vec(), pool_of_two(), limits);
    scene.call("c", 2000);
    let first = scene.open_and_answer();
    let mut sent = scene.call("d", 2000);
    sent.extend(scene.pass(Duration::ZERO));
    let (to, by_udp) = only(sent, "INVITE");
    assert_eq!(to.transport, Transport::Udp);
    assert_ne!(to.remote, first.remote);
    only(scene.offer(to, &by_udp.answer("200 OK")), "SIP/2.0 200");
    only(scene.call("e", 2000), "INVITE");
    scene.close(first, CloseCause::Ended);
    scene.call("f", 2000);
    assert_eq!(scene.streams.poll_connect().expect("one").remote, to.remote);
}

/// If a firewall drops the packets that open a connection, this says nothing about the back end over
/// UDP. Further large requests to it leave by UDP, even if the first one has failed over meanwhile.
#[test]
fn a_connection_that_never_opens_is_remembered_and_is_no_silence() {
    let failover_after = Duration::from_secs(1);
    let mut scene = scene_with(PoolSettings { failover_after, ..pool_of_two() });
    scene.call("c", 2000);
    let dropped = scene.streams.poll_connect().expect("one");
    // A probe by UDP shows that the back end works.
    let (to, probe) = only(scene.pass(Duration::from_millis(1100)), "OPTIONS");
    assert_eq!((to.transport, to.remote), (Transport::Udp, dropped.remote));
    scene.offer(to, &probe.answer("200 OK"));
    let other = scene.open_and_answer();
    assert_ne!(other.remote, dropped.remote);
    scene.pass(Duration::from_secs(4));
    assert_eq!(scene.streams.poll_close(), Some(dropped.id));
    scene.streams.on_closed(scene.now, dropped.id, CloseCause::Asked);
    assert!(scene.backends.backends().iter().all(|backend| backend.failures() == 0));
    let sent: Vec<_> = ["d", "e"].into_iter().flat_map(|call| scene.call(call, 2000)).collect();
    let invites: Vec<_> =
        sent.iter().filter(|(_, sent)| sent.start().starts_with("INVITE")).collect();
    let to: Vec<_> = invites.iter().map(|(to, _)| (to.transport, to.remote)).collect();
    assert!(to.contains(&(Transport::Udp, dropped.remote)), "{to:?}");
    assert!(to.contains(&(Transport::Tcp, other.remote)), "{to:?}");
}

/// Once a back end has answered on a connection, silence on it counts.
#[test]
fn silence_on_an_open_connection_counts() {
    let mut scene = scene_with(pool_of(&[("a", address(BACKEND_A), 1)]));
    scene.call("c", 2000);
    scene.open_and_answer();
    scene.pass(Duration::from_secs(1));
    only(scene.call("d", 2000), "INVITE");
    scene.pass(Duration::from_secs(5));
    assert_eq!(scene.backends.backends()[0].failures(), 1);
}

/// RFC 5393 §5.3.3: "SIP proxies MUST NOT allow the Outgoing Max-Breadth to exceed the Incoming
/// Max-Breadth in a given response context."
#[test]
fn a_branch_of_a_fork_keeps_its_breadth_by_udp() {
    let choice = Choice::All(vec![1000; 2]);
    let mut scene = scene_with(PoolSettings { choice, ..pool_of_two() });
    let text = invite("c", 2000).replace("Max-Forwards:", "Max-Breadth: 10\r\nMax-Forwards:");
    scene.offer(Flow::udp(address(PROXY), address(CALLER)), &text);
    let (_, sent) = scene.open();
    assert_eq!(only(sent, "INVITE").1.header("Max-Breadth"), "5");
    let refused = scene.refuse();
    let (to, sent) = only(scene.pass(Duration::ZERO), "INVITE");
    assert_eq!((to.transport, to.remote), (Transport::Udp, refused.remote));
    assert_eq!(sent.header("Max-Breadth"), "5");
}

/// A large request leaves from the same IP address as other requests, or by UDP.
#[test]
fn the_interface_stays_the_same() {
    let udp = listener(Transport::Udp, PROXY);
    let elsewhere = listener(Transport::Tcp, "203.0.113.1:5060");
    let beside = listener(Transport::Tcp, "192.0.2.1:5080");
    for (listeners, is_over_tcp) in
        [(vec![udp.clone(), elsewhere.clone(), beside], true), (vec![udp, elsewhere], false)]
    {
        let pool = pool_of(&[("a", address(BACKEND_A), 1)]);
        let mut scene = scene_listening(listeners, pool, ConnectionLimits::default());
        let sent = scene.call("c", 2000);
        let connect = scene.streams.poll_connect();
        assert_eq!(
            connect.map(|connect| connect.local),
            is_over_tcp.then(|| address("192.0.2.1:5080"))
        );
        if !is_over_tcp {
            assert_eq!(only(sent, "INVITE").0.transport, Transport::Udp);
        }
    }
}

/// In a pool without transactions, a request gets one only if it is too long when it leaves.
#[test]
fn a_request_that_fits_needs_no_transaction() {
    let mut scene = scene_of(Mode::Stateless, true);
    let sent = scene.call("c", 900);
    assert_eq!(only(sent.clone(), "INVITE").0.transport, Transport::Udp);
    assert_eq!(sent.len(), 1, "no 100 Trying: {sent:#?}");
    let sent = scene.call("d", 1300);
    only(sent, "SIP/2.0 100");
    assert!(scene.streams.poll_connect().is_some());
}

/// A large request without room for a transaction leaves by UDP. Its copies leave by UDP too, even
/// if there is room again, because with another branch they would be another transaction.
#[test]
fn without_room_for_a_transaction_a_large_request_leaves_by_udp() {
    let pool = PoolSettings { mode: Mode::Stateless, ..pool_of(&[("a", address(BACKEND_A), 1)]) };
    let listeners = [Transport::Udp, Transport::Tcp].map(|by| listener(by, PROXY));
    let mut settings = Settings::new(listeners.to_vec(), vec![pool], secret(1));
    settings.transactions_max = 1;
    let mut scene = scene_from(settings, ConnectionLimits::default());
    scene.call("c", 2000);
    let (flow, first) = scene.open_for("INVITE");
    let (to, by_udp) = only(scene.call("d", 2000), "INVITE");
    assert_eq!((to.transport, to.remote), (Transport::Udp, address(BACKEND_A)));
    scene.offer(flow, &first.answer("200 OK"));
    scene.pass(Duration::from_secs(40));
    only(scene.call("e", 2000), "SIP/2.0 100");
    let (to, copy) = only(scene.call("d", 2000), "INVITE");
    assert_eq!(to.transport, Transport::Udp);
    assert_eq!(copy.header("Via"), by_udp.header("Via"));
}

/// Returns an INVITE whose Request-URI is longer than an ICMP error would quote.
fn invite_to_long_uri(call: &str) -> String {
    let uri = format!("sip:{}@192.0.2.1", "b".repeat(1500));
    request("INVITE", &uri, call, 1, "")
}

/// The transport returns the whole request, so that its branch is found behind a long Request-URI.
#[test]
fn a_request_with_a_long_uri_is_sent_by_udp_too() {
    let mut scene = scene_of(Mode::Transaction, true);
    scene.offer(Flow::udp(address(PROXY), address(CALLER)), &invite_to_long_uri("c"));
    scene.refuse();
    let (to, _) = only(scene.pass(Duration::ZERO), "INVITE");
    assert_eq!((to.transport, to.remote), (Transport::Udp, address(BACKEND_A)));
}

/// RFC 3261 §17.1.1.2: "The ACK MUST be sent to the same address, port, and transport to which the
/// original request was sent."
#[test]
fn the_ack_to_a_rejected_large_invite_leaves_over_tcp() {
    let mut scene = scene_of(Mode::Transaction, true);
    scene.call("c", 2000);
    let (flow, invite) = scene.open_for("INVITE");
    let sent = scene.offer(flow, &invite.answer("486 Busy Here"));
    let (to, ack) = only(sent.clone(), "ACK");
    assert_eq!((to.transport, to.connection), (Transport::Tcp, flow.connection));
    assert_eq!(ack.header("Via"), invite.header("Via"));
    let (to, _) = only(sent, "SIP/2.0 486");
    assert_eq!((to.transport, to.remote), (Transport::Udp, address(CALLER)));
    // The ACK of the caller ends at the proxy.
    let ack = request("ACK", "sip:bob@192.0.2.1", "c", 1, "Totag\r\n");
    let caller = Flow::udp(address(PROXY), address(CALLER));
    assert!(scene.offer(caller, &ack).is_empty());
}

/// RFC 3261 §9.1: "A CANCEL constructed by a client MUST have only a single Via header field value
/// matching the top Via value in the request being cancelled." "The destination address, port, and
/// transport for the CANCEL MUST be identical to those used to send the original request."
#[test]
fn the_cancel_of_a_large_invite_leaves_over_tcp() {
    let mut scene = scene_of(Mode::Transaction, true);
    scene.call("c", 2000);
    let (flow, invite) = scene.open_for("INVITE");
    scene.offer(flow, &invite.answer("180 Ringing"));
    let cancel = request("CANCEL", "sip:bob@192.0.2.1", "c", 1, "");
    let caller = Flow::udp(address(PROXY), address(CALLER));
    let sent = scene.offer(caller, &cancel);
    let (to, cancel) = only(sent.clone(), "CANCEL");
    assert_eq!((to.transport, to.connection), (Transport::Tcp, flow.connection));
    assert_eq!(cancel.all("Via"), [invite.header("Via")]);
    only(sent, "SIP/2.0 200");
    let sent = scene.offer(flow, &invite.answer("487 Request Terminated"));
    assert_eq!(only(sent.clone(), "ACK").0.connection, flow.connection);
    only(sent, "SIP/2.0 487");
}

/// A large request has a transaction, even in a pool without transactions.
#[test]
fn a_large_request_counts_as_one_with_state() {
    for (length, stateless) in [(900, true), (2000, false)] {
        let mut scene = scene_of(Mode::Stateless, true);
        let flow = Flow::udp(address(PROXY), address(CALLER));
        let bytes = scene.pool.copy(invite("c", length).as_bytes());
        scene.streams.offer(scene.now, Received::new(scene.now, flow, bytes));
        assert!(scene.streams.serve(scene.now));
        assert_eq!(scene.streams.last_work().stateless, stateless);
    }
}

/// The second attempt by UDP is not a failover: `tries_max` counts back ends.
#[test]
fn a_large_request_fails_over_after_it_was_sent_by_udp() {
    let mut scene = scene_with(pool_of_two());
    scene.call("c", 2000);
    let refused = scene.refuse();
    let (to, _) = only(scene.pass(Duration::ZERO), "INVITE");
    assert_eq!((to.transport, to.remote), (Transport::Udp, refused.remote));
    scene.pass(Duration::from_secs(5));
    let (other, sent) = scene.open();
    assert_ne!(other.remote, refused.remote);
    let (to, _) = only(sent, "INVITE");
    assert_eq!((to.transport, to.remote), (Transport::Tcp, other.remote));
}
