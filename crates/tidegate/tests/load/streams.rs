//! Tests of calls over TCP, TLS and WebSockets: between our caller and our callee, and of each with
//! SIPp.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::Value;

use crate::stage::{answerer, caller, json, sipp_over_tcp, sipp_start};

/// Runs our caller against our callee. Returns their figures.
fn between_ours(calls: &str, outside: &[&str], inside: &[&str]) -> (Value, Value) {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, ours) = (folder.path().join("uas.json"), folder.path().join("uac.json"));
    let (uas, address) = answerer(&[inside, &["--json", theirs.to_str().unwrap()]].concat());
    let load = ["--rate", "200", "--calls", calls, "--json", ours.to_str().unwrap()];
    let done = caller(&address, &[&load[..], outside].concat());
    let table = String::from_utf8(done.stdout).unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{table}{errors}");
    let transport = outside[1].to_uppercase();
    let line = format!("\nconnections     {transport}: ");
    assert!(table.contains(&line), "{table}");
    let text = uas.stop();
    assert!(text.contains(&line), "{text}");
    (json(&ours), json(&theirs))
}

/// RFC 3261 §18: "All SIP elements MUST implement UDP and TCP."
#[test]
fn our_programs_use_the_given_number_of_connections() {
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
        let (ours, theirs) = between_ours("200", &[&over[..], &outside].concat(), &over);
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
    for transport in ["tcp", "tls", "ws", "wss"] {
        let over = ["--transport", transport, "--tls-insecure"];
        let inside = [&over[..], &["--hang-up", "1", "--hold", "0.05"]].concat();
        let outside = [&over[..], &["--hold", "30"]].concat();
        let (ours, theirs) = between_ours("50", &outside, &inside);
        assert_eq!(ours["stats"]["hung_up"], 50, "{transport}");
        assert_eq!(theirs["stats"]["hung_up"], 50, "{transport}");
    }
}

#[test]
fn sipp_answers_our_caller_over_tcp() {
    for connections in ["1", "each"] {
        let (uas, address) = sipp_over_tcp(&["-sn", "uas", "-m", "300"]);
        let load = ["--rate", "150", "--calls", "300", "--connections", connections];
        let done = caller(&format!("sip:service@{address};transport=tcp"), &load);
        let table = String::from_utf8(done.stdout).unwrap();
        assert_eq!(done.status.code(), Some(0), "{connections}: {table}");
        assert!(table.contains("unexpected 0, late 0, malformed 0, undelivered 0"), "{table}");
        // SIPp waits for copies of the BYE. If the connection ends meanwhile, SIPp counts the call
        // as failed. So the test uses its count of messages, and not its exit status.
        let (_, text) = uas.end();
        for message in ["INVITE", "BYE"] {
            let line = text.lines().find(|line| line.contains(&format!("-> {message}")));
            let counts: Vec<_> = line.unwrap_or_default().split_whitespace().skip(2).collect();
            assert_eq!(counts, ["300", "0", "0", "0"], "{connections} {message}:\n{text}");
        }
    }
}

#[test]
fn sipp_calls_our_answerer_over_tcp() {
    for (mode, connections) in [("t1", 1), ("tn", 300)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("uas.json");
        let (uas, address) = answerer(&["--transport", "tcp", "--json", file.to_str().unwrap()]);
        let load = ["-r", "150", "-m", "300", "-l", "300", "-d", "0"];
        let (uac, _) =
            sipp_start(&[&[address.as_str(), "-t", mode, "-sn", "uac"], &load[..]].concat());
        uac.assert_all_well();
        uas.stop();
        let figures = json(&file);
        assert_eq!(figures["stats"]["completed"], 300, "{mode}");
        assert_eq!(figures["usage"]["streams"]["accepted"], connections, "{mode}");
        assert_eq!(figures["usage"]["streams"]["unsent"], 0, "{mode}");
    }
}

/// RFC 3261 §8.1.3.1: "If a fatal transport error is reported by the transport layer (generally,
/// due to fatal ICMP errors in UDP or connection failures in TCP), the condition MUST be treated as
/// a 503 (Service Unavailable) status code."
#[test]
fn calls_to_an_absent_server_fail_at_once() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for connections in ["1", "each"] {
        let load = ["--rate", "100", "--calls", "5", "--transport", "tcp"];
        let done = caller(&closed, &[&load[..], &["--connections", connections]].concat());
        let table = String::from_utf8(done.stdout).unwrap();
        assert_eq!(done.status.code(), Some(1), "{table}");
        assert!(table.contains("failed          5 calls (transport: 5)"), "{table}");
        assert!(table.contains("TCP: opened 0, accepted 0, failed "), "{table}");
    }
}

/// RFC 7118 §4.1: "In case there is no HTTP 101 response during the WebSocket handshake, it is
/// considered a transaction error".
#[test]
fn a_server_that_opens_no_websocket_fails_the_calls_and_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let web = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let (_uas, sip) = answerer(&["--transport", "tcp"]);
    for (address, reason) in [(web, "status other than 101: 3"), (sip, "connection ended: 3")] {
        let load = ["--rate", "100", "--calls", "3", "--connections", "each"];
        let done = caller(&format!("sip:bob@{address};transport=ws"), &load);
        let table = String::from_utf8(done.stdout).unwrap();
        assert_eq!(done.status.code(), Some(1), "{table}");
        assert!(table.contains("failed          3 calls (transport: 3)"), "{table}");
        assert!(table.contains(&format!("WebSockets 0, failed 3 ({reason})\n")), "{table}");
    }
}

/// The caller verifies the certificate of the server, unless an option turns this off.
#[test]
fn a_certificate_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let [own, other] = [(); 2].map(|()| {
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate")
    });
    let certificate = file("own.pem", own.cert.pem());
    let key = file("own.key", own.signing_key.serialize_pem());
    let stranger = file("other.pem", other.cert.pem());
    let identity = ["--certificate", &certificate, "--private-key", &key];
    let (_uas, address) = answerer(&[&["--transport", "tls"], &identity[..]].concat());
    let load = ["--rate", "100", "--calls", "3", "--transport", "tls"];
    let call = |trust: &[&str]| {
        let done = caller(&address, &[&load[..], trust].concat());
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    for trust in [&["--ca", &certificate][..], &["--tls-insecure"]] {
        let (status, table) = call(trust);
        assert_eq!(status, Some(0), "{table}");
        assert!(table.contains("; handshakes 1, failed 0"), "{table}");
    }
    let (status, table) = call(&["--ca", &stranger]);
    assert_eq!(status, Some(1), "{table}");
    assert!(table.contains("failed          3 calls (transport: 3)"), "{table}");
    assert!(table.contains("; handshakes 0, failed "), "{table}");
}
