//! Counts the instructions for each message of a call in the proxy alone, in both modes, and for a
//! rejection.
//!
//! `bench/instructions` runs this program and compares the counts with their targets. Other calls
//! precede the counted call, so that costs of a first call are excluded.
#![allow(missing_docs)] // The macros make public items.

mod call;

use std::sync::Arc;
use std::time::Duration;

use call::Bench;
use gungraun::{library_benchmark, library_benchmark_group, main};
use tidegate_balance::{
    BackendRegistry, BackendSpec, EndpointAddress, Limits, Policy, Pool as Backends, PoolSpec,
};
use tidegate_control::registry::Entry;
use tidegate_control::{Allowance, Control, Decide, Law, Per, Signals};
use tidegate_proxy::{Excess, Mode, PoolSettings, Settings, SourceLimit};
use tidegate_world::{Received, Timestamp, Transmit};

/// The number of calls before the counted call.
const WARM: usize = 50;

fn prepare(mode: Mode, adjust: impl FnOnce(&mut Settings), kind: usize) -> (Box<Bench>, Received) {
    let mut bench = Bench::new(mode, adjust);
    for _ in 0..WARM {
        bench.call_up_to(6);
        bench.wait(Duration::from_micros(100));
    }
    bench.call_up_to(kind);
    let received = bench.message(kind);
    (Box::new(bench), received)
}

fn stateless(kind: usize) -> (Box<Bench>, Received) {
    prepare(Mode::Stateless, |_| {}, kind)
}

fn transaction(kind: usize) -> (Box<Bench>, Received) {
    prepare(Mode::Transaction, |_| {}, kind)
}

#[library_benchmark]
#[bench::stateless_invite(args = (0), setup = stateless)]
#[bench::stateless_180(args = (1), setup = stateless)]
#[bench::stateless_200_invite(args = (2), setup = stateless)]
#[bench::stateless_ack(args = (3), setup = stateless)]
#[bench::stateless_bye(args = (4), setup = stateless)]
#[bench::stateless_200_bye(args = (5), setup = stateless)]
#[bench::transaction_invite(args = (0), setup = transaction)]
#[bench::transaction_180(args = (1), setup = transaction)]
#[bench::transaction_200_invite(args = (2), setup = transaction)]
#[bench::transaction_ack(args = (3), setup = transaction)]
#[bench::transaction_bye(args = (4), setup = transaction)]
#[bench::transaction_200_bye(args = (5), setup = transaction)]
#[bench::reject_invite(args = (), setup = rejecting)]
#[bench::full_invite(args = (), setup = full)]
#[bench::share_invite(args = (), setup = sharing)]
#[bench::limit_invite(args = (), setup = limiting)]
#[bench::banned_invite(args = (), setup = banning)]
fn message((mut bench, received): (Box<Bench>, Received)) -> (Box<Bench>, Option<Transmit>) {
    let sent = bench.pass(received);
    (bench, sent)
}

/// Makes a proxy whose only remaining work is to forget [`WARM`] calls.
fn spent(mode: Mode) -> Box<Bench> {
    let mut bench = Bench::new(mode, |_| {});
    for _ in 0..WARM {
        bench.call_up_to(6);
    }
    Box::new(bench)
}

// Counts the instructions for all timers of [`WARM`] calls.
#[library_benchmark(setup = spent)]
#[bench::stateless(Mode::Stateless)]
#[bench::transaction(Mode::Transaction)]
fn timers(mut bench: Box<Bench>) -> Box<Bench> {
    bench.wait(Duration::from_secs(60));
    bench
}

// Counts the instructions of a reload that replaces half of the back ends and reorders the rest.
#[library_benchmark(setup = half_changed)]
#[bench::of_1000(1, 1_000)]
#[bench::of_10000(1, 10_000)]
#[bench::of_10000_in_100(100, 100)]
fn reload(
    (mut bench, registry, pool_specs): (Box<Bench>, BackendRegistry, Vec<PoolSpec>),
) -> Box<Bench> {
    let pools = registry.enlist(bench.now, 1, &pool_specs);
    assert!(bench.proxy.reload(bench.now, settings_of(&pools), Vec::new()));
    bench
}

library_benchmark_group!(name = calls, benchmarks = [message, timers, reload]);
main!(library_benchmark_groups = calls);

/// Makes a proxy with `pools` pools of `backends` back ends each, and the pools after a reload.
fn half_changed(pools: u16, backends: u16) -> (Box<Bench>, BackendRegistry, Vec<PoolSpec>) {
    let post = |pool: u16, number: u16| {
        let address = ([10, pool as u8, (number >> 8) as u8, number as u8], 5060).into();
        BackendSpec {
            name: format!("sip:{address}"),
            endpoint_address: EndpointAddress::Address(address),
            weight: 1,
            priority: 0,
            limits: Limits::default(),
        }
    };
    let pool_spec = |pool, numbers: &mut dyn Iterator<Item = u16>| PoolSpec {
        name: format!("app-{pool}"),
        slow_start: Duration::ZERO,
        backends: numbers.map(|number| post(pool, number)).collect(),
        services: Vec::new(),
    };
    let before: Vec<_> = (0..pools).map(|pool| pool_spec(pool, &mut (0..backends))).collect();
    let half = backends / 2;
    let after = (0..pools).map(|pool| pool_spec(pool, &mut (half..half + backends).rev()));
    let registry = BackendRegistry::new(&before);
    let mut bench = Bench::new(Mode::Transaction, |settings| {
        settings.pools = settings_of(&registry.pools());
    });
    bench.call_up_to(6);
    (Box::new(bench), registry, after.collect())
}

fn settings_of(pools: &[Backends]) -> Vec<PoolSettings> {
    pools.iter().map(|pool| PoolSettings::new(pool.clone(), Policy::P2c)).collect()
}

/// Makes an INVITE that the gate rejects, after the rejection of [`WARM`] other INVITEs.
fn rejecting() -> (Box<Bench>, Received) {
    let adjust = |settings: &mut Settings| {
        settings.overload.gate.decide = Decide::Arrival;
        settings.overload.gate.law = NOTHING.values(&[]).expect("it has no parameters");
    };
    let mut bench = Bench::new(Mode::Transaction, adjust);
    for _ in 0..WARM {
        let invite = bench.message(0);
        let rejected = bench.pass(invite).expect("an answer");
        assert!(rejected.bytes.starts_with(b"SIP/2.0 503 "));
    }
    let received = bench.message(0);
    (Box::new(bench), received)
}

/// Makes the last INVITE of a flood, for which none of ten back ends has headroom.
fn full() -> (Box<Bench>, Received) {
    flooding(|settings| {
        let limits = Limits { cps_max: Some(0.001), ..Limits::default() };
        let backend = || {
            let backend = Arc::clone(&settings.pools[0].pool.backends()[0]);
            backend.set_limits(&limits);
            backend
        };
        settings.pools[0].pool = Backends::of("app", (0..10).map(|_| backend()).collect());
    })
}

/// Makes the last INVITE of a flood, from a source that has used its share.
fn sharing() -> (Box<Bench>, Received) {
    flooding(|settings| {
        settings.overload.gate.sources.fair = true;
        settings.overload.gate.law = NOTHING.values(&[]).expect("it has no parameters");
    })
}

/// Makes the last INVITE of a flood, which is dropped because the source is above its limit.
fn limiting() -> (Box<Bench>, Received) {
    flooding(|settings| settings.overload.sources.limits = vec![limit(Excess::Drop)])
}

/// Makes the last INVITE of a flood, from a source that is banned by then.
fn banning() -> (Box<Bench>, Received) {
    let ban = Excess::Ban(Duration::from_secs(3600));
    flooding(|settings| settings.overload.sources.limits = vec![limit(ban)])
}

fn limit(then: Excess) -> SourceLimit {
    let from = "0.0.0.0/0".parse().expect("a network");
    SourceLimit { from, rate_cps: 0.001, burst: 1, per: Per::Source, then }
}

/// Makes the last INVITE of a flood. The proxy, whose settings `adjust` changes, got the others.
fn flooding(adjust: impl FnOnce(&mut Settings)) -> (Box<Bench>, Received) {
    let mut bench = Bench::new(Mode::Transaction, adjust);
    for _ in 0..10 * WARM {
        let invite = bench.message(0);
        bench.pass(invite);
        bench.wait(Duration::from_micros(10));
    }
    let received = bench.message(0);
    (Box::new(bench), received)
}

/// A law that admits nothing.
static NOTHING: Entry = Entry {
    name: "nothing",
    summary: "",
    source: "",
    doc: "",
    params: &[],
    check: |_| Ok(()),
    build: |_| Box::new(Nothing),
};

#[derive(Debug)]
struct Nothing;

impl Law for Nothing {
    fn on_arrival(&mut self, _: Timestamp, _: &Signals, control: &mut Control) {
        control.admit_of_all(Allowance::Fraction(0.0));
    }
}
