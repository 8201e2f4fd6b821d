//! Tests of users in a store: RFC 3261 §16.5 and §16.6 item 2. A request waits for the look-up.

use std::sync::Arc;
use std::time::Duration;

use crate::rfc7339_client::{OFFER, calls, telling, value};
use crate::script::{BACKEND_A, BACKEND_B, CALLER, PROXY, Script, Sent, address, invite, request};
use tidegate_balance::Policy;
use tidegate_control::Bucket;
use tidegate_proxy::{Listener, Mode, Obedience, Rule, RuleTarget, Senders};
use tidegate_world::{
    ConnectionId, Core, Flow, LookupKind, QueryAnswer, QueryId, Question, Received, Transport,
};

const PHONE: &str = "203.0.113.7:5062";
const OTHER_PHONE: &str = "203.0.113.8:5060";
const ALICE: &str = "sip:alice@example.com";

/// Makes a proxy that routes requests for `example.com` to users and all others to the pool.
fn script() -> Script {
    script_at(PROXY)
}

/// Makes the same proxy as [`script`], with a listener at this address.
fn script_at(listener: &str) -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.listeners = vec![Listener::new(address(listener))];
        settings.pools[0].mode = Mode::Transaction;
        settings.rules.insert(0, users("example.com"));
    })
}

fn users(domain: &str) -> Rule {
    Rule { domains: vec![domain.to_owned()], ..Rule::new(Senders::Any, RuleTarget::Users) }
}

/// Returns the next look-up query and its key.
fn asked(s: &mut Script) -> Option<(QueryId, String)> {
    let query = s.proxy.poll_query()?;
    let Question::Lookup { kind: LookupKind::User, key } = query.question else {
        panic!("{:?}", query.question)
    };
    Some((query.id, String::from_utf8(key.to_vec()).unwrap()))
}

fn found(contacts: &[&str]) -> QueryAnswer {
    let lines: String = contacts.iter().map(|contact| format!("<{contact}>\n")).collect();
    QueryAnswer::Found(lines.as_bytes().into())
}

/// Answers the only query, which must have the key `key`.
fn answer(s: &mut Script, key: &str, answer: QueryAnswer) -> Vec<Sent> {
    let (id, about) = asked(s).expect("a question");
    assert_eq!(about, key);
    assert_eq!(asked(s), None);
    s.proxy.on_answer(s.now, id, answer);
    s.serve()
}

fn call(id: &str) -> String {
    request("INVITE", ALICE, id, 1, "")
}

/// Returns the packets other than 100.
fn beyond_trying(sent: Vec<Sent>) -> Vec<Sent> {
    sent.into_iter().filter(|sent| !sent.start().starts_with("SIP/2.0 100")).collect()
}

/// Returns the only request among these packets.
fn forwarded(sent: Vec<Sent>) -> Sent {
    let mut sent = beyond_trying(sent);
    assert_eq!(sent.len(), 1, "{sent:#?}");
    sent.remove(0)
}

fn statuses(sent: &[Sent]) -> Vec<&str> {
    let replies = sent.iter().filter_map(|sent| sent.start().strip_prefix("SIP/2.0 "));
    replies.map(|start| &start[..3]).collect()
}

/// RFC 3261 §16.6: "The Request-URI in the copy's start line MUST be replaced with the URI for this
/// target."
#[test]
fn a_strangers_request_waits_for_the_look_up_and_goes_to_the_contact() {
    let mut s = script();
    assert!(s.send(CALLER, &call("c")).is_empty(), "there is no state of it, so no 100");
    assert!(s.send(CALLER, &call("c")).is_empty(), "its copy is absorbed");
    assert_eq!((s.counters.parked.get(), s.counters.parked_all.get()), (1, 1));
    let sent = answer(&mut s, ALICE, found(&["sip:alice@203.0.113.7:5062;ob"]));
    assert_eq!(statuses(&sent), ["100"]);
    let sent = forwarded(sent);
    assert_eq!(sent.start(), "INVITE sip:alice@203.0.113.7:5062;ob SIP/2.0");
    assert_eq!(sent.to.to_string(), PHONE);
    assert!(sent.header("To").contains("<sip:bob@example.com>"), "the headers stay");
    assert_eq!(s.counters.lookups.found.get(), 1);
    assert!(
        statuses(&s.send(CALLER, &call("c"))).contains(&"100"),
        "a copy matches the transaction"
    );
}

/// Makes the same proxy as [`script`]. Both back ends have asked the proxy to hold back this
/// percentage of the requests.
fn restricted(percent: u32) -> Script {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.pools[0].obedience = Obedience::Always;
        settings.rules.insert(0, users("example.com"));
    });
    for told in calls(&mut s, "a", 2).into_iter().flatten() {
        let response = telling(&told, "486 Busy Here", &value("loss", percent, 1));
        s.send(&told.to.to_string(), &response);
    }
    s
}

/// RFC 7339 §5.4: "The scope of overload control applies to unique combinations of IP and port values."
/// §5.5: "The SIP client MUST NOT forward more requests to a SIP server than allowed by the current "oc"
/// and "oc-algo" parameter values from that particular downstream server."
#[test]
fn a_restriction_also_applies_to_a_contact_at_the_address_of_a_back_end() {
    for percent in [0, 100] {
        let mut s = restricted(percent);
        s.send(CALLER, &call("c"));
        let contact = format!("sip:alice@{BACKEND_B}");
        let sent = beyond_trying(answer(&mut s, ALICE, found(&[contact.as_str()])));
        if percent == 100 {
            assert_eq!(statuses(&sent), ["503"]);
        } else {
            assert_eq!(sent[0].to, address(BACKEND_B));
            assert!(sent[0].all("Via")[0].ends_with(OFFER), "{}", sent[0].text);
        }
    }
}

/// A regression: if the first contact was a back end whose restriction did not admit the call, the
/// call got 503.
///
/// RFC 3261 §16.6: "As described in \[4\], the proxy MUST attempt to deliver the message to the first
/// tuple in that set, and proceed through the set in order until the delivery attempt succeeds."
#[test]
fn contacts_that_a_restriction_does_not_admit_are_left_out() {
    let mut s = restricted(100);
    s.send(CALLER, &call("c"));
    let [a, b] = [BACKEND_A, BACKEND_B].map(|backend| format!("sip:app@{backend}"));
    let phones = ["sip:desk@203.0.113.7:5062", "sip:mobile@203.0.113.8"];
    let contacts = [a.as_str(), b.as_str(), phones[0], phones[1]];
    let first = forwarded(answer(&mut s, ALICE, found(&contacts)));
    assert_eq!(first.start(), "INVITE sip:desk@203.0.113.7:5062 SIP/2.0");
    assert_eq!(first.to, address(PHONE));
    let sent = s.send(PHONE, &first.answer("503 Service Unavailable"));
    let starts: Vec<_> = sent.iter().map(|sent| (sent.to.to_string(), sent.start())).collect();
    let ack = (PHONE.to_owned(), "ACK sip:desk@203.0.113.7:5062 SIP/2.0");
    let next = (OTHER_PHONE.to_owned(), "INVITE sip:mobile@203.0.113.8 SIP/2.0");
    assert_eq!(starts.len(), 2, "{starts:?}");
    assert!(starts.contains(&ack) && starts.contains(&next), "{starts:?}");
}

/// A regression: if no listener reached the first contact, the call got 404.
///
/// RFC 3261 §16.6: "As described in \[4\], the proxy MUST attempt to deliver the message to the first
/// tuple in that set, and proceed through the set in order until the delivery attempt succeeds."
#[test]
fn a_contact_that_no_listener_reaches_is_left_out() {
    let mut s = Script::with(Policy::Rr, |settings| {
        let local = Listener::new(address("127.0.0.1:5060"));
        settings.listeners.push(Listener { transport: Transport::Tcp, ..local });
        settings.pools[0].mode = Mode::Transaction;
        settings.rules.insert(0, users("example.com"));
    });
    s.send(CALLER, &call("c"));
    let contacts = ["sip:a@203.0.113.7:5062;transport=tcp", "sip:a@203.0.113.8"];
    let sent = forwarded(answer(&mut s, ALICE, found(&contacts)));
    assert_eq!(sent.to.to_string(), OTHER_PHONE);
}

#[test]
fn a_request_that_waits_for_a_look_up_is_served_once() {
    let mut s = script();
    let served = |s: &Script| s.counters.sojourns(true).buckets().map(|b| b.1).sum::<u64>();
    s.send(CALLER, &call("c"));
    assert_eq!(served(&s), 0);
    forwarded(answer(&mut s, ALICE, found(&["sip:alice@203.0.113.7:5062"])));
    assert_eq!(served(&s), 1);
}

/// A regression: after the answer of the store, a retransmission was served as a new request. Then
/// the rejections of one call counted as those of several calls.
#[test]
fn a_retransmission_that_waits_for_a_look_up_stays_a_retransmission() {
    let mut s = script();
    for _ in 0..3 {
        assert!(s.send(CALLER, &call("c")).is_empty(), "it is parked");
        assert_eq!(statuses(&answer(&mut s, ALICE, QueryAnswer::NotFound(None))), ["404"]);
        s.pass(Duration::from_secs(2));
    }
    assert_eq!(s.counters.parked_all.get(), 3);
    let flow = &s.counters.overload.flows[Bucket::Session as usize];
    let rejected = s.counters.rejected_after(Bucket::Session).get();
    assert_eq!((flow.offered.get(), flow.repeated.get(), rejected), (1, 2, 1));
}

#[test]
fn one_question_serves_all_requests_to_a_user_for_a_second() {
    let mut s = script();
    s.send(CALLER, &call("c"));
    let written = request("INVITE", "sip:%61lice@EXAMPLE.com:5060;user=phone", "d", 1, "");
    assert!(s.send(CALLER, &written).is_empty());
    let sent = beyond_trying(answer(&mut s, ALICE, found(&["sip:a@203.0.113.7:5062"])));
    assert_eq!(sent.len(), 2, "{sent:?}");
    forwarded(s.send(CALLER, &call("e")));
    s.pass(Duration::from_secs(1));
    s.send(CALLER, &call("f"));
    assert!(asked(&mut s).is_some(), "a store is asked again soon");
}

/// RFC 3261 §16.5: "If the Request-URI indicates a resource at this proxy that does not exist, the
/// proxy MUST return a 404 (Not Found) response."
#[test]
fn rfc3261_16_5_an_unknown_user_is_not_found() {
    let mut s = script();
    s.send(CALLER, &call("c"));
    let sent = answer(&mut s, ALICE, QueryAnswer::NotFound(None));
    assert_eq!(statuses(&sent), ["404"]);
    assert!(sent[0].header("Warning").contains("no such user"));
    // A Request-URI without a user names no user.
    assert_eq!(s.status(CALLER, &request("MESSAGE", "sip:example.com", "d", 1, "")), 404);
    assert_eq!(asked(&mut s), None);
}

/// RFC 3261 §16.5: "If the target set remains empty after applying all of the above, the proxy MUST
/// return an error response, which SHOULD be the 480 (Temporarily Unavailable) response."
#[test]
fn rfc3261_16_5_a_user_without_a_contact_that_can_be_reached_is_unavailable() {
    for contacts in [
        &[][..],
        &["sips:a@203.0.113.7", "sip:a@203.0.113.7;transport=tcp", "tel:+1"],
        // This is our own address.
        &["sip:a@192.0.2.1"],
    ] {
        // A listener at the wildcard address has the local address of the packet.
        for listener in [PROXY, "0.0.0.0:5060"] {
            let mut s = script_at(listener);
            s.send(CALLER, &call("c"));
            let sent = answer(&mut s, ALICE, found(contacts));
            assert_eq!(statuses(&sent), ["480"], "{contacts:?} {listener}");
        }
    }
}

/// RFC 5630 §5.3: "If the proxy needs to reject the request for that reason, the proxy MUST reject it with a
/// 480 (Temporarily Unavailable) response." The reason is that the contact is reached without TLS.
#[test]
fn rfc5630_5_3_a_sips_request_for_a_user_gets_480_without_a_look_up() {
    let mut s = Script::with(Policy::Rr, |settings| {
        let secure = Listener::new(address("192.0.2.1:5061"));
        settings.listeners.push(Listener { transport: Transport::Tls, ..secure });
        settings.rules.insert(0, users("example.com"));
    });
    let (local, remote) = (address("192.0.2.1:5061"), address("198.51.100.7:40123"));
    let flow = Flow::connected(Transport::Tls, local, remote, ConnectionId::FIRST_ACCEPTED);
    let mut status = |uri: &str, call: &str| {
        let text = request("MESSAGE", uri, call, 1, "").replace("SIP/2.0/UDP", "SIP/2.0/TLS");
        s.proxy.offer(s.now, Received::new(s.now, flow, s.pool.copy(text.as_bytes())));
        let sent = s.serve();
        assert_eq!(asked(&mut s), None);
        statuses(&sent).join(" ")
    };
    assert_eq!(status("sips:alice@example.com", "c"), "480");
    // This Request-URI names no user.
    assert_eq!(status("sips:example.com", "d"), "404");
}

#[test]
fn a_look_up_that_fails_or_gets_no_answer_makes_the_user_unavailable() {
    let mut s = script();
    s.send(CALLER, &call("c"));
    let sent = answer(&mut s, ALICE, QueryAnswer::NoAnswer);
    assert_eq!(statuses(&sent), ["480"]);
    assert!(sent[0].header("Warning").contains("the look-up of the user failed"));

    s.pass(Duration::from_secs(1));
    s.send(CALLER, &call("d"));
    let (id, _) = asked(&mut s).unwrap();
    s.pass(Duration::from_millis(3999));
    assert!(s.serve().is_empty());
    s.pass(Duration::from_millis(1));
    assert_eq!(statuses(&s.serve()), ["480"]);
    s.proxy.on_answer(s.now, id, found(&["sip:a@203.0.113.7"]));
    assert!(s.serve().is_empty(), "a late answer brings nothing back");
    assert_eq!(s.counters.lookups.given_up.get(), 1);
    assert_eq!((s.counters.lookups.late.get(), s.counters.parked.get()), (1, 0));
}

/// The request to the next contact has its own Request-URI, and so have ACK and CANCEL.
#[test]
fn contacts_are_tried_in_their_order() {
    let mut s = script();
    s.send(CALLER, &call("c"));
    let contacts = ["sip:desk@203.0.113.7:5062", "sip:mobile@203.0.113.8"];
    let first = forwarded(answer(&mut s, ALICE, found(&contacts)));
    let sent = s.send(PHONE, &first.answer("503 Service Unavailable"));
    let starts: Vec<_> = sent.iter().map(|sent| (sent.to.to_string(), sent.start())).collect();
    let ack = (PHONE.to_owned(), "ACK sip:desk@203.0.113.7:5062 SIP/2.0");
    let next = (OTHER_PHONE.to_owned(), "INVITE sip:mobile@203.0.113.8 SIP/2.0");
    assert_eq!(starts.len(), 2);
    assert!(starts.contains(&ack) && starts.contains(&next), "{starts:?}");

    let second = sent.iter().find(|sent| sent.start().starts_with("INVITE")).unwrap();
    let again = s.pass_and_take(Duration::from_millis(500));
    assert_eq!(again.start(), second.start(), "it is repeated as it was sent");
    s.send(OTHER_PHONE, &second.answer("180 Ringing"));
    let sent = s.send(CALLER, &request("CANCEL", ALICE, "c", 1, ""));
    let cancel = sent.iter().find(|sent| sent.start().starts_with("CANCEL")).unwrap();
    assert_eq!(cancel.start(), "CANCEL sip:mobile@203.0.113.8 SIP/2.0");
    assert_eq!(cancel.to.to_string(), OTHER_PHONE);
}

/// RFC 3261 §16.5: "If a target URI is already present in the set (based on the definition of
/// equality for the URI type), it MUST NOT be added again."
#[test]
fn a_contact_that_is_listed_twice_is_tried_once() {
    let mut s = script();
    s.send(CALLER, &call("c"));
    let desk = "sip:desk@203.0.113.7:5062";
    let contacts = [desk, "sip:%64esk@203.0.113.7:5062;x", "sip:mobile@203.0.113.8"];
    let first = forwarded(answer(&mut s, ALICE, found(&contacts)));
    assert_eq!(first.start(), format!("INVITE {desk} SIP/2.0"));
    let sent = s.send(PHONE, &first.answer("503 Service Unavailable"));
    let next = sent.iter().find(|sent| sent.start().starts_with("INVITE")).unwrap();
    assert_eq!(next.start(), "INVITE sip:mobile@203.0.113.8 SIP/2.0");
}

#[test]
fn a_contact_that_is_silent_is_followed_by_the_next_at_the_same_address() {
    let mut s = script();
    s.send(CALLER, &call("c"));
    let contacts = ["sip:desk@203.0.113.7:5062", "sip:mobile@203.0.113.7:5062"];
    forwarded(answer(&mut s, ALICE, found(&contacts)));
    s.pass(Duration::from_secs(4));
    let sent = s.sent();
    let last = sent.last().unwrap();
    assert_eq!(last.start(), "INVITE sip:mobile@203.0.113.7:5062 SIP/2.0");
    assert_ne!(last.branch(), sent[0].branch());
}

/// RFC 3263 §4.3: silence is a failure only if "the transaction layer times out". So a text message
/// does not arrive twice, at a slow phone and at the next phone.
#[test]
fn a_message_to_a_silent_contact_is_not_sent_to_the_next() {
    // A back end that sends a message may itself have failed its probes.
    for (sender, from) in [(CALLER, Senders::Any), (BACKEND_A, Senders::Pool)] {
        let mut s = Script::with(Policy::Rr, |settings| {
            settings.pools[0].mode = Mode::Transaction;
            settings.rules.insert(0, Rule { from, ..users("example.com") });
        });
        s.send(sender, &request("MESSAGE", ALICE, "c", 1, ""));
        let contacts = ["sip:desk@203.0.113.7:5062", "sip:mobile@203.0.113.8"];
        let first = forwarded(answer(&mut s, ALICE, found(&contacts)));
        s.gone(0);
        s.pass(Duration::from_secs(4));
        s.gone(0);
        s.pass(Duration::from_secs(5));
        let sent = s.sent();
        assert!(sent.iter().all(|sent| sent.to != address(OTHER_PHONE)), "{sender}: {sent:#?}");
        assert_eq!(statuses(&s.send(PHONE, &first.answer("200 OK"))), ["200"], "{sender}");
    }
}

#[test]
fn a_cancel_ends_the_request_that_waits_for_a_look_up() {
    let mut s = script();
    s.send(CALLER, &call("c"));
    let sent = s.send(CALLER, &request("CANCEL", ALICE, "c", 1, ""));
    assert_eq!(statuses(&sent), ["200", "487"]);
    assert!(answer(&mut s, ALICE, found(&["sip:a@203.0.113.7"])).is_empty(), "nothing goes on");
}

/// RFC 3261 §9.2: "the UAS SHOULD immediately respond to the INVITE with a 487 (Request
/// Terminated)." So a cancelled request frees its place at once, without waiting for a timer.
#[test]
fn cancelled_requests_leave_room_for_others() {
    let mut s = script();
    for i in 0..600u32 {
        let from = format!("198.18.{}.{}:5060", i / 250, i % 250 + 1);
        for method in ["INVITE", "CANCEL"] {
            let text = request(method, ALICE, &format!("c{i}"), 1, "").replace(CALLER, &from);
            s.offer(&from, text.as_bytes());
        }
        let sent = s.serve();
        assert_eq!(statuses(&sent), ["200", "487"], "{i}");
    }
    assert_eq!(s.counters.parked.get(), 0);
    assert!(s.send(CALLER, &call("good")).is_empty(), "it waits");
    // Late copies of an INVITE and of its CANCEL.
    let from = "198.18.0.1:5060";
    let late = |method| request(method, ALICE, "c0", 1, "").replace(CALLER, from);
    assert_eq!(statuses(&s.send(from, &late("INVITE"))), ["487"]);
    assert_eq!(statuses(&s.send(from, &late("CANCEL"))), ["200"]);
    let sent = answer(&mut s, ALICE, found(&["sip:a@203.0.113.7:5062"]));
    assert_eq!(forwarded(sent).header("Call-ID"), "good");
}

/// Both parties reach each other by the token in our Record-Route, without a look-up.
#[test]
fn requests_within_the_dialog_of_a_user_follow_the_route_token() {
    let mut s = script();
    s.send(CALLER, &call("c"));
    let sent = forwarded(answer(&mut s, ALICE, found(&["sip:a@203.0.113.7:5062"])));
    let ok = s.send(PHONE, &sent.answer("200 OK"));
    assert_eq!(ok[0].to.to_string(), CALLER);
    let route = format!("Route: {}\r\nTotag\r\n", ok[0].header("Record-Route"));
    for method in ["ACK", "INVITE", "BYE"] {
        let text = request(method, "sip:a@10.9.9.9:5062", "c", 2, &route);
        let sent = forwarded(s.send(CALLER, &text));
        assert_eq!((sent.to.to_string().as_str(), sent.all("Route").len()), (PHONE, 0));
    }
    // The phone may send from another port, and the caller may be behind NAT.
    for from in [PHONE, "203.0.113.7:40000"] {
        let text = request("BYE", "sip:alice@192.168.1.2", "c", 7, &route);
        let text = text.replace(
            "198.51.100.7:5060;branch=z9hG4bK",
            &format!("{from};branch=z9hG4bK-{}", from.len()),
        );
        assert_eq!(forwarded(s.send(from, &text)).to.to_string(), CALLER);
    }
    assert_eq!(asked(&mut s), None);
    // Without the token, or with that of another call, the dialog is unknown.
    for (id, more) in [("c", "Totag\r\n"), ("d", &route)] {
        assert_eq!(s.status(CALLER, &request("BYE", "sip:a@203.0.113.7:5062", id, 3, more)), 481);
    }
    assert_eq!(asked(&mut s), None);
}

/// A stranger may know the Call-ID of a call, and make a call to its own phone with it.
#[test]
fn a_call_with_the_same_call_id_does_not_use_up_the_rate_of_another() {
    let mut s = script();
    let dial = |s: &mut Script, from: &str| {
        s.send(
            from,
            &call("c").replace(CALLER, from).replace("z9hG4bK", &format!("z9hG4bK{}", from.len())),
        );
        let sent = forwarded(match asked(s) {
            Some((id, _)) => {
                s.proxy.on_answer(s.now, id, found(&["sip:a@203.0.113.7:5062"]));
                s.serve()
            }
            None => s.sent(),
        });
        let ok = s.send(PHONE, &sent.answer("200 OK"));
        format!("Route: {}\r\nTotag\r\n", ok[0].header("Record-Route"))
    };
    let route = dial(&mut s, CALLER);
    s.pass(Duration::from_secs(2));
    const STRANGER: &str = "198.51.100.99:5060";
    let of_stranger = dial(&mut s, STRANGER);
    let info = |cseq| {
        request("INFO", "sip:a@203.0.113.7:5062", "c", cseq, &of_stranger).replace(CALLER, STRANGER)
    };
    let passed = (10..510).filter(|&cseq| !s.send(STRANGER, &info(cseq)).is_empty()).count();
    assert_eq!(passed, 60);
    let bye = request("BYE", "sip:a@203.0.113.7:5062", "c", 2, &route);
    assert_eq!(forwarded(s.send(CALLER, &bye)).to.to_string(), PHONE);
}

#[test]
fn a_back_end_calls_a_user_and_keeps_its_dialog() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.rules.insert(0, Rule { from: Senders::Pool, ..users("example.com") });
    });
    let text = call("c").replace(CALLER, BACKEND_A);
    assert!(s.send(BACKEND_A, &text).is_empty());
    let sent = forwarded(answer(&mut s, ALICE, found(&["sip:a@203.0.113.7:5062"])));
    s.send(PHONE, &sent.answer("200 OK"));
    let route = format!("Route: {}\r\nTotag\r\n", sent.header("Record-Route"));
    let bye = request("BYE", "sip:back@10.0.0.1:5070", "c", 1, &route).replace(CALLER, PHONE);
    let sent = forwarded(s.send(PHONE, &bye));
    assert_eq!(sent.to.to_string(), BACKEND_A, "not the other back end: {BACKEND_B}");
    // An address of record in an in-dialog request is not looked up.
    let bye = request("BYE", ALICE, "e", 3, "Totag\r\n").replace(CALLER, BACKEND_A);
    assert_eq!(s.status(BACKEND_A, &bye), 481);
    assert_eq!(asked(&mut s), None);
}

#[test]
fn a_contact_that_is_a_name_is_resolved_after_the_look_up() {
    let mut s = script();
    s.send(CALLER, &call("c"));
    let contacts = ["sip:a@phone.example:5062", "sip:b@203.0.113.8"];
    assert!(answer(&mut s, ALICE, found(&contacts)).is_empty(), "the first contact decides");
    let query = s.proxy.poll_query().unwrap();
    let Question::Resolve { name, .. } = &query.question else { panic!() };
    assert_eq!(&**name, "phone.example.");
    let ttl = Duration::from_secs(60);
    let addresses = QueryAnswer::Addresses(Arc::new([[203, 0, 113, 7].into()]), ttl);
    s.proxy.on_answer(s.now, query.id, addresses);
    let sent = forwarded(s.serve());
    assert_eq!(sent.start(), "INVITE sip:a@phone.example:5062 SIP/2.0");
    assert_eq!(sent.to.to_string(), PHONE);
    let sent = s.send(PHONE, &sent.answer("503 Service Unavailable"));
    assert!(sent.iter().any(|sent| sent.to.to_string() == OTHER_PHONE));

    // A name that does not exist leaves the other one.
    let mut s = script();
    s.send(CALLER, &call("c"));
    answer(&mut s, ALICE, found(&contacts));
    let query = s.proxy.poll_query().unwrap();
    s.proxy.on_answer(s.now, query.id, QueryAnswer::NotFound(None));
    assert_eq!(forwarded(s.serve()).to.to_string(), OTHER_PHONE);
}

const TRUSTED: &str = "10.1.1.1:5060";

/// Makes a proxy like `script()` with a trusted source that may call names at `carrier.example`.
fn with_trusted_source() -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        let outward =
            Rule { from: Senders::Trusted, to: RuleTarget::RequestUri, ..users("carrier.example") };
        settings.rules.splice(0..0, [users("example.com"), outward]);
        let listener = settings.listeners[0].clone();
        let trust = vec!["10.1.1.1/32".parse().unwrap()];
        settings.listeners[0] = Listener { trust, ..listener };
    })
}

/// Returns the address of the stranger with a number.
fn stranger(number: u32) -> String {
    format!("198.51.{}.{}:5060", number / 200, number % 200 + 1)
}

/// Sends an INVITE to `uri` from an address, and returns the statuses of the replies.
fn call_from(s: &mut Script, from: &str, uri: &str, call: &str) -> Vec<String> {
    let sent = s.send(from, &request("INVITE", uri, call, 1, "").replace(CALLER, from));
    statuses(&sent).into_iter().map(str::to_owned).collect()
}

#[test]
fn look_ups_that_hang_leave_pools_and_trusted_sources_alone() {
    let mut s = with_trusted_source();
    let mut seen = Vec::new();
    for i in 0..1500 {
        let uri = format!("sip:user-{i}@example.com");
        seen.extend(call_from(&mut s, &stranger(i), &uri, &format!("c{i}")));
        // The queries are sent and never answered.
        while asked(&mut s).is_some() {}
        if i % 50 == 0 {
            let sent = s.send(CALLER, &invite(&format!("p{i}")));
            let to_pool = sent.iter().filter(|sent| sent.start().starts_with("INVITE"));
            assert_eq!(to_pool.count(), 1, "{i}: {sent:?}");
        }
    }
    assert_eq!(s.counters.parked.get(), 512);
    assert_eq!(seen, vec!["503"; 1500 - 512]);
    // Strangers fill at most half of the places. The other half is for sources that may send to any
    // address.
    assert!(call_from(&mut s, TRUSTED, "sip:carol@carrier.example", "t").is_empty());
    assert_eq!(s.counters.parked.get(), 513);
    assert!(matches!(s.proxy.poll_query().unwrap().question, Question::Resolve { .. }));
    s.pass(Duration::from_secs(4));
    assert_eq!(statuses(&s.serve()), vec!["480"; 512]);
    assert_eq!(s.counters.parked.get(), 1);
}

#[test]
fn look_ups_of_strangers_that_hang_keep_no_trusted_source_from_a_user() {
    let mut s = with_trusted_source();
    for i in 0..1500 {
        let uri = format!("sip:user-{i}@example.com");
        call_from(&mut s, &stranger(i), &uri, &format!("c{i}"));
        while asked(&mut s).is_some() {}
    }
    let counters = s.counters.lookups.clone();
    let (outstanding, rejected) = (counters.outstanding.get(), counters.rejected.get());
    assert_eq!((outstanding, rejected), (512, 1500 - 512), "no question without a request");
    // The query is sent at once, even if a request of a stranger waits already for the same user.
    for uri in [ALICE, "sip:user-500@example.com"] {
        assert!(call_from(&mut s, TRUSTED, uri, uri).is_empty());
        assert_eq!(asked(&mut s).expect("it is asked at once").1, uri);
    }
}

#[test]
fn one_source_keeps_no_other_from_being_parked() {
    for (greedy, other, most) in [(CALLER, "203.0.113.9:5060", 256), (TRUSTED, CALLER, 512)] {
        let mut s = with_trusted_source();
        for i in 0..1500 {
            let uri = format!("sip:user-{i}@example.com");
            call_from(&mut s, greedy, &uri, &format!("c{i}"));
        }
        assert_eq!(s.counters.parked.get(), most, "one source leaves room for others");
        assert!(call_from(&mut s, other, ALICE, "o").is_empty());
        assert_eq!(s.counters.parked.get(), most + 1);
    }
    // A /64 network is one source.
    let mut s = with_trusted_source();
    for i in 0..600 {
        let from = format!("[2001:db8::{i:x}]:5060");
        call_from(&mut s, &from, &format!("sip:user-{i}@example.com"), &format!("c{i}"));
    }
    assert_eq!(s.counters.parked.get(), 256);
}

#[test]
fn one_user_whose_look_up_hangs_keeps_no_other_from_being_found() {
    let mut s = with_trusted_source();
    for i in 0..600 {
        call_from(&mut s, &stranger(i), ALICE, &format!("c{i}"));
    }
    assert_eq!(s.counters.parked.get(), 256);
    assert!(call_from(&mut s, &stranger(601), "sip:bob@example.com", "o").is_empty());
    assert_eq!(call_from(&mut s, &stranger(602), ALICE, "p"), ["503"]);
    assert_eq!(s.counters.parked.get(), 257);
}

#[test]
fn after_a_reload_users_are_looked_up_again() {
    let mut s = script();
    s.send(CALLER, &call("c"));
    answer(&mut s, ALICE, QueryAnswer::NotFound(None));
    let settings = tidegate_proxy::PoolSettings::new(s.backends.clone(), Policy::Rr);
    assert!(s.proxy.reload(s.now, vec![settings], vec![users("example.com")]));
    s.send(CALLER, &call("d"));
    forwarded(answer(&mut s, ALICE, found(&["sip:a@203.0.113.7"])));
}
