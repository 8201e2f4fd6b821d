use super::*;
use crate::testing::at_ms as at;

fn key(name: &str) -> Arc<[u8]> {
    name.as_bytes().into()
}

fn lookups() -> Lookups {
    Lookups::new(Arc::default())
}

fn find(lookups: &mut Lookups, ms: u64, name: &str) -> LookupOutcome {
    find_as(lookups, OTHER, ms, name)
}

const OTHER: LookupRequester = LookupRequester { is_stranger: false, may_wait: true };
const STRANGER: LookupRequester = LookupRequester { is_stranger: true, may_wait: true };

fn find_as(
    lookups: &mut Lookups,
    requester: LookupRequester,
    ms: u64,
    name: &str,
) -> LookupOutcome {
    lookups.find(at(ms), LookupKind::User, &key(name), requester)
}

/// Returns the ticket that a request for a key has to wait for.
fn pending(lookups: &mut Lookups, ms: u64, name: &str) -> Ticket {
    match find(lookups, ms, name) {
        LookupOutcome::Pending(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn value(text: &str) -> QueryAnswer {
    QueryAnswer::Found(text.as_bytes().into())
}

#[test]
fn a_key_is_asked_for_once_and_its_answer_is_held_for_a_second() {
    let mut lookups = lookups();
    let ticket = pending(&mut lookups, 0, "a");
    assert_eq!(pending(&mut lookups, 5, "a"), ticket);
    let question = Question::Lookup { kind: LookupKind::User, key: key("a") };
    let query = lookups.poll_query().unwrap();
    assert_eq!((query.id, &query.question), (ticket.0, &question));
    assert_eq!(lookups.poll_query(), None);

    assert_eq!(lookups.on_answer(at(10), query.id, &value("v")), Some(ticket));
    assert_eq!(lookups.on_answer(at(11), query.id, &value("w")), None, "it is answered once");
    assert_eq!(find(&mut lookups, 1009, "a"), LookupOutcome::Found(key("v")));
    let again = pending(&mut lookups, 1010, "a");
    assert_ne!(again, ticket);
    lookups.on_answer(at(1011), again.0, &QueryAnswer::NotFound(None));
    assert_eq!(find(&mut lookups, 1012, "a"), LookupOutcome::NotFound);
    lookups.forget();
    assert_ne!(pending(&mut lookups, 1013, "a"), again, "a reload makes it ask again");
    assert_eq!((lookups.counters.found.get(), lookups.counters.late.get()), (1, 1));
}

#[test]
fn a_failure_and_silence_are_outcomes_too() {
    let mut lookups = lookups();
    let failing = pending(&mut lookups, 0, "a");
    assert_eq!(lookups.on_answer(at(1), failing.0, &QueryAnswer::NoAnswer), Some(failing));
    assert_eq!(find(&mut lookups, 2, "a"), LookupOutcome::Failed);

    let silent = pending(&mut lookups, 100, "b");
    assert!(lookups.poll_query().is_some());
    assert_eq!(lookups.poll_timeout(), Some(at(4100)));
    assert_eq!(lookups.handle_timeout(at(4099)), []);
    assert_eq!(lookups.handle_timeout(at(4100)), [silent]);
    assert_eq!((lookups.poll_timeout(), lookups.others.asked), (None, 0));
    assert_eq!(find(&mut lookups, 4101, "b"), LookupOutcome::Failed);
    assert_eq!(lookups.on_answer(at(4200), silent.0, &value("v")), None);
    let LookupCounters { failed, given_up, late, .. } = &*lookups.counters;
    assert_eq!((failed.get(), given_up.get(), late.get()), (1, 1, 1));
    assert_ne!(pending(&mut lookups, 5100, "b"), silent);
}

#[test]
fn answers_to_others_and_keys_of_no_store_change_nothing() {
    let mut lookups = lookups();
    for other in [0, 1, IDS_FROM - 1, IDS_FROM << 1, u64::MAX] {
        assert_eq!(lookups.on_answer(at(0), QueryId(other), &value("v")), None);
    }
    assert_eq!(lookups.counters.late.get(), 0);
    let long = Arc::from(vec![b'a'; KEY_MAX + 1]);
    assert_eq!(lookups.find(at(0), LookupKind::User, &long, OTHER), LookupOutcome::NotFound);
    assert_eq!(lookups.poll_query(), None);
}

#[test]
fn questions_and_answers_are_bounded() {
    let mut lookups = lookups();
    let names: Vec<_> = (0..3000).map(|i| i.to_string()).collect();
    let found: Vec<_> = names.iter().map(|name| find(&mut lookups, 0, name)).collect();
    let rejected = found.iter().filter(|found| **found == LookupOutcome::Rejected).count();
    assert_eq!(rejected, names.len() - OUTSTANDING_MAX);
    assert_eq!(lookups.counters.rejected.get(), rejected as u64);

    let asked = |lookups: &mut Lookups| std::iter::from_fn(|| lookups.poll_query()).count();
    assert_eq!(asked(&mut lookups), ASKED_MAX);
    lookups.on_answer(at(1), QueryId(IDS_FROM), &value("v"));
    assert_eq!(asked(&mut lookups), 1, "one answer makes room for one question");
    assert_eq!(lookups.handle_timeout(at(4000)).len(), OUTSTANDING_MAX - 1);
    assert_eq!(asked(&mut lookups), 0, "those that waited to be asked are given up too");
    assert_eq!((lookups.entries.len(), lookups.held.len()), (HELD_MAX, HELD_MAX));

    // A further answer displaces the oldest one.
    let ticket = pending(&mut lookups, 4000, "new");
    assert_eq!(asked(&mut lookups), 1);
    lookups.on_answer(at(4000), ticket.0, &value("v"));
    assert_eq!((lookups.entries.len(), lookups.held.len()), (HELD_MAX, HELD_MAX));
    find(&mut lookups, 5000, "x");
    assert_eq!((lookups.entries.len(), lookups.held.len()), (1, 0));
}

/// Takes all queries that are sent now, and returns their number.
fn asked(lookups: &mut Lookups) -> usize {
    std::iter::from_fn(|| lookups.poll_query()).count()
}

#[test]
fn strangers_have_half_of_the_questions_and_others_go_first() {
    let mut lookups = lookups();
    for i in 0..1000 {
        find_as(&mut lookups, STRANGER, 0, &format!("s{i}"));
    }
    assert_eq!(lookups.outstanding.len(), STRANGERS_OUTSTANDING_MAX);
    assert_eq!(lookups.counters.rejected.get(), 1000 - STRANGERS_OUTSTANDING_MAX as u64);
    assert_eq!(asked(&mut lookups), STRANGERS_ASKED_MAX);
    for i in 0..1000 {
        find(&mut lookups, 0, &format!("o{i}"));
    }
    assert_eq!(lookups.outstanding.len(), OUTSTANDING_MAX);
    assert_eq!(asked(&mut lookups), ASKED_MAX - STRANGERS_ASKED_MAX);
    let first = lookups.outstanding.keys().next().copied().unwrap();
    lookups.on_answer(at(1), QueryId(first), &value("v"));
    let Some(Question::Lookup { key, .. }) = lookups.poll_query().map(|query| query.question)
    else {
        panic!("a stranger's answer makes room")
    };
    assert!(key.starts_with(b"o"), "for another one");
    assert_eq!(lookups.handle_timeout(at(4000)).len(), OUTSTANDING_MAX - 1);
    for queue in [&lookups.strangers, &lookups.others] {
        assert_eq!((queue.outstanding, queue.asked), (0, 0));
    }
}

#[test]
fn a_strangers_query_that_others_need_too_counts_as_theirs() {
    for is_asked in [false, true] {
        let mut lookups = lookups();
        let LookupOutcome::Pending(ticket) = find_as(&mut lookups, STRANGER, 0, "a") else {
            panic!()
        };
        assert_eq!(if is_asked { asked(&mut lookups) } else { 1 }, 1);
        assert_eq!(pending(&mut lookups, 1, "a"), ticket);
        assert_eq!(pending(&mut lookups, 1, "a"), ticket);
        assert_eq!((lookups.strangers.outstanding, lookups.others.outstanding), (0, 1));
        assert_eq!(asked(&mut lookups), usize::from(!is_asked), "it is asked once");
        assert_eq!((lookups.strangers.asked, lookups.others.asked), (0, 1));
        lookups.on_answer(at(2), ticket.0, &value("v"));
        assert_eq!((lookups.others.outstanding, lookups.others.asked), (0, 0));
    }
}

#[test]
fn nothing_is_asked_for_a_request_that_cannot_wait() {
    let mut lookups = lookups();
    let hurried = LookupRequester { may_wait: false, ..STRANGER };
    assert_eq!(find_as(&mut lookups, hurried, 0, "a"), LookupOutcome::Rejected);
    assert_eq!((asked(&mut lookups), lookups.counters.rejected.get()), (0, 1));
    let ticket = pending(&mut lookups, 0, "a");
    assert_eq!(find_as(&mut lookups, hurried, 0, "a"), LookupOutcome::Pending(ticket));
    lookups.on_answer(at(1), ticket.0, &value("v"));
    assert_eq!(find_as(&mut lookups, hurried, 1, "a"), LookupOutcome::Found(key("v")));
}
