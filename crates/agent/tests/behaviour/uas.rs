//! Tests of the answerer by RFC 3261, message by message.

use std::time::Duration;

use crate::script::{Script, Sent, at, request, response, uac, uas};
use tidegate_agent::{Answerer, AnswererConfig, Behaviour};
use tidegate_world::{Core, Pool, Seed};

fn answerer(config: AnswererConfig) -> Script<Answerer> {
    Script::new(Answerer::new(config, Seed(1), 0, Pool::new()), uas())
}

fn config() -> AnswererConfig {
    AnswererConfig::new(uas())
}

fn rejecting() -> AnswererConfig {
    AnswererConfig { mix: Behaviour::Reject(486).into(), ..config() }
}

fn invite() -> String {
    request("INVITE", "1", "", 1)
}

fn tag(response: &Sent) -> String {
    format!(";tag={}", response.header("To").split(";tag=").nth(1).expect("a tag"))
}

/// Returns an answerer that has answered a call at 0 ms, and the 200.
fn answered(config: AnswererConfig) -> (Script<Answerer>, Sent) {
    let mut script = answerer(config);
    script.tell(uac(), &invite());
    let ok = script.sent().pop().unwrap();
    assert_eq!(ok.what(), "200");
    (script, ok)
}

#[test]
fn a_call_rings_and_is_answered() {
    // §13.3.1, §8.2.6.2, §12.1.1.
    let mut script = answerer(config());
    script.tell(uac(), &invite());
    let sent = script.sent();
    assert_eq!(sent.iter().map(Sent::what).collect::<Vec<_>>(), ["180", "200"]);
    for response in &sent {
        assert_eq!(response.to, uac());
        assert_eq!(
            response.headers("Via"),
            [
                "SIP/2.0/UDP 192.0.2.1:5060;rport=5060;branch=z9hG4bK1;received=192.0.2.1",
                "SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKfirst"
            ]
        );
        assert_eq!(response.header("From"), "<sip:alice@192.0.2.9>;tag=a");
        assert_eq!(response.header("Call-ID"), "one@192.0.2.9");
        assert_eq!(response.header("CSeq"), "1 INVITE");
        assert_eq!(
            response.headers("Record-Route"),
            ["<sip:192.0.2.1;lr>", "<sip:192.0.2.9;lr;a=b>"]
        );
        assert_eq!(response.header("Contact"), "<sip:answerer@192.0.2.2:5060>");
        assert_eq!(tag(response), tag(&sent[0]));
    }
    let (_, body) = sent[1].text.split_once("\r\n\r\n").unwrap();
    assert_eq!(sent[1].header("Content-Length"), body.len().to_string());
    assert!(body.starts_with("v=0\r\n"));
    assert_eq!(sent[0].header("Content-Length"), "0");
}

#[test]
fn a_2xx_is_repeated_until_the_ack() {
    // §13.3.1.4: "an interval that starts at T1 seconds and doubles for each retransmission
    // until it reaches T2 seconds".
    let (mut script, ok) = answered(config());
    script.until(9000);
    let copies = script.sent();
    assert!(copies.iter().all(|copy| copy.text == ok.text && copy.to == ok.to));
    assert_eq!(copies.iter().map(|c| c.ms).collect::<Vec<_>>(), [500, 1500, 3500, 7500]);
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1)).until(60_000);
    assert!(script.sent().is_empty());
    let stats = script.agent.stats();
    assert_eq!((stats.answered, stats.acknowledged, stats.repeated, stats.open), (1, 1, 4, 1));
}

#[test]
fn a_2xx_that_is_never_acknowledged_is_given_up_after_64_t1() {
    // §13.3.1.4.
    let (mut script, _) = answered(config());
    script.until(31_999);
    assert_eq!(
        script.schedule(),
        at("200", &[500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500])
    );
    assert_eq!(script.agent.stats().open, 1);
    // "the session SHOULD be terminated. This is accomplished with a BYE".
    let bye = script.until(32_000).sent_one();
    assert_eq!((bye.what(), bye.ms), ("BYE", 32_000));
    script.until(32_100).tell(uac(), &response(&bye, 200, "", ""));
    let stats = script.agent.stats();
    assert_eq!((stats.not_acknowledged, stats.open, stats.hung_up), (1, 0, 0));
    script.until(64_099);
    assert_eq!(script.agent.held(), 1);
    script.until(64_100);
    assert_eq!(script.agent.held(), 0);
    assert!(script.sent().is_empty());
}

#[test]
fn a_copy_of_an_answered_invite_is_absorbed() {
    // RFC 6026 §7.1: in the Accepted state, for 64·T1 (timer L), a late copy of the INVITE is no
    // new call, even if the call has ended.
    let (mut script, ok) = answered(config());
    script.until(100).tell(uac(), &invite());
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1)).tell(uac(), &invite());
    assert!(script.sent().is_empty());
    script.tell(uac(), &request("BYE", "3", &tag(&ok), 2));
    assert_eq!(script.sent_one().what(), "200");
    script.until(32_099).tell(uac(), &invite());
    assert!(script.sent().is_empty());
    assert_eq!((script.agent.stats().calls, script.agent.stats().invites_again), (1, 3));
    script.until(32_100);
    assert_eq!(script.agent.held(), 0);
    script.tell(uac(), &invite());
    assert_eq!(script.agent.stats().calls, 2);
}

#[test]
fn a_copy_of_a_ringing_invite_gets_the_provisional_response_again() {
    // §17.2.1, the Proceeding state.
    let mut script = answerer(AnswererConfig { ring: Duration::from_secs(3).into(), ..config() });
    script.tell(uac(), &invite());
    let ringing = script.sent_one();
    script.until(500).tell(uac(), &invite());
    assert_eq!(script.sent_one().text, ringing.text);
    script.until(3000);
    let ok = script.sent_one();
    assert_eq!((ok.what(), ok.ms, tag(&ok)), ("200", 3000, tag(&ringing)));
    assert_eq!(ok.headers("Via").len(), 2);
}

#[test]
fn a_slow_answerer_that_does_not_ring_says_100() {
    // §17.2.1: a 100 is sent if no other response is sent within 200 ms. §8.2.6.2: it has no tag.
    let ring = Duration::from_millis(201).into();
    let mut script = answerer(AnswererConfig { provisionals: vec![], ring, ..config() });
    script.tell(uac(), &invite());
    let trying = script.sent_one();
    assert_eq!((trying.what(), trying.header("To")), ("100", "<sip:service@192.0.2.2>"));
    let ring = Duration::from_millis(200).into();
    let mut script = answerer(AnswererConfig { provisionals: vec![], ring, ..config() });
    script.tell(uac(), &invite());
    assert!(script.sent().is_empty());
    assert_eq!(script.until(200).sent_one().what(), "200");
}

#[test]
fn a_rejection_is_repeated_by_timer_g_until_timer_h() {
    // §17.2.1.
    let mut script = answerer(rejecting());
    script.tell(uac(), &invite());
    script.sent();
    script.until(31_999);
    assert_eq!(
        script.schedule(),
        at("486", &[500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500])
    );
    script.until(32_000);
    assert_eq!(script.agent.held(), 0);
}

#[test]
fn an_acknowledged_rejection_is_repeated_no_more() {
    let mut script = answerer(rejecting());
    script.tell(uac(), &invite());
    let busy = script.sent().pop().unwrap();
    assert_eq!(busy.what(), "486");
    // §17.2.1, the Completed state: a copy of the INVITE causes the final response again.
    script.until(100).tell(uac(), &invite());
    assert_eq!(script.sent_one().text, busy.text);
    script.tell(uac(), &request("ACK", "1", &tag(&busy), 1));
    // The Confirmed state absorbs copies for T4 (timer I).
    script.tell(uac(), &request("ACK", "1", &tag(&busy), 1)).tell(uac(), &invite());
    script.until(5099);
    assert_eq!(script.agent.held(), 1);
    script.until(5100);
    assert_eq!(script.agent.held(), 0);
    assert!(script.sent().is_empty());
    assert_eq!(script.agent.stats().stray, 0);
}

#[test]
fn cancel_ends_a_ringing_call() {
    // §9.2.
    let mut script = answerer(AnswererConfig { ring: Duration::from_secs(9).into(), ..config() });
    script.tell(uac(), &invite());
    let ringing = script.sent_one();
    script.until(1000).tell(uac(), &request("CANCEL", "1", "", 1));
    let sent = script.sent();
    assert_eq!(sent.iter().map(Sent::what).collect::<Vec<_>>(), ["200", "487"]);
    assert_eq!(sent[0].header("CSeq"), "1 CANCEL");
    assert_eq!(sent[1].header("CSeq"), "1 INVITE");
    // "the To tag of the response to the CANCEL and the To tag in the response to the
    // original request SHOULD be the same."
    assert_eq!((tag(&sent[0]), tag(&sent[1])), (tag(&ringing), tag(&ringing)));
    script.tell(uac(), &request("CANCEL", "1", "", 1));
    assert_eq!(script.sent_one().text, sent[0].text);
    script.tell(uac(), &request("ACK", "1", &tag(&sent[1]), 1)).until(60_000);
    assert!(script.sent().is_empty());
    let stats = script.agent.stats();
    assert_eq!((stats.cancelled, stats.answered, stats.open, stats.stray), (1, 0, 0, 0));
}

/// RFC 3261 §17.2.2: "the server transaction MUST pass the final response to the transport layer
/// for retransmission whenever a retransmission of the request is received", until Timer J fires,
/// 64·T1. A copy of a CANCEL once got 481 when T4 had passed since the ACK for its INVITE.
#[test]
fn a_copy_of_a_cancel_is_answered_as_the_first_for_64_t1() {
    let mut script = answerer(AnswererConfig { ring: Duration::from_secs(9).into(), ..config() });
    script.tell(uac(), &invite()).until(1000).tell(uac(), &request("CANCEL", "1", "", 1));
    let sent = script.sent();
    let rejection = sent.last().unwrap();
    script.tell(uac(), &request("ACK", "1", &tag(rejection), 1));
    script.until(32_999).tell(uac(), &request("CANCEL", "1", "", 1));
    assert_eq!(script.sent_one().what(), "200");
    script.until(33_000);
    assert_eq!(script.agent.held(), 0);

    // A CANCEL shortly before Timer H fires is answered for 64·T1 too, and so is one after the ACK.
    let mut script = answerer(rejecting());
    script.tell(uac(), &invite()).until(31_999);
    script.sent();
    for ms in [31_999, 32_001, 63_998] {
        script.until(ms).tell(uac(), &request("CANCEL", "1", "", 1));
        assert_eq!(script.sent_one().what(), "200", "at {ms}");
    }
    script.until(63_999);
    assert_eq!(script.agent.held(), 0);

    let mut script = answerer(rejecting());
    script.tell(uac(), &invite());
    let busy = script.sent().pop().unwrap();
    script.tell(uac(), &request("ACK", "1", &tag(&busy), 1));
    for ms in [1000, 32_999] {
        script.until(ms).tell(uac(), &request("CANCEL", "1", "", 1));
        assert_eq!(script.sent_one().what(), "200", "at {ms}");
    }
    script.until(33_000);
    assert_eq!(script.agent.held(), 0);
}

/// RFC 3261 §13.2.2.4: the ACK to a 2xx belongs to the dialog. If a proxy without transactions has
/// sent a retransmission of the INVITE to another server, the ACK to that server's rejection may
/// come here. The call then once counted as set up.
#[test]
fn the_ack_to_anothers_rejection_does_not_acknowledge_ours() {
    let (mut script, ok) = answered(config());
    script.tell(uac(), &request("ACK", "1", ";tag=another", 1));
    assert_eq!((script.agent.stats().acknowledged, script.agent.stats().stray), (0, 1));
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1));
    assert_eq!(script.agent.stats().acknowledged, 1);
}

#[test]
fn cancel_does_not_touch_an_answered_call_and_finds_no_unknown_one() {
    // §9.2: "If it has [sent a final response], the CANCEL request has no effect".
    let (mut script, _) = answered(config());
    script.tell(uac(), &request("CANCEL", "1", "", 1));
    assert_eq!(script.sent_one().what(), "200");
    assert_eq!(script.agent.stats().cancelled, 0);
    script.tell(uac(), &request("CANCEL", "other", "", 1));
    assert_eq!(script.sent_one().what(), "481");
}

#[test]
fn bye_ends_a_call_once() {
    // §15.1.2. §17.2.2: a copy causes the same response until timer J (64·T1).
    let (mut script, ok) = answered(config());
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1));
    let bye = request("BYE", "3", &tag(&ok), 2);
    script.until(1000).tell(uac(), &bye);
    let gone = script.sent_one();
    assert_eq!((gone.what(), gone.header("CSeq")), ("200", "2 BYE"));
    script.until(32_999).tell(uac(), &bye);
    assert_eq!(script.sent_one().text, gone.text);
    script.tell(uac(), &request("BYE", "4", &tag(&ok), 3));
    assert_eq!(script.sent_one().what(), "481", "another BYE finds no dialog");
    let stats = script.agent.stats();
    assert_eq!((stats.completed, stats.byes_again, stats.stray, stats.open), (1, 1, 1, 0));
    script.until(33_000);
    assert_eq!(script.agent.held(), 0);
    script.tell(uac(), &bye);
    assert_eq!(script.sent_one().what(), "481");
}

/// RFC 3261 §17.2.2. A 481 once followed the 200 to a BYE in the same transaction. This happened if
/// a copy of the BYE had come before in another transaction, for example from a proxy that had no
/// room for a transaction.
#[test]
fn each_transaction_of_a_bye_gets_one_answer_for_64_t1() {
    let (mut script, ok) = answered(config());
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1));
    let [first, second] = ["3", "4"].map(|branch| request("BYE", branch, &tag(&ok), 2));
    for (ms, bye) in [(1000, &first), (32_999, &second), (64_998, &second)] {
        script.until(ms).tell(uac(), bye);
        assert_eq!(script.sent_one().what(), "200", "at {ms}");
    }
    script.until(64_999);
    assert_eq!(script.agent.held(), 0);
}

#[test]
fn a_bye_may_overtake_the_ack() {
    let (mut script, ok) = answered(config());
    script.tell(uac(), &request("BYE", "3", &tag(&ok), 2));
    assert_eq!(script.sent_one().what(), "200");
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1)).until(60_000);
    assert!(script.sent().is_empty());
    assert_eq!((script.agent.stats().completed, script.agent.stats().stray), (1, 0));
}

#[test]
fn a_bye_of_another_dialog_finds_none() {
    let (mut script, ok) = answered(config());
    for bye in [
        request("BYE", "3", "", 2),
        request("BYE", "3", ";tag=answerer-1", 2),
        request("BYE", "3", &tag(&ok), 2).replace("one@", "two@"),
    ] {
        script.tell(uac(), &bye);
        assert_eq!(script.sent_one().what(), "481");
    }
    assert_eq!((script.agent.stats().stray, script.agent.stats().open), (3, 1));
}

#[test]
fn a_call_without_bye_is_forgotten_in_the_end() {
    let (mut script, ok) =
        answered(AnswererConfig { talk_max: Duration::from_secs(90), ..config() });
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1)).until(90_000);
    assert_eq!((script.agent.stats().forgotten, script.agent.stats().open), (1, 0));
    script.until(122_000);
    assert_eq!(script.agent.held(), 0);
}

#[test]
fn an_invite_within_a_dialog_is_rejected() {
    // §14.2: a new session gets 488. §12.2.2: a request gets 481 if its dialog does not exist. The
    // ACK to the 488 has the tag of the dialog, so only the branch of the INVITE identifies it.
    let (mut script, ok) = answered(config());
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1));
    script.tell(uac(), &request("INVITE", "5", &tag(&ok), 2));
    assert_eq!(script.sent_one().what(), "488");
    script.tell(uac(), &request("ACK", "5", &tag(&ok), 2)).until(20_000);
    assert!(script.sent().is_empty());
    script.tell(uac(), &request("INVITE", "6", ";tag=gone", 2));
    assert_eq!(script.sent_one().what(), "481");
    let stats = script.agent.stats();
    assert_eq!((stats.calls, stats.answered, stats.rejected, stats.stray), (3, 1, 2, 0));
}

#[test]
fn other_requests_are_answered_alike_each_time() {
    let mut script = answerer(config());
    for (method, status) in [
        ("OPTIONS", "200"),
        ("MESSAGE", "200"),
        ("REGISTER", "200"),
        ("SUBSCRIBE", "405"),
        ("X", "405"),
    ] {
        script.tell(uac(), &request(method, "7", "", 1));
        let first = script.sent_one();
        assert_eq!(first.what(), status);
        assert!(tag(&first).starts_with(";tag=answerer-"), "§8.2.6.2: a tag");
        script.tell(uac(), &request(method, "7", "", 1));
        assert_eq!(script.sent_one().text, first.text, "§8.2.7: the same for the same request");
        if status == "405" {
            assert!(first.header("Allow").contains("INVITE"), "§8.2.1");
        }
    }
    assert_eq!((script.agent.stats().others, script.agent.stats().not_allowed), (6, 4));
    assert_eq!(script.agent.held(), 0);
}

#[test]
fn responses_go_where_18_2_2_says() {
    // RFC 3581 §4: with rport, the response goes to the port of the source. §18.2.2: without it,
    // the response goes to the port in sent-by.
    let mut script = answerer(config());
    let source = "192.0.2.1:40000".parse().unwrap();
    let options = request("OPTIONS", "7", "", 1);
    for (from, to, expected) in [
        (";rport", ";rport", "192.0.2.1:40000"),
        (";rport", "", "192.0.2.1:5060"),
        ("192.0.2.1:5060;rport", "gate.example:5077", "192.0.2.1:5077"),
        ("192.0.2.1:5060;rport", "gate.example", "192.0.2.1:5060"),
    ] {
        script.tell(source, &options.replace(from, to));
        assert_eq!(script.sent_one().to.to_string(), expected, "{to}");
    }
}

#[test]
fn a_silent_answerer_says_nothing() {
    let mut script = answerer(AnswererConfig { mix: Behaviour::Silent.into(), ..config() });
    script.tell(uac(), &invite()).tell(uac(), &request("OPTIONS", "7", "", 1)).until(60_000);
    assert!(script.sent().is_empty());
    assert_eq!((script.agent.held(), script.agent.stats().ignored), (0, 2));
}

#[test]
fn an_answerer_that_drains_takes_no_new_calls() {
    let (mut script, ok) = answered(config());
    let now = script.now();
    script.agent.on_drain(now);
    assert!(!script.agent.is_drained());
    script.tell(uac(), &request("INVITE", "8", "", 1));
    assert_eq!(script.sent_one().what(), "503");
    script.tell(uac(), &request("ACK", "2", &tag(&ok), 1));
    script.tell(uac(), &request("BYE", "3", &tag(&ok), 2));
    assert_eq!(script.sent_one().what(), "200");
    assert!(script.agent.is_drained());
}

#[test]
fn other_messages_than_requests_change_nothing() {
    let mut script = answerer(config());
    script.tell(
        uac(),
        "SIP/2.0 200 OK\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\nTo: <sip:a@b>\n\
                        Call-ID: x\nCSeq: 1 INVITE\n\n",
    );
    script.tell(uac(), &request("ACK", "2", "", 1));
    script.tell_bytes(uac(), b"\0\0\0\0").tell_bytes(uac(), b"");
    script.tell(uac(), &invite().replace("From:", "Form:"));
    script.tell(uac(), &invite().replace("CSeq: 1 INVITE", "CSeq: 1 BYE"));
    let stats = script.agent.stats();
    assert_eq!((stats.unexpected, stats.stray, stats.malformed), (1, 1, 4));
    assert_eq!((script.agent.held(), script.sent().len()), (0, 0));
}
