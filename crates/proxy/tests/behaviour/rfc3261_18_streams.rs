//! RFC 3261 §18: messages on streams use the connection to which they belong.

mod accepted;
mod backed_up;
mod failing;
mod reconnecting;
mod restarted;
mod strangers;

use std::net::SocketAddr;
use std::time::Duration;

use crate::connected::{Scene, number_of};
use crate::script::{BACKEND_A, BACKEND_B, CALLER, PROXY, Sent, address, only, request, secret};
use tidegate_balance as balance;
use tidegate_balance::Policy;
use tidegate_proxy::{Listener, Mode, PoolSettings, ReplyReason, Settings};
use tidegate_transport::ConnectionLimits;
use tidegate_world::{CloseCause, Core, Flow, Received, Transport};

/// A phone behind address translation.
const PHONE: &str = "203.0.113.9:40123";
const CONTACT: &str = "<sip:alice@192.168.1.2:5060;transport=tcp>";

/// Returns the settings of a proxy that listens on UDP and TCP and reaches back ends over `inside`.
fn settings(inside: Transport, mode: Mode, backends: [&str; 2]) -> Settings {
    let outside = Listener::new(address(PROXY));
    let streams = Listener { transport: Transport::Tcp, ..outside.clone() };
    let [a, b] = backends.map(address);
    let backends = balance::Pool::new("app", &[("a", a, 1), ("b", b, 1)]);
    let listener = Some(usize::from(inside.is_reliable()));
    let pool = PoolSettings { mode, listener, ..PoolSettings::new(backends, Policy::Rr) };
    Settings::new(vec![outside, streams], vec![pool], secret(1))
}

fn scene_over(inside: Transport, mode: Mode) -> Scene {
    scene_between(inside, mode, [BACKEND_A, BACKEND_B])
}

fn scene_between(inside: Transport, mode: Mode, backends: [&str; 2]) -> Scene {
    scene_with(inside, mode, backends, |_| {})
}

fn scene_with(
    inside: Transport,
    mode: Mode,
    backends: [&str; 2],
    adjust: impl FnOnce(&mut Settings),
) -> Scene {
    let mut settings = settings(inside, mode, backends);
    adjust(&mut settings);
    Scene::of(settings, ConnectionLimits::default())
}

fn tcp_scene() -> Scene {
    scene_over(Transport::Tcp, Mode::Transaction)
}

fn invite(transport: &str, via: &str) -> String {
    let contact = format!("Contact: {CONTACT}\r\n");
    let invite = request("INVITE", "sip:bob@192.0.2.1", "c", 1, &contact);
    invite.replace("SIP/2.0/UDP 198.51.100.7:5060", &format!("SIP/2.0/{transport} {via}"))
}

/// Makes a call of a phone on connection 2, up to the INVITE at the first back end.
fn called(scene: &mut Scene) -> (Flow, Flow, Sent) {
    let phone = scene.accept(2, PHONE);
    let sent = scene.offer(phone, &invite("TCP", "192.168.1.2:5060;rport"));
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!((number_of(sent[0].0), sent[0].1.start()), (2, "SIP/2.0 100 Trying"));
    let (backend, sent) = scene.open();
    let (on, forwarded) = only(sent, "INVITE");
    assert_eq!((number_of(on), forwarded.to), (1, address(BACKEND_A)));
    (phone, backend, forwarded)
}

/// Sets up a call of a phone whose connection then ends. Returns the connection of the back end, and
/// the BYE of the back end.
fn gone(scene: &mut Scene) -> (Flow, String) {
    let phone = scene.accept(2, PHONE);
    scene.offer(phone, &invite("TCP", "192.168.1.2:5060;rport"));
    let (backend, forwarded) = scene.open_for("INVITE");
    scene.offer(backend, &forwarded.answer("200 OK"));
    scene.close(phone, CloseCause::Ended);
    (backend, bye(forwarded.header("Record-Route"), "TCP"))
}

/// Sets up a call of a party with this Via and Contact. Its connection then ends. Returns the
/// connection of the back end, and the BYE of the back end.
fn without_connection(scene: &mut Scene, via: &str, contact: &str) -> (Flow, String) {
    let party = scene.accept(2, "198.51.100.7:40123");
    scene.offer(party, &invite("TCP", via).replace(CONTACT, &format!("<{contact}>")));
    let (backend, forwarded) = scene.open_for("INVITE");
    scene.offer(backend, &forwarded.answer("200 OK"));
    scene.close(party, CloseCause::Ended);
    scene.pass(Duration::from_secs(1));
    let bye = bye(forwarded.header("Record-Route"), "TCP");
    (backend, bye.replace("sip:alice@192.168.1.2:5060;transport=tcp", contact))
}

fn bye(route: &str, transport: &str) -> String {
    format!(
        "BYE sip:alice@192.168.1.2:5060;transport=tcp SIP/2.0\r\n\
         Via: SIP/2.0/{transport} 10.0.0.1:5070;branch=z9hG4bK-bye\r\n\
         Route: {route}\r\nFrom: <sip:bob@example.com>;tag=callee\r\n\
         To: <sip:alice@example.com>;tag=caller\r\nCall-ID: c\r\nCSeq: 1 BYE\r\n\
         Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
    )
}

/// RFC 3261 §18.2.2: "the response MUST be sent using the existing connection to the source of the
/// original request that created the transaction".
///
/// RFC 3261 §18.1.1: "Therefore, the client transport MUST be prepared to receive the response on
/// the same connection used to send the request."
#[test]
fn a_call_over_streams_goes_and_returns_on_its_connections() {
    let mut scene = tcp_scene();
    let (phone, backend, forwarded) = called(&mut scene);
    assert!(forwarded.header("Via").starts_with("SIP/2.0/TCP 192.0.2.1:5060;rport;branch="));
    let route = forwarded.header("Record-Route");
    assert!(route.ends_with("@192.0.2.1:5060;transport=tcp;lr>"), "{route}");
    // RFC 3261 §17.1.1.2: "For any transport, [...] If an unreliable transport is being used, the
    // client transaction MUST start timer A".
    assert!(scene.pass(Duration::from_secs(3)).is_empty(), "nothing is repeated");
    let sent = scene.offer(backend, &forwarded.answer("200 OK"));
    assert_eq!((sent.len(), number_of(sent[0].0), sent[0].1.start()), (1, 2, "SIP/2.0 200 OK"));

    let bye = bye(route, "TCP");
    let (on, sent) = only(scene.offer(backend, &bye), "BYE");
    assert_eq!((number_of(on), sent.to), (2, address(PHONE)), "to the phone, on its connection");
    let answer = scene.offer(phone, &sent.answer("200 OK"));
    assert_eq!((number_of(answer[0].0), answer[0].1.start()), (1, "SIP/2.0 200 OK"));
}

/// A regression: our own responses had the port in the Via as `rport`.
///
/// RFC 3581 §4: "If this Via header field value contains an "rport" parameter with no value, it
/// MUST set the value of the parameter to the source port of the request."
#[test]
fn our_own_responses_on_a_connection_have_its_source_port() {
    let mut scene = tcp_scene();
    let phone = scene.accept(2, PHONE);
    let (_, trying) =
        only(scene.offer(phone, &invite("TCP", "192.168.1.2:5060;rport")), "SIP/2.0 100");
    // Both back ends answer 503, so the caller gets a 500 of ours.
    let (first, forwarded) = scene.open_for("INVITE");
    scene.offer(first, &forwarded.answer("503 Service Unavailable"));
    let (second, forwarded) = scene.open_for("INVITE");
    let sent = scene.offer(second, &forwarded.answer("503 Service Unavailable"));
    let (on, failed) = only(sent, "SIP/2.0 500");
    assert_eq!(number_of(on), 2);
    for response in [trying, failed] {
        let via = response.header("Via");
        assert!(via.starts_with("SIP/2.0/TCP 192.168.1.2:5060;rport=40123;"), "{via}");
        assert!(via.ends_with(";received=203.0.113.9"), "{via}");
    }
    let rejected = scene.counters.rejections.list();
    assert_eq!(rejected.last().map(|rejected| rejected.source), Some(address(PHONE)));
}

/// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed)
/// response to the request."
#[test]
fn a_request_to_a_flow_that_is_gone_gets_430() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_over(Transport::Tcp, mode);
        let (backend, bye) = gone(&mut scene);
        let sent = scene.send(backend, &bye);
        let (on, answer) = only(sent, "SIP/2.0 430");
        assert_eq!((number_of(on), answer.start()), (1, "SIP/2.0 430 Flow Failed"), "{mode:?}");
    }
}

/// RFC 3261 §12.2.1.1: "Once the request has been constructed, the address of the server is
/// computed and the request is sent, using the same procedures for requests outside of a dialog
/// (Section 8.1.2)." A trunk has closed its idle connection, and accepts another one at its Contact.
#[test]
fn a_request_to_a_party_that_accepts_connections_opens_another_one() {
    let contact = "sip:gw@198.51.100.7:5070;transport=tcp";
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_over(Transport::Tcp, mode);
        let (backend, bye) = without_connection(&mut scene, "198.51.100.7:5060", contact);
        assert!(scene.offer(backend, &bye).is_empty(), "{mode:?}: it waits for the connection");
        let (trunk, sent) = scene.open();
        assert_eq!(trunk.remote, address("198.51.100.7:5070"), "{mode:?}");
        let (_, forwarded) = only(sent, "BYE");
        assert_eq!(forwarded.all("Route").len(), 0);
        assert!(scene.pass(Duration::from_secs(2)).is_empty(), "{mode:?}");
        let (on, _) = only(scene.offer(trunk, &forwarded.answer("200 OK")), "SIP/2.0 200");
        assert_eq!(number_of(on), 1, "{mode:?}");
        assert!(scene.streams.poll_connect().is_none(), "{mode:?}: it goes there once");
    }
}

/// RFC 3261 §12.2.1.1, as above: a trunk may send from one address and accept connections at
/// another one, which its Via and Contact name.
#[test]
fn a_request_to_a_trunk_with_another_address_opens_a_connection_to_its_contact() {
    let contact = "sip:gw@198.51.100.8:5060;transport=tcp";
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_over(Transport::Tcp, mode);
        let (backend, bye) = without_connection(&mut scene, "198.51.100.8:5060", contact);
        assert!(scene.offer(backend, &bye).is_empty(), "{mode:?}: it waits for the connection");
        let (trunk, sent) = scene.open();
        assert_eq!(trunk.remote, address("198.51.100.8:5060"), "{mode:?}");
        only(sent, "BYE");
    }
}

/// RFC 3261 §18.4: "the transport layer SHOULD inform the transport user of a failure in sending."
#[test]
fn a_party_that_refuses_another_connection_is_not_reached() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_over(Transport::Tcp, mode);
        let contact = "sip:gw@198.51.100.7:5070;transport=tcp";
        let (backend, bye) = without_connection(&mut scene, "198.51.100.7:5060", contact);
        scene.offer(backend, &bye);
        scene.refuse();
        let mut sent = scene.sent();
        sent.extend(scene.pass(Duration::ZERO));
        assert_eq!(number_of(only(sent, "SIP/2.0 50").0), 1, "{mode:?}");
        assert!(scene.streams.poll_connect().is_none(), "{mode:?}");
    }
}

/// RFC 3261 §18.4: "the transport layer SHOULD inform the transport user of a failure in sending."
#[test]
fn the_end_of_another_connection_to_a_party_ends_the_request_on_it() {
    let mut scene = tcp_scene();
    let contact = "sip:gw@198.51.100.7:5070;transport=tcp";
    let (backend, bye) = without_connection(&mut scene, "198.51.100.7:5060", contact);
    scene.offer(backend, &bye);
    let (trunk, _) = scene.open_for("BYE");
    scene.close(trunk, CloseCause::Ended);
    assert_eq!(number_of(only(scene.pass(Duration::from_millis(500)), "SIP/2.0 50").0), 1);
}

/// The party must not be behind a NAT, and must not have asked for the use of its connection.
#[test]
fn a_request_to_any_other_party_without_its_connection_gets_430() {
    let asked = "sip:gw@198.51.100.7:5070;transport=tcp;ob";
    for (via, contact, next) in [
        ("198.51.100.7:5060", asked, ""),
        ("198.51.100.7:5060", asked, ", <sip:gw.example.com;lr>"),
        ("192.168.1.2:5060", "sip:gw@198.51.100.7:5070;transport=tcp", ""),
        ("192.168.1.2:5060", "sip:gw@203.0.113.5:5070;transport=tcp", ""),
    ] {
        let mut scene = tcp_scene();
        let (backend, bye) = without_connection(&mut scene, via, contact);
        let bye = bye.replace("\r\nFrom:", &format!("{next}\r\nFrom:"));
        let sent = scene.send(backend, &bye);
        assert_eq!(number_of(only(sent, "SIP/2.0 430").0), 1, "{via} {contact} {next}");
        assert!(scene.streams.poll_connect().is_none(), "{via} {contact}");
    }
}

/// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed)
/// response to the request." If there is no room for a transaction, an in-dialog request is
/// forwarded without one.
#[test]
fn without_room_for_a_transaction_a_request_to_a_flow_that_is_gone_gets_430() {
    let no_room = |settings: &mut Settings| settings.transactions_max = 0;
    let backends = [BACKEND_A, BACKEND_B];
    let mut scene = scene_with(Transport::Tcp, Mode::Stateless, backends, no_room);
    let (backend, bye) = gone(&mut scene);
    let (on, answer) = only(scene.offer(backend, &bye), "SIP/2.0 430");
    assert_eq!((number_of(on), answer.start()), (1, "SIP/2.0 430 Flow Failed"));
    // A copy of the request gets the same response.
    let (_, again) = only(scene.offer(backend, &bye), "SIP/2.0 430");
    assert_eq!(again.header("To"), answer.header("To"));
    // Both responses have the sequence of their call.
    assert_ne!(again.batching.sequence, 0);
    assert_eq!(again.batching.sequence, answer.batching.sequence);
    assert_eq!(scene.counters.replied_for(430, ReplyReason::FlowGone).get(), 1);
    assert_eq!(scene.counters.retransmissions.get(), 1);
}

/// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed)
/// response to the request." A copy of the request gets the same response and is not forwarded, so
/// it does not count as a request that leaves on the flow of a registration.
#[test]
fn a_copy_of_an_unsent_request_does_not_count_for_the_flow_of_a_registration() {
    let one_place = |settings: &mut Settings| settings.transactions_max = 1;
    let backends = [BACKEND_A, BACKEND_B];
    let mut scene = scene_with(Transport::Tcp, Mode::Stateless, backends, one_place);
    let phone = scene.accept(2, PHONE);
    let via = "SIP/2.0/UDP 198.51.100.7:5060";
    let more = format!("Contact: {CONTACT}\r\nSupported: path\r\n");
    let register = request("REGISTER", "sip:192.0.2.1", "r", 1, &more);
    scene.offer(phone, &register.replace(via, "SIP/2.0/TCP 192.168.1.2:5060;rport"));
    let (registrar, registered) = scene.open_for("REGISTER");
    let inward = |method: &str, cseq: u32, routes: &str, more: &str| {
        let more = format!("Route: {routes}\r\n{more}");
        let uri = "sip:alice@192.168.1.2:5060;transport=tcp";
        request(method, uri, "c", cseq, &more).replace(via, "SIP/2.0/TCP 10.0.0.1:5070")
    };
    let invite = inward("INVITE", 1, registered.header("Path"), "");
    let (_, invite) = only(scene.offer(registrar, &invite), "INVITE");
    // RFC 6026 §8.7: the transaction of the answered INVITE keeps the only place for 64*T1.
    let (_, ok) = only(scene.offer(phone, &invite.answer("200 OK")), "SIP/2.0 200");
    scene.close(phone, CloseCause::Ended);
    let bye = inward("BYE", 2, ok.header("Record-Route"), "Totag\r\n");
    for _ in 0..2 {
        only(scene.offer(registrar, &bye), "SIP/2.0 430");
    }
    assert_eq!(scene.counters.retransmissions.get(), 1);
    assert_eq!(scene.counters.registered_flows.get(), 2, "the INVITE and the first BYE");
}

/// RFC 3261 §8.2.7: "A UAS cannot be stateless unless the request processing for that method would
/// always result in the same response if the requests are identical." A copy of a request that was
/// forwarded without a transaction must not get one, although there is room for it meanwhile.
#[test]
fn a_copy_of_an_unsent_request_gets_the_same_response_although_there_is_room_again() {
    let one_place = |settings: &mut Settings| settings.transactions_max = 1;
    let backends = [BACKEND_A, BACKEND_B];
    let mut scene = scene_with(Transport::Tcp, Mode::Transaction, backends, one_place);
    let (phone, backend, forwarded) = called(&mut scene);
    // RFC 6026 §8.7: the transaction of the answered INVITE keeps the only place for 64*T1.
    scene.offer(backend, &forwarded.answer("200 OK"));
    scene.pass(Duration::from_secs(31));
    scene.close(phone, CloseCause::Ended);
    let bye = bye(forwarded.header("Record-Route"), "TCP");
    let (on, answer) = only(scene.offer(backend, &bye), "SIP/2.0 430");
    assert_eq!(number_of(on), 1);
    // The place becomes free.
    scene.pass(Duration::from_secs(2));
    let (_, again) = only(scene.offer(backend, &bye), "SIP/2.0 430");
    assert_eq!(again.header("To"), answer.header("To"));
    assert_eq!(scene.counters.replied_for(430, ReplyReason::FlowGone).get(), 1);
    assert_eq!(scene.counters.responses_resent.get(), 1);
}

/// RFC 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a connection to
/// the IP address in the "received" parameter, if present, using the port in the "sent-by" value".
#[test]
fn a_response_whose_connection_is_gone_takes_another_one() {
    let mut scene = tcp_scene();
    let (phone, backend, forwarded) = called(&mut scene);
    scene.close(phone, CloseCause::Reset);
    scene.offer(backend, &forwarded.answer("200 OK"));
    let (flow, sent) = scene.open();
    assert_eq!(flow.remote, address("203.0.113.9:5060"));
    only(sent, "SIP/2.0 200");
}

/// The port in the Via of a request on a stream matters only if the connection is gone. RFC 3261
/// §18.2.2: "the response MUST be sent using the existing connection to the source of the original
/// request that created the transaction, if that connection is still open."
#[test]
fn a_phone_with_port_0_in_its_via_is_reached_on_its_connection() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        for via in ["192.168.1.2:0", "192.168.1.2:0;rport"] {
            let mut scene = scene_over(Transport::Tcp, mode);
            let phone = scene.accept(2, PHONE);
            scene.offer(phone, &invite("TCP", via));
            let (backend, forwarded) = scene.open_for("INVITE");
            let sent = scene.offer(backend, &forwarded.answer("200 OK"));
            assert_eq!(
                (sent.len(), number_of(sent[0].0), sent[0].1.start()),
                (1, 2, "SIP/2.0 200 OK")
            );
            let bye = bye(forwarded.header("Record-Route"), "TCP");
            assert_eq!(number_of(only(scene.offer(backend, &bye), "BYE").0), 2, "{mode:?} {via}");
        }
    }
}

/// RFC 3261 §18.2.2: "If that connection is no longer open, the server SHOULD open a connection to
/// the IP address in the "received" parameter, if present, using the port in the "sent-by" value, or
/// the default port for that transport, if no port is specified."
#[test]
fn a_response_to_port_0_whose_connection_is_gone_goes_to_the_default_port() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_over(Transport::Tcp, mode);
        let phone = scene.accept(2, PHONE);
        scene.offer(phone, &invite("TCP", "192.168.1.2:0"));
        let (backend, forwarded) = scene.open_for("INVITE");
        scene.close(phone, CloseCause::Reset);
        scene.offer(backend, &forwarded.answer("200 OK"));
        let (flow, sent) = scene.open();
        assert_eq!(flow.remote, address("203.0.113.9:5060"), "{mode:?}");
        only(sent, "SIP/2.0 200");
    }
}

/// After a back end has refused a connection, the call moves to another back end and stays there.
#[test]
fn a_refused_connection_leads_at_once_to_another_back_end_which_keeps_the_call() {
    let mut scene = tcp_scene();
    let phone = scene.accept(2, PHONE);
    scene.offer(phone, &invite("TCP", "192.168.1.2:5060"));
    let first = scene.refuse();
    scene.pass(Duration::ZERO);
    let (backend, sent) = scene.open();
    assert_eq!((first.remote, backend.remote), (address(BACKEND_A), address(BACKEND_B)));
    let (_, forwarded) = only(sent, "INVITE");
    scene.offer(backend, &forwarded.answer("100 Trying"));
    let sent = scene.pass(Duration::from_secs(3));
    assert!(sent.iter().all(|(_, sent)| sent.start().starts_with("OPTIONS")), "{sent:#?}");
    let ringing = scene.offer(backend, &forwarded.answer("180 Ringing"));
    assert_eq!((ringing.len(), ringing[0].1.start()), (1, "SIP/2.0 180 Ringing"), "no CANCEL");
}

/// RFC 3261 §18.1.1: "it is RECOMMENDED that this connection be used". A phone seldom listens at
/// the port in its Contact.
#[test]
fn a_phone_whose_contact_is_its_own_address_is_reached_on_its_connection() {
    let mut scene = tcp_scene();
    let phone = scene.accept(2, CALLER);
    let contact = "sip:alice@198.51.100.7:5099;transport=tcp";
    let invite = invite("TCP", "198.51.100.7:5060").replace(CONTACT, &format!("<{contact}>"));
    scene.offer(phone, &invite);
    let (backend, forwarded) = scene.open_for("INVITE");
    scene.offer(backend, &forwarded.answer("200 OK"));
    let bye = bye(forwarded.header("Record-Route"), "TCP")
        .replace("sip:alice@192.168.1.2:5060;transport=tcp", contact);
    assert_eq!(number_of(only(scene.offer(backend, &bye), "BYE").0), 2);
}

#[test]
fn requests_on_a_broken_connection_fail_over_soon() {
    let mut scene = tcp_scene();
    let (_, backend, _) = called(&mut scene);
    scene.close(backend, CloseCause::Reset);
    // The INVITE was sent before the connection broke, so the proxy waits for T1 twice.
    scene.pass(Duration::from_secs(1));
    let opened: Vec<_> = std::iter::from_fn(|| scene.streams.poll_connect()).collect();
    assert!(opened.iter().any(|c| c.remote == address(BACKEND_B)), "{opened:?}");
}

#[test]
fn a_proxy_between_transports_names_itself_twice() {
    let mut scene = tcp_scene();
    let phone = Flow::udp(address(PROXY), address(CALLER));
    scene.offer(phone, &invite("UDP", "198.51.100.7:5060"));
    let (backend, forwarded) = scene.open_for("INVITE");
    let routes = forwarded.all("Record-Route");
    assert_eq!(routes.len(), 2, "{routes:?}");
    assert!(routes[0].ends_with("@192.0.2.1:5060;transport=tcp;lr>"), "the nearer one is on top");
    assert!(routes[1].ends_with("@192.0.2.1:5060;lr>"));
    let sent = scene.offer(backend, &forwarded.answer("200 OK"));
    assert_eq!((number_of(sent[0].0), sent[0].1.to), (0, address(CALLER)));
    let bye =
        bye(&routes.join(", "), "TCP").replace("192.168.1.2:5060;transport=tcp", "pc.example");
    let (on, sent) = only(scene.offer(backend, &bye), "BYE");
    assert_eq!((number_of(on), sent.to, sent.from), (0, address(CALLER), address(PROXY)));
}

/// RFC 3261 §16.11: a stateless proxy writes the connection into its Via, so it needs no state.
#[test]
fn without_transactions_a_response_finds_its_connection() {
    let mut scene = scene_over(Transport::Tcp, Mode::Stateless);
    let phone = scene.accept(2, PHONE);
    assert!(scene.offer(phone, &invite("TCP", "192.168.1.2:5060")).is_empty());
    let (backend, forwarded) = scene.open_for("INVITE");
    let sent = scene.offer(backend, &forwarded.answer("200 OK"));
    assert_eq!((sent.len(), number_of(sent[0].0), sent[0].1.start()), (1, 2, "SIP/2.0 200 OK"));
}

/// The sender of a request on a stream does not retransmit it.
///
/// RFC 3261 §16.1: "Requests forwarded between different types of transports where the proxy's TU
/// must take an active role in ensuring reliable delivery on one of the transports MUST be
/// forwarded transaction statefully."
#[test]
fn requests_from_a_stream_are_retransmitted_as_datagrams() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut scene = scene_over(Transport::Udp, mode);
        let phone = scene.accept(2, PHONE);
        let (on, sent) = only(scene.offer(phone, &invite("TCP", "192.168.1.2:5060")), "INVITE");
        assert_eq!((number_of(on), sent.to), (0, address(BACKEND_A)));
        only(scene.pass(Duration::from_millis(501)), "INVITE");
    }
}

/// A back end on a stream sends a final response once. After a provisional response, the caller
/// does not repeat its INVITE. A copy of another request must not be executed again.
///
/// RFC 3261 §16.1: "Requests forwarded between different types of transports where the proxy's TU
/// must take an active role in ensuring reliable delivery on one of the transports MUST be
/// forwarded transaction statefully."
#[test]
fn responses_from_a_stream_are_retransmitted_as_datagrams() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut scene = scene_over(Transport::Tcp, mode);
        let caller = Flow::udp(address(PROXY), address(CALLER));
        scene.offer(caller, &invite("UDP", "198.51.100.7:5060"));
        let (backend, forwarded) = scene.open_for("INVITE");
        only(scene.offer(backend, &forwarded.answer("180 Ringing")), "SIP/2.0 180");
        only(scene.offer(backend, &forwarded.answer("486 Busy Here")), "SIP/2.0 486");
        let (on, busy) = only(scene.pass(Duration::from_millis(501)), "SIP/2.0 486");
        assert_eq!((number_of(on), busy.to), (0, address(CALLER)), "{mode:?}");

        let mut scene = scene_over(Transport::Tcp, mode);
        let message = request("MESSAGE", "sip:bob@192.0.2.1", "m", 1, "");
        scene.offer(caller, &message);
        let (backend, forwarded) = scene.open_for("MESSAGE");
        only(scene.offer(backend, &forwarded.answer("200 OK")), "SIP/2.0 200");
        let sent = scene.offer(caller, &message);
        assert_eq!((sent.len(), sent[0].1.start()), (1, "SIP/2.0 200 OK"), "{mode:?}");
    }
}

/// A request that passes between a stream and datagrams has a transaction, even in a pool without
/// transactions. It must be counted so, because the tiers learn the costs of both kinds.
#[test]
fn a_request_between_transports_counts_as_one_with_state() {
    for (inside, stateless) in [(Transport::Udp, true), (Transport::Tcp, false)] {
        let mut scene = scene_over(inside, Mode::Stateless);
        let caller = Flow::udp(address(PROXY), address(CALLER));
        let bytes = scene.pool.copy(invite("UDP", "198.51.100.7:5060").as_bytes());
        scene.streams.offer(scene.now, Received::new(scene.now, caller, bytes));
        assert!(scene.streams.serve(scene.now));
        assert_eq!(scene.streams.last_work().stateless, stateless, "{inside}");
    }
}

/// RFC 3261 §16.6 item 10: "If the request will be sent to the next hop using a stream-based
/// transport and the copy contains no Content-Length header field, the proxy MUST insert one with
/// the correct value for the body of the request (see Section 20.14)." §18.3: "The Content-Length
/// header field MUST be used with stream oriented transports." A datagram ends by itself.
#[test]
fn a_datagram_without_content_length_gets_one_on_a_stream() {
    let without = |text: String| text.replace("Content-Length: 0\r\n\r\n", "\r\nfour");
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut scene = scene_over(Transport::Tcp, mode);
        let phone = Flow::udp(address(PROXY), address(CALLER));
        scene.offer(phone, &without(invite("UDP", "198.51.100.7:5060")));
        let (_, forwarded) = scene.open_for("INVITE");
        assert_eq!(forwarded.all("Content-Length"), ["4"]);
        assert!(forwarded.text.ends_with("\r\n\r\nfour"));

        let mut scene = scene_over(Transport::Udp, mode);
        let phone = scene.accept(2, PHONE);
        let (_, forwarded) = only(scene.offer(phone, &invite("TCP", "192.168.1.2:5060")), "INVITE");
        let backend = Flow::udp(address(PROXY), address(BACKEND_A));
        // A line that is not a header field does not matter.
        let ok = without(forwarded.answer("200 OK")).replacen("CSeq", "odd line\r\nCSeq", 1);
        let (on, ok) = only(scene.offer(backend, &ok), "SIP/2.0 200");
        assert_eq!((number_of(on), ok.all("Content-Length")), (2, vec!["4"]));
        assert!(ok.text.ends_with("\r\n\r\nfour"));
    }
}

/// A regression: a back end sent a response with two lengths in a datagram. The caller took the
/// second length, and read the rest of the body as the next message on its connection.
#[test]
fn a_datagram_with_two_content_lengths_does_not_reach_a_stream() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut scene = scene_over(Transport::Udp, mode);
        let phone = scene.accept(2, PHONE);
        let (_, forwarded) = only(scene.offer(phone, &invite("TCP", "192.168.1.2:5060")), "INVITE");
        let backend = Flow::udp(address(PROXY), address(BACKEND_A));
        let ok = forwarded.answer("200 OK");
        let two = ok.replace("Content-Length: 0\r\n\r\n", "l: 4\r\nContent-Length: 0\r\n\r\nfour");
        assert!(scene.offer(backend, &two).is_empty());
        let (on, _) = only(scene.offer(backend, &ok), "SIP/2.0 200");
        assert_eq!(number_of(on), 2);
    }
}

/// The sender decides how much of a request the proxy changes: RFC 3261 §16.4, "the proxy MUST
/// remove that value from the request", §16.6 items 2, 3 and 10, §18.2.1 and RFC 3581 §4.
#[test]
fn a_request_is_forwarded_however_much_of_it_changes() {
    let all = [Transport::Tcp, Transport::Udp].into_iter().flat_map(|inside| {
        let modes = [Mode::Stateless, Mode::Transaction];
        modes.into_iter().flat_map(move |mode| (0..0x200u32).map(move |bits| (inside, mode, bits)))
    });
    for (inside, mode, bits) in all {
        let has = |bit: u32| bits & 1 << bit != 0;
        let text = |bit, text: &'static str| if has(bit) { text } else { "" };
        let routes = "Route: <sip:192.0.2.1;lr>\r\n".repeat((bits >> 6) as usize % 8 % 5);
        let request = [
            "INVITE sip:bob@192.0.2.1",
            text(0, ";method=x"),
            " SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.7",
            text(1, ";rport"),
            text(2, ";received=192.0.2.7"),
            ";branch=z9hG4bKa\r\n",
            &routes,
            "From: <sip:a@x>;tag=1\r\nTo: <sip:b@x>\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\n",
            text(3, "Max-Forwards: 70\r\n"),
            text(4, "Max-Breadth: 60\r\n"),
            text(5, "Content-Length: 4\r\n"),
            "\r\nfour",
        ]
        .concat();
        let mut scene = scene_over(inside, mode);
        let mut sent = scene.offer(Flow::udp(address(PROXY), address(CALLER)), &request);
        if inside.is_reliable() {
            sent = scene.open().1;
        }
        let (_, invite) = only(sent, "INVITE sip:bob@192.0.2.1 ");
        assert!(invite.all("Route").is_empty(), "{request}");
        let hops = if has(3) { "69" } else { "70" };
        assert_eq!(invite.all("Max-Forwards"), [hops], "{request}");
        assert_eq!(invite.all("Max-Breadth").len(), 1, "{request}");
        let has_length = has(5) || inside.is_reliable();
        assert_eq!(invite.all("Content-Length"), vec!["4"; has_length.into()], "{request}");
        assert_eq!(invite.all("Via")[1].contains("rport=5060"), has(1), "{request}");
        assert!(invite.text.ends_with("\r\n\r\nfour"), "{request}");
    }
}

/// On one machine callers and back ends have the address of Tidegate.
#[test]
fn a_caller_at_the_address_of_tidegate_and_a_back_end_is_a_stranger() {
    let here = address(PROXY).ip();
    let mut scene = scene_between(
        Transport::Tcp,
        Mode::Transaction,
        [&format!("{here}:5070"), &format!("{here}:5080")],
    );
    let caller = scene.accept(2, &format!("{here}:40123"));
    scene.offer(caller, &invite("TCP", &format!("{here}:5090")));
    let (backend, sent) = scene.open();
    assert_eq!(backend.remote, SocketAddr::new(here, 5070));
    let (_, invited) = only(sent, "INVITE");
    scene.offer(backend, &invited.answer("200 OK"));
    // The Via of a request distinguishes the back end from the caller.
    let own = scene.accept(4, &format!("{here}:41000"));
    let hangup = bye(invited.header("Record-Route"), "TCP");
    for (port, to) in [(5070, 2), (5071, 1)] {
        let hangup = hangup.replace("10.0.0.1:5070", &format!("{here}:{port}"));
        assert_eq!(number_of(only(scene.offer(own, &hangup), "BYE").0), to, "from {port}");
    }
}

/// A back end over UDP and one over TCP are on the machine of Tidegate. A caller behind a reverse
/// proxy on this machine has the same address.
#[test]
fn a_back_end_over_udp_beside_one_over_tcp_is_not_recognised_on_a_connection() {
    let here = address(PROXY).ip();
    let [udp, tcp, free] = [5070, 5080, 40123].map(|port| format!("{here}:{port}"));
    // The port of the caller may by chance be the port of the back end over UDP.
    for (from, sent_by, uri, start) in [
        (&free, &udp, "sip:carol@203.0.113.9", "SIP/2.0 403"),
        (&free, &tcp, "sip:carol@203.0.113.9", "INVITE"),
        (&udp, &free, "sip:bob@192.0.2.1", "INVITE"),
    ] {
        let mut scene = scene_with(Transport::Udp, Mode::Transaction, [&udp, &tcp], |settings| {
            let pool = |at: &str, listener| PoolSettings {
                listener: Some(listener),
                ..PoolSettings::new(balance::Pool::new(at, &[(at, address(at), 1)]), Policy::Rr)
            };
            settings.pools = vec![pool(&udp, 0), pool(&tcp, 1)];
        });
        let caller = scene.accept(2, from);
        let invite = invite("TCP", sent_by).replace("sip:bob@192.0.2.1", uri);
        only(scene.offer(caller, &invite), start);
    }
}

/// The token of a call with a removed back end is known to both parties. On the machine of Tidegate,
/// callers behind a reverse proxy and the back end have the same address.
#[test]
fn a_connection_at_the_address_of_tidegate_is_a_removed_back_end_by_its_via() {
    let here = address(PROXY).ip();
    let [removed, other, third, stranger] =
        [5070, 5080, 5090, 5071].map(|port| format!("{here}:{port}"));
    // On this machine, a back end over UDP has no rights on a connection, removed or not.
    for (inside, sent_by, is_backend) in [
        (Transport::Tcp, &removed, true),
        (Transport::Tcp, &stranger, false),
        (Transport::Udp, &removed, false),
    ] {
        let mut before = scene_between(inside, Mode::Transaction, [&removed, &other]);
        let caller = Flow::udp(address(PROXY), address(CALLER));
        let mut sent = before.offer(caller, &invite("UDP", "198.51.100.7:5060"));
        if inside.is_reliable() {
            sent = before.open().1;
        }
        let (_, invited) = only(sent, "INVITE");
        assert_eq!(invited.to, address(&removed));
        let routes = invited.all("Record-Route").join(", ");

        let adjust = |settings: &mut Settings| settings.removed = vec![address(&removed)];
        let mut scene = scene_with(inside, Mode::Transaction, [&other, &third], adjust);
        let own = scene.accept(2, &format!("{here}:41000"));
        let hangup = bye(&format!("{routes}, <sip:203.0.113.77;lr>"), "TCP");
        let mut sent = scene.offer(own, &hangup.replace("10.0.0.1:5070", sent_by));
        if inside.is_reliable() && !is_backend {
            sent = scene.open().1;
        }
        let to = if is_backend { "203.0.113.77:5060" } else { removed.as_str() };
        assert_eq!(only(sent, "BYE").1.to, address(to), "{inside} from {sent_by}");
    }
}

/// A connection that a back end opens has another port than the back end.
#[test]
fn a_back_end_is_known_on_a_connection_that_it_opened() {
    let mut scene = tcp_scene();
    let (_, backend, forwarded) = called(&mut scene);
    scene.offer(backend, &forwarded.answer("200 OK"));
    let own = scene.accept(4, "10.0.0.1:41000");
    let (on, sent) = only(scene.offer(own, &bye(forwarded.header("Record-Route"), "TCP")), "BYE");
    assert_eq!((number_of(on), sent.to), (2, address(PHONE)));
}

/// RFC 3261 §12.1.1: "The route set MUST be set to the list of URIs in the Record-Route header
/// field from the request": our Record-Route must name the back end that has sent the INVITE, so
/// that the BYE of the callee reaches it. Two back ends of one machine differ only in the Via on
/// the connections that they open. If the Via names neither, the first one counts.
#[test]
fn back_ends_at_one_host_are_distinguished_on_connections_that_they_opened() {
    let backends = [BACKEND_A, "10.0.0.1:5072"];
    for (sent_by, expected) in
        [(BACKEND_A, BACKEND_A), (backends[1], backends[1]), ("10.0.0.1:5074", BACKEND_A)]
    {
        for mode in [Mode::Transaction, Mode::Stateless] {
            let mut scene = scene_between(Transport::Tcp, mode, backends);
            let own = scene.accept(2, "10.0.0.1:41000");
            let invite = invite("TCP", sent_by).replace("bob@192.0.2.1", "carol@203.0.113.9");
            let (_, invited) = only(scene.offer(own, &invite), "INVITE");
            assert_eq!(invited.to, address("203.0.113.9:5060"), "{mode:?} {sent_by}");
            let callee = Flow::udp(address(PROXY), invited.to);
            scene.offer(callee, &invited.answer("200 OK"));
            let routes = invited.all("Record-Route").join(", ");
            let hangup = bye(&routes, "UDP").replace("10.0.0.1:5070", "203.0.113.9:5060");
            let sent = scene.offer(callee, &hangup);
            assert!(sent.is_empty(), "{mode:?} {sent_by}: it waits for a connection: {sent:#?}");
            let (backend, sent) = scene.open();
            assert_eq!(backend.remote, address(expected), "{mode:?} {sent_by}");
            only(sent, "BYE");
        }
    }
}

/// RFC 3261 §16.9: "If the transport layer notifies a proxy of an error when it tries to forward a
/// request (see Section 18.4), the proxy MUST behave as if the forwarded request received a 503".
/// §16.7 item 6 turns it into a 500.
#[test]
fn a_caller_hears_at_once_that_no_back_end_takes_a_connection() {
    let mut scene = tcp_scene();
    let phone = scene.accept(2, PHONE);
    scene.offer(phone, &invite("TCP", "192.168.1.2:5060"));
    let mut sent = Vec::new();
    while let Some(connect) = scene.streams.poll_connect() {
        scene.streams.on_closed(scene.now, connect.id, CloseCause::Refused);
        sent.extend(scene.pass(Duration::ZERO));
    }
    only(sent, "SIP/2.0 500");
}

/// RFC 3261 §16.11: "Response processing as described in Section 16.7 does not apply to a proxy
/// behaving statelessly." So the caller gets the 503 of §16.9 at once, whatever the reason why no
/// connection could be opened.
#[test]
fn without_transactions_a_caller_hears_at_once_that_its_request_was_not_sent() {
    for cause in CloseCause::ALL {
        let mut scene = scene_over(Transport::Tcp, Mode::Stateless);
        let phone = scene.accept(2, PHONE);
        let invite = invite("TCP", "192.168.1.2:5060");
        assert!(scene.offer(phone, &invite).is_empty());
        let connect = scene.streams.poll_connect().expect("one");
        scene.streams.on_closed(scene.now, connect.id, cause);
        let (on, rejection) = only(scene.sent(), "SIP/2.0 503");
        assert_eq!(number_of(on), 2, "{cause:?}");
        // A copy of the request gets the same response, and does not wait for a back end. A back end
        // that refuses connections has failed, so another one would get the copy.
        if cause != CloseCause::Refused {
            let (_, again) = only(scene.offer(phone, &invite), "SIP/2.0 503");
            assert_eq!(again.header("To"), rejection.header("To"), "{cause:?}");
        }
        // §17.1.1.3: the proxy does not forward the ACK.
        let ack = invite.replace("INVITE sip", "ACK sip").replace("1 INVITE", "1 ACK");
        let to = format!("To: {}", rejection.header("To"));
        let ack = ack.replace("To: <sip:bob@example.com>", &to);
        assert!(scene.offer(phone, &ack).is_empty(), "{cause:?}");
    }
}

/// The 503 to the INVITE ends no transaction of the CANCEL.
#[test]
fn without_transactions_a_cancel_that_crosses_the_rejection_has_a_response() {
    let mut scene = scene_over(Transport::Tcp, Mode::Stateless);
    let phone = scene.accept(2, PHONE);
    let invite = invite("TCP", "192.168.1.2:5060");
    scene.offer(phone, &invite);
    let connect = scene.streams.poll_connect().expect("one");
    scene.streams.on_closed(scene.now, connect.id, CloseCause::Insecure);
    only(scene.sent(), "SIP/2.0 503");
    let cancel = invite.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL");
    let mut sent = scene.offer(phone, &cancel);
    if let Some(connect) = scene.streams.poll_connect() {
        scene.streams.on_closed(scene.now, connect.id, CloseCause::Insecure);
        sent.extend(scene.sent());
    }
    assert_eq!(sent.len(), 1, "{sent:#?}");
    assert!(number_of(sent[0].0) == 2 && sent[0].1.header("CSeq").ends_with("CANCEL"), "{sent:#?}");
}

/// The limit on the number of connections is reached.
#[test]
fn without_transactions_a_caller_hears_at_once_that_no_connection_is_left() {
    let limits = ConnectionLimits { opened_max: 0, ..ConnectionLimits::default() };
    let settings = settings(Transport::Tcp, Mode::Stateless, [BACKEND_A, BACKEND_B]);
    let mut scene = Scene::of(settings, limits);
    let phone = scene.accept(2, PHONE);
    let sent = scene.offer(phone, &invite("TCP", "192.168.1.2:5060"));
    assert_eq!(number_of(only(sent, "SIP/2.0 503").0), 2);
}

/// No message is a response to an ACK (RFC 3261 §17.1).
#[test]
fn without_transactions_an_ack_that_was_not_sent_has_no_response() {
    let mut scene = scene_over(Transport::Tcp, Mode::Stateless);
    let phone = scene.accept(2, PHONE);
    scene.offer(phone, &invite("TCP", "192.168.1.2:5060"));
    let (backend, forwarded) = scene.open_for("INVITE");
    scene.offer(backend, &forwarded.answer("200 OK"));
    scene.close(backend, CloseCause::Reset);
    let route = format!("Totag\r\nRoute: {}\r\n", forwarded.header("Record-Route"));
    let within = |method, cseq| {
        let text = request(method, "sip:bob@10.0.0.1:5070", "c", cseq, &route);
        text.replace("SIP/2.0/UDP 198.51.100.7:5060", "SIP/2.0/TCP 192.168.1.2:5060")
    };
    for (method, cseq, answers) in [("ACK", 1, 0), ("BYE", 2, 1)] {
        assert!(scene.offer(phone, &within(method, cseq)).is_empty(), "{method}");
        let connect = scene.streams.poll_connect().expect("one");
        scene.streams.on_closed(scene.now, connect.id, CloseCause::Insecure);
        let sent = scene.sent();
        assert_eq!(sent.len(), answers, "{method}: {sent:#?}");
        assert!(
            sent.iter().all(|(on, sent)| number_of(*on) == 2 && sent.start().contains(" 503 "))
        );
    }
}
