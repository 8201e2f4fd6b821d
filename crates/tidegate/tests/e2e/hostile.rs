//! Tests with hostile strangers and back ends: calls still succeed, and Tidegate relays nothing to
//! third parties.

mod garbage;

use std::time::Duration;

use tidegate_world::{Purpose, Seed};

use crate::stage::{Configuration, Load, Message, Peer, Sipp, Stage, Tidegate};
use garbage::Garbage;

const DATAGRAMS: u64 = 20_000;
const CALLS: u64 = 400;

/// Maximum growth of memory. Without a fault the memory grows by 3 to 10 MB: entries of the call
/// table that are kept for a while, one for each call of a stranger, and pages that the allocator
/// keeps for each size. A process that kept one datagram in four, at 2 KiB each, would grow by 10
/// MB more.
const GROWTH_MAX_BYTES: u64 = 14 << 20;

#[test]
fn twenty_thousand_damaged_datagrams_disturb_no_call() {
    let (stage, elsewhere) = (Stage::new(), Stage::new());
    let callees = ["uas-record-route"; 2].map(|scenario| Sipp::callee(&stage, scenario));
    let backends = callees.each_ref().map(Sipp::address);
    // Some messages of strangers make SIPp exit. Strangers therefore get a back end that is as
    // hostile as they are.
    let hostile = Peer::new(elsewhere.ip());
    let more = format!(
        "[[pool]]\nname = \"hostile\"\n[[pool.backend]]\nuri = \"sip:{}\"\n\
         [[route]]\nfrom = \"{}/32\"\nto = \"hostile\"\n[[route]]\nto = \"app\"\n",
        hostile.address(),
        elsewhere.ip(),
    );
    let configuration = Configuration { more, shards: 2, ..Configuration::new(&stage, &backends) };
    let mut tidegate = Tidegate::start(&stage, &configuration);
    let here = tidegate.address();

    let load = Load {
        scenario: "uac-routes",
        calls: CALLS as u32,
        rate_cps: 100,
        hold_ms: 200,
        ..Load::default()
    };
    let caller = Sipp::caller(&stage, here, &load);
    let strangers: Vec<_> = (0..8).map(|_| Peer::new(elsewhere.ip())).collect();
    let mut garbage = Garbage::new(Seed(3261).stream(Purpose::Fault, 0), here);
    let (mut answered, mut before) = (0, None);
    for (sent, stranger) in (0..DATAGRAMS).zip(strangers.iter().cycle()) {
        // The datagrams are sent in step with the calls, so that both end at the same time.
        if sent % 200 == 0 {
            tidegate.wait_for("calls go on", |metrics| {
                let begun = |backend| metrics.backend("backend_assigned_total", backend);
                backends.map(begun).iter().sum::<u64>() >= sent * CALLS / DATAGRAMS
            });
        }
        // From this time on, memory should not grow. The process has already allocated the tables
        // and pages that it always needs.
        if sent == DATAGRAMS / 20 {
            before = Some(tidegate.process().resident_bytes());
        }
        stranger.send_bytes(here, &garbage.datagram());
        while let Some(request) = hostile.next_now() {
            hostile.send_bytes(here, &garbage.answer(&hostile, &request));
            answered += 1;
        }
    }
    caller.wait().assert_all_well(CALLS as u32);
    for calls in callees.map(Sipp::finish) {
        calls.assert_all_well(CALLS as u32 / 2);
    }

    assert!(tidegate.process().ended().is_none());
    let grown = tidegate.process().resident_bytes().saturating_sub(before.unwrap());
    assert!(grown < GROWTH_MAX_BYTES, "{grown} bytes");
    let metrics = tidegate.metrics();
    // The messages reached every stage: some were not SIP, some were rejected, some were forwarded.
    assert!(metrics.sum("udp_received_total", &[]) > DATAGRAMS);
    assert!(metrics.sum("messages_dropped_total", &[("reason", "malformed")]) > 100);
    assert!(metrics.sum("messages_dropped_total", &[("reason", "foreign_response")]) > 100);
    assert!(metrics.sum("replies_total", &[("status", "400")]) > 100);
    assert!(answered > 1000, "{answered} requests reached the hostile back end");
}

/// A stranger cannot make Tidegate send messages to a victim.
#[test]
fn strangers_are_not_relayed() {
    let (stage, outside) = (Stage::new(), Stage::new());
    let backend = Peer::new(stage.ip());
    let tidegate = Tidegate::start(&stage, &Configuration::new(&stage, &[backend.address()]));
    let here = tidegate.address();
    let [stranger, victim] = [Peer::new(outside.ip()), Peer::new(outside.ip())];
    let away = format!("sip:victim@{}", victim.address());
    let request = |method, number| stranger.request(method, &away, number, 1);
    let in_dialog = |method, number| {
        let message = request(method, number);
        message.with("To", &format!("<{away}>;tag=t"))
    };
    let ours = format!("<sip:{here};lr>");
    let theirs = format!("<sip:{};lr>", victim.address());
    let forged = format!("<sip:{}@{here};lr>", "A".repeat(32));
    let response = Message(format!(
        "SIP/2.0 200 OK\r\n\
         Via: SIP/2.0/UDP {here};branch=z9hG4bKforged\r\n\
         Via: SIP/2.0/UDP {};branch=z9hG4bKx\r\n\
         From: <sip:a@{here}>;tag=1\r\nTo: <sip:b@{here}>;tag=2\r\n\
         Call-ID: forged\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n",
        victim.address()
    ));
    let attempts = [
        ("INVITE elsewhere", request("INVITE", 1), 403),
        ("MESSAGE elsewhere", request("MESSAGE", 2), 403),
        ("REGISTER elsewhere", request("REGISTER", 3), 403),
        ("Route elsewhere", request("INVITE", 4).and("Route", &theirs), 403),
        (
            "our Route, then another",
            request("INVITE", 5).and("Route", &format!("{ours}, {theirs}")),
            403,
        ),
        ("BYE of no call", in_dialog("BYE", 6), 481),
        ("BYE with a Route elsewhere", in_dialog("BYE", 7).and("Route", &theirs), 481),
        ("BYE with a forged token", in_dialog("BYE", 8).and("Route", &forged), 481),
        ("ACK with a Route elsewhere", in_dialog("ACK", 9).and("Route", &theirs), 0),
        ("response with a forged branch", response, 0),
    ];
    for (number, (name, attempt, status)) in (100..).zip(&attempts) {
        stranger.send(here, attempt);
        if *status != 0 {
            let answer = stranger.receive();
            assert_eq!(answer.status(), *status, "{name}: {}", answer.start());
        }
        // When this OPTIONS is answered, all reactions to the message before it have arrived too.
        let ping = stranger.request("OPTIONS", &format!("sip:{here}"), number, 1);
        let pong = stranger.ask(here, &ping);
        assert_eq!(pong.field("Call-ID"), ping.field("Call-ID"), "{name}: {}", pong.start());
        let relayed = victim.next_within(Duration::from_millis(20));
        assert!(relayed.is_none(), "{name}: {relayed:?}");
    }
    let metrics = tidegate.metrics();
    assert_eq!(metrics.sum("messages_forwarded_total", &[]), 0);
    assert_eq!(metrics.sum("messages_dropped_total", &[("reason", "unknown_ack")]), 1);
    assert_eq!(metrics.sum("messages_dropped_total", &[("reason", "foreign_response")]), 1);
}
