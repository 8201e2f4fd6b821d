//! Compares the laws in front of a server that rejects calls while its queue is long.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

use tidegate_world::{Purpose, Seed, Timestamp};

use super::*;
use crate::limit::committed::assert_committed;
use crate::limit::{Allowance, Demand, Learning, Limits};

/// Calls a second that the server can serve.
const CAPACITY_CPS: f64 = 500.0;
/// Two lengths of the server's queue. At the first length the server begins to reject calls, and at
/// the second, shorter one it stops.
const WATERMARKS: (usize, usize) = (100, 50);
const LOADS: [f64; 5] = [0.9, 1.5, 2.0, 3.0, 5.0];
/// The end of a run and the start of the measurement, in seconds.
const ENDS_S: u64 = 180;
const COUNTED_FROM_S: u64 = 120;

/// Offers `load` times the capacity, and returns the goodput as a fraction of the capacity.
/// `rejection` is the cost of a rejection as a part of the cost of a call.
fn goodput(law: Option<RateLaw>, rejection: f64, load: f64) -> f64 {
    let allowance = Allowance::default();
    let rate = law.map(|law| RateLearning { law, ..RateLearning::default() });
    allowance.set(&Limits { learning: Learning { rate, window: None }, ..Limits::default() });
    let mut draws = Seed(3).stream(Purpose::Arrivals, 0);
    let mut drawn = |mean_s: f64| Duration::from_secs_f64(draws.exponential(mean_s));
    let start = Timestamp::from_nanos(1_000_000_000);
    let end = start + Duration::from_secs(ENDS_S);
    let counted_from = start + Duration::from_secs(COUNTED_FROM_S);
    let mut queue: VecDeque<Timestamp> = VecDeque::new();
    let (mut arrival, mut is_overloaded, mut accepted) = (start, false, 0_u32);
    // The end of the current service, and whether it accepts the call.
    let mut service: Option<(Timestamp, bool)> = None;
    while arrival < end {
        let served = service.filter(|&(done, _)| done <= arrival);
        if let Some((now, is_accepted)) = served {
            let Some(sent) = queue.pop_front() else { unreachable!() };
            if !is_accepted {
                allowance.on_not_taken(sent, true);
            } else if now >= counted_from {
                accepted += 1;
            }
            service = None;
        } else {
            if allowance.conforms(arrival, Demand::Call) && allowance.take(arrival, Demand::Call) {
                queue.push_back(arrival);
            }
            arrival = arrival + drawn(1.0 / (load * CAPACITY_CPS));
        }
        if service.is_none() && !queue.is_empty() {
            let threshold = if is_overloaded { WATERMARKS.1 + 1 } else { WATERMARKS.0 };
            is_overloaded = queue.len() >= threshold;
            let part = if is_overloaded { rejection } else { 1.0 };
            let begun = served.map_or(queue[0], |(done, _)| done);
            service = Some((begun + drawn(part / CAPACITY_CPS), !is_overloaded));
        }
    }
    f64::from(accepted) / end.since(counted_from).as_secs_f64() / CAPACITY_CPS
}

// When a law changes, read the difference in this table, and commit it with the change.
#[test]
fn the_goodput_of_every_law_is_as_committed() {
    let mut text = String::from(
        "goodput as a share of the capacity, by the cost of a rejection and the load\n",
    );
    for rejection in [0.3, 0.1, 0.02] {
        let title = format!("rejection {rejection}");
        let _ = write!(text, "{title:<16}");
        for load in LOADS {
            let _ = write!(text, "{load:>6}");
        }
        text.push('\n');
        for law in [None].into_iter().chain(RateLaw::ALL.map(Some)) {
            let _ = write!(text, "{:<16}", law.map_or("off", RateLaw::name));
            for load in LOADS {
                let _ = write!(text, "{:>6.2}", goodput(law, rejection, load));
            }
            text.push('\n');
        }
    }
    assert_committed("src/limit/rate_law/laws.txt", &text, Some(0.02));
}

#[test]
fn the_cost_of_rejections_separates_the_laws() {
    let at = |law| goodput(law, 0.3, 3.0);
    let (off, aimd, sre) = (at(None), at(Some(RateLaw::Aimd)), at(Some(RateLaw::Sre)));
    assert!(off < 0.25 && aimd > 0.9, "{off} {aimd}");
    assert!((0.6..0.9).contains(&sre), "{sre}");
}
