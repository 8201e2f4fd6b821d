//! Clients that misuse connections, beside calls that complete.

use std::io::Write;
use std::time::Duration;

use tidegate_world::{Purpose, Seed};

use super::{Client, options};
use crate::stage::{Configuration, Load, Peer, Sipp, Stage, Tidegate};

const CALLS: u32 = 300;

/// The number of clients of each kind.
const EACH: u64 = 20;

/// A message whose body never comes.
const ENDLESS: &str = "INVITE sip:a@b SIP/2.0\r\nContent-Length: 60000\r\n\r\nbody";

/// RFC 3261 §18.3: "The Content-Length header field MUST be used with stream oriented transports."
#[test]
fn clients_that_misuse_connections_lose_their_own() {
    let [stage, home, elsewhere] = [(); 3].map(|()| Stage::new());
    let callee = Sipp::tcp_callee(&stage, "uas-record-route");
    // The limits on the first message and on any message differ, so that the client that sends byte
    // by byte always reaches the same one.
    let more = "[connections]\nfirst_seconds = 1\nmessage_seconds = 2\nstall_seconds = 1\n";
    let configuration = Configuration {
        is_tcp_inside: true,
        more: more.to_owned(),
        ..Configuration::with_tcp(&stage, &[callee.address()])
    };
    let mut tidegate = Tidegate::start(&stage, &configuration);
    let here = tidegate.tcp_address();
    let peer = Peer::new(elsewhere.ip());
    let load = Load {
        scenario: "uac-routes",
        calls: CALLS,
        rate_cps: 60,
        hold_ms: 100,
        is_tcp: true,
        ..Load::default()
    };
    let caller = Sipp::caller(&home, here, &load);

    let mut random = Seed(3261).stream(Purpose::Fault, 0);
    let mut noise = [0u8; 4096];
    let valid = options(&peer, here, 1);
    let giant = valid.replace("Content-Length: 0", "Content-Length: 4294967295");
    let without = valid.replace("Content-Length: 0\r\n", "");
    let long = valid.replace("\r\nTo: ", &format!("\r\nX-Long: {}\r\nTo: ", "x".repeat(40_000)));
    let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let (mut garbled, mut slow, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..EACH {
        noise.fill_with(|| random.below(128) as u8 | 0x80);
        for bytes in [&noise[..], giant.as_bytes(), without.as_bytes(), long.as_bytes(), tls] {
            let mut client = Client::connect_from(elsewhere.ip(), here);
            client.send(bytes);
            garbled.push(client);
        }
        let mut client = Client::connect_from(elsewhere.ip(), here);
        client.send(format!("{valid}{ENDLESS}").as_bytes());
        slow.push(client);
        silent.push(Client::connect_from(elsewhere.ip(), here));
    }
    // One client sends its message byte by byte, and one never reads the responses.
    let mut trickle = Client::connect_from(elsewhere.ip(), here);
    let mut deaf = Client::connect_from(elsewhere.ip(), here).0;
    deaf.set_nonblocking(true).expect("an open socket");
    let flood = options(&peer, here, 2).repeat(50);
    for byte in ENDLESS.bytes().cycle().take(300) {
        trickle.send(&[byte]);
        let _ = deaf.write(flood.as_bytes());
        std::thread::sleep(Duration::from_millis(10));
    }
    for mut client in garbled {
        assert!(client.receive().is_empty(), "nothing but the end of the connection");
    }
    let closed = |cause, least: u64| {
        tidegate.wait_for(&format!("{least} are closed as {cause}"), |metrics| {
            metrics.sum("connections_closed_total", &[("cause", cause)]) >= least
        })
    };
    closed("garbled", 5 * EACH);
    // The client that sends byte by byte has not completed its first message in one second.
    closed("slow", EACH + 1);
    closed("idle", EACH);
    caller.wait().assert_all_well(CALLS);
    callee.finish().assert_all_well(CALLS);
    drop((slow, silent, deaf));
    assert!(tidegate.process().ended().is_none());
    tidegate.wait_for("no connection of a client is left", |metrics| {
        metrics.sum("connections", &[]) <= 1
    });
    tidegate.metrics().assert_nothing_held();
}
