//! Tests of calls over TCP, TLS and WebSockets: between our caller and our callee, and of each with
//! SIPp.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::Value;

use crate::stage::{Generator, Load, Sipp, Stage};
use crate::tls::certificates::{Authority, VALID};

/// Runs our caller against our callee. Returns their figures.
fn between_ours(stage: &Stage, calls: &str, outside: &[&str], inside: &[&str]) -> (Value, Value) {
    let (uas, address) = Generator::answerer(stage, inside);
    let load = ["--rate", "200", "--calls", calls];
    let ours = Generator::complete(stage, address, &[&load[..], outside].concat());
    let theirs = uas.stop();
    let line = format!("\nconnections     {}: ", outside[1].to_uppercase());
    for text in [ours.text, theirs.text] {
        assert!(text.contains(&line), "{text}");
    }
    (ours.figures, theirs.figures)
}

/// RFC 3261 §18: "All SIP elements MUST implement UDP and TCP."
#[test]
fn our_programs_use_the_given_number_of_connections() {
    let stage = Stage::new();
    for (transport, connections, opened) in [
        ("tcp", "1", 1),
        ("tcp", "3", 3),
        ("tcp", "each", 200),
        ("tls", "2", 2),
        ("tls", "each", 200),
        ("ws", "1", 1),
        ("ws", "each", 200),
        ("wss", "3", 3),
        ("wss", "each", 200),
    ] {
        let over = ["--transport", transport];
        let outside = ["--connections", connections, "--callers", "30", "--tls-insecure"];
        let outside = [&over[..], &outside].concat();
        let (ours, theirs) = between_ours(&stage, "200", &outside, &over);
        let what = format!("{transport} {connections}");
        for stats in [&ours["stats"], &theirs["stats"]] {
            assert_eq!(stats["completed"], 200, "{what}: {stats}");
        }
        let (used, seen) = (&ours["usage"]["streams"], &theirs["usage"]["streams"]);
        assert_eq!(
            (&used["opened"], &seen["accepted"]),
            (&opened.into(), &opened.into()),
            "{what}"
        );
        assert_eq!(used["transport"], transport.to_uppercase(), "{what}");
        for nothing in ["failed", "excess", "overflow", "unsent", "handshakes_failed"] {
            assert_eq!(
                (&used[nothing], &seen[nothing]),
                (&0.into(), &0.into()),
                "{what}: {nothing}"
            );
        }
        // A call has three requests (INVITE, ACK, BYE) and three responses (180, 200, 200).
        assert!(used["sent"].as_u64() >= Some(600), "{what}: {used}");
        assert!(used["received"].as_u64() >= Some(600), "{what}: {used}");
        assert_eq!(used["sent_bytes"], seen["received_bytes"], "{what}");
        let handshakes = if ["tls", "wss"].contains(&transport) { opened } else { 0 };
        let websockets = if transport.starts_with("ws") { opened } else { 0 };
        for (name, count) in [("handshakes", handshakes), ("websockets", websockets)] {
            assert_eq!(
                (&used[name], &seen[name]),
                (&count.into(), &count.into()),
                "{what}: {name}"
            );
        }
        // RFC 3261 §17.1.1.2: a reliable transport needs no retransmission.
        assert_eq!(ours["stats"]["repeated"]["invite"], 0, "{what}");
    }
}

/// The BYE of a callee must be sent on the connection of the call.
#[test]
fn our_answerer_hangs_up_over_streams() {
    let stage = Stage::new();
    for transport in ["tcp", "tls", "ws", "wss"] {
        let over = ["--transport", transport, "--tls-insecure"];
        let inside = [&over[..], &["--hang-up", "1", "--hold", "0.05"]].concat();
        let outside = [&over[..], &["--hold", "30"]].concat();
        let (ours, theirs) = between_ours(&stage, "50", &outside, &inside);
        assert_eq!(ours["stats"]["hung_up"], 50, "{transport}");
        assert_eq!(theirs["stats"]["hung_up"], 50, "{transport}");
    }
}

#[test]
fn sipp_answers_our_caller_over_tcp() {
    let stage = Stage::new();
    for connections in ["1", "each"] {
        let uas = Sipp::tcp_callee(&stage, "uas");
        let load = ["--rate", "150", "--calls", "300", "--connections", connections];
        let target = format!("sip:service@{};transport=tcp", uas.address());
        let text = Generator::complete(&stage, target, &load).text;
        assert!(text.contains("unexpected 0, late 0, malformed 0, undelivered 0"), "{text}");
        // SIPp waits for copies of the BYE. If the connection ends meanwhile, SIPp counts the call
        // as failed. So the test does not count successful calls.
        let calls = uas.finish();
        assert_eq!((calls.created, calls.unexpected, calls.repeated), (300, 0, 0), "{connections}");
    }
}

#[test]
fn sipp_calls_our_answerer_over_tcp() {
    let stage = Stage::new();
    for (socket_each, connections) in [(false, 1), (true, 300)] {
        let (uas, address) = Generator::answerer(&stage, &["--transport", "tcp"]);
        let load = Load { calls: 300, rate_cps: 150, is_tcp: true, socket_each, ..Load::default() };
        Sipp::caller(&stage, address, &load).wait().assert_all_well(300);
        let figures = uas.stop().figures;
        assert_eq!(figures["stats"]["completed"], 300, "{connections}");
        assert_eq!(figures["usage"]["streams"]["accepted"], connections);
        assert_eq!(figures["usage"]["streams"]["unsent"], 0, "{connections}");
    }
}

/// RFC 3261 §8.1.3.1: "If a fatal transport error is reported by the transport layer (generally,
/// due to fatal ICMP errors in UDP or connection failures in TCP), the condition MUST be treated as
/// a 503 (Service Unavailable) status code."
#[test]
fn calls_to_an_absent_server_fail_at_once() {
    let stage = Stage::new();
    let closed = stage.free_address();
    for connections in ["1", "each"] {
        let load = ["--rate", "100", "--calls", "5", "--transport", "tcp"];
        let load = [&load[..], &["--connections", connections]].concat();
        let ended = Generator::call(&stage, closed, &load);
        assert_eq!(ended.status, Some(1), "{}", ended.text);
        let text = ended.text;
        assert!(text.contains("failed          5 calls (transport: 5)"), "{text}");
        assert!(text.contains("TCP: opened 0, accepted 0, failed "), "{text}");
    }
}

/// RFC 7118 §4.1: "In case there is no HTTP 101 response during the WebSocket handshake, it is
/// considered a transaction error".
#[test]
fn a_server_that_opens_no_websocket_fails_the_calls_and_is_reported() {
    let stage = Stage::new();
    let listener = TcpListener::bind((stage.ip(), 0)).unwrap();
    let web = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let (_uas, sip) = Generator::answerer(&stage, &["--transport", "tcp"]);
    for (address, reason) in [(web, "status other than 101: 3"), (sip, "connection ended: 3")] {
        let load = ["--rate", "100", "--calls", "3", "--connections", "each"];
        let ended = Generator::call(&stage, format!("sip:bob@{address};transport=ws"), &load);
        assert_eq!(ended.status, Some(1), "{}", ended.text);
        let text = ended.text;
        assert!(text.contains("failed          3 calls (transport: 3)"), "{text}");
        assert!(text.contains(&format!("WebSockets 0, failed 3 ({reason})\n")), "{text}");
    }
}

/// The caller verifies the certificate of the server, unless an option turns this off.
#[test]
fn a_certificate_is_verified() {
    let stage = Stage::new();
    let [authority, stranger] = ["authority", "stranger"].map(|name| Authority::new(&stage, name));
    let identity = authority.sign("server", &[&stage.ip().to_string()], VALID);
    let [certificate, key] =
        [&identity.certificate, &identity.key].map(|file| file.to_str().unwrap());
    let inside = ["--transport", "tls", "--certificate", certificate, "--private-key", key];
    let (_uas, address) = Generator::answerer(&stage, &inside);
    let load = ["--rate", "100", "--calls", "3", "--transport", "tls"];
    let call = |trust: &[&str]| Generator::call(&stage, address, &[&load[..], trust].concat());
    let [authority, stranger] = [&authority, &stranger].map(|ca| ca.path.to_str().unwrap());
    for trust in [&["--ca", authority][..], &["--tls-insecure"]] {
        let ended = call(trust);
        assert_eq!(ended.status, Some(0), "{}", ended.text);
        assert!(ended.text.contains("; handshakes 1, failed 0"), "{}", ended.text);
    }
    let ended = call(&["--ca", stranger]);
    assert_eq!(ended.status, Some(1), "{}", ended.text);
    assert!(ended.text.contains("failed          3 calls (transport: 3)"), "{}", ended.text);
    assert!(ended.text.contains("; handshakes 0, failed "), "{}", ended.text);
}
