//! Counts the instructions that the table spends on a transaction over its life, while 100,000
//! transactions are live, under valgrind (which must be installed):
//!
//! ```text
//! cargo run --release -p tidegate-transaction --example cycles
//! ```
//!
//! A cycle is the work of a proxy for a request that is answered. The proxy inserts an entry with a
//! timer for T1 and finds the entry once. When the timer fires, the proxy arms it for 64·T1. When
//! the timer fires again, the proxy removes the entry. The difference between two runs of different
//! length is divided by the difference in length, so start-up costs do not count.

use std::process::{Command, ExitCode};
use std::time::Duration;

use tidegate_sip::Method;
use tidegate_transaction::{Key, Table, Timing};
use tidegate_world::Timestamp;

const LIVE: u64 = 100_000;
const CYCLES: [u64; 2] = [200_000, 1_200_000];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if let Some(cycles) = arguments.next() {
        let cycles = cycles.parse().expect("a number of cycles");
        run(cycles);
        return ExitCode::SUCCESS;
    }
    let [short, long] = CYCLES.map(count);
    let (Some(short), Some(long)) = (short, long) else {
        eprintln!("valgrind did not run");
        return ExitCode::FAILURE;
    };
    println!("{} instructions a cycle", (long - short) / (CYCLES[1] - CYCLES[0]));
    ExitCode::SUCCESS
}

/// Runs this number of transactions, evenly spaced.
fn run(cycles: u64) {
    let timing = Timing::default();
    let interval = timing.patience() / LIVE as u32;
    let mut table = Table::new(2 * LIVE as usize);
    let mut now = Timestamp::ZERO;
    let mut removed = 0;
    for cycle in 0..cycles {
        now = now + interval;
        while let Some(handle) = table.next_due(now) {
            let ends: Timestamp = *table.get(handle).expect("it lives");
            if ends <= now {
                table.remove(handle);
                removed += 1;
            } else {
                table.arm(handle, ends);
            }
        }
        // An odd multiplier turns numbers into values that look like hashes.
        let key =
            Key { identity: cycle.wrapping_mul(0x9E37_79B9_7F4A_7C15), method: Method::Invite };
        let inserted = table.insert(key, now + timing.patience(), now + timing.t1);
        assert!(inserted.is_ok() && table.find(key).is_some(), "there is room");
    }
    assert!(removed + 2 * LIVE > cycles, "{removed} were removed");
    assert!(table.next_due(now - Duration::from_secs(1)).is_none());
}

/// Returns the number of instructions of a run of this number of cycles, or `None` if valgrind
/// fails.
fn count(cycles: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .arg(cycles.to_string())
        .output()
        .ok()?;
    let report = String::from_utf8(output.stderr).ok()?;
    let line = report.lines().find(|line| line.contains("Collected"))?;
    line.rsplit(' ').next()?.parse().ok()
}
