//! Tests of the caller by RFC 3261: the end of one call, by BYE or CANCEL, message by message.

use std::time::Duration;

use crate::script::one_call::{calling, config, ok};
use crate::script::{Sent, at, response, uas};
use tidegate_agent::CallerConfig;

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
    // A copy of the 200 is absorbed, as Timer K requires.
    script.tell(uas(), &response(&bye, 200, "", ""));
    assert_eq!(script.agent.stats().completed, 1);
    assert_eq!((script.agent.stats().late, script.agent.stats().unexpected), (1, 0));
    assert!(script.sent().is_empty());
}

#[test]
fn a_rejected_bye_is_a_failure_of_its_own() {
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
    // §9.1: the CANCEL has the Request-URI, Call-ID, To, From, Via and CSeq number of the INVITE.
    assert_eq!((cancel.what(), cancel.header("CSeq")), ("CANCEL", "1 CANCEL"));
    for header in ["Via", "From", "To", "Call-ID"] {
        assert_eq!(cancel.headers(header), invite.headers(header));
    }
    assert_eq!(cancel.request_uri(), invite.request_uri());
    // §17.1.2: a CANCEL is retransmitted like any request, until it is answered.
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
    // §9.1: the CANCEL leaves the call established. §15: a BYE ends it.
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

/// §9.1: without a provisional response the caller could not cancel the call. The 2xx once counted
/// as a set-up, although the caller had lost patience.
#[test]
fn a_2xx_after_the_patience_is_acknowledged_and_ended() {
    let patience = Duration::from_secs(2).into();
    let (mut script, invite) = calling(CallerConfig { patience, ..config() });
    script.until(2600).sent();
    script.tell(uas(), &ok(&invite));
    let sent = script.sent();
    assert_eq!(sent.iter().map(Sent::what).collect::<Vec<_>>(), ["ACK", "BYE"]);
    script.until(2620).tell(uas(), &response(&sent[1], 200, "", ""));
    let stats = script.agent.stats();
    assert_eq!((stats.set_up, stats.completed, stats.failed.abandoned), (0, 0, 1));
    assert_eq!((stats.persons.served, stats.talking), (0, 0));
    assert!(script.agent.is_done());

    // Such a call once counted as `BYE timeout` if its BYE got no response.
    let (mut script, invite) = calling(CallerConfig { patience, ..config() });
    script.until(2600).tell(uas(), &ok(&invite)).until(60_000);
    let failed = &script.agent.stats().failed;
    assert_eq!((failed.abandoned, failed.bye_timeout, failed.total()), (1, 0, 1));
    assert!(script.agent.is_done());

    // A 2xx that arrives just before the end of the patience is in time.
    let (mut script, invite) = calling(CallerConfig { patience, ..config() });
    script.until(1999).sent();
    script.tell(uas(), &ok(&invite));
    assert_eq!(script.sent_one().what(), "ACK");
    assert_eq!(script.agent.stats().set_up, 1);
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
    // The established call itself continues.
    script.until(10_020);
    let bye = script.sent_one();
    assert!(bye.header("To").ends_with(";tag=b"));
    script.tell(uas(), &response(&bye, 200, "", ""));
    assert_eq!(script.agent.stats().completed, 1);
    assert_eq!(script.agent.stats().unexpected, 0);
}

/// RFC 3261 §8.1.1.7: the branch is "unique across space and time for all requests sent by the UA".
/// The BYEs to two forks once had the same branch, so a proxy absorbed the second as a copy.
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

/// RFC 3261 §12: both tags identify a dialog. A BYE of a fork that the call does not keep once
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
    // §17.2.2: a copy of the BYE gets the same response, "until Timer J fires".
    script.tell(uas(), &bye(invite.header("From")));
    assert_eq!(script.sent_one().what(), "200");
    assert_eq!((script.agent.stats().completed, script.agent.stats().late), (1, 1));
    script.until(20_000);
    assert!(script.sent().is_empty(), "no BYE of our own");
}

#[test]
fn both_sides_may_hang_up_at_once() {
    // §15.1.1, §15.1.2: each of the two BYEs ends the dialog, so a 481 to one of them is no
    // failure.
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
