//! Requests to the address from which a peer has opened a connection.

use super::*;

const LISTENERS: [(Transport, &str); 4] = [
    (Transport::Udp, PROXY),
    (Transport::Tcp, PROXY),
    (Transport::Tls, "192.0.2.1:5061"),
    (Transport::Wss, "192.0.2.1:443"),
];

fn registrar() -> Flow {
    Flow::udp(address(PROXY), address(BACKEND_A))
}

/// Opens a connection of the phone, and receives a message on it.
fn connected(scene: &mut Scene, transport: Transport, local: &str) -> Flow {
    let phone = scene.accept_by(transport, local, PHONE, 2);
    let via = format!("SIP/2.0/{transport} 192.168.1.2:5060;rport");
    let options = request("OPTIONS", "sip:192.0.2.1", "o", 1, "");
    let options = options.replace("SIP/2.0/UDP 198.51.100.7:5060", &via);
    only(scene.offer(phone, &options), "SIP/2.0 200");
    phone
}

/// Returns the INVITE of a registrar that has stored the source address of a phone as its Contact.
fn inward(transport: &str) -> String {
    let uri = format!("sip:alice@{PHONE};transport={transport}");
    request("INVITE", &uri, "c", 1, "").replace("198.51.100.7:5060", BACKEND_A)
}

/// A regression: the request waited for another connection, which the phone did not accept.
///
/// RFC 3261 §18: "These connections are indexed by the tuple formed from the address, port, and
/// transport protocol at the far end of the connection." §18.1.1: "If a request is destined to an
/// IP address, port, and transport to which an existing connection is open, it is RECOMMENDED that
/// this connection be used".
///
/// RFC 7118 §5.2: a WebSocket over TLS has the transport parameter `ws` too.
#[test]
fn a_request_to_a_phone_without_a_path_leaves_on_the_connection_of_the_phone() {
    for (&(transport, local), name) in LISTENERS[1..].iter().zip(["tcp", "tls", "ws"]) {
        for mode in [Mode::Transaction, Mode::Stateless] {
            let mut scene = Scene::in_front(&LISTENERS, mode, |_| {});
            let phone = connected(&mut scene, transport, local);
            let invite = inward(name);
            let (on, invited) = only(scene.offer(registrar(), &invite), "INVITE");
            assert_eq!((on.connection, invited.to), (phone.connection, address(PHONE)), "{name}");
            let via = format!("SIP/2.0/{transport} {local};");
            assert!(invited.header("Via").starts_with(&via), "{}", invited.text);
            let (on, _) = only(scene.offer(phone, &invited.answer("180 Ringing")), "SIP/2.0 180");
            assert_eq!((on.connection, on.remote), (None, address(BACKEND_A)), "{name} {mode:?}");
            let cancel = invite.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL");
            let (on, _) = only(scene.offer(registrar(), &cancel), "CANCEL");
            assert_eq!(on.connection, phone.connection, "{name} {mode:?}");
            assert!(scene.streams.poll_connect().is_none(), "{name} {mode:?}");
        }
    }
}

/// RFC 3261 §18.4: "the transport layer SHOULD inform the transport user of a failure in sending."
#[test]
fn the_end_of_the_connection_of_the_phone_ends_the_request_on_it() {
    let mut scene = Scene::in_front(&LISTENERS, Mode::Transaction, |_| {});
    let phone = connected(&mut scene, Transport::Tcp, PROXY);
    only(scene.offer(registrar(), &inward("tcp")), "INVITE");
    scene.close(phone, CloseCause::Ended);
    only(scene.pass(Duration::from_millis(500)), "SIP/2.0 50");
}

/// Another host behind the same address translation may have opened the connection.
#[test]
fn a_request_to_a_trusted_source_or_a_back_end_leaves_on_no_connection_of_a_peer() {
    let trust = |settings: &mut Settings| {
        settings.listeners[1].trust = vec!["203.0.113.0/24".parse().unwrap()];
    };
    let backend = |settings: &mut Settings| {
        let pool = balance::Pool::new("phones", &[("p", address("203.0.113.9:5070"), 1)]);
        let pool = PoolSettings { listener: Some(1), ..PoolSettings::new(pool, Policy::Rr) };
        settings.pools.push(pool);
    };
    let adjustments: [fn(&mut Settings); 2] = [trust, backend];
    for adjust in adjustments {
        let mut scene = Scene::in_front(&LISTENERS, Mode::Transaction, adjust);
        connected(&mut scene, Transport::Tcp, PROXY);
        let sent = scene.offer(registrar(), &inward("tcp"));
        assert!(sent.iter().all(|(_, sent)| !sent.start().starts_with("INVITE")), "{sent:#?}");
        let (other, sent) = scene.open();
        assert_eq!(number_of(only(sent, "INVITE").0), 1);
        assert_eq!(other.remote, address(PHONE));
    }
}
