//! Tests of pools with the mode `adaptive`: a call keeps its tier, with or without transactions.

use std::time::Duration;

use crate::script::*;
use tidegate_balance::{Policy, Pool};
use tidegate_control::Tier;
use tidegate_proxy::{Class, Mode, PoolSettings, Settings};
use tidegate_world::{Core, Load, Work};

const SECOND: Duration = Duration::from_secs(1);

/// A proxy whose processor is as busy as the test says.
struct Loaded {
    script: Script,
    busy: Duration,
}

impl Loaded {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(adjust: impl FnOnce(&mut Settings)) -> Self {
        let script = Script::with(Policy::Rr, |settings| {
            settings.pools[0].mode = Mode::Adaptive;
            adjust(settings);
        });
        let mut loaded = Self { script, busy: Duration::ZERO };
        loaded.read();
        loaded
    }

    fn read(&mut self) {
        let (busy, cpu) = (self.busy, self.busy);
        let load = Load { busy, cpu, ..Load::default() };
        self.script.proxy.on_load(self.script.now, load);
    }

    /// Passes time with a fully occupied processor. In each second, the share of calls with
    /// transactions falls by a quarter of all calls.
    fn full(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.script.pass(SECOND);
            self.busy += SECOND;
            self.read();
        }
    }

    /// Passes enough idle time for all new calls to have transactions again.
    fn rest(&mut self) {
        for _ in 0..8 {
            self.script.pass(SECOND);
            self.read();
        }
        assert_eq!(self.script.counters.overload.stateless.get(), 0);
    }

    /// Returns the numbers of new calls routed with transactions and without.
    fn served(&self) -> [u64; 2] {
        Tier::ALL.map(|tier| self.script.counters.served(tier).get())
    }
}

/// Makes a proxy that serves without transactions from its first message.
fn overloaded() -> Loaded {
    let mut loaded = Loaded::new();
    loaded.full(4);
    assert_eq!(loaded.script.counters.overload.stateless.get(), 1_000_000);
    loaded
}

/// Sends a new INVITE that gets a 100 at once. Returns it as forwarded.
#[track_caller]
fn with_trying(s: &mut Script, call: &str) -> Sent {
    let sent = s.send(CALLER, &invite(call));
    let [trying, forwarded_request] = <[Sent; 2]>::try_from(sent).unwrap();
    assert_eq!((trying.start(), trying.to), ("SIP/2.0 100 Trying", address(CALLER)));
    forwarded_request
}

#[test]
fn a_call_that_began_with_transactions_keeps_them_when_no_other_gets_any() {
    let mut loaded = Loaded::new();
    let out = with_trying(&mut loaded.script, "a");
    let backend = out.to.to_string();
    loaded.script.one(&backend, &out.answer("180 Ringing"));
    loaded.full(4);
    let s = &mut loaded.script;
    s.sent();
    // The proxy sends no 100 for call b, and keeps no state of it.
    assert_eq!(s.one(CALLER, &invite("b")).start(), "INVITE sip:bob@192.0.2.1 SIP/2.0");
    assert_eq!(s.live(), (1, 1), "only call a has transactions");
    // RFC 3261 §17.2.1: a retransmission gets the last provisional response, and is not forwarded.
    let again = s.send(CALLER, &invite("a"));
    assert_eq!(starts(&again), [(CALLER, "SIP/2.0 180 Ringing")]);
    let ok = s.one(&backend, &out.answer("200 OK"));
    assert_eq!(ok.to, address(CALLER));
    assert_eq!(s.one(CALLER, &own("ACK", "a", 1, "Totag\r\n")).to, out.to);
    // An in-dialog request has a transaction too, so the proxy retransmits it if it is lost.
    s.rest(SECOND * 40);
    let info = s.one(CALLER, &own("INFO", "a", 2, "Totag\r\n"));
    assert_eq!(s.live(), (1, 1));
    s.pass(Duration::from_millis(500));
    assert_eq!(s.sent(), std::slice::from_ref(&info));
    s.one(&backend, &info.answer("200 OK"));
    assert_eq!(loaded.served(), [1, 1]);
}

#[test]
fn a_call_that_began_without_transactions_stays_without_when_others_get_them_again() {
    let mut loaded = overloaded();
    let out = loaded.script.one(CALLER, &invite("a"));
    let backend = out.to.to_string();
    loaded.script.one(&backend, &out.answer("180 Ringing"));
    loaded.rest();
    let s = &mut loaded.script;
    assert_eq!(s.sent(), [], "nothing is repeated for it");
    // RFC 3261 §16.11: a retransmission has the same branch and the same destination.
    assert_eq!(s.one(CALLER, &invite("a")), out);
    for _ in 0..2 {
        // RFC 3261 §16.11: "They do, however, forward all retransmissions they receive".
        assert_eq!(s.one(&backend, &out.answer("200 OK")).start(), "SIP/2.0 200 OK");
    }
    for (method, cseq) in [("ACK", 1), ("INFO", 2), ("INFO", 2), ("BYE", 3)] {
        let next = s.one(CALLER, &own(method, "a", cseq, "Totag\r\n"));
        assert_eq!((next.to, s.live()), (out.to, (0, 0)), "{method}");
        if method != "ACK" {
            assert_eq!(s.one(&backend, &next.answer("200 OK")).to, address(CALLER));
        }
    }
    with_trying(s, "b");
    assert_eq!(loaded.served(), [1, 1]);
}

/// RFC 3261 §16.11: "Stateless proxies MUST NOT perform special processing for CANCEL requests."
#[test]
fn a_cancel_follows_its_invite_in_either_tier() {
    let mut loaded = overloaded();
    let out = loaded.script.one(CALLER, &invite("a"));
    loaded.rest();
    let s = &mut loaded.script;
    let cancel = s.one(CALLER, &own("CANCEL", "a", 1, ""));
    assert_eq!((cancel.to, cancel.branch()), (out.to, out.branch()));
    let backend = out.to.to_string();
    assert_eq!(s.one(&backend, &cancel.answer("200 OK")).to, address(CALLER));
    assert_eq!(s.one(&backend, &out.answer("487 Request Terminated")).to, address(CALLER));
    let ack = s.one(CALLER, &own("ACK", "a", 1, "Totag\r\n"));
    assert_eq!((ack.to, ack.branch()), (out.to, out.branch()));

    let out = with_trying(s, "b");
    let backend = out.to.to_string();
    s.one(&backend, &out.answer("180 Ringing"));
    loaded.full(4);
    let s = &mut loaded.script;
    // RFC 3261 §16.10: the proxy answers the CANCEL, and sends its own CANCEL.
    let sent = s.send(CALLER, &own("CANCEL", "b", 1, ""));
    let own_cancel = ("CANCEL sip:bob@192.0.2.1 SIP/2.0", out.to);
    assert!(sent.iter().any(|sent| (sent.start(), sent.to) == own_cancel), "{sent:#?}");
    assert!(starts(&sent).contains(&(CALLER, "SIP/2.0 200 OK")));
}

#[test]
fn a_share_of_the_new_calls_gets_transactions() {
    let mut loaded = Loaded::new();
    loaded.full(2);
    assert_eq!(loaded.script.counters.overload.stateless.get(), 500_000);
    let packets: Vec<_> =
        (0..10).map(|n| loaded.script.send(CALLER, &invite(&format!("c{n}"))).len()).collect();
    assert_eq!(packets.iter().sum::<usize>(), 15, "{packets:?}");
    assert_eq!(loaded.served(), [5, 5]);
    // A retransmission is not a new call.
    for n in 0..10 {
        loaded.script.send(CALLER, &invite(&format!("c{n}")));
    }
    assert_eq!(loaded.served(), [5, 5]);
}

#[test]
fn a_single_request_is_repeated_in_the_way_it_went() {
    let mut loaded = overloaded();
    let message = own("MESSAGE", "m", 1, "");
    let first = loaded.script.one(CALLER, &message);
    loaded.rest();
    let s = &mut loaded.script;
    assert_eq!(s.one(CALLER, &message), first);
    let answer = s.one(&first.to.to_string(), &first.answer("200 OK"));
    assert_eq!((answer.to, s.live()), (address(CALLER), (0, 0)));
}

#[test]
fn a_call_of_a_back_end_is_new_work_too() {
    let outward = |call: &str| {
        request("INVITE", "sip:carol@203.0.113.9", call, 1, "")
            .replace("198.51.100.7:5060", BACKEND_A)
    };
    let mut loaded = overloaded();
    let out = loaded.script.one(BACKEND_A, &outward("a"));
    assert_eq!(out.to, address("203.0.113.9:5060"));
    loaded.rest();
    let s = &mut loaded.script;
    assert_eq!(s.one(BACKEND_A, &outward("a")), out);
    assert_eq!(s.send(BACKEND_A, &outward("b")).len(), 2, "with a 100");
    assert_eq!(loaded.served(), [1, 1]);
}

#[test]
fn a_full_table_of_transactions_rejects_nobody() {
    let one = |mode| {
        move |settings: &mut Settings| {
            (settings.transactions_max, settings.pools[0].mode) = (1, mode);
        }
    };
    let mut loaded = Loaded::with(one(Mode::Adaptive));
    with_trying(&mut loaded.script, "a");
    assert_eq!(loaded.script.one(CALLER, &invite("b")).to, address(BACKEND_B));
    assert_eq!(loaded.served(), [1, 1]);

    let mut always = Loaded::with(one(Mode::Transaction));
    with_trying(&mut always.script, "a");
    assert_eq!(always.script.status(CALLER, &invite("b")), 503);
}

/// The messages of calls in pools that are not adaptive are measured, so these calls must count
/// too.
#[test]
fn calls_of_pools_that_are_not_adaptive_count_in_the_cost_of_a_call() {
    let mut script = Script::with(Policy::Rr, |settings| {
        let other = Pool::new("other", &[("c", address(BACKEND_C), 1)]);
        let other = PoolSettings { mode: Mode::Adaptive, ..PoolSettings::new(other, Policy::Rr) };
        settings.pools[0].mode = Mode::Transaction;
        settings.pools[0].backup = Some(1);
        settings.pools.push(other);
    });
    for call in 0..100 {
        script.offer(CALLER, invite(&format!("c{call}")).as_bytes());
        script.offer(CALLER, invite(&format!("r{call}")).replace("INVITE", "REGISTER").as_bytes());
        while script.proxy.serve(script.now) {
            script.now = script.now + Duration::from_millis(1);
        }
        script.sent();
    }
    script.proxy.on_load(script.now, Load::default());
    let costs = Tier::ALL.map(|tier| script.counters.overload.tier_costs[tier as usize].get());
    // There are two messages for each call, which take a millisecond each: a REGISTER is no call.
    // No call was stateless.
    assert!(costs[0].abs_diff(2_000_000) < 2_000 && costs[1] == 0, "{costs:?}");
}

/// A model of the proxy's cost needs the tier of each piece of work.
#[test]
fn the_work_says_whether_it_was_stateless() {
    fn work(s: &mut Script, from: &str, text: &str) -> Work {
        s.offer(from, text.as_bytes());
        assert!(s.proxy.serve(s.now));
        let work = s.proxy.last_work();
        s.serve();
        work
    }
    let served =
        |class: Class, stateless| Work { served: Some(class as u8), stateless, ..Work::default() };
    let mut loaded = Loaded::new();
    for stateless in [false, true] {
        let s = &mut loaded.script;
        s.offer(CALLER, invite("a").as_bytes());
        let out = s.serve().pop().unwrap();
        let ringing = out.answer("180 Ringing");
        let backend = out.to.to_string();
        assert_eq!(work(s, &backend, &ringing), served(Class::Provisional, stateless));
        assert_eq!(work(s, CALLER, &invite("a")), served(Class::InDialog, stateless));
        let end = out.answer("486 Busy Here");
        assert_eq!(work(s, &backend, &end), served(Class::Final, stateless));
        // The call is forgotten after half a minute.
        loaded.script.pass(SECOND * 60);
        loaded.script.sent();
        loaded.full(5);
    }
}

/// A regression: the entry of each call in a stateless pool was shown as stateful.
#[test]
fn the_entry_of_a_call_shows_the_tier_of_its_pool() {
    for (mode, tier) in [
        (Mode::Transaction, Tier::Stateful),
        (Mode::Stateless, Tier::Stateless),
        (Mode::Adaptive, Tier::Stateful),
    ] {
        let mut script = Script::with(Policy::Rr, |settings| settings.pools[0].mode = mode);
        script.send(CALLER, &invite("c"));
        script.proxy.look_up(script.now, b"c");
        let entries = script.counters.call.take(b"c").unwrap();
        assert_eq!(entries.iter().map(|entry| entry.tier).collect::<Vec<_>>(), [tier], "{mode:?}");
    }
}
