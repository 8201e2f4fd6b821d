//! RFC 5626 §5.3.1: "the proxy removes the Route header field value and forwards the request over
//! the 'logical flow' identified by the flow token, that is known to deliver data to the specific
//! target UA instance." The route token in our Record-Route carries the flow of the party that is
//! not a back end.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::script::{BACKEND_A, BACKEND_B, CALLER, PROXY, Script, Sent, address, request};
use tidegate_balance::Policy;
use tidegate_proxy::{Listener, Mode};
use tidegate_world::Core as _;

/// Returns the BYE of the back end for a caller with this Contact.
fn hangup(contact: &str, routes: &str) -> String {
    format!(
        "BYE {contact} SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1:5070;branch=z9hG4bK-bye\r\n\
         Route: {routes}\r\nFrom: <sip:bob@example.com>;tag=callee\r\n\
         To: <sip:alice@example.com>;tag=caller\r\nCall-ID: c\r\nCSeq: 1 BYE\r\n\
         Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Returns the address to which a BYE from the back end is forwarded, for a caller at `from` with
/// this Via and Contact, or `None` if the BYE is not forwarded.
fn bye_goes_to(mut s: Script, from: &str, via: &str, contact: &str) -> Option<String> {
    let invite =
        request("INVITE", "sip:bob@192.0.2.1", "c", 1, &format!("Contact: <{contact}>\r\n"));
    let invite = invite.replace("198.51.100.7:5060;", &format!("{via};"));
    let sent = s.send(from, &invite);
    let forwarded = sent.iter().find(|sent| sent.start().starts_with("INVITE")).expect("forwarded");
    let ok = forwarded.answer("200 OK");
    let route = forwarded.header("Record-Route").to_owned();
    s.send(BACKEND_A, &ok);
    let sent = s.send(BACKEND_A, &hangup(contact, &route));
    let bye = sent.iter().find(|sent| sent.start().starts_with("BYE"))?;
    assert_eq!(bye.start(), format!("BYE {contact} SIP/2.0"), "the target stays");
    Some(bye.to.to_string())
}

#[track_caller]
fn goes_to(from: &str, via: &str, contact: &str, target: &str) {
    for script in [Script::new(), Script::stateful()] {
        let to = bye_goes_to(script, from, via, contact);
        assert_eq!(to.as_deref(), Some(target), "{from}, Via {via}, Contact {contact}");
    }
}

#[test]
fn a_caller_known_by_name_is_reached_on_its_flow() {
    goes_to(CALLER, "198.51.100.7:5060", "sip:alice@pc33.atlanta.example", CALLER);
    // RFC 3581 §4: the responses to the caller go to this address too.
    goes_to(
        "198.51.100.7:1027",
        "pc33.atlanta.example;rport",
        "sip:alice@pc33.atlanta.example",
        "198.51.100.7:1027",
    );
}

#[test]
fn a_caller_behind_address_translation_is_reached_on_its_flow() {
    let nat = "203.0.113.9:40123";
    goes_to(nat, "192.168.1.2:5060;rport", "sip:alice@192.168.1.2", nat);
    goes_to(nat, "[fd00::2]:5060;rport", "sip:alice@[fd00::2]:5060", nat);
    // The addresses of the caller's own network may look like public ones.
    goes_to(nat, "11.0.0.2:5060;rport", "sip:alice@11.0.0.2", nat);
    goes_to(nat, "11.0.0.2:5060;rport=x", "sip:alice@11.0.0.2", nat);
    // Without `rport`, a private address shows the translation, and requests go to the same address
    // as the responses.
    goes_to(nat, "192.168.1.2:5060", "sip:alice@203.0.113.5", "203.0.113.9:5060");
    goes_to("10.7.7.7:40123", "127.0.0.1:5060", "sip:alice@203.0.113.5", "10.7.7.7:5060");
}

/// RFC 3581 §3: "When the client sends the request, if the request is sent using UDP, the client MUST be
/// prepared to receive the response on the same IP address and port it used to populate the source IP
/// address and source port of the request."
#[test]
fn a_caller_whose_router_changes_only_the_port_is_reached_on_its_flow() {
    let (nat, contact) = ("203.0.113.9:40123", "sip:alice@203.0.113.9:5060");
    goes_to(nat, "203.0.113.9:5060;rport", contact, nat);
    goes_to(nat, "203.0.113.9;rport", contact, nat);
    // Without `rport`, requests go to the same address as the responses.
    goes_to(nat, "203.0.113.9:5060", contact, "203.0.113.9:5060");
    // Another host may be reached although the caller is behind address translation.
    goes_to(nat, "203.0.113.9:5060;rport", "sip:alice@203.0.113.5", "203.0.113.5:5060");
}

/// A listener with a wildcard address has many local addresses. A NAT that filters by address lets a
/// request through only from the address to which the phone has sent.
#[test]
fn a_request_on_a_flow_leaves_from_the_address_to_which_the_caller_sent() {
    let nat = "203.0.113.9:40123";
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = Script::with(Policy::Rr, |settings| {
            let wild = |port: u16| Listener {
                local: (Ipv4Addr::UNSPECIFIED, port).into(),
                advertised: format!("edge.example:{port}"),
                ..Listener::new(address(PROXY))
            };
            settings.pools[0].mode = mode;
            settings.listeners = vec![wild(5060), wild(5080)];
        });
        let contact = "sip:a@192.168.1.2";
        let more = format!("Contact: <{contact}>\r\n");
        let invite = request("INVITE", "sip:bob@192.0.2.77:5080", "c", 1, &more);
        let invite = invite.replace("198.51.100.7:5060;", "192.168.1.2:5060;rport;");
        s.offer_at("192.0.2.77:5080", nat, invite.as_bytes(), 0);
        let sent = s.serve();
        let invite = sent.iter().find(|sent| sent.start().starts_with("INVITE")).expect("it");
        assert_eq!(invite.from, address("0.0.0.0:5080"), "the kernel selects the address");
        let bye = hangup(contact, invite.header("Record-Route"));
        s.offer_at("192.0.2.99:5080", BACKEND_A, invite.answer("200 OK").as_bytes(), 0);
        s.serve();
        s.offer_at("192.0.2.99:5080", BACKEND_A, bye.as_bytes(), 0);
        let sent = s.serve();
        let bye = sent.iter().find(|sent| sent.start().starts_with("BYE")).expect("it");
        assert_eq!((bye.from, bye.to), (address("192.0.2.77:5080"), address(nat)), "{mode:?}");
    }
}

#[test]
fn a_private_contact_of_a_public_caller_leads_to_its_flow() {
    goes_to(CALLER, "198.51.100.7:5060", "sip:alice@10.9.9.9:5062", CALLER);
    goes_to(CALLER, "198.51.100.7:5060", "sip:alice@100.64.0.1", CALLER);
}

/// Addresses to which nothing is sent, and a loopback address. Linux sends a packet for the
/// unspecified address to the machine itself. A multicast or broadcast address would lead into the
/// network of the back ends.
const NOWHERE: [&str; 7] = [
    "0.0.0.0:5080",
    "[::]:5080",
    "127.0.0.1:5080",
    "224.0.1.75",
    "255.255.255.255",
    "198.51.100.7:0",
    "203.0.113.5:0",
];

#[test]
fn a_contact_at_no_single_host_leads_to_the_flow_of_the_caller() {
    for contact in NOWHERE {
        for from in [CALLER, "10.7.7.7:5060"] {
            goes_to(from, from, &format!("sip:alice@{contact}"), from);
        }
    }
}

#[test]
fn a_contact_that_can_be_reached_is_followed() {
    // RFC 3261 §12.2.1.1: the remote target is the Contact, and may be another host or port.
    goes_to(CALLER, "198.51.100.7:5060", "sip:alice@198.51.100.7:5080", "198.51.100.7:5080");
    goes_to(CALLER, "198.51.100.7:5060", "sip:alice@203.0.113.5:5060", "203.0.113.5:5060");
    // Both addresses are in one private network.
    goes_to("10.7.7.7:5060", "10.7.7.7:5060", "sip:alice@10.7.7.8:5060", "10.7.7.8:5060");
    // A trunk may receive at another address than the one from which it sends.
    goes_to(CALLER, "198.51.100.8:5060", "sip:gw@198.51.100.8", "198.51.100.8:5060");
    goes_to("10.7.7.7:5060", "10.7.7.8:5060", "sip:gw@10.7.7.8", "10.7.7.8:5060");
}

/// In a call between two back ends, a request of the called back end must not return to itself.
#[test]
fn a_request_does_not_return_to_its_own_sender() {
    let mut s = Script::stateful();
    let invite =
        request("INVITE", "sip:bob@10.0.0.2:5070", "c", 1, "Contact: <sip:a@10.0.0.1:5070>\r\n");
    let sent = s.send(BACKEND_A, &invite.replace("198.51.100.7:5060", "10.0.0.1:5070"));
    let forwarded = sent.iter().find(|sent| sent.start().starts_with("INVITE")).expect("forwarded");
    let route = forwarded.header("Record-Route").to_owned();
    s.send(BACKEND_B, &forwarded.answer("200 OK"));
    let bye = format!(
        "BYE sip:a@phone.example SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.2:5070;branch=z9hG4bK-bye\r\n\
         Route: {route}\r\nFrom: <sip:bob@example.com>;tag=callee\r\n\
         To: <sip:alice@example.com>;tag=caller\r\nCall-ID: c\r\nCSeq: 1 BYE\r\n\
         Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
    );
    let sent = s.send(BACKEND_B, &bye);
    assert!(
        sent.iter()
            .all(|sent| sent.to.to_string() != BACKEND_B || !sent.start().starts_with("BYE")),
        "{sent:?}"
    );
}

/// Checks that a BYE of the back end goes to `target`, if the INVITE came from `from` with this Via and
/// Record-Route.
#[track_caller]
fn routed_to(from: &str, via: &str, record_route: &str, target: &str) {
    let mut s = Script::new();
    let more = format!("Record-Route: {record_route}\r\n");
    let invite = request("INVITE", "sip:bob@192.0.2.1", "c", 1, &more);
    let sent = s.one(from, &invite.replace("198.51.100.7:5060;", &format!("{via};")));
    let routes = sent.all("Record-Route");
    assert_eq!(routes.len(), 2, "{routes:?}");
    s.send(BACKEND_A, &sent.answer("200 OK"));
    let bye = s.one(BACKEND_A, &hangup("sip:alice@pc.example", &routes.join(", ")));
    assert_eq!(bye.to.to_string(), target, "{from}, Via {via}, Record-Route {record_route}");
    assert_eq!(bye.all("Route"), [record_route], "only our own Route is removed");
    assert!(s.proxy.poll_query().is_none());
}

/// If a stranger writes a host name into its Record-Route, an in-dialog request goes to the flow of
/// the stranger, without a DNS query.
#[test]
fn a_named_route_of_the_other_party_leads_to_its_flow() {
    routed_to(CALLER, "198.51.100.7:5060", "<sip:x1.evil.example;lr>", CALLER);
}

/// A PBX behind address translation writes its inside address into its Record-Route. A stranger could
/// write the address of a host in the network of the back ends.
#[test]
fn a_route_that_leads_nowhere_leads_to_the_flow_of_the_other_party() {
    routed_to(CALLER, "198.51.100.7:5060", "<sip:192.168.1.1;lr>", CALLER);
    routed_to(CALLER, "198.51.100.7:5060", "<sip:10.0.0.9:5080;lr>", CALLER);
    let nat = "203.0.113.9:40123";
    routed_to(nat, "192.168.1.1:5060;rport", "<sip:192.168.1.1;lr>", nat);
    for host in NOWHERE {
        for from in [CALLER, "10.7.7.7:5060"] {
            routed_to(from, from, &format!("<sip:{host};lr>"), from);
        }
    }
    routed_to(CALLER, CALLER, "<sip:203.0.113.5;maddr=0.0.0.0;lr>", CALLER);
}

/// RFC 3261 §16.6: "Otherwise, the proxy MUST apply the procedures to the first value in the Route
/// header field, if present, else the Request-URI."
#[test]
fn a_route_that_can_be_reached_is_followed() {
    routed_to(CALLER, "198.51.100.7:5060", "<sip:203.0.113.5;lr>", "203.0.113.5:5060");
    routed_to(CALLER, "198.51.100.7:5060", "<sip:198.51.100.7:5080;lr>", "198.51.100.7:5080");
    // A trunk may receive at another address than the one from which it sends.
    routed_to(CALLER, "198.51.100.8:5060", "<sip:198.51.100.8;lr>", "198.51.100.8:5060");
    // Both addresses are in one private network.
    routed_to("10.7.7.7:5060", "10.7.7.7:5060", "<sip:10.7.7.8;lr>", "10.7.7.8:5060");
}

/// RFC 6665 §4.1.2.2: "At any time before a subscription expires, the subscriber may refresh the timer on
/// such a subscription by sending another SUBSCRIBE request on the same dialog as the existing
/// subscription." RFC 3261 §12.2: the refresh does not change the route set, so the token is the first one.
#[test]
fn a_subscription_keeps_its_flow_and_its_back_end_for_longer_than_a_day() {
    let (nat, contact) = ("203.0.113.9:40123", "sip:alice@192.168.1.2");
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = Script::with(Policy::Rr, |settings| {
            settings.pools[0].mode = mode;
            settings.start = Duration::from_secs(1_800_000_000);
        });
        let subscribe = |cseq, more: &str| {
            let more = format!("Contact: <{contact}>\r\nEvent: dialog\r\n{more}");
            let text = request("SUBSCRIBE", "sip:bob@192.0.2.1", "c", cseq, &more);
            text.replace("198.51.100.7:5060;", "192.168.1.2:5060;rport;")
        };
        let find = |sent: Vec<Sent>, start: &str| {
            let found = sent.iter().find(|sent| sent.start().starts_with(start)).cloned();
            found.unwrap_or_else(|| panic!("no {start} in {sent:#?}"))
        };
        let out = find(s.send(nat, &subscribe(1, "")), "SUBSCRIBE");
        s.send(&out.to.to_string(), &out.answer("200 OK"));
        s.pass(Duration::from_secs(25 * 3600));
        let route = out.header("Record-Route");
        let notify = hangup(contact, route).replace("BYE", "NOTIFY");
        let notify = find(s.send(&out.to.to_string(), &notify), "NOTIFY");
        assert_eq!(notify.to.to_string(), nat, "{mode:?}");
        let refresh = subscribe(2, &format!("Totag\r\nRoute: {route}\r\n"));
        assert_eq!(find(s.send(nat, &refresh), "SUBSCRIBE").to, out.to, "{mode:?}");
    }
}

#[test]
fn the_wire_shows_no_address_of_the_caller() {
    let mut s = Script::new();
    let sent = s.one(CALLER, &crate::script::invite("c"));
    let token = sent.header("Record-Route").to_owned();
    assert!(!token.contains("198") && token.len() < 100, "{token}");
}
