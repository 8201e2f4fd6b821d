use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate_agent::{BackOff, Process, RegistrationLoss, Span};
use tidegate_emulate::Distribution;
use tidegate_proxy::{Class, Disposal, Mode};
use tidegate_server::config::Config;
use tidegate_sim::Silence;

use super::*;
use crate::costs_file;
use crate::network::{Endpoint, Trouble};
use crate::run_spec::runs;
use crate::worlds::Kind;

const RIGHT: &str = r#"
title = "Collapse and rescue"
[workload]
hold_s = 0.5
arrivals = "uniform"
[server]
queue_max = 500
[emulate]
offer_us = 100
serve_us = { default = 700, invite = 800 }
reject_us = 50
[sweep]
load = [2, 0.5, 2]
answerers = [1, 4]
[[variant]]
overload = { law = "none", decide = "service", queue = "fifo" }
[[variant]]
label = "tuned"
overload = { law = "pi", params = { c_t = 0.8 } }
[schedule]
repetitions = 5
[[expect]]
variant = "tuned (arrival, class)"
goodput_of_bound_min = 0.8
loads = [2]
"#;

fn parse(text: &str) -> Result<Scenario, Diagnostics> {
    Scenario::parse(Path::new("scenarios/collapse.toml"), text.as_bytes())
}

/// Returns the errors in `text`.
fn rejection(text: &str) -> String {
    parse(text).expect_err("it is wrong").to_string()
}

#[test]
fn a_quota_and_stolen_time_exclude_each_other() {
    let quota = RIGHT.replace("[emulate]\n", "[emulate]\nquota = 0.2\nperiod_ms = 5\n");
    let emulate = parse(&quota).unwrap_or_else(|wrong| panic!("{wrong}")).conditions.emulate;
    assert_eq!((emulate.quota, emulate.period), (Some(0.2), Duration::from_millis(5)));
    let stolen = "[disturbance]\nstolen_ms = 4\nstolen_every_ms = 5\n";
    assert!(rejection(&(quota + stolen)).contains("a quota and stolen time exclude each other"));
    assert!(parse(&(RIGHT.to_owned() + stolen)).is_ok());
    let idle = RIGHT.replace("[emulate]\n", "[emulate]\ntick_ms = 4\n");
    assert!(rejection(&idle).contains("without a quota there are no periods"));
}

/// Everything that depends on the costs of a scenario also depends on the costs that replace them.
#[test]
fn other_costs_apply_to_the_ratio_of_costs_the_trace_and_the_checks() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("calls.txt"), "1\n2\n3\n4\n").unwrap();
    let load = |text: &str, costs: &str| {
        let file = folder.path().join("s.toml");
        fs::write(&file, text).unwrap();
        let costs = costs_file::parse(Path::new("c"), costs.as_bytes()).unwrap();
        Scenario::load_with_costs(&file, &costs)
    };
    let costs = "[emulate]\nserve_us = { default = 0, invite = 1000, bye = 1000 }\n";
    let emulate = load(FARM, costs).unwrap().conditions.emulate;
    // The INVITE transaction gets two thirds of a call's 2 ms, and the BYE transaction one third.
    let us = |class: Class| emulate.serve[class as usize].as_micros();
    assert_eq!((us(Class::Invite), us(Class::Bye)), (1333, 666));

    let trace = RIGHT.replace("\"uniform\"", "\"trace:calls.txt\"");
    let trace = trace.replace("load = [2, 0.5, 2]", "").replace("loads = [2]", "");
    // There is a call a second, and its 6 messages take 6 ms.
    let conditions = load(&trace, "[emulate]\nserve_us = 1000\n").unwrap().conditions;
    assert!((conditions.load - 0.006).abs() < 1e-9, "{}", conditions.load);

    let stolen = format!("{RIGHT}[disturbance]\nstolen_ms = 4\nstolen_every_ms = 5\n");
    let quota = "[emulate]\nserve_us = 1000\nquota = 0.2\nperiod_ms = 5\n";
    let said = load(&stolen, quota).expect_err("the costs have a quota").to_string();
    assert!(said.contains("a quota and stolen time exclude each other"), "{said}");
    assert!(said.contains("the file of `--costs` replaces this table"), "{said}");
}

#[test]
fn costs_have_one_distribution() {
    let varied = RIGHT.replace("[emulate]\n", "[emulate]\ndistribution = \"lognormal:0.5\"\n");
    let emulate = parse(&varied).unwrap_or_else(|wrong| panic!("{wrong}")).conditions.emulate;
    assert_eq!(emulate.distribution, Distribution::Lognormal { sigma: 0.5 });
    let disturbed = "[disturbance]\ncosts = \"pareto\"\n";
    assert!(rejection(&(varied.clone() + disturbed)).contains("costs have two distributions"));
    assert!(parse(&(RIGHT.to_owned() + disturbed)).is_ok());
    let wrong = varied.replace("lognormal:0.5", "lognormal:9");
    assert!(rejection(&wrong).contains("SIGMA must be a number from 0 to 3"));
    let idle = RIGHT.replace("[emulate]\n", "[emulate]\nseed = 4\n");
    assert!(rejection(&idle).contains("without a distribution no cost is random"));
}

#[test]
fn a_right_scenario_is_read_with_its_defaults() {
    let scenario = parse(RIGHT).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(scenario.name, "collapse");
    assert_eq!(scenario.title, "Collapse and rescue");
    let Conditions { load, arrivals, hold_s, deadline_ms, answerers, queue_max, .. } =
        scenario.conditions;
    assert_eq!((load, hold_s, deadline_ms), (1.0, 0.5, 500.0));
    assert_eq!((arrivals, answerers, queue_max), (Process::Uniform, 2, 500));
    let sweep: Vec<_> =
        scenario.sweep.iter().map(|(axis, values)| (axis.name(), values.as_slice())).collect();
    assert_eq!(sweep, [("answerers", &[1.0, 4.0][..]), ("load", &[0.5, 2.0][..])]);
    let names: Vec<_> = scenario.variants.iter().map(Variant::name).collect();
    assert_eq!(names, ["none (service, fifo)", "tuned (arrival, class)"]);
    assert_eq!(scenario.variants[1].overload.gate.law.entry().name, "pi");
    let Schedule { warm_up, measured, repetitions, seed, sample: None } = scenario.schedule else {
        panic!("the scenario has no `sample_ms`")
    };
    assert_eq!((warm_up.as_secs(), measured.as_secs(), repetitions, seed), (4, 8, 5, 1));
    assert_eq!(scenario.expectations[0].goodput_of_bound_min, Some(0.8));
    assert_eq!(scenario.expectations[0].loads, Some(vec![2.0]));
}

#[test]
fn every_error_is_shown_with_its_place_and_remedy() {
    let text = RIGHT
        .replace("hold_s = 0.5", "hold_ms = 500")
        .replace("load = [2, 0.5, 2]", "lod = [2]\nanswerer = []")
        .replace("c_t = 0.8", "c_t = 8")
        .replace("queue_max = 500", "queue_max = 0");
    let said = rejection(&text);
    for part in [
        "unknown key `hold_ms` in `[workload]`",
        "did you mean `hold_s`?",
        "`lod` cannot be swept",
        "did you mean `load`?",
        "did you mean `answerers`?",
        "`c_t` is out of bounds",
        "`queue_max` is out of bounds",
        "scenarios/collapse.toml:4:1",
        "scenarios/collapse.toml: 5 errors",
    ] {
        assert!(said.contains(part), "{part} is not said:\n{said}");
    }
}

#[test]
fn an_expectation_needs_a_variant_and_a_condition() {
    let said = rejection(&RIGHT.replace("tuned (arrival, class)", "tuned (arival, class)"));
    assert!(said.contains("did you mean `\"tuned (arrival, class)\"`?"), "{said}");
    let said = rejection(&RIGHT.replace("goodput_of_bound_min = 0.8", ""));
    assert!(said.contains("`[[expect]]` expects nothing"), "{said}");
}

#[test]
fn variants_of_one_name_are_rejected() {
    let twin = "[[variant]]\nlabel = \"tuned\"\noverload = { law = \"ohta\" }\n[schedule]";
    let said = rejection(&RIGHT.replace("[schedule]", twin));
    assert!(said.contains("two variants are called `tuned (arrival, class)`"), "{said}");
}

/// A configuration that leaves every key of overload control at its default.
const CONFIGURED: &str = "[[listen]]\ntransport = \"udp\"\naddress = \"192.0.2.1:5060\"\n\
    [[pool]]\nname = \"app\"\n[[pool.backend]]\nuri = \"sip:10.0.0.1\"\n";

#[test]
fn a_variant_has_the_defaults_of_the_configuration_only_if_it_says_so() {
    let configured = Config::parse(Path::new("c.toml"), CONFIGURED.as_bytes()).unwrap().overload;
    let read = |keys: &str| {
        let variant = format!("[[variant]]\nlabel = \"default\"\n{keys}\n[schedule]");
        parse(&RIGHT.replace("[schedule]", &variant)).unwrap().variants.remove(2).overload
    };
    assert_eq!(read("product_defaults = true"), configured);
    assert_eq!(read("product_defaults = true\noverload = {}"), configured);
    let compared = read("overload = {}");
    assert_eq!((compared.disposal, compared.gate.sources.fair), (Disposal::Reject, false));
    assert_eq!(compared, read("product_defaults = false"));
    let told = read("product_defaults = true\noverload = { retry_after = [30, 60] }");
    assert_eq!(told, Overload { retry_after: Some((30, 60)), ..configured });
    let said = rejection(&RIGHT.replace("label = \"tuned\"", "product_defaults = 1"));
    assert!(said.contains("`product_defaults` has the wrong type"), "{said}");
}

/// The claims about outages are claims about the default configuration.
#[test]
fn the_default_of_each_outage_is_that_of_the_configuration() {
    let configured = Config::parse(Path::new("c.toml"), CONFIGURED.as_bytes()).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_outage =
        |path: &Path| path.file_stem().unwrap().to_string_lossy().starts_with("outage-");
    let mut count = 0;
    for path in paths.filter(|path| is_outage(path)) {
        let scenario = Scenario::load(&path).unwrap();
        let mut variants = scenario.variants.iter();
        let default = variants.find(|variant| variant.label == "default");
        assert_eq!(default.unwrap().overload, configured.overload, "{}", path.display());
        let tested = scenario.conditions.topology.nodes().iter().filter(|node| node.under_test);
        for node in tested {
            assert_eq!(node.mode, configured.pool[0].mode, "{}: {}", path.display(), node.name);
        }
        count += 1;
    }
    assert_eq!(count, 5);
}

#[test]
fn a_capacity_without_limit_is_rejected() {
    let (head, rest) = RIGHT.split_once("[emulate]").unwrap();
    let (_, tail) = rest.split_once("[sweep]").unwrap();
    assert!(rejection(&format!("{head}[sweep]{tail}")).contains("no `[emulate]`"));
    let said = rejection(&format!("{head}[emulate]\nreject_us = 5\n[sweep]{tail}"));
    assert!(said.contains("a call costs nothing"), "{said}");
}

#[test]
fn a_sweep_without_end_is_rejected() {
    let hundred = (1..=100).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let text = RIGHT.replace("load = [2, 0.5, 2]", &format!("load = [{hundred}]"));
    let text = text.replace("answerers = [1, 4]", &format!("hold_s = [{hundred}]"));
    assert!(parse(&text).is_ok(), "2 variants, 10,000 conditions, 5 runs: as many as may be");
    let said = rejection(&text.replace("repetitions = 5", "repetitions = 6"));
    assert!(said.contains("the scenario has 120000 runs"), "{said}");
}

const NODES: &str = r#"
[[node]]
name = "edge"
to = ["core"]
overload = { law = "ohta" }
[[node]]
name = "core"
to = ["answerers"]
under_test = true
mode = "transaction"
"#;

#[test]
fn servers_links_and_faults_are_read() {
    let text = format!(
        "{RIGHT}{NODES}[[link]]\nloss = 0.1\n\
         [[link]]\nfrom = \"edge\"\nto = \"core\"\ndelay_ms = 2.5\nbandwidth_mbps = 1\n\
         [[fault]]\nkind = \"crash\"\nnode = \"core\"\nat_s = 1\nfor_s = 2\nsilent = true\n\
         [[fault]]\nkind = \"partition\"\nfrom = \"callers\"\nto = \"edge\"\nat_s = 3\nfor_s = 1\n"
    );
    let Conditions { topology, links, faults, .. } =
        parse(&text).unwrap_or_else(|wrong| panic!("{wrong}")).conditions;
    let [edge, core] = topology.nodes() else { panic!("{topology:?}") };
    assert_eq!((edge.share, edge.mode, edge.under_test), (1.0, Mode::Stateless, false));
    assert_eq!(edge.overload.gate.law.entry().name, "ohta");
    assert_eq!((core.share, core.mode, core.under_test), (0.0, Mode::Transaction, true));
    assert_eq!((links[0].from, links[0].to, links[0].link.loss), (None, None, 0.1));
    assert_eq!((links[1].from, links[1].to), (Some(Endpoint::Node(0)), Some(Endpoint::Node(1))));
    assert_eq!(links[1].link.delay.as_micros(), 2500);
    assert_eq!(links[1].link.bandwidth.unwrap().bits_per_s, 1_000_000);
    assert_eq!(faults[0].what, Trouble::Crash { node: 1, silence: Silence::Silent });
    assert_eq!(faults[0].end().as_secs(), 3);
    assert_eq!(faults[1].what, Trouble::Partition { a: Endpoint::Callers, b: Endpoint::Node(0) });
}

#[test]
fn errors_in_servers_links_and_faults_are_shown() {
    let fault = "[[fault]]\nat_s = 1\nfor_s = 1\n";
    for (text, expected) in [
        (NODES.replace("[\"core\"]", "[\"cor\"]"), "did you mean `\"core\"`?"),
        (NODES.replace("[\"answerers\"]", "[\"edge\"]"), "a call would pass a node twice"),
        (NODES.replace("[\"core\"]", "[\"answerers\"]") + "share = 1\n", "no call reaches a node"),
        (NODES.replace("under_test = true\n", ""), "no node is under test"),
        (NODES.replace("\"core\"\nto", "\"edge\"\nto"), "two nodes are called `edge`"),
        (NODES.replace("name = \"core\"", "name = \"callers\""), "this name has another meaning"),
        (format!("{NODES}[[link]]\nfrom = \"edg\"\n"), "there is no node `edg`"),
        (format!("{NODES}{fault}kind = \"crash\"\n"), "the fault names no node"),
        (format!("{fault}kind = \"crash\"\nloss = 0.5\n"), "`loss` has no effect on this kind"),
        (
            format!("{fault}kind = \"partition\"\nfrom = \"callers\"\n"),
            "a partition needs `from` and `to`",
        ),
    ] {
        let said = rejection(&format!("{RIGHT}{text}"));
        assert!(said.contains(expected), "{expected} is not said:\n{said}");
    }
}

#[test]
fn a_workload_accepts_the_arrival_processes_and_profiles_of_agents() {
    let with = |keys: &str| RIGHT.replace("arrivals = \"uniform\"", keys);
    let text = with("arrivals = \"mmpp:1=2,3=4\"\nprofile = \"instant:3\"\nhold = \"exp\"");
    let conditions = parse(&text).unwrap().conditions;
    assert_eq!(conditions.arrivals.to_string(), "mmpp:1=2,3=4");
    assert_eq!(conditions.profile.to_string(), "instant:3");
    assert_eq!(conditions.hold, Hold::Exponential);
    for (keys, expected) in [
        ("arrivals = \"mmpp:1=2\"", "`arrivals` is not valid"),
        ("arrivals = \"random\"", "no such process"),
        ("profile = \"flash:1\"", "expected flash:AT,PEAK,RISE,DECAY"),
        ("arrivals = \"trace:/nonexistent\"", "is not a valid trace"),
    ] {
        let said = rejection(&with(keys));
        assert!(said.contains(expected), "{expected} is not said:\n{said}");
    }
}

const FARM: &str = "title = \"t\"\n[workload]\nhold_s = 3\nhold = \"lognormal:1.5\"\n\
    [farm]\nnodes = 3\nspeeds = [1, 0.5]\npause_ms = 50\n\
    [server]\ninvite_to_bye = 2\n\
    [sweep]\nnodes = [2, 4]\npause_ms = [0, 100]\n\
    [emulate]\nserve_us = { default = 0, invite = 2000, bye = 2000 }\n\
    [[variant]]\npool = { policy = \"tlwl\", params = { invite = 2.5 } }\n\
    [[variant]]\nlabel = \"turn\"\npool = { policy = \"rr\" }\n\
    [[variant]]\n";

#[test]
fn a_farm_is_a_balancer_and_its_servers() {
    let scenario = parse(FARM).unwrap();
    let labels: Vec<&str> = scenario.variants.iter().map(|variant| &*variant.label).collect();
    assert_eq!(labels, ["tlwl", "turn", "tide"]);
    assert_eq!(scenario.variants[2].pool, None);
    let Conditions { hold, farm, emulate, topology, .. } = &scenario.conditions;
    assert_eq!(*hold, Hold::Lognormal(1.5));
    assert_eq!((farm.as_ref().unwrap().pause_ms, topology.nodes().len()), (50.0, 4));
    // The INVITE transaction gets two thirds of a call's 4 ms, and the BYE transaction one third.
    let us = |class: Class| emulate.serve[class as usize].as_micros();
    assert_eq!((us(Class::Invite), us(Class::Bye)), (2666, 1333));

    let swept = runs(&scenario, Kind::Sim);
    let last = &swept[3];
    let speeds: Vec<f64> = last.conditions.topology.nodes().iter().map(|n| n.speed).collect();
    assert_eq!(speeds, [1.0, 1.0, 0.5, 1.0, 0.5]);
    assert!((last.capacity_cps() - 750.0).abs() < 1e-6, "three servers of 250 calls/s");
    assert!(swept[2].faults().is_empty() && !last.faults().is_empty());
    let listen = "127.0.0.1:5060".parse().unwrap();
    let balancer = last.configuration(0, None, listen, &[listen]);
    assert!(balancer.contains("policy = \"tlwl\"\nparams = { invite = 2.5,"), "{balancer}");
    assert!(!balancer.contains("[emulate]"), "{balancer}");
    let slow = last.configuration(2, None, listen, &[listen]);
    assert!(slow.contains("policy = \"rr\"") && slow.contains("invite = 5333.33"), "{slow}");
}

#[test]
fn errors_in_a_farm_are_shown() {
    let node = "[[node]]\nname = \"a\"\nto = [\"answerers\"]\nunder_test = true\n";
    for (text, expected) in [
        (FARM.replace("[farm]\nnodes = 3\nspeeds = [1, 0.5]\npause_ms = 50\n", ""), "no `[farm]`"),
        (format!("{FARM}{node}"), "`[farm]` and `[[node]]` exclude each other"),
        (FARM.replace("speeds = [1, 0.5]", "speeds = [0]"), "`speeds` is out of bounds"),
        (FARM.replace("lognormal:1.5", "lognormal:x"), "SIGMA must be a number from 0 to 5"),
        (FARM.replace("\"tlwl\"", "\"tlw\""), "did you mean"),
        (FARM.replace("invite = 2.5", "invit = 2.5"), "did you mean `invite`?"),
        (FARM.replace("policy = \"rr\"", ""), "lacks `policy`"),
    ] {
        let said = rejection(&text);
        assert!(said.contains(expected), "{expected} is not said:\n{said}");
    }
}

#[test]
fn a_scenario_over_tcp_has_buffers_that_can_be_swept() {
    assert_eq!(parse(RIGHT).unwrap().conditions.tcp, None);
    let text = format!("{RIGHT}[tcp]\n");
    let buffers = |text: &str| {
        let streams = parse(text).unwrap().conditions.tcp.unwrap().streams();
        (streams.window, streams.buffer)
    };
    assert_eq!(buffers(&text), (65_536, 65_536));
    assert_eq!(buffers(&format!("{text}window_bytes = 4096\n")), (4096, 4096));
    assert_eq!(buffers(&format!("{text}buffer_bytes = 512\n")), (65_536, 512));

    let swept = text.replace("[sweep]\n", "[sweep]\nwindow_bytes = [2048, 4096]\n");
    let swept = runs(&parse(&swept).unwrap(), Kind::Sim);
    let windows: BTreeSet<_> =
        swept.iter().map(|run| run.conditions.tcp.unwrap().window_bytes).collect();
    assert_eq!(windows, BTreeSet::from([2048, 4096]));
    let listen = "127.0.0.1:5060".parse().unwrap();
    let configuration = swept[0].configuration(0, None, listen, &[listen]);
    assert!(configuration.contains("transport = \"tcp\""), "{configuration}");
    // A change of the transport or of the buffers changes the name of a run.
    let id = |text: &str| runs(&parse(text).unwrap(), Kind::Sim)[0].id("p");
    let ids = [RIGHT, &text, &format!("{text}buffer_bytes = 512\n")].map(id);
    assert_eq!(BTreeSet::from(ids).len(), 3);
}

#[test]
fn errors_in_tcp_are_shown() {
    let said = rejection(&RIGHT.replace("[sweep]\n", "[sweep]\nwindow_bytes = [2048]\n"));
    assert!(said.contains("`window_bytes` is swept, but there is no `[tcp]`"), "{said}");
    let said = rejection(&format!("{RIGHT}[tcp]\nwindow_bytes = 0\n"));
    assert!(said.contains("`window_bytes` is out of bounds"), "{said}");
    let said = rejection(&format!("{PEOPLE}[tcp]\n"));
    assert!(said.contains("devices register over UDP only"), "{said}");
}

#[test]
fn a_trace_determines_the_load() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("calls.txt"), "1\n2\n3\n4 # the last\n").unwrap();
    let parse = |text: &str| Scenario::parse(&folder.path().join("s.toml"), text.as_bytes());
    let text = RIGHT.replace("\"uniform\"", "\"trace:calls.txt\"");
    let said = parse(&text).expect_err("the load is swept").to_string();
    assert!(said.contains("remove `load` from `[sweep]`"), "{said}");
    let text = text.replace("load = [2, 0.5, 2]", "").replace("loads = [2]", "");
    let conditions = parse(&text).unwrap().conditions;
    // There is a call a second. An INVITE of 900 µs and 5 messages of 800 µs take 4.9 ms.
    let s = 6.0 * 0.0008 + 0.0001;
    assert!((conditions.load - s).abs() < 1e-9, "{}", conditions.load);
    let profile = text.replace("[server]", "profile = \"instant:3\"\n[server]");
    let said = parse(&profile).expect_err("both say when").to_string();
    assert!(said.contains("a trace cannot have a profile"), "{said}");
    for keys in ["sources = 2", "trunk = 0.5"] {
        let several = text.replace("[server]", &format!("{keys}\n[server]"));
        let said = parse(&several).expect_err("each source has all calls").to_string();
        assert!(said.contains("a trace needs `sources = 1` and `trunk = 0`"), "{said}");
    }
}

#[test]
fn a_closed_loop_has_one_source() {
    let limit = RIGHT.replace("[server]", "open_limit = 30\n[server]");
    let with = |keys: &str| limit.replace("[server]", &format!("{keys}\n[server]"));
    assert_eq!(parse(&with("sources = 1\ntrunk = 0")).unwrap().conditions.open_limit, Some(30));
    for keys in ["sources = 50", "trunk = 0.5"] {
        let said = rejection(&with(keys));
        assert!(said.contains("a closed loop needs `sources = 1` and `trunk = 0`"), "{said}");
    }
}

const PEOPLE: &str = "title = \"t\"\n[workload]\nemergency = 0.01\n\
    [workload.redial]\nattempts_max = 5\nwait_s = 20\nwait = \"lognormal:1\"\n\
    [workload.devices]\ncount = 500\nlost_at_s = 60\nlost = 0.5\nlost_within_s = 2\n\
    [emulate]\nserve_us = 1000\n[[variant]]\n";

#[test]
fn a_workload_has_people_who_redial_and_devices_that_register() {
    let Conditions { redial, devices, emergency, .. } = parse(PEOPLE).unwrap().conditions;
    let (redial, devices) = (redial.unwrap(), devices.unwrap());
    let s = Duration::from_secs;
    assert_eq!((redial.attempts_max, redial.probability, redial.waiting_max), (5, 0.8, 100_000));
    assert_eq!(redial.wait, Span::LogNormal { mean: s(20), sigma: 1.0 });
    assert_eq!((devices.count, devices.refresh, devices.obeys_retry_after), (500, s(1800), true));
    // These are the defaults of RFC 5626 §4.5.
    assert_eq!(devices.back_off, BackOff { base: s(30), max: s(1800), jitter: 0.5 });
    assert_eq!(devices.loss, Some(RegistrationLoss { at: s(60), share: 0.5, within: s(2) }));
    assert_eq!(emergency, 0.01);
    let none = parse(RIGHT).unwrap().conditions;
    assert_eq!((none.redial, none.devices, none.emergency), (None, None, 0.0));
    // A change of one of these keys changes the name of a run.
    let id = |text: &str| runs(&parse(text).unwrap(), Kind::Sim)[0].id("p");
    for (from, to) in [("wait_s = 20", "wait_s = 21"), ("lost = 0.5", "lost = 0.6")] {
        assert_ne!(id(PEOPLE), id(&PEOPLE.replace(from, to)), "{to}");
    }
}

#[test]
fn errors_in_people_and_devices_are_shown() {
    for (from, to, expected) in [
        ("attempts_max = 5", "attempts_max = 0", "`attempts_max` is out of bounds"),
        ("attempts_max = 5", "attempt_max = 5", "did you mean `attempts_max`?"),
        ("lognormal:1", "normal:1", "this is not the name of a distribution"),
        ("count = 500\n", "", "lacks `count`"),
        ("lost_at_s = 60\n", "", "no device loses its registration"),
        ("emergency = 0.01", "emergency = 2", "`emergency` is out of bounds"),
    ] {
        let said = rejection(&PEOPLE.replace(from, to));
        assert!(said.contains(expected), "{expected} is not said:\n{said}");
    }
}
