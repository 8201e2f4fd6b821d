//! Tests that messages which only the transaction table verifies do not wait behind a flood of
//! unverified messages.

use crate::script::*;
use tidegate_balance::Policy;
use tidegate_proxy::Listener;
use tidegate_world::{ConnectionId, Core, Flow, Received, Transport};

const STRANGER: &str = "203.0.113.9:5060";
const CALLEE: &str = "203.0.113.77:5060";
const BOB: &str = "sip:bob@192.0.2.1";

/// Sends so many messages that the proxy verifies each further message on arrival, and a few more.
fn flood(s: &mut Script) {
    for number in 0..200 {
        let text = request("BYE", BOB, &format!("nowhere-{number}"), 2, "Totag\r\n");
        s.offer(STRANGER, text.as_bytes());
    }
}

/// Serves the messages that arrived before early verification began, and one more. Returns the
/// packets sent, except those to the stranger.
fn next(s: &mut Script) -> Vec<Sent> {
    for _ in 0..64 + 1 {
        assert!(s.proxy.serve(s.now));
    }
    let mut sent = s.sent();
    sent.retain(|sent| sent.to != address(STRANGER));
    sent
}

/// A call from a back end to the outside has no call entry here.
#[test]
fn a_back_end_cancels_its_call_during_a_flood() {
    let mut s = Script::stateful();
    let of = |method| {
        let text = request(method, &format!("sip:carol@{CALLEE}"), "out", 1, "");
        text.replace("198.51.100.7:5060", BACKEND_A)
    };
    let out = s.send(BACKEND_A, &of("INVITE")).pop().unwrap();
    s.send(CALLEE, &out.answer("180 Ringing"));
    flood(&mut s);
    s.offer(BACKEND_A, of("CANCEL").as_bytes());
    let sent = next(&mut s);
    assert!(sent.iter().any(|sent| sent.start().starts_with("CANCEL")), "{sent:#?}");
}

/// Swarm seed 893. A fork may set up more dialogs than a call entry keeps. By RFC 3261 §13.2.2.4
/// the caller acknowledges and ends each of them.
#[test]
fn a_further_dialog_of_a_fork_ends_during_a_flood() {
    let mut s = Script::forking(&[(BACKEND_A, 1000), (BACKEND_B, 1000)]);
    let outs = s.send(CALLER, &invite("c1"));
    let out = |to| outs.iter().find(|sent| sent.to == address(to)).unwrap();
    s.send(BACKEND_A, &out(BACKEND_A).answer("200 OK"));
    let other = |text: String| text.replace(";tag=callee", ";tag=other");
    s.send(BACKEND_B, &other(out(BACKEND_B).answer("200 OK")));
    let route = format!("Totag\r\nRoute: {}\r\n", out(BACKEND_B).header("Record-Route"));
    flood(&mut s);
    s.offer(CALLER, other(request("BYE", BOB, "c1", 2, &route)).as_bytes());
    let sent = next(&mut s);
    assert!(sent.iter().any(|sent| sent.start().starts_with("BYE")), "{sent:#?}");
}

/// RFC 3261 §17.2.3: a branch of RFC 2543 does not identify a transaction.
#[test]
fn a_cancel_without_magic_cookie_is_served_during_a_flood() {
    let mut s = Script::new();
    let old = |method| request(method, BOB, "old", 1, "").replace("z9hG4bK", "");
    s.one(CALLER, &old("INVITE"));
    flood(&mut s);
    s.offer(CALLER, old("CANCEL").as_bytes());
    let sent = next(&mut s);
    assert!(sent.iter().any(|sent| sent.start().starts_with("CANCEL")), "{sent:#?}");
}

/// Our own CANCEL has one Via, so only the branch can verify its response.
#[test]
fn the_answer_to_our_cancel_is_proven_by_its_whole_branch() {
    let mut s = Script::stateful();
    let out = s.send(CALLER, &invite("c1")).pop().unwrap();
    s.send(BACKEND_A, &out.answer("180 Ringing"));
    let sent = s.send(CALLER, &request("CANCEL", BOB, "c1", 1, ""));
    let ours = sent.into_iter().find(|sent| sent.start().starts_with("CANCEL")).unwrap();
    let ok = ours.answer("200 OK");
    let last = ours.branch().chars().last().unwrap();
    let other = if last == 'A' { 'E' } else { 'A' };
    let forged = ours.branch()[..ours.branch().len() - 1].to_owned() + &other.to_string();
    flood(&mut s);
    for (text, strays) in [(ok.replace(ours.branch(), &forged), 1), (ok, 0)] {
        let before = s.counters.strays.get();
        s.offer(BACKEND_A, text.as_bytes());
        assert_eq!(s.counters.strays.get() - before, strays, "{text}");
    }
}

/// The Via of a caller on a connection has an `rport` with the source port. Our branch covers the port in
/// its sent-by, because the caller may lose the connection.
#[test]
fn the_response_to_a_caller_on_a_connection_is_proven_by_its_branch() {
    let mut s = Script::with(Policy::Rr, |settings| {
        let streams = Listener { transport: Transport::Tcp, ..Listener::new(address(PROXY)) };
        settings.listeners.push(streams);
        settings.pools[0].listener = Some(1);
    });
    let offer = |s: &mut Script, remote: &str, id, text: &str| {
        let flow = Flow::connected(Transport::Tcp, address(PROXY), address(remote), id);
        let received = Received::new(s.now, flow, s.pool.copy(text.as_bytes()));
        s.proxy.offer(s.now, received);
    };
    let text = invite("c1");
    let text = text.replace("UDP 198.51.100.7:5060;", "TCP 198.51.100.7:5060;rport;");
    offer(&mut s, "198.51.100.7:40123", ConnectionId::FIRST_ACCEPTED, &text);
    let out = s.serve().pop().unwrap();
    assert_eq!(out.to, address(BACKEND_A));
    flood(&mut s);
    let before = s.counters.strays.get();
    offer(&mut s, BACKEND_A, ConnectionId::FIRST_OPENED, &out.answer("180 Ringing"));
    assert_eq!(s.counters.strays.get(), before);
    let sent = next(&mut s);
    assert!(sent.iter().any(|sent| sent.start().starts_with("SIP/2.0 180")), "{sent:#?}");
}
