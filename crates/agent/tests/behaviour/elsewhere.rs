//! Tests by RFC 3261 §21.5.4: a caller rejected with 503 tries another server.

use crate::script::one_call::{calling, config, ok};
use crate::script::{response, uas};
use std::net::SocketAddr;
use tidegate_agent::CallerConfig;

fn second() -> SocketAddr {
    "192.0.2.3:5060".parse().unwrap()
}

fn two_servers() -> CallerConfig {
    CallerConfig { alternates: vec![second()], ..config() }
}

const REJECTED: &str = ";tag=r";

#[test]
fn a_call_rejected_with_503_is_offered_to_the_next_server_as_a_new_one() {
    let (mut script, first) = calling(two_servers());
    script.until(20).tell(uas(), &response(&first, 503, REJECTED, ""));
    let sent = script.sent();
    let [ack, invite] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((ack.what(), ack.to, ack.branch()), ("ACK", uas(), first.branch()));
    assert_eq!((invite.what(), invite.to, invite.ms), ("INVITE", second(), 20));
    assert_ne!(invite.header("Call-ID"), first.header("Call-ID"));
    assert_ne!(invite.branch(), first.branch());

    // At the new server, timer A starts again and retransmits the INVITE.
    script.until(519);
    assert!(script.sent().is_empty());
    script.until(520);
    assert_eq!(script.sent_one().to, second());

    // A copy of the 503 is acknowledged at its source, and changes nothing.
    script.tell(uas(), &response(&first, 503, REJECTED, ""));
    let again = script.sent_one();
    assert_eq!((again.what(), again.to), ("ACK", uas()));

    // Requests that ignore the route set go to the server of the call.
    script.tell(second(), &ok(invite));
    let sent = script.sent();
    assert!(!sent.is_empty() && sent.iter().all(|sent| sent.what() != "INVITE"), "{sent:?}");
    let stats = script.agent.stats();
    assert_eq!((stats.offered, stats.begun, stats.offered_elsewhere), (1, 1, 1));
    assert_eq!((stats.set_up, stats.failed.total()), (1, 0));
    // The set-up delay counts from the first INVITE, which went to the first server.
    assert_eq!(stats.set_up_delay.max().as_millis(), 520);
}

#[test]
fn a_call_that_all_servers_reject_has_failed_once() {
    let (mut script, first) = calling(two_servers());
    script.tell(uas(), &response(&first, 503, REJECTED, ""));
    let invite = script.sent().pop().unwrap();
    script.tell(second(), &response(&invite, 503, REJECTED, ""));
    let ack = script.sent_one();
    assert_eq!((ack.what(), ack.to), ("ACK", second()));
    // A copy of the 503 is acknowledged at its source, not at the first server, although the call
    // is over.
    script.tell(second(), &response(&invite, 503, REJECTED, ""));
    assert_eq!(script.sent_one().to, second());
    let stats = script.agent.stats();
    assert_eq!((stats.failed.status[&503], stats.failed.total(), stats.open), (1, 1, 0));
    assert!(script.agent.is_done());
}

#[test]
fn any_other_rejection_is_final() {
    let (mut script, first) = calling(two_servers());
    script.tell(uas(), &response(&first, 486, REJECTED, ""));
    assert_eq!(script.sent_one().what(), "ACK");
    assert_eq!(script.agent.stats().failed.status[&486], 1);
}

#[test]
fn a_caller_that_hangs_up_does_not_try_another_server() {
    let (mut script, first) = calling(CallerConfig {
        patience: std::time::Duration::from_secs(1).into(),
        ..two_servers()
    });
    script.tell(uas(), &response(&first, 180, REJECTED, "")).until(1000);
    assert_eq!(script.sent_one().what(), "CANCEL");
    script.tell(uas(), &response(&first, 503, REJECTED, ""));
    assert_eq!(script.sent_one().what(), "ACK");
    let stats = script.agent.stats();
    assert_eq!((stats.failed.abandoned, stats.offered_elsewhere), (1, 0));

    // Without a provisional response, no CANCEL says that the caller has hung up.
    let patience = std::time::Duration::from_secs(1).into();
    let (mut script, first) = calling(CallerConfig { patience, ..two_servers() });
    script.until(1200).sent();
    script.tell(uas(), &response(&first, 503, REJECTED, ""));
    assert_eq!(script.sent_one().what(), "ACK");
    let stats = script.agent.stats();
    assert_eq!((stats.failed.status[&503], stats.offered_elsewhere), (1, 0));
    assert_eq!((stats.persons.gave_up, stats.abandoned_open), (1, 0));
}
