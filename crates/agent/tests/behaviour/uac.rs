//! Tests of the caller by RFC 3261: the set-up of one call, message by message.

use std::time::Duration;

use crate::script::one_call::{calling, config, ok};
use crate::script::{at, response, uac, uas};
use tidegate_agent::{Caller, CallerConfig, CallerConfigError, ConnectionUse, LoadError, Routing};
use tidegate_world::{Cause, Core, Failure, Flow, Pool, Seed, Timestamp};

#[test]
fn an_invite_is_what_8_1_1_demands() {
    let (_, invite) = calling(config());
    assert_eq!(invite.to, uas());
    assert_eq!(invite.request_uri(), "sip:service@192.0.2.2:5060");
    assert!(invite.branch().starts_with("z9hG4bK"));
    assert!(invite.header("Via").starts_with("SIP/2.0/UDP 192.0.2.1:5060;rport;"));
    assert_eq!(invite.header("Max-Forwards"), "70");
    assert_eq!(invite.header("CSeq"), "1 INVITE");
    assert_eq!(invite.header("To"), "<sip:service@192.0.2.2:5060>");
    assert_eq!(invite.header("Contact"), "<sip:caller-0@192.0.2.1:5060>");
    let (_, body) = invite.text.split_once("\r\n\r\n").unwrap();
    assert_eq!(invite.header("Content-Length"), body.len().to_string());
    assert!(body.starts_with("v=0\r\n") && body.ends_with("\r\n"));
    assert!((450..600).contains(&invite.text.len()), "{} bytes", invite.text.len());
}

#[test]
fn timer_a_repeats_the_invite_until_timer_b() {
    // §17.1.1.2.
    let (mut script, invite) = calling(config());
    script.until(40_000);
    let sent = script.sent();
    assert!(sent.iter().all(|again| again.text == invite.text), "copies");
    let moments: Vec<_> = sent.iter().map(|again| again.ms).collect();
    assert_eq!(moments, [500, 1500, 3500, 7500, 15_500, 31_500]);
    assert_eq!(script.agent.stats().failed.timeout, 1);
    assert!(script.agent.is_done());
    assert_eq!(script.agent.poll_timeout(), None);
}

#[test]
fn t1_is_configurable() {
    let mut config = config();
    config.timing.t1 = Duration::from_millis(100);
    let (mut script, _) = calling(config);
    script.until(6400);
    assert_eq!(script.schedule(), at("INVITE", &[100, 300, 700, 1500, 3100, 6300]));
    assert!(script.agent.is_done(), "64·T1");
}

#[test]
fn a_provisional_response_ends_timers_a_and_b() {
    // §17.1.1.2: no retransmission in the Proceeding state.
    let (mut script, invite) = calling(config());
    script.until(600).tell(uas(), &response(&invite, 180, ";tag=b", ""));
    script.until(59_999);
    assert_eq!(script.schedule(), at("INVITE", &[500]));
    assert!(!script.agent.is_done());
}

#[test]
fn a_rejection_is_acknowledged_in_its_transaction() {
    // §17.1.1.3: "The ACK request [...] MUST contain values for the Call-ID, From, and
    // Request-URI that are equal to the values of those header fields in the request", a
    // "single Via [...] equal to the top Via", "To [...] equal [...] the To header field in the
    // response", "CSeq [...] the same value for the sequence number", method ACK.
    let (mut script, invite) = calling(config());
    let busy = response(&invite, 486, ";tag=b", "");
    script.until(20).tell(uas(), &busy);
    let ack = script.sent_one();
    assert_eq!((ack.what(), ack.to), ("ACK", uas()));
    for header in ["Via", "From", "Call-ID"] {
        assert_eq!(ack.headers(header), invite.headers(header));
    }
    assert_eq!(ack.request_uri(), invite.request_uri());
    assert_eq!(ack.header("To"), "<sip:service@192.0.2.2:5060>;tag=b");
    assert_eq!(ack.header("CSeq"), "1 ACK");
    assert_eq!(script.agent.stats().failed.status[&486], 1);
    assert!(script.agent.is_done());

    // §17.1.1.2: "Any retransmissions of the final response that are received while in the
    // 'Completed' state MUST cause the ACK to be re-passed to the transport layer", timer D
    // being 32 s at least.
    script.until(32_000).tell(uas(), &busy);
    assert_eq!(script.sent_one().text, ack.text);
    assert_eq!(script.agent.stats().repeated.ack, 1);
    assert_eq!(script.agent.stats().failed.total(), 1);
}

#[test]
fn each_copy_of_a_2xx_is_acknowledged() {
    // §13.2.2.4: "The ACK MUST be passed to the client transport every time a
    // retransmission of the 2xx final response that triggered the ACK arrives."
    let (mut script, invite) = calling(config());
    script.until(20).tell(uas(), &ok(&invite));
    let ack = script.sent_one();
    assert_eq!((ack.what(), ack.header("CSeq")), ("ACK", "1 ACK"));
    assert_ne!(ack.branch(), invite.branch(), "§17.1.1.3 is for other finals: a new branch");
    for ms in [520, 1520] {
        script.until(ms).tell(uas(), &ok(&invite));
        assert_eq!(script.sent_one().text, ack.text);
    }
    assert_eq!(script.agent.stats().set_up, 1);
    assert_eq!(script.agent.stats().repeated.ack, 2);
    assert_eq!(script.agent.stats().set_up_delay.max().as_millis(), 20);
}

#[test]
fn requests_within_a_dialog_follow_its_route_set() {
    // §12.1.2: Record-Route "taken in reverse order and preserving all URI parameters";
    // §12.2.1.1: with lr, the Request-URI is the remote target.
    let (mut script, invite) = calling(config());
    let routes = "Record-Route: \"P, two\" <sip:192.0.2.12;lr;x=1>;y=2, <sip:192.0.2.11:5080;lr>\n\
                  Record-Route: <sip:192.0.2.10:5090;lr;token=abc>\n\
                  Contact: <sip:bob@192.0.2.22:5070;ob>;expires=9\n";
    script.until(20).tell(uas(), &response(&invite, 200, ";tag=b", routes));
    script.until(10_020);
    for (request, cseq) in script.sent().iter().zip(["1 ACK", "2 BYE"]) {
        assert_eq!(request.header("CSeq"), cseq);
        assert_eq!(request.to.to_string(), "192.0.2.10:5090");
        assert_eq!(request.request_uri(), "sip:bob@192.0.2.22:5070;ob");
        assert_eq!(
            request.headers("Route"),
            [
                "<sip:192.0.2.10:5090;lr;token=abc>",
                "<sip:192.0.2.11:5080;lr>",
                "<sip:192.0.2.12;lr;x=1>"
            ]
        );
        assert_eq!(request.header("To"), "<sip:service@192.0.2.2:5060>;tag=b");
        assert_eq!(request.header("From"), invite.header("From"));
        assert_eq!(request.header("Call-ID"), invite.header("Call-ID"));
    }
}

#[test]
fn without_a_route_set_requests_go_to_the_contact() {
    let (mut script, invite) = calling(config());
    script.until(20).tell(uas(), &ok(&invite));
    let ack = script.sent_one();
    assert_eq!(ack.request_uri(), "sip:bob@192.0.2.22:5070");
    assert_eq!(ack.to.to_string(), "192.0.2.22:5070");
    assert!(ack.headers("Route").is_empty());
}

#[test]
fn a_hop_that_is_no_address_of_our_family_is_reached_by_the_target() {
    for contact in ["<sip:bob@server.example>", "<sip:bob@[2001:db8::1]>", "<tel:+4930>"] {
        let (mut script, invite) = calling(config());
        let ok = response(&invite, 200, ";tag=b", &format!("Contact: {contact}\n"));
        script.until(20).tell(uas(), &ok);
        assert_eq!(script.sent_one().to, uas());
    }
}

#[test]
fn a_strict_router_gets_itself_as_request_uri() {
    // §12.2.1.1: without lr in the first route URI.
    let (mut script, invite) = calling(config());
    let headers = "Record-Route: <sip:192.0.2.11;lr>, <sip:192.0.2.10:5090>\n\
                   Contact: <sip:bob@192.0.2.22>\n";
    script.until(20).tell(uas(), &response(&invite, 200, ";tag=b", headers));
    let ack = script.sent_one();
    assert_eq!(ack.request_uri(), "sip:192.0.2.10:5090");
    assert_eq!(ack.headers("Route"), ["<sip:192.0.2.11;lr>", "<sip:bob@192.0.2.22>"]);
    assert_eq!(ack.to.to_string(), "192.0.2.10:5090");
}

#[test]
fn routes_can_be_ignored() {
    let (mut script, invite) = calling(CallerConfig { routing: Routing::Ignore, ..config() });
    let headers = "Record-Route: <sip:192.0.2.11;lr>\nContact: <sip:bob@192.0.2.22>\n";
    script.until(20).tell(uas(), &response(&invite, 200, ";tag=b", headers)).until(10_020);
    let sent = script.sent();
    assert_eq!(sent.len(), 2);
    for request in sent {
        assert_eq!(request.to, uas());
        assert_eq!(request.request_uri(), invite.request_uri());
        assert!(request.headers("Route").is_empty());
    }
}

#[test]
fn an_answer_without_contact_is_a_failure() {
    let (mut script, invite) = calling(config());
    script.until(20).tell(uas(), &response(&invite, 200, ";tag=b", ""));
    assert!(script.sent().is_empty());
    assert_eq!(script.agent.stats().failed.malformed, 1);
    assert!(script.agent.is_done());
}

#[test]
fn a_damaged_copy_of_an_answer_does_not_end_the_call() {
    let (mut script, invite) = calling(config());
    script.until(20).tell(uas(), &ok(&invite)).sent();
    script.tell(uas(), &response(&invite, 200, ";tag=b", "Contact: <<\n"));
    assert!(script.sent().is_empty());
    assert_eq!((script.agent.stats().malformed, script.agent.stats().open), (1, 1));
    assert_eq!(script.until(10_020).sent_one().what(), "BYE");
}

#[test]
fn an_undelivered_invite_fails_by_its_cause() {
    // §17.1.4, §18.4. Over UDP the retransmissions continue, because the server may come back.
    let (mut script, _) = calling(config());
    let failure = Failure::new(Flow::udp(uac(), uas()), Cause::Refused, b"");
    let now = script.now();
    script.agent.on_failed(now, failure);
    script.until(32_000);
    let stats = script.agent.stats();
    assert_eq!((stats.failed.transport, stats.failed.timeout, stats.undelivered), (1, 0, 1));
    assert_eq!(stats.repeated.invite, 6);
}

/// Such a failure once counted for each call that timed out later.
#[test]
fn a_failure_at_another_address_is_not_the_cause_of_a_timeout() {
    let (mut script, _) = calling(config());
    let contact = "192.0.2.22:5070".parse().unwrap();
    let failure = Failure::new(Flow::udp(uac(), contact), Cause::Refused, b"ACK sip:bob@");
    let now = script.now();
    script.agent.on_failed(now, failure);
    script.until(32_000);
    let stats = script.agent.stats();
    assert_eq!((stats.failed.transport, stats.failed.timeout, stats.undelivered), (0, 1, 1));
}

#[test]
fn a_response_that_is_not_ours_changes_nothing() {
    let (mut script, invite) = calling(config());
    let good = response(&invite, 486, ";tag=b", "");
    let mut expected = 0;
    let other_branch = invite.branch().replace(|c: char| c.is_ascii_digit(), "f");
    for (from, to) in [
        (invite.branch(), other_branch.as_str()),
        (invite.branch(), "z9hG4bK-another"),
        (invite.header("Call-ID"), "another"),
        ("CSeq: 1 INVITE", "CSeq: 1 BYE"),
        ("CSeq: 1 INVITE", "CSeq: 1 OPTIONS"),
    ] {
        script.tell(uas(), &good.replace(from, to));
        expected += 1;
        assert_eq!(script.agent.stats().unexpected, expected, "{from} → {to}");
    }
    script.tell(uas(), "SIP/2.0 200 OK\n\n").tell_bytes(uas(), b"\r\n\r\n").tell_bytes(uas(), b"");
    assert_eq!(script.agent.stats().malformed, 3);
    assert!(script.sent().is_empty() && !script.agent.is_done());
}

#[test]
fn impossible_arrivals_are_rejected() {
    let rejected = |change: fn(&mut CallerConfig)| {
        let mut config = config();
        change(&mut config);
        Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).err()
    };
    assert_eq!(rejected(|_| {}), None);
    assert_eq!(
        rejected(|c| c.load.rate_cps = 0.0),
        Some(CallerConfigError::Load(LoadError::Rate(0.0)))
    );
    assert!(matches!(
        rejected(|c| c.load.rate_cps = f64::NAN),
        Some(CallerConfigError::Load(LoadError::Rate(_)))
    ));
    assert_eq!(rejected(|c| c.uri = "sip:a@b\r\nX: y".to_owned()), Some(CallerConfigError::Uri));
    assert_eq!(rejected(|c| c.uri = "a".repeat(1025)), Some(CallerConfigError::Uri));
    assert_eq!(rejected(|c| c.callers = 0), Some(CallerConfigError::Callers));
    let two = |c: &mut CallerConfig| c.connections = ConnectionUse::Shared(2);
    assert_eq!(rejected(two), Some(CallerConfigError::Connections), "over UDP");
    assert_eq!(rejected(|c| c.callees = 0), Some(CallerConfigError::Callees));
    assert_eq!(rejected(|c| c.slack = Duration::from_micros(1001)), Some(CallerConfigError::Slack));
    assert_eq!(rejected(|c| c.timing.t1 = Duration::ZERO), Some(CallerConfigError::T1));
    assert_eq!(rejected(|c| c.timing.t2 = Duration::ZERO), Some(CallerConfigError::T2));
    let short = |c: &mut CallerConfig| c.timing.t1 = Duration::from_micros(500);
    assert_eq!(rejected(short), None, "below 1 ms");
    assert_eq!(CallerConfigError::T1.to_string(), "T1 must be above 0 ms");
}

/// §8.2.1, §11 and §14.2. Such a request once got no response, so the other side retransmitted it
/// for 32 s and then ended the call.
#[test]
fn each_request_within_a_call_gets_a_response() {
    let (mut script, invite) = calling(config());
    script.until(20).tell(uas(), &ok(&invite)).sent();
    let request = |method: &str, to: &str| {
        format!(
            "{method} sip:caller-0@192.0.2.1:5060 SIP/2.0\n\
             Via: SIP/2.0/UDP 192.0.2.2;branch=z9hG4bK{method}\n\
             From: <sip:service@192.0.2.2:5060>;tag=b\nTo: {to}\nCall-ID: {}\n\
             CSeq: 7 {method}\n\n",
            invite.header("Call-ID")
        )
    };
    for (method, status) in
        [("OPTIONS", "200"), ("INVITE", "488"), ("CANCEL", "200"), ("UPDATE", "405")]
    {
        script.tell(uas(), &request(method, invite.header("From")));
        let response = script.sent_one();
        assert_eq!((response.what(), response.to), (status, uas()), "{method}");
        assert!(response.header("Allow").contains("BYE"), "{method}");
        assert_eq!(response.header("To"), invite.header("From"), "{method}");
    }
    // The ACK to the 488, and a request within an unknown dialog, get no response.
    script.tell(uas(), &request("ACK", invite.header("From")));
    script.tell(uas(), &request("OPTIONS", "<sip:caller-0@192.0.2.1:5060>;tag=wrong"));
    assert!(script.sent().is_empty());
    assert_eq!((script.agent.stats().unexpected, script.agent.stats().open), (5, 1));
    script.tell(uas(), &request("BYE", invite.header("From")));
    assert_eq!(script.sent_one().what(), "200");
    assert_eq!(script.agent.stats().hung_up, 1);
    script.tell(uas(), &request("OPTIONS", invite.header("From")));
    assert_eq!(script.sent_one().what(), "481", "the call has ended");
}
