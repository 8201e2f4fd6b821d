//! RFC 3261 §16.4, §16.6 item 6, §16.12.1.2: strict routers (RFC 2543) before and behind us.

use crate::script::{BACKEND_A, CALLER, Script, Sent, address, invite, request};
use tidegate_proxy::Listener;

/// Makes a proxy whose caller may route its requests anywhere.
fn trusting() -> Script {
    Script::with(tidegate_balance::Policy::Rr, |settings| {
        settings.pools[0].mode = tidegate_proxy::Mode::Transaction;
        settings.listeners[0].trust = vec!["198.51.100.0/24".parse().unwrap()];
    })
}

/// Sets up a call. Returns its Record-Route URI.
fn record_route(s: &mut Script) -> String {
    let out = s.send(CALLER, &invite("c1")).remove(1);
    let ok = s.one(BACKEND_A, &out.answer("200 OK"));
    ok.header("Record-Route").trim_matches(['<', '>']).to_owned()
}

fn bye(uri: &str, routes: &str) -> String {
    request("BYE", uri, "c1", 2, &format!("{routes}Totag\r\n"))
}

fn last(sent: Vec<Sent>) -> Sent {
    sent.into_iter().last().expect("something is sent")
}

/// §16.4: "If the Request-URI of the request contains a value this proxy previously placed into a
/// Record-Route header field (see Section 16.6 item 4), the proxy MUST replace the Request-URI in
/// the request with the last value from the Route header field, and remove that value from the
/// Route header field."
///
/// RFC 3261 §16.4: "The proxy MUST inspect the Request-URI of the request." "The proxy MUST then
/// proceed as if it received this modified request."
#[test]
fn changes_by_a_strict_router_are_undone() {
    let mut s = Script::stateful();
    let ours = record_route(&mut s);
    let out = s.one(CALLER, &bye(&ours, "Route: <sip:bob@10.0.0.1:5070>\r\n"));
    assert_eq!(out.to.to_string(), BACKEND_A);
    assert_eq!(out.start(), "BYE sip:bob@10.0.0.1:5070 SIP/2.0");
    assert_eq!(out.all("Route"), [""; 0]);
    // The retransmission is the same packet.
    s.pass(std::time::Duration::from_millis(500));
    assert_eq!(s.sent(), std::slice::from_ref(&out));
    // Without the call entry, the token from the Request-URI leads to the same back end.
    let mut other = Script::stateful();
    let routes = "Route: <sip:next.example.com;lr>, <sip:bob@10.0.0.1:5070>\r\n";
    let out = other.one(CALLER, &bye(&ours, routes));
    assert_eq!(out.to.to_string(), BACKEND_A);
    assert_eq!(out.start(), "BYE sip:bob@10.0.0.1:5070 SIP/2.0");
    assert_eq!(out.all("Route"), ["<sip:next.example.com;lr>"]);
}

/// Only a Request-URI with our token is restored, because any source may write our address.
#[test]
fn a_request_uri_that_names_us_without_a_token_stays() {
    let mut s = Script::stateful();
    record_route(&mut s);
    let out = s.one(CALLER, &bye("sip:x@192.0.2.1:5060;lr", ""));
    assert_eq!(out.start(), "BYE sip:x@192.0.2.1:5060;lr SIP/2.0");
}

/// §16.6 item 6: "If that URI does not contain an lr parameter, the proxy MUST modify the copy as
/// follows:" "The proxy MUST place the Request-URI into the Route header field as the last value."
/// "The proxy MUST then place the first Route header field value
/// into the Request-URI and remove that value from the Route header field."
///
/// RFC 3261 §16.6: "If the copy contains a Route header field, the proxy MUST inspect the URI in
/// its first value." "If the proxy has reformatted the request to send to a strict-routing element
/// as described in step 6 above, the proxy MUST apply those procedures to the Request-URI of the
/// request."
#[test]
fn a_strict_router_behind_us_gets_what_it_expects() {
    let mut s = trusting();
    let routes = "Route: <sip:192.0.2.1:5060;lr>, <sip:203.0.113.5:5090>\r\n\
                  Route: <sip:far.example.com;lr>\r\n";
    let sent = s.send(CALLER, &request("INVITE", "sip:bob@example.net", "c9", 1, routes));
    let out = last(sent);
    assert_eq!(out.to, address("203.0.113.5:5090"));
    assert_eq!(out.start(), "INVITE sip:203.0.113.5:5090 SIP/2.0");
    assert_eq!(out.all("Route"), ["<sip:far.example.com;lr>, <sip:bob@example.net>"]);
    // §17.1.1.3: the ACK takes the same path as its INVITE.
    let sent = s.send("203.0.113.5:5090", &out.answer("404 Not Found"));
    assert_eq!(sent[0].start(), "ACK sip:203.0.113.5:5090 SIP/2.0");
    assert_eq!(sent[0].all("Route"), out.all("Route"));
}

/// §19.1.1, table 1: headers and `method` are not allowed in a Request-URI. §16.6 item 2: "If the
/// URI contains any parameters not allowed in a Request-URI, they MUST be removed." An element that
/// reads headers there takes them for header fields.
#[test]
fn parameters_of_a_route_are_not_in_the_request_uri() {
    let mut s = trusting();
    for (call, more) in [("c1", "?Subject=x&Route=y"), ("c2", ";method=REGISTER?Subject=x")] {
        let routes = format!("Route: <sip:203.0.113.5:5090{more}>\r\n");
        let sent = s.send(CALLER, &request("INVITE", "sip:bob@example.net", call, 1, &routes));
        assert_eq!(last(sent).start(), "INVITE sip:203.0.113.5:5090 SIP/2.0", "{more}");
    }
}

/// RFC 3261 §16.6 item 6: "Furthermore, if the Request-URI contains a SIPS URI, TLS MUST be used to
/// communicate with that proxy." A `sips` Route (§26.2.2) requires TLS too. This proxy has no
/// listener for TLS, so it must not send the request at all.
#[test]
fn a_sips_route_gets_no_datagram() {
    let mut s = trusting();
    for (i, uri) in
        ["sips:203.0.113.5;lr", "sips:203.0.113.5:5061", "sips:203.0.113.5;transport=udp"]
            .into_iter()
            .enumerate()
    {
        let routes = format!("Route: <{uri}>\r\n");
        let text = request("MESSAGE", "sip:bob@example.net", &format!("c{i}"), 1, &routes);
        assert_eq!(s.status(CALLER, &text), 404, "{uri}");
    }
}

/// RFC 3261 §26.2.2: a `sips` Route requires TLS, although there is a listener for UDP.
#[test]
fn a_sips_route_leaves_over_tls_only() {
    let at = "192.0.2.1:5061";
    let mut s = Script::with(tidegate_balance::Policy::Rr, |settings| {
        settings.pools[0].mode = tidegate_proxy::Mode::Transaction;
        settings.listeners[0].trust = vec!["198.51.100.0/24".parse().unwrap()];
        let transport = tidegate_world::Transport::Tls;
        settings.listeners.push(Listener { transport, ..Listener::new(address(at)) });
    });
    let routes = "Route: <sips:203.0.113.5;lr>\r\n";
    let out = s.one(CALLER, &request("MESSAGE", "sip:bob@example.net", "c1", 1, routes));
    assert_eq!((out.from, out.to), (address(at), address("203.0.113.5:5061")));
    assert!(out.header("Via").starts_with("SIP/2.0/TLS 192.0.2.1:5061;"), "{}", out.text);
}

/// RFC 3261 §16.6 item 6: "The proxy MUST then place the first Route header field value into the
/// Request-URI and remove that value from the Route header field." A Route may have any number of
/// lines (§7.3.1), and the sender may leave out all that a proxy adds.
#[test]
fn a_route_on_many_lines_is_rewritten_for_a_strict_router() {
    let mut s = trusting();
    let own = "Route: <sip:192.0.2.1:5060;lr>\r\n".repeat(4);
    let strict = "Route: <sip:203.0.113.5:5090;method=x>\r\n".repeat(20);
    let text = request("MESSAGE", "sip:bob@example.net;method=x", "c9", 1, &(own + &strict));
    let text = text.replace("198.51.100.7:5060;", "198.51.100.7;rport;received=192.0.2.7;");
    let text = text.replace("Max-Forwards: 70\r\nContent-Length: 0\r\n", "");
    let out = last(s.send(CALLER, &text));
    assert_eq!(out.to, address("203.0.113.5:5090"));
    assert_eq!(out.start(), "MESSAGE sip:203.0.113.5:5090 SIP/2.0");
    let line = "<sip:203.0.113.5:5090;method=x>, ".repeat(19) + "<sip:bob@example.net>";
    assert_eq!(out.all("Route"), [line]);
    assert_eq!(out.all("Max-Forwards"), ["70"]);
}
