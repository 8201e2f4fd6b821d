//! Tests of the connection between a leader and a follower before the plan begins.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};

use super::{Follower, assert_works};
use crate::stage::Stage;

/// Maximum time for an answer on a connection.
const PATIENCE: Duration = Duration::from_secs(40);

/// Number of rejected connections.
const STRANGERS: usize = 50;

impl Follower {
    /// Connects to the follower, and reads its greeting.
    fn connect(&self) -> BufReader<TcpStream> {
        let mut stream = reader(TcpStream::connect(self.address).unwrap());
        let greeting = receive(&mut stream);
        assert!(greeting["hello"]["program"].is_string(), "{greeting}");
        stream
    }

    /// Connects to the follower from an address that it does not accept.
    fn connect_as_stranger(&self) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 2], 0)))).unwrap();
        socket.connect(&self.address.into()).unwrap();
        socket.into()
    }
}

fn reader(stream: TcpStream) -> BufReader<TcpStream> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

fn receive(stream: &mut BufReader<TcpStream>) -> Value {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn peers_that_are_no_leader_of_this_version_get_an_answer_and_the_follower_waits_on() {
    let stage = Stage::new();
    let follower = Follower::start(&stage, "follower", &[]);
    let too_long = "x".repeat(70_000);
    for (message, answer) in [
        ("{\"hello\":{\"program\":\"0.0.0\",\"format\":1}}\n", "install the same version"),
        ("INVITE sip:a@b SIP/2.0\r\nVia: x\r\n\r\n", "not a message of `tidegate-lab load lead`"),
        ("\"ping\"\n", "the message `ping` is not expected here"),
        (&too_long, "a message has more than 65536 bytes"),
    ] {
        let mut stream = follower.connect();
        // The follower may close the connection before it has read the whole message.
        let _ = stream.get_mut().write_all(message.as_bytes());
        let said = receive(&mut stream);
        let reason = said["refused"].as_str().unwrap_or_else(|| panic!("{said}"));
        assert!(reason.contains(answer), "{reason}");
    }
    // A peer that leaves without a message.
    drop(follower.connect());
    assert_works(&stage, &follower);
}

#[test]
fn strangers_do_not_keep_a_follower_from_its_leader() {
    let stage = Stage::new();
    let mut follower = Follower::start(&stage, "follower", &["--from", "127.0.0.1"]);
    let mut stranger = follower.connect_as_stranger();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && stranger.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let greeted = scope.spawn(|| follower.connect()).join();
        is_over.store(true, Ordering::Relaxed);
        greeted.expect("the leader is greeted while the stranger sends");
    });

    for _ in 0..STRANGERS {
        let said = receive(&mut reader(follower.connect_as_stranger()));
        let reason = said["refused"].as_str().unwrap_or_else(|| panic!("{said}"));
        assert!(reason.contains("start it with --from 127.0.0.2"), "{reason}");
    }
    follower.wait_for("no plan");
    let told = follower.process.log().matches("rejected 127.0.0.2:").count();
    assert!((1..STRANGERS).contains(&told), "{told} lines");
}
