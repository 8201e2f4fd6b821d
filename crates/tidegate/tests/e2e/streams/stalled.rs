//! A back end that does not read its connection.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::Client;
use crate::stage::{Configuration, Peer, Stage, Tidegate};

/// Number of long requests. The kernel and Tidegate keep fewer bytes than these for a connection
/// whose peer does not read.
const LONG: u32 = 60;

/// Number of bytes of the body of a long request.
const LENGTH: usize = 30_000;

/// Listens with a small receive buffer.
fn listen(address: SocketAddr) -> TcpListener {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(16 * 1024).expect("a small buffer");
    socket.bind(&address.into()).expect("a free port");
    socket.listen(1).expect("a listening socket");
    socket.into()
}

/// Reads until `text` has arrived.
fn read_until(stream: &mut TcpStream, text: &str) {
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout above zero");
    let (mut held, mut bytes) = (String::new(), vec![0; 65_536]);
    while !held.contains(text) {
        let count = stream.read(&mut bytes).expect("it arrives");
        assert!(count > 0, "the connection has ended");
        // An earlier read may have returned the beginning of the text.
        let kept = held.len().saturating_sub(text.len());
        held = held.split_off(kept) + &String::from_utf8_lossy(&bytes[..count]);
    }
}

/// RFC 3261 §16.7 item 6: a proxy forwards a 503 if "it can determine that any subsequent requests
/// it might proxy will also generate a 503".
#[test]
fn new_work_is_rejected_while_the_only_back_end_does_not_read() {
    let (stage, home) = (Stage::new(), Stage::new());
    let listener = listen(stage.free_address());
    let backend = listener.local_addr().expect("a bound socket has an address");
    let configuration =
        Configuration { is_tcp_inside: true, ..Configuration::with_tcp(&stage, &[backend]) };
    let tidegate = Tidegate::start(&stage, &configuration);
    let here = tidegate.tcp_address();
    let peer = Peer::new(home.ip());
    let message = |user: &str, number, length: usize| {
        let request = peer.request("MESSAGE", &format!("sip:{user}@{here}"), number, 1);
        let request = request.with("Content-Length", &length.to_string());
        request.0.replace("/UDP ", "/TCP ") + &"x".repeat(length)
    };
    let mut caller = Client::connect_from(home.ip(), here);
    caller.send(message("bob", LONG, 0).as_bytes());
    tidegate.wait_for("it is connected with the back end", |metrics| {
        metrics.sum("connections_begun_total", &[("by", "tidegate")]) == 1
    });
    for number in 0..LONG {
        caller.send(message("bob", number, LENGTH).as_bytes());
    }
    let metrics = tidegate.wait_for("some are rejected", |metrics| {
        metrics.sum("stream_overflow_total", &[("cause", "backed_up")]) >= 1
    });
    assert_eq!(caller.final_status(), 503);
    assert_eq!(metrics.sum("stream_overflow_total", &[("cause", "full")]), 0);
    tidegate
        .wait_for("the reason is counted", |metrics| metrics.0.contains("reason=\"backed_up\""));
    assert_eq!(metrics.backend("backend_failures_total", backend), 0);
    assert_eq!(metrics.backend("backend_up", backend), 1);

    // When the back end has read everything, it gets new requests again.
    let (mut stream, _) = listener.accept().expect("Tidegate has connected");
    let read = std::thread::spawn(move || read_until(&mut stream, "MESSAGE sip:alice@"));
    tidegate.wait_for("nothing waits", |metrics| metrics.sum("stream_waiting_bytes", &[]) == 0);
    let mut other = Client::connect_from(home.ip(), here);
    other.send(message("alice", LONG + 1, 0).as_bytes());
    read.join().expect("it arrives");
}
