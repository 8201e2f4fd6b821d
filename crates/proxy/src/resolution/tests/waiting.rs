//! Tests of waiting for the DNS, and of operation while it fails.

use std::net::IpAddr;

use super::*;

// RFC 2308 §5: "Like normal answers negative answers have a time to live (TTL)."
#[test]
fn a_negative_answer_is_remembered_for_its_lifetime() {
    let mut scene = Scene::new(&[Udp]);
    let none = QueryAnswer::NotFound(Some(Duration::from_secs(20)));
    scene.answers.insert((RecordType::A, "a.example.".to_owned()), none);
    assert_eq!(scene.locate("sip:a.example:5060"), Located::NotFound);
    scene.pass(17_000);
    assert_eq!(scene.try_locate("sip:a.example:5060", 0), Located::NotFound);
    assert_eq!(scene.asked().len(), 1);
    scene.pass(3_000);
    assert!(matches!(scene.try_locate("sip:a.example:5060", 0), Located::Pending(_)));
}

// A missing answer does not prove that there are no SRV records: the host with the domain's name
// may be a different server.
#[test]
fn a_failure_is_not_taken_for_an_absence() {
    let mut scene = Scene::new(&[Udp])
        .broken(RecordType::Srv, "_sip._udp.a.example.")
        .a("a.example.", &["192.0.2.1"]);
    assert_eq!(scene.locate("sip:a.example"), Located::Unavailable);
    assert_eq!(scene.asked(), ["Naptr a.example.", "Srv _sip._udp.a.example."]);
    assert_eq!(scene.locate("sip:a.example"), Located::Unavailable);
    assert_eq!((scene.asked().len(), scene.counters.paused.get()), (0, 2), "it is left in peace");
    scene.pass(1000);
    scene.locate("sip:a.example");
    assert_eq!(scene.asked(), ["Srv _sip._udp.a.example."], "and asked again");
}

#[test]
fn a_dns_that_fails_for_naptr_records_alone_cuts_off_nobody() {
    let mut scene = Scene::new(&[Udp])
        .broken(RecordType::Naptr, "a.example.")
        .srv("_sip._udp.a.example.", &[srv(0, 0, 5070, "s.example.")])
        .a("s.example.", &["192.0.2.1"]);
    assert_eq!(scene.locate("sip:a.example"), at(&[(Udp, "192.0.2.1:5070")]));
    scene.pass(2000);
    let located = scene.try_locate("sip:a.example", 0);
    assert_eq!(located, at(&[(Udp, "192.0.2.1:5070")]), "nor makes anybody wait again");
}

#[test]
fn a_target_for_failover_that_is_not_known_delays_nothing() {
    let mut scene = Scene::new(&[Udp])
        .srv("_sip._udp.a.example.", &[srv(1, 0, 5071, "a."), srv(2, 0, 5072, "b.")])
        .a("a.", &["192.0.2.1"])
        .a("b.", &["192.0.2.2"]);
    scene.try_locate("sip:a.example", 0);
    scene.answer();
    scene.try_locate("sip:a.example", 0);
    scene.answer();
    let Located::Pending(ticket) = scene.try_locate("sip:a.example", 0) else {
        panic!("no address is known");
    };
    let queries: Vec<_> = std::iter::from_fn(|| scene.resolution.poll_query()).collect();
    let names: Vec<_> = queries.iter().map(|query| query.question.clone()).collect();
    let question = |name: &str| Question::Resolve { name: name.into(), record: RecordType::A };
    assert_eq!(names, [question("a."), question("b.")], "both are asked for at once");
    let address = |last| QueryAnswer::Addresses([IpAddr::from([192, 0, 2, last])].into(), TTL);
    let goes_on = scene.resolution.on_answer(scene.now, queries[0].id, &address(1));
    assert_eq!(goes_on, Some(ticket));
    assert_eq!(scene.try_locate("sip:a.example", 0), at(&[(Udp, "192.0.2.1:5071")]));
    scene.resolution.on_answer(scene.now, queries[1].id, &address(2));
    let both = at(&[(Udp, "192.0.2.1:5071"), (Udp, "192.0.2.2:5072")]);
    assert_eq!(scene.try_locate("sip:a.example", 0), both);
}

#[test]
fn a_dead_dns_never_delays_requests_to_a_name_in_use() {
    let mut scene = example();
    let before = scene.locate("sip:user@example.com");
    // No answer arrives for two hours.
    for _ in 0..72_000 {
        scene.pass(100);
        scene.resolution.handle_timeout(scene.now);
        assert_eq!(scene.try_locate("sip:user@example.com", 0), before);
        scene.lose();
    }
    let asked = scene.counters.asked.get();
    // Four names, each with cycles of 8 s until the query is abandoned and a pause of 32 s.
    assert!(asked < 4 * 7200 / 40 + 40, "{asked}");
    assert!(scene.counters.stale.get() > 0 && scene.counters.given_up.get() > 600);
    // The DNS answers again.
    scene.pass(40_000);
    scene.resolution.handle_timeout(scene.now);
    scene.try_locate("sip:user@example.com", 0);
    scene.answer();
    let stale = scene.counters.stale.get();
    assert_eq!(scene.locate("sip:user@example.com"), before);
    assert_eq!(scene.counters.stale.get(), stale);
}

#[test]
fn an_ended_answer_is_used_when_a_newer_one_takes_too_long() {
    let mut scene = Scene::new(&[Udp]).a("a.example.", &["192.0.2.1"]);
    let known = scene.locate("sip:a.example:5060");
    scene.pass(600_000);
    let Located::Pending(ticket) = scene.try_locate("sip:a.example:5060", 0) else {
        panic!("it has ended and the DNS works");
    };
    scene.lose();
    assert_eq!(scene.resolution.poll_timeout(), Some(scene.now + Duration::from_millis(500)));
    scene.pass(499);
    assert_eq!(scene.resolution.handle_timeout(scene.now), []);
    scene.pass(1);
    assert_eq!(scene.resolution.handle_timeout(scene.now), [ticket]);
    assert_eq!(scene.try_locate("sip:a.example:5060", 0), known);
    assert_eq!(scene.counters.stale.get(), 1);
}

#[test]
fn while_the_dns_is_silent_ended_answers_are_used_at_once() {
    let mut scene = Scene::new(&[Udp]).a("a.example.", &["192.0.2.1"]);
    let known = scene.locate("sip:a.example:5060");
    scene.pass(600_000);
    scene.try_locate("sip:b.example:5060", 0);
    scene.lose();
    scene.pass(500);
    assert_eq!(scene.resolution.handle_timeout(scene.now), [], "of b nothing is known");
    assert_eq!(scene.try_locate("sip:a.example:5060", 0), known);
}

#[test]
fn a_question_without_an_answer_is_given_up_and_remembered() {
    let mut scene = Scene::new(&[Udp]);
    let uri = "sip:a.example:5060";
    let Located::Pending(ticket) = scene.try_locate(uri, 0) else { panic!("it is not known") };
    let query = scene.resolution.poll_query().unwrap();
    assert_eq!(scene.try_locate(uri, 1), Located::Pending(ticket), "they wait for the same");
    assert_eq!(scene.resolution.poll_query(), None);
    scene.pass(7_999);
    assert_eq!(scene.resolution.handle_timeout(scene.now), []);
    scene.pass(1);
    assert_eq!(scene.resolution.handle_timeout(scene.now), [ticket]);
    assert_eq!(scene.try_locate(uri, 0), Located::Unavailable);
    assert_eq!(scene.resolution.poll_query(), None, "it is left in peace");
    // After the pause the query is sent again, but no request waits for a silent DNS.
    scene.pass(1000);
    assert_eq!(scene.try_locate(uri, 0), Located::Unavailable);
    assert!(scene.resolution.poll_query().is_some());
    // A late answer is still used.
    let answer = QueryAnswer::Addresses([IpAddr::from([192, 0, 2, 1])].into(), TTL);
    assert_eq!(scene.resolution.on_answer(scene.now, query.id, &answer), None);
    assert_eq!(scene.try_locate(uri, 0), at(&[(Udp, "192.0.2.1:5060")]));
    let counters = &scene.counters;
    assert_eq!((counters.given_up.get(), counters.late.get(), counters.asked.get()), (1, 1, 2));
}

#[test]
fn outstanding_questions_are_bounded_and_known_names_are_found_meanwhile() {
    let mut scene = Scene::with(&[Udp], V4, 3).a("a.example.", &["192.0.2.1"]);
    let known = scene.locate("sip:a.example:5060");
    for i in 0..40 {
        let located = scene.try_locate(&format!("sip:unknown-{i}.example:5060"), 0);
        assert_eq!(matches!(located, Located::Pending(_)), i < 36);
        assert_eq!(located == Located::Unavailable, i >= 36);
        assert_eq!(scene.try_locate("sip:a.example:5060", 0), known);
    }
    assert_eq!((scene.counters.rejected.get(), scene.counters.outstanding.get()), (4, 36));
    assert_eq!(scene.answer().len(), 3);
    assert!(matches!(scene.try_locate("sip:unknown-39.example:5060", 0), Located::Pending(_)));
}

/// The DNS gets few queries at once, and the requests wait meanwhile.
#[test]
fn requests_to_more_names_than_may_be_asked_at_once_wait() {
    let mut scene = Scene::with(&[Udp], V4, 64);
    let uri = |i| format!("sip:h{i}.example:5060");
    for i in 0..100 {
        assert!(matches!(scene.try_locate(&uri(i), 0), Located::Pending(_)), "{i}");
        scene = scene.a(&format!("h{i}.example."), &["192.0.2.1"]);
    }
    assert_eq!(scene.answer().len(), 48);
    assert_eq!(scene.answer().len(), 48);
    assert_eq!((scene.answer().len(), scene.counters.asked.get()), (4, 100));
    for i in 0..100 {
        assert_eq!(scene.try_locate(&uri(i), 0), at(&[(Udp, "192.0.2.1:5060")]));
    }
}

/// A domain whose name server does not answer must not take all places for queries.
#[test]
fn a_slow_domain_leaves_room_for_others() {
    let mut scene = Scene::with(&[Udp], V4, 64).a("b.example.", &["192.0.2.1"]);
    for i in 0..1000 {
        scene.try_locate(&format!("sip:h{i}.slow.example:5060"), 0);
    }
    scene.lose();
    assert_eq!(scene.counters.asked.get(), 24);
    assert!(matches!(scene.try_locate("sip:b.example:5060", 0), Located::Pending(_)));
    assert_eq!(scene.answer().len(), 1);
    assert_eq!(scene.try_locate("sip:b.example:5060", 0), at(&[(Udp, "192.0.2.1:5060")]));
}

#[test]
fn a_name_that_was_never_asked_for_is_not_remembered_as_failing() {
    let mut scene = Scene::with(&[Udp], V4, 1).a("b.example.", &["192.0.2.1"]);
    scene.try_locate("sip:a.example:5060", 0);
    let Located::Pending(ticket) = scene.try_locate("sip:b.example:5060", 0) else {
        panic!("it waits")
    };
    scene.lose();
    scene.pass(8_000);
    assert!(scene.resolution.handle_timeout(scene.now).contains(&ticket));
    assert_eq!(scene.locate("sip:b.example:5060"), at(&[(Udp, "192.0.2.1:5060")]));
}

#[test]
fn answers_that_are_remembered_are_bounded() {
    let mut scene = Scene::new(&[Udp]).a("a.example.", &["192.0.2.1"]);
    let known = scene.locate("sip:a.example:5060");
    for i in 0..2 * ANSWERS_MIN {
        scene.pass(1000);
        scene.locate(&format!("sip:unknown-{i}.example:5060"));
        assert_eq!(scene.try_locate("sip:a.example:5060", 0), known, "it is in use");
        scene.answer();
    }
    let (answers, evicted) = (scene.counters.answers.get(), scene.counters.evicted.get());
    assert_eq!((answers, evicted), (ANSWERS_MIN as u64, ANSWERS_MIN as u64 + 1));
}

// RFC 3263 §7: "If such records were present, but in later queries cease to appear, it is a sign of
// a potential attack. In this case, the client SHOULD generate some kind of alert or alarm".
#[test]
fn a_domain_that_withdraws_security_is_counted() {
    let mut scene = example();
    scene.locate("sip:example.com");
    assert_eq!(scene.counters.security_withdrawn.get(), 0);
    let mut scene = scene.naptr("example.com.", &[naptr(9, "s", "SIP+D2U", "_sip._udp.a.")]);
    scene.pass(60_000);
    scene.locate("sip:example.com");
    assert_eq!(scene.counters.security_withdrawn.get(), 1);
}

#[test]
fn after_a_failure_nobody_waits_for_a_newer_answer() {
    let mut scene = Scene::new(&[Udp]).a("a.example.", &["192.0.2.1"]);
    let known = scene.locate("sip:a.example:5060");
    let mut scene = scene.broken(RecordType::A, "a.example.");
    scene.pass(600_000);
    assert_eq!(scene.locate("sip:a.example:5060"), known, "the failure came at once");
    scene.pass(1000);
    assert_eq!(scene.try_locate("sip:a.example:5060", 0), known);
    assert_eq!(scene.answer().len(), 1, "it is asked for again");
    assert_eq!(scene.counters.failed.get(), 2);
}

#[test]
fn a_late_failure_is_not_a_second_one() {
    let mut scene = Scene::new(&[Udp]);
    scene.try_locate("sip:a.example:5060", 0);
    let query = scene.resolution.poll_query().unwrap();
    scene.pass(8_000);
    scene.resolution.handle_timeout(scene.now);
    assert_eq!(scene.resolution.on_answer(scene.now, query.id, &QueryAnswer::NoAnswer), None);
    // The pause is as long as after a first failure.
    scene.pass(1000);
    scene.try_locate("sip:a.example:5060", 0);
    assert!(scene.resolution.poll_query().is_some());
}

// RFC 3263 §4.1: "The client MAY use any transport protocol it desires which is supported by the
// server": the preferred one, even if another one is known earlier.
#[test]
fn the_preferred_service_is_waited_for() {
    let one = |port| [srv(0, 0, port, "s.example.")];
    let mut scene = Scene::new(&[Udp, Tcp])
        .srv("_sip._udp.a.example.", &one(5070))
        .srv("_sip._tcp.a.example.", &one(5071))
        .a("s.example.", &["192.0.2.1"]);
    let tcp = scene.locate("sip:a.example;transport=tcp");
    assert_eq!(tcp, at(&[(Tcp, "192.0.2.1:5071")]));
    assert_eq!(scene.locate("sip:a.example"), at(&[(Udp, "192.0.2.1:5070")]));
}
