//! Tests of agents without retransmissions: a lost message is not sent again, and a call waits for
//! the same time as with retransmissions.

use std::time::Duration;

use crate::script::{Script, Sent, at, request, response, uac, uas};
use tidegate_agent::{Answerer, AnswererConfig, Behaviour, Caller, CallerConfig, Load};
use tidegate_world::{Pool, Seed, Timestamp};

/// Returns a caller that has sent the INVITE of its only call, which it holds for 10 s.
fn calling() -> (Script<Caller>, Sent) {
    let config = CallerConfig {
        load: Load { process: tidegate_agent::Process::Uniform, calls: 1, ..Load::default() },
        hold: Duration::from_secs(10).into(),
        patience: Duration::from_secs(2).into(),
        retransmissions: false,
        ..CallerConfig::new(uac(), uas())
    };
    let caller = Caller::new(config, Seed(1), 0, Timestamp::ZERO, Pool::new()).unwrap();
    let mut script = Script::new(caller, uac());
    let invite = script.until(0).sent_one();
    (script, invite)
}

/// Returns an answerer that has been called.
fn called(config: AnswererConfig) -> Script<Answerer> {
    let config = AnswererConfig { retransmissions: false, provisionals: vec![], ..config };
    let mut script = Script::new(Answerer::new(config, Seed(1), 0, Pool::new()), uas());
    script.tell(uac(), &request("INVITE", "1", "", 1));
    script
}

#[test]
fn an_invite_is_sent_once_and_waits_until_timer_b() {
    let (mut script, _) = calling();
    script.until(31_999);
    assert!(script.sent().is_empty() && !script.agent.is_done());
    script.until(32_000);
    assert!(script.sent().is_empty() && script.agent.is_done());
    assert_eq!(script.agent.stats().failed.timeout, 1);
}

#[test]
fn a_bye_is_sent_once_and_waits_until_timer_f() {
    let (mut script, invite) = calling();
    script.tell(uas(), &response(&invite, 200, ";tag=b", "Contact: <sip:bob@192.0.2.2>\n"));
    script.until(41_999);
    assert_eq!(script.schedule(), [at("ACK", &[0]), at("BYE", &[10_000])].concat());
    assert!(!script.agent.is_done());
    script.until(42_000);
    assert!(script.sent().is_empty());
    assert_eq!(script.agent.stats().failed.bye_timeout, 1);
}

#[test]
fn a_cancel_is_sent_once() {
    let (mut script, invite) = calling();
    script.tell(uas(), &response(&invite, 180, ";tag=b", "")).until(60_000);
    assert_eq!(script.schedule(), at("CANCEL", &[2000]));
    assert_eq!(script.agent.stats().failed.abandoned, 1);
}

#[test]
fn a_2xx_is_sent_once_and_given_up_after_64_t1() {
    let mut script = called(AnswererConfig::new(uas()));
    assert_eq!(script.sent_one().what(), "200");
    script.until(31_999);
    assert!(script.sent().is_empty());
    // The BYE that ends the call is sent once too.
    script.until(100_000);
    assert_eq!(script.schedule(), at("BYE", &[32_000]));
    let stats = script.agent.stats();
    assert_eq!((stats.not_acknowledged, stats.byes_unanswered, stats.repeated), (1, 1, 0));
}

#[test]
fn a_rejection_is_sent_once() {
    let mix = Behaviour::Reject(486).into();
    let mut script = called(AnswererConfig { mix, ..AnswererConfig::new(uas()) });
    assert_eq!(script.sent_one().what(), "486");
    script.until(100_000);
    assert!(script.sent().is_empty());
    assert_eq!(script.agent.held(), 0);
}
