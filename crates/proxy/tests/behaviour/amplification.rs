//! Limits on amplification: the bytes that a sender with a forged source address can direct at that
//! address.

use std::time::Duration;

use crate::script::{BACKEND_A, CALLER, PROXY, Script, Sent, invite, request};
use tidegate_balance::Policy;
use tidegate_proxy::{Mode, Rule, RuleTarget, Senders};
use tidegate_world::{Core, QueryAnswer};

const VICTIM: &str = "203.0.113.9:5060";

/// Makes approximately the shortest INVITE that is forwarded.
fn short(call: &str) -> String {
    format!(
        "INVITE sip:b@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 203.0.113.9;branch=z9hG4bK{call}\r\n\
         From: <sip:a>;tag=1\r\nTo: <sip:b>\r\nCall-ID: {call}\r\nCSeq: 1 INVITE\r\n\r\n"
    )
}

/// Returns the number of bytes sent to `to`.
fn bytes_to(sent: &[Sent], to: &str) -> usize {
    let to: std::net::SocketAddr = to.parse().unwrap();
    sent.iter().filter(|sent| sent.to == to).map(|sent| sent.text.len()).sum()
}

fn out(sent: &[Sent]) -> Vec<Sent> {
    sent.iter().filter(|sent| sent.start().starts_with("INVITE ")).cloned().collect()
}

fn at(from: &str, text: &str) -> String {
    text.replace("198.51.100.7:5060", from)
}

/// RFC 9000 §8.1: "Prior to validating the client address, servers MUST NOT send more than three
/// times as many bytes as the number of bytes they have received."
#[test]
fn rfc3261_17_2_1_timer_g_repeats_little_to_a_source_that_never_acknowledges() {
    let mut s = Script::stateful();
    let text = short("c1");
    let mut sent = s.send(VICTIM, &text);
    let request = out(&sent).remove(0);
    sent.extend(s.send(BACKEND_A, &request.answer("180 Ringing")));
    sent.extend(s.send(BACKEND_A, &request.answer("486 Busy Here")));
    s.pass(Duration::from_secs(40));
    sent.extend(s.sent());
    let finals = sent.iter().filter(|sent| sent.start().contains(" 486 ")).count();
    assert_eq!(finals, 2, "the response, and once more");
    assert_eq!(s.counters.responses_withheld.get(), 9);
    let factor = bytes_to(&sent, VICTIM) as f64 / text.len() as f64;
    // The responses repeat our Record-Route, which the request did not have.
    assert!(factor < 6.5, "{factor}");
    assert_eq!(s.live(), (0, 0));
}

/// RFC 5626 §8: "If a server compliant to this section receives SIP requests on a given interface and
/// UDP port, it MUST also provide a limited version of a STUN server on the same interface and UDP port."
/// Without answers, a phone considers its flow failed.
#[test]
fn the_lowest_limit_leaves_stun_keep_alives_their_answers() {
    let mut s = Script::with(Policy::Rr, |settings| settings.amplification_max = 1);
    let binding = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], b"transaction0"].concat();
    for (phone, length) in [("203.0.113.9:5060", 32), ("[2001:db8::9]:5060", 44)] {
        s.offer(phone, &binding);
        let answer = s.proxy.poll_transmit().expect("an answer");
        assert_eq!(answer.bytes.len(), length, "{phone}");
    }
    assert_eq!(s.counters.bindings_answered.get(), 2);
}

#[test]
fn a_fork_of_eight_rings_once_to_a_source_that_never_acknowledges() {
    let backends: Vec<_> = (1..9).map(|i| format!("10.0.0.{i}:5070")).collect();
    let named: Vec<_> = backends.iter().map(|at| (&**at, 1000)).collect();
    let mut s = Script::forking(&named);
    let text = short("c1");
    let mut sent = s.send(VICTIM, &text);
    for request in out(&sent) {
        let from = request.to.to_string();
        for status in ["180 Ringing", "183 Session Progress", "200 OK", "200 OK", "200 OK"] {
            sent.extend(s.send(&from, &request.answer(status)));
        }
    }
    let factor = bytes_to(&sent, VICTIM) as f64 / text.len() as f64;
    assert!(factor < 8.0, "{factor}");
    assert!(s.counters.responses_withheld.get() > 20);
}

/// RFC 3261 §21.1: 180, 181, 182 and 183 have different meanings. So a phone gets each one once.
#[test]
fn each_kind_of_provisional_response_passes_once_however_long_it_is() {
    let mut s = Script::stateful();
    let request = out(&s.send(VICTIM, &short("c1"))).remove(0);
    let kinds = ["199 Gone", "180 Ringing", "181 Forwarded", "182 Queued", "183 Progress"];
    for (times, kind) in [1, 0].into_iter().flat_map(|times| kinds.map(|kind| (times, kind))) {
        let text = request.answer(kind).replace("Content-Length: 0", "Content-Length: 1500");
        let sent = s.send(BACKEND_A, &(text + &"v".repeat(1500)));
        assert_eq!(sent.len(), times, "{kind}");
    }
}

/// Without transactions the callee retransmits its 2xx (RFC 3261 §13.3.1.4), ten times in 32 s.
#[test]
fn rfc3261_13_3_1_4_a_2xx_is_repeated_little_to_a_source_that_never_acknowledges() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let text = short("c1");
        let mut sent = s.send(VICTIM, &text);
        let request = out(&sent).remove(0);
        for _ in 0..11 {
            sent.extend(s.send(BACKEND_A, &request.answer("200 OK")));
        }
        let factor = bytes_to(&sent, VICTIM) as f64 / text.len() as f64;
        assert!(factor < 6.0, "{mode:?} {factor}");
        assert_eq!(s.counters.responses_withheld.get(), 9, "{mode:?}");
    }
}

/// The 100 of the next proxy is lost. Its transaction began later than the call here, so its 408 comes
/// when the call has ended without a response (RFC 3261 §17.1.1.2, Timer B). §17.2.1: it is
/// retransmitted ten times in 32 s.
#[test]
fn the_408_of_a_proxy_that_seemed_silent_is_repeated_little() {
    let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = Mode::Stateless);
    let text = short("c1");
    let mut sent = s.send(VICTIM, &text);
    let request = out(&sent).remove(0);
    s.pass(Duration::from_secs(33));
    for _ in 0..11 {
        s.pass(Duration::from_secs(2));
        sent.extend(s.send(BACKEND_A, &request.answer("408 Request Timeout")));
    }
    let factor = bytes_to(&sent, VICTIM) as f64 / text.len() as f64;
    assert!(factor < 6.0, "{factor}");
    assert_eq!(s.counters.responses_withheld.get(), 9);
    s.pass(Duration::from_secs(40));
    assert_eq!(s.live(), (0, 0));
}

/// Without transactions the server retransmits its rejection (RFC 3261 §17.2.1, Timer G), ten times
/// in 32 s. After five more INVITEs with the same Call-ID, the call entry has forgotten the first
/// INVITE.
#[test]
fn the_rejection_of_a_forgotten_invite_is_repeated_little() {
    let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = Mode::Stateless);
    let (mut sent, mut received) = (Vec::new(), 0);
    let mut first = None;
    for cseq in 1..=6 {
        let text = short("c1")
            .replace("branch=z9hG4bKc1", &format!("branch=z9hG4bK{cseq}"))
            .replace("CSeq: 1", &format!("CSeq: {cseq}"));
        received += text.len();
        sent.extend(s.send(VICTIM, &text));
        let request = out(&sent).pop().unwrap();
        sent.extend(s.send(&request.to.to_string(), &request.answer("486 Busy Here")));
        first.get_or_insert(request);
    }
    let first = first.unwrap();
    for _ in 0..10 {
        sent.extend(s.send(&first.to.to_string(), &first.answer("486 Busy Here")));
    }
    let factor = bytes_to(&sent, VICTIM) as f64 / received as f64;
    assert!(factor < 4.0, "{factor}");
    let withheld = s.counters.responses_withheld.get();
    assert!((6..10).contains(&withheld), "{withheld}");
}

/// A source that shows the To-tag of a response has received the response.
#[test]
fn an_ack_verifies_an_address_and_a_forged_one_does_not() {
    for (tag, finals) in [("callee", 11), ("caller", 2), ("guess", 2)] {
        let mut s = Script::stateful();
        let first = at(VICTIM, &invite("c1"));
        let request = out(&s.send(VICTIM, &first)).remove(0);
        s.send(BACKEND_A, &request.answer("486 Busy Here"));
        let ack =
            at(VICTIM, &crate::script::request("ACK", "sip:bob@192.0.2.1", "c1", 1, "Totag\r\n"));
        s.send(VICTIM, &ack.replace("tag=callee", &format!("tag={tag}")));
        // Now responses to this address are retransmitted as RFC 3261 §17.2.1 requires.
        let mut sent = s.send(VICTIM, &short("c2"));
        let request = out(&sent).remove(0);
        sent.extend(s.send(&request.to.to_string(), &request.answer("486 Busy Here")));
        s.pass(Duration::from_secs(40));
        sent.extend(s.sent());
        let count =
            sent.iter().filter(|s| s.start().contains(" 486 ") && s.header("Call-ID") == "c2");
        assert_eq!(count.count(), finals, "{tag}");
    }
}

/// The caller receives the route token with the 2xx, and the token is valid only from the caller's
/// address.
#[test]
fn the_ack_of_an_answered_call_verifies_its_caller_and_nobody_else() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        // The caller, and the source of the ACK.
        for (caller, from, withheld) in
            [(VICTIM, VICTIM, 0), (VICTIM, CALLER, 9), (CALLER, VICTIM, 9)]
        {
            let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
            let request = out(&s.send(caller, &at(caller, &invite("c1")))).remove(0);
            let ok = s.one(BACKEND_A, &request.answer("200 OK"));
            let route = format!("Route: {}\r\nTotag\r\n", ok.header("Record-Route"));
            let ack = crate::script::request("ACK", "sip:bob@10.0.0.1:5070", "c1", 1, &route);
            let ack = ack.replacen("-INVITE", "-ACK", 1);
            assert_eq!(s.one(from, &at(from, &ack)).to.to_string(), BACKEND_A);
            let request = out(&s.send(VICTIM, &short("c2"))).remove(0);
            for _ in 0..11 {
                s.send(&request.to.to_string(), &request.answer("200 OK"));
            }
            assert_eq!(s.counters.responses_withheld.get(), withheld, "{mode:?} {from}");
        }
    }
}

/// The call entry may remain from a request with the same Call-ID and a forged source. The attacker
/// may also send a copy of the forged INVITE from its own address, and receive the responses.
#[test]
fn an_address_that_only_began_before_the_caller_is_not_verified() {
    let copied = |text: &str| text.replacen("z9hG4bK-", "z9hG4bK-copy-", 1);
    for (mode, before) in [Mode::Stateless, Mode::Transaction]
        .into_iter()
        .flat_map(|mode| ["OPTIONS", "REGISTER", "INVITE"].map(|before| (mode, before)))
    {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let first = request(before, "sip:bob@192.0.2.1", "c1", 1, "");
        assert!(!s.send(VICTIM, &at(VICTIM, &first)).is_empty());
        let call = out(&s.send(CALLER, &copied(&invite("c1")))).remove(0);
        let ok = s.send(BACKEND_A, &call.answer("200 OK")).remove(0);
        assert_eq!(ok.to.to_string(), CALLER, "{mode:?} {before}");
        let route = format!("Route: {}\r\nTotag\r\n", ok.header("Record-Route"));
        let ack = request("ACK", "sip:bob@10.0.0.1:5070", "c1", 1, &route);
        let ack = ack.replacen("-INVITE", "-ACK", 1);
        assert_eq!(s.one(VICTIM, &at(VICTIM, &ack)).to.to_string(), BACKEND_A);
        let call = out(&s.send(VICTIM, &short("c2"))).remove(0);
        for _ in 0..11 {
            s.send(&call.to.to_string(), &call.answer("200 OK"));
        }
        assert_eq!(s.counters.responses_withheld.get(), 9, "{mode:?} {before}");
    }
}

/// The BYE for a call goes to the caller that began it, not to the sender of an earlier request.
#[test]
fn a_bye_to_the_forged_source_of_a_call_is_sent_twice_whoever_used_its_call_id_before() {
    let mut s = Script::stateful();
    s.send(CALLER, &request("OPTIONS", "sip:bob@192.0.2.1", "c1", 7, ""));
    let call = out(&s.send(VICTIM, &at(VICTIM, &invite("c1")))).remove(0);
    s.send(&call.to.to_string(), &call.answer("200 OK"));
    let bye = format!(
        "BYE sip:a@{VICTIM} SIP/2.0\r\nVia: SIP/2.0/UDP {};branch=z9hG4bKbye\r\n\
         Route: {}\r\nFrom: <sip:b>;tag=callee\r\nTo: <sip:a>;tag=caller\r\nCall-ID: c1\r\n\
         CSeq: 1 BYE\r\n\r\n",
        call.to,
        call.header("Record-Route")
    );
    let mut sent = s.send(&call.to.to_string(), &bye);
    s.pass(Duration::from_secs(40));
    sent.extend(s.sent());
    let byes = sent.iter().filter(|sent| sent.start().starts_with("BYE ")).count();
    assert_eq!((byes, s.counters.requests_withheld.get()), (2, 9));
}

/// A phone gets each response once, even a long one, and again for each copy of its request.
#[test]
fn long_responses_to_a_short_invite_pass() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let request = out(&s.send(CALLER, &invite("c1"))).remove(0);
        let long = |status| {
            let text = request.answer(status);
            text.replace("Content-Length: 0", "Content-Length: 1500") + &"v".repeat(1500)
        };
        for status in ["180 Ringing", "183 Session Progress", "200 OK", "200 OK"] {
            let sent = s.one(BACKEND_A, &long(status));
            assert_eq!((sent.to.to_string().as_str(), sent.text.len() > 1500), (CALLER, true));
        }
        // RFC 3261 §13.2.2.4: each 2xx gets its ACK. After that there is no limit.
        assert_eq!(s.send(BACKEND_A, &long("200 OK")).len(), 0);
        let ok = request.header("Record-Route").to_owned();
        let route = format!("Route: {ok}\r\nTotag\r\n");
        s.one(CALLER, &crate::script::request("ACK", "sip:bob@10.0.0.1:5070", "c1", 1, &route));
        assert_eq!(s.send(BACKEND_A, &long("200 OK")).len(), 1);
    }
}

/// A stateless reply contains little more than lines copied from the request.
#[test]
fn our_own_replies_are_hardly_longer_than_what_they_answer() {
    let mut s = Script::new();
    let minimal = short("c1");
    let options = "OPTIONS sip:192.0.2.1 SIP/2.0\r\n";
    let rest = minimal.split_once("\r\n").unwrap().1.replace("INVITE", "OPTIONS");
    let cases = [
        (options.to_owned() + &rest, 200),
        (minimal.replace("sip:b@", "sips:b@"), 416),
        (minimal.replace("@192.0.2.1", "@192.0.2.77"), 403),
        (minimal.replace("CSeq: 1 INVITE", "CSeq: x INVITE"), 400),
        (minimal.replace("\r\n\r\n", "\r\nMax-Forwards:0\r\n\r\n"), 483),
        (minimal.replace("\r\n\r\n", "\r\nProxy-Require:a,b,c\r\n\r\n"), 420),
        (minimal.replace("INVITE", "BYE").replace("To: <sip:b>", "To: <sip:b>;tag=2"), 481),
    ];
    for (text, status) in cases {
        let reply = s.one(VICTIM, &text);
        assert!(reply.start().contains(&format!(" {status} ")), "{status}: {}", reply.text);
        assert!(reply.text.len() <= text.len() + 220, "{status}: {} to {}", reply.text, text);
        assert!(reply.text.len() <= 3 * text.len(), "{status}: {} to {}", reply.text, text);
    }
    assert_eq!(s.send(VICTIM, &at(VICTIM, &request("CANCEL", PROXY, "c9", 1, ""))).len(), 1);
}

/// Sends a BYE, and retransmits it when Timer E fires at its sender. Returns the target of each copy
/// that the proxy forwards.
fn repeated(s: &mut Script, from: &str, bye: &str) -> Vec<String> {
    let mut sent = s.send(from, bye);
    for pause_ms in [500, 1000, 2000, 4000, 4000, 4000, 4000, 4000, 4000, 4000] {
        s.pass(Duration::from_millis(pause_ms));
        sent.extend(s.send(from, bye));
    }
    s.pass(Duration::from_secs(10));
    sent.extend(s.sent());
    let byes = sent.iter().filter(|sent| sent.start().starts_with("BYE "));
    byes.map(|sent| sent.to.to_string()).collect()
}

/// Lets the victim acknowledge a call, which verifies its address.
fn verify(s: &mut Script) {
    let call = out(&s.send(VICTIM, &at(VICTIM, &invite("c2")))).remove(0);
    s.send(&call.to.to_string(), &call.answer("200 OK"));
    let more = format!("Totag\r\nRoute: {}\r\n", call.header("Record-Route"));
    let ack = request("ACK", "sip:bob@192.0.2.1", "c2", 1, &more);
    s.send(VICTIM, &at(VICTIM, &ack));
}

/// RFC 3261 §13.3.1.4: a callee whose 2xx is not acknowledged "SHOULD terminate the session. This
/// is accomplished with a BYE", which it retransmits by §17.1.2.2 until there is a response.
#[test]
fn a_bye_to_a_source_that_never_acknowledges_is_sent_twice() {
    for (is_stateful, is_verified, copies) in
        [(true, false, 2), (false, false, 2), (true, true, 11), (false, true, 11)]
    {
        let mut s = if is_stateful { Script::stateful() } else { Script::new() };
        let request = out(&s.send(VICTIM, &short("c1"))).remove(0);
        s.send(BACKEND_A, &request.answer("200 OK"));
        if is_verified {
            verify(&mut s);
        }
        let bye = format!(
            "BYE sip:a@{VICTIM} SIP/2.0\r\nVia: SIP/2.0/UDP {BACKEND_A};branch=z9hG4bKbye\r\n\
             Route: {}\r\nFrom: <sip:b>;tag=callee\r\nTo: <sip:a>;tag=1\r\nCall-ID: c1\r\n\
             CSeq: 1 BYE\r\n\r\n",
            request.header("Record-Route")
        );
        let byes = repeated(&mut s, BACKEND_A, &bye);
        assert_eq!(byes.len(), copies, "{is_stateful} {is_verified}");
        assert_eq!(s.counters.requests_withheld.get(), 11 - copies as u64);
    }
}

/// RFC 3261 §12.1.1: the Contact is the "remote target" of the dialog. A caller may write the address
/// of a third party into it. The third party has not shown that it wants the BYE.
#[test]
fn a_bye_to_a_third_party_in_the_contact_is_sent_twice() {
    for (is_stateful, is_verified, copies) in
        [(true, false, 2), (false, false, 2), (true, true, 11), (false, true, 11)]
    {
        let mut s = if is_stateful { Script::stateful() } else { Script::new() };
        let contact = format!("Contact: <sip:a@{VICTIM}>\r\n");
        let call = request("INVITE", "sip:bob@192.0.2.1", "c1", 1, &contact);
        let call = out(&s.send(CALLER, &call)).remove(0);
        let ok = s.one(BACKEND_A, &call.answer("200 OK"));
        let ack = format!("Totag\r\nRoute: {}\r\n", ok.header("Record-Route"));
        s.send(CALLER, &request("ACK", "sip:bob@10.0.0.1:5070", "c1", 1, &ack));
        if is_verified {
            verify(&mut s);
        }
        let bye = format!(
            "BYE sip:a@{VICTIM} SIP/2.0\r\nVia: SIP/2.0/UDP {BACKEND_A};branch=z9hG4bKbye\r\n\
             Route: {}\r\nFrom: <sip:b>;tag=callee\r\nTo: <sip:a>;tag=caller\r\n\
             Call-ID: c1\r\nCSeq: 1 BYE\r\n\r\n",
            call.header("Record-Route")
        );
        let targets = repeated(&mut s, BACKEND_A, &bye);
        assert_eq!(targets, vec![VICTIM; copies], "{is_stateful} {is_verified}");
    }
}

/// RFC 3261 §17.1.2.2: Timer E fires at 0.5, 1.5, 3.5, ... s until Timer F fires after 32 s.
#[test]
fn a_peer_that_never_called_gets_all_repetitions() {
    let mut s = Script::stateful();
    let options = format!(
        "OPTIONS sip:a@{VICTIM} SIP/2.0\r\nVia: SIP/2.0/UDP {BACKEND_A};branch=z9hG4bK1\r\n\
         From: <sip:b>;tag=callee\r\nTo: <sip:a>\r\nCall-ID: c1\r\nCSeq: 1 OPTIONS\r\n\r\n"
    );
    let mut sent = s.send(BACKEND_A, &options);
    s.pass(Duration::from_secs(40));
    sent.extend(s.sent());
    let copies = sent.iter().filter(|sent| sent.start().starts_with("OPTIONS ")).count();
    assert_eq!((copies, s.counters.requests_withheld.get()), (11, 0));
}

const PHONE: &str = "203.0.113.7:5062";

/// Makes a proxy that routes requests for `users.example` to users.
fn with_users(mode: Mode) -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = mode;
        let (from, methods, domains) = (Senders::Any, vec![], vec!["users.example".to_owned()]);
        settings.rules.insert(0, Rule { from, methods, domains, to: RuleTarget::Users });
    })
}

/// Returns the request that the user's phone gets for a call from `from`.
fn call_user(s: &mut Script, from: &str, call: &str) -> Sent {
    let text = at(from, &request("INVITE", "sip:bob@users.example", call, 1, ""));
    let mut sent = s.send(from, &text);
    if let Some(query) = s.proxy.poll_query() {
        s.proxy.on_answer(
            s.now,
            query.id,
            QueryAnswer::Found((*b"<sip:b@203.0.113.7:5062>").into()),
        );
        sent.extend(s.serve());
    }
    out(&sent).remove(0)
}

/// Sends the BYE of the phone, with its retransmissions. Returns the number of copies that were
/// forwarded.
fn copies_of_bye(s: &mut Script, request: &Sent, call: &str) -> usize {
    let bye = format!(
        "BYE sip:a@{VICTIM} SIP/2.0\r\nVia: SIP/2.0/UDP {PHONE};branch=z9hG4bKbye\r\n\
         Route: {}\r\nFrom: <sip:b>;tag=callee\r\nTo: <sip:a>;tag=caller\r\n\
         Call-ID: {call}\r\nCSeq: 1 BYE\r\n\r\n",
        request.header("Record-Route")
    );
    let copies = repeated(s, PHONE, &bye);
    assert!(copies.iter().all(|to| to == VICTIM), "{copies:?}");
    copies.len()
}

/// A user's phone is treated like a back end: its BYE goes to the claimed caller.
#[test]
fn a_users_bye_to_a_source_that_never_acknowledges_is_sent_twice() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        for (acknowledged_by, copies) in [(None, 2), (Some(CALLER), 2), (Some(VICTIM), 11)] {
            let mut s = with_users(mode);
            let request = call_user(&mut s, VICTIM, "c1");
            let ok = s.send(PHONE, &request.answer("200 OK")).remove(0);
            if let Some(from) = acknowledged_by {
                let more = format!("Totag\r\nRoute: {}\r\n", ok.header("Record-Route"));
                let ack = crate::script::request("ACK", "sip:b@203.0.113.7:5062", "c1", 1, &more);
                s.send(from, &at(from, &ack));
            }
            assert_eq!(
                copies_of_bye(&mut s, &request, "c1"),
                copies,
                "{mode:?} {acknowledged_by:?}"
            );
            assert_eq!(s.counters.requests_withheld.get(), 11 - copies as u64);
        }
    }
}

/// The phone of the user has the route token too. So its messages prove nothing about the caller.
#[test]
fn an_ack_from_a_users_phone_verifies_nobody() {
    let mut s = with_users(Mode::Transaction);
    let request = call_user(&mut s, VICTIM, "c1");
    s.send(PHONE, &request.answer("200 OK"));
    let more = format!("Totag\r\nRoute: {}\r\n", request.header("Record-Route"));
    let ack = crate::script::request("ACK", &format!("sip:a@{VICTIM}"), "c1", 1, &more);
    s.send(PHONE, &at(PHONE, &ack));
    assert_eq!(copies_of_bye(&mut s, &request, "c1"), 2);
}

/// Responses of users are limited like responses of back ends.
#[test]
fn the_responses_of_a_user_are_repeated_little_to_a_source_that_never_acknowledges() {
    let mut s = with_users(Mode::Transaction);
    let request = call_user(&mut s, VICTIM, "c1");
    let mut sent = s.send(PHONE, &request.answer("486 Busy Here"));
    s.pass(Duration::from_secs(40));
    sent.extend(s.sent());
    let to_victim = sent.iter().filter(|sent| sent.start().contains(" 486 "));
    assert_eq!((to_victim.count(), s.counters.responses_withheld.get()), (2, 9));
}
