//! Tests of runs in simulated time: topologies, faults, links, workloads.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_lab::outcome::{NodeOutcome, Outcome};
use tidegate_lab::run_spec::{RunSpec, runs};
use tidegate_lab::scenario::Scenario;
use tidegate_lab::worlds::{Kind, Simulated, World};

/// A call of six messages costs 6 ms, so the capacity is 166.7 calls/s.
const COSTS: &str = "[emulate]\nserve_us = 1000\nreject_us = 100\n";

const VARIANT: &str = "[[variant]]\noverload = { law = \"pi\" }\n";

/// Returns the outcome of the only run of a scenario, and its timeline.
fn run(text: &str) -> (Outcome, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("calls.txt"), "0.5\n1\n1\n2.5\n").unwrap();
    let file = folder.path().join("s.toml");
    let text = format!("title = \"t\"\n{text}\n{COSTS}{VARIANT}");
    let scenario = Scenario::parse(&file, text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let mut runs = runs(&scenario, Kind::Sim);
    let run = runs.remove(0);
    let go_on = AtomicBool::new(false);
    let outcome = Simulated::new().run(&run, folder.path(), &go_on).unwrap();
    let csv = fs::read_to_string(folder.path().join("timeline.csv")).unwrap();
    (outcome, csv)
}

fn node<'a>(outcome: &'a Outcome, name: &str) -> &'a NodeOutcome {
    outcome.nodes.iter().find(|node| node.node == name).unwrap()
}

/// Returns the number of calls offered in the whole run, measured or not.
fn offered(outcome: &Outcome) -> u64 {
    outcome.counted("offered") as u64
}

/// Returns the number of messages of a kind that one party sent to another, and the number of these
/// that were lost on the way.
fn flow(outcome: &Outcome, from: &str, to: &str, message: &str) -> (u64, u64) {
    let flow = |f: &&_| {
        let tidegate_lab::outcome::MessageCount { from: a, to: b, message: m, .. } = f;
        (&**a, &**b, &**m) == (from, to, message)
    };
    outcome.flows.iter().find(flow).map_or((0, 0), |flow| (flow.sent, flow.lost))
}

const TREE: &str = "[[node]]\nname = \"west\"\nto = [\"core\"]\nshare = 3\nmode = \"transaction\"\n\
    [[node]]\nname = \"east\"\nto = [\"core\"]\nshare = 1\n\
    [[node]]\nname = \"core\"\nto = [\"answerers\"]\nunder_test = true\n";

#[test]
fn calls_go_through_a_tree_of_servers_in_proportion_to_the_shares() {
    let schedule = "[schedule]\nwarm_up_s = 0\nmeasured_s = 20\nrepetitions = 1\n";
    let (outcome, csv) = run(&format!("[workload]\nload = 0.5\n{schedule}{TREE}"));
    assert_eq!(outcome.good, outcome.offered);
    let measured = outcome.offered as f64;
    assert!(
        (measured / 20.0 / 83.3 - 1.0).abs() < 0.1,
        "half of 166.7 calls/s: {measured} in 20 s"
    );
    let all = offered(&outcome);
    let west = flow(&outcome, "callers", "west", "INVITE").0 as f64;
    assert!((west / all as f64 - 0.75).abs() < 0.05, "{west} of {all}");
    let callers: Vec<_> = outcome.callers.iter().map(|callers| &*callers.to).collect();
    assert_eq!(callers, ["west", "east"]);
    // Only servers with transactions send a 100. Each call ends with a BYE.
    assert_eq!(flow(&outcome, "west", "callers", "100 INVITE").0, west as u64);
    assert_eq!(flow(&outcome, "east", "callers", "100 INVITE").0, 0);
    assert_eq!(flow(&outcome, "core", "answerers", "BYE").0, all);
    let core = node(&outcome, "core");
    assert_eq!((core.received["invite"], core.starts), (all, 1));
    for row in ["20.500,core,occupancy,", "0.100,callers-east,offered_cps,"] {
        assert!(csv.lines().any(|line| line.starts_with(row)), "{row}: {csv}");
    }
}

const SHORT: &str = "[schedule]\nwarm_up_s = 0\nmeasured_s = 10\nrepetitions = 1\n";

/// The trunk of each server calls from the address after those of the three small sources. A limit
/// on this address at each server rejects calls of the trunks only.
#[test]
fn the_trunk_is_the_last_source_of_each_server() {
    let entry = |name: &str, trunk: &str| {
        format!(
            "[[node]]\nname = \"{name}\"\nto = [\"core\"]\n\
             [[node.overload.limit]]\nfrom = \"{trunk}\"\nrate_cps = 0.1\nburst = 1\n"
        )
    };
    let (west, east) = (entry("west", "10.1.0.4"), entry("east", "10.2.0.4"));
    let core = "[[node]]\nname = \"core\"\nto = [\"answerers\"]\nunder_test = true\n";
    let sources = "load = 0.3\nsources = 3\ntrunk = 0.5\n";
    let (outcome, _) = run(&format!("[workload]\n{sources}{SHORT}{west}{east}{core}"));
    assert_eq!(outcome.others_in_time, Some(1.0), "{outcome:?}");
    assert!(outcome.trunk_in_time.is_some_and(|part| part < 0.05), "{outcome:?}");
    let rejected = outcome.rejected as f64 / outcome.offered as f64;
    assert!((rejected - 0.5).abs() < 0.1, "the trunks have half of the calls: {rejected}");
}

#[test]
fn a_crash_loses_waiting_messages_and_a_stall_delays_them() {
    let fault = |kind: &str| {
        let fault = format!("[[fault]]\nkind = \"{kind}\"\nat_s = 4\nfor_s = 2\n");
        run(&format!("[workload]\nload = 0.3\ndeadline_ms = 4000\n{SHORT}{fault}")).0
    };
    let crashed = fault("crash");
    let server = &crashed.nodes[0];
    assert_eq!(server.starts, 2);
    // The callers got ICMP errors, but retransmit their INVITEs nevertheless.
    let invites = flow(&crashed, "callers", "server", "INVITE");
    assert!(invites.1 > 50 && invites.0 > offered(&crashed) + 50, "{invites:?}");
    assert!(crashed.good > crashed.offered * 9 / 10, "{} of {}", crashed.good, crashed.offered);
    assert_eq!(server.received["invite"], invites.0 - invites.1);

    let stalled = fault("stall");
    assert_eq!(stalled.nodes[0].starts, 1);
    let invites = flow(&stalled, "callers", "server", "INVITE");
    assert!(invites.1 == 0 && invites.0 > offered(&stalled) + 50, "{invites:?}");
    // The server decides about waiting messages when it reads them. It reads many at once after the
    // stall, and the law rejects some of them.
    assert_eq!(stalled.good + stalled.rejected, stalled.offered);
}

/// Work that arrives during a stall must wait for the processor after the stall. The emulated
/// processor once had already done this work when the stall ended.
#[test]
fn a_stalled_server_does_no_work() {
    let p50_ms = |fault: &str| {
        // The calls after the warm-up come 0.5 to 2 s after the end of the stall.
        let text = format!(
            "title = \"t\"\n[workload]\nload = 0.9\n\
             [emulate]\nserve_us = {{ default = 0, invite = 6000 }}\n{fault}\
             [schedule]\nwarm_up_s = 5\nmeasured_s = 1.5\nrepetitions = 1\n\
             [[variant]]\noverload = {{ law = \"none\", queue = \"fifo\" }}\n"
        );
        let scenario = Scenario::parse(Path::new("s"), text.as_bytes());
        let run = runs(&scenario.unwrap_or_else(|e| panic!("{e}")), Kind::Sim).remove(0);
        let folder = tempfile::tempdir().unwrap();
        let outcome = Simulated::new().run(&run, folder.path(), &AtomicBool::new(false)).unwrap();
        outcome.set_up_delay.unwrap().p50_ms
    };
    let stalled = p50_ms("[[fault]]\nkind = \"stall\"\nat_s = 4\nfor_s = 0.5\n");
    assert!(stalled > 100.0, "{stalled}");
    let steady = p50_ms("");
    assert!(steady < 100.0, "{steady}");
}

#[test]
fn over_tcp_a_busy_server_makes_its_peers_wait_and_loses_nothing() {
    let over_tcp = |load: &str| {
        let workload = format!("[workload]\nload = {load}\nsources = 2\n");
        run(&format!("[tcp]\nwindow_bytes = 4096\n{workload}{SHORT}")).0
    };
    let calm = over_tcp("0.5");
    assert_eq!(calm.good, calm.offered);
    let busy = over_tcp("3");
    // Nothing is retransmitted, and nothing is lost in full buffers.
    let invites = flow(&busy, "callers", "server", "INVITE");
    assert_eq!(invites, (offered(&busy), 0));
    assert!(busy.good as f64 > 0.7 * 1667.0, "{} in 10 s", busy.good);
}

#[test]
fn a_partition_and_a_link_are_between_those_that_are_named() {
    let (outcome, _) = run(&format!(
        "[workload]\nload = 0.3\n{SHORT}\
         [[link]]\nfrom = \"callers\"\nto = \"server\"\nloss = 0.25\n\
         [[fault]]\nkind = \"partition\"\nat_s = 4\nfor_s = 1\nfrom = \"server\"\nto = \"answerers\"\n"
    ));
    let (sent, lost) = flow(&outcome, "callers", "server", "INVITE");
    assert!((lost as f64 / sent as f64 - 0.25).abs() < 0.06, "{lost} of {sent}");
    assert_eq!(flow(&outcome, "server", "callers", "200 INVITE").1, 0);
    let (_, lost) = flow(&outcome, "server", "answerers", "INVITE");
    assert!((20..120).contains(&lost), "a second of 50 calls/s and repetitions: {lost}");
}

#[test]
fn the_time_to_recover_is_counted_from_the_end_of_the_overload() {
    let schedule = "[schedule]\nwarm_up_s = 0\nmeasured_s = 30\nrepetitions = 1\n";
    let burst = "load = 0.8\nprofile = \"steps:10=4,15=1\"\n";
    let (outcome, _) = run(&format!("[workload]\n{burst}{schedule}"));
    let recovery_s = outcome.recovery_s.expect("it recovers");
    assert!(recovery_s < 2.0, "{recovery_s}");
    let (steady, _) = run(&format!("[workload]\nload = 0.8\n{schedule}"));
    assert_eq!(steady.recovery_s, None, "there was no overload");
}

#[test]
fn a_trace_determines_the_calls() {
    let (outcome, csv) = run(&format!("[workload]\narrivals = \"trace:calls.txt\"\n{SHORT}"));
    assert_eq!((outcome.offered, outcome.good), (4, 4));
    assert!(csv.contains("0.500,callers-server,offered_cps,10\n"), "{csv}");
    assert!(csv.contains("1.000,callers-server,offered_cps,20\n"), "{csv}");
}

#[test]
fn only_acknowledged_calls_count_if_the_scenario_asks_for_it() {
    let deaf = "[[link]]\nfrom = \"server\"\nto = \"answerers\"\nloss = 0.5\n";
    let run = |goodput: &str| {
        run(&format!(
            "[workload]\nload = 0.1\ndeadline_ms = 1000\ngoodput = \"{goodput}\"\n{SHORT}{deaf}"
        ))
        .0
    };
    let (answered, acknowledged) = (run("answered"), run("acknowledged"));
    assert_eq!(answered.good, answered.set_up_in_time);
    assert_eq!(answered.set_up_in_time, acknowledged.set_up_in_time, "the same calls");
    let part = acknowledged.good as f64 / answered.good as f64;
    // Half of the ACKs are lost. Some calls are set up in time because the answerer retransmits its
    // 200.
    assert!((0.3..0.9).contains(&part), "{part}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let text = "[workload]\nload = 2\narrivals = \"mmpp:1=0.5,5=0.1\"\nhold_s = 1\nhold = \"exp\"\n\
                [[link]]\njitter_ms = 5\nloss = 0.01\n\
                [schedule]\nwarm_up_s = 1\nmeasured_s = 3\nrepetitions = 1\n";
    let (first, again) = (run(text), run(text));
    assert_eq!(first, again);
    let other = run(&format!("{text}seed = 2\n"));
    assert_ne!(first, other);
}

/// Returns the outcome of a run at four fifths of the capacity, with costs that have this
/// distribution.
fn with_costs(distribution: &str, seed: u32) -> Outcome {
    let text = format!(
        "title = \"t\"\n[workload]\nload = 0.8\n\
         [schedule]\nwarm_up_s = 2\nmeasured_s = 10\nrepetitions = 1\nseed = {seed}\n\
         {COSTS}distribution = \"{distribution}\"\n\
         [[variant]]\noverload = {{ law = \"none\" }}\n"
    );
    let scenario = Scenario::parse(Path::new("s.toml"), text.as_bytes());
    let run = runs(&scenario.unwrap_or_else(|e| panic!("{e}")), Kind::Sim).remove(0);
    let folder = tempfile::tempdir().unwrap();
    Simulated::new().run(&run, folder.path(), &AtomicBool::new(false)).unwrap()
}

#[test]
fn costs_that_vary_delay_calls_and_are_drawn_by_the_seed_of_the_run() {
    let p99 = |outcome: &Outcome| outcome.set_up_delay.as_ref().unwrap().p99_ms;
    let (constant, varied) = (with_costs("constant", 1), with_costs("hyperexponential:10", 1));
    assert!(p99(&varied) > 1.5 * p99(&constant), "{constant:?} {varied:?}");
    assert_eq!(varied, with_costs("hyperexponential:10", 1));
    assert_ne!(varied, with_costs("hyperexponential:10", 2));
}

#[test]
fn no_call_begins_beyond_the_limit_of_open_calls() {
    let (outcome, _) =
        run(&format!("[workload]\nload = 0.5\nhold_s = 100\nopen_max = 10\n{SHORT}"));
    assert_eq!(outcome.set_up, 10);
    assert!(outcome.offered > 500);
    assert!(outcome.generator.kept_up(), "the scenario chose the limit");
}

#[test]
fn configurations_lie_beside_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("title = \"t\"\n{SHORT}{TREE}{COSTS}{VARIANT}");
    let scenario = Scenario::parse(Path::new("s.toml"), text.as_bytes()).unwrap();
    let run = runs(&scenario, Kind::Sim).remove(0);
    Simulated::new().run(&run, folder.path(), &AtomicBool::new(false)).unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("core.toml").contains("law = \"pi\"") && read("core.toml").contains("[emulate]"));
    assert!(
        read("west.toml").contains("law = \"none\"") && !read("west.toml").contains("[emulate]")
    );
}

#[test]
fn a_run_that_is_cancelled_ends() {
    let text = format!("title = \"t\"\n{COSTS}{VARIANT}");
    let scenario = Scenario::parse(Path::new("s.toml"), text.as_bytes()).unwrap();
    let run = runs(&scenario, Kind::Sim).remove(0);
    let folder = tempfile::tempdir().unwrap();
    let result = Simulated::new().run(&run, folder.path(), &AtomicBool::new(true));
    assert_eq!(result, Err("cancelled".to_owned()));
}

/// Each server handles 250 calls/s. The whole cost of a transaction is charged with its request.
const FARM: &str = "[emulate]\nserve_us = { default = 0, invite = 2500, bye = 1500 }\n\
    [server]\nqueue_max = 100_000\n[workload]\nload = 0.9\nhold_s = 0.5\nhold = \"lognormal:1\"\n";

/// Returns the outcome of a farm under this policy.
fn farm(keys: &str, policy: &str) -> Outcome {
    let variant = format!(
        "[[variant]]\npool = {{ policy = \"{policy}\" }}\n\
         overload = {{ law = \"none\", queue = \"fifo\" }}\n"
    );
    let text = format!("title = \"t\"\n{SHORT}{FARM}{keys}{variant}");
    let scenario = Scenario::parse(Path::new("s"), text.as_bytes());
    let run = runs(&scenario.unwrap_or_else(|e| panic!("{e}")), Kind::Sim).remove(0);
    let folder = tempfile::tempdir().unwrap();
    Simulated::new().run(&run, folder.path(), &AtomicBool::new(false)).unwrap()
}

#[test]
fn policies_that_count_work_do_not_overload_the_slow_server() {
    let unequal = "[farm]\nnodes = 2\nspeeds = [1, 0.5]\n";
    let (aware, blind) = (farm(unequal, "tlwl"), farm(unequal, "rr"));
    assert!(aware.handled_part() > 0.99, "{aware:?}");
    assert!(blind.handled_part() < 0.8, "{blind:?}");
    // Each request has met a number of open transactions at its server, so the histogram counts
    // every request.
    for outcome in [&aware, &blind] {
        assert_eq!(outcome.occupancy.iter().sum::<u64>(), outcome.requests, "{outcome:?}");
    }
    assert!(aware.occupancy.len() < blind.occupancy.len());
    let invites = |server| flow(&aware, "balancer", server, "INVITE").0 as f64;
    let ratio = invites("server-1") / invites("server-2");
    assert!((1.5..2.5).contains(&ratio), "the fast one gets {ratio} times as many");
    let bye = aware.bye_delay.unwrap();
    assert!(bye.p50_ms >= 1.5 && aware.set_up_delay.unwrap().p50_ms >= 2.5, "{aware:?}");
}

#[test]
fn servers_of_a_farm_have_pauses() {
    let pausing = farm("[farm]\nnodes = 2\npause_ms = 400\npause_every_s = 3\n", "tjsq");
    let longest = pausing.set_up_delay.unwrap().max_ms;
    assert!(longest >= 390.0, "{longest}");
    let steady = farm("[farm]\nnodes = 2\n", "tjsq").set_up_delay.unwrap().max_ms;
    assert!(steady < 100.0, "{steady}");
}

#[test]
fn callers_fail_over_from_a_server_that_rejects_to_one_that_accepts() {
    let closed = "[[node]]\nname = \"closed\"\nto = [\"answerers\"]\n\
        [[node.overload.limit]]\nfrom = \"0.0.0.0/0\"\nrate_cps = 0.1\nper = \"limit\"\n";
    let open = "[[node]]\nname = \"open\"\nto = [\"answerers\"]\nunder_test = true\n";
    let run = |failover: bool| {
        run(&format!("[workload]\nload = 0.3\nfailover = {failover}\n{SHORT}{closed}{open}")).0
    };
    let (gives_up, fails_over) = (run(false), run(true));
    assert_eq!(gives_up.offered, fails_over.offered);
    let rejected = gives_up.rejected;
    assert!(rejected * 2 > gives_up.offered * 8 / 10, "{rejected} of {}", gives_up.offered);
    assert_eq!((fails_over.rejected, fails_over.good), (0, fails_over.offered));
    let elsewhere: Vec<_> = fails_over
        .callers
        .iter()
        .map(|callers| (&*callers.to, callers.stats["offered_elsewhere"].as_u64().unwrap()))
        .collect();
    // The first run offered the same calls. It counts those after the measured time too.
    let status = &gives_up.callers[0].stats["failed"]["status"];
    assert_eq!(elsewhere, [("closed", status["503"].as_u64().unwrap()), ("open", 0)]);
    let served_at = |name| flow(&fails_over, name, "answerers", "INVITE").0;
    assert_eq!(served_at("closed") + served_at("open"), offered(&fails_over));
    assert_eq!(flow(&fails_over, "callers", "open", "INVITE").0, served_at("open"));
}

/// The model of paper 002 §4, at three times the capacity: three servers that obey feedback, and a
/// receiver with one queue for messages of all kinds.
const PUSHBACK: &str = "[workload]\nload = 3\narrivals = \"poisson\"\nhold_s = 5\nhold = \"exp\"\n\
    answerers = 1\ntrying = true\ngoodput = \"acknowledged\"\ndeadline_ms = 10_000\n\
    [emulate]\nserve_us = 2000\nreject_us = 333.333\n\
    [server]\nmode = \"transaction\"\nqueue_max = 500\n\
    [[node]]\nname = \"se1\"\nto = [\"re\"]\nobeys_feedback = true\n\
    [[node]]\nname = \"se2\"\nto = [\"re\"]\nobeys_feedback = true\n\
    [[node]]\nname = \"se3\"\nto = [\"re\"]\nobeys_feedback = true\n\
    [[node]]\nname = \"re\"\nto = [\"answerers\"]\nunder_test = true\n\
    [schedule]\nwarm_up_s = 20\nmeasured_s = 40\nrepetitions = 1\n";

// Paper 002 §5, figure 10: "all algorithms except for rate-occ are able to reach the theoretical
// maximum goodput".
#[test]
fn the_windows_of_002_reach_the_capacity_in_one_queue_of_all_messages() {
    for (law, decide) in [("win-disc", "arrival"), ("win-cont", "arrival"), ("win-cont", "service")]
    {
        let overload = format!(
            "{{ law = \"{law}\", queue = \"fifo\", decide = \"{decide}\", \
             feedback = {{ peers = [\"10.0.0.0/8\"] }} }}"
        );
        let text = format!("title = \"t\"\n{PUSHBACK}[[variant]]\noverload = {overload}\n");
        let scenario = Scenario::parse(Path::new("s"), text.as_bytes());
        let run = runs(&scenario.unwrap_or_else(|e| panic!("{e}")), Kind::Sim).remove(0);
        let folder = tempfile::tempdir().unwrap();
        let outcome = Simulated::new().run(&run, folder.path(), &AtomicBool::new(false)).unwrap();
        let goodput = 3.0 * outcome.good as f64 / outcome.offered as f64;
        assert!(goodput > 0.95, "{law}, {decide}: {goodput}");
    }
}

/// Returns two counts of the calls that begin from `from_s` to `to_s`: the calls that count as
/// goodput, and the calls that were set up in time. The scenario is the collapse of paper 002 with
/// simple drop, at three times the capacity. A call may take 10 s.
fn collapsed(from_s: u64, to_s: u64) -> [u64; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut scenario = Scenario::load(&folder.join("paper-002-collapse.toml")).unwrap();
    scenario.schedule.warm_up = Duration::from_secs(from_s);
    scenario.schedule.measured = Duration::from_secs(to_s - from_s);
    scenario.schedule.repetitions = 1;
    let is_it = |run: &RunSpec| run.variant.label == "simple drop" && run.conditions.load == 3.0;
    let run = runs(&scenario, Kind::Sim).into_iter().find(is_it).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let outcome = Simulated::new().run(&run, folder.path(), &AtomicBool::new(false)).unwrap();
    [outcome.good, outcome.set_up_in_time]
}

#[test]
fn the_last_calls_are_judged_under_the_same_load_as_the_others() {
    let [first, second, both] =
        [(20, 26), (26, 32), (20, 32)].map(|(from, to)| collapsed(from, to));
    assert!(first[0] > 0 && second[0] > 0, "{first:?} {second:?}");
    assert_eq!([first[0] + second[0], first[1] + second[1]], both, "{first:?} {second:?}");
}

/// A server is down for 15 s. People call again, and devices register again.
const OUTAGE: &str = "[workload]\nload = 0.3\nemergency = 0.1\nt1_ms = 100\n\
    [workload.redial]\nattempts_max = 9\nprobability = 1\nwait_s = 5\n\
    [workload.devices]\ncount = 300\nrefresh_s = 1000\nretry_s = 1\nretry_max_s = 2\n\
    lost_at_s = 25\n\
    [[fault]]\nkind = \"crash\"\nat_s = 10\nfor_s = 15\n\
    [schedule]\nwarm_up_s = 0\nmeasured_s = 90\nrepetitions = 1\n";

#[test]
fn an_outage_has_a_backlog_and_an_end() {
    let (outcome, csv) = run(OUTAGE);
    let outage = outcome.outage.as_ref().unwrap();
    assert_eq!(outage.trigger_ended_s, 25.0);
    // At most 50 people a second call for about 15 s, with 6 ms for each call. There are 300
    // devices of 2 ms.
    assert!(outage.backlog_s > 2.0 && outage.backlog_s < 15.0 * 0.33 + 0.61, "{outage:?}");
    assert!(outage.recovered_s.is_some_and(|time| time < 30.0), "{outage:?}");
    assert!(outage.registered_s.is_some() && outage.registered_end == Some(1.0), "{outage:?}");
    // Some calls of the first sample began before it, so the value is not exactly 1.
    assert!((outage.goodput_end - 1.0).abs() < 0.01, "{outage:?}");
    assert!(outage.emergency > 300 && outage.emergency_in_time < outage.emergency);
    assert!(outcome.redials() > 300, "{}", outcome.redials());
    assert_eq!(outcome.persons, outcome.offered - outcome.redials());
    assert!(outcome.served_part() > 0.99, "{}", outcome.served_part());
    for quantity in ["came_cps", "redialing", "register_cps", "registered"] {
        let row = format!("callers-server,{quantity},");
        assert!(csv.lines().any(|line| line.contains(&row)), "{row}");
    }
    // Nobody calls again without the table.
    let people =
        OUTAGE.find("[workload.redial]").unwrap()..OUTAGE.find("[workload.devices]").unwrap();
    let (outcome, _) = run(&OUTAGE.replace(&OUTAGE[people], ""));
    assert_eq!(outcome.redials(), 0);
    assert!(outcome.served_part() < 0.95, "{}", outcome.served_part());
}

/// Far above the capacity nearly all INVITEs are dropped before they are read, so few calls are
/// rejected. The law must learn of the dropped ones, or its queue is twice as long.
#[test]
fn with_the_default_law_callers_wait_at_most_a_tenth_of_a_second_in_a_lasting_overload() {
    for load in [1.2, 5.0] {
        let text = format!(
            "title = \"t\"\n[workload]\nload = {load}\n\
             [emulate]\noffer_us = 100\nserve_us = 733\nreject_us = 200\n\
             [schedule]\nwarm_up_s = 4\nmeasured_s = 30\nrepetitions = 3\n\
             [[variant]]\noverload = {{ law = \"tide\", disposal = \"auto\" }}\n"
        );
        let scenario = Scenario::parse(Path::new("s.toml"), text.as_bytes());
        let runs = runs(&scenario.unwrap_or_else(|e| panic!("{e}")), Kind::Sim);
        let mut p99_ms: Vec<_> = runs
            .iter()
            .map(|run| {
                let folder = tempfile::tempdir().unwrap();
                let outcome = Simulated::new().run(run, folder.path(), &AtomicBool::new(false));
                let outcome = outcome.unwrap();
                // The capacity is 200 calls/s.
                assert!(outcome.good > 30 * 190, "{outcome:?}");
                outcome.set_up_delay.unwrap().p99_ms
            })
            .collect();
        p99_ms.sort_by(f64::total_cmp);
        assert!(p99_ms[1] < 100.0, "{load}: {p99_ms:?}");
    }
}
