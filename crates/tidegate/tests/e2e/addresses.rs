//! Tests with IPv6, wildcard addresses and the largest datagrams.

use std::net::{Ipv4Addr, SocketAddr};

use crate::stage::{Configuration, Load, Peer, Sipp, Stage, Tidegate};

const CALLS: u32 = 100;

#[test]
fn calls_go_over_ipv6() {
    let stage = Stage::ipv6();
    let callees = ["uas-record-route"; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let backends = callees.each_ref().map(Sipp::address);
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &backends));
    let load = Load { scenario: "uac-routes", calls: CALLS, ..Load::default() };
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(CALLS);
    for calls in callees.map(Sipp::finish) {
        calls.assert_all_well(CALLS / 2);
    }
    tidegate.assert_all_done();
}

/// Caller and back ends have the IP address of Tidegate, so only their Vias distinguish them.
#[test]
fn calls_over_tcp_go_over_ipv6() {
    let stage = Stage::ipv6();
    let callees = ["uas-record-route"; 2].map(|scenario| Sipp::tcp_callee(&stage, scenario));
    let backends = callees.each_ref().map(Sipp::address);
    let configuration =
        Configuration { is_tcp_inside: true, ..Configuration::with_tcp(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let load = Load { scenario: "uac-routes", calls: CALLS, is_tcp: true, ..Load::default() };
    Sipp::caller(&stage, tidegate.tcp_address(), &load).wait().assert_all_well(CALLS);
    for calls in callees.map(Sipp::finish) {
        calls.assert_all_well(CALLS / 2);
    }
    let metrics = tidegate.assert_all_done();
    assert_eq!(metrics.sum("connections_begun_total", &[("by", "tidegate")]), 2);
    assert_eq!(metrics.sum("connections_begun_total", &[("by", "peer")]), 1);
    assert_eq!(metrics.sum("udp_received_total", &[]), 0);
}

/// Between two listeners, Tidegate adds two Record-Routes, one for each side.
#[test]
fn calls_go_from_ipv6_to_ipv4() {
    let (outside, inside) = (Stage::ipv6(), Stage::new());
    let callee = Sipp::callee(&inside, "uas-record-route");
    let configuration = Configuration::new(&inside, &[callee.address()]);
    let listen = vec![(outside.ip(), 0).into(), (inside.ip(), 0).into()];
    let tidegate = Tidegate::start(&inside, &Configuration { listen, ..configuration });
    let load = Load { scenario: "uac-routes", calls: CALLS, ..Load::default() };
    Sipp::caller(&outside, tidegate.listeners()[0], &load).wait().assert_all_well(CALLS);
    callee.finish().assert_all_well(CALLS);
    tidegate.assert_all_done();
}

/// RFC 3261 §18.2.2, RFC 3581 §4: a response leaves from the address at which the request arrived.
/// It goes to the address from which the request came, whatever the Via says.
#[test]
fn a_wildcard_answers_from_the_address_that_was_asked() {
    let (stage, other) = (Stage::new(), Stage::new());
    let backend = Peer::new(stage.ip());
    let port = Peer::new(Ipv4Addr::UNSPECIFIED.into()).address().port();
    let more = format!(
        "[[listen]]\ntransport = \"udp\"\naddress = \"0.0.0.0:{port}\"\n\
         advertise = \"sip.example.com:{port}\"\n"
    );
    let configuration = Configuration::new(&stage, &[backend.address()]);
    let _tidegate =
        Tidegate::start(&stage, &Configuration { listen: Vec::new(), more, ..configuration });
    for (i, ip) in [stage.ip(), other.ip()].into_iter().enumerate() {
        let here = SocketAddr::new(ip, port);
        let caller = Peer::new(other.ip());
        let via = format!("SIP/2.0/UDP phone.invalid;rport;branch=z9hG4bK-behind-nat-{i}");
        let request = caller.request("MESSAGE", "sip:bob@sip.example.com", 1, 1).with("Via", &via);
        caller.send(here, &request);
        let (received, from) = backend.receive_from();
        assert_eq!(received.fields("Via").count(), 2);
        backend.send(from, &backend.response(&received, "200 OK"));
        let (response, from) = caller.receive_from();
        assert_eq!((response.status(), from), (200, here));
    }
}

/// RFC 3261 §18.1.1: "implementations MUST be able to handle messages up to the maximum
/// datagram packet size. For UDP, this size is 65,535 bytes".
#[test]
fn a_message_as_large_as_a_datagram_is_forwarded_whole() {
    let stage = Stage::new();
    let (caller, backend) = (Peer::new(stage.ip()), Peer::new(stage.ip()));
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[backend.address()]));
    let here = tidegate.address();
    let body: String = ('a'..='z').cycle().take(64_000).collect();
    let mut request =
        caller.request("MESSAGE", &format!("sip:bob@{here}"), 1, 1).with("Content-Length", "64000");
    request.0 += &body;
    caller.send(here, &request);
    let received = backend.receive();
    assert!(received.0.ends_with(&format!("\r\n\r\n{body}")));
    backend.send(here, &backend.response(&received, "200 OK"));
    assert_eq!(caller.receive().status(), 200);
}
