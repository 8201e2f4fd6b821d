//! Tests of calls over TLS, with OpenSSL and Kamailio as peers and a client of rustls.

pub mod certificates;
pub mod client;

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::products::{ANSWERS, kamailio_with_tls};
use crate::stage::{
    Configuration, Load, Message, Metrics, Peer, Sipp, Stage, Tidegate, assert_exact, eventually,
    run_to_end,
};
use certificates::{Authority, EXPIRED, Identity, VALID};
use client::Client;

/// Returns the table of a listener for TLS with these certificates and the further keys `more`.
fn listener(stage: &Stage, identities: &[&Identity], more: &str) -> String {
    let files = |of: fn(&Identity) -> &Path| -> Vec<_> {
        identities.iter().map(|identity| of(identity).display().to_string()).collect()
    };
    let (certificates, keys) = (files(|i| &i.certificate), files(|i| &i.key));
    let address = SocketAddr::new(stage.ip(), 0);
    format!(
        "[[listen]]\ntransport = \"tls\"\naddress = \"{address}\"\n\
         certificate = {certificates:?}\nprivate_key = {keys:?}\n{more}\n"
    )
}

/// A Tidegate with a listener for TLS before these back ends, and the authority of its certificate.
struct Scene {
    stage: Stage,
    authority: Authority,
    identity: Identity,
    tidegate: Tidegate,
}

impl Scene {
    fn new(backends: &[SocketAddr], stage: Stage, more: &str) -> Self {
        let authority = Authority::new(&stage, "authority");
        let identity = authority.sign("server", &[&stage.ip().to_string()], VALID);
        let more = listener(&stage, &[&identity], "") + more;
        let configuration = Configuration { more, ..Configuration::with_tcp(&stage, backends) };
        let tidegate = Tidegate::start(&stage, &configuration);
        Self { stage, authority, identity, tidegate }
    }

    fn here(&self) -> SocketAddr {
        self.tidegate.tls_address()
    }

    fn client(&self) -> Client {
        Client::connect(&self.authority, self.here()).expect("the handshake succeeds")
    }
}

fn handshakes(metrics: &Metrics, outcome: &str) -> u64 {
    metrics.sum("tls_handshakes_total", &[("outcome", outcome)])
}

/// Makes calls to a callee over UDP, which must all succeed: first `of_one` calls of one client on
/// its connection, and then one call of each of `others` clients. Returns the metrics of Tidegate.
fn calls_over_tls(stage: Stage, of_one: u32, others: u32) -> Metrics {
    let callee = Sipp::callee(&stage, "uas-record-route");
    let scene = Scene::new(&[callee.address()], stage, "");
    assert_eq!(scene.here().ip(), scene.stage.ip());
    let mut one = scene.client();
    for number in 0..of_one {
        one.call(number);
    }
    for number in of_one..of_one + others {
        scene.client().call(number);
    }
    callee.finish().assert_all_well(of_one + others);
    let metrics = scene.tidegate.assert_all_done();
    assert_eq!(handshakes(&metrics, "completed"), 1 + u64::from(others));
    metrics
}

/// RFC 3261 §26.3.1: "Proxy servers, redirect servers, and registrars MUST implement TLS, and MUST
/// support both mutual and one-way authentication." Record-Route names a listener of each side's
/// own transport, so that ACK and BYE arrive.
#[test]
fn calls_over_tls_reach_a_back_end_over_udp() {
    let metrics = calls_over_tls(Stage::new(), 200, 100);
    let valid_to = metrics.sum("tls_certificate_valid_to_seconds", &[]);
    assert!(valid_to > 4_000_000_000, "{valid_to}");
}

/// The certificate is for an IPv6 address.
#[test]
fn calls_over_tls_go_over_ipv6() {
    calls_over_tls(Stage::ipv6(), 50, 10);
}

/// Tidegate sends requests over TLS to a Kamailio and verifies its certificate.
#[test]
fn kamailio_answers_over_tls() {
    let stage = Stage::new();
    let authority = Authority::new(&stage, "inner");
    let identity = authority.sign("kamailio", &[&stage.ip().to_string()], VALID);
    let stranger = Authority::new(&stage, "stranger");
    let address = stage.free_address();
    let _kamailio =
        kamailio_with_tls(&stage, address, &identity.certificate, &identity.key, ANSWERS);
    let load = Load { scenario: "uac-message", calls: 100, rate_cps: 100, ..Load::default() };

    let inside = |ca: &Authority| {
        let own = authority.sign("own", &[&stage.ip().to_string()], VALID);
        let more = format!("[pool.tls]\nca = {:?}\n", ca.path) + &listener(&stage, &[&own], "");
        Configuration { is_tls_inside: true, more, ..Configuration::with_tcp(&stage, &[address]) }
    };
    let tidegate = Tidegate::start(&stage, &inside(&authority));
    Sipp::caller(&stage, tidegate.address(), &load).wait().assert_all_well(100);
    let metrics = tidegate.metrics();
    assert_eq!(metrics.sum("connections_begun_total", &[("by", "tidegate")]), 1);
    assert_eq!(handshakes(&metrics, "completed"), 1);
    // A request with a SIPS URI is forwarded from TLS to TLS, but not from or to another transport.
    let mut client = Client::connect(&authority, tidegate.tls_address()).expect("a handshake");
    let here = tidegate.tls_address();
    client.send(&client.request("MESSAGE", &format!("sips:bob@{here}"), 7, 1));
    assert_eq!(client.receive().status(), 200);
    let peer = Peer::new(stage.ip());
    let plain = peer.request("MESSAGE", &format!("sips:bob@{here}"), 8, 1);
    assert_eq!(peer.ask(tidegate.address(), &plain).status(), 416);
    drop(tidegate);

    // A back end with another certificate gets no request. RFC 3261 §16.9 treats this like a 503,
    // and §16.7 item 6 forwards no 503.
    let tidegate = Tidegate::start(&stage, &inside(&stranger));
    let request = peer.request("MESSAGE", &format!("sip:bob@{}", tidegate.address()), 9, 1);
    assert_eq!(peer.ask(tidegate.address(), &request).status(), 500);
    let metrics = tidegate.metrics();
    assert_eq!(metrics.sum("connections_begun_total", &[("by", "tidegate")]), 0);
    assert!(handshakes(&metrics, "certificate") >= 1);
}

/// RFC 3261 §16.6 item 6: "Furthermore, if the Request-URI contains a SIPS URI, TLS MUST be used to
/// communicate with that proxy."
#[test]
fn a_sips_uri_does_not_leave_without_tls() {
    let stage = Stage::new();
    let backend = Peer::new(stage.ip());
    let scene = Scene::new(&[backend.address()], stage, "");
    let mut client = scene.client();
    client.send(&client.request("MESSAGE", &format!("sips:bob@{}", scene.here()), 1, 1));
    assert_eq!(client.receive().status(), 480);
    assert!(backend.next_within(Duration::from_millis(200)).is_none());
}

/// A client of OpenSSL gets an answer over TLS 1.2 and over TLS 1.3.
#[test]
fn openssl_is_answered() {
    let stage = Stage::new();
    let backend = stage.free_address();
    let scene = Scene::new(&[backend], stage, "");
    let ca = scene.authority.path.display().to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        let address = scene.here().to_string();
        let shown = scene.stage.path(&format!("openssl{version}.log"));
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_return_error", version])
            .args(["-CAfile", &ca, "-connect", &address])
            .stdin(Stdio::piped())
            .stdout(fs::File::create(&shown).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        let request =
            Peer::new(scene.stage.ip()).request("OPTIONS", &format!("sip:{address}"), 1, 1);
        let input = client.stdin.as_mut().expect("it is piped");
        input.write_all(request.0.replace("/UDP ", "/TLS ").as_bytes()).expect("it reads");
        let answer = eventually("openssl shows the answer", || {
            fs::read_to_string(&shown).ok().filter(|answer| answer.contains("\r\n"))
        });
        client.kill().expect("it runs");
        client.wait().expect("it ends");
        assert!(answer.starts_with("SIP/2.0 200"), "{version}: {answer}");
    }
    assert_eq!(handshakes(&scene.tidegate.metrics(), "completed"), 2);
}

/// RFC 3261 §26.3.1: "MUST support both mutual and one-way authentication."
#[test]
fn clients_present_certificates_if_the_listener_requires_them() {
    for (asked, without) in [("required", false), ("optional", true)] {
        let stage = Stage::new();
        let authority = Authority::new(&stage, "authority");
        let clients = Authority::new(&stage, "clients");
        let server = authority.sign("server", &[&stage.ip().to_string()], VALID);
        let more = format!("client_ca = {:?}\nclient_certificate = \"{asked}\"\n", clients.path);
        let more = listener(&stage, &[&server], &more);
        let backends = [stage.free_address()];
        let configuration = Configuration { more, ..Configuration::with_tcp(&stage, &backends) };
        let tidegate = Tidegate::start(&stage, &configuration);
        let here = tidegate.tls_address();
        let good = clients.sign("good", &["alice.example.com"], VALID);
        let expired = clients.sign("expired", &["alice.example.com"], EXPIRED);
        let wrong = authority.sign("wrong", &["alice.example.com"], VALID);
        let is_served = |identity: Option<&Identity>| {
            let connected = Client::connect_as(&authority, here, &stage.ip().to_string(), identity);
            connected.is_ok_and(|mut client| client.is_served())
        };
        let served = [None, Some(&good), Some(&expired), Some(&wrong)].map(is_served);
        assert_eq!(served, [without, true, false, false], "{asked}");
        // A client may see the alert before the server has counted it.
        let metrics = tidegate.wait_for("the failures are counted", |m| {
            handshakes(m, "expired") + handshakes(m, "certificate") == 2 + u64::from(!without)
        });
        assert_eq!(handshakes(&metrics, "expired"), 1, "{asked}");
    }
}

/// RFC 6066 §3: a client names the host that it wants to reach. A client that names none, or an
/// unknown one, gets the first certificate.
#[test]
fn a_client_gets_the_certificate_for_the_name_that_it_asks_for() {
    let stage = Stage::new();
    let authority = Authority::new(&stage, "authority");
    let ip = stage.ip().to_string();
    let one = authority.sign("one", &["one.example.com", &ip], VALID);
    let two = authority.sign("two", &["two.example.com"], VALID);
    let more = listener(&stage, &[&one, &two], "");
    let backends = [stage.free_address()];
    let configuration = Configuration { more, ..Configuration::with_tcp(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let connect = |name: &str| Client::connect_as(&authority, tidegate.tls_address(), name, None);
    for name in ["one.example.com", "two.example.com", &ip] {
        assert!(connect(name).is_ok_and(|mut client| client.is_served()), "{name}");
    }
    assert!(connect("three.example.com").is_err());
    let metrics = tidegate.wait_for("it sees the alert", |m| handshakes(m, "rejected") == 1);
    assert_eq!(handshakes(&metrics, "completed"), 3);
}

/// A reload replaces certificates. Calls on earlier connections continue.
#[test]
fn a_reload_replaces_certificates_and_keeps_connections() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let scene = Scene::new(&[callee.address()], stage, "");
    let Scene { stage, identity, tidegate, .. } = &scene;
    let mut before = scene.client();
    before.call(1);
    let call = before.begin(2);

    let other = Authority::new(stage, "other");
    let renewed = other.sign("renewed", &[&stage.ip().to_string()], VALID);
    fs::copy(&renewed.certificate, &identity.certificate).unwrap();
    let reload = || {
        let admin = format!("http://{}", tidegate.admin());
        run_to_end(stage, &["ctl", "--admin", &admin, "reload"])
    };
    // A reload with a key that belongs to another certificate fails, and changes nothing.
    let (code, text) = reload();
    assert_ne!(code, Some(0), "{text}");
    assert!(text.contains("this key does not belong to the certificate"), "{text}");
    assert!(scene.client().is_served());

    fs::copy(&renewed.key, &identity.key).unwrap();
    tidegate.signal(Signal::HUP);
    let after =
        eventually("the new certificate is used", || Client::connect(&other, scene.here()).ok());
    assert!(Client::connect(&scene.authority, scene.here()).is_err());
    let mut after = after;
    after.call(3);
    before.end(&call);
    before.call(4);
    callee.finish().assert_all_well(4);
    tidegate.metrics().assert_nothing_lost();
}

/// `tidegate check` reports each unusable file at its line, and warns of an expired certificate.
#[test]
fn unusable_certificates_are_reported_before_the_start() {
    let stage = Stage::new();
    let authority = Authority::new(&stage, "authority");
    let good = authority.sign("good", &["a.example.com"], VALID);
    let other = authority.sign("other", &["b.example.com"], VALID);
    let expired = authority.sign("expired", &["a.example.com"], EXPIRED);
    let check = |identity: &Identity| {
        let more = listener(&stage, &[identity], "");
        let backends = [stage.free_address()];
        let configuration = Configuration { more, ..Configuration::with_tcp(&stage, &backends) };
        let file = configuration.write(&stage, "checked.toml");
        run_to_end(&stage, &["check", file.to_str().unwrap()])
    };
    let (code, text) = check(&expired);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(" days ago: renew it"), "{text}");
    let missing = Identity { certificate: stage.path("none.pem"), ..good.clone() };
    let mixed = Identity { key: other.key.clone(), ..good.clone() };
    let swapped = Identity { certificate: good.key.clone(), key: good.key.clone() };
    for (identity, said) in [
        (missing, "none.pem cannot be used"),
        (mixed, "this key does not belong to the certificate"),
        (swapped, "the file contains no certificate"),
    ] {
        let (code, text) = check(&identity);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(said) && text.contains("checked.toml:"), "{text}");
    }
}

/// Tidegate closes connections whose peers send garbage, half a handshake, or nothing. Other calls
/// still complete.
#[test]
fn clients_that_misuse_tls_lose_their_own_connections() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let more = "[connections]\nhandshake_seconds = 1\n";
    let scene = Scene::new(&[callee.address()], stage, more);
    let here = scene.here();
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let mut caller = scene.client();
    let mut held: Vec<TcpStream> = Vec::new();
    for number in 0..50 {
        for bytes in [&b"OPTIONS sip:a@b SIP/2.0\r\n\r\n"[..], &[0xff; 4096], &hello[..], b""] {
            let mut stream = TcpStream::connect(here).expect("it accepts");
            let _ = stream.write_all(bytes);
            held.push(stream);
        }
        // After a complete handshake, the client sends garbage.
        let mut garbled = scene.client();
        garbled.send_bytes(b"\x00\x01\x02 no SIP\r\n\r\n");
        caller.call(number);
    }
    scene.tidegate.wait_for("all of them are closed", |metrics| {
        handshakes(metrics, "protocol") == 100
            && handshakes(metrics, "slow") == 100
            && metrics.sum("connections_closed_total", &[("cause", "garbled")]) == 50
            && metrics.sum("connections", &[]) == 1
    });
    caller.call(50);
    callee.finish().assert_all_well(51);
    scene.tidegate.assert_all_done();
}

/// A recording has the plaintext of the messages, so its replay sends the same bytes.
#[test]
fn a_recording_of_calls_over_tls_replays_to_the_same_packets() {
    let stage = Stage::new();
    let callee = Sipp::callee(&stage, "uas-record-route");
    let authority = Authority::new(&stage, "authority");
    let identity = authority.sign("server", &[&stage.ip().to_string()], VALID);
    let configuration = Configuration {
        more: listener(&stage, &[&identity], ""),
        drain_seconds: 1,
        ..Configuration::with_tcp(&stage, &[callee.address()])
    };
    let file = stage.path("recording");
    let path = file.to_str().expect("a path of ours");
    let mut tidegate = Tidegate::start_with(&stage, &configuration, &["--record", path]);
    let mut client = Client::connect(&authority, tidegate.tls_address()).expect("a handshake");
    for number in 0..20 {
        client.call(number);
    }
    tidegate.stop();
    // A replay needs no certificates.
    fs::remove_file(&identity.key).unwrap();
    assert_exact(run_to_end(&stage, &["replay", path]));
}

/// Returns whether a message has a Record-Route of TLS.
fn records_tls(message: &Message) -> bool {
    message.fields("Record-Route").any(|route| route.contains(";transport=tls"))
}
