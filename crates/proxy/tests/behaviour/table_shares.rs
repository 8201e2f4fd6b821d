//! Tests that no single source can fill the transaction table, the call table or the queues.

use std::time::Duration;

use crate::script::{BACKEND_A, CALLER, Script, Sent, invite, request};
use tidegate_balance::Policy;
use tidegate_proxy::{DropReason, Mode};

const ATTACKER: &str = "203.0.113.66:5060";

/// Returns the text with another source address.
fn at(from: &str, text: &str) -> String {
    text.replacen("198.51.100.7:5060", from, 1)
}

fn with_body(text: &str, length: usize) -> String {
    text.replace("Content-Length: 0", &format!("Content-Length: {length}")) + &"x".repeat(length)
}

fn long_invite(call: &str) -> String {
    at(ATTACKER, &with_body(&invite(call), 60_000))
}

fn is_forwarded(sent: &[Sent]) -> bool {
    sent.iter().any(|sent| sent.start().starts_with("INVITE "))
}

fn stateful(transactions_max: usize, bytes_max: usize) -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.transactions_max = transactions_max;
        settings.transaction_bytes_max = bytes_max;
    })
}

/// If the share of a source were not limited, one address could fill the transaction table with
/// INVITEs of 60 KB.
#[test]
fn one_source_with_long_requests_leaves_room_for_others() {
    const BYTES_MAX: usize = 8 << 20;
    let mut s = stateful(100_000, BYTES_MAX);
    let mut admitted = 0;
    for call in 0..300 {
        let sent = s.send(ATTACKER, &long_invite(&format!("flood{call}")));
        admitted += usize::from(is_forwarded(&sent));
        if !is_forwarded(&sent) {
            assert_eq!(sent.len(), 1);
            assert_eq!(sent[0].start(), "SIP/2.0 503 Service Unavailable");
            assert!(sent[0].text.contains("this source has used its share"), "{}", sent[0].text);
        }
    }
    let held = s.counters.transaction_bytes.get() as usize;
    assert!((BYTES_MAX / 2..BYTES_MAX * 3 / 4).contains(&held), "{held} bytes, {admitted} INVITEs");
    assert_eq!(s.counters.transactions_over_share.get() as usize, 300 - admitted);
    assert_eq!(s.counters.transactions_rejected.get(), 0, "the table is not full");
    // Each request is counted with the size of its future response.
    assert!((40..60).contains(&admitted), "{admitted}");

    for call in 0..100 {
        let sent = s.send(CALLER, &invite(&format!("other{call}")));
        assert!(is_forwarded(&sent), "{call}: {sent:#?}");
    }
    // After the flood, its share and its bytes are free again.
    s.rest(Duration::from_secs(600));
    assert_eq!((s.live(), s.counters.transaction_bytes.get()), ((0, 0), 0));
    assert!(is_forwarded(&s.send(ATTACKER, &long_invite("again"))));
}

#[test]
fn ten_sources_with_many_requests_leave_each_other_and_a_caller_room() {
    let mut s = stateful(1000, 1 << 30);
    let sources: Vec<_> = (0..10).map(|i| format!("203.0.113.{i}:5060")).collect();
    for call in 0..200 {
        for source in &sources {
            s.send(source, &at(source, &invite(&format!("{source}-{call}"))));
        }
    }
    let full = s.counters.transactions_rejected.get();
    let over = s.counters.transactions_over_share.get();
    assert!(over > 1000 && full == 0, "{over} {full}");
    for call in 0..20 {
        assert!(is_forwarded(&s.send(CALLER, &invite(&format!("other{call}")))), "{call}");
    }
}

/// Back ends and trusted sources act for many users, so their shares are not limited.
#[test]
fn trusted_sources_and_back_ends_have_no_share() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.transactions_max = 100;
        settings.calls_max = 100;
        settings.listeners[0].trust = vec!["203.0.113.0/24".parse().unwrap()];
    });
    for call in 0..87 {
        let sent = s.send(ATTACKER, &at(ATTACKER, &invite(&format!("c{call}"))));
        assert!(is_forwarded(&sent), "{call}: {sent:#?}");
    }
}

/// The last eighth of the table is reserved for calls in progress.
#[test]
fn a_bye_finds_room_when_new_work_has_filled_its_part() {
    let mut s = stateful(16, 1 << 30);
    let out = s.send(CALLER, &invite("c1")).remove(1);
    s.send(BACKEND_A, &out.answer("200 OK"));
    for i in 0..40 {
        let source = format!("203.0.113.{i}:5060");
        s.send(&source, &at(&source, &invite(&format!("flood{i}"))));
    }
    assert_eq!(s.live().0, 14, "two are left");
    assert!(s.counters.transactions_rejected.get() + s.counters.transactions_over_share.get() > 20);
    let bye = request("BYE", "sip:bob@192.0.2.1", "c1", 2, "Totag\r\n");
    let out = s.one(CALLER, &bye);
    assert_eq!(s.live().0, 15);
    let ok = s.one(BACKEND_A, &out.answer("200 OK"));
    assert_eq!(s.one(CALLER, &bye), ok, "there is a transaction that has the response");
}

/// Even if all calls of one source ring for a long time, other sources can still call.
#[test]
fn one_source_does_not_fill_the_call_table() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = Script::with(Policy::Rr, |settings| {
            settings.pools[0].mode = mode;
            settings.calls_max = 200;
        });
        let (mut rings, mut rejected) = (Vec::new(), 0);
        for call in 0..300 {
            let sent = s.send(ATTACKER, &at(ATTACKER, &invite(&format!("flood{call}"))));
            match sent.iter().find(|sent| sent.start().starts_with("INVITE ")) {
                Some(out) => rings.push(out.clone()),
                None => rejected += 1,
            }
        }
        assert!((100..150).contains(&rings.len()), "{}", rings.len());
        assert_eq!(s.counters.calls_over_share.get(), rejected, "{mode:?}");
        assert!(is_forwarded(&s.send(CALLER, &invite("c1"))), "{mode:?}");

        // Calls that are over do not count in a share. So the next calls have as much room.
        for out in &rings {
            s.send(&out.to.to_string(), &out.answer("486 Busy Here"));
        }
        for call in 0..rings.len() - 1 {
            let sent = s.send(ATTACKER, &at(ATTACKER, &invite(&format!("next{call}"))));
            assert!(is_forwarded(&sent), "{mode:?} {call}");
        }
    }
}

/// The limit on the bytes of long messages does not apply to ordinary messages.
#[test]
fn ordinary_messages_wait_whatever_room_long_ones_have() {
    let mut s = Script::with(Policy::Rr, |settings| settings.queue_bytes_max = 0);
    (0..10).for_each(|call| s.offer(CALLER, invite(&format!("c{call}")).as_bytes()));
    let sent = s.serve();
    assert_eq!(sent.iter().filter(|sent| sent.start().starts_with("INVITE ")).count(), 10);
    s.offer(CALLER, long_invite("long").as_bytes());
    assert!(!is_forwarded(&s.serve()));
}

/// Long messages in the queue have a limit of their own, so that they displace no other messages.
#[test]
fn long_messages_that_wait_take_half_of_their_bytes_and_no_place_of_others() {
    let mut s = Script::with(Policy::Rr, |settings| settings.queue_bytes_max = 1 << 20);
    for call in 0..40 {
        s.offer(ATTACKER, long_invite(&format!("flood{call}")).as_bytes());
    }
    // New work may take half of the bytes: 8 buffers of 64 KiB.
    let rejected = s.sent();
    assert_eq!(rejected.len(), 32);
    assert!(rejected.iter().all(|sent| sent.start().starts_with("SIP/2.0 503 ")));
    s.offer(CALLER, invite("c1").as_bytes());
    // Responses use the other half.
    for call in 0..40 {
        let response =
            format!("SIP/2.0 200 OK\r\nCall-ID: {call}\r\nX: {}\r\n\r\n", "x".repeat(60_000));
        s.offer(BACKEND_A, response.as_bytes());
    }
    assert_eq!(s.counters.dropped(DropReason::QueueFull).get(), 32);
    let sent = s.serve();
    assert_eq!(sent.len(), 9);
    assert!(is_forwarded(&sent[8..]));
    // Served messages have released their room.
    s.offer(ATTACKER, long_invite("again").as_bytes());
    assert!(is_forwarded(&s.serve()));
}
