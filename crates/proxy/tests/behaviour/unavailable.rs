//! Tests of requests without an available back end: the rejection and the counters.

use crate::limited::ms;
use crate::script::{BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, address, invite, request};
use tidegate_balance::{AdminState, Parties, Policy, Pool, State};
use tidegate_control::Reason;
use tidegate_proxy::{
    Health, Mode, PoolSettings, Probe, ReplyReason, Rule, RuleTarget, Senders, Settings,
};

fn script(adjust: impl FnOnce(&mut Settings)) -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        adjust(settings);
    })
}

fn rejected(s: &Script) -> u64 {
    s.counters.rejected(Reason::PoolDown).get()
}

/// Returns the Warning and the Retry-After that a new caller gets.
fn told(s: &mut Script, call: &str) -> (String, Vec<String>) {
    let sent = s.send(CALLER, &invite(call));
    let rejection = sent.iter().find(|sent| sent.start().contains(" 503 ")).expect("a rejection");
    let wait = rejection.all("Retry-After").into_iter().map(str::to_owned).collect();
    (rejection.header("Warning").to_owned(), wait)
}

fn warned(why: &str, wait: &[&str]) -> (String, Vec<String>) {
    (format!("399 tidegate \"{why}\""), wait.iter().map(|s| (*s).to_owned()).collect())
}

fn give_admin_state(s: &Script, admin_state: AdminState) {
    s.backends.backends().iter().for_each(|backend| backend.set_admin_state(s.now, admin_state));
}

// RFC 3261 §20.33: "The Retry-After header field can be used with a 500 (Server Internal Error) or
// 503 (Service Unavailable) response to indicate how long the service is expected to be unavailable
// to the requesting client".
#[test]
fn while_all_back_ends_are_down_the_503_says_until_when() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = script(|settings| settings.pools[0].mode = mode);
        s.gone(0);
        s.pass(ms(1500));
        s.gone(1);
        assert_eq!(told(&mut s, "1"), warned("every back end is down", &["4"]), "{mode:?}");
        s.pass(ms(3000));
        assert_eq!(told(&mut s, "2"), warned("every back end is down", &["1"]));
        assert_eq!((rejected(&s), s.counters.replied(503).get()), (2, 2));
        let kept = s.counters.rejections.list();
        assert_eq!(
            kept.iter().map(|r| r.reason).collect::<Vec<_>>(),
            [ReplyReason::Work(Reason::PoolDown); 2]
        );
        assert_eq!((s.counters.calls.get(), s.live().0), (0, 0), "nothing is kept of it");
        // The first back end is up again.
        s.pass(ms(1000));
        assert_eq!(s.send(CALLER, &invite("3")).last().unwrap().to, address(BACKEND_A));
    }
}

// RFC 3261 §8.2.7: "A UAS cannot be stateless unless the request processing for that method would
// always result in the same response if the requests are identical."
#[test]
fn a_repetition_is_rejected_again_and_counted_as_a_repetition() {
    let mut s = script(|_| {});
    give_admin_state(&s, AdminState::Draining);
    assert_eq!(s.status(CALLER, &invite("1")), 503);
    give_admin_state(&s, AdminState::InService);
    assert_eq!(s.status(CALLER, &invite("1")), 503);
    assert_eq!((rejected(&s), s.counters.rejected(Reason::Again).get()), (1, 1));
}

#[test]
fn no_retry_after_is_sent_for_states_without_a_known_end() {
    let mut s = script(|settings| {
        let probe = Probe { interval: ms(60_000), jitter: 0.0, ..Probe::default() };
        settings.pools[0].health = Health { probe: Some(probe), ..Health::default() };
    });
    s.backends.backends().iter().for_each(|backend| backend.on_probe_failed(s.now, 1, None));
    assert_eq!(told(&mut s, "1"), warned("every back end is down", &[]));
    s.backends.backends()[0].set_admin_state(s.now, AdminState::Draining);
    assert_eq!(told(&mut s, "2"), warned("no back end may get new requests", &[]));
    give_admin_state(&s, AdminState::Maintenance);
    assert_eq!(told(&mut s, "3"), warned("every back end is out of service", &[]));
    assert_eq!(rejected(&s), 3);
}

/// A back end sends a request to its own pool. So the sender itself is excluded, and the only other
/// back end has sent Retry-After.
#[test]
fn the_warning_names_the_pause_of_the_only_other_back_end() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.rules.insert(0, Rule::new(Senders::Pool, RuleTarget::Pool(0)));
    });
    let other = std::sync::Arc::clone(&s.backends.backends()[1]);
    while other.state(s.now).0 != State::Busy {
        s.pass(ms(100));
        let (parties, sources) = (Parties::of(1, s.now.as_nanos() >> 20), s.backends.watch(s.now));
        other.on_rejected(s.now, Some(parties), sources, Some(ms(20_000)));
    }
    let sent = s.send(BACKEND_A, &invite("1"));
    let why = "399 tidegate \"every back end has asked for a pause\"";
    assert_eq!(sent[0].header("Warning"), why);
    assert_eq!(sent[0].all("Retry-After"), [""; 0], "the sender itself is up");
}

// RFC 3261 §21.5.4: "It SHOULD NOT forward any other requests to that server for the duration
// specified in the Retry-After header field, if present."
#[test]
fn no_retry_after_is_sent_while_another_pool_can_serve() {
    let other = Pool::new("other", &[("c", address(BACKEND_C), 1)]);
    let mut s = script(|settings| {
        settings.pools.push(PoolSettings::new(other.clone(), Policy::Rr));
        let to = |pool| Rule::new(Senders::Any, RuleTarget::Pool(pool));
        settings.rules = vec![Rule { domains: vec!["other.example".to_owned()], ..to(1) }, to(0)];
    });
    s.gone(0);
    s.gone(1);
    assert_eq!(told(&mut s, "1"), warned("every back end is down", &[]));
    let elsewhere = request("INVITE", "sip:bob@other.example", "2", 1, "");
    assert!(s.send(CALLER, &elsewhere).iter().any(|sent| sent.to == address(BACKEND_C)));
    other.backends()[0].on_question_unanswered(s.now, ms(5000), true);
    assert_eq!(told(&mut s, "3"), warned("every back end is down", &["5"]));
}

#[test]
fn a_fork_without_available_back_ends_is_no_exception() {
    let mut s = Script::forking(&[(BACKEND_A, 1000), (BACKEND_B, 500)]);
    s.gone(0);
    s.gone(1);
    assert_eq!(told(&mut s, "1"), warned("every back end is down", &["5"]));
    assert_eq!(rejected(&s), 1);
}
