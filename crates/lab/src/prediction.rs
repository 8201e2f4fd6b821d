//! Predicts how long a run takes.

use std::time::Duration;

use crate::run_spec::RunSpec;
use crate::worlds::{self, Kind};

/// Approximate number of packets that the simulator delivers in a second of CPU time.
const DELIVERIES_PER_CPU_S: f64 = 250_000.0;

/// Returns the number of packets that the simulator delivers in `run`, if every call is set up at
/// the first attempt. A rejected call causes fewer packets. A call through a collapsing server
/// causes more.
pub fn deliveries(run: &RunSpec) -> f64 {
    let calls = worlds::load(run, 1.0).calls_until(run.load_until());
    calls * deliveries_per_call(run)
}

/// Returns an estimate of the CPU time that `run` takes in simulated time.
pub fn simulated(run: &RunSpec) -> Duration {
    Duration::from_secs_f64(deliveries(run) / DELIVERIES_PER_CPU_S)
}

/// Returns the predicted duration of `run` in seconds. For a run in simulated time, this is CPU
/// time. For a run on real sockets, this is elapsed time.
pub fn seconds(run: &RunSpec) -> f64 {
    match run.world {
        Kind::Sim => simulated(run).as_secs_f64(),
        Kind::Real => worlds::lasts(run).as_secs_f64(),
    }
}

/// Returns the average number of packets that servers, callers and answerers together get per call.
fn deliveries_per_call(run: &RunSpec) -> f64 {
    let topology = &run.conditions.topology;
    let trying = run.conditions.trying;
    let at_servers: f64 = topology
        .flows()
        .into_iter()
        .enumerate()
        .map(|(place, flow)| flow * topology.messages(place, trying).len() as f64)
        .sum();
    let at_callers: f64 = topology
        .entries()
        .map(|(place, share)| share * topology.responses_above(place, trying) as f64)
        .sum();
    // An answerer gets the INVITE, the ACK and the BYE of a call.
    let at_answerers = 3.0;
    at_servers + at_callers + at_answerers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned;

    fn predicted(text: &str) -> f64 {
        let text = format!(
            "{text}[emulate]\nserve_us = {{ default = 2000, invite = 0 }}\n\
             [schedule]\nwarm_up_s = 10\nmeasured_s = 90\n[[variant]]\noverload = {{}}\n"
        );
        deliveries(&planned(&text, Kind::Sim)[0])
    }

    #[test]
    fn a_call_is_delivered_twelve_times_by_one_server() {
        // There are 100 calls/s for 100 s, and for 0.5 s until the deadline of the last call.
        assert!((predicted("") - 120_600.0).abs() < 1e-6);
        let profile = "[workload]\nprofile = \"steps:0=0,50=1\"\n";
        assert!((predicted(profile) - 60_600.0).abs() < 1e-6);
    }

    #[test]
    fn a_prediction_counts_each_hop_and_each_100() {
        let two = "[workload]\ntrying = true\n[server]\nmode = \"transaction\"\n\
                   [[node]]\nname = \"a\"\nto = [\"b\"]\nunder_test = true\n\
                   [[node]]\nname = \"b\"\nto = [\"answerers\"]\n";
        // A call costs 12 ms at server `a`, so the capacity is 83.3 calls/s. Each server gets 7
        // messages of a call, the caller 4 responses, and the answerer 3 requests.
        let expected = 100.5 / 0.012 * 21.0;
        assert!((predicted(two) - expected).abs() < 1e-6, "{}", predicted(two));
    }
}
