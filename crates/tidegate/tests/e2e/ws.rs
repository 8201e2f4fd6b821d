//! Tests of calls over WebSockets (RFC 7118), with a client of tungstenite, SIPp and Kamailio.

pub mod client;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use tungstenite::error::Error;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};

use crate::products::{ANSWERS, kamailio};
use crate::stage::{Configuration, Metrics, Sipp, Stage, Tidegate, assert_exact, run_to_end};
use crate::tls::certificates::{Authority, VALID};
use crate::tls::client::secured;
use client::Client;

/// A Tidegate with listeners for WebSockets, with and without TLS, before these back ends.
struct Scene {
    authority: Authority,
    tidegate: Tidegate,
    /// The last field, so that its directory is removed only after the programs in it have ended.
    _stage: Stage,
}

impl Scene {
    fn new(backends: &[SocketAddr], stage: Stage, more: &str) -> Self {
        let (authority, more) = listeners(&stage, more);
        let configuration = Configuration { more, ..Configuration::new(&stage, backends) };
        let tidegate = Tidegate::start(&stage, &configuration);
        Self { authority, tidegate, _stage: stage }
    }

    fn here(&self) -> SocketAddr {
        self.tidegate.address_of("ws")
    }

    /// Returns a client without TLS and one with it.
    fn clients(&self) -> [Client; 2] {
        let secured = Client::connect_secured(&self.authority, self.tidegate.address_of("wss"));
        [Client::connect(self.here()), secured]
    }
}

/// Returns the authority of the certificate, and the tables of a listener for `wss` and of one for
/// `ws`. The latter has the further keys `more`.
fn listeners(stage: &Stage, more: &str) -> (Authority, String) {
    let authority = Authority::new(stage, "authority");
    let identity = authority.sign("server", &[&stage.ip().to_string()], VALID);
    let address = SocketAddr::new(stage.ip(), 0);
    let (certificate, key) = (identity.certificate.display(), identity.key.display());
    let text = format!(
        "[[listen]]\ntransport = \"wss\"\naddress = \"{address}\"\ncertificate = \"{certificate}\"\n\
         private_key = \"{key}\"\n[[listen]]\ntransport = \"ws\"\naddress = \"{address}\"\n{more}\n"
    );
    (authority, text)
}

fn handshakes(metrics: &Metrics, outcome: &str) -> u64 {
    metrics.sum("websocket_handshakes_total", &[("outcome", outcome)])
}

/// RFC 7118 §8.2: a browser calls a user agent over UDP. Record-Route names a listener of each
/// side's own transport, so that ACK and BYE arrive.
///
/// RFC 7118 §4.1: "Messages other than SIP requests and responses MUST NOT be transmitted over this
/// connection."
#[test]
fn browsers_call_a_back_end_over_udp() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let scene = Scene::new(&[callee.address()], stage, "");
    let mut clients = scene.clients();
    for number in 0..100 {
        clients.iter_mut().for_each(|client| client.call(number));
    }
    callee.finish().assert_all_well(200);
    let metrics = scene.tidegate.assert_all_done();
    assert_eq!(handshakes(&metrics, "completed"), 2);
    assert_eq!(metrics.sum("tls_handshakes_total", &[("outcome", "completed")]), 1);
}

/// RFC 7118 §8.2: the callee hangs up. Its BYE has a Request-URI that no one can resolve, and comes
/// back over the connection of the browser.
#[test]
fn the_callee_hangs_up_on_a_browser() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-hangs-up");
    let scene = Scene::new(&[callee.address()], stage, "");
    let mut clients = scene.clients();
    for number in 0..20 {
        for client in &mut clients {
            client.begin(number);
            client.is_hung_up_on();
        }
    }
    callee.finish().assert_all_well(40);
    let metrics = scene.tidegate.assert_all_done();
    assert_eq!(metrics.sum("connections_begun_total", &[("by", "tidegate")]), 0);
}

/// RFC 7118 §8.1, with a Kamailio that answers everything.
#[test]
fn browsers_register_at_a_kamailio() {
    let stage = Stage::new();
    let address = stage.free_address();
    let _kamailio = kamailio(&stage, address, ANSWERS);
    let scene = Scene::new(&[address], stage, "");
    for mut client in scene.clients() {
        let register = client.request("REGISTER", &format!("sip:{}", scene.here()), 1, 1);
        let answer = client.ask(&register);
        assert_eq!(answer.status(), 200);
        assert!(answer.field("Server").starts_with("kamailio"), "{}", answer.0);
        // Keep-alives of both kinds (RFC 7118 §6).
        client.websocket.send("\r\n\r\n".into()).unwrap();
        assert_eq!(client.websocket.read().unwrap(), "\r\n".into());
        client.websocket.send(tungstenite::Message::Ping("1".into())).unwrap();
        assert_eq!(client.websocket.read().unwrap(), tungstenite::Message::Pong("1".into()));
    }
    scene.tidegate.metrics().assert_nothing_lost();
}

/// RFC 3261 §16.6 item 6: "Furthermore, if the Request-URI contains a SIPS URI, TLS MUST be used to
/// communicate with that proxy."
#[test]
fn a_sips_uri_is_served_over_a_secure_websocket_only() {
    let stage = Stage::new();
    let backends = [stage.free_address()];
    let scene = Scene::new(&backends, stage, "");
    let statuses = scene.clients().map(|mut client| {
        let uri = format!("sips:bob@{}", scene.here());
        client.ask(&client.request("MESSAGE", &uri, 1, 1)).status()
    });
    // Over `ws` a SIPS URI is rejected. Over `wss` it is accepted, but no back end has TLS.
    assert_eq!(statuses, [416, 480]);
}

/// If a browser has closed its page, Tidegate answers a BYE for it and sends the BYE nowhere.
#[test]
fn a_browser_that_has_gone_is_not_called_back() {
    let stage = Stage::new();
    let callee = crate::stage::Peer::new(stage.ip());
    let scene = Scene::new(&[callee.address()], stage, "");
    let here = scene.tidegate.address();
    let mut client = Client::connect(scene.here());
    let invite = client.request("INVITE", &format!("sip:bob@{}", scene.here()), 1, 1);
    client.send(&invite);
    let invite = callee.receive();
    let ok = callee.response(&invite, "200 OK");
    callee.send(here, &ok);
    assert_eq!(client.receive().status(), 100);
    assert_eq!(client.receive().status(), 200);
    client.websocket.close(None).unwrap();
    scene.tidegate.wait_for("it is closed", |metrics| metrics.sum("connections", &[]) == 0);
    let uri = invite.field("Contact").trim_matches(['<', '>']);
    let mut bye = callee
        .request("BYE", uri, 2, 1)
        .with("From", ok.field("To"))
        .with("To", ok.field("From"))
        .with("Call-ID", ok.field("Call-ID"));
    for route in ok.fields("Record-Route").map(ToOwned::to_owned).collect::<Vec<_>>() {
        bye = bye.and("Route", &route);
    }
    assert_eq!(callee.ask(here, &bye).status(), 430);
    let metrics = scene.tidegate.metrics();
    assert_eq!(metrics.sum("connections_begun_total", &[("by", "tidegate")]), 0);
    assert_eq!(metrics.sum("connections_failed_total", &[]), 0);
}

/// RFC 6455 §4.2.2: a handshake that is not accepted gets an HTTP response.
#[test]
fn only_the_pages_of_configured_sites_connect() {
    let stage = Stage::new();
    let backends = [stage.free_address()];
    let scene = Scene::new(&backends, stage, "origins = [\"https://phone.example.com\"]");
    let status =
        |headers: &[(&'static str, &str)]| match Client::connect_with(scene.here(), headers) {
            Ok(_) => 101,
            Err(Error::Http(answer)) => answer.status().as_u16(),
            Err(error) => panic!("{error}"),
        };
    let sip = ("Sec-WebSocket-Protocol", "sip");
    assert_eq!(status(&[sip, ("Origin", "https://phone.example.com")]), 101);
    assert_eq!(status(&[sip]), 101);
    assert_eq!(status(&[sip, ("Origin", "https://evil.example.com")]), 403);
    assert_eq!(status(&[]), 400);
    // A client may see the answer before the server has counted it.
    scene.tidegate.wait_for("each handshake is counted once", |m| {
        ["completed", "origin", "subprotocol"].map(|outcome| handshakes(m, outcome)) == [2, 1, 1]
    });
}

/// A browser that does not trust the certificate sends its alert after TLS is complete for
/// Tidegate.
#[test]
fn a_browser_that_does_not_trust_the_certificate_is_counted() {
    let stage = Stage::new();
    let (backends, other) = ([stage.free_address()], Authority::new(&stage, "other"));
    let scene = Scene::new(&backends, stage, "");
    let here = scene.tidegate.address_of("wss");
    assert!(secured(&other, here, &here.ip().to_string(), None).is_err());
    scene.tidegate.wait_for("it sees the alert", |metrics| {
        metrics.sum("tls_handshakes_total", &[("outcome", "rejected")]) == 1
    });
    assert_eq!(handshakes(&scene.tidegate.metrics(), "closed"), 0);
}

/// Tidegate closes connections whose peers send garbage, half a handshake, nothing, or broken
/// frames. Other calls still complete.
#[test]
fn clients_that_misuse_websockets_lose_their_own_connections() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let scene = Scene::new(&[callee.address()], stage, "[connections]\nhandshake_seconds = 1\n");
    let mut caller = Client::connect(scene.here());
    let mut held: Vec<TcpStream> = Vec::new();
    let mut garbled = Vec::new();
    for number in 0..20 {
        for bytes in
            [&b"OPTIONS sip:a@b SIP/2.0\r\n\r\n"[..], b"GET / HTTP/1.1\r\nHost: a\r\n", b""]
        {
            let mut stream = TcpStream::connect(scene.here()).expect("it accepts");
            let _ = stream.write_all(bytes);
            held.push(stream);
        }
        for payload in [&b"\xff"[..], &[0; 100_000]] {
            let mut client = Client::connect(scene.here());
            let opcode = OpCode::Data(Data::Text);
            let header = FrameHeader { opcode, mask: Some([0; 4]), ..FrameHeader::default() };
            let frame = Frame::from_payload(header, payload.to_vec().into());
            let mut bytes = Vec::new();
            frame.format(&mut bytes).unwrap();
            let _ = client.websocket.get_mut().write_all(&bytes);
            garbled.push(client);
        }
        // Garbage in a message is dropped like garbage in a datagram.
        caller.websocket.send("no SIP\r\n\r\n".into()).unwrap();
        caller.call(number);
    }
    scene.tidegate.wait_for("all of them are closed", |metrics| {
        handshakes(metrics, "protocol") == 20
            && handshakes(metrics, "slow") == 40
            && metrics.sum("connections_closed_total", &[("cause", "garbled")]) == 40
            && metrics.sum("connections", &[]) == 1
    });
    caller.call(20);
    callee.finish().assert_all_well(21);
    scene.tidegate.metrics().assert_nothing_held();
}

/// A recording has the messages without their frames. Its replay sends the same bytes.
#[test]
fn a_recording_of_calls_over_websockets_replays_to_the_same_packets() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let (authority, more) = listeners(&stage, "");
    let configuration =
        Configuration { more, drain_seconds: 1, ..Configuration::new(&stage, &[callee.address()]) };
    let file = stage.path("recording");
    let path = file.to_str().expect("a path of ours");
    let mut tidegate = Tidegate::start_with(&stage, &configuration, &["--record", path]);
    let secured = Client::connect_secured(&authority, tidegate.address_of("wss"));
    for mut client in [Client::connect(tidegate.address_of("ws")), secured] {
        for number in 0..10 {
            client.call(number);
        }
    }
    tidegate.stop();
    assert_exact(run_to_end(&stage, &["replay", path]));
}
