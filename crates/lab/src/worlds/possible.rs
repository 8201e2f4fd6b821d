//! Computes the greatest possible goodput of a run in which the load or the processor speed
//! changes.

use std::time::Duration;

use tidegate_control::bound;

use super::agents;
use crate::cost::Capacity;
use crate::run_spec::RunSpec;

/// Returns the greatest possible goodput of `run` from the time `from` to the time `to` after the
/// start of the load, in calls/s. `offered` is the ratio of the calls actually offered to the calls
/// that the load profile gives.
///
/// The function averages the load over the length of a deadline, because a call may be served at
/// any time before its deadline.
pub(crate) fn possible_cps(run: &RunSpec, from: Duration, to: Duration, offered: f64) -> f64 {
    let capacity = Capacity::under(&run.conditions);
    let ratio = capacity.ratio(&run.conditions.emulate, run.variant.overload.disposal);
    let load = agents::load(run, 1.0);
    let block = run.deadline();
    let (mut begin, mut calls) = (from, 0.0);
    while begin < to {
        let end = (begin + block).min(to);
        let length_s = (end - begin).as_secs_f64();
        let cps = offered * (load.calls_until(end) - load.calls_until(begin)) / length_s;
        let speed = run.conditions.disturbance.speed(begin + (end - begin) / 2);
        let own_cps = capacity.cps * speed;
        calls += bound::goodput(cps / own_cps, ratio) * own_cps * length_s;
        begin = end;
    }
    calls / (to - from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned;
    use crate::worlds::Kind;

    #[test]
    fn the_bound_follows_the_load_and_the_processor() {
        let text = "[emulate]\nserve_us = 1000\n[workload]\nload = 2\n\
                    profile = \"steps:0=1,4=0,6=1,6.2=0,6.4=1,6.6=0\"\n\
                    [[variant]]\noverload = {}\n";
        let mut run = planned(text, Kind::Sim).remove(0);
        let s = Duration::from_secs;
        let capacity = run.capacity_cps();
        // A rejection costs nothing in this scenario.
        let part = |run: &RunSpec, from, to, offered| {
            possible_cps(run, s(from), s(to), offered) / capacity
        };
        for (from, to, expected) in [(0, 4, 1.0), (4, 6, 0.0), (2, 6, 0.5)] {
            let part = part(&run, from, to, 1.0);
            assert!((part - expected).abs() < 1e-9, "{part} from {from} to {to} s");
        }
        // There are two bursts of 0.2 s at twice the capacity. At full capacity, the calls of the
        // first half second need 0.6 s, of which 0.5 s are available. Those of the second need 0.2
        // s.
        let bursts = part(&run, 6, 7, 1.0);
        assert!((bursts - 0.7).abs() < 1e-9, "{bursts}");
        assert!((part(&run, 0, 4, 0.25) - 0.5).abs() < 1e-9);
        run.conditions.disturbance.dearer = Some((s(2), 4.0));
        let dearer = part(&run, 0, 4, 1.0);
        assert!((dearer - 0.625).abs() < 1e-9, "{dearer}");
    }
}
