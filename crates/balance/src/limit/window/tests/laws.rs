//! Compares the laws in front of a server that does not report its overload. INVITEs without a
//! response are retransmitted.

use std::fmt::Write;

use super::*;
use crate::limit::committed::assert_committed;

const LOADS: [f64; 4] = [0.9, 1.5, 3.0, 5.0];
/// Time for which a caller waits for the first response, µs.
const GIVEN_UP_US: u64 = 10_000_000;
/// Time before the measurement, and its length, in seconds.
const WARM_UP_S: f64 = 20.0;
const MEASURED_S: f64 = 20.0;

/// Returns the goodput as a fraction of the capacity, and the median time to a response in ms.
fn run(law: Option<WindowLaw>, room: usize, load: f64) -> (f64, f64) {
    let mut world = World::new(12, (1_200.0, 800.0));
    world.window.set(law.map(|law| WindowLearning { law, ..WindowLearning::default() }));
    world.room = room;
    world.repeated = Some(0.3);
    let capacity = world.capacity_cps();
    world.run(load * capacity, WARM_UP_S);
    world.took_us.clear();
    world.run(load * capacity, MEASURED_S);
    let mut took_us = world.took_us;
    took_us.sort_unstable();
    let good = took_us.partition_point(|&took| took <= GIVEN_UP_US);
    let median = took_us.get(took_us.len() / 2).copied().unwrap_or_default();
    (good as f64 / MEASURED_S / capacity, median as f64 / 1e3)
}

// When a law changes, read the difference in this table, and commit it with the change.
#[test]
fn the_goodput_of_every_law_is_as_committed() {
    let mut text =
        String::from("goodput (responses within 10 s), and median response time in ms\n");
    for (title, room) in [("long receive buffer", usize::MAX), ("80 messages", 80)] {
        let _ = write!(text, "{title:<20}");
        for load in LOADS {
            let _ = write!(text, "{load:>14}");
        }
        text.push('\n');
        for law in [None].into_iter().chain(WindowLaw::ALL.map(Some)) {
            let _ = write!(text, "{:<20}", law.map_or("off", WindowLaw::name));
            for load in LOADS {
                let (goodput, median_ms) = run(law, room, load);
                let _ = write!(text, " {goodput:>5.2} {median_ms:>7.0}");
            }
            text.push('\n');
        }
    }
    assert_committed("src/limit/window/tests/laws.txt", &text, Some(0.02));
}

#[test]
fn every_law_keeps_goodput_that_retransmissions_would_destroy() {
    let (alone, _) = run(None, usize::MAX, 3.0);
    assert!(alone < 0.2, "{alone}");
    for law in WindowLaw::ALL {
        let (goodput, _) = run(Some(law), usize::MAX, 3.0);
        assert!(goodput > 0.8, "{law:?}: {goodput}");
    }
}
