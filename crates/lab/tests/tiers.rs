//! Tests of service with transactions, without, and rejection, in simulated time.

use std::sync::atomic::AtomicBool;

use std::path::Path;

use tidegate_lab::outcome::Outcome;
use tidegate_lab::run_spec::runs;
use tidegate_lab::scenario::Scenario;
use tidegate_lab::worlds::{Kind, Simulated, World};

/// A call of six messages costs 1.2 ms with transactions and 0.72 ms without. So the capacity is
/// 833 calls/s with transactions and 1389 calls/s without.
const COSTS: &str = "[emulate]\nserve_us = 200\nserve_stateless_us = 120\nreject_us = 20\n";

/// Cost of a call without transactions, as a fraction of the cost of a call with transactions.
const STATELESS: f64 = 0.6;

/// Runs one server in this mode and under this law, at `load` times its capacity with transactions.
fn run(mode: &str, law: &str, load: f64) -> Outcome {
    // Loads are multiples of the server's capacity in its mode.
    let load = if mode == "stateless" { load * STATELESS } else { load };
    let text = format!(
        "title = \"t\"\n[workload]\nload = {load}\n\
         [schedule]\nwarm_up_s = 10\nmeasured_s = 20\nrepetitions = 1\n\
         [[node]]\nname = \"server\"\nto = [\"answerers\"]\nshare = 1\nunder_test = true\n\
         mode = \"{mode}\"\n{COSTS}[[variant]]\noverload = {{ law = \"{law}\" }}\n"
    );
    let scenario = Scenario::parse(Path::new("s.toml"), text.as_bytes());
    let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
    let run = runs(&scenario, Kind::Sim).remove(0);
    let folder = tempfile::tempdir().unwrap();
    Simulated::new().run(&run, folder.path(), &AtomicBool::new(false)).unwrap()
}

/// Returns the share of the forwarded calls that the server handled with transactions. Only these
/// calls cause a 100.
fn stateful(outcome: &Outcome) -> f64 {
    let sent = |from: &str, to: &str, message: &str| {
        let flow = |f: &&tidegate_lab::outcome::MessageCount| {
            (&*f.from, &*f.to, &*f.message) == (from, to, message)
        };
        outcome.flows.iter().find(flow).map_or(0, |flow| flow.sent) as f64
    };
    sent("server", "callers", "100 INVITE") / sent("server", "answerers", "INVITE")
}

#[test]
fn below_its_capacity_every_call_has_transactions() {
    let outcome = run("adaptive", "occ", 0.7);
    assert_eq!((outcome.good, stateful(&outcome)), (outcome.offered, 1.0));
}

#[test]
fn no_call_is_rejected_that_can_be_served_without_transactions() {
    // `occ` decides by the occupancy, `codel` by the delay, and `pi` by the occupancy in a tenth of
    // a second. Under the last two, a short burst of calls may cause rejections: `codel` rejects no
    // calls under four or five of six seeds, and 12 to 18 of 21,600 calls under the others.
    for (law, rejected_max) in [("occ", 0), ("codel", 50), ("pi", 50)] {
        let always = run("transaction", law, 1.3);
        assert!(always.rejected > always.offered / 7, "{law}: {}", always.rejected);
        let outcome = run("adaptive", law, 1.3);
        let Outcome { offered, good, rejected, .. } = outcome;
        assert!(rejected <= rejected_max, "{law}: {rejected} of {offered}");
        assert_eq!(good, offered - rejected, "{law}");
        let share = stateful(&outcome);
        assert!((0.01..0.4).contains(&share), "{law}: {share}");
    }
}

#[test]
fn beyond_that_load_it_serves_as_much_as_a_server_without_transactions() {
    for load in [1.8, 3.0] {
        let [adaptive, stateless] = ["adaptive", "stateless"].map(|mode| run(mode, "pi", load));
        let kept = adaptive.good as f64 / stateless.good as f64;
        assert!((0.97..1.03).contains(&kept), "{load}: {kept}");
        assert!(adaptive.rejected > 0 && stateful(&adaptive) < 0.02, "{}", stateful(&adaptive));
    }
}
