//! Tests of routing permissions. Strangers reach only pools. Back ends and trusted sources also
//! reach addresses. A request belongs to a dialog only if its token or its tags prove this.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::script::*;
use tidegate_balance::Policy;
use tidegate_proxy::{Class, Listener, Rule, RuleTarget, Secret, Senders, TokenKey, TokenKeys};
use tidegate_world::Core as _;

const PEER: &str = "203.0.113.50:5060";
const TRUSTED: &str = "203.0.114.1:5060";

#[test]
fn a_stranger_asking_to_be_relayed_elsewhere_is_rejected() {
    let mut script = Script::new();
    let elsewhere =
        ["sip:x@203.0.113.9", "sip:x@192.0.2.1:9999", "sip:[2001:db8::7]", "sip:x@10.0.0.1:5070"];
    for (i, uri) in elsewhere.into_iter().enumerate() {
        assert_eq!(
            script.status(CALLER, &request("INVITE", uri, &format!("u{i}"), 1, "")),
            403,
            "{uri}"
        );
    }
    for route in [
        "<sip:203.0.113.9;lr>",
        "<sip:192.0.2.1;lr>, <sip:203.0.113.9;lr>",
        "<sip:evil.example;lr>",
    ] {
        let more = format!("Route: {route}\r\n");
        assert_eq!(
            script.status(CALLER, &request("MESSAGE", "sip:bob@192.0.2.1", "r1", 1, &more)),
            403,
            "{route}"
        );
    }
    // A name may be a domain of the pool, and a Route may name an outbound proxy.
    assert_eq!(
        script.one(CALLER, &request("INVITE", "sip:bob@example.com", "n1", 1, "")).to,
        address(BACKEND_A)
    );
    let outbound =
        request("INVITE", "sip:bob@example.com", "n2", 1, "Route: <sip:192.0.2.1;lr>\r\n");
    let sent = script.one(CALLER, &outbound);
    assert!(sent.all("Route").is_empty() && sent.to == address(BACKEND_B));
}

// RFC 3261 §21.4.19: 481 "Call/Transaction Does Not Exist".
#[test]
fn a_to_tag_alone_proves_nothing() {
    let mut script = Script::new();
    for method in ["INVITE", "BYE", "INFO", "SUBSCRIBE"] {
        let text = request(method, "sip:bob@192.0.2.1", "forged", 2, "Totag\r\n");
        assert_eq!(script.status(CALLER, &text), 481, "{method}");
    }
    assert_eq!(
        script.status(CALLER, &request("CANCEL", "sip:bob@192.0.2.1", "forged", 1, "")),
        481
    );
    let counters = Arc::clone(&script.counters);
    assert_eq!(
        (counters.received(Class::InDialog).get(), counters.received(Class::Invite).get()),
        (0, 1)
    );
}

/// Sets up a call and returns the Record-Route value that the caller got.
fn call(script: &mut Script, call: &str) -> (Sent, String) {
    let sent = script.one(CALLER, &invite(call));
    let route = sent.header("Record-Route").to_owned();
    let ok = script.one(&sent.to.to_string(), &sent.answer("200 OK"));
    assert_eq!(ok.header("Record-Route"), route);
    (sent, route)
}

#[test]
fn a_dialog_finds_its_back_end_after_a_restart() {
    let mut before = Script::new();
    let (sent_a, route_a) = call(&mut before, "a");
    let (sent_b, route_b) = call(&mut before, "b");
    assert_ne!(sent_a.to, sent_b.to);

    let mut after = Script::new();
    for (name, route, to) in [("b", &route_b, sent_b.to), ("a", &route_a, sent_a.to)] {
        let more = format!("Totag\r\nRoute: {route}\r\n");
        for (method, cseq) in [("ACK", 1), ("INVITE", 2), ("BYE", 3)] {
            let sent = after.one(CALLER, &request(method, "sip:bob@10.0.0.9", name, cseq, &more));
            assert_eq!(sent.to, to, "{method} of {name}");
            assert!(sent.all("Route").is_empty());
        }
    }
    assert_eq!(after.counters.received(Class::InDialog).get(), 2, "the re-INVITEs");

    // The branch alone routes the back end's response, because the new process has no state.
    let more = format!("Totag\r\nRoute: {route_a}\r\n");
    let bye = after.one(CALLER, &request("BYE", "sip:bob@10.0.0.9", "a", 3, &more));
    assert_eq!(after.one(&bye.to.to_string(), &bye.answer("200 OK")).to, address(CALLER));
}

#[test]
fn a_token_is_good_for_its_own_call_its_own_key_and_configured_back_ends() {
    let mut script = Script::new();
    let (_, route) = call(&mut script, "a");
    let more = format!("Totag\r\nRoute: {route}\r\n");
    assert_eq!(script.status(CALLER, &request("BYE", "sip:bob@10.0.0.1", "other", 2, &more)), 481);

    let mut other_key = Script::with(Policy::Rr, |s| s.secret = secret(2));
    assert_eq!(other_key.status(CALLER, &request("BYE", "sip:bob@10.0.0.1", "a", 2, &more)), 481);
    let mut rotated = Script::with(Policy::Rr, |s| {
        let others = vec![secret(1).tokens.current];
        let current = TokenKey { version: 2, key: [2; 32] };
        s.secret = Secret { tokens: TokenKeys { current, others }, ..secret(1) };
    });
    assert_eq!(
        rotated.one(CALLER, &request("BYE", "sip:bob@10.0.0.1", "a", 2, &more)).to,
        address(BACKEND_A)
    );

    let mut gone = Script::with(Policy::Rr, |s| {
        let left = [("b", address(BACKEND_B), 1)];
        s.pools = vec![stateless(tidegate_balance::Pool::new("app", &left))];
    });
    assert_eq!(gone.status(CALLER, &request("BYE", "sip:bob@10.0.0.1", "a", 2, &more)), 481);
}

// RFC 3261 §12.2.1.1: the callee's requests have the same Route, and go to the caller.
#[test]
fn the_callees_requests_reach_the_caller() {
    let mut script = Script::new();
    let (sent, route) = call(&mut script, "a");
    let backend = sent.to.to_string();
    let from_callee = |method: &str, cseq: u32, more: &str| {
        request(method, "sip:alice@198.51.100.7:5066", "a", cseq, more)
            .replace("Via: SIP/2.0/UDP 198.51.100.7:5060", "Via: SIP/2.0/UDP 10.0.0.1:5070")
    };
    let more = format!("Totag\r\nRoute: {route}\r\n");
    let bye = script.one(&backend, &from_callee("BYE", 7, &more));
    assert_eq!(bye.to, address("198.51.100.7:5066"));
    assert!(bye.all("Route").is_empty());
    assert_eq!(script.one("198.51.100.7:5066", &bye.answer("200 OK")).to, sent.to);
    // A Route after ours is followed.
    let more = format!("Totag\r\nRoute: {route}, <sip:198.51.100.9:5080;lr>\r\n");
    let info = script.one(&backend, &from_callee("INFO", 8, &more));
    assert_eq!(info.to, address("198.51.100.9:5080"));
    assert_eq!(info.header("Route"), "<sip:198.51.100.9:5080;lr>");
}

#[test]
fn a_back_end_may_call_out_and_the_dialog_comes_back_to_it() {
    let mut script = Script::new();
    let sent = script.one(BACKEND_B, &request("INVITE", "sip:carol@203.0.113.9", "out", 1, ""));
    assert_eq!(sent.to, address("203.0.113.9:5060"));
    let route = sent.header("Record-Route").to_owned();
    assert_eq!(
        script.one("203.0.113.9:5060", &sent.answer("200 OK")).to.ip(),
        address(BACKEND_B).ip()
    );
    let more = format!("Totag\r\nRoute: {route}\r\n");
    let bye = request("BYE", "sip:x@10.0.0.2:5070", "out", 4, &more);
    assert_eq!(script.one("203.0.113.9:5060", &bye).to, address(BACKEND_B));
    // Only a request that starts a dialog gets a call entry.
    assert_eq!(script.counters.calls.get(), 1);
    script.one(BACKEND_B, &request("MESSAGE", "sip:carol@203.0.113.9", "note", 1, ""));
    assert_eq!(script.counters.calls.get(), 1);
    // The dialog is known even if Carol ignores Record-Route.
    let bye = request("BYE", "sip:x@192.0.2.1", "out", 5, "Totag\r\n");
    assert_eq!(script.one("203.0.113.9:5060", &bye).to, address(BACKEND_B));
    // A request from the back end to itself through us has no route.
    assert_eq!(script.status(BACKEND_B, &request("INVITE", "sip:x@192.0.2.1", "self", 1, "")), 404);
    // RFC 3261 §19.1.1: maddr overrides the host.
    let maddr =
        request("INVITE", "sip:x@example.com;maddr=203.0.113.8;transport=UDP", "maddr", 1, "");
    assert_eq!(script.one(BACKEND_B, &maddr).to, address("203.0.113.8:5060"));
    let tcp = request("INVITE", "sip:x@203.0.113.9;transport=tcp", "tcp", 1, "");
    assert_eq!(script.status(BACKEND_B, &tcp), 404);
    // A name is resolved first.
    assert!(
        script.send(BACKEND_B, &request("INVITE", "sip:x@example.com", "name", 1, "")).is_empty()
    );
    assert!(script.proxy.poll_query().is_some());
}

#[test]
fn a_trusted_source_may_reach_addresses() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.listeners[0].trust = vec!["203.0.113.0/24".parse().unwrap()];
    });
    let there = request("INVITE", "sip:x@198.51.100.77:5080", "t1", 1, "");
    assert_eq!(script.one(PEER, &there).to, address("198.51.100.77:5080"));
    let by_route =
        request("INVITE", "sip:bob@192.0.2.1", "t2", 1, "Route: <sip:198.51.100.9;lr>\r\n");
    assert_eq!(script.one(PEER, &by_route).to, address("198.51.100.9:5060"));
    assert_eq!(
        script.one(PEER, &request("INVITE", "sip:bob@192.0.2.1", "t3", 1, "")).to,
        address(BACKEND_A)
    );
    assert_eq!(script.status(CALLER, &there.replace("t1", "t4")), 403);
    // A request of the trusted source within a foreign dialog follows its Route too.
    let more = "Totag\r\nRoute: <sip:198.51.100.9;lr>\r\n";
    let bye = request("BYE", "sip:bob@192.0.2.1", "t5", 2, more);
    assert_eq!(script.one(PEER, &bye).to, address("198.51.100.9:5060"));
    assert_eq!(script.status(PEER, &request("BYE", "sip:x@192.0.2.1", "t6", 2, "Totag\r\n")), 481);
}

/// A phone could register such a Contact. Linux sends a packet for the unspecified address to the
/// machine itself. A multicast or broadcast address would lead into the network of the back ends.
#[test]
fn a_target_that_is_no_single_host_gets_404() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.listeners[0].trust = vec!["203.0.113.0/24".parse().unwrap()];
        settings.listeners.push(Listener::new(address("[2001:db8::10]:5060")));
    });
    let hosts = [
        "0.0.0.0:5080",
        "224.0.1.75",
        "255.255.255.255:5060",
        "203.0.113.9:0",
        "[::]:5080",
        "[ff02::1]",
        "[2001:db8::7]:0",
        "[::ffff:224.0.1.75]",
        // This is our own address.
        "[::ffff:192.0.2.1]",
    ];
    for (i, host) in hosts.into_iter().enumerate() {
        for (from, name) in [(BACKEND_A, "a"), (PEER, "p")] {
            let call = |kind: &str| format!("{kind}{i}{name}");
            let by_uri = request("INVITE", &format!("sip:x@{host}"), &call("u"), 1, "");
            assert_eq!(script.status(from, &by_uri), 404, "{host}");
            let route = format!("Route: <sip:{host};lr>\r\n");
            let by_route = request("INVITE", "sip:x@203.0.113.9", &call("r"), 1, &route);
            assert_eq!(script.status(from, &by_route), 404, "{host}");
        }
    }
    let maddr = request("MESSAGE", "sip:x@203.0.113.9;maddr=0.0.0.0", "m", 1, "");
    assert_eq!(script.status(BACKEND_A, &maddr), 404);
}

#[test]
fn a_trusted_sources_call_stays_with_its_back_end() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.listeners[0].trust = vec!["198.51.100.0/24".parse().unwrap()];
    });
    let (sent, route) = call(&mut script, "a");
    let routes =
        ["", &format!("Route: {route}\r\n"), &format!("Route: {route},<sip:203.0.113.9;lr>\r\n")];
    for (cseq, route) in (2..).zip(routes) {
        let info = request("INFO", "sip:bob@192.0.2.1", "a", cseq, &format!("Totag\r\n{route}"));
        assert_eq!(script.one(CALLER, &info).to, sent.to, "{route}");
    }
}

#[test]
fn rules_decide_in_their_order() {
    let rule = |from, methods: &[&str], domains: &[&str], to| Rule {
        from,
        methods: methods.iter().map(|m| m.to_string()).collect(),
        domains: domains.iter().map(|d| d.to_string()).collect(),
        to,
    };
    let mut script = Script::with(Policy::Rr, |settings| {
        let one =
            |name: &str, at: &str| tidegate_balance::Pool::new(name, &[(name, address(at), 1)]);
        settings.pools = vec![stateless(one("app", BACKEND_A)), stateless(one("msg", BACKEND_B))];
        settings.listeners[0].trust = vec!["203.0.114.0/24".parse().unwrap()];
        settings.rules = vec![
            rule(
                Senders::Net("203.0.113.0/24".parse().unwrap()),
                &[],
                &["example.com"],
                RuleTarget::Pool(1),
            ),
            rule(Senders::Any, &["MESSAGE"], &[], RuleTarget::Pool(1)),
            rule(Senders::Any, &[], &["Example.COM", "198.51.100.200"], RuleTarget::Pool(0)),
            rule(Senders::Any, &[], &["out.example"], RuleTarget::RequestUri),
            rule(Senders::Trusted, &[], &["peers.example"], RuleTarget::Pool(0)),
        ];
    });
    let mut to = |from: &str, method: &str, uri: &str, call: &str| {
        let sent = script.one(from, &request(method, uri, call, 1, ""));
        if sent.to.ip() == address(from).ip() {
            sent.start()[8..11].to_owned()
        } else {
            sent.to.to_string()
        }
    };
    assert_eq!(to(CALLER, "INVITE", "sip:bob@example.com", "1"), BACKEND_A);
    assert_eq!(to(PEER, "INVITE", "sip:bob@EXAMPLE.com", "2"), BACKEND_B);
    assert_eq!(to(CALLER, "MESSAGE", "sip:bob@192.0.2.1", "3"), BACKEND_B);
    assert_eq!(to(CALLER, "MESSAGE", "sip:bob@203.0.113.1", "4"), "403");
    assert_eq!(to(CALLER, "INVITE", "sip:bob@198.51.100.200:5099", "5"), BACKEND_A);
    assert_eq!(to(CALLER, "INVITE", "sip:bob@other.example", "6"), "404");
    assert_eq!(to(CALLER, "INVITE", "sip:bob@out.example", "7"), "403");
    assert_eq!(to(CALLER, "INVITE", "tel:+15551234", "8"), "404");
    assert_eq!(to(CALLER, "INVITE", "sip:bob@peers.example", "9"), "404");
    assert_eq!(to(TRUSTED, "INVITE", "sip:bob@peers.example", "10"), BACKEND_A);
}

#[test]
fn a_peer_cannot_make_us_cut_without_end() {
    let mut script = Script::new();
    let routed = |count: usize| {
        let routes = "Route: <sip:192.0.2.1;lr>\r\n".repeat(count);
        request("INVITE", "sip:bob@192.0.2.1", &format!("m{count}"), 1, &routes)
    };
    // Two passes through two listeners of the proxy are the reasonable maximum.
    let sent = script.one(CALLER, &routed(4));
    assert!(sent.to == address(BACKEND_A) && sent.all("Route").is_empty());
    for count in [5, 40] {
        assert_eq!(script.status(CALLER, &routed(count)), 400);
    }
}

#[test]
fn advertised_names_are_ours() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.listeners = vec![Listener {
            advertised: "edge.example:5080".into(),
            ..Listener::new(address(PROXY))
        }];
    });
    let sent = script.one(CALLER, &request("INVITE", "sip:bob@edge.example:5080", "a", 1, ""));
    assert!(sent.header("Via").contains(" edge.example:5080;"));
    let route = sent.header("Record-Route").to_owned();
    assert!(route.ends_with("@edge.example:5080;lr>"), "{route}");
    script.send(BACKEND_A, &sent.answer("200 OK"));
    let more = format!("Totag\r\nRoute: {route}\r\n");
    let bye = script.one(CALLER, &request("BYE", "sip:bob@10.0.0.1", "a", 2, &more));
    assert!(bye.to == address(BACKEND_A) && bye.all("Route").is_empty());
}

/// Returns a proxy with several names, at the ports 5060 and 5070.
fn with_names() -> Script {
    let names = ["sip.example.com", "example.com", "203.0.113.10", "[2001:db8::1]"];
    Script::with(Policy::Rr, |settings| {
        settings.listeners = vec![Listener {
            advertised: "edge.example:5070".to_owned(),
            names: names.map(str::to_owned).into(),
            ..Listener::new(address(PROXY))
        }];
    })
}

/// A regression: a phone whose outbound proxy was a name of ours got 403.
///
/// RFC 3261 §16.4: "If the first value in the Route header field indicates this proxy, the proxy
/// MUST remove that value from the request." A phone writes its outbound proxy into Route (RFC 3261
/// §8.1.2). It may find the port in the SRV records of a domain (RFC 3263 §4.2).
#[test]
fn a_route_may_name_us_by_each_of_our_names() {
    let mut script = with_names();
    for (i, route) in [
        "<sip:sip.example.com;lr>",
        "<sip:SIP.Example.COM.;lr>",
        "<sip:sip.example.com:5060;lr>",
        "<sip:example.com:5070;lr>",
        "<sip:example.com;transport=tcp;lr>",
        "<sip:sip.example.com>",
        "<sip:203.0.113.10;lr>",
        "<sip:[2001:db8::1]:5070;lr>",
        "<sip:sip.example.com;lr>, <sip:192.0.2.1;lr>",
    ]
    .into_iter()
    .enumerate()
    {
        let more = format!("Route: {route}\r\n");
        let register = request("REGISTER", "sip:example.com", &format!("r{i}"), 1, &more);
        assert!(script.one(CALLER, &register).all("Route").is_empty(), "{route}");
    }
}

/// RFC 3261 §16.12 lets a client preload a Route. A name of ours must not open a relay.
#[test]
fn a_name_of_ours_in_a_route_does_not_let_strangers_relay() {
    let mut script = with_names();
    for route in [
        "<sip:evil.example;lr>",
        "<sip:x.sip.example.com;lr>",
        "<sip:sip.example.com.evil.example;lr>",
        "<sip:sip.example.com:5061;lr>",
        "<sip:203.0.113.10:5061;lr>",
        "<sip:sip.example.com;lr>, <sip:evil.example;lr>",
        "<sip:sip.example.com;lr>, <sip:203.0.113.9;lr>",
    ] {
        let more = format!("Route: {route}\r\n");
        let message = request("MESSAGE", "sip:bob@192.0.2.1", "m", 1, &more);
        assert_eq!(script.status(CALLER, &message), 403, "{route}");
    }
    let more = "Route: <sip:sip.example.com;lr>\r\n";
    let message = request("MESSAGE", "sip:x@203.0.113.9", "u", 1, more);
    assert_eq!(script.status(CALLER, &message), 403);
}

#[test]
fn an_options_to_each_of_our_names_is_answered_here() {
    let mut script = with_names();
    for (i, (host, status)) in [
        ("sip.example.com", Some(200)),
        ("Example.com.:5070", Some(200)),
        ("203.0.113.10", Some(200)),
        ("sip.example.com:5061", None),
        ("bob@sip.example.com", None),
    ]
    .into_iter()
    .enumerate()
    {
        let options = request("OPTIONS", &format!("sip:{host}"), &format!("o{i}"), 1, "");
        match status {
            Some(status) => assert_eq!(script.status(CALLER, &options), status, "{host}"),
            None => assert!(script.one(CALLER, &options).start().starts_with("OPTIONS"), "{host}"),
        }
    }
    // The outer address of a NAT is ours, like an advertised address.
    let invite = request("INVITE", "sip:bob@203.0.113.10", "i", 1, "");
    assert!(script.one(CALLER, &invite).start().starts_with("INVITE"));
}

/// RFC 3261 §12.1.1: the Contact is the remote target of the dialog. Some phones write the domain of
/// their user into it.
#[test]
fn a_contact_in_a_domain_of_ours_still_leads_to_the_caller() {
    let mut script = with_names();
    let (sent, route) = call(&mut script, "a");
    let more = format!("Totag\r\nRoute: {route}\r\n");
    let bye = request("BYE", "sip:alice@example.com", "a", 7, &more)
        .replace("Via: SIP/2.0/UDP 198.51.100.7:5060", "Via: SIP/2.0/UDP 10.0.0.1:5070");
    assert_eq!(script.one(&sent.to.to_string(), &bye).to, address(CALLER));
}

// A listener with a wildcard address: the local address of a packet is ours, whatever we advertise.
#[test]
fn a_wildcard_listener_is_found_by_the_port_and_answers_from_the_requested_address() {
    let mut script = Script::with(Policy::Rr, |settings| {
        let wild = |port: u16| Listener {
            local: (std::net::Ipv4Addr::UNSPECIFIED, port).into(),
            advertised: format!("edge.example:{port}"),
            ..Listener::new(address(PROXY))
        };
        settings.listeners = vec![wild(5060), wild(5080)];
    });
    let text = request("INVITE", "sip:bob@192.0.2.77:5080", "a", 1, "");
    script.offer_at("192.0.2.77:5080", CALLER, text.as_bytes(), 0);
    let sent = script.serve().remove(0);
    assert_eq!(sent.from, address("0.0.0.0:5080"));
    assert!(sent.header("Via").contains(" edge.example:5080;"));
    // RFC 3581 §4: "The response must be sent from the same address and port that the
    // request was received on".
    script.offer_at("192.0.2.99:5080", BACKEND_A, sent.answer("180 Ringing").as_bytes(), 0);
    assert_eq!(script.serve()[0].from, address("192.0.2.77:5080"));
    let other = request("INVITE", "sip:bob@192.0.2.77:5080", "b", 1, "");
    script.offer_at("192.0.2.78:5080", CALLER, other.as_bytes(), 0);
    assert!(
        script.serve()[0].start().starts_with("SIP/2.0 403"),
        "another address of ours is not named"
    );
}

// Behind address translation both the advertised and the bound address are ours.
#[test]
fn a_listener_is_named_by_its_own_and_by_its_advertised_address() {
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.listeners[0].advertised = "203.0.113.1:15060".into();
    });
    for (i, uri) in ["sip:bob@192.0.2.1", "sip:bob@203.0.113.1:15060"].into_iter().enumerate() {
        let sent = script.one(CALLER, &request("INVITE", uri, &format!("n{i}"), 1, ""));
        assert!([BACKEND_A, BACKEND_B].map(address).contains(&sent.to), "{uri}");
    }
    assert_eq!(script.status(CALLER, &request("INVITE", "sip:bob@203.0.113.2", "n", 1, "")), 403);
}

// RFC 3261 §16.4: a Route that "indicates this proxy" is removed, and the remaining Routes must not
// lead back here.
#[test]
fn the_address_a_packet_came_to_is_ours_in_a_route_too() {
    let mut script = Script::with(Policy::Rr, |settings| {
        let advertised = "edge.example:5060".into();
        let wild = Listener { advertised, ..Listener::new(address("0.0.0.0:5060")) };
        settings.listeners = vec![wild, Listener::new(address("192.0.2.1:5080"))];
        settings.rules.push(Rule::new(Senders::Pool, RuleTarget::RequestUri));
    });
    let here = "Route: <sip:192.0.2.1;lr>\r\n";
    let text = request("INVITE", "sip:bob@example.com", "a", 1, here);
    let sent = script.one(CALLER, &text);
    assert!(sent.to == address(BACKEND_A) && sent.all("Route").is_empty());
    // A request of a back end to our address, by rule or by Route, causes no loop.
    for (uri, call, more) in [
        ("sip:x@192.0.2.1", "b", ""),
        ("sip:x@192.0.2.1", "c", here),
        ("sip:x@192.0.2.1:5080", "d", ""),
    ] {
        assert_eq!(script.status(BACKEND_A, &request("INVITE", uri, call, 1, more)), 404, "{call}");
    }
}

// With several shards, the token names the shard that counts the call. Without a token, the request
// passes to each of the other shards in turn.
#[test]
fn messages_of_another_shard_are_handed_off() {
    let shard = |n: u16| Script::with(Policy::Rr, |s| (s.shard, s.shards) = (n, 3));
    let (mut first, mut second) = (shard(0), shard(1));
    let (sent, route) = call(&mut first, "a");
    let cross = |script: &mut Script, text: &str, handoffs: u8| {
        script.offer_at(PROXY, CALLER, text.as_bytes(), handoffs);
        let sent = script.serve();
        (sent, script.handoff())
    };
    let more = format!("Totag\r\nRoute: {route}\r\n");
    let bye = request("BYE", "sip:bob@10.0.0.1", "a", 2, &more);
    assert_eq!(cross(&mut second, &bye, 0), (vec![], Some(0)));
    let (sent_on, to) = cross(&mut first, &bye, 1);
    assert_eq!((sent_on[0].to, to), (sent.to, None));

    // A response that arrives at another shard than its request is handed off.
    second.offer(BACKEND_A, sent.answer("180 Ringing").as_bytes());
    assert!(second.serve().is_empty());
    assert_eq!(second.handoff(), Some(0));

    // A request that has no Route and that no shard knows passes all shards once, and then gets
    // 481.
    let bare = request("BYE", "sip:bob@192.0.2.1", "zzz", 2, "Totag\r\n");
    assert_eq!(cross(&mut first, &bare, 0), (vec![], Some(1)));
    assert_eq!(cross(&mut second, &bare, 1), (vec![], Some(2)));
    let mut third = shard(2);
    let (reply, to) = cross(&mut third, &bare, 2);
    assert!(reply[0].start().starts_with("SIP/2.0 481") && to.is_none());
}

// A token or a branch may contain the number of a shard that no longer exists.
#[test]
fn messages_of_a_removed_shard_are_served_where_they_arrive() {
    let mut last = Script::with(Policy::Rr, |s| (s.shard, s.shards) = (2, 3));
    let (sent, route) = call(&mut last, "a");
    let mut left = Script::with(Policy::Rr, |s| (s.shard, s.shards) = (0, 2));
    assert_eq!(left.one(BACKEND_A, &sent.answer("200 OK")).to, address(CALLER));
    let bye = request("BYE", "sip:bob@10.0.0.1", "a", 2, &format!("Totag\r\nRoute: {route}\r\n"));
    assert_eq!(left.one(CALLER, &bye).to, sent.to);
    assert_eq!(left.handoff(), None);
}

// The kernel selects the shard by the back end's address, but the call may be at another shard.
#[test]
fn a_back_ends_request_is_handed_off_to_the_shard_of_its_call() {
    let shard = |n: u16| Script::with(Policy::Rr, |s| (s.shard, s.shards) = (n, 2));
    let (mut first, mut second) = (shard(0), shard(1));
    let (sent, route) = call(&mut first, "a");
    let more = format!("Totag\r\nRoute: {route}\r\n");
    let bye = request("BYE", "sip:alice@198.51.100.7", "a", 7, &more);
    second.offer_at(PROXY, &sent.to.to_string(), bye.as_bytes(), 0);
    assert!(second.serve().is_empty());
    assert_eq!(second.handoff(), Some(0));
    first.offer_at(PROXY, &sent.to.to_string(), bye.as_bytes(), 1);
    let bye = first.serve().remove(0);
    first.one(CALLER, &bye.answer("200 OK"));
    assert!(first.backends.backends().iter().all(|b| b.calls() == 0));
}

// RFC 3261 §16.11: "a retransmitted request MUST be forwarded to the same destination
// each time it is processed. Furthermore, CANCEL and non-Routed ACK requests MUST
// generate the same choice as their associated INVITE."
#[test]
fn requests_of_a_back_end_to_a_pool_stay_at_one_back_end() {
    let mut script = Script::with(Policy::Rr, |settings| {
        let media: Vec<_> = ["1", "2", "3"].map(|n| (n, format!("10.0.1.{n}:5070"))).into();
        let media: Vec<_> = media.iter().map(|(n, at)| (*n, address(at), 1)).collect();
        settings.pools.push(stateless(tidegate_balance::Pool::new("media", &media)));
        let rule = |from, pool| Rule::new(from, RuleTarget::Pool(pool));
        settings.rules = vec![rule(Senders::Pool, 1), rule(Senders::Any, 0)];
    });
    let caller = script.one(CALLER, &invite("a"));
    assert_eq!(caller.to, address(BACKEND_A));
    // The back end forwards the request to the media servers with the same Call-ID, like any proxy.
    let forwarded_request = |method: &str| {
        request(method, "sip:conf@192.0.2.1", "a", 1, "").replace("198.51.100.7:5060", BACKEND_A)
    };
    let first = script.one(BACKEND_A, &forwarded_request("INVITE"));
    assert!(first.to.to_string().starts_with("10.0.1."));
    for method in ["INVITE", "CANCEL", "ACK"] {
        assert_eq!(script.one(BACKEND_A, &forwarded_request(method)).to, first.to, "{method}");
    }
    let cancel = request("CANCEL", "sip:bob@192.0.2.1", "a", 1, "");
    assert_eq!(script.one(CALLER, &cancel).to, caller.to, "the caller's own call is where it was");
}

#[test]
fn a_back_end_that_sends_from_another_port_may_reach_the_same_targets() {
    let other = ["10.0.0.1:40000", "10.0.0.77:5060"];
    let outward = |i: usize| request("INVITE", "sip:carol@203.0.113.9", &format!("s{i}"), 1, "");
    let mut strict = Script::new();
    let mut script = Script::with(Policy::Rr, |settings| {
        settings.pools[0].sources =
            vec![vec!["10.0.0.1/32".parse().unwrap(), "10.0.0.64/26".parse().unwrap()]];
    });
    for (i, from) in other.into_iter().enumerate() {
        assert_eq!(strict.status(from, &outward(i)), 403, "{from}");
        let sent = script.one(from, &outward(i));
        assert_eq!(sent.to, address("203.0.113.9:5060"), "{from}");
        // The call belongs to that back end, so a BYE with the route token goes outside again.
        let more = format!("Totag\r\nRoute: {}\r\n", sent.header("Record-Route"));
        let bye = request("BYE", "sip:carol@203.0.113.9", &format!("s{i}"), 2, &more);
        assert_eq!(script.one(from, &bye).to, address("203.0.113.9:5060"), "{from}");
    }
    assert_eq!(script.status(CALLER, &outward(9)), 403);
}

#[test]
fn dialogs_of_a_back_end_that_was_removed_go_on_both_ways_after_a_restart() {
    let without_a = |settings: &mut tidegate_proxy::Settings| {
        let pool = tidegate_balance::Pool::new("app", &[("b", address(BACKEND_B), 1)]);
        settings.pools = vec![stateless(pool)];
    };
    let mut before = Script::new();
    let sent = before.one(CALLER, &invite("r1"));
    assert_eq!(sent.to, address(BACKEND_A));
    let more = format!("Totag\r\nRoute: {}\r\n", sent.header("Record-Route"));
    let bye = |uri| request("BYE", uri, "r1", 2, &more);
    let mut forgetful = Script::with(Policy::Rr, without_a);
    assert_eq!(forgetful.status(CALLER, &bye("sip:bob@10.0.0.1:5070")), 481);
    let mut after = Script::with(Policy::Rr, |settings| {
        without_a(settings);
        // A reload may replace thousands of back ends.
        let others = (1..=5000).map(|port| SocketAddr::from(([10, 9, 0, 1], port)));
        settings.removed = others.chain([address(BACKEND_A)]).collect();
        settings.removed_backend = Duration::from_secs(60);
    });
    after.pass(Duration::from_secs(58));
    assert_eq!(after.one(CALLER, &bye("sip:bob@10.0.0.1:5070")).to, address(BACKEND_A));
    let sent = after.one(BACKEND_A, &bye("sip:alice@198.51.100.7:5060"));
    assert_eq!(sent.to, address(CALLER));
    // The removed back end may end its dialogs, but may start nothing new.
    let outward = request("INVITE", "sip:carol@203.0.113.9", "r2", 1, "");
    assert_eq!(after.status(BACKEND_A, &outward), 403);
    after.pass(Duration::from_secs(2));
    let late = request("BYE", "sip:bob@10.0.0.1:5070", "r1", 3, &more);
    assert_eq!(after.status(CALLER, &late), 481);
}

/// A token that is older than a day proves nothing, so it does not give the address of a removed back
/// end its rights either. `removed_backend_seconds` may be longer than a day.
#[test]
fn an_old_token_gives_a_removed_back_end_no_rights() {
    const HOUR: Duration = Duration::from_secs(3600);
    let start = Duration::from_secs(1_800_000_000);
    let mut before = Script::with(Policy::Rr, |settings| settings.start = start);
    let sent = before.one(CALLER, &invite("r1"));
    assert_eq!(sent.to, address(BACKEND_A));
    let route = format!("Route: {}\r\n", sent.header("Record-Route"));
    let in_dialog = |uri, cseq| request("INFO", uri, "r1", cseq, &format!("Totag\r\n{route}"));
    let mut after = Script::with(Policy::Rr, |settings| {
        let pool = tidegate_balance::Pool::new("app", &[("b", address(BACKEND_B), 1)]);
        settings.pools = vec![stateless(pool)];
        settings.start = start;
        (settings.removed, settings.removed_backend) = (vec![address(BACKEND_A)], 168 * HOUR);
    });
    after.pass(23 * HOUR);
    let (outside, phone) = ("sip:carol@203.0.113.9", "203.0.113.9:5060");
    let info = after.one(BACKEND_A, &in_dialog(outside, 2));
    assert_eq!(info.to, address(phone));
    after.one(phone, &info.answer("200 OK"));
    after.pass(2 * HOUR);
    assert_eq!(after.status(BACKEND_A, &in_dialog(outside, 3)), 481);
    assert_eq!(after.status(BACKEND_A, &request("INVITE", outside, "r1", 4, &route)), 403);
}
