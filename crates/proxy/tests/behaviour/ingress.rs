//! Tests of the ingress: order of service, limits, messages that are not forwarded, and arbitrary
//! bytes.

use std::sync::Arc;

use crate::script::*;
use proptest::prelude::*;
use tidegate_balance::Policy;
use tidegate_proxy::{Class, DropReason, Mode, Settings};
use tidegate_world::Core;

// Messages that finish work in progress are served before new work. The kinds of new work take
// turns, and an INVITE was served last.
#[test]
fn messages_that_finish_work_are_served_first() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("a"));
    // The dialog is in the early state.
    script.one(BACKEND_A, &sent.answer("183 Session Progress"));
    let to_user = |method, call, cseq, more| request(method, "sip:bob@192.0.2.1", call, cseq, more);
    for text in [
        to_user("MESSAGE", "m", 1, ""),
        to_user("REGISTER", "r", 1, ""),
        invite("b"),
        to_user("INFO", "a", 2, "Totag\r\n"),
        to_user("CANCEL", "a", 1, ""),
    ] {
        script.offer(CALLER, text.as_bytes());
    }
    script.offer(BACKEND_A, sent.answer("180 Ringing").as_bytes());
    let order: Vec<_> = script.serve().iter().map(|s| s.start()[..7].trim().to_owned()).collect();
    assert_eq!(order, ["SIP/2.0", "INFO si", "CANCEL", "REGISTE", "INVITE", "MESSAGE"]);
}

// Messages of one call keep their order. If a 180 comes after the 200, a UAC treats it as an error.
// A BYE before the ACK ends a call that was never confirmed.
#[test]
fn messages_of_one_call_keep_their_order() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("a"));
    script.offer(BACKEND_A, sent.answer("180 Ringing").as_bytes());
    script.offer(BACKEND_A, sent.answer("200 OK").as_bytes());
    script.offer(BACKEND_A, sent.answer("200 OK").as_bytes());
    let order: Vec<_> = script.serve().iter().map(|s| s.start().to_owned()).collect();
    assert_eq!(order, ["SIP/2.0 180 Ringing", "SIP/2.0 200 OK", "SIP/2.0 200 OK"]);
    for (method, cseq) in [("INFO", 2), ("ACK", 1), ("BYE", 3)] {
        let text = request(method, "sip:bob@192.0.2.1", "a", cseq, "Totag\r\n");
        script.offer(CALLER, text.as_bytes());
    }
    let order: Vec<_> = script.serve().iter().map(|s| s.start()[..4].to_owned()).collect();
    assert_eq!(order, ["INFO", "ACK ", "BYE "]);
    // A CANCEL stays behind its INVITE while the INVITE waits.
    script.offer(CALLER, invite("b").as_bytes());
    script.offer(CALLER, request("CANCEL", "sip:bob@192.0.2.1", "b", 1, "").as_bytes());
    let order: Vec<_> = script.serve().iter().map(|s| s.start()[..6].to_owned()).collect();
    assert_eq!(order, ["INVITE", "CANCEL"]);
}

#[test]
fn a_flood_of_invites_does_not_lock_out_registrations() {
    let mut script = Script::new();
    for i in 0..100 {
        script.offer(CALLER, invite(&format!("i{i}")).as_bytes());
    }
    script.offer(CALLER, request("REGISTER", "sip:192.0.2.1", "r", 1, "").as_bytes());
    let sent = script.serve();
    assert!(sent.iter().take(3).any(|s| s.start().starts_with("REGISTER")));
}

#[test]
fn a_full_queue_rejects_new_work_and_drops_the_rest() {
    let mut script = Script::with(Policy::Rr, |settings| settings.queue_max = 2);
    for i in 0..5 {
        script.offer(CALLER, invite(&format!("i{i}")).as_bytes());
        let bye = request("BYE", "sip:192.0.2.1", &format!("b{i}"), 1, "Totag\r\n");
        script.offer(CALLER, bye.as_bytes());
    }
    let rejected = script.sent();
    assert_eq!(rejected.len(), 3);
    assert!(rejected.iter().all(|r| r.start().starts_with("SIP/2.0 503")));
    // RFC 3261 §21.5.4: a Retry-After would make the client stop all requests for that time, so
    // none is sent.
    assert!(rejected.iter().all(|r| r.all("Retry-After").is_empty()));
    let counters = Arc::clone(&script.counters);
    assert_eq!(counters.dropped(DropReason::QueueFull).get(), 3);
    assert_eq!(counters.replied(503).get(), 3);
    assert_eq!(script.serve().len(), 4, "two INVITEs, two 481");
}

// RFC 3261 §17.1.1.3: the ACK to a non-2xx has the branch of its INVITE. It is not forwarded.
#[test]
fn the_ack_to_a_reply_of_ours_is_not_forwarded() {
    let mut script = Script::with(Policy::Rr, |settings| settings.queue_max = 0);
    let rejected = script.one(CALLER, &invite("a"));
    let (_, tag) = rejected.header("To").split_once(";tag=").unwrap();
    let ack = request("ACK", "sip:bob@192.0.2.1", "a", 1, "Totag\r\n");
    let own = ack.replace("tag=callee", &format!("tag={tag}"));
    script.offer(CALLER, own.as_bytes());
    let counters = Arc::clone(&script.counters);
    assert_eq!(counters.dropped(DropReason::OwnAck).get(), 1);
    // The tag of another call is not accepted.
    script.offer(CALLER, own.replace("Call-ID: a", "Call-ID: b").as_bytes());
    assert_eq!(
        (counters.dropped(DropReason::OwnAck).get(), counters.dropped(DropReason::QueueFull).get()),
        (1, 1)
    );
}

#[test]
fn repetitions_of_an_invite_are_not_new_work() {
    let mut script = Script::new();
    for _ in 0..3 {
        script.one(CALLER, &invite("a"));
    }
    let counters = Arc::clone(&script.counters);
    assert_eq!(
        (counters.received(Class::Invite).get(), counters.received(Class::InDialog).get()),
        (1, 2)
    );
    script.one(CALLER, &request("ACK", "sip:bob@192.0.2.1", "a", 1, "Totag\r\n"));
    assert_eq!(counters.retransmissions.get(), 2);
    // Another INVITE with the same Call-ID is new: it was not counted before.
    script.one(CALLER, &request("INVITE", "sip:bob@192.0.2.1", "a", 2, ""));
    assert_eq!(counters.received(Class::Invite).get(), 2);
}

// RFC 3428 §4: "MESSAGE requests do not initiate dialogs."
#[test]
fn a_to_tag_with_the_call_id_of_a_message_request_belongs_to_no_call() {
    let mut script = Script::new();
    script.one(CALLER, &request("MESSAGE", "sip:bob@192.0.2.1", "a", 1, ""));
    script.one(CALLER, &request("INVITE", "sip:bob@192.0.2.1", "a", 2, "Totag\r\n"));
    let received = |class| script.counters.received(class).get();
    assert_eq!((received(Class::Invite), received(Class::InDialog)), (1, 0));
}

#[test]
fn responses_are_counted_as_provisional_or_final() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("a"));
    for status in ["100 Trying", "180 Ringing", "199 Early Dialog Terminated", "200 OK"] {
        script.one(BACKEND_A, &sent.answer(status));
    }
    let received = |class| script.counters.received(class).get();
    assert_eq!((received(Class::Provisional), received(Class::Final)), (3, 1));
}

// Dashboards and alerts use these names.
#[test]
fn the_names_in_metrics_do_not_change() {
    assert_eq!(
        Class::ALL.map(Class::name),
        [
            "final",
            "provisional",
            "ack",
            "bye",
            "cancel",
            "in_dialog",
            "invite",
            "register",
            "other"
        ]
    );
    assert_eq!(
        DropReason::ALL.map(DropReason::name),
        [
            "malformed",
            "keepalive",
            "queue_full",
            "absorbed",
            "foreign_response",
            "stray_response",
            "repeated_response",
            "lost_response",
            "own_ack",
            "unknown_ack",
            "rejected_ack",
            "too_long",
            "banned",
            "unresolved",
            "unverified",
            "call_flood",
            "stun",
            "drop_share"
        ]
    );
}

#[test]
fn waiting_messages_are_counted_and_delay_the_drain() {
    let mut script = Script::new();
    for call in ["a", "b", "c"] {
        let options = request("OPTIONS", "sip:192.0.2.1", call, 1, "");
        script.offer(CALLER, options.as_bytes());
    }
    assert!(!script.proxy.is_drained());
    assert!(script.proxy.serve(script.now));
    let counts = |script: &Script| (script.counters.queued.get(), script.counters.queue_peak.get());
    assert_eq!(counts(&script), (2, 3));
    script.serve();
    assert_eq!(counts(&script), (0, 3));
    assert!(script.proxy.is_drained());
}

#[test]
fn the_peak_is_that_of_the_longest_queue() {
    let mut script = Script::new();
    for (method, call) in [("OPTIONS", "a"), ("OPTIONS", "b"), ("REGISTER", "c")] {
        script.offer(CALLER, request(method, "sip:192.0.2.1", call, 1, "").as_bytes());
    }
    script.serve();
    assert_eq!(script.counters.queue_peak.get(), 2);
}

#[test]
fn packets_are_written_into_buffers_of_the_shards_pool() {
    let mut script = Script::new();
    script.offer(CALLER, invite("a").as_bytes());
    assert!(script.proxy.serve(script.now));
    assert_eq!(script.pool.used().live, 1);
    assert_eq!(script.sent().len(), 1);
    assert_eq!(script.pool.used().live, 0);
}

#[test]
fn a_closing_proxy_finishes_what_it_holds() {
    let mut script = Script::new();
    let sent = script.one(CALLER, &invite("a"));
    script.proxy.on_drain(script.now);
    assert!(!script.proxy.is_drained(), "an INVITE waits for its answer");
    assert_eq!(script.status(CALLER, &invite("b")), 503);
    assert_eq!(script.status(CALLER, &request("OPTIONS", "sip:192.0.2.1", "o", 1, "")), 503);
    script.one(CALLER, &invite("a"));
    script.one(BACKEND_A, &sent.answer("200 OK"));
    assert!(!script.proxy.is_drained(), "RFC 3261 §13.3.1.4: the callee waits for the ACK");
    assert_eq!(
        script.one(CALLER, &request("ACK", "sip:192.0.2.1", "a", 1, "Totag\r\n")).to,
        sent.to
    );
    assert!(script.proxy.is_drained());
}

#[test]
fn a_closing_proxy_waits_for_calls_that_back_ends_make() {
    let mut script = Script::new();
    let sent = script.one(BACKEND_A, &request("INVITE", "sip:carol@203.0.113.9", "out", 1, ""));
    script.proxy.on_drain(script.now);
    assert!(!script.proxy.is_drained());
    script.one("203.0.113.9:5060", &sent.answer("486 Busy Here"));
    assert!(script.proxy.is_drained());
}

// RFC 3261 §7.5 and RFC 5626 §3.5.1: empty lines keep a binding alive.
#[test]
fn keepalives_and_noise_are_dropped_without_an_answer() {
    let mut script = Script::new();
    for bytes in [&b"\r\n\r\n"[..], b"\r\n", b"", b"\0\0\0\0", b"hello", b"SIP/2.0 200 OK\r\n\r\n"]
    {
        script.offer(CALLER, bytes);
        assert!(script.serve().is_empty(), "{bytes:?}");
    }
    let counters = Arc::clone(&script.counters);
    assert_eq!(counters.dropped(DropReason::Keepalive).get(), 4);
    assert_eq!(counters.dropped(DropReason::Malformed).get(), 2);
}

/// RFC 5626 §5.4: "All edge proxies compliant with this specification MUST implement support for STUN NAT
/// keep-alives on their SIP UDP ports as described in Section 8."
#[test]
fn stun_bindings_are_answered_while_new_work_waits() {
    let mut script = Script::new();
    script.offer(CALLER, invite("a").as_bytes());
    let binding = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], b"transaction0"].concat();
    script.offer(CALLER, &binding);
    let answer = script.proxy.poll_transmit().expect("it does not wait for the INVITE");
    assert_eq!((answer.flow.local, answer.flow.remote), (address(PROXY), address(CALLER)));
    assert_eq!(answer.bytes[..20], [&[1, 1, 0, 12][..], &binding[4..]].concat());
    // 198.51.100.7:5060, combined with the cookie.
    assert_eq!(answer.bytes[20..], [0, 0x20, 0, 8, 0, 1, 0x32, 0xd6, 0xe7, 0x21, 0xc0, 0x45]);
    assert_eq!(answer.batching.pad_at, 0);
    // Nothing can be sent to port 0.
    script.offer("198.51.100.7:0", &binding);
    assert!(script.proxy.poll_transmit().is_none());
    let mut indication = binding;
    indication[1] = 0x11;
    script.offer(CALLER, &indication);
    assert!(script.proxy.poll_transmit().is_none());
    let counters = Arc::clone(&script.counters);
    assert_eq!(
        (counters.bindings_answered.get(), counters.dropped(DropReason::Stun).get()),
        (1, 2)
    );
    assert_eq!(script.serve().len(), 1);
}

// RFC 3261 §21.5.7: a message that does not fit into a datagram when forwarded is neither cut nor
// retried.
#[test]
fn messages_too_long_for_a_datagram_are_rejected() {
    let mut script = Script::new();
    let head = invite("a").replace("Content-Length: 0\r\n\r\n", "");
    let room = 65_507 - head.len() - 32;
    let text = format!("{head}Content-Length: {room:>5}\r\n\r\n{}", "x".repeat(room));
    assert_eq!(script.status(CALLER, &text), 513);
    assert_eq!([513, 400].map(|status| script.counters.replied(status).get()), [1, 0]);
}

/// RFC 3261 §20.35: "Revealing the specific software version of the server might allow the server
/// to become more vulnerable to attacks against software that is known to contain security holes.
/// Implementers SHOULD make the Server header field a configurable option."
#[test]
fn rfc3261_20_35_the_server_header_is_as_configured() {
    for (name, expected) in [("edge 7", &["edge 7"][..]), ("", &[])] {
        let named = |settings: &mut Settings| settings.name = name.to_owned();
        let mut stateless = Script::with(Policy::Rr, named);
        let mut stateful = Script::with(Policy::Rr, |settings| {
            named(settings);
            settings.pools[0].mode = Mode::Transaction;
        });
        let elsewhere = request("INVITE", "sip:bob@203.0.113.1", "a", 1, "");
        stateless.offer(CALLER, elsewhere.as_bytes());
        stateful.offer(CALLER, invite("b").as_bytes());
        stateful.offer(CALLER, request("CANCEL", "sip:bob@192.0.2.1", "b", 1, "").as_bytes());
        let replies = stateless.serve().into_iter().chain(stateful.serve());
        let replies: Vec<_> = replies.filter(|sent| sent.to == address(CALLER)).collect();
        let starts: Vec<_> = replies.iter().map(Sent::start).collect();
        assert_eq!(starts, ["SIP/2.0 403 Forbidden", "SIP/2.0 100 Trying", "SIP/2.0 200 OK"]);
        // A 100 goes only to the next hop, and has never contained a name.
        for reply in replies.iter().filter(|reply| !reply.start().contains(" 100 ")) {
            assert_eq!(reply.all("Server"), expected, "{}", reply.text);
            assert!(reply.text.ends_with("\r\nContent-Length: 0\r\n\r\n"));
        }
    }
}

/// Generates a valid message with some bytes changed, removed or inserted.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let methods =
        prop::sample::select(vec!["INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "REGISTER"]);
    let more = prop::sample::select(vec![
        "",
        "Totag\r\n",
        "Route: <sip:192.0.2.1;lr>\r\n",
        "Route: <sip:AQAKAAABE86u7@192.0.2.1;lr>,<sip:a@b>\r\nProxy-Require: x\r\n",
        "Via: SIP/2.0/UDP [::1]:5;rport;received=1.2.3.4;branch=z9hG4bK,SIP/2.0/TCP b\r\n",
    ]);
    let cuts = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 0..6);
    (methods, more, cuts).prop_map(|(method, more, cuts)| {
        let mut bytes = request(method, "sip:bob@192.0.2.1", "fuzz", 1, more).into_bytes();
        for (at, byte, kind) in cuts {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => bytes.truncate(at.max(1)),
                _ => {
                    bytes.remove(at);
                }
            }
            if bytes.is_empty() {
                bytes.push(b'x');
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// For any input, at most one packet is sent, to a back end or to the sender. The packet is not
    /// longer than the input plus our additions. Every input is counted.
    #[test]
    fn any_bytes_are_forwarded_answered_or_dropped(
        bytes in prop_oneof![mutated(), prop::collection::vec(any::<u8>(), 0..400)],
        from_backend in any::<bool>(),
    ) {
        let mut script = Script::new();
        let from = if from_backend { BACKEND_A } else { CALLER };
        script.offer(from, &bytes);
        let mut sent = 0;
        while script.proxy.serve(script.now) {}
        while let Some(transmit) = script.proxy.poll_transmit() {
            sent += 1;
            prop_assert!(transmit.bytes.len() <= bytes.len() + 400);
            let to = transmit.flow.remote;
            let allowed = [BACKEND_A, BACKEND_B].map(address);
            prop_assert!(from_backend || allowed.contains(&to) || to.ip() == address(CALLER).ip());
        }
        let c = Arc::clone(&script.counters);
        let dropped: u64 = DropReason::ALL.iter().map(|&d| c.dropped(d).get()).sum();
        let replied: u64 = tidegate_proxy::REPLIES.iter().map(|&r| c.replied(r).get()).sum();
        let forwarded = c.requests_forwarded.get() + c.responses_forwarded.get();
        prop_assert_eq!(forwarded + replied, sent);
        let handled = sent + dropped + c.parked_all.get();
        prop_assert_eq!(handled, 1, "forwarded, answered, dropped or parked, and counted once");
    }
}
