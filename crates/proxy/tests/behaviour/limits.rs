//! Tests of back ends at their limits: which requests are rejected at which step, and that rejected
//! requests leave no state.

use crate::limited::*;
use crate::script::{
    BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, address, invite, request, starts, stateless,
};
use tidegate_balance::{Demand, Limits, Policy, Pool};
use tidegate_control::Reason;
use tidegate_proxy::{Disposal, Mode, Overload, PoolSettings, Rule, RuleTarget, Senders, Settings};
use tidegate_world::{Core, Load};

#[test]
fn a_full_pool_rejects_at_once_and_keeps_nothing_of_it() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = limited(mode, [calls(2), calls(1)]);
        for name in ["1", "2", "3"] {
            assert!(call(&mut s, name).is_some());
        }
        assert_eq!(s.held(), [2, 1]);
        let before = (s.counters.calls.get(), s.live());
        let sent = s.send(CALLER, &invite("4"));
        assert_eq!(starts(&sent), [(CALLER, "SIP/2.0 503 Service Unavailable")]);
        let warning = "399 tidegate \"every back end is at its limits\"";
        assert_eq!((sent[0].header("Warning"), sent[0].all("Retry-After").len()), (warning, 0));
        assert_eq!((s.counters.calls.get(), s.live()), before, "{mode:?}");
        assert_eq!((rejected(&s), s.held()), (1, vec![2, 1]));
        // A retransmission of the rejected INVITE gets the same response, even if a call has
        // ended meanwhile. Another call is admitted.
        end(&mut s, "1");
        assert_eq!(s.held(), [1, 1]);
        assert_eq!(s.status(CALLER, &invite("4")), 503);
        assert!(call(&mut s, "5").is_some());
        assert!(call(&mut s, "6").is_none());
        assert_eq!(s.held(), [2, 1]);
    }
}

/// Returns the calls per second that the back ends get from a flood and from another source. Each
/// of the two back ends accepts 75 calls per second.
fn beside_a_flood(fair: bool) -> [u64; 2] {
    let mut s = limited_with(Mode::Transaction, [rate(75.0), rate(75.0)], |settings| {
        settings.overload.gate.sources.fair = fair;
    });
    let mut taken = [0; 2];
    for ms_since in 0..5000 {
        let mut call = |from: &str, name: String, who: usize| {
            let Some(there) = s
                .send(from, &invite(&name))
                .into_iter()
                .find(|sent| sent.to == address(BACKEND_A) || sent.to == address(BACKEND_B))
            else {
                return;
            };
            taken[who] += u64::from(ms_since >= 1000);
            s.send(&there.to.to_string(), &there.answer("486 Busy Here"));
        };
        for copy in 0..2 {
            call("203.0.113.66:5060", format!("flood-{ms_since}-{copy}"), 0);
        }
        if ms_since % 20 == 0 {
            call("198.51.100.7:5060", format!("other-{ms_since}"), 1);
        }
        s.pass(ms(1));
    }
    taken.map(|count| count / 4)
}

/// The room of back ends at their limits is divided fairly: a source that sends less than its share
/// loses nothing to a source that floods, and no room is left unused.
#[test]
fn a_flood_takes_no_room_from_a_source_below_its_share() {
    let [flood, other] = beside_a_flood(true);
    assert!(other >= 47, "{other} of 50 calls/s, beside {flood}");
    assert!((140..=155).contains(&(flood + other)), "{flood} + {other}");
    let [_, other] = beside_a_flood(false);
    assert!(other < 25, "without fair shares it gets {other} calls/s");
}

/// Adds a pool for the domain `other.example`. While this pool has headroom, calls to the first
/// pool are rejected only when they are routed.
fn add_another_pool(settings: &mut Settings) {
    let other = Pool::new("other", &[("c", address(BACKEND_C), 1)]);
    settings.pools.push(PoolSettings::new(other, Policy::Rr));
    let to = |pool| Rule::new(Senders::Any, RuleTarget::Pool(pool));
    settings.rules = vec![Rule { domains: vec!["other.example".to_owned()], ..to(1) }, to(0)];
}

#[test]
fn rejected_work_gets_a_retry_after() {
    let mut s = limited_with(Mode::Transaction, [calls(1), calls(1)], |settings| {
        settings.overload = Overload { retry_after: Some((7, 7)), ..Overload::default() };
    });
    let rejection = |s: &mut Script, name| {
        let rejection = s.one(CALLER, &invite(name));
        assert!(rejection.start().contains(" 503 "));
        rejection.header("Retry-After").to_owned()
    };
    call(&mut s, "1");
    call(&mut s, "2");
    assert_eq!(rejection(&mut s, "3"), "7");
    // A request that is rejected during routing gets the same Retry-After. There is a pool with
    // headroom, but the request is not routed there.
    let mut s = limited_with(Mode::Transaction, [calls(1), calls(1)], |settings| {
        settings.overload = Overload { retry_after: Some((7, 7)), ..Overload::default() };
        add_another_pool(settings);
    });
    call(&mut s, "1");
    call(&mut s, "2");
    assert_eq!(rejection(&mut s, "3"), "7");
    assert_eq!((rejected(&s), s.counters.calls.get()), (1, 2));
    let elsewhere = request("INVITE", "sip:bob@other.example", "4", 1, "");
    let there = forwarded(s.send(CALLER, &elsewhere)).unwrap();
    assert_eq!(there.to, address(BACKEND_C));
}

#[test]
fn a_rate_holds_for_calls_and_for_single_requests() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = limited(mode, [rate(10.0), rate(10.0)]);
        let register = |s: &mut Script, name: &str| {
            forwarded(s.send(CALLER, &request("MESSAGE", "sip:bob@192.0.2.1", name, 1, "")))
                .is_some()
        };
        let taken: Vec<_> = ["1", "2", "3", "4", "5"].map(|name| register(&mut s, name)).into();
        assert_eq!(taken, [true, true, true, true, false], "two at once by each: {mode:?}");
        assert!(call(&mut s, "6").is_none());
        assert_eq!(rejected(&s), 2);
        s.pass(ms(100));
        let taken = ["7", "8", "9"].map(|name| call(&mut s, name).is_some());
        assert_eq!(taken, [true, true, false]);
    }
}

#[test]
fn in_dialog_messages_pass_at_any_limit() {
    let mut s = limited(Mode::Transaction, [calls(1), calls(1)]);
    set(&s.backends, &[Limits { cps_max: Some(0.1), ..calls(1) }; 2]);
    call(&mut s, "1");
    call(&mut s, "2");
    assert!(call(&mut s, "3").is_none());
    let reinvite = request("INVITE", "sip:bob@192.0.2.1", "1", 2, "Totag\r\n");
    let there = forwarded(s.send(CALLER, &reinvite)).unwrap();
    s.send(&there.to.to_string(), &there.answer("200 OK"));
    end(&mut s, "2");
    assert_eq!(s.held().iter().sum::<u64>(), 1);
    // The retransmission of an admitted INVITE is not a new call.
    let again = limited(Mode::Stateless, [calls(1), calls(1)]);
    let mut s = again;
    assert!(forwarded(s.send(CALLER, &invite("1"))).is_some());
    assert!(forwarded(s.send(CALLER, &invite("2"))).is_some());
    assert!(forwarded(s.send(CALLER, &invite("2"))).is_some());
    assert_eq!((s.held(), rejected(&s)), (vec![1, 1], 0));
}

// RFC 3261 §16.7 item 6: "If the only response that was received is a 503, the proxy SHOULD
// generate a 500 response and forward that upstream."
#[test]
fn a_rejected_call_fails_over_only_to_a_back_end_with_headroom() {
    let mut s = limited(Mode::Transaction, [calls(5), calls(1)]);
    let first = forwarded(s.send(CALLER, &invite("1"))).unwrap();
    assert_eq!(first.to, address(BACKEND_A));
    let forwarded_request = forwarded(
        s.send(BACKEND_A, &first.answer("503 Busy"))
            .into_iter()
            .filter(|sent| !sent.start().starts_with("ACK"))
            .collect(),
    );
    assert_eq!(forwarded_request.unwrap().to, address(BACKEND_B), "there is room for one");
    assert_eq!(s.held(), [0, 1]);
    s.rest(ms(2000));
    let second = forwarded(s.send(CALLER, &invite("2"))).unwrap();
    assert_eq!(second.to, address(BACKEND_A));
    let sent = s.send(BACKEND_A, &second.answer("503 Busy"));
    let sent = starts(&sent);
    assert!(sent.contains(&(CALLER, "SIP/2.0 500 Server Internal Error")), "{sent:?}");
    assert!(sent.iter().all(|(to, _)| *to != BACKEND_B), "{sent:?}");
    assert_eq!(s.held(), [0, 1]);
}

#[test]
fn a_silent_back_ends_call_fails_over_only_to_one_with_headroom() {
    for is_full in [false, true] {
        let mut s = limited(Mode::Transaction, [calls(5), calls(1)]);
        if is_full {
            assert_eq!(call(&mut s, "0").unwrap().to, address(BACKEND_A));
            assert_eq!(call(&mut s, "1").unwrap().to, address(BACKEND_B));
        }
        let silent = forwarded(s.send(CALLER, &invite("2"))).unwrap();
        assert_eq!(silent.to, address(BACKEND_A));
        s.pass(ms(4100));
        let goes_on = |s: &mut Script| s.sent().into_iter().any(|to| to.to == address(BACKEND_B));
        assert_eq!(goes_on(&mut s), !is_full);
        // It is tried again after twice this time, not only at Timer B.
        if is_full {
            end(&mut s, "1");
            s.sent();
            s.pass(ms(4100));
            assert!(goes_on(&mut s), "the other back end has room now");
        }
    }
}

#[test]
fn the_backup_gets_only_the_calls_for_which_the_pool_has_no_headroom() {
    let mut s = limited_with(Mode::Transaction, [calls(1), calls(1)], |settings| {
        let other = Pool::new("other", &[("c", address(crate::script::BACKEND_C), 1)]);
        set(&other, &[calls(2)]);
        settings.pools.push(PoolSettings::new(other, Policy::Rr));
        settings.pools[0].backup = Some(1);
    });
    let went: Vec<_> = ["1", "2", "3", "4", "5"]
        .map(|name| call(&mut s, name).map(|there| there.to.to_string()))
        .into();
    let c = Some(crate::script::BACKEND_C.to_owned());
    let [a, b] = [BACKEND_A, BACKEND_B].map(|at| Some(at.to_owned()));
    assert_eq!(went, [a, b, c.clone(), c, None]);
    end(&mut s, "1");
    assert_eq!(call(&mut s, "6").unwrap().to, address(BACKEND_A));
}

#[test]
fn an_emergency_call_finds_the_reserve() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = limited_with(mode, [calls(1), calls(1)], believe_emergencies);
        let sos =
            |s: &mut Script, name: &str| forwarded(s.send(CALLER, &emergency(name))).is_some();
        call(&mut s, "1");
        call(&mut s, "2");
        assert!(call(&mut s, "3").is_none());
        assert!(sos(&mut s, "112") && sos(&mut s, "911"));
        assert_eq!(s.held(), [2, 2]);
        assert!(!sos(&mut s, "999"), "the reserve is one for each");
        assert_eq!(rejected(&s), 2);
        assert!(!s.backends.has_headroom(s.now, Demand::Priority));
    }
}

#[test]
fn a_call_that_begins_again_counts_again() {
    for mode in [Mode::Transaction, Mode::Stateless] {
        let mut s = limited(mode, [calls(1), calls(1)]);
        let first = forwarded(s.send(CALLER, &invite("1"))).unwrap();
        assert_eq!(first.to, address(BACKEND_A));
        s.send(BACKEND_A, &first.answer("401 Unauthorized"));
        assert_eq!(s.held(), [0, 0]);
        call(&mut s, "2");
        call(&mut s, "3");
        assert_eq!(s.held(), [1, 1]);
        // The caller repeats the INVITE with credentials and the same Call-ID.
        let again = request("INVITE", "sip:bob@192.0.2.1", "1", 2, "");
        assert_eq!(s.status(CALLER, &again), 503, "{mode:?}");
        // The other back end has room, and takes the call.
        end(&mut s, "2");
        let again = request("INVITE", "sip:bob@192.0.2.1", "1", 3, "");
        assert!(forwarded(s.send(CALLER, &again)).is_some());
        assert_eq!(s.held(), [1, 1]);
    }
}

#[test]
fn unforwarded_requests_hold_nothing() {
    let mut s = limited(Mode::Transaction, [calls(1), calls(1)]);
    // The INVITE is too long for a datagram after our headers are added.
    let spare = 65_500 - invite("1").len() - "Subject: \r\n".len();
    let long = format!("Subject: {}\r\n", "x".repeat(spare));
    let text = request("INVITE", "sip:bob@192.0.2.1", "1", 1, &long);
    assert!(forwarded(s.send(CALLER, &text)).is_none());
    assert_eq!((s.held(), rejected(&s)), (vec![0, 0], 0));
}

#[test]
fn a_pool_without_an_available_back_end_is_not_full() {
    let mut s = limited(Mode::Transaction, [calls(1), calls(1)]);
    s.gone(0);
    s.gone(1);
    let rejection = s.one(CALLER, &invite("1"));
    assert_eq!(rejection.header("Warning"), "399 tidegate \"every back end is down\"");
    assert_eq!((rejected(&s), s.counters.rejected(Reason::PoolDown).get()), (0, 1));
    // If the only back end that is up is full, the pool is full.
    s.pass(ms(10_000));
    s.rejected(BACKEND_A);
    call(&mut s, "2");
    assert_eq!(s.status(CALLER, &invite("3")), 503);
    assert_eq!(rejected(&s), 1);
}

#[test]
fn work_rejected_at_service_counts_as_rejected() {
    let mut s = limited(Mode::Transaction, [calls(1), calls(1)]);
    call(&mut s, "1");
    // Both calls find headroom at admission.
    for name in ["2", "3"] {
        s.offer(CALLER, invite(name).as_bytes());
    }
    let work = [(); 2].map(|()| {
        assert!(s.proxy.serve(s.now));
        let work = s.proxy.last_work();
        (work.served.is_some(), work.rejected.is_some())
    });
    assert_eq!((work, rejected(&s)), ([(true, false), (false, true)], 1));
}

/// If rejections after the gate did not count, the kernel would drop no INVITE, however much these
/// rejections cost.
#[test]
fn calls_rejected_after_the_gate_count_for_the_cost_of_rejections() {
    let unknown = "Require: resource-priority\r\nResource-Priority: nobody.1\r\n";
    for (more, status) in [("", 503), (unknown, 417)] {
        let mut s = limited_with(Mode::Stateless, [calls(1), calls(1)], |settings| {
            settings.overload.disposal = Disposal::Kernel;
            believe_emergencies(settings);
            add_another_pool(settings);
        });
        call(&mut s, "1");
        call(&mut s, "2");
        s.proxy.on_load(s.now, Load::default());
        for number in 0..100 {
            let text = request("INVITE", "sip:bob@192.0.2.1", &format!("c{number}"), 1, more);
            assert_eq!(s.status(CALLER, &text), status);
        }
        s.pass(ms(100));
        s.proxy.on_load(s.now, Load { busy: ms(100), ..Load::default() });
        let part = s.counters.overload.rejecting_load.get() as f64 / 1e6;
        assert!(part > 0.9, "rejecting takes {part} of the processor, status {status}");
    }
}

/// Two shards compete for the last lease. Between the two checks of a shard, only the other shard
/// acts.
#[test]
fn a_call_goes_to_the_backup_if_another_shard_takes_the_last_place() {
    let pool = |name, at, limits: Limits| {
        let pool = Pool::new(name, &[(name, address(at), 1)]);
        set(&pool, &[limits]);
        stateless(pool)
    };
    let app = pool("app", BACKEND_A, calls(1));
    let pools =
        [PoolSettings { backup: Some(1), ..app }, pool("backup", BACKEND_B, Limits::default())];
    let shard = || {
        let mut s = Script::with(Policy::Rr, |settings| settings.pools = pools.to_vec());
        for name in 0..10_000 {
            let there = forwarded(s.send(CALLER, &invite(&name.to_string())));
            let there = there.expect("the backup has no limits");
            s.send(&there.to.to_string(), &there.answer("486 Busy Here"));
        }
    };
    std::thread::scope(|scope| {
        let shards = [scope.spawn(shard), scope.spawn(shard)];
        shards.into_iter().for_each(|shard| shard.join().unwrap());
    });
}
