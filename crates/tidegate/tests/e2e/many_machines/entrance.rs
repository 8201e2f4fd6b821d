//! Tests of the connection between a leader and a follower before the plan begins.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{Follower, assert_works, lead, run};
use crate::stage::{Stage, eventually};

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

fn send(stream: &mut BufReader<TcpStream>, message: &Value) {
    stream.get_mut().write_all(format!("{message}\n").as_bytes()).unwrap();
}

/// Returns the greeting of this version.
fn hello() -> Value {
    json!({"hello": {"program": env!("CARGO_PKG_VERSION"), "format": 2}})
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
        ("{\"hello\":{\"program\":\"0.0.0\",\"format\":2}}\n", "install the same version"),
        ("INVITE sip:a@b SIP/2.0\r\nVia: x\r\n\r\n", "not a message of `tidegate-lab load lead`"),
        ("\"ping\"\n", "the leader sent the message `ping` at the wrong time"),
        (&too_long, "a message of more than 65536 bytes"),
    ] {
        let mut stream = follower.connect();
        // The follower may close the connection before it has read the whole message.
        let _ = stream.get_mut().write_all(message.as_bytes());
        let said = receive(&mut stream);
        let reason = said["rejected"].as_str().unwrap_or_else(|| panic!("{said}"));
        assert!(reason.contains(answer), "{reason}");
    }
    // A peer may disconnect without sending a message.
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
        let reason = said["rejected"].as_str().unwrap_or_else(|| panic!("{said}"));
        assert!(reason.contains("start it with --from 127.0.0.2"), "{reason}");
    }
    follower.wait_for("no load plan");
    let told = follower.process.log().matches("rejected 127.0.0.2:").count();
    assert!((1..STRANGERS).contains(&told), "{told} lines");
}

/// The leader greets each follower at once, because a follower waits only a short time for it.
#[test]
fn a_leader_greets_a_follower_before_it_connects_to_the_next_one() {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
    let leader = thread::spawn(move || {
        let plan = ["--", "uac", "127.0.0.1:9", "--rate", "10", "--calls", "10"];
        run(lead(&addresses).args(plan))
    });
    for listener in &listeners {
        let mut stream = reader(listener.accept().unwrap().0);
        send(&mut stream, &hello());
        assert_eq!(receive(&mut stream), hello());
    }
    let (status, text) = leader.join().unwrap();
    assert_eq!(status, Some(2), "{text}");
}

/// The leader sends the plan after it has connected to all followers, and each of them may be slow.
#[test]
fn a_follower_waits_for_the_plan_of_a_leader_and_rejects_others() {
    let stage = Stage::new();
    let follower = Follower::start(&stage, "follower", &[]);
    let mut leader = follower.connect();
    send(&mut leader, &hello());
    eventually("another leader is rejected", || {
        let stream = TcpStream::connect(follower.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        line.contains("the follower works for another leader").then_some(())
    });
    // This is longer than a follower waits for any other message.
    thread::sleep(Duration::from_secs(11));
    let words = ["uac", "127.0.0.1:9", "--rate", "10", "--calls", "10"];
    send(&mut leader, &json!({"plan": {"words": words, "seed": 1, "index": 0, "of": 1}}));
    assert_eq!(receive(&mut leader), "ready");
    drop(leader);
    assert_works(&stage, &follower);
}

#[test]
fn a_leader_is_served_after_silent_peers() {
    let stage = Stage::new();
    let follower = Follower::start(&stage, "follower", &[]);
    let _silent = [(); 3].map(|()| TcpStream::connect(follower.address).unwrap());
    assert_works(&stage, &follower);
}
