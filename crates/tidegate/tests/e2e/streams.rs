//! Tests of calls over TCP with real peers.

mod hostile;
mod stalled;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

use crate::products::{ANSWERS, kamailio, kamailio_with_tcp};
use crate::stage::{
    Configuration, Load, Metrics, Peer, Sipp, Stage, Tidegate, assert_exact, eventually, run_to_end,
};

const CALLS: u32 = 300;

/// The loads of callers over TCP: on one connection for all calls, and on one for each.
fn loads() -> [Load<'static>; 2] {
    [false, true].map(|socket_each| Load {
        scenario: "uac-routes",
        calls: CALLS,
        rate_cps: 150,
        hold_ms: 100,
        socket_each,
        is_tcp: true,
    })
}

/// RFC 3261 §18: "All SIP elements MUST implement UDP and TCP."
#[test]
fn calls_over_tcp_reach_back_ends_over_tcp() {
    let (stage, home) = (Stage::new(), Stage::new());
    let callees = ["uas-record-route"; 2].map(|scenario| Sipp::tcp_callee(&stage, scenario));
    let backends = callees.each_ref().map(Sipp::address);
    let configuration =
        Configuration { is_tcp_inside: true, ..Configuration::with_tcp(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let callers = loads().map(|load| Sipp::caller(&home, tidegate.tcp_address(), &load));
    for caller in callers {
        caller.wait().assert_all_well(CALLS);
    }
    for calls in callees.map(Sipp::finish) {
        calls.assert_all_well(CALLS);
    }
    let metrics = tidegate.assert_all_done();
    // One connection to each back end carries all calls.
    assert_eq!(metrics.sum("connections_begun_total", &[("by", "tidegate")]), 2);
    assert_eq!(metrics.sum("connections_begun_total", &[("by", "peer")]), u64::from(CALLS) + 1);
    assert_eq!(metrics.sum("udp_received_total", &[]), 0);
    assert_eq!(metrics.sum("stream_unsent_total", &[]), 0);
}

/// Record-Route names a listener of each side's own transport, so that ACK and BYE arrive.
#[test]
fn calls_cross_between_udp_and_tcp_in_both_directions() {
    for is_tcp_inside in [false, true] {
        let (stage, home) = (Stage::new(), Stage::new());
        let callee = match is_tcp_inside {
            true => Sipp::tcp_callee(&stage, "uas-record-route"),
            false => Sipp::callee(&stage, "uas-record-route"),
        };
        let backends = [callee.address()];
        let configuration =
            Configuration { is_tcp_inside, ..Configuration::with_tcp(&stage, &backends) };
        let tidegate = Tidegate::start(&stage, &configuration);
        let target = if is_tcp_inside { tidegate.address() } else { tidegate.tcp_address() };
        let load = Load { is_tcp: !is_tcp_inside, ..loads()[0] };
        Sipp::caller(&home, target, &load).wait().assert_all_well(CALLS);
        callee.finish().assert_all_well(CALLS);
        tidegate.assert_all_done();
    }
}

/// The BYE of the callee travels on the connection of the caller, which listens nowhere.
#[test]
fn a_back_end_hangs_up_on_callers_over_tcp() {
    let (stage, home) = (Stage::new(), Stage::new());
    let callee = Sipp::tcp_callee(&stage, "uas-hangs-up");
    let configuration = Configuration {
        is_tcp_inside: true,
        ..Configuration::with_tcp(&stage, &[callee.address()])
    };
    let tidegate = Tidegate::start(&stage, &configuration);
    for load in loads() {
        let load = Load { scenario: "uac-hung-up", calls: 100, ..load };
        Sipp::caller(&home, tidegate.tcp_address(), &load).wait().assert_all_well(100);
    }
    callee.finish().assert_all_well(200);
    tidegate.metrics().assert_nothing_held();
}

#[test]
fn kamailio_answers_over_tcp() {
    let (stage, home) = (Stage::new(), Stage::new());
    let address = stage.free_address();
    let _kamailio = kamailio_with_tcp(&stage, address, ANSWERS);
    let configuration =
        Configuration { is_tcp_inside: true, ..Configuration::with_tcp(&stage, &[address]) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let load = Load { scenario: "uac-message", ..loads()[1] };
    Sipp::caller(&home, tidegate.tcp_address(), &load).wait().assert_all_well(CALLS);
    let over_udp = Load { is_tcp: false, ..load };
    Sipp::caller(&home, tidegate.address(), &over_udp).wait().assert_all_well(CALLS);
    let metrics = tidegate.metrics();
    assert_eq!(metrics.backend("backend_assigned_total", address), 2 * u64::from(CALLS));
    assert_eq!(metrics.sum("connections_begun_total", &[("by", "tidegate")]), 1);
}

/// RFC 3261 §18.1.1: "[...] if the attempt to establish the connection
/// generates either an ICMP Protocol Not Supported, or results in a TCP reset, the element SHOULD
/// retry the request, using UDP."
#[test]
fn large_requests_to_a_kamailio_leave_over_tcp_if_it_listens() {
    for has_tcp in [true, false] {
        let stage = Stage::new();
        let address = stage.free_address();
        let start = if has_tcp { kamailio_with_tcp } else { kamailio };
        let _kamailio = start(&stage, address, ANSWERS);
        let configuration = Configuration::with_tcp(&stage, &[address]);
        let configuration = Configuration { has_large_over_tcp: true, ..configuration };
        let tidegate = Tidegate::start(&stage, &configuration);
        let here = tidegate.address();
        let peer = Peer::new(stage.ip());
        let mut calls = 0;
        for (number, length) in (1..).zip([10, 2000, 3000, 8000]) {
            let message = peer.request("MESSAGE", &format!("sip:bob@{here}"), number, 1);
            let response = peer.ask(here, &message.and("Subject", &"x".repeat(length)));
            assert_eq!(response.status(), 200);
            calls += 1;
        }
        let metrics = tidegate.metrics();
        assert_eq!(metrics.backend("backend_assigned_total", address), calls);
        let over_tcp = metrics.sum("large_requests_over_tcp_total", &[]);
        let by_udp = metrics.sum("large_requests_by_udp_total", &[]);
        // After a refused connection, Tidegate sends large requests by UDP for a minute.
        assert_eq!((over_tcp, by_udp), if has_tcp { (3, 0) } else { (1, 1) });
        metrics.assert_nothing_lost();
        metrics.assert_nothing_held();
    }
}

/// A client that writes and reads bytes.
struct Client(TcpStream);

impl Client {
    fn connect(to: SocketAddr) -> Self {
        Self::connect_from(to.ip(), to)
    }

    /// Connects from the address `ip`. A client at the address of a back end counts as that back
    /// end.
    fn connect_from(ip: IpAddr, to: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(ip, 0).into()).expect("a free port");
        socket.connect(&to.into()).expect("Tidegate accepts");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout above zero");
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        // Tidegate may have closed the connection.
        let _ = self.0.write_all(bytes);
    }

    /// Returns the next bytes, empty at the end of the connection.
    fn receive(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 65_536];
        let count = self.0.read(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }

    /// Returns the status of the next final response, or 0 if the connection ends before.
    fn final_status(&mut self) -> u16 {
        let mut text = String::new();
        loop {
            let bytes = self.receive();
            text += &String::from_utf8_lossy(&bytes);
            let statuses = text.lines().filter_map(|line| line.strip_prefix("SIP/2.0 "));
            let mut statuses = statuses.filter_map(|rest| rest.get(..3)?.parse().ok());
            match statuses.find(|&status| status >= 200) {
                Some(status) => return status,
                None if bytes.is_empty() => return 0,
                None => {}
            }
        }
    }
}

/// Returns an OPTIONS request over TCP.
fn options(peer: &Peer, to: SocketAddr, number: u32) -> String {
    peer.request("OPTIONS", &format!("sip:{to}"), number, 1).0.replace("/UDP ", "/TCP ")
}

/// RFC 5626 §5.4: "When a server receives a double CRLF sequence between SIP messages on a
/// connection-oriented transport such as TCP or SCTP, it MUST immediately respond with a single
/// CRLF over the same connection."
///
/// RFC 5626 §4.4.1: "the client "ping" is a double-CRLF sequence, and the server "pong" is a single
/// CRLF". RFC 3261 §7.5: "MUST ignore any CRLF appearing before the start-line". RFC 3261 §18.3:
/// a message ends where its Content-Length says, wherever the segments end.
#[test]
fn keep_alives_are_answered_and_messages_are_cut_out_of_the_stream() {
    let stage = Stage::new();
    let tidegate =
        Tidegate::start(&stage, &Configuration::with_tcp(&stage, &[stage.free_address()]));
    let here = tidegate.tcp_address();
    let peer = Peer::new(stage.ip());
    let mut client = Client::connect(here);
    client.send(b"\r\n\r\n");
    assert_eq!(client.receive(), b"\r\n");
    // The client sends two messages at once, and then one in pieces.
    let both = format!("\r\n{}{}", options(&peer, here, 1), options(&peer, here, 2));
    client.send(both.as_bytes());
    let mut answers = String::new();
    while answers.matches("SIP/2.0 ").count() < 2 {
        let bytes = client.receive();
        assert!(!bytes.is_empty(), "{answers}");
        answers += &String::from_utf8_lossy(&bytes);
    }
    for piece in options(&peer, here, 3).as_bytes().chunks(50) {
        client.send(piece);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(client.final_status() >= 200);
    let metrics = tidegate.metrics();
    assert_eq!(metrics.sum("connections", &[]), 1);
    assert_eq!(metrics.sum("stream_received_total", &[]), 4);
}

/// RFC 3261 §18.4: the transport reports an unreachable back end at once, and the proxy tries the
/// next one.
#[test]
fn a_back_end_that_refuses_connections_is_skipped() {
    let (stage, home) = (Stage::new(), Stage::new());
    let callee = Sipp::tcp_callee(&stage, "uas-record-route");
    let backends = [stage.free_address(), callee.address()];
    let configuration =
        Configuration { is_tcp_inside: true, ..Configuration::with_tcp(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let load = Load { calls: 50, ..loads()[0] };
    Sipp::caller(&home, tidegate.tcp_address(), &load).wait().assert_all_well(50);
    callee.finish().assert_all_well(50);
    let metrics = tidegate.metrics();
    assert!(metrics.sum("connections_failed_total", &[("cause", "unreachable")]) >= 1);
    metrics.assert_nothing_held();
}

#[test]
fn a_source_has_a_limited_number_of_connections() {
    let stage = Stage::new();
    let more = "[connections]\nper_source_max = 256\n".to_owned();
    let backends = [stage.free_address()];
    let configuration = Configuration { more, ..Configuration::with_tcp(&stage, &backends) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let clients: Vec<_> = (0..300).map(|_| Client::connect(tidegate.tcp_address())).collect();
    let excess = |m: &Metrics| m.sum("connections_failed_total", &[("cause", "limit")]);
    tidegate.wait_for("the others are closed", |metrics| excess(metrics) == 44);
    tidegate.wait_for("256 are left", |metrics| metrics.sum("connections", &[]) == 256);
    drop(clients);
    tidegate.wait_for("none is left", |metrics| metrics.sum("connections", &[]) == 0);
}

/// A call that is being set up when the process is asked to stop still gets its answer on its
/// connection. A new call is rejected on its own connection.
#[test]
fn a_stopping_process_finishes_calls_on_connections() {
    let (stage, home) = (Stage::new(), Stage::new());
    let backend = Peer::new(stage.ip());
    let configuration = Configuration::with_tcp(&stage, &[backend.address()]);
    let mut tidegate = Tidegate::start(&stage, &configuration);
    let here = tidegate.tcp_address();
    let peer = Peer::new(home.ip());
    let [mut caller, mut late] = [(); 2].map(|()| Client::connect_from(home.ip(), here));
    let invite = peer.request("INVITE", &format!("sip:bob@{here}"), 1, 1);
    caller.send(invite.0.replace("/UDP ", "/TCP ").as_bytes());
    let invite = backend.receive();
    tidegate.signal(Signal::TERM);
    eventually("it drains", || tidegate.get("/readyz").filter(|answer| answer.0 == 503));
    late.send(options(&peer, here, 2).as_bytes());
    assert_eq!(late.final_status(), 503);
    backend.send(tidegate.address(), &backend.response(&invite, "200 OK"));
    assert_eq!(caller.final_status(), 200);
    assert_eq!(tidegate.exit().code(), Some(0));
}

/// The recording contains the inputs of connections, and the replay sends the same bytes.
#[test]
fn a_recording_of_calls_over_tcp_replays_to_the_same_packets() {
    let (stage, home) = (Stage::new(), Stage::new());
    let callee = Sipp::tcp_callee(&stage, "uas-record-route");
    let configuration = Configuration {
        is_tcp_inside: true,
        drain_seconds: 1,
        ..Configuration::with_tcp(&stage, &[callee.address()])
    };
    let file = stage.path("recording");
    let path = file.to_str().expect("a path of ours");
    let mut tidegate = Tidegate::start_with(&stage, &configuration, &["--record", path]);
    for load in loads() {
        let load = Load { calls: 40, hold_ms: 20, ..load };
        Sipp::caller(&home, tidegate.tcp_address(), &load).wait().assert_all_well(40);
    }
    tidegate.stop();
    assert_exact(run_to_end(&stage, &["replay", path]));
}
