use std::path::Path;

use tidegate_agent::Process;

use super::*;

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
refuse_us = 50
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

/// What is said of `text`.
fn refusal(text: &str) -> String {
    parse(text).expect_err("it is wrong").to_string()
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
    let Schedule { warm_up, measured, repetitions, seed } = scenario.schedule;
    assert_eq!((warm_up.as_secs(), measured.as_secs(), repetitions, seed), (4, 8, 5, 1));
    assert_eq!(scenario.expectations[0].goodput_of_bound_min, Some(0.8));
    assert_eq!(scenario.expectations[0].loads, [2.0]);
}

#[test]
fn everything_that_is_wrong_is_shown_with_its_place_and_remedy() {
    let text = RIGHT
        .replace("hold_s = 0.5", "hold_ms = 500")
        .replace("load = [2, 0.5, 2]", "lod = [2]\nanswerer = []")
        .replace("c_t = 0.8", "c_t = 8")
        .replace("queue_max = 500", "queue_max = 0");
    let said = refusal(&text);
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
    let said = refusal(&RIGHT.replace("tuned (arrival, class)", "tuned (arival, class)"));
    assert!(said.contains("did you mean `\"tuned (arrival, class)\"`?"), "{said}");
    let said = refusal(&RIGHT.replace("goodput_of_bound_min = 0.8", ""));
    assert!(said.contains("`[[expect]]` expects nothing"), "{said}");
}

#[test]
fn variants_of_one_name_are_refused() {
    let twin = "[[variant]]\nlabel = \"tuned\"\noverload = { law = \"ohta\" }\n[schedule]";
    let said = refusal(&RIGHT.replace("[schedule]", twin));
    assert!(said.contains("two variants are called `tuned (arrival, class)`"), "{said}");
}

#[test]
fn a_capacity_without_limit_is_refused() {
    let (head, rest) = RIGHT.split_once("[emulate]").unwrap();
    let (_, tail) = rest.split_once("[sweep]").unwrap();
    assert!(refusal(&format!("{head}[sweep]{tail}")).contains("no `[emulate]`"));
    let said = refusal(&format!("{head}[emulate]\nrefuse_us = 5\n[sweep]{tail}"));
    assert!(said.contains("a call costs nothing"), "{said}");
}

#[test]
fn a_sweep_without_end_is_refused() {
    let hundred = (1..=100).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let text = RIGHT.replace("load = [2, 0.5, 2]", &format!("load = [{hundred}]"));
    let text = text.replace("answerers = [1, 4]", &format!("hold_s = [{hundred}]"));
    assert!(parse(&text).is_ok(), "2 variants, 10,000 conditions, 5 runs: as many as may be");
    let said = refusal(&text.replace("repetitions = 5", "repetitions = 6"));
    assert!(said.contains("120000 runs are too many"), "{said}");
}
