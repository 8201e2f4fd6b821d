//! RFC 7118: tests of callers in browsers, which can be reached only on their own connections.

use crate::connected::Scene;
use crate::script::{BACKEND_A, BACKEND_B, CALLER, PROXY, address, only, request};
use tidegate_balance as balance;
use tidegate_proxy::{Mode, Settings};
use tidegate_world::{CloseCause, Core, Flow, Seed, Transport};

/// A browser, and the host name that the browser makes up.
const BROWSER: &str = "203.0.113.9:40123";
const HOST: &str = "df7jal23ls0d.invalid";

fn scene_for(mode: Mode) -> Scene {
    scene_before(Transport::Udp, mode)
}

fn scene_before(inside: Transport, mode: Mode) -> Scene {
    scene_with(inside, mode, |_| {})
}

/// Makes a proxy with a listener for its back end, which it reaches over `inside`, and one for each
/// kind of WebSocket at ports of their own.
fn scene_with(inside: Transport, mode: Mode, adjust: impl FnOnce(&mut Settings)) -> Scene {
    let listeners =
        [(inside, PROXY), (Transport::Ws, "192.0.2.1:80"), (Transport::Wss, "192.0.2.1:443")];
    Scene::in_front(&listeners, mode, adjust)
}

impl Scene {
    /// Opens a connection of a browser.
    fn browser(&mut self, transport: Transport, remote: &str) -> Flow {
        let port = if transport == Transport::Ws { 80 } else { 443 };
        self.accept_by(transport, &format!("192.0.2.1:{port}"), remote, 2)
    }
}

fn backend() -> Flow {
    Flow::udp(address(PROXY), address(BACKEND_A))
}

fn invite(transport: Transport) -> String {
    let contact = format!("Contact: <sip:alice@{HOST};transport=ws>\r\n");
    let invite = request("INVITE", "sip:bob@192.0.2.1", "c", 1, &contact);
    invite.replace("SIP/2.0/UDP 198.51.100.7:5060", &format!("SIP/2.0/{transport} {HOST}"))
}

fn bye(routes: &[&str]) -> String {
    let routes = routes.join(", ");
    format!(
        "BYE sip:alice@{HOST};transport=ws SIP/2.0\r\n\
         Via: SIP/2.0/UDP 10.0.0.1:5070;branch=z9hG4bK-bye\r\n\
         Route: {routes}\r\nFrom: <sip:bob@example.com>;tag=callee\r\n\
         To: <sip:alice@example.com>;tag=caller\r\nCall-ID: c\r\nCSeq: 1 BYE\r\n\
         Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
    )
}

/// RFC 7118 §8.2: the call of a browser to a user agent over UDP, which hangs up.
///
/// RFC 7118 §5.2: "This document defines the value "ws" as the transport parameter value for a SIP URI".
#[test]
fn a_call_of_a_browser_returns_on_its_connection() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        for (transport, port) in [(Transport::Ws, 80), (Transport::Wss, 443)] {
            let mut scene = scene_for(mode);
            let browser = scene.browser(transport, BROWSER);
            let (_, invited) = only(scene.send(browser, &invite(transport)), "INVITE");
            assert_eq!(invited.to, address(BACKEND_A));
            assert!(invited.header("Via").starts_with("SIP/2.0/UDP 192.0.2.1:5060;"));
            let routes = invited.all("Record-Route");
            assert_eq!(routes.len(), 2, "{routes:?}");
            assert!(routes[0].ends_with("@192.0.2.1:5060;lr>"), "{routes:?}");
            assert!(routes[1].ends_with(&format!("@192.0.2.1:{port};transport=ws;lr>")));
            let (on, _) = only(scene.send(backend(), &invited.answer("200 OK")), "SIP/2.0 200");
            assert_eq!(on.connection, browser.connection);

            let (on, hung_up) = only(scene.send(backend(), &bye(&routes)), "BYE");
            assert_eq!((on.connection, hung_up.to), (browser.connection, address(BROWSER)));
            let via = format!("SIP/2.0/{transport} 192.0.2.1:{port};");
            assert!(hung_up.header("Via").starts_with(&via), "{}", hung_up.text);
            let (on, answer) = only(scene.send(browser, &hung_up.answer("200 OK")), "SIP/2.0 200");
            assert_eq!((on.connection, answer.to), (None, address(BACKEND_A)));
        }
    }
}

/// RFC 7118 §5.3: "Given the fact that SIP responses can only be sent over the existing WebSocket
/// connection", the proxy opens no connection to a browser for responses or requests.
///
/// RFC 5626 §5.3.1: "If the flow no longer exists, the proxy SHOULD send a 430 (Flow Failed) response
/// to the request." This also applies to a pool without transactions.
#[test]
fn a_browser_that_has_gone_is_not_called_back() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut scene = scene_for(mode);
        let browser = scene.browser(Transport::Wss, BROWSER);
        let (_, invited) = only(scene.send(browser, &invite(Transport::Wss)), "INVITE");
        scene.close(browser, CloseCause::Ended);
        assert!(scene.send(backend(), &invited.answer("200 OK")).is_empty());
        let bye = bye(&invited.all("Record-Route"));
        only(scene.send(backend(), &bye), "SIP/2.0 430 ");
        assert!(scene.streams.poll_connect().is_none());
        assert_eq!(scene.streams.poll_timeout().map(|due| due > scene.now), Some(true));
        // The next process has none of the connections. It reaches the back end over TCP.
        let mut next = scene_with(Transport::Tcp, mode, |settings| settings.seed = Seed(9));
        let inside = next.accept(2, "10.0.0.1:33000");
        let bye = bye.replace("SIP/2.0/UDP", "SIP/2.0/TCP");
        only(next.send(inside, &bye), "SIP/2.0 430 ");
        assert!(next.streams.poll_connect().is_none());
    }
}

/// A browser names the port of its URL only if that is not the default one.
#[test]
fn the_preloaded_route_of_a_browser_names_us() {
    for (transport, host, is_ours) in [
        (Transport::Ws, "192.0.2.1", true),
        (Transport::Wss, "192.0.2.1", true),
        (Transport::Wss, "192.0.2.1:443", true),
        (Transport::Wss, "192.0.2.1:8443", false),
        (Transport::Wss, "192.0.2.2", false),
    ] {
        let mut scene = scene_for(Mode::Transaction);
        let browser = scene.browser(transport, BROWSER);
        let route = format!("Route: <sip:{host};transport=ws;lr>\r\nMax-Forwards:");
        let sent = scene.send(browser, &invite(transport).replacen("Max-Forwards:", &route, 1));
        match is_ours {
            true => assert!(only(sent, "INVITE").1.all("Route").is_empty()),
            false => drop(only(sent, "SIP/2.0 403 ")),
        }
    }
}

/// Only streams without WebSockets may come from a back end: a browser at its address has no rights.
#[test]
fn a_websocket_from_the_address_of_a_back_end_counts_as_a_stranger() {
    // A regression: if the port of the browser was by chance that of the back end, the call got
    // 404.
    for remote in ["10.0.0.1:40123", BACKEND_A] {
        let mut scene = scene_before(Transport::Tcp, Mode::Transaction);
        let browser = scene.browser(Transport::Ws, remote);
        let outward = "bob@203.0.113.77;transport=tcp";
        let sent = scene.send(browser, &invite(Transport::Ws).replace("bob@192.0.2.1", outward));
        only(sent, "SIP/2.0 403 ");
        assert!(scene.streams.poll_connect().is_none());
    }
}

/// A caller knows the token of its call with a back end that was removed since. With the rights of
/// that back end it could send requests to any address.
#[test]
fn a_websocket_from_the_address_of_a_removed_back_end_counts_as_a_stranger() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut before = scene_for(mode);
        let caller = Flow::udp(address(PROXY), address(CALLER));
        let invite = request("INVITE", "sip:bob@192.0.2.1", "c", 1, "");
        let (_, invited) = only(before.send(caller, &invite), "INVITE");
        assert_eq!(invited.to, address(BACKEND_A));
        let bye = bye(&[invited.header("Record-Route"), "<sip:203.0.113.77;lr>"]);

        let mut scene = scene_with(Transport::Udp, mode, |settings| {
            let backends = balance::Pool::new("app", &[("b", address(BACKEND_B), 1)]);
            settings.pools[0].pool = backends;
            settings.removed = vec![address(BACKEND_A)];
        });
        let browser = scene.browser(Transport::Ws, "10.0.0.1:40123");
        let bye = bye.replace("SIP/2.0/UDP", "SIP/2.0/WS");
        let (_, sent) = only(scene.send(browser, &bye), "BYE");
        assert_eq!(sent.to, address(BACKEND_A), "{mode:?}");
    }
}
