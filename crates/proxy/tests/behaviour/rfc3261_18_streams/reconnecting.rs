//! Requests to a party over TCP that has closed its connection and whose Contact does not name TCP.

use super::*;

/// A phone over UDP, which sends its large INVITE over TCP (RFC 3261 §18.1.1).
const VIA: &str = "198.51.100.7:5060";
const BY_UDP: &str = "sip:alice@198.51.100.7:5070";

/// A regression: such a request got 430, but after a restart it was delivered.
///
/// RFC 3261 §18.1.1: "To handle this case, the transport layer MUST also be prepared to receive an
/// incoming connection on the source IP address from which the request was sent and port number in
/// the "sent-by" field."
#[test]
fn a_request_to_a_party_without_a_usable_contact_opens_a_connection_to_its_via() {
    let unusable = [
        "sip:gw@sbc.example.com;transport=tcp",
        "sip:gw@192.168.1.2:5070;transport=tcp",
        "sip:gw@198.51.100.7:5061;transport=tls",
    ];
    // The party has named an element in a Record-Route that only the party itself can reach.
    let by_route = ["gw.example.com", "192.168.1.2"].map(|next| (unusable[0], Some(next)));
    for (contact, next) in unusable.map(|contact| (contact, None)).into_iter().chain(by_route) {
        for mode in [Mode::Transaction, Mode::Stateless] {
            let mut scene = scene_over(Transport::Tcp, mode);
            let (backend, bye) = without_connection(&mut scene, "198.51.100.7:5066", contact);
            let bye = match next {
                Some(next) => bye.replace("\r\nFrom:", &format!(", <sip:{next};lr>\r\nFrom:")),
                None => bye,
            };
            assert!(scene.offer(backend, &bye).is_empty(), "{mode:?} {contact} {next:?}");
            let (party, sent) = scene.open();
            assert_eq!(party.remote, address("198.51.100.7:5066"), "{mode:?} {contact} {next:?}");
            only(sent, "BYE");
        }
    }
}

/// A regression: such a request got 430, but after a restart it left by UDP.
///
/// RFC 3261 §12.2.1.1: "Once the request has been constructed, the address of the server is
/// computed and the request is sent, using the same procedures for requests outside of a dialog
/// (Section 8.1.2)."
#[test]
fn a_request_to_a_contact_over_udp_leaves_over_udp() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_over(Transport::Tcp, mode);
        let (backend, bye) = without_connection(&mut scene, VIA, BY_UDP);
        let (on, bye) = only(scene.send(backend, &bye), "BYE");
        assert_eq!((number_of(on), bye.to), (0, address("198.51.100.7:5070")), "{mode:?}");
        assert!(bye.header("Via").starts_with("SIP/2.0/UDP 192.0.2.1:5060;"), "{}", bye.text);
        assert!(scene.streams.poll_connect().is_none(), "{mode:?}");
        let phone = Flow::udp(address(PROXY), bye.to);
        let (on, _) = only(scene.offer(phone, &bye.answer("200 OK")), "SIP/2.0 200");
        assert_eq!(number_of(on), 1, "{mode:?}");
    }
}

/// RFC 3261 §17.1: no transaction of the proxy learns that an ACK to a 2xx was not sent.
#[test]
fn an_ack_to_a_contact_over_udp_opens_a_connection_to_the_via() {
    let mut scene = tcp_scene();
    let (backend, bye) = without_connection(&mut scene, VIA, BY_UDP);
    let ack = bye.replace("BYE sip", "ACK sip").replace("1 BYE", "1 ACK");
    assert!(scene.send(backend, &ack).is_empty());
    let (phone, sent) = scene.open();
    assert_eq!(phone.remote, address(VIA));
    only(sent, "ACK");
}

/// RFC 3261 §18.1.1: "If a request is destined to an IP address, port, and transport to which an
/// existing connection is open, it is RECOMMENDED that this connection be used". A phone that has
/// only TCP may forget the transport in its Contact. A copy of the request over UDP could arrive
/// too.
#[test]
fn a_request_to_a_contact_over_udp_leaves_once_on_an_open_connection() {
    let mut scene = tcp_scene();
    let phone = scene.accept(2, "198.51.100.7:40123");
    scene.offer(phone, &invite("TCP", VIA).replace(CONTACT, &format!("<{BY_UDP}>")));
    let (backend, forwarded) = scene.open_for("INVITE");
    scene.offer(backend, &forwarded.answer("200 OK"));
    let bye = bye(forwarded.header("Record-Route"), "TCP")
        .replace("sip:alice@192.168.1.2:5060;transport=tcp", BY_UDP);
    assert_eq!(number_of(only(scene.send(backend, &bye), "BYE").0), 2);
    let later = scene.pass(Duration::from_secs(20));
    assert!(later.iter().all(|(_, sent)| !sent.start().starts_with("BYE")), "{later:#?}");
}
