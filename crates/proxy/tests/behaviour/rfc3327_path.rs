//! RFC 3327 and RFC 5626 §5: a phone registers through us, and the registrar calls it on the flow of its
//! registration.

use crate::connected::Scene;
use crate::script::{BACKEND_A, CALLER, PROXY, Sent, address, only, request, secret};
use tidegate_proxy::{Listener, Mode, PathMode, Settings};
use tidegate_world::{Cause, CloseCause, Core, Failure, Flow, Transport};

const OUTSIDE: &str = "192.0.2.1:5062";
/// The address that a router gives the phone outside, and the Contact with the address that the
/// phone itself knows.
const PHONE: &str = "203.0.113.9:40123";
const CONTACT: &str = "sip:alice@192.168.1.2:5060";

fn scene_for(mode: Mode) -> Scene {
    scene_with(mode, |_| {})
}

/// Makes a proxy in front of a registrar over UDP, with listeners of each kind for phones.
fn scene_with(mode: Mode, adjust: impl FnOnce(&mut Settings)) -> Scene {
    let listeners = [
        (Transport::Udp, PROXY),
        (Transport::Udp, OUTSIDE),
        (Transport::Tcp, OUTSIDE),
        (Transport::Wss, "192.0.2.1:443"),
    ];
    Scene::in_front(&listeners, mode, adjust)
}

impl Scene {
    /// Returns the flow of a phone, with a connection if it needs one.
    fn phone(&mut self, transport: Transport) -> Flow {
        self.phone_at(transport, PHONE, 2)
    }

    fn phone_at(&mut self, transport: Transport, remote: &str, number: u32) -> Flow {
        let local = if transport.is_websocket() { "192.0.2.1:443" } else { OUTSIDE };
        if transport == Transport::Udp {
            return Flow::udp(address(local), address(remote));
        }
        self.accept_by(transport, local, remote, number)
    }

    /// Registers a phone. Returns the REGISTER as the registrar gets it.
    fn register(&mut self, phone: Flow, more: &str) -> Sent {
        only(self.send(phone, &register(phone.transport, more)), "REGISTER").1
    }
}

fn registrar() -> Flow {
    Flow::udp(address(PROXY), address(BACKEND_A))
}

fn register(transport: Transport, more: &str) -> String {
    let contact =
        if more.contains("Contact:") { "" } else { "Contact: <sip:alice@192.168.1.2:5060>\r\n" };
    let text = request("REGISTER", "sip:192.0.2.1", "r", 1, &format!("{contact}{more}"));
    text.replace("SIP/2.0/UDP 198.51.100.7:5060", &format!("SIP/2.0/{transport} 192.168.1.2;rport"))
}

/// Returns a request of the registrar for the phone, with these Routes.
fn inward(method: &str, routes: &[&str], more: &str) -> String {
    let routes = routes.join(", ");
    let text = request(method, CONTACT, "c", 1, &format!("Route: {routes}\r\n{more}"));
    text.replace("198.51.100.7:5060", BACKEND_A)
}

const SUPPORTED: &str = "Supported: gruu, Path\r\n";
const OUTBOUND: &str = "Supported: path, outbound\r\n\
    Contact: <sip:alice@192.168.1.2:5060;ob>;+sip.instance=\"<urn:uuid:1>\";reg-id=1\r\n";

/// RFC 3327 §5.2: "When a proxy processing a REGISTER request wishes to be on the path for future requests
/// toward the UA originating that REGISTER request, the proxy inserts a URI for that proxy as the topmost
/// value in the Path header field (or inserts a new topmost Path header) before proxying that request."
///
/// RFC 3327 §4: "such values MUST include the loose-routing indicator parameter ";lr" for full compliance
/// with [1]."
///
/// RFC 5626 §5.1: "In addition, if the edge proxy is the first SIP node after the UAC, the edge proxy either
/// MUST store a "flow token" (containing information about the flow from the previous hop) in its Path URI or
/// reject the request."
///
/// RFC 5626 §5.3.1: the request leaves on the flow of the registration, with every transport and mode.
#[test]
fn a_call_of_the_registrar_takes_the_flow_of_the_registration() {
    for mode in [Mode::Transaction, Mode::Stateless, Mode::Adaptive] {
        for transport in [Transport::Udp, Transport::Tcp, Transport::Wss] {
            let mut scene = scene_for(mode);
            let phone = scene.phone(transport);
            let registered =
                scene.register(phone, &format!("{SUPPORTED}Path: <sip:p.test;lr>\r\n"));
            let paths = registered.all("Path");
            assert_eq!(paths.len(), 2, "{}", registered.text);
            // The Path names the listener on the side of the registrar, which has no other
            // transport.
            assert!(paths[0].starts_with("<sip:") && paths[0].ends_with("@192.0.2.1:5060;lr>"));
            assert!(!paths[0].contains("203") && paths[1] == "<sip:p.test;lr>");
            // RFC 3327 §5.2: "Proxies processing a REGISTER response SHOULD NOT alter any Path header field
            // values that may be present in the response."
            let path = format!("Path: {}\r\nContent-Length: 0", paths.join(", "));
            let ok = registered.answer("200 OK").replace("Content-Length: 0", &path);
            let (to, ok) = only(scene.send(registrar(), &ok), "SIP/2.0 200");
            assert_eq!((to.remote, to.connection), (phone.remote, phone.connection));
            assert_eq!(ok.header("Path"), paths.join(", "));

            let (to, invite) =
                only(scene.send(registrar(), &inward("INVITE", &paths, "")), "INVITE");
            assert_eq!((to.remote, to.connection), (phone.remote, phone.connection));
            assert_eq!(to.local, phone.local);
            assert_eq!(invite.start(), format!("INVITE {CONTACT} SIP/2.0"));
            assert_eq!(invite.all("Route"), ["<sip:p.test;lr>"]);
            let (to, ok) = only(scene.send(phone, &invite.answer("200 OK")), "SIP/2.0 200");
            assert_eq!(to.remote, address(BACKEND_A));

            // RFC 5626 §5.3.1: "the proxy needs to adjust the route set to ensure that subsequent requests
            // in the dialog can be delivered over a valid flow to the UA instance identified by the flow
            // token."
            // RFC 3261 §12.1.2: the route set is "in reverse order".
            let routes: Vec<_> = ok.all("Record-Route").into_iter().rev().collect();
            for (method, cseq) in [("ACK", 1), ("BYE", 2)] {
                let text = inward(method, &routes, "Totag\r\n");
                let text = text.replace("CSeq: 1", &format!("CSeq: {cseq}"));
                let (to, sent) = only(scene.send(registrar(), &text), method);
                assert_eq!(
                    (to.local, to.remote, to.connection),
                    (phone.local, phone.remote, phone.connection)
                );
                assert!(sent.all("Route").is_empty(), "{}", sent.text);
            }
            assert_eq!(scene.counters.paths_added.get(), 1);
            assert_eq!(scene.counters.registered_flows.get(), 3);
            assert!(scene.streams.poll_connect().is_none());
        }
    }
}

/// RFC 3261 §16.11: the branch "MUST be the same each time a retransmitted request is forwarded". So
/// a stateless proxy forwards each copy of a request, but the metrics count the request once.
#[test]
fn a_copy_of_a_request_on_a_registered_flow_is_not_counted() {
    let mut scene = scene_for(Mode::Stateless);
    let phone = scene.phone(Transport::Udp);
    let paths = [0; 2].map(|_| scene.register(phone, SUPPORTED).header("Path").to_owned());
    let invite = inward("INVITE", &[&paths[0]], "");
    for _ in 0..2 {
        only(scene.send(registrar(), &invite), "INVITE");
    }
    let counters = &scene.counters;
    assert_eq!((counters.paths_added.get(), counters.registered_flows.get()), (1, 1));
    assert_eq!(counters.retransmissions.get(), 2);
}

/// RFC 5626 §5.1: "The flow token MUST be an identifier that is unique to this network flow." A
/// listener with a wildcard address has a flow for each local address.
#[test]
fn a_call_leaves_from_the_address_to_which_the_phone_has_registered() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_with(mode, |settings| {
            let advertised = OUTSIDE.into();
            let wild = Listener::new(address("0.0.0.0:5062"));
            settings.listeners[1] = Listener { advertised, ..wild };
        });
        let phone = Flow::udp(address("192.0.2.9:5062"), address(PHONE));
        let registered = scene.register(phone, SUPPORTED);
        let invite = inward("INVITE", &registered.all("Path"), "");
        let (to, invite) = only(scene.send(registrar(), &invite), "INVITE");
        assert_eq!(to, phone, "{mode:?}");
        let (_, ok) = only(scene.send(phone, &invite.answer("200 OK")), "SIP/2.0 200");
        let routes: Vec<_> = ok.all("Record-Route").into_iter().rev().collect();
        let bye = inward("BYE", &routes, "Totag\r\n").replace("CSeq: 1", "CSeq: 2");
        assert_eq!(only(scene.send(registrar(), &bye), "BYE").0, phone, "{mode:?}");
    }
}

/// The Contact of a phone, or a Route behind ours, may be another address that can be reached. But
/// the phone has registered the flow, so requests leave on the flow.
#[test]
fn requests_in_the_dialog_take_the_flow_whatever_the_contact_is() {
    for contact in ["sip:alice@203.0.113.9:5080", "sip:alice@198.51.100.1"] {
        let mut scene = scene_for(Mode::Transaction);
        let phone = scene.phone(Transport::Udp);
        let registered = scene.register(phone, SUPPORTED);
        let invite = inward("INVITE", &registered.all("Path"), "").replace(CONTACT, contact);
        let (_, invite) = only(scene.send(registrar(), &invite), "INVITE");
        let (_, ok) = only(scene.send(phone, &invite.answer("200 OK")), "SIP/2.0 200");
        let mut routes = ok.all("Record-Route");
        let bye = inward("BYE", &routes, "Totag\r\n").replace(CONTACT, contact);
        assert_eq!(only(scene.send(registrar(), &bye), "BYE").0, phone);
        routes.push("<sip:198.51.100.1;lr>");
        let info = inward("INFO", &routes, "Totag\r\n").replace(CONTACT, contact);
        assert_eq!(only(scene.send(registrar(), &info), "INFO").0, phone);
    }
}

/// RFC 5626 §4.3: by `ob` in its Contact, a caller asks for requests on its flow.
///
/// RFC 5626 §5.3.2: "the edge proxy can use the presence of the "ob" URI parameter in the UAC's Contact URI
/// (or topmost Route header field) to determine if the edge proxy needs to assist in mid-dialog request
/// routing."
#[test]
fn a_caller_with_ob_in_its_contact_is_reached_on_its_flow() {
    for (contact, is_flow) in
        [("sip:alice@198.51.100.7:5080;ob", true), ("sip:alice@198.51.100.7:5080", false)]
    {
        let mut scene = scene_for(Mode::Transaction);
        let caller = Flow::udp(address(OUTSIDE), address(CALLER));
        let invite =
            request("INVITE", "sip:bob@192.0.2.1", "c", 1, &format!("Contact: <{contact}>\r\n"));
        let (_, invite) = only(scene.send(caller, &invite), "INVITE");
        let (_, ok) = only(scene.send(registrar(), &invite.answer("200 OK")), "SIP/2.0 200");
        let bye = inward("BYE", &ok.all("Record-Route"), "").replace(CONTACT, contact);
        let bye = bye.replace("alice@example.com>;tag=caller", "bob@example.com>;tag=callee");
        let bye =
            bye.replace("To: <sip:bob@example.com>", "To: <sip:alice@example.com>;tag=caller");
        let (to, _) = only(scene.send(registrar(), &bye), "BYE");
        assert_eq!(to.remote == address(CALLER), is_flow, "{contact}");
    }
}

/// RFC 3327 §5.2: "Intermediate proxies SHOULD NOT add a Path header field to a request unless the UA has
/// indicated support for this extension with a Supported header field value."
///
/// RFC 5626 §5.1: "In addition, the first node MUST include an "ob" URI parameter in its Path header field
/// value." "If the edge proxy is not the first SIP node after the UAC it MUST NOT place an "ob" URI
/// parameter in a Path header field value." "If the edge proxy is the first hop, as indicated by the Via
/// header field, it MUST insert its URI in a Path header field value as described in [RFC3327]."
#[test]
fn the_user_agent_or_the_operator_decides_on_the_path() {
    let second = format!("{OUTBOUND}Via: SIP/2.0/UDP 192.168.1.3;branch=z9hG4bK-below\r\n");
    let no_instance = "Supported: path\r\nContact: <sip:alice@192.168.1.2:5060>;reg-id=1\r\n";
    let no_tag = OUTBOUND.replace("path, ", "");
    let compact = "k: timer ,PATH, x\r\n";
    let [supported, always, never] = [PathMode::Supported, PathMode::Always, PathMode::Never];
    for (path, more, expected) in [
        (supported, "", None),
        (supported, "Supported: pathology\r\n", None),
        (supported, SUPPORTED, Some("lr>")),
        (supported, compact, Some("lr>")),
        (supported, OUTBOUND, Some("lr;ob>")),
        (supported, &no_tag, Some("lr;ob>")),
        (supported, &second, Some("lr>")),
        (supported, no_instance, Some("lr>")),
        (always, "", Some("lr>")),
        (always, OUTBOUND, Some("lr;ob>")),
        (never, OUTBOUND, None),
    ] {
        let mut scene = scene_with(Mode::Transaction, |settings| settings.pools[0].path = path);
        let phone = scene.phone(Transport::Udp);
        let registered = scene.register(phone, more);
        let end = registered.all("Path").first().map(|path| path.rsplit_once("5060;").unwrap().1);
        assert_eq!(end, expected, "{path:?} {more}");
        assert_eq!(scene.counters.paths_added.get(), u64::from(expected.is_some()));
        // Only a REGISTER registers.
        let options = register(Transport::Udp, SUPPORTED).replace("REGISTER", "OPTIONS");
        let (_, options) =
            only(scene.send(phone, &options.replace("sip:192", "sip:bob@192")), "OPTIONS");
        assert!(options.all("Path").is_empty());
    }
}

/// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed) response to the
/// request."
#[test]
fn a_request_for_a_flow_that_has_ended_gets_430() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        for transport in [Transport::Tcp, Transport::Wss] {
            let mut scene = scene_for(mode);
            let phone = scene.phone(transport);
            let registered = scene.register(phone, SUPPORTED);
            let paths = registered.all("Path");
            scene.close(phone, CloseCause::Ended);
            // Another phone at the same address is another flow.
            scene.phone_at(transport, PHONE, 3);
            only(scene.send(registrar(), &inward("INVITE", &paths, "")), "SIP/2.0 430 ");
            only(scene.send(registrar(), &inward("OPTIONS", &paths, "")), "SIP/2.0 430 ");

            // A process that has just started has none of the connections.
            let mut next = scene_with(mode, |settings| settings.seed = tidegate_world::Seed(9));
            next.phone(transport);
            only(next.send(registrar(), &inward("OPTIONS", &paths, "")), "SIP/2.0 430 ");
            assert!(
                next.streams.poll_connect().is_none() && scene.streams.poll_connect().is_none()
            );
        }
        // The next process can reach a phone over UDP.
        let mut scene = scene_for(mode);
        let phone = scene.phone(Transport::Udp);
        let registered = scene.register(phone, SUPPORTED);
        let mut next = scene_with(mode, |settings| settings.seed = tidegate_world::Seed(9));
        let text = inward("OPTIONS", &registered.all("Path"), "");
        assert_eq!(only(next.send(registrar(), &text), "OPTIONS").0, phone);
    }
}

/// A token names a listener by its place. RFC 5626 §5.3.1: "If the flow no longer exists, the proxy
/// SHOULD send a 430 (Flow Failed) response to the request."
#[test]
fn a_phone_over_udp_gets_430_if_its_place_has_no_udp_listener_after_a_restart() {
    let mut scene = scene_for(Mode::Transaction);
    let phone = scene.phone(Transport::Udp);
    let registered = scene.register(phone, SUPPORTED);
    let text = inward("OPTIONS", &registered.all("Path"), "");
    let after = |change: fn(&mut Settings)| {
        let mut next = scene_with(Mode::Transaction, |settings| {
            settings.seed = tidegate_world::Seed(9);
            change(settings);
        });
        next.send(registrar(), &text)
    };
    only(after(|settings| settings.listeners.swap(1, 2)), "SIP/2.0 430 ");
    only(after(|settings| settings.listeners.truncate(1)), "SIP/2.0 430 ");
    // The proxy cannot detect that another UDP listener has the index of the old one. A NAT that
    // knows only the old flow drops the request.
    let sent = after(|settings| {
        settings.listeners.swap(0, 1);
        settings.pools[0].listener = Some(1);
    });
    let (flow, _) = only(sent, "OPTIONS");
    assert_eq!(flow, Flow::udp(address(PROXY), phone.remote));
}

/// RFC 5626 §7 names "a destination unreachable ICMP error on a UDP flow" as a failed flow.
#[test]
fn an_unreachable_phone_gets_430_over_udp_too() {
    let mut scene = scene_for(Mode::Transaction);
    let phone = scene.phone(Transport::Udp);
    let registered = scene.register(phone, SUPPORTED);
    let text = inward("OPTIONS", &registered.all("Path"), "");
    let (to, options) = only(scene.send(registrar(), &text), "OPTIONS");
    scene.streams.on_failed(scene.now, Failure::new(to, Cause::Refused, options.text.as_bytes()));
    scene.now = scene.now + std::time::Duration::from_millis(600);
    // The next message lets the timer fire.
    let sent = scene.send(registrar(), "\r\n\r\n");
    only(sent, "SIP/2.0 430 ");
}

/// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed) response to the
/// request." Strangers that open and end many connections must not hide the end of the phone's connection.
#[test]
fn the_ends_of_other_connections_do_not_hide_that_of_the_phone() {
    let mut scene = scene_for(Mode::Transaction);
    let phone = scene.phone(Transport::Tcp);
    let registered = scene.register(phone, SUPPORTED);
    let text = inward("INVITE", &registered.all("Path"), "");
    assert_eq!(only(scene.send(registrar(), &text), "INVITE").0, phone);
    scene.close(phone, CloseCause::Ended);
    for number in 2..200 {
        let stranger = scene.phone_at(Transport::Tcp, "198.51.100.66:40000", 2 * number);
        only(scene.send(stranger, "\r\n\r\n"), "");
        scene.close(stranger, CloseCause::Ended);
    }
    scene.now = scene.now + std::time::Duration::from_millis(600);
    // The next message lets the timer fire.
    only(scene.send(registrar(), "\r\n\r\n"), "SIP/2.0 430 ");
}

/// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed) response to the
/// request." This also applies to a request that waited because the phone read too slowly.
#[test]
fn a_request_that_waited_for_a_flow_gets_430_when_the_flow_ends() {
    for cause in [CloseCause::Reset, CloseCause::TimedOut] {
        let mut scene = scene_for(Mode::Transaction);
        let phone = scene.phone(Transport::Tcp);
        let path = scene.register(phone, SUPPORTED).header("Path").to_owned();
        let long = format!("Content-Length: 40000\r\n\r\n{}", "x".repeat(40_000));
        // Two long requests use up the window of the connection.
        for number in 0..2 {
            let text = inward("MESSAGE", &[&path], "")
                .replace("z9hG4bK-c-", &format!("z9hG4bK-{number}-"))
                .replace("Call-ID: c", &format!("Call-ID: {number}"))
                .replace("Content-Length: 0\r\n\r\n", &long);
            only(scene.send(registrar(), &text), "MESSAGE");
        }
        let sent = scene.send(registrar(), &inward("INVITE", &[&path], ""));
        assert!(sent.iter().all(|(to, _)| to.remote != phone.remote), "{sent:#?}");
        scene.close(phone, cause);
        let (_, answer) = only(scene.send(registrar(), "\r\n\r\n"), "SIP/2.0 430 ");
        assert!(answer.header("CSeq").ends_with("INVITE"), "{cause:?}");
    }
}

/// RFC 5626 §5.3.1: "If the flow token has been tampered with, the proxy SHOULD send a 403 (Forbidden)
/// response."
///
/// A stranger that has read a token cannot use us as a relay.
#[test]
fn only_the_registrar_uses_a_token_and_nobody_changes_it() {
    let mut scene = scene_for(Mode::Transaction);
    let phone = scene.phone(Transport::Udp);
    let registered = scene.register(phone, SUPPORTED);
    let path = registered.header("Path").to_owned();
    let stranger = Flow::udp(address(OUTSIDE), address("198.51.100.66:5060"));
    let by_stranger =
        |path: &str| inward("OPTIONS", &[path], "").replace(BACKEND_A, "198.51.100.66:5060");
    only(scene.send(stranger, &by_stranger(&path)), "SIP/2.0 403 ");

    let (start, end) = path.split_at(12);
    let changed = if end.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{start}{changed}{}", &end[1..]);
    only(scene.send(registrar(), &inward("OPTIONS", &[&forged], "")), "SIP/2.0 403 ");
    only(scene.send(stranger, &by_stranger(&forged)), "SIP/2.0 403 ");
    let other = scene_with(Mode::Transaction, |settings| settings.secret = secret(2))
        .register(phone, SUPPORTED);
    only(scene.send(registrar(), &inward("OPTIONS", &other.all("Path"), "")), "SIP/2.0 403 ");

    // RFC 5626 §5.3: "If the flow in the flow token identified by the topmost Route header field value
    // matches the source IP address and port of the request, the request is an "outgoing" request;
    // otherwise, it is an "incoming" request."
    let outgoing = inward("OPTIONS", &[&path], "").replace(CONTACT, "sip:bob@192.0.2.1");
    let (to, sent) = only(scene.send(phone, &outgoing), "OPTIONS");
    assert_eq!(to.remote, address(BACKEND_A));
    assert!(sent.all("Route").is_empty());
    // A flow token does not allow a phone to use this proxy as a relay.
    let further = "<sip:203.0.113.99;lr>";
    let relayed = inward("OPTIONS", &[&path, further], "").replace(CONTACT, "sip:bob@192.0.2.1");
    let relayed = relayed.replace("z9hG4bK-c", "z9hG4bK-d").replace("Call-ID: c", "Call-ID: d");
    only(scene.send(phone, &relayed), "SIP/2.0 403 ");
}

/// RFC 3261 §16.6 item 7: "the proxy MUST apply the procedures to the first value in the Route
/// header field, if present": behind the token of the sender's own flow is a Service-Route (RFC
/// 3608).
#[test]
fn an_outgoing_request_of_a_trusted_phone_goes_to_its_next_route() {
    let mut scene = scene_with(Mode::Transaction, |settings| {
        settings.listeners[1].trust = vec!["203.0.113.9/32".parse().unwrap()];
    });
    let phone = scene.phone(Transport::Udp);
    let registered = scene.register(phone, SUPPORTED);
    let next = "<sip:198.51.100.99;lr>";
    let text = inward("INVITE", &[registered.header("Path"), next], "");
    let text = text.replace(CONTACT, "sip:bob@192.0.2.1").replace(BACKEND_A, PHONE);
    let (to, sent) = only(scene.send(phone, &text), "INVITE");
    assert_eq!(to.remote, address("198.51.100.99:5060"));
    assert_eq!(sent.all("Route"), [next]);
}

/// A registrar that a trusted source runs may be outside the pools.
///
/// RFC 5626 §5.3.1: "the proxy needs to adjust the route set to ensure that subsequent requests in the dialog
/// can be delivered over a valid flow to the UA instance identified by the flow token."
#[test]
fn a_trusted_source_may_use_a_token() {
    for (mode, is_shared) in
        [(Mode::Transaction, false), (Mode::Stateless, false), (Mode::Transaction, true)]
    {
        for transport in [Transport::Udp, Transport::Tcp, Transport::Wss] {
            call_by_trusted_source(mode, is_shared, transport);
        }
    }
}

/// Checks a call of a trusted source to a phone that has registered over `transport`. Several
/// instances share the listener of the source if `is_shared`.
fn call_by_trusted_source(mode: Mode, is_shared: bool, transport: Transport) {
    let mut scene = scene_with(mode, |settings| {
        settings.listeners[0].trust = vec!["198.51.100.66/31".parse().unwrap()];
        settings.listeners[0].shared = is_shared;
    });
    let [trusted, another] = ["198.51.100.66:5060", "198.51.100.67:5060"]
        .map(|host| Flow::udp(address(PROXY), address(host)));
    let by = |flow: Flow, text: String| text.replace(BACKEND_A, &flow.remote.to_string());
    let phone = scene.phone(transport);
    let registered = scene.register(phone, SUPPORTED);
    let invite = by(trusted, inward("INVITE", &registered.all("Path"), ""));
    let (to, invite) = only(scene.send(trusted, &invite), "INVITE");
    assert_eq!(to, phone, "{mode:?}");
    let (to, ok) = only(scene.send(phone, &invite.answer("200 OK")), "SIP/2.0 200");
    assert_eq!(to.remote, trusted.remote, "{mode:?} {transport}");

    // RFC 3261 §12.1.2: the route set of the caller is "in reverse order".
    let routes: Vec<_> = ok.all("Record-Route").into_iter().rev().collect();
    for (from, method, cseq) in [(trusted, "ACK", 1), (another, "INFO", 2), (trusted, "BYE", 3)] {
        let text = inward(method, &routes, "Totag\r\n");
        let text = by(from, text.replace("CSeq: 1", &format!("CSeq: {cseq}")));
        let (to, sent) = only(scene.send(from, &text), method);
        assert_eq!(to, phone, "{mode:?} {method}");
        assert!(sent.all("Route").is_empty(), "{}", sent.text);
    }
    let to = hang_up(&mut scene, phone, &invite);
    assert_eq!(to.remote, trusted.remote, "{mode:?} {transport}");
}

/// Lets a phone send a BYE in the dialog of this INVITE. Returns the flow on which the BYE leaves.
fn hang_up(scene: &mut Scene, phone: Flow, invite: &Sent) -> Flow {
    let routes = invite.all("Record-Route").join(", ");
    let bye = request("BYE", "sip:bob@10.9.9.9", "c", 1, &format!("Totag\r\nRoute: {routes}\r\n"));
    let via = format!("SIP/2.0/{} 192.168.1.2;rport", phone.transport);
    only(scene.send(phone, &bye.replace("SIP/2.0/UDP 198.51.100.7:5060", &via)), "BYE").0
}

/// A regression: if the phone was in `trust`, its BYE was sent to the phone itself.
///
/// RFC 3261 §20.30: "The Record-Route header field is inserted by proxies in a request to force future
/// requests in the dialog to be routed through the proxy." Those of the phone go to the other party,
/// whichever connection they use, also after the phone has changed its network.
#[test]
fn a_phone_with_another_connection_reaches_its_trusted_caller() {
    let another = ["203.0.113.9:40999", "198.51.100.20:40999"];
    let on = |transport| another.map(|remote| (transport, remote));
    for (transport, remote) in [Transport::Tcp, Transport::Wss].into_iter().flat_map(on) {
        let mut scene = scene_with(Mode::Transaction, |settings| {
            for listener in &mut settings.listeners {
                let trust = ["198.51.100.66/32", "203.0.113.9/32"];
                listener.trust = vec![trust[0].parse().unwrap(), trust[1].parse().unwrap()];
            }
        });
        let caller = Flow::udp(address(PROXY), address("198.51.100.66:5060"));
        let phone = scene.phone(transport);
        let registered = scene.register(phone, SUPPORTED);
        let invite = inward("INVITE", &registered.all("Path"), "");
        let invite = invite.replace(BACKEND_A, "198.51.100.66:5060");
        let (to, invite) = only(scene.send(caller, &invite), "INVITE");
        assert_eq!(to, phone);
        scene.send(phone, &invite.answer("200 OK"));
        scene.close(phone, CloseCause::Ended);
        let phone = scene.phone_at(transport, remote, 4);
        let to = hang_up(&mut scene, phone, &invite);
        assert_eq!(to.remote, caller.remote, "{transport} {remote}");
    }
}

/// Another instance sends a datagram from a shared address, so the Path names this address.
#[test]
fn a_path_names_the_address_that_instances_share_for_datagrams() {
    let mut scene = scene_with(Mode::Transaction, |settings| {
        settings.listeners[1].shared = true;
    });
    let phone = scene.phone(Transport::Udp);
    assert!(scene.register(phone, SUPPORTED).header("Path").ends_with("@192.0.2.1:5062;lr>"));
    let mut scene = scene_with(Mode::Transaction, |settings| settings.listeners[2].shared = true);
    let phone = scene.phone(Transport::Tcp);
    assert!(scene.register(phone, SUPPORTED).header("Path").ends_with("@192.0.2.1:5060;lr>"));
}
