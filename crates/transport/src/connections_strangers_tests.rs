//! Tests of connections to peers that are neither back ends nor trusted sources.

use std::time::Duration;

use tidegate_world::{Pool, Transport};

use super::tests::{Scene, to};
use super::*;

fn opening(opened_max: usize) -> Scene {
    Scene::new(ConnectionLimits { opened_max, ..ConnectionLimits::default() })
}

fn backend(number: usize) -> Flow {
    to(&format!("10.0.0.{number}:5060"))
}

fn stranger(number: usize) -> Flow {
    to(&format!("198.51.100.{number}:5060"))
}

fn id(flow: Flow) -> u32 {
    flow.connection.unwrap().get()
}

/// Sends requests to these strangers. Returns how many of them the table accepts.
fn sent_to(scene: &mut Scene, remotes: impl Iterator<Item = String>) -> usize {
    remotes.filter(|remote| scene.send_to_stranger(to(remote)).is_ok()).count()
}

/// Without a limit, strangers that name very many addresses in their Contacts could use up all
/// connections that the proxy needs for its back ends.
#[test]
fn connections_to_strangers_leave_half_of_the_places_to_back_ends() {
    let mut scene = opening(16);
    assert_eq!(sent_to(&mut scene, (1..=20).map(|n| format!("198.51.100.{n}:5060"))), 8);
    assert_eq!(scene.respond(stranger(30)), Err(WhyUnsent::TooMany), "responses share the limit");
    let reached = (1..=20).filter(|&number| scene.send(backend(number), "INVITE").is_ok()).count();
    assert_eq!(reached, 8);
    // A further request to the same stranger needs no further connection.
    scene.send_to_stranger(stranger(1)).unwrap();
}

#[test]
fn one_stranger_leaves_places_to_others() {
    let mut scene = opening(128);
    assert_eq!(sent_to(&mut scene, (1..=64).map(|port| format!("198.51.100.7:{port}"))), 32);
    // RFC 6177 §2: a site may have a whole /48.
    assert_eq!(sent_to(&mut scene, (1..=64).map(|n| format!("[2001:db8:0:{n:x}::1]:5060"))), 16);
    assert_eq!(sent_to(&mut scene, (1..=64).map(|n| format!("192.0.2.{n}:5060"))), 16);
    // The end of a connection makes room for another one.
    let closed = scene.connect().id;
    scene.table.on_closed(closed, CloseCause::Refused);
    assert_eq!(sent_to(&mut scene, (1..=64).map(|n| format!("203.0.113.{n}:5060"))), 1);
}

/// If keep-alives counted, a stranger could keep its connections with a ping every few minutes.
#[test]
fn a_connection_to_a_stranger_is_not_kept_by_keep_alives() {
    let unused = ConnectionLimits::default().yields_after;
    let mut scene = opening(4);
    let mut opened = Vec::new();
    for number in [1, 2] {
        scene.send_to_stranger(stranger(number)).unwrap();
        opened.push(scene.connected());
    }
    for _ in 0..2 {
        scene.now = scene.now + unused / 2;
        for peer in &opened {
            scene.table.on_ping(scene.now, peer.connection.unwrap(), Pool::new().copy(b"\r\n"));
        }
        // A message counts as a use, for example a 180 from a phone that rings for a long time.
        scene.table.on_received(scene.now, opened[1].connection.unwrap());
    }
    assert_eq!(scene.sent().len(), 2 + 2 * 2, "the pings are answered");
    scene.send_to_stranger(stranger(3)).unwrap();
    assert_eq!(scene.closes(), [id(opened[0])]);
    assert_eq!(scene.send_to_stranger(stranger(4)), Err(WhyUnsent::TooMany), "all are in use");
}

#[test]
fn connections_to_strangers_yield_before_those_to_back_ends() {
    let mut scene = opening(4);
    let first = [scene.opened(backend(1)), scene.opened(backend(2))];
    scene.now = scene.now + Duration::from_secs(1);
    scene.send_to_stranger(stranger(3)).unwrap();
    let third = scene.connected();
    scene.now = scene.now + ConnectionLimits::default().yields_after;
    scene.send(backend(4), "INVITE").unwrap();
    assert_eq!(scene.closes(), [id(third)]);
    assert!(first.iter().all(|flow| scene.table.state(flow.connection.unwrap()).is_some()));
}

/// Without a limit, peers that close their connections early could use up all connections, and
/// requests to a carrier that is not a trusted source could not be sent.
#[test]
fn connections_for_responses_leave_places_to_strangers() {
    let mut scene = opening(16);
    let answered = (1..=9).filter(|&number| scene.respond(stranger(number)).is_ok()).count();
    assert_eq!(
        (answered, sent_to(&mut scene, (11..=20).map(|n| format!("192.0.2.{n}:5060")))),
        (4, 4)
    );
    // A connection to a stranger does not yield to a response, however long it is unused.
    scene.now = scene.now + 2 * ConnectionLimits::default().yields_after;
    assert_eq!(scene.respond(stranger(30)), Err(WhyUnsent::TooMany));
}

/// If a request to a stranger exempted its connection from the limit, strangers could get any
/// number of connections.
#[test]
fn a_request_to_a_stranger_on_a_connection_for_responses_leaves_it_limited() {
    let mut scene = opening(4);
    for number in [1, 2] {
        scene.respond(stranger(number)).unwrap();
        scene.connected();
        scene.send_to_stranger(stranger(number)).unwrap();
    }
    assert_eq!(scene.sent().len(), 4);
    scene.now = scene.now + Duration::from_secs(2);
    assert_eq!(scene.respond(stranger(3)), Err(WhyUnsent::TooMany), "requests wait on both");
    // The peer at this address is a back end now.
    scene.send(stranger(1), "INVITE sip:a@b SIP/2.0\r\n").unwrap();
    scene.respond(stranger(3)).unwrap();
    assert!(scene.closes().is_empty());
}

#[test]
fn a_connection_for_responses_beyond_the_share_of_its_peer_still_yields_early() {
    let mut scene = opening(4);
    let mut opened = Vec::new();
    for port in [1, 2] {
        let peer = to(&format!("198.51.100.7:{port}"));
        scene.respond(peer).unwrap();
        opened.push(scene.connected());
        scene.send_to_stranger(peer).unwrap();
    }
    assert_eq!(scene.sent().len(), 4, "all messages are sent");
    scene.now = scene.now + Duration::from_secs(1);
    scene.respond(stranger(8)).unwrap();
    assert_eq!(scene.closes(), [id(opened[1])]);
}

/// The address from which a phone has connected.
const PHONE: &str = "198.51.100.7:48532";

/// Accepts a connection of the phone, and receives a message on it.
fn spoken(scene: &mut Scene, number: u32) -> ConnectionId {
    let id = scene.accepted(number, PHONE).connection.unwrap();
    scene.table.on_received(scene.now, id);
    id
}

/// A regression: a request to a phone that had connected waited for another connection, which the
/// phone does not accept.
///
/// RFC 3261 §18: "When the connection is accepted by the transport layer, this index is set to the
/// source IP address, port number, and transport."
///
/// RFC 3261 §18.1.1: "If a request is destined to an IP address, port, and transport to which an
/// existing connection is open, it is RECOMMENDED that this connection be used".
#[test]
fn a_request_to_a_stranger_uses_the_connection_that_the_stranger_has_opened() {
    for transport in [Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss] {
        let mut scene = opening(4);
        let to_phone = Flow { transport, ..to(PHONE) };
        let phone = Flow { connection: ConnectionId::new(2), ..to_phone };
        scene.table.on_connected(scene.now, phone);
        scene.table.on_received(scene.now, phone.connection.unwrap());
        scene.send_to_stranger(to_phone).unwrap();
        assert_eq!(scene.sent(), [(2, "BYE sip:a@b SIP/2.0\r\n".to_owned())], "{transport}");
        assert!(scene.table.poll_connect().is_none(), "{transport}");
        // A listener at the wildcard address has accepted the connection.
        let local = "0.0.0.0:5060".parse().unwrap();
        scene.send_to_stranger(Flow { local, ..to_phone }).unwrap();
        // A socket for IPv6 reports another form of an IPv4 address.
        scene.send_to_stranger(Flow { transport, ..to("[::ffff:198.51.100.7]:48532") }).unwrap();
        assert_eq!(scene.sent().len(), 2, "{transport}");
        // The other shards learn of the end of the connection if they use it.
        scene.table.serve_others(to_phone);
        let ended = scene.table.on_closed(phone.connection.unwrap(), CloseCause::Ended);
        assert_eq!(ended, Some((phone, true)), "{transport}");
    }
}

/// Another host behind the same address translation may have opened the connection.
#[test]
fn a_request_to_another_address_or_peer_uses_no_accepted_connection() {
    let tls = Flow { transport: Transport::Tls, ..to(PHONE) };
    let other = Flow { local: "192.0.2.1:5070".parse().unwrap(), ..to(PHONE) };
    let wildcard = Flow { local: "0.0.0.0:5070".parse().unwrap(), ..to(PHONE) };
    for flow in [tls, other, wildcard, to("198.51.100.7:48533"), to("198.51.100.8:48532")] {
        let mut scene = opening(4);
        spoken(&mut scene, 2);
        scene.send_to_stranger(flow).unwrap();
        assert_eq!(scene.connect().remote, flow.remote);
        assert!(scene.sent().is_empty(), "{flow:?}");
    }
    // A back end or a trusted source, and a response whose own connection has ended.
    for text in ["INVITE sip:a@b SIP/2.0\r\n", "SIP/2.0 200 OK\r\n"] {
        let mut scene = opening(4);
        spoken(&mut scene, 2);
        scene.send(to(PHONE), text).unwrap();
        assert_eq!(scene.connect().remote, to(PHONE).remote, "{text}");
    }
    let mut scene = opening(4);
    spoken(&mut scene, 2);
    let browser = Flow { transport: Transport::Ws, ..to(PHONE) };
    assert_eq!(scene.send_to_stranger(browser), Err(WhyUnsent::Gone));
    // The handshake of this connection may not be complete.
    let mut scene = opening(4);
    scene.accepted(2, PHONE);
    scene.send_to_stranger(to(PHONE)).unwrap();
    assert_eq!(scene.connect().remote, to(PHONE).remote);
}

#[test]
fn a_request_uses_no_accepted_connection_that_has_ended() {
    for is_closed_by_us in [true, false] {
        let mut scene = opening(4);
        let first = spoken(&mut scene, 2);
        if is_closed_by_us {
            scene.table.close(first);
        } else {
            scene.table.on_closed(first, CloseCause::Ended);
        }
        scene.send_to_stranger(to(PHONE)).unwrap();
        assert_eq!(scene.connect().remote, to(PHONE).remote, "{is_closed_by_us}");
    }
    // The phone uses its port again, and the driver reports the end of the first connection late.
    let mut scene = opening(4);
    spoken(&mut scene, 2);
    spoken(&mut scene, 4);
    scene.send_to_stranger(to(PHONE)).unwrap();
    assert_eq!(scene.sent()[0].0, 4);
}
