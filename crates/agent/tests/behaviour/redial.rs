//! Tests of people who call again after their call has failed, and of emergency calls.

use std::time::Duration;

use crate::net::{self, Net, answering};
use crate::script::one_call::{self, ok};
use crate::script::{Sent, response, uas};
use tidegate_agent::{AnswererConfig, CallerConfig, CallerStats, Redial, Span};

fn redial(attempts_max: u32, probability: f64) -> Redial {
    let wait = Span::Fixed(Duration::from_secs(5));
    Redial { attempts_max, probability, wait, waiting_max: 100_000 }
}

fn run(config: CallerConfig, mix: &str) -> CallerStats {
    let answering = AnswererConfig { mix: mix.parse().unwrap(), ..answering() };
    let stats = Net::new(config, answering, 3).run_out().0;
    let persons = &stats.persons;
    assert_eq!(stats.offered, persons.came + persons.redials, "{persons:?}");
    assert_eq!(
        persons.came,
        persons.served + persons.gave_up + persons.cut_off + persons.overflowed,
        "{persons:?}"
    );
    assert_eq!((persons.waiting, stats.talking, stats.open), (0, 0, 0));
    stats
}

#[test]
fn a_person_calls_again_until_the_last_attempt() {
    let config = CallerConfig { redial: Some(redial(3, 1.0)), ..net::calling(100.0, 1000) };
    let stats = run(config.clone(), "503=1");
    let persons = &stats.persons;
    assert_eq!((persons.came, persons.redials, persons.gave_up), (1000, 2000, 1000));
    assert_eq!((stats.offered, stats.begun, stats.failed.total()), (3000, 3000, 3000));
    // A person who was served does not call again.
    let served = run(config, "answer=1").persons;
    assert_eq!((served.served, served.redials), (1000, 0));
}

#[test]
fn attempts_serve_more_people_than_calls() {
    let config = CallerConfig { redial: Some(redial(3, 1.0)), ..net::calling(200.0, 20_000) };
    let persons = run(config.clone(), "answer=1,503=1").persons;
    // The share of served people is 1 - 0.5³. The tolerance is five standard deviations.
    let part = persons.served as f64 / 20_000.0;
    assert!((part - 0.875).abs() < 5.0 * (0.875 * 0.125 / 20_000.0_f64).sqrt(), "{part}");
    // A third of those who failed call again, so the share is 0.5 + 0.5 / 3 · (0.5 + 0.5 / 3 ·
    // 0.5).
    let config = CallerConfig { redial: Some(redial(3, 1.0 / 3.0)), ..config };
    let part = run(config, "answer=1,503=1").persons.served as f64 / 20_000.0;
    assert!((part - 0.5972).abs() < 5.0 * (0.5972 * 0.4028 / 20_000.0_f64).sqrt(), "{part}");
}

#[test]
fn a_timeout_is_a_failure_too() {
    let config = CallerConfig { redial: Some(redial(2, 1.0)), ..net::calling(10.0, 20) };
    let stats = run(config, "silent=1");
    assert_eq!((stats.failed.timeout, stats.persons.redials), (40, 20));
}

#[test]
fn no_more_people_wait_than_there_is_room_for() {
    let redial = Redial { waiting_max: 10, ..redial(2, 1.0) };
    let config = CallerConfig { redial: Some(redial), ..net::calling(1000.0, 100) };
    let persons = run(config, "503=1").persons;
    assert_eq!((persons.overflowed, persons.redials, persons.gave_up), (90, 10, 10));
    // People whose calls did not begin because too many were open are counted as well.
    let config = CallerConfig { open_max: 5, ..net::calling(1000.0, 100) };
    let stats = run(config, "silent=1");
    assert!(stats.not_begun > 50);
    assert_eq!(stats.persons.overflowed, stats.not_begun);
}

#[test]
fn the_next_attempt_is_a_new_call_after_the_wait() {
    let config = CallerConfig { redial: Some(redial(3, 1.0)), ..one_call::config() };
    let (mut script, first) = one_call::calling(config.clone());
    script.until(20).tell(uas(), &response(&first, 503, ";tag=r", ""));
    assert_eq!(script.sent_one().what(), "ACK");
    assert_eq!(script.agent.stats().persons.waiting, 1);
    assert!(!script.agent.is_done());
    script.until(5019);
    assert!(script.sent().is_empty());
    let second = script.until(5020).sent_one();
    assert_eq!((second.what(), second.ms), ("INVITE", 5020));
    assert_ne!(second.header("Call-ID"), first.header("Call-ID"));
    script.until(5050).tell(uas(), &ok(&second));
    let stats = script.agent.stats();
    assert_eq!((stats.persons.served, stats.persons.waiting, stats.talking), (1, 0, 1));
    // The set-up delay of the call is 30 ms. The delay of the person is 5,050 ms.
    assert_eq!(stats.set_up_delay.max().as_millis(), 30);
    assert_eq!(stats.persons.delay.max().as_millis(), 5050);

    // Nobody calls again after the end of the load.
    let load = tidegate_agent::Load { duration: Duration::from_secs(4), ..config.load.clone() };
    let (mut script, first) = one_call::calling(CallerConfig { load, ..config });
    script.until(20).tell(uas(), &response(&first, 503, ";tag=r", ""));
    assert_eq!(script.agent.stats().persons.cut_off, 1);
    assert!(script.agent.is_done());
}

// RFC 3261 §9.1: "If no provisional response has been received, the CANCEL request MUST NOT be
// sent; rather, the client MUST wait for the arrival of a provisional response before sending the
// request." The user agent waits, but not the person. A person who heard nothing once dialled again
// only after the INVITE had timed out.
#[test]
fn a_person_who_hears_nothing_dials_again_after_the_patience() {
    let patience = Duration::from_secs(15).into();
    let config = CallerConfig { redial: Some(redial(2, 1.0)), patience, ..one_call::config() };
    let (mut script, first) = one_call::calling(config.clone());
    script.until(15_000);
    let stats = script.agent.stats();
    assert_eq!((stats.persons.waiting, stats.open, stats.abandoned_open), (1, 1, 1));
    script.until(19_999).sent();
    let second = script.until(20_000).sent_one();
    assert_eq!((second.what(), second.ms), ("INVITE", 20_000));
    assert_ne!(second.header("Call-ID"), first.header("Call-ID"));
    // The first INVITE is retransmitted until its transaction ends, and the person is not counted
    // again when it ends.
    script.tell(uas(), &ok(&second));
    script.until(40_000);
    let again = |sent: &Sent| sent.header("Call-ID") == first.header("Call-ID");
    let times: Vec<_> = script.sent().iter().filter(|sent| again(sent)).map(|s| s.ms).collect();
    assert_eq!(times, [31_500]);
    let stats = script.agent.stats();
    assert_eq!((stats.failed.timeout, stats.abandoned_open), (1, 0));
    let persons = &stats.persons;
    assert_eq!((persons.came, persons.served, persons.redials, persons.gave_up), (1, 1, 1, 0));

    // A late 2xx to the first INVITE serves nobody.
    let (mut script, first) = one_call::calling(config.clone());
    script.until(16_000).sent();
    script.tell(uas(), &ok(&first));
    let sent = script.sent();
    assert_eq!(sent.iter().map(Sent::what).collect::<Vec<_>>(), ["ACK", "BYE"]);
    script.tell(uas(), &response(&sent[1], 200, "", "")).until(20_000);
    assert_eq!(script.sent_one().what(), "INVITE");
    let stats = script.agent.stats();
    assert_eq!((stats.failed.abandoned, stats.persons.served, stats.persons.redials), (1, 0, 1));
    assert_eq!((stats.open, stats.abandoned_open), (1, 0));

    // A person who hangs up while it rings does not wait for the 487 either.
    let (mut script, first) = one_call::calling(config);
    script.until(20).tell(uas(), &response(&first, 180, ";tag=b", "")).until(15_000);
    let cancel = script.sent_one();
    assert_eq!(cancel.what(), "CANCEL");
    script.tell(uas(), &response(&cancel, 200, "", "")).until(20_000);
    assert_eq!(script.sent_one().what(), "INVITE");
}

// RFC 3261 §17.1.1.3: the ACK has "a Request-URI [...] equal to the Request-URI" of the INVITE.
#[test]
fn an_emergency_call_goes_to_the_service() {
    let config = CallerConfig { emergency: 1.0, ..one_call::config() };
    let (mut script, invite) = one_call::calling(config.clone());
    assert_eq!(invite.request_uri(), "urn:service:sos");
    assert_eq!(invite.header("To"), "<urn:service:sos>");
    script.until(20).tell(uas(), &response(&invite, 503, ";tag=r", ""));
    assert_eq!(script.sent_one().request_uri(), "urn:service:sos");
    // A copy of the 503 after the end of the call is acknowledged too.
    script.tell(uas(), &response(&invite, 503, ";tag=r", ""));
    assert_eq!(script.sent_one().request_uri(), "urn:service:sos");

    let (mut script, invite) = one_call::calling(config);
    script.until(20).tell(uas(), &ok(&invite));
    let emergency = script.agent.stats().emergency;
    assert_eq!((emergency.offered, emergency.set_up_in_time), (1, 1));

    // Only calls after the warm-up count.
    let warm_up = Duration::from_secs(10);
    let config = CallerConfig { emergency: 1.0, warm_up, ..net::calling(500.0, 10_000) };
    let half = run(config, "answer=1").emergency.offered;
    assert!(half.abs_diff(5000) < 5 * 71, "{half}");

    let config = CallerConfig { emergency: 0.1, ..net::calling(500.0, 10_000) };
    let emergency = run(config, "answer=1").emergency;
    assert_eq!(emergency.offered, emergency.set_up_in_time);
    let part = emergency.offered as f64 / 10_000.0;
    assert!((part - 0.1).abs() < 5.0 * (0.09 / 10_000.0_f64).sqrt(), "{part}");
}
