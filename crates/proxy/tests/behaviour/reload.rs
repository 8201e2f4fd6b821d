//! Tests of reloads that change pools during calls.

use std::time::Duration;

use crate::script::{
    BACKEND_A, BACKEND_B, BACKEND_C, CALLER, Script, Sent, address, invite, request,
};
use tidegate_balance::{
    AdminState, BackendRegistry, BackendSpec, EndpointAddress, Limits, Policy, Pool, PoolSpec,
    UNTIL_PROBED,
};
use tidegate_proxy::{Choice, Health, Mode, PoolSettings, Probe, Rule, RuleTarget, Senders};

/// Time after its removal for which requests still reach a back end that has no counted call.
const REMOVED_FOR: Duration = Duration::from_secs(100);

/// A proxy, and its registry of back ends.
struct Reloaded {
    s: Script,
    registry: BackendRegistry,
    reloads: u64,
    mode: Mode,
}

fn pool_spec(name: &str, backends: &[&str]) -> PoolSpec {
    let spec = |at: &&str| {
        let endpoint_address = EndpointAddress::Address(address(at));
        let limits = Limits::default();
        BackendSpec { name: (*at).to_owned(), endpoint_address, weight: 1, priority: 0, limits }
    };
    let backends = backends.iter().map(spec).collect();
    let (name, services) = (name.to_owned(), Vec::new());
    PoolSpec { name, slow_start: Duration::ZERO, backends, services }
}

fn rule(pool: usize) -> Vec<Rule> {
    vec![Rule::new(Senders::Any, RuleTarget::Pool(pool))]
}

impl Reloaded {
    fn new(mode: Mode, backends: &[&str]) -> Self {
        let registry = BackendRegistry::new(&[pool_spec("app", backends)]);
        let pools = registry.pools();
        let s = Script::with(Policy::Rr, |settings| {
            settings.pools = vec![settings_of(&pools[0], mode)];
            settings.removed_backend = REMOVED_FOR;
        });
        Self { s, registry, reloads: 0, mode }
    }

    fn enlist(&mut self, pool_specs: &[PoolSpec]) -> Vec<Pool> {
        self.reloads += 1;
        self.registry.enlist(self.s.now, self.reloads, pool_specs)
    }

    fn reload(&mut self, pool_specs: &[PoolSpec], to: usize) {
        let pools = self.enlist(pool_specs);
        let pools = pools.iter().map(|pool| settings_of(pool, self.mode)).collect();
        assert!(self.s.proxy.reload(self.s.now, pools, rule(to)));
    }

    /// Sends the INVITE of a call. Returns it as forwarded.
    fn invite(&mut self, call: &str) -> Sent {
        let sent = self.s.send(CALLER, &invite(call));
        sent.into_iter().find(|sent| sent.start().starts_with("INVITE")).unwrap()
    }

    /// Sets up a call. Returns its back end.
    fn set_up(&mut self, call: &str) -> String {
        let invite = self.invite(call);
        let at = invite.to.to_string();
        self.s.send(&at, &invite.answer("200 OK"));
        let ack = self.s.one(CALLER, &in_dialog("ACK", call, 1));
        assert_eq!(ack.to, invite.to);
        at
    }

    fn hang_up(&mut self, call: &str) -> String {
        let bye = self.s.one(CALLER, &in_dialog("BYE", call, 2));
        let at = bye.to.to_string();
        self.s.send(&at, &bye.answer("200 OK"));
        at
    }

    fn calls(&self) -> Vec<(String, u64)> {
        let pools = self.registry.pools();
        let all = pools.iter().flat_map(|pool| pool.backends());
        all.map(|b| (b.name().to_owned(), b.calls())).collect()
    }
}

fn settings_of(pool: &Pool, mode: Mode) -> PoolSettings {
    PoolSettings { mode, ..PoolSettings::new(pool.clone(), Policy::Rr) }
}

fn in_dialog(method: &str, call: &str, cseq: u32) -> String {
    request(method, "sip:bob@192.0.2.1", call, cseq, "Totag\r\n")
}

#[test]
fn calls_end_where_they_are_and_new_ones_go_to_current_back_ends() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut r = Reloaded::new(mode, &[BACKEND_A, BACKEND_B]);
        assert_eq!(r.set_up("1"), BACKEND_A);
        assert_eq!(r.set_up("2"), BACKEND_B);
        let ringing = r.invite("3");
        assert_eq!(ringing.to, address(BACKEND_A));
        r.reload(&[pool_spec("app", &[BACKEND_C, BACKEND_B])], 0);
        assert_eq!(
            r.calls(),
            [(BACKEND_C.into(), 0), (BACKEND_B.into(), 1), (BACKEND_A.into(), 2)]
        );
        // A removed back end finishes its calls.
        r.s.send(BACKEND_A, &ringing.answer("200 OK"));
        assert_eq!(r.s.one(CALLER, &in_dialog("ACK", "3", 1)).to, address(BACKEND_A));
        for call in ["4", "5", "6", "7"] {
            assert_ne!(r.set_up(call), BACKEND_A, "{mode:?}");
        }
        assert_eq!(
            r.calls(),
            [(BACKEND_C.into(), 2), (BACKEND_B.into(), 3), (BACKEND_A.into(), 2)]
        );
        for (call, at) in [("1", BACKEND_A), ("2", BACKEND_B), ("3", BACKEND_A)] {
            assert_eq!(r.hang_up(call), at, "{mode:?}");
        }
        for call in ["4", "5", "6", "7"] {
            r.hang_up(call);
        }
        assert!(r.calls().iter().all(|(_, calls)| *calls == 0), "{mode:?}: {:?}", r.calls());
    }
}

#[test]
fn the_calls_of_a_renamed_back_end_are_released() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let mut r = Reloaded::new(mode, &[BACKEND_A]);
        let invite = r.invite("1");
        r.s.send(BACKEND_A, &invite.answer("200 OK"));
        let route = format!("Totag\r\nRoute: {}\r\n", invite.header("Record-Route"));
        let mut renamed = pool_spec("app", &[BACKEND_A]);
        renamed.backends[0].name = "renamed".to_owned();
        r.reload(&[renamed], 0);
        let bye = r.s.one(CALLER, &request("BYE", "sip:bob@192.0.2.1", "1", 2, &route));
        assert_eq!(bye.to, address(BACKEND_A));
        r.s.send(BACKEND_A, &bye.answer("200 OK"));
        assert!(r.calls().iter().all(|(_, calls)| *calls == 0), "{mode:?}: {:?}", r.calls());
    }
}

#[test]
fn a_slot_is_reused_only_when_its_calls_are_forgotten() {
    let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_A, BACKEND_B]);
    assert_eq!(r.set_up("1"), BACKEND_A);
    r.reload(&[pool_spec("app", &[BACKEND_B])], 0);
    r.reload(&[pool_spec("app", &[BACKEND_B, BACKEND_C])], 0);
    assert_eq!(r.hang_up("1"), BACKEND_A, "no other back end has its slot yet");
    r.s.rest(Duration::from_secs(40));
    // No back end has got the index of another one.
    r.reload(&[pool_spec("app", &[BACKEND_B, BACKEND_C, "10.0.0.4:5070"])], 0);
    let mut seen: Vec<_> = ["2", "3", "4"].iter().map(|call| r.set_up(call)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [BACKEND_B, BACKEND_C, "10.0.0.4:5070"]);
}

#[test]
fn a_removed_back_end_is_trusted_while_it_has_calls() {
    let relayed = |r: &mut Reloaded, call: &str| {
        // A request from a back end is not a stranger's call, which would be counted.
        let before: u64 = r.calls().iter().map(|(_, calls)| calls).sum();
        r.s.send(BACKEND_A, &invite(call));
        r.calls().iter().map(|(_, calls)| calls).sum::<u64>() == before
    };
    let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_A, BACKEND_B]);
    assert_eq!(r.set_up("1"), BACKEND_A);
    r.reload(&[pool_spec("app", &[BACKEND_B])], 0);
    assert!(relayed(&mut r, "2"));
    r.hang_up("1");
    r.reload(&[pool_spec("app", &[BACKEND_B])], 0);
    assert!(!relayed(&mut r, "3"), "its slot may still be reserved, but it has no call");
}

/// A regression: a token led to an address for months after its back end had been removed.
#[test]
fn requests_reach_a_removed_back_end_for_a_limited_time() {
    let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_A, BACKEND_B]);
    let invite = r.invite("1");
    assert_eq!(invite.to, address(BACKEND_A));
    r.s.send(BACKEND_A, &invite.answer("200 OK"));
    r.s.one(CALLER, &in_dialog("ACK", "1", 1));
    r.reload(&[pool_spec("app", &[BACKEND_B])], 0);
    r.hang_up("1");
    let info = |cseq: u32| {
        let more = format!("Totag\r\nRoute: {}\r\n", invite.header("Record-Route"));
        request("INFO", "sip:bob@192.0.2.1", "1", cseq, &more)
    };
    r.s.pass(REMOVED_FOR - Duration::from_secs(1));
    assert_eq!(r.s.one(CALLER, &info(3)).to, address(BACKEND_A));
    r.s.pass(Duration::from_secs(1));
    assert_eq!(r.s.status(CALLER, &info(4)), 481);
}

/// A regression: while a removed back end had calls, each reload began its time again.
#[test]
fn the_time_of_a_removed_back_end_begins_when_it_is_removed() {
    let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_A, BACKEND_B]);
    let invite = r.invite("1");
    assert_eq!(invite.to, address(BACKEND_A));
    r.s.send(BACKEND_A, &invite.answer("200 OK"));
    r.s.one(CALLER, &in_dialog("ACK", "1", 1));
    let without = [pool_spec("app", &[BACKEND_B])];
    for _ in 0..5 {
        r.reload(&without, 0);
        r.s.pass(REMOVED_FOR / 4);
    }
    assert_eq!(r.hang_up("1"), BACKEND_A, "its call has not ended");
    r.reload(&without, 0);
    // The call table forgets the call.
    r.s.pass(Duration::from_secs(40));
    let info = |cseq: u32| {
        let more = format!("Totag\r\nRoute: {}\r\n", invite.header("Record-Route"));
        request("INFO", "sip:bob@192.0.2.1", "1", cseq, &more)
    };
    assert_eq!(r.s.status(CALLER, &info(3)), 481);
    // A second removal has a time of its own.
    r.reload(&[pool_spec("app", &[BACKEND_A, BACKEND_B])], 0);
    r.reload(&without, 0);
    r.s.pass(REMOVED_FOR - Duration::from_secs(1));
    assert_eq!(r.s.one(CALLER, &info(4)).to, address(BACKEND_A));
    r.s.pass(Duration::from_secs(1));
    assert_eq!(r.s.status(CALLER, &info(5)), 481);
}

/// RFC 3261 §16.11: the branch "MUST be the same each time a retransmitted request is forwarded".
#[test]
fn a_request_that_was_forwarded_without_a_transaction_is_repeated_without_one() {
    let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_A]);
    r.set_up("c");
    let requests = [in_dialog("INFO", "c", 2), in_dialog("INVITE", "c", 3), invite("d")];
    let first = requests.clone().map(|text| r.s.one(CALLER, &text));
    r.mode = Mode::Transaction;
    r.reload(&[pool_spec("app", &[BACKEND_A])], 0);
    for (text, first) in requests.iter().zip(&first) {
        assert_eq!(r.s.one(CALLER, text), *first);
    }
    assert_eq!(r.s.live(), (0, 0));
    // The next request of the call has a transaction.
    r.s.send(CALLER, &in_dialog("INFO", "c", 4));
    assert_eq!(r.s.live(), (1, 1));
}

/// A back end may send requests to any address, but a stranger may not.
#[test]
fn the_sources_of_a_removed_pool_have_no_rights() {
    let mut r = Reloaded::new(Mode::Transaction, &[BACKEND_A]);
    let pool_specs = [pool_spec("app", &[BACKEND_A]), pool_spec("carrier", &[BACKEND_C])];
    let pools = r.enlist(&pool_specs);
    let mut pools: Vec<_> = pools.iter().map(|pool| settings_of(pool, r.mode)).collect();
    pools[1].sources = vec![vec!["203.0.113.0/24".parse().unwrap()]];
    assert!(r.s.proxy.reload(r.s.now, pools, rule(0)));
    let call = |call: &str| request("INVITE", "sip:x@198.51.100.99", call, 1, "");
    let sent = r.s.send("203.0.113.5:5060", &call("c1"));
    assert!(sent.iter().any(|sent| sent.to == address("198.51.100.99:5060")), "{sent:?}");

    r.reload(&pool_specs[..1], 0);
    assert_eq!(r.s.status("203.0.113.5:5060", &call("c2")), 403);
    r.reload(&pool_specs, 0);
    assert_eq!(r.s.status("203.0.113.5:5060", &call("c3")), 403, "it has none now");
}

#[test]
fn back_ends_that_stay_keep_their_health_and_admin_state() {
    let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_A, BACKEND_B]);
    r.registry.find(BACKEND_A).unwrap().set_admin_state(r.s.now, AdminState::Draining);
    r.s.rejected(BACKEND_B);
    r.reload(&[pool_spec("app", &[BACKEND_C, BACKEND_B, BACKEND_A])], 0);
    for call in ["1", "2", "3"] {
        assert_eq!(r.set_up(call), BACKEND_C);
    }
}

#[test]
fn pools_come_and_go_and_rules_follow_them() {
    let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_A]);
    assert_eq!(r.set_up("1"), BACKEND_A);
    r.reload(&[pool_spec("new", &[BACKEND_B]), pool_spec("app", &[BACKEND_A])], 0);
    assert_eq!(r.set_up("2"), BACKEND_B);
    r.reload(&[pool_spec("new", &[BACKEND_B])], 0);
    assert_eq!(r.set_up("3"), BACKEND_B);
    assert_eq!((r.hang_up("1"), r.hang_up("2")), (BACKEND_A.to_owned(), BACKEND_B.to_owned()));
}

#[test]
fn a_fork_rings_at_the_back_ends_that_are_configured_then() {
    let mut r = Reloaded::new(Mode::Transaction, &[BACKEND_A, BACKEND_B]);
    let fork = |pools: &[Pool], qs: &[u16]| {
        let choice = Choice::All(qs.to_vec());
        vec![PoolSettings { choice, ..PoolSettings::new(pools[0].clone(), Policy::Rr) }]
    };
    let pools = r.enlist(&[pool_spec("app", &[BACKEND_A, BACKEND_B])]);
    assert!(r.s.proxy.reload(r.s.now, fork(&pools, &[1000, 500]), rule(0)));
    let first = r.invite("1");
    assert_eq!(first.to, address(BACKEND_A));
    // The second group has been removed when its turn comes.
    let pools = r.enlist(&[pool_spec("app", &[BACKEND_A, BACKEND_C])]);
    assert!(r.s.proxy.reload(r.s.now, fork(&pools, &[500, 1000]), rule(0)));
    let sent = r.s.send(BACKEND_A, &first.answer("404 Not Found"));
    assert!(sent.iter().all(|sent| !sent.start().starts_with("INVITE")), "{sent:#?}");
    assert_eq!(r.invite("2").to, address(BACKEND_C));
}

/// Swarm seed 680144. A fork counts its call at one of its back ends, so the other ones are idle.
#[test]
fn a_removed_back_end_that_answers_a_fork_releases_its_call_at_the_end() {
    let mut r = Reloaded::new(Mode::Transaction, &[BACKEND_A, BACKEND_B]);
    let fork = |pools: &[Pool]| {
        let choice = Choice::All(vec![1000; pools[0].backends().len()]);
        vec![PoolSettings { choice, ..PoolSettings::new(pools[0].clone(), Policy::Rr) }]
    };
    let pools = r.enlist(&[pool_spec("app", &[BACKEND_A, BACKEND_B])]);
    assert!(r.s.proxy.reload(r.s.now, fork(&pools), rule(0)));
    let sent = r.s.send(CALLER, &invite("1"));
    let ringing = sent.iter().find(|sent| sent.to == address(BACKEND_B)).unwrap().clone();
    let removed = pools[0].backends()[1].clone();
    let pools = r.enlist(&[pool_spec("app", &[BACKEND_A])]);
    assert!(r.s.proxy.reload(r.s.now, fork(&pools), rule(0)));
    let sent = r.s.send(BACKEND_B, &ringing.answer("200 OK"));
    let ok = sent.iter().find(|sent| sent.start().contains(" 200 ")).unwrap();
    let more = format!("Totag\r\nRoute: {}\r\n", ok.header("Record-Route"));
    assert_eq!(removed.calls(), 1);
    for (method, cseq) in [("ACK", 1), ("BYE", 2)] {
        let text = request(method, "sip:bob@192.0.2.1", "1", cseq, &more);
        let sent = r.s.one(CALLER, &text);
        assert_eq!(sent.to, address(BACKEND_B), "{method}");
        if method == "BYE" {
            r.s.send(BACKEND_B, &sent.answer("200 OK"));
        }
    }
    assert_eq!(removed.calls(), 0);
}

#[test]
fn a_back_end_no_longer_probed_gets_calls_at_once() {
    let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_A]);
    probe_first_pool(&mut r, &[pool_spec("app", &[BACKEND_A])]);
    r.s.rejected(BACKEND_A);
    r.s.pass(Duration::from_secs(60));
    assert!(r.s.sent().is_empty() && !r.s.questions.is_empty());
    assert_eq!(r.s.status(CALLER, &invite("1")), 503);
    r.s.questions.clear();
    r.reload(&[pool_spec("app", &[BACKEND_A])], 0);
    assert_eq!(r.set_up("2"), BACKEND_A);
    r.s.pass(Duration::from_secs(60));
    assert!(r.s.questions.is_empty(), "it is not probed");
}

#[test]
fn a_back_end_shown_down_by_requests_waits_as_if_it_had_never_been_probed() {
    let both = [pool_spec("app", &[BACKEND_A, BACKEND_B])];
    let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_A, BACKEND_B]);
    probe_first_pool(&mut r, &both);
    let backend = r.registry.find(BACKEND_A).unwrap();
    backend.on_failed(r.s.now, UNTIL_PROBED);
    r.s.pass(Duration::from_secs(2));
    r.reload(&both, 0);
    assert!(!backend.is_up(r.s.now));
    assert_eq!(backend.returns_at(), Some(r.s.now + Duration::from_secs(3)));
}

/// The first pool decides whether a back end of two pools is probed.
#[test]
fn a_back_end_that_only_a_later_pool_would_probe_does_not_wait_for_a_probe() {
    let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_A]);
    let both = [pool_spec("app", &[BACKEND_A]), pool_spec("other", &[BACKEND_A])];
    let probed = |r: &mut Reloaded, index: usize| {
        let pools = r.enlist(&both);
        let mut pools: Vec<_> = pools.iter().map(|pool| settings_of(pool, r.mode)).collect();
        pools[index].health.probe = Some(Probe::default());
        assert!(r.s.proxy.reload(r.s.now, pools, rule(0)));
    };
    probed(&mut r, 0);
    let backend = r.registry.find(BACKEND_A).unwrap();
    backend.on_probe_failed(r.s.now, 1, None);
    assert!(!backend.is_up(r.s.now));
    probed(&mut r, 1);
    assert!(backend.is_up(r.s.now), "no probe would bring it back");
    assert_eq!(r.set_up("1"), BACKEND_A);
}

/// The order of slots may differ from the order of the configuration: a removed pool keeps its slot
/// while it has a call, so a new pool gets another slot. Another shard may have no such call.
#[test]
fn the_first_pool_of_a_server_is_the_first_one_in_the_configuration() {
    let is_probed = |has_call: bool, probes: [bool; 2]| {
        let mut r = Reloaded::new(Mode::Stateless, &[BACKEND_B]);
        let probed = |r: &mut Reloaded, pool_specs: &[PoolSpec], probes: [bool; 2]| {
            let pools = r.enlist(pool_specs);
            let mut pools: Vec<_> = pools.iter().map(|pool| settings_of(pool, r.mode)).collect();
            for (pool, is_probed) in pools.iter_mut().zip(probes) {
                pool.health.probe = is_probed.then(Probe::default);
            }
            assert!(r.s.proxy.reload(r.s.now, pools, rule(0)));
        };
        let calls = || pool_spec("calls", &[BACKEND_A]);
        probed(&mut r, &[pool_spec("app", &[BACKEND_B]), calls()], [false, true]);
        if has_call {
            assert_eq!(r.set_up("1"), BACKEND_B);
        }
        probed(&mut r, &[pool_spec("register", &[BACKEND_A]), calls()], probes);
        r.s.questions.clear();
        r.s.pass(Duration::from_secs(60));
        r.s.questions.iter().any(|probe| probe.to == address(BACKEND_A))
    };
    for has_call in [false, true] {
        assert!(!is_probed(has_call, [false, true]), "{has_call}");
        assert!(is_probed(has_call, [true, false]), "{has_call}");
    }
}

#[test]
fn a_server_that_leaves_one_of_its_pools_gets_new_calls_only_in_the_other() {
    for mode in [Mode::Stateless, Mode::Transaction] {
        let calls = |a: u64, b: u64| [(BACKEND_B.to_owned(), b), (BACKEND_A.to_owned(), a)];
        let mut r = Reloaded::new(mode, &[BACKEND_A, BACKEND_B]);
        let other = || pool_spec("other", &[BACKEND_A]);
        r.reload(&[pool_spec("app", &[BACKEND_A, BACKEND_B]), other()], 0);
        assert_eq!(r.set_up("1"), BACKEND_A);
        let after = [pool_spec("app", &[BACKEND_B]), other()];
        r.reload(&after, 0);
        for call in ["2", "3", "4"] {
            assert_eq!(r.set_up(call), BACKEND_B, "{mode:?}");
        }
        assert_eq!(r.calls(), calls(1, 3), "{mode:?}");
        r.reload(&after, 1);
        assert_eq!(r.set_up("5"), BACKEND_A);
        assert_eq!(r.calls(), calls(2, 3), "{mode:?}");
        assert_eq!(r.hang_up("1"), BACKEND_A, "{mode:?}");
        assert_eq!(r.calls(), calls(1, 3), "{mode:?}");
        // A whole pool is removed while it still has a call.
        r.reload(&[pool_spec("app", &[BACKEND_A])], 0);
        assert_eq!(r.calls(), [(BACKEND_A.to_owned(), 1), (BACKEND_B.to_owned(), 3)], "{mode:?}");
        assert_eq!(r.hang_up("5"), BACKEND_A, "{mode:?}");
        assert_eq!(r.set_up("6"), BACKEND_A, "{mode:?}");
        assert_eq!(r.calls()[0].1, 1, "{mode:?}");
    }
}

/// Reloads these pools with probes in the first of them.
fn probe_first_pool(r: &mut Reloaded, pool_specs: &[PoolSpec]) {
    let pools = r.enlist(pool_specs);
    let mut pools: Vec<_> = pools.iter().map(|pool| settings_of(pool, r.mode)).collect();
    pools[0].health = Health { probe: Some(Probe::default()), ..Health::default() };
    assert!(r.s.proxy.reload(r.s.now, pools, rule(0)));
}
