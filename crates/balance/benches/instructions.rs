//! Counts the instructions of one selection by each policy, among 2 to 1,000 back ends.
//!
//! `bench/instructions` runs this. Each back end holds one to eight calls and as many open
//! transactions, drawn at random.
#![allow(missing_docs)] // The macros make public items.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use gungraun::{library_benchmark, library_benchmark_group, main};
use tidegate_balance::{CallLease, Picker, Policy, Pool, TransactionLease, Work};
use tidegate_world::{Purpose, Seed, Timestamp};

const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);

struct Bench {
    picker: Picker,
    _held: Vec<(CallLease, TransactionLease)>,
}

fn loaded(policy: Policy, backends: usize) -> Bench {
    let names: Vec<_> = (0..backends).map(|i| format!("b{i}")).collect();
    let address = |i: usize| SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + i as u32), 5060));
    let listed: Vec<_> =
        names.iter().enumerate().map(|(i, name)| (name.as_str(), address(i), 1)).collect();
    let pool = Pool::new("app", &listed);
    let picker = Picker::new(pool, policy, Seed(1).stream(Purpose::Balance, 0));
    let mut load = Seed(2).stream(Purpose::Arrivals, 0);
    let mut held = Vec::new();
    for i in 0..backends {
        for _ in 0..1 + load.below(8) {
            let call = picker.call_lease(i);
            let mut lease = picker.transaction_lease(NOW, i, Work::CallStart);
            lease.on_answered(NOW + Duration::from_micros(100 + load.below(1000)));
            held.push((call, lease));
        }
    }
    let mut bench = Bench { picker, _held: held };
    // Excludes one-time costs of the first selection.
    pick_one(&mut bench);
    bench
}

fn pick_one(bench: &mut Bench) -> Option<usize> {
    bench.picker.pick(NOW, 0x9e37_79b9_7f4a_7c15, None)
}

macro_rules! policies {
    ($($name:ident $policy:ident),* $(,)?) => {
        $(#[library_benchmark(setup = loaded)]
        #[bench::of_2(Policy::$policy, 2)]
        #[bench::of_10(Policy::$policy, 10)]
        #[bench::of_100(Policy::$policy, 100)]
        #[bench::of_1000(Policy::$policy, 1000)]
        fn $name(mut bench: Bench) -> (Bench, Option<usize>) {
            let picked = pick_one(&mut bench);
            (bench, picked)
        })*
        library_benchmark_group!(name = pick, benchmarks = [$($name),*]);
    };
}

policies! {
    rr Rr, hash Hash, fnv Fnv, cjsq Cjsq, tjsq Tjsq, tlwl Tlwl, hash_to HashTo, rwma Rwma, p2c P2c,
    peak_ewma PeakEwma, rendezvous Rendezvous,
}

main!(library_benchmark_groups = pick);
