//! The caller by RFC 3261: one call, spoken to line by line.

mod script;

use std::time::Duration;

use script::{Script, Sent, at, response, uac, uas};
use tidegate_agent::{Caller, CallerConfig, Impossible, Load, Process, Routing};
use tidegate_world::{Cause, Core, Failure, Path, Pool, Seed, Timestamp};

/// One call at 0 ms, held for 10 s.
fn config() -> CallerConfig {
    let load = Load { process: Process::Uniform, rate_cps: 1.0, calls: 1, ..Load::default() };
    CallerConfig { load, hold: Duration::from_secs(10).into(), ..CallerConfig::new(uac(), uas()) }
}

fn caller(config: CallerConfig) -> Script<Caller> {
    let caller = Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap();
    Script::new(caller, uac())
}

/// A caller that has sent its INVITE.
fn calling(config: CallerConfig) -> (Script<Caller>, Sent) {
    let mut script = caller(config);
    let invite = script.until(0).sent_one();
    assert_eq!(invite.what(), "INVITE");
    (script, invite)
}

fn ok(invite: &Sent) -> String {
    response(invite, 200, ";tag=b", "Contact: <sip:bob@192.0.2.22:5070>\n")
}

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
    // §17.1.1.2: in the Proceeding state nothing is sent again.
    let (mut script, invite) = calling(config());
    script.until(600).tell(uas(), &response(&invite, 180, ";tag=b", ""));
    script.until(59_999);
    assert_eq!(script.schedule(), at("INVITE", &[500]));
    assert!(!script.agent.is_done());
}

#[test]
fn a_refusal_is_acknowledged_in_its_transaction() {
    // §17.1.1.3: "The ACK request … MUST contain values for the Call-ID, From, and
    // Request-URI that are equal to the values of those header fields in the request", a
    // "single Via … equal to the top Via", "To … equal … the To header field in the
    // response", "CSeq … the same value for the sequence number", method ACK.
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
fn timer_e_repeats_the_bye_until_timer_f() {
    // §17.1.2.2.
    let (mut script, invite) = calling(config());
    script.until(0).tell(uas(), &ok(&invite)).until(60_000);
    let moments: Vec<u64> =
        [0, 500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500]
            .map(|after| 10_000 + after)
            .into();
    let mut expected = at("ACK", &[0]);
    expected.extend(at("BYE", &moments));
    assert_eq!(script.schedule(), expected);
    assert_eq!(script.agent.stats().failed.bye_timeout, 1);
    assert_eq!(script.agent.stats().repeated.bye, 10);
}

#[test]
fn a_provisional_response_to_the_bye_slows_timer_e() {
    // §17.1.2.2: in the Proceeding state timer E is T2.
    let (mut script, invite) = calling(config());
    script.until(0).tell(uas(), &ok(&invite)).until(10_000);
    let bye = script.sent().pop().unwrap();
    script.until(10_100).tell(uas(), &response(&bye, 100, "", "")).until(20_000);
    assert_eq!(script.schedule(), at("BYE", &[10_500, 14_500, 18_500]));
    script.tell(uas(), &response(&bye, 200, "", ""));
    assert_eq!(script.agent.stats().completed, 1);
    // Timer K's task: a copy of the 200 is taken without a word.
    script.tell(uas(), &response(&bye, 200, "", ""));
    assert_eq!(script.agent.stats().completed, 1);
    assert_eq!((script.agent.stats().late, script.agent.stats().unexpected), (1, 0));
    assert!(script.sent().is_empty());
}

#[test]
fn a_refused_bye_is_a_failure_of_its_own() {
    let (mut script, invite) = calling(config());
    script.until(0).tell(uas(), &ok(&invite)).until(10_000);
    let bye = script.sent().pop().unwrap();
    script.tell(uas(), &response(&bye, 481, "", ""));
    let stats = script.agent.stats();
    assert_eq!((stats.set_up, stats.completed, stats.failed.bye_status[&481]), (1, 0, 1));
    assert_eq!(stats.failed.to_string(), "BYE 481: 1");
}

#[test]
fn cancel_waits_for_a_provisional_response() {
    // §9.1: "If no provisional response has been received, the CANCEL request MUST NOT be
    // sent".
    let (mut script, invite) =
        calling(CallerConfig { patience: Duration::from_secs(2).into(), ..config() });
    script.until(3000);
    assert_eq!(script.schedule(), at("INVITE", &[500, 1500]));
    script.tell(uas(), &response(&invite, 100, "", ""));
    let cancel = script.sent_one();
    // §9.1: Request-URI, Call-ID, To, From, Via and the number of the CSeq as in the INVITE.
    assert_eq!((cancel.what(), cancel.header("CSeq")), ("CANCEL", "1 CANCEL"));
    for header in ["Via", "From", "To", "Call-ID"] {
        assert_eq!(cancel.headers(header), invite.headers(header));
    }
    assert_eq!(cancel.request_uri(), invite.request_uri());
    // §17.1.2: a CANCEL is repeated like any request, until it is answered.
    script.until(4000);
    assert_eq!(script.schedule(), at("CANCEL", &[3500]));
    script.tell(uas(), &response(&cancel, 200, "", "")).until(20_000);
    assert!(script.sent().is_empty());
    script.tell(uas(), &response(&invite, 487, ";tag=b", ""));
    assert_eq!(script.sent_one().what(), "ACK");
    assert_eq!(script.agent.stats().failed.abandoned, 1);
    assert_eq!(script.agent.stats().failed.total(), 1);
    assert!(script.agent.is_done());
}

#[test]
fn a_cancelled_call_that_gets_no_final_response_ends_after_64_t1() {
    // §9.1.
    let (mut script, invite) =
        calling(CallerConfig { patience: Duration::from_secs(2).into(), ..config() });
    script.until(100).tell(uas(), &response(&invite, 180, ";tag=b", "")).until(2000);
    let cancel = script.sent_one();
    script.until(2100).tell(uas(), &response(&cancel, 200, "", ""));
    script.until(33_999);
    assert!(!script.agent.is_done() && script.sent().is_empty());
    script.until(34_000);
    assert_eq!(script.agent.stats().failed.abandoned, 1);
}

#[test]
fn a_2xx_that_crosses_the_cancel_is_acknowledged_and_ended() {
    // §9.1 leaves the call established; §15: BYE ends it.
    let (mut script, invite) =
        calling(CallerConfig { patience: Duration::from_secs(2).into(), ..config() });
    script.until(100).tell(uas(), &response(&invite, 180, ";tag=b", "")).until(2000);
    script.sent();
    script.until(2010).tell(uas(), &ok(&invite));
    let sent = script.sent();
    assert_eq!(sent.iter().map(Sent::what).collect::<Vec<_>>(), ["ACK", "BYE"]);
    script.until(2020).tell(uas(), &response(&sent[1], 200, "", ""));
    let stats = script.agent.stats();
    assert_eq!((stats.set_up, stats.completed, stats.failed.abandoned), (0, 0, 1));
    assert!(script.agent.is_done());
}

#[test]
fn a_second_dialog_of_a_fork_is_acknowledged_and_ended() {
    // §13.2.2.4.
    let (mut script, invite) = calling(config());
    script.until(20).tell(uas(), &ok(&invite));
    script.sent();
    let fork = response(&invite, 200, ";tag=c", "Contact: <sip:carol@192.0.2.33>\n");
    for _ in 0..2 {
        script.until(40).tell(uas(), &fork);
        let sent = script.sent();
        assert_eq!(sent.iter().map(Sent::what).collect::<Vec<_>>(), ["ACK", "BYE"]);
        for request in &sent {
            assert_eq!(request.to.to_string(), "192.0.2.33:5060");
            assert!(request.header("To").ends_with(";tag=c"));
        }
        script.tell(uas(), &response(&sent[1], 200, "", ""));
    }
    // The call itself goes on.
    script.until(10_020);
    let bye = script.sent_one();
    assert!(bye.header("To").ends_with(";tag=b"));
    script.tell(uas(), &response(&bye, 200, "", ""));
    assert_eq!(script.agent.stats().completed, 1);
    assert_eq!(script.agent.stats().unexpected, 0);
}

/// RFC 3261 §8.1.1.7: the branch is "unique across space and time for all requests sent by the
/// UA". The BYEs to two forks had one branch, and a proxy absorbed the second as a copy.
#[test]
fn each_dialog_of_a_fork_has_branches_of_its_own() {
    let (mut script, invite) = calling(config());
    script.until(20).tell(uas(), &ok(&invite));
    let mut branches = vec![script.sent_one().branch().to_owned()];
    for tag in [";tag=c", ";tag=d"] {
        let fork = response(&invite, 200, tag, "Contact: <sip:carol@192.0.2.33>\n");
        script.tell(uas(), &fork);
        let sent = script.sent();
        assert_eq!(sent.iter().map(Sent::what).collect::<Vec<_>>(), ["ACK", "BYE"]);
        branches.extend(sent.iter().map(|sent| sent.branch().to_owned()));
    }
    branches.sort_unstable();
    let count = branches.len();
    branches.dedup();
    assert_eq!((count, branches.len()), (5, 5), "{branches:#?}");
}

/// RFC 3261 §12: a dialog is known by both tags. The BYE of a fork that the call does not keep
/// ended the call.
#[test]
fn the_bye_of_another_fork_does_not_end_the_call() {
    let (mut script, invite) = calling(config());
    script.until(20).tell(uas(), &ok(&invite)).sent();
    let bye = |tag: &str| {
        format!(
            "BYE sip:caller-0@192.0.2.1:5060 SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.2;branch=z9hG4bK{tag}\n\
             From: <sip:service@192.0.2.2:5060>;tag={tag}\nTo: {}\nCall-ID: {}\nCSeq: 7 BYE\n\n",
            invite.header("From"),
            invite.header("Call-ID")
        )
    };
    script.tell(uas(), &bye("c"));
    assert_eq!(script.sent_one().what(), "200");
    assert!(!script.agent.is_done());
    script.tell(uas(), &bye("b"));
    assert_eq!((script.agent.stats().hung_up, script.agent.is_done()), (1, true));
}

#[test]
fn a_2xx_after_timer_b_does_not_leave_the_other_side_hanging() {
    let (mut script, invite) = calling(config());
    script.until(33_000).sent();
    script.tell(uas(), &ok(&invite));
    assert_eq!(script.schedule(), [at("ACK", &[33_000]), at("BYE", &[33_000])].concat());
    let stats = script.agent.stats();
    assert_eq!((stats.set_up, stats.failed.timeout, stats.failed.total()), (0, 1, 1));
}

#[test]
fn the_other_side_may_hang_up() {
    // §15.1.2.
    let (mut script, invite) = calling(config());
    script.until(20).tell(uas(), &ok(&invite)).sent();
    let bye = |to: &str| {
        format!(
            "BYE sip:caller-0@192.0.2.1:5060 SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.2;branch=z9hG4bKx\n\
             From: <sip:service@192.0.2.2:5060>;tag=b\nTo: {to}\nCall-ID: {}\nCSeq: 7 BYE\n\n",
            invite.header("Call-ID")
        )
    };
    script.tell(uas(), &bye("<sip:caller-0@192.0.2.1:5060>;tag=wrong"));
    assert_eq!(script.sent_one().what(), "481");
    script.tell(uas(), &bye(invite.header("From")));
    assert_eq!(script.sent_one().what(), "200");
    let stats = script.agent.stats();
    assert_eq!((stats.completed, stats.hung_up, stats.failed.total()), (1, 1, 0));
    assert!(script.agent.is_done());
    // §17.2.2: a copy of the BYE gets the same response, "until timer J fires".
    script.tell(uas(), &bye(invite.header("From")));
    assert_eq!(script.sent_one().what(), "200");
    assert_eq!((script.agent.stats().completed, script.agent.stats().late), (1, 1));
    script.until(20_000);
    assert!(script.sent().is_empty(), "no BYE of our own");
}

#[test]
fn both_sides_may_hang_up_at_once() {
    // §15.1.1, §15.1.2: either BYE ends the dialog; a 481 to the other says so.
    let (mut script, invite) = calling(config());
    script.until(0).tell(uas(), &ok(&invite)).until(10_000);
    let ours = script.sent().pop().unwrap();
    let theirs = format!(
        "BYE sip:caller-0@192.0.2.1:5060 SIP/2.0\nVia: SIP/2.0/UDP 192.0.2.2;branch=z9hG4bKx\n\
         From: <sip:service@192.0.2.2:5060>;tag=b\nTo: {}\nCall-ID: {}\nCSeq: 7 BYE\n\n",
        invite.header("From"),
        invite.header("Call-ID")
    );
    script.tell(uas(), &theirs);
    assert_eq!(script.sent_one().what(), "200");
    script.until(10_600).tell(uas(), &response(&ours, 481, "", ""));
    assert!(script.sent().is_empty() && script.agent.is_done());
    let stats = script.agent.stats();
    assert_eq!((stats.completed, stats.hung_up, stats.failed.total(), stats.late), (1, 0, 0, 1));
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
    // §17.1.4, §18.4; UDP: the repetitions go on, for the server may come back.
    let (mut script, _) = calling(config());
    let failure = Failure { path: Path::udp(uac(), uas()), cause: Cause::Refused };
    let now = script.now();
    script.agent.on_failed(now, failure);
    script.until(32_000);
    let stats = script.agent.stats();
    assert_eq!((stats.failed.transport, stats.failed.timeout, stats.undelivered), (1, 0, 1));
    assert_eq!(stats.repeated.invite, 6);
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
fn what_no_caller_can_follow_is_refused() {
    let refused = |change: fn(&mut CallerConfig)| {
        let mut config = config();
        change(&mut config);
        Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).err()
    };
    assert_eq!(refused(|_| {}), None);
    assert_eq!(refused(|c| c.load.rate_cps = 0.0), Some(Impossible::Rate(0.0)));
    assert!(matches!(refused(|c| c.load.rate_cps = f64::NAN), Some(Impossible::Rate(_))));
    assert_eq!(refused(|c| c.uri = "sip:a@b\r\nX: y".to_owned()), Some(Impossible::Uri));
    assert_eq!(refused(|c| c.uri = "a".repeat(1025)), Some(Impossible::Uri));
    assert_eq!(refused(|c| c.callers = 0), Some(Impossible::Callers));
    assert_eq!(refused(|c| c.slack = Duration::from_micros(1001)), Some(Impossible::Slack));
    assert_eq!(refused(|c| c.timing.t1 = Duration::ZERO), Some(Impossible::T1));
}
