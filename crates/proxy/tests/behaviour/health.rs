//! The health of back ends as a proxy learns it: probes, pauses, drains and backup pools.

use std::sync::Arc;
use std::time::Duration;

use crate::limited::ms;
use crate::script::{
    BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, Sent, address, invite, request,
};
use tidegate_balance::{AdminState, Policy, Pool, State};
use tidegate_proxy::{Accept, Health, Mode, PoolSettings, Probe};
use tidegate_world::Timestamp;

/// Returns a probe every second, with a timeout of half a second and no jitter.
fn probe() -> Probe {
    Probe { interval: ms(1000), timeout: ms(500), jitter: 0.0, ..Probe::default() }
}

fn probing(probe: Probe) -> Script {
    let mut s = Script::with(Policy::Rr, |settings| {
        settings.pools[0].health = Health { probe: Some(probe), ..Health::default() };
    });
    // Probing starts at once.
    s.now = Timestamp::ZERO;
    s
}

/// A proxy without a name does not send one in probes either.
#[test]
fn a_proxy_without_a_name_sends_no_user_agent_in_probes() {
    for (name, expected) in [("edge", &["edge"][..]), ("", &[])] {
        let mut s = Script::with(Policy::Rr, |settings| {
            settings.name = name.to_owned();
            settings.pools[0].health = Health { probe: Some(probe()), ..Health::default() };
        });
        let probes = pass(&mut s, ms(2000), |_| Some("200 OK"));
        assert_eq!(probes[0].all("User-Agent"), expected);
        assert!(probes[0].text.ends_with("\r\nContent-Length: 0\r\n\r\n"));
    }
}

/// Passes time in small steps and lets each back end answer its probes with `answer`. Returns the
/// probes sent.
fn pass(s: &mut Script, by: Duration, answer: impl Fn(&str) -> Option<&'static str>) -> Vec<Sent> {
    let end = s.now + by;
    let mut probes = Vec::new();
    while s.now < end {
        s.pass(ms(10));
        for sent in s.sent() {
            assert!(sent.start().starts_with("OPTIONS "), "{}", sent.text);
            if let Some(status) = answer(&sent.to.to_string()) {
                assert!(s.send(&sent.to.to_string(), &sent.answer(status)).is_empty());
            }
            probes.push(sent);
        }
    }
    probes
}

fn state(s: &Script, backend: usize) -> State {
    s.backends.backends()[backend].state(s.now).0
}

#[test]
fn each_back_end_is_probed_in_its_interval_and_its_answer_ends_the_probe() {
    let mut s = probing(probe());
    let probes = pass(&mut s, ms(10_000), |_| Some("200 OK"));
    for (backend, at) in s.backends.backends().iter().zip([BACKEND_A, BACKEND_B]) {
        let asked = probes.iter().filter(|probe| probe.to == address(at)).count();
        assert!((9..=11).contains(&asked), "{asked} probes of {at}");
        assert_eq!(backend.probes(), (asked as u64, 0));
    }
    let first = &probes[0];
    assert_eq!(first.start(), format!("OPTIONS sip:{} SIP/2.0", first.to));
    assert_eq!(first.header("Max-Forwards"), "70");
    assert_eq!(first.header("To"), format!("<sip:{}>", first.to));
    assert!(first.header("From").starts_with("<sip:tidegate@192.0.2.1:5060>;tag="));
    assert_eq!(first.header("CSeq"), "1 OPTIONS");
    assert_eq!(first.from, address(crate::script::PROXY));
    let mut ids: Vec<_> = probes.iter().map(|probe| probe.header("Call-ID")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), probes.len(), "each has a Call-ID of its own");
}

// RFC 3261 §17.1.2.2: Timer E.
#[test]
fn a_probe_is_repeated_until_its_time_is_over() {
    let mut s = probing(Probe { timeout: ms(2000), interval: ms(60_000), ..probe() });
    let probes = pass(&mut s, ms(60_000), |_| None);
    let to_a: Vec<_> = probes.iter().filter(|probe| probe.to == address(BACKEND_A)).collect();
    assert_eq!(to_a.len(), 3, "at 0, 500 and 1500 ms");
    assert!(to_a.iter().all(|probe| probe.text == to_a[0].text));
    assert_eq!(s.backends.backends()[0].probes(), (1, 1));
}

// RFC 7339 §5.9: "The SIP client SHOULD periodically probe if the downstream server is alive using
// any mechanism at its disposal." "Once a SIP client has successfully received a normal response
// for a request sent to the downstream server, the SIP client can resume sending SIP requests."
#[test]
fn fall_unanswered_probes_take_it_down_and_rise_answered_ones_bring_it_back() {
    let mut s = probing(probe());
    let only_b = |at: &str| (at != BACKEND_A).then_some("200 OK");
    // The third probe is sent after at most 3 s, and times out half a second later.
    pass(&mut s, ms(1600), only_b);
    assert!(matches!(state(&s, 0), State::Suspect | State::Up), "{:?}", state(&s, 0));
    pass(&mut s, ms(2000), only_b);
    assert_eq!((state(&s, 0), state(&s, 1)), (State::Down, State::Up));
    // Neither time nor responses to other requests bring the back end up again.
    pass(&mut s, ms(60_000), only_b);
    assert_eq!(state(&s, 0), State::Down);
    for call in ["1", "2", "3"] {
        assert_eq!(s.one(CALLER, &invite(call)).to, address(BACKEND_B));
    }
    pass(&mut s, ms(900), |_| Some("404 Not Found"));
    assert_eq!(state(&s, 0), State::Down, "one is not two");
    pass(&mut s, ms(1200), |_| Some("404 Not Found"));
    assert_eq!(state(&s, 0), State::Up);
    assert_eq!(s.backends.backends()[0].transitions(), (1, 1));
}

#[test]
fn accepted_probe_answers_are_as_configured() {
    let failed = |accept: Accept, status| {
        let mut s = probing(Probe { accept, ..probe() });
        pass(&mut s, ms(3000), |_| Some(status));
        s.backends.backends().iter().map(|backend| backend.probes().1).sum::<u64>() > 0
    };
    let fails = |accept: &Accept| {
        ["200 OK", "404 Not Found", "503 Busy"].map(|status| failed(accept.clone(), status))
    };
    assert_eq!(fails(&Accept::Any), [false, false, true]);
    assert_eq!(fails(&Accept::Only(vec![200, 503])), [false, true, false]);
}

/// The back end becomes suspect while a regular probe is pending.
#[test]
fn a_pending_probe_that_also_answers_a_suspicion_is_judged_by_its_status() {
    for (status, failed) in [("200 OK", 0), ("503 Busy", 1)] {
        let mut s = probing(Probe { interval: ms(60_000), fall: 1, ..probe() });
        let mut probe = None;
        while probe.is_none() {
            s.pass(ms(10));
            probe = s.sent().into_iter().find(|sent| sent.to == address(BACKEND_A));
        }
        s.rejected_quoting(BACKEND_A, b"");
        s.send(BACKEND_A, &probe.unwrap().answer(status));
        assert_eq!(s.backends.backends()[0].probes(), (1, failed), "{status}");
        assert_eq!(state(&s, 0), if failed > 0 { State::Down } else { State::Up });
    }
}

#[test]
fn a_server_of_several_pools_starts_slowly_as_its_first_pool_says() {
    for slow_starts in [[0, 10_000], [10_000, 0]] {
        let mut s = Script::with(Policy::Rr, |settings| {
            let backends = settings.pools[0].pool.backends().to_vec();
            let settings_of = |slow_start| PoolSettings {
                health: Health { slow_start: ms(slow_start), ..Health::default() },
                ..PoolSettings::new(Pool::of("app", backends.clone()), Policy::Rr)
            };
            settings.pools = slow_starts.map(settings_of).to_vec();
        });
        s.gone(0);
        s.pass(ms(5_001));
        let is_slow = s.backends.backends()[0].effective_weight(s.now) < 1000;
        assert_eq!(is_slow, slow_starts[0] > 0, "{slow_starts:?}");
    }
}

#[test]
fn a_provisional_answer_ends_nothing() {
    let mut s = probing(Probe { fall: 1, ..probe() });
    pass(&mut s, ms(2600), |_| Some("100 Trying"));
    assert_eq!((state(&s, 0), state(&s, 1)), (State::Down, State::Down));
}

#[test]
fn a_response_from_elsewhere_or_with_a_forged_branch_answers_no_probe() {
    let mut s = probing(Probe { fall: 1, timeout: ms(400), ..probe() });
    let end = s.now + ms(2000);
    while s.now < end {
        s.pass(ms(10));
        for sent in s.sent() {
            // The first response comes from an address that was not probed. The second has a
            // branch that the proxy did not make.
            s.send(CALLER, &sent.answer("200 OK"));
            let forged = sent.answer("200 OK").replace("z9hG4bKM", "z9hG4bKN");
            s.send(&sent.to.to_string(), &forged);
        }
    }
    assert_eq!((state(&s, 0), state(&s, 1)), (State::Down, State::Down));
}

#[test]
fn a_report_of_the_transport_takes_it_down_at_once_and_probes_bring_it_back() {
    let mut s = probing(probe());
    s.rejected(BACKEND_A);
    assert_eq!(state(&s, 0), State::Down);
    pass(&mut s, ms(900), |_| Some("200 OK"));
    assert_eq!(state(&s, 0), State::Down);
    pass(&mut s, ms(1300), |_| Some("200 OK"));
    assert_eq!(state(&s, 0), State::Up);
}

#[test]
fn a_probed_back_end_does_not_come_back_by_itself() {
    let mut s = probing(Probe { interval: ms(60_000), ..probe() });
    while s.backends.backends()[0].probes() == (0, 0) {
        pass(&mut s, ms(10), |_| Some("200 OK"));
    }
    // The next probe is sent after one minute. Without probes, the pause is five seconds.
    s.rejected(BACKEND_A);
    s.pass(ms(6_000));
    assert_eq!(state(&s, 0), State::Down);
}

#[test]
fn in_maintenance_no_probe_is_sent_and_afterwards_all_is_forgotten() {
    let mut s = probing(Probe { fall: 1, ..probe() });
    let a = Arc::clone(&s.backends.backends()[0]);
    pass(&mut s, ms(2000), |at| (at != BACKEND_A).then_some("200 OK"));
    assert_eq!(state(&s, 0), State::Down);
    a.set_admin_state(s.now, AdminState::Maintenance);
    pass(&mut s, ms(600), |_| None);
    let (to_a, before) = (address(BACKEND_A), a.probes());
    let probes = pass(&mut s, ms(3000), |at| (at != BACKEND_A).then_some("200 OK"));
    assert!(probes.iter().all(|probe| probe.to != to_a));
    assert_eq!(a.probes(), before);
    a.set_admin_state(s.now, AdminState::InService);
    assert_eq!(state(&s, 0), State::Up);
    let probes = pass(&mut s, ms(2000), |_| Some("200 OK"));
    assert!(probes.iter().any(|probe| probe.to == to_a), "it is asked again");
}

#[test]
fn of_several_shards_one_probes() {
    let asked = |shard| {
        let mut s = Script::with(Policy::Rr, |settings| {
            let backends = [BACKEND_A, BACKEND_B, BACKEND_C].map(|at| (at, address(at), 1));
            settings.pools = vec![PoolSettings {
                health: Health { probe: Some(probe()), ..Health::default() },
                ..PoolSettings::new(Pool::new("app", &backends), Policy::Rr)
            }];
            (settings.shard, settings.shards) = (shard, 4);
        });
        s.now = Timestamp::ZERO;
        let probes = pass(&mut s, ms(1000), |_| Some("200 OK"));
        let mut asked: Vec<_> = probes.iter().map(|probe| probe.to).collect();
        asked.sort_unstable();
        asked.dedup();
        // A response that arrives at another shard is handed off.
        let probe = probes.first().map(|probe| (probe.to.to_string(), probe.answer("200 OK")));
        (asked, probe)
    };
    let shards: Vec<_> = (0..4).map(asked).collect();
    let mut all: Vec<_> = shards.iter().flat_map(|(asked, _)| asked.clone()).collect();
    all.sort_unstable();
    assert_eq!(all, [BACKEND_A, BACKEND_B, BACKEND_C].map(address));
    let requester = shards.iter().position(|(asked, _)| !asked.is_empty()).unwrap();
    let (from, answer) = shards[requester].1.clone().unwrap();
    let mut other = Script::with(Policy::Rr, |settings| {
        (settings.shard, settings.shards) = ((requester as u16 + 1) % 4, 4);
    });
    assert!(other.send(&from, &answer).is_empty());
    assert_eq!(other.handoff(), Some(requester as u16));
}

/// Makes calls to different numbers, which the first back end rejects with `answer` and the other
/// with 486, until new calls avoid the first one, or for three seconds.
fn rejected_by_first(s: &mut Script, answer: &str) {
    for number in 0..60 {
        if state(s, 0) == State::Busy {
            return;
        }
        let invite =
            request("INVITE", &format!("sip:{number}@192.0.2.1"), &number.to_string(), 1, "");
        let is_invite = |sent: &Sent| sent.start().starts_with("INVITE");
        let mut next = s.send(CALLER, &invite).into_iter().find(is_invite);
        while let Some(there) = next {
            let answer = if there.to == address(BACKEND_A) { answer } else { "486 Busy Here" };
            next = s.send(&there.to.to_string(), &there.answer(answer)).into_iter().find(is_invite);
        }
        s.rest(ms(50));
    }
}

// RFC 3261 §21.5.4.
#[test]
fn a_retry_after_keeps_new_calls_away_for_that_long() {
    let with = |retry_after: &str, max| {
        let mut s = Script::with(Policy::Rr, |settings| {
            settings.pools[0].mode = Mode::Transaction;
            settings.pools[0].health.retry_after_max = Some(max);
        });
        rejected_by_first(&mut s, &format!("503 Busy\r\nRetry-After: {retry_after}"));
        let mut busy_s = 0;
        while state(&s, 0) == State::Busy {
            let sent = s.send(CALLER, &invite(&format!("c{busy_s}")));
            assert!(sent.iter().all(|sent| sent.to != address(BACKEND_A)));
            s.rest(ms(1000));
            busy_s += 1;
            // The back end that gets all calls is up and responds.
            s.backends.backends()[1].on_answered(s.now);
        }
        busy_s
    };
    let minute = Duration::from_secs(60);
    assert_eq!(with("7 (lunch);duration=3600", minute), 7);
    assert_eq!(with("86400", minute), 60, "no longer than is configured");
    assert_eq!(with("7", Duration::ZERO), 0);
    assert_eq!(with("soon", minute), 0);
}

#[test]
fn as_many_requests_as_configured_may_stay_unanswered() {
    for error_limit in [1, 3] {
        let mut s = Script::with(Policy::Rr, |settings| {
            settings.pools = vec![PoolSettings {
                health: Health { error_limit, ..Health::default() },
                ..PoolSettings::new(Pool::new("app", &[("a", address(BACKEND_A), 1)]), Policy::Rr)
            }];
        });
        for silent in 1..=error_limit {
            assert_eq!(state(&s, 0), if silent == 1 { State::Up } else { State::Suspect });
            assert!(s.questions.is_empty());
            s.send(CALLER, &invite(&format!("c{silent}")));
            s.pass(ms(4000));
        }
        s.sent();
        assert_eq!((state(&s, 0), s.questions.len()), (State::Suspect, 1), "{error_limit}");
        s.pass(ms(1000));
        // The only back end is used nevertheless.
        assert_eq!(state(&s, 0), State::Spared, "{error_limit}");
    }
}

#[test]
fn a_drained_back_end_finishes_its_calls_and_gets_no_new_ones() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        let sent = s.send(CALLER, &invite("held"));
        let held = sent.iter().find(|sent| sent.start().starts_with("INVITE")).unwrap().clone();
        assert_eq!(held.to, address(BACKEND_A));
        s.backends.backends()[0].set_admin_state(s.now, AdminState::Draining);
        // The INVITE is retransmitted because the response is late. It stays at the first back end.
        s.pass(ms(100));
        let again = s.send(CALLER, &invite("held"));
        assert!(again.iter().all(|sent| sent.to != address(BACKEND_B)), "{mode:?}");
        s.send(BACKEND_A, &held.answer("200 OK"));
        let ack = s.one(CALLER, &request("ACK", "sip:bob@192.0.2.1", "held", 1, "Totag\r\n"));
        assert_eq!(ack.to, address(BACKEND_A));
        assert_eq!(s.held(), [1, 0]);
        for call in ["1", "2", "3"] {
            let sent = s.send(CALLER, &invite(call));
            assert!(sent.iter().all(|sent| sent.to != address(BACKEND_A)), "{mode:?}");
        }
        let bye = s.one(CALLER, &request("BYE", "sip:bob@192.0.2.1", "held", 2, "Totag\r\n"));
        assert_eq!(bye.to, address(BACKEND_A));
        s.send(BACKEND_A, &bye.answer("200 OK"));
        assert_eq!(s.held()[0], 0, "{mode:?}");
    }
}

/// Makes a proxy with two pools. The second, with one back end, is the backup of the first.
fn with_backup(mode: Mode) -> Script {
    Script::with(Policy::Rr, |settings| {
        let first = PoolSettings { backup: Some(1), mode, ..settings.pools[0].clone() };
        let backup = Pool::new("backup", &[("c", address(BACKEND_C), 1)]);
        settings.pools =
            vec![first, PoolSettings { mode, ..PoolSettings::new(backup, Policy::Rr) }];
    })
}

#[test]
fn the_backup_pool_serves_while_no_back_end_of_the_first_is_up() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut s = with_backup(mode);
        let mut goes_to = |call: &str, down: &[&str]| {
            down.iter().for_each(|at| assert!(s.rejected(at), "{at}"));
            let sent = s.send(CALLER, &invite(call));
            sent.iter().find(|sent| sent.start().starts_with("INVITE")).unwrap().to.to_string()
        };
        assert_eq!(goes_to("1", &[]), BACKEND_A);
        assert_eq!(goes_to("2", &[BACKEND_A]), BACKEND_B);
        assert_eq!(goes_to("3", &[BACKEND_B]), BACKEND_C);
        s.rest(ms(5000));
        let sent = s.send(CALLER, &invite("4"));
        assert!(sent.iter().all(|sent| sent.to != address(BACKEND_C)), "they are back");
    }
}

#[test]
fn a_call_that_all_of_a_pool_reject_goes_to_the_backup_pool() {
    let mut s = with_backup(Mode::Transaction);
    let sent = s.send(CALLER, &invite("c"));
    let mut last = sent.into_iter().find(|sent| sent.start().starts_with("INVITE")).unwrap();
    let mut had = vec![last.to];
    while had.len() < 3 {
        let sent = s.send(&last.to.to_string(), &last.answer("503 Busy"));
        last = sent.into_iter().find(|sent| sent.start().starts_with("INVITE")).unwrap();
        had.push(last.to);
    }
    assert_eq!(had, [BACKEND_A, BACKEND_B, BACKEND_C].map(address));
    s.send(BACKEND_C, &last.answer("200 OK"));
    assert_eq!(s.held(), [0, 0], "it counts where it is");
}

// RFC 3261 §8.2.2.2: a server rejects the same request with 482 if it arrives twice in different
// transactions.
#[test]
fn a_silent_back_end_does_not_get_the_call_again_through_the_backup_pool() {
    let mut s = Script::with(Policy::Rr, |settings| {
        let a = Arc::clone(&settings.pools[0].pool.backends()[0]);
        let c = Pool::new("c", &[("c", address(BACKEND_C), 1)]);
        let backup = Pool::of("backup", vec![Arc::clone(&a), Arc::clone(&c.backends()[0])]);
        let with = |pool, backup| PoolSettings {
            backup,
            failover_after: ms(1000),
            ..PoolSettings::new(pool, Policy::Rr)
        };
        settings.pools = vec![with(Pool::of("app", vec![a]), Some(1)), with(backup, None)];
    });
    for call in ["1", "2"] {
        let sent = s.send(CALLER, &invite(call));
        assert!(sent.iter().any(|sent| sent.to == address(BACKEND_A)));
    }
    s.pass(ms(1000));
    let sent = s.sent();
    let invites_to_c =
        sent.iter().filter(|s| s.to == address(BACKEND_C) && s.start().starts_with("INVITE"));
    assert_eq!(invites_to_c.count(), 2, "{sent:#?}");
}

#[test]
fn a_backup_pool_selects_by_its_own_key() {
    let mut s = Script::with(Policy::Hash, |settings| {
        let mode = Mode::Transaction;
        let first = PoolSettings { backup: Some(1), mode, ..settings.pools[0].clone() };
        let backends = [("c", address(BACKEND_C), 1), ("d", address("10.0.0.4:5070"), 1)];
        let backup = PoolSettings::new(Pool::new("backup", &backends), Policy::HashTo);
        settings.pools = vec![first, backup];
    });
    // The first pool selects by Call-ID. All these calls are for one callee.
    let mut place = |call: &str| {
        let mut sent = s.send(CALLER, &invite(call));
        loop {
            let last = sent.into_iter().find(|sent| sent.start().starts_with("INVITE")).unwrap();
            if [BACKEND_A, BACKEND_B].map(address).contains(&last.to) {
                sent = s.send(&last.to.to_string(), &last.answer("503 Busy"));
            } else {
                s.send(&last.to.to_string(), &last.answer("486 Busy Here"));
                return last.to;
            }
        }
    };
    let first = place("0");
    assert!((1..16).all(|call| place(&call.to_string()) == first));
}

#[test]
fn a_repeated_invite_finds_the_backup_pool() {
    let mut s = with_backup(Mode::Stateless);
    assert_eq!(s.one(CALLER, &invite("c")).to, address(BACKEND_A));
    s.rejected(BACKEND_A);
    s.rejected(BACKEND_B);
    assert_eq!(s.one(CALLER, &invite("c")).to, address(BACKEND_C));
}
