//! RFC 5626 §5.3.1: "the proxy removes the Route header field value and forwards the request over
//! the 'logical flow' identified by the flow token, that is known to deliver data to the specific
//! target UA instance." The route token in our Record-Route carries the flow of the party that is
//! not a back end.

use crate::script::{BACKEND_A, BACKEND_B, CALLER, Script, request};
use tidegate_world::Core as _;

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
    let bye = format!(
        "BYE {contact} SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1:5070;branch=z9hG4bK-bye\r\n\
         Route: {route}\r\nFrom: <sip:bob@example.com>;tag=callee\r\n\
         To: <sip:alice@example.com>;tag=caller\r\nCall-ID: c\r\nCSeq: 1 BYE\r\n\
         Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
    );
    let sent = s.send(BACKEND_A, &bye);
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
    // RFC 3581 §4: its responses go there too.
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
}

#[test]
fn a_private_contact_of_a_public_caller_leads_to_its_flow() {
    goes_to(CALLER, "198.51.100.7:5060", "sip:alice@10.9.9.9:5062", CALLER);
    goes_to(CALLER, "198.51.100.7:5060", "sip:alice@100.64.0.1", CALLER);
}

#[test]
fn a_contact_that_leads_there_is_followed() {
    // RFC 3261 §12.2.1.1: the remote target is the Contact, and may be another host or port.
    goes_to(CALLER, "198.51.100.7:5060", "sip:alice@198.51.100.7:5080", "198.51.100.7:5080");
    goes_to(CALLER, "198.51.100.7:5060", "sip:alice@203.0.113.5:5060", "203.0.113.5:5060");
    // Both addresses are in one private network.
    goes_to("10.7.7.7:5060", "10.7.7.7:5060", "sip:alice@10.7.7.8:5060", "10.7.7.8:5060");
}

/// A call between two back ends has a back end on either side. Requests of the called one are not
/// for itself.
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

/// A stranger names itself in a Record-Route: the in-dialog request goes to the flow, without a DNS
/// query.
#[test]
fn a_named_route_of_the_other_party_leads_to_its_flow() {
    let mut s = Script::new();
    let invite = request(
        "INVITE",
        "sip:bob@192.0.2.1",
        "c",
        1,
        "Record-Route: <sip:x1.evil.example;lr>\r\n",
    );
    let sent = s.one(CALLER, &invite);
    let routes = sent.all("Record-Route");
    assert_eq!(routes.len(), 2, "{routes:?}");
    let bye = format!(
        "BYE sip:alice@pc.example SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1:5070;branch=z9hG4bK-bye\r\n\
         Route: {}\r\nRoute: {}\r\nFrom: <sip:bob@example.com>;tag=callee\r\n\
         To: <sip:alice@example.com>;tag=caller\r\nCall-ID: c\r\nCSeq: 1 BYE\r\n\
         Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n",
        routes[0], routes[1]
    );
    s.send(BACKEND_A, &sent.answer("200 OK"));
    let bye = s.one(BACKEND_A, &bye);
    assert_eq!(bye.to.to_string(), CALLER);
    assert!(s.proxy.poll_query().is_none());
}

#[test]
fn the_wire_shows_no_address_of_the_caller() {
    let mut s = Script::new();
    let sent = s.one(CALLER, &crate::script::invite("c"));
    let token = sent.header("Record-Route").to_owned();
    assert!(!token.contains("198") && token.len() < 100, "{token}");
}
