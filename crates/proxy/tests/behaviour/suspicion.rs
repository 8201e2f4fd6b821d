//! A stranger can cause silence or an ICMP error. So neither marks a back end as down: an immediate
//! probe decides. Proof that a datagram of ours was refused marks the back end as down at once.

use std::time::Duration;

use crate::limited::ms;
use crate::script::*;
use tidegate_balance::{Backend, Policy, Pool, State};
use tidegate_proxy::{Health, Mode, Obedience, PoolSettings, Probe, Rule, RuleTarget, Senders};

/// Makes a proxy with transactions and failover after one second.
fn impatient() -> Script {
    Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.pools[0].failover_after = ms(1000);
    })
}

fn state(s: &Script, backend: usize) -> State {
    s.backends.backends()[backend].state(s.now).0
}

fn falls(s: &Script) -> u64 {
    s.backends.backends().iter().map(|b: &std::sync::Arc<Backend>| b.transitions().0).sum()
}

/// Passes time, and answers the probes that are sent ahead of schedule with this status. Returns
/// the number of these probes.
fn alive(s: &mut Script, by: Duration, status: &str) -> usize {
    let end = s.now + by;
    let mut asked = 0;
    while s.now < end {
        s.rest(ms(5));
        for question in std::mem::take(&mut s.questions) {
            asked += 1;
            assert!(s.send(&question.to.to_string(), &question.answer(status)).is_empty());
        }
    }
    asked
}

// A server may drop a request silently, as Kamailio does with a To that it cannot parse.
#[test]
fn requests_that_nobody_answers_take_no_back_end_down_that_answers_probes() {
    for status in ["200 OK", "404 Not Found", "503 Service Unavailable"] {
        let mut s = impatient();
        for call in 0..20 {
            s.send(CALLER, &invite(&format!("death-{call}")));
            assert!(alive(&mut s, ms(1500), status) > 0);
            assert_eq!((state(&s, 0), state(&s, 1)), (State::Up, State::Up), "{status}");
        }
        assert_eq!(falls(&s), 0);
    }
}

// RFC 7339 §5.9: "In the event of repeated timeouts or fatal transport errors, the SIP client MUST
// stop sending requests to this server."
#[test]
fn a_dead_back_end_is_down_a_second_after_the_first_silence() {
    let mut s = impatient();
    s.send(CALLER, &invite("first"));
    s.pass(ms(1000));
    assert_eq!(state(&s, 0), State::Suspect);
    let second = s.sent().pop().unwrap();
    assert_eq!(second.to, address(BACKEND_B), "the call does not wait for the probe");
    s.send(BACKEND_B, &second.answer("200 OK"));
    s.rest(ms(999));
    // RFC 3261 §17.1.2.2: Timer E.
    assert_eq!(s.questions.len(), 2, "{:#?}", s.questions);
    assert!(s.questions.iter().all(|q| q.to == address(BACKEND_A) && *q == s.questions[0]));
    assert_eq!(state(&s, 0), State::Suspect);
    s.pass(ms(1));
    assert_eq!((state(&s, 0), state(&s, 1)), (State::Down, State::Up));
    assert_eq!(s.backends.backends()[0].probes(), (1, 1));
    // Without regular probes, the back end is up again after a pause, but suspect.
    s.pass(ms(5000));
    assert_eq!(state(&s, 0), State::Suspect);
    assert!(s.backends.backends()[0].is_up(s.now));
}

/// RFC 7339 §11: "If the attacker can make the recipient believe that the overload status was
/// created by its direct downstream neighbor (and not by the attacker further downstream), the
/// recipient stops sending traffic to the victim." In a pool without regular probes, nothing would
/// renew the proof that the response to such a probe gives.
#[test]
fn a_probe_in_a_pool_without_probes_does_not_offer_overload_control() {
    for (obedience, offers) in [(Obedience::Proven, false), (Obedience::Always, true)] {
        let mut s = Script::with(Policy::Rr, |settings| {
            let pool = &mut settings.pools[0];
            (pool.mode, pool.obedience) = (Mode::Transaction, obedience);
            pool.failover_after = ms(1000);
        });
        s.send(CALLER, &invite("first"));
        s.rest(ms(1100));
        let question = s.questions.first().expect("the suspect back end is probed");
        assert_eq!(question.text.contains(";oc;oc-algo="), offers, "{}", question.text);
    }
}

/// A back end of several pools has one health, whichever of the pools a request selects.
#[test]
fn a_dead_back_end_of_several_pools_is_down_a_second_after_the_first_silence() {
    for pool in [0, 1] {
        let mut s = Script::with(Policy::Rr, |settings| {
            let backends = settings.pools[0].pool.backends().to_vec();
            let settings_of = |name| PoolSettings {
                failover_after: ms(1000),
                ..PoolSettings::new(Pool::of(name, backends.clone()), Policy::Rr)
            };
            settings.pools = ["register", "calls"].map(settings_of).to_vec();
            let to = RuleTarget::Pool(pool);
            settings.rules = vec![Rule::new(Senders::Any, to)];
        });
        s.send(CALLER, &invite("first"));
        s.pass(ms(1000));
        assert_eq!(state(&s, 0), State::Suspect);
        let second = s.sent().pop().unwrap();
        s.send(BACKEND_B, &second.answer("200 OK"));
        s.rest(ms(1000));
        assert!(s.questions.iter().all(|question| question.to == address(BACKEND_A)));
        assert_eq!(s.questions.len(), 2, "pool {pool}: {:#?}", s.questions);
        assert_eq!(state(&s, 0), State::Down, "pool {pool}");
    }
}

/// Requests never exclude the only back end of a pool, even if another pool with more back ends
/// shares it.
#[test]
fn the_only_back_end_of_a_pool_is_spared_although_another_pool_has_more() {
    for names in [["calls", "register"], ["register", "calls"]] {
        let mut s = Script::with(Policy::Rr, |settings| {
            let backends = settings.pools[0].pool.backends().to_vec();
            let settings_of = |name: &'static str| {
                let count = if name == "calls" { 1 } else { 2 };
                PoolSettings::new(Pool::of(name, backends[..count].to_vec()), Policy::Rr)
            };
            settings.pools = names.map(settings_of).to_vec();
            let to = RuleTarget::Pool(usize::from(names[1] == "calls"));
            settings.rules = vec![Rule::new(Senders::Any, to)];
        });
        let sent = s.send(CALLER, &invite("first"));
        let out = sent.iter().find(|sent| sent.to == address(BACKEND_A)).unwrap();
        s.rejected_quoting(BACKEND_A, out.text.as_bytes());
        assert_eq!(state(&s, 0), State::Spared, "{names:?}");
        let sent = s.send(CALLER, &invite("second"));
        let is_second =
            |sent: &Sent| sent.to == address(BACKEND_A) && sent.header("Call-ID") == "second";
        assert!(sent.iter().any(is_second), "{names:?}: {sent:#?}");
    }
}

#[test]
fn an_answer_in_the_meantime_clears_it() {
    let mut s = impatient();
    s.send(CALLER, &invite("silent"));
    s.pass(ms(1000));
    let held = s.sent().pop().unwrap();
    s.send(BACKEND_B, &held.answer("200 OK"));
    assert_eq!(state(&s, 0), State::Suspect);
    s.pass(ms(1));
    let mut to_a = None;
    for call in 0..2 {
        let sent = s.send(CALLER, &invite(&format!("other-{call}")));
        to_a = to_a.or(sent.into_iter().find(|sent| sent.to == address(BACKEND_A)));
    }
    s.send(BACKEND_A, &to_a.unwrap().answer("180 Ringing"));
    assert_eq!(state(&s, 0), State::Up);
    s.pass(ms(999));
    assert_eq!(s.backends.backends()[0].transitions().0, 0, "the probe was not answered");
}

#[test]
fn in_a_pool_that_is_probed_the_probes_bring_it_back() {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].mode = Mode::Transaction;
        settings.pools[0].failover_after = ms(1000);
        let probe = Probe { interval: ms(60_000), jitter: 0.0, ..Probe::default() };
        settings.pools[0].health = Health { probe: Some(probe), ..Health::default() };
    });
    s.send(CALLER, &invite("silent"));
    let silent = s.send(CALLER, &invite("silent")).pop();
    assert!(silent.is_none_or(|sent| !is_probe(&sent)));
    s.pass(ms(1999));
    assert_eq!(state(&s, 0), State::Suspect);
    s.pass(ms(1));
    assert_eq!(state(&s, 0), State::Down);
    s.pass(ms(20_000));
    assert_eq!(state(&s, 0), State::Down, "no pause brings it back");
}

/// Returns forged quotes. The forger knows addresses and ports, but not the packets that were sent.
fn forged() -> Vec<String> {
    let made_up = "Via: SIP/2.0/UDP 192.0.2.1:5060;rport;branch=z9hG4bK";
    vec![
        String::new(),
        "no SIP".to_owned(),
        invite("x"),
        invite("x").replacen("Via: ", &format!("{made_up}{}\r\nVia: ", "A".repeat(32)), 1),
        invite("x").replacen("Via: ", &format!("{made_up}{}\r\nVia: ", "A".repeat(28)), 1),
    ]
}

#[test]
fn a_forged_icmp_takes_no_back_end_down() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        // After a response to a datagram, a quote of this datagram is no longer proof.
        let sent = s.send(CALLER, &invite("own"));
        let own = sent.into_iter().find(|sent| sent.to == address(BACKEND_A)).unwrap();
        s.send(BACKEND_A, &own.answer("100 Trying"));
        let mut asked = 0;
        for quote in forged().into_iter().chain([own.text]) {
            for _ in 0..100 {
                s.rejected_quoting(BACKEND_A, quote.as_bytes());
                assert_ne!(state(&s, 0), State::Down, "{quote}");
            }
            asked += alive(&mut s, ms(1000), "200 OK");
            assert_eq!(state(&s, 0), State::Up, "{quote}");
        }
        assert_eq!(falls(&s), 0);
        // Probes are sent at once, and again for reports that arrive after the response.
        assert!((6..=12).contains(&asked), "{asked} probes for 600 reports");
    }
}

#[test]
fn a_flood_of_forged_icmp_brings_about_four_probes_a_second() {
    let mut s = Script::new();
    let mut asked = 0;
    for _ in 0..10_000 {
        s.rejected_quoting(BACKEND_A, b"");
        s.rejected_quoting("203.0.113.7:5060", b"");
        asked += alive(&mut s, ms(1), "200 OK");
    }
    // 10,000 steps of 5 ms.
    assert!((190..=201).contains(&asked), "{asked}");
    assert_eq!(falls(&s), 0);
    assert_eq!(s.counters.questions.get(), asked as u64);
}

#[test]
fn a_request_that_is_quoted_whole_or_in_part_proves_it_at_once() {
    for length in [140, 300, usize::MAX] {
        let mut s = impatient();
        let sent = s.send(CALLER, &invite("a"));
        let out = sent.iter().find(|sent| sent.to == address(BACKEND_A)).unwrap();
        // The quote proves nothing about another back end.
        s.rejected_quoting(BACKEND_B, out.text.as_bytes());
        assert_eq!(state(&s, 1), State::Up);
        s.rejected_quoting(BACKEND_A, &out.text.as_bytes()[..length.min(out.text.len())]);
        assert_eq!(state(&s, 0), State::Down, "{length}");
        s.pass(ms(500));
        let second = s.sent();
        assert!(second.iter().any(|sent| sent.to == address(BACKEND_B)), "{second:#?}");
    }
}

// If the back end has forwarded the request without a 100, an element behind it could forge the
// proof, because it can read our Via.
#[test]
fn an_answered_probe_outweighs_the_proof() {
    let mut s = impatient();
    let sent = s.send(CALLER, &invite("a"));
    let out = sent.iter().find(|sent| sent.to == address(BACKEND_A)).unwrap();
    s.rejected_quoting(BACKEND_A, out.text.as_bytes());
    assert_eq!(state(&s, 0), State::Down);
    assert_eq!(alive(&mut s, ms(10), "200 OK"), 1);
    assert_eq!(state(&s, 0), State::Up);
}

#[test]
fn a_probe_that_is_quoted_proves_it_in_stateless_mode_too() {
    let mut s = Script::new();
    s.one(CALLER, &invite("a"));
    s.rejected_quoting(BACKEND_A, b"");
    s.sent();
    let probe = s.questions.pop().unwrap();
    assert_eq!((state(&s, 0), probe.to), (State::Up, address(BACKEND_A)));
    s.rejected_quoting(BACKEND_B, probe.text.as_bytes());
    assert_eq!(state(&s, 1), State::Up, "it was not sent there");
    s.rejected_quoting(BACKEND_A, probe.text.as_bytes());
    assert_eq!(state(&s, 0), State::Down);
}

// RFC 3261 §16.9. If the target is not a back end, only the quoted request has failed.
#[test]
fn an_icmp_of_a_phone_concerns_the_request_that_it_quotes() {
    let mut s = Script::stateful();
    let out = |s: &mut Script, call: &str| {
        let sent = s.send(BACKEND_A, &request("INVITE", &format!("sip:b@{CALLER}"), call, 1, ""));
        sent.into_iter().find(|sent| sent.to == address(CALLER)).unwrap_or_else(|| panic!("{call}"))
    };
    let first = out(&mut s, "out-1");
    out(&mut s, "out-2");
    s.rejected_quoting(CALLER, b"");
    s.rejected_quoting(CALLER, first.text.as_bytes());
    s.pass(ms(500));
    let sent = s.sent();
    let failed: Vec<_> = sent.iter().filter(|sent| sent.start().contains(" 500 ")).collect();
    assert_eq!(failed.len(), 1, "{sent:#?}");
    assert_eq!(failed[0].header("Call-ID"), "out-1");
}
