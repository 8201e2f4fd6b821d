//! RFC 3261 §17.2.3 and RFC 6026 §8.9 at the proxy: matching of messages to transactions.

use crate::script::{BACKEND_A, CALLER, Script, invite, request, secret, starts};
use tidegate_balance::Policy;
use tidegate_proxy::{Mode, Settings};
use tidegate_world::Seed;

const ELSEWHERE: &str = "203.0.113.66:5060";

/// "The sent-by value is used as part of the matching process because there could be accidental or
/// malicious duplication of branch parameters from different clients."
#[test]
fn one_branch_of_two_clients_is_two_transactions() {
    let mut s = Script::stateful();
    s.send(CALLER, &invite("c1"));
    let other = invite("c1").replace("198.51.100.7:5060", ELSEWHERE).replace("c1\r\n", "c2\r\n");
    let sent = s.send(ELSEWHERE, &other);
    assert_eq!(sent.len(), 2, "a 100, and its own INVITE: {sent:#?}");
    assert_eq!(s.live(), (2, 2));
}

/// Without the magic cookie: "The INVITE request matches a transaction if the Request-URI, To tag,
/// From tag, Call-ID, CSeq, and top Via header field match those of the INVITE request which
/// created the transaction."
#[test]
fn clients_of_rfc_2543_are_matched_by_all_else() {
    let mut s = Script::stateful();
    let old = |text: String| text.replace("z9hG4bK-", "");
    let out = s.send(CALLER, &old(invite("c1"))).remove(1);
    assert_eq!(starts(&s.send(CALLER, &old(invite("c1")))), [(CALLER, "SIP/2.0 100 Trying")]);
    s.send(BACKEND_A, &out.answer("404 Not Found"));
    let ack = old(request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n"));
    assert_eq!(starts(&s.send(CALLER, &ack)), []);
    s.pass(std::time::Duration::from_secs(1));
    assert_eq!(s.sent(), [], "the ACK was matched: the 404 is not sent again");
    // Another Call-ID is another transaction.
    assert_eq!(s.send(CALLER, &old(invite("c2"))).len(), 2);
}

/// "the method of the request matches the one that created the transaction": requests of several
/// methods may have one branch.
#[test]
fn one_branch_of_two_methods_is_two_transactions() {
    let mut s = Script::stateful();
    let options = request("OPTIONS", "sip:bob@192.0.2.1", "c1", 1, "");
    s.one(CALLER, &options);
    let message = options.replace("1 OPTIONS", "1 MESSAGE").replacen("OPTIONS", "MESSAGE", 1);
    assert_eq!(s.one(CALLER, &message).start(), "MESSAGE sip:bob@192.0.2.1 SIP/2.0");
}

fn of_process(seed: u64) -> Script {
    Script::with(Policy::Rr, |settings: &mut Settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.seed = Seed(seed);
    })
}

/// RFC 6026 §8.9: a proxy drops a response that matches no transaction. But a response to a request
/// of the previous process is forwarded, and affects no transaction of this process.
#[test]
fn responses_to_requests_from_before_a_restart_go_back() {
    let mut before = of_process(1);
    let old = before.send(CALLER, &invite("c1")).remove(1);
    let mut after = of_process(2);
    after.send(CALLER, &invite("c2"));
    let ok = after.one(BACKEND_A, &old.answer("200 OK"));
    assert_eq!((ok.to.to_string().as_str(), ok.all("Via").len()), (CALLER, 1));
    assert_eq!(ok.header("Call-ID"), "c1");
    assert_eq!(after.live(), (1, 1), "only the second call has transactions");
    // For a process with another key, the response is foreign.
    let mut foreign = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.secret = secret(2);
    });
    assert_eq!(foreign.send(BACKEND_A, &old.answer("200 OK")), []);
    // The response goes only to the target of the original Via, not to the target of a changed one.
    let redirected = old.answer("200 OK").replace("198.51.100.7:5060", ELSEWHERE);
    assert_eq!(after.send(BACKEND_A, &redirected), []);
}

/// A full table rejects new requests before it selects a back end.
#[test]
fn a_full_table_rejects_new_requests_and_keeps_its_transactions() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.transactions_max = 1;
    });
    let out = s.send(CALLER, &invite("c1")).remove(1);
    assert_eq!(s.status(CALLER, &invite("c2")), 503);
    assert_eq!(s.held(), [1, 0]);
    let sent = s.send(BACKEND_A, &out.answer("486 Busy Here"));
    assert_eq!(starts(&sent)[1], (CALLER, "SIP/2.0 486 Busy Here"));
}

/// The memory of transactions is limited too, because peers choose the length of their messages.
#[test]
fn a_table_full_of_long_messages_is_full() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.transaction_bytes_max = 160_000;
    });
    let long = |call: &str| {
        let body = "x".repeat(30_000);
        let text = request("MESSAGE", "sip:bob@192.0.2.1", call, 1, "");
        text.replace("Content-Length: 0", "Content-Length: 30000") + &body
    };
    let first = s.one(CALLER, &long("c1"));
    s.one(CALLER, &long("c2"));
    assert_eq!(s.status(CALLER, &long("c3")), 503);
    // Answered requests are no longer kept.
    assert!(first.start().starts_with("MESSAGE"));
    s.send(BACKEND_A, &first.answer("200 OK"));
    s.one(CALLER, &long("c4"));
}
