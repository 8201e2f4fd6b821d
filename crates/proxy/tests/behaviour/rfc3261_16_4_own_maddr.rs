//! RFC 3261 §16.4, §16.6: parts that a forwarded Request-URI must not have.

use crate::script::{BACKEND_A, BACKEND_B, CALLER, PROXY, Script, Sent, address, request};
use tidegate_balance::Policy;
use tidegate_proxy::{Listener, Rule, RuleTarget, Senders};

fn sent(s: &mut Script, uri: &str, call: &str) -> Sent {
    s.send(CALLER, &request("INVITE", uri, call, 1, "")).pop().unwrap()
}

fn proxies() -> [Script; 2] {
    [Script::new(), Script::stateful()]
}

/// §16.4: "If the Request-URI has a maddr parameter with a value the proxy is responsible for, and
/// the request was received using the port and transport indicated (explicitly or by default) in
/// the Request-URI, the proxy MUST strip the maddr and any non-default port or transport parameter
/// and continue processing as if those values had not been present in the request."
///
/// RFC 3261 §16.11: "A stateless proxy MUST follow the request processing steps described in
/// Sections 16.4 through 16.5 with the following exception:"
#[test]
fn an_maddr_of_ours_is_stripped() {
    for mut s in proxies() {
        for (i, (uri, left)) in [
            ("sip:bob@example.com;maddr=192.0.2.1", "sip:bob@example.com"),
            ("sip:bob@192.0.2.1;maddr=192.0.2.1;user=phone", "sip:bob@192.0.2.1;user=phone"),
            ("sip:bob@x.example:5060;MADDR=192.0.2.1", "sip:bob@x.example:5060"),
        ]
        .into_iter()
        .enumerate()
        {
            let out = sent(&mut s, uri, &format!("c{i}"));
            assert_eq!(out.start(), format!("INVITE {left} SIP/2.0"), "{uri}");
        }
    }
}

/// §16.4: "If the Request-URI contains a maddr parameter, the proxy MUST check to see if its value is
/// in the set of addresses or domains the proxy is configured to be responsible for."
#[test]
fn an_maddr_with_a_further_name_of_ours_is_stripped() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.listeners[0].names = vec!["sip.example.com".to_owned(), "203.0.113.10".to_owned()];
    });
    for (i, maddr) in ["SIP.example.com.", "203.0.113.10"].into_iter().enumerate() {
        let out = sent(&mut s, &format!("sip:bob@x.example;maddr={maddr}"), &format!("c{i}"));
        assert_eq!(out.start(), "INVITE sip:bob@x.example SIP/2.0", "{maddr}");
    }
}

/// The Request-URI has a non-default port, which is removed too.
#[test]
fn the_port_goes_with_the_maddr() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.listeners = vec![
            Listener::new(address(PROXY)),
            Listener {
                advertised: "edge.example:5080".to_owned(),
                ..Listener::new(address("192.0.2.2:5080"))
            },
        ];
    });
    let mut at = |local: &str, uri: &str, call: &str| {
        s.offer_at(local, CALLER, request("INVITE", uri, call, 1, "").as_bytes(), 0);
        s.serve().pop().unwrap()
    };
    let uri = "sip:bob@example.com:5080;maddr=edge.example;transport=udp";
    let out = at("192.0.2.2:5080", uri, "c1");
    assert_eq!(out.start(), "INVITE sip:bob@example.com;transport=udp SIP/2.0");
    // "A request may arrive with a maddr matching the proxy, but on a port or transport different
    // from that indicated in the URI. Such a request needs to be forwarded to the proxy using the
    // indicated port and transport": that would lead back here.
    let elsewhere = at(PROXY, "sip:bob@example.com:5099;maddr=192.0.2.1", "c2");
    assert!(elsewhere.start().starts_with("SIP/2.0 403"), "{}", elsewhere.text);
    let other = at(PROXY, "sip:bob@example.com;maddr=192.0.2.1;transport=tcp", "c3");
    assert!(other.start().starts_with("SIP/2.0 403"), "{}", other.text);
}

/// §16.4: "If the Request-URI contains a maddr parameter, the proxy MUST check to see if its value is
/// in the set of addresses or domains the proxy is configured to be responsible for." A domain of
/// ours does not make us responsible for another address.
#[test]
fn an_maddr_elsewhere_does_not_lead_to_the_pool_of_the_domain() {
    let domains = vec!["example.com".to_owned()];
    let rule = |from| Rule { domains: domains.clone(), ..Rule::new(from, RuleTarget::Pool(0)) };
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.rules = vec![rule(Senders::Any), rule(Senders::Pool)];
    });
    assert_eq!(sent(&mut s, "sip:bob@example.com", "c1").to, address(BACKEND_A));
    // §25.1: a host name may end with a dot.
    assert_eq!(sent(&mut s, "sip:bob@Example.com.", "c0").to, address(BACKEND_B));
    let other = "sip:bob@example.com;maddr=203.0.113.9";
    assert_eq!(s.status(CALLER, &request("INVITE", other, "c2", 1, "")), 403);
    // §16.5: "If the Request-URI of the request contains an maddr parameter, the Request-URI MUST be
    // placed into the target set as the only target URI, and the proxy MUST proceed to Section
    // 16.6."
    let text = request("INVITE", other, "c3", 1, "").replace("198.51.100.7:5060", BACKEND_A);
    let out = s.one(BACKEND_A, &text);
    assert_eq!(
        (out.start(), out.to),
        (&*format!("INVITE {other} SIP/2.0"), address("203.0.113.9:5060"))
    );
}

/// §16.6 item 2: "If the URI contains any parameters not allowed in a Request-URI, they MUST be
/// removed." §19.1.1, table 1: `method`.
#[test]
fn a_method_is_no_part_of_a_request_uri() {
    for mut s in proxies() {
        let out = sent(&mut s, "sip:bob@192.0.2.1;method=REGISTER;x=1", "c1");
        assert_eq!(out.start(), "INVITE sip:bob@192.0.2.1;x=1 SIP/2.0");
    }
}

/// Retransmissions, the ACK and the CANCEL of a branch have the Request-URI of the forwarded INVITE
/// (§9.1, §17.1.1.3).
#[test]
fn all_requests_of_a_branch_have_the_uri_of_the_first() {
    let mut s = Script::stateful();
    let uri = "sip:bob@example.com;method=BYE;maddr=192.0.2.1";
    let out = sent(&mut s, uri, "c1");
    assert_eq!(out.start(), "INVITE sip:bob@example.com SIP/2.0");
    s.pass(std::time::Duration::from_millis(500));
    assert_eq!(s.sent(), std::slice::from_ref(&out));
    s.send(BACKEND_A, &out.answer("180 Ringing"));
    let cancelled = s.send(CALLER, &request("CANCEL", uri, "c1", 1, ""));
    assert!(cancelled.iter().any(|c| c.start() == "CANCEL sip:bob@example.com SIP/2.0"));
    let ended = s.send(BACKEND_A, &out.answer("487 Request Terminated"));
    assert!(ended.iter().any(|c| c.start() == "ACK sip:bob@example.com SIP/2.0"), "{ended:?}");
}

/// §16.12.1.2, §16.6 item 2: the URI of a strict router in a Route becomes the Request-URI.
#[test]
fn a_uri_out_of_a_route_is_cleaned_as_well() {
    let mut s = Script::new();
    let route = "Route: <sip:203.0.113.9;method=BYE;x=1>\r\n";
    let text = request("INVITE", "sip:carol@203.0.113.10", "c1", 1, route);
    let out = s.one(BACKEND_A, &text.replace("198.51.100.7:5060", BACKEND_A));
    assert_eq!(out.start(), "INVITE sip:203.0.113.9;x=1 SIP/2.0");
    assert_eq!(out.all("Route"), ["<sip:carol@203.0.113.10>"]);
}
