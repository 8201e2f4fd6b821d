use std::cell::RefCell;
use std::fs;

use html5ever::tendril::TendrilSink;
use html5ever::{Attribute, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use serde_json::{Value, json};

use super::*;

/// A text that ends a script, an attribute or a comment, or loads something, unless it is escaped.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)> \"'<!-- & {{ 1 }} -->";

/// Returns the results of one variant at two loads, as an experiment writes them.
pub(super) fn results(world: &str, title: &str, factor: f64) -> Value {
    let spread =
        |median: f64| json!({ "min": median * 0.9, "median": median, "max": median * 1.1 });
    let row = |load: f64, bound: f64| {
        json!({
            "variant": "pi (arrival, class)", "label": "pi", "panel": title, "swept": {},
            "load": load, "mean_load": load, "bound": bound, "runs": 3,
            "goodput": spread(0.9 * bound * factor), "goodput_of_bound": spread(0.9 * factor),
            "retransmission_ratio": spread(0.0), "rejected": spread(0.1), "p50_ms": null,
            "p99_ms": spread(40.0 * factor),
            "generator_load": 0.05, "drops": 0, "too_slow": 0,
        })
    };
    json!({
        "scenario": "two", "title": title, "seed": 7, "program": "cafe", "world": world,
        "machine": { "processor": "Abacus", "cores": 2, "kernel": "6.1" },
        "capacity_cps": 200.0, "call_s": 0.005, "deadline_ms": 500.0,
        "rows": [row(1.0, 1.0), row(2.0, 0.9)],
        "conditions": [{ "condition": format!("{title} keeps"), "held": true, "valid": true },
                       { "condition": "another", "held": false, "valid": true },
                       { "condition": "a third", "held": false, "valid": false }],
        "points": [{ "variant": "pi (arrival, class)", "swept": { "load": 1.0 }, "repetition": 1,
                     "seed": 7, "folder": "points/a" }],
    })
}

/// Returns a folder with `results`, a scenario and a timeline.
fn folder(results: &Value, scenario: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("results.json"), results.to_string()).unwrap();
    fs::write(folder.path().join("scenario.toml"), scenario).unwrap();
    fs::create_dir_all(folder.path().join("points/a")).unwrap();
    let timeline = format!(
        "t_s,node,quantity,value\n0,re,\"{}\",1\n0,re,b,2\n1,re,c,3\n",
        HOSTILE.replace('"', "\"\"")
    );
    fs::write(folder.path().join("points/a/timeline.csv"), timeline).unwrap();
    folder
}

/// Returns the result of `what` for a report of `results`, while their folders exist.
pub(super) fn of<T>(results: &[Value], what: impl Fn(&Report) -> T) -> T {
    let folders: Vec<_> = results.iter().map(|results| folder(results, HOSTILE)).collect();
    let paths: Vec<&Path> = folders.iter().map(tempfile::TempDir::path).collect();
    what(&Report::read(&paths, &[]).unwrap())
}

fn report(results: &[Value]) -> Report {
    of(results, Report::clone)
}

/// An HTML page without parse errors.
struct Page {
    document: Handle,
}

impl Page {
    fn of(results: &[Value]) -> Self {
        let dom = parse_document(RcDom::default(), html5ever::ParseOpts::default())
            .one(of(results, Report::html));
        assert!(dom.errors.borrow().is_empty(), "{:?}", dom.errors);
        Self { document: dom.document }
    }

    /// Calls `found` with the name, attributes and text of each element.
    fn elements(&self, mut found: impl FnMut(&str, &RefCell<Vec<Attribute>>, &str)) {
        let mut waiting = vec![self.document.clone()];
        while let Some(node) = waiting.pop() {
            if let NodeData::Element { name, attrs, .. } = &node.data {
                found(&name.local, attrs, &text(&node));
            }
            waiting.extend(node.children.borrow().iter().rev().cloned());
        }
    }

    /// Returns the texts of all elements of this name.
    fn texts(&self, wanted: &str) -> Vec<String> {
        let mut texts = Vec::new();
        self.elements(|name, _, text| {
            if name == wanted {
                texts.push(text.trim().to_owned());
            }
        });
        texts
    }

    fn island(&self) -> Value {
        let mut island = None;
        self.elements(|_, attributes, text| {
            let named = |a: &Attribute| &*a.name.local == "id" && &*a.value == "data";
            if attributes.borrow().iter().any(named) {
                island = serde_json::from_str(text).ok();
            }
        });
        island.expect("there is an island of JSON")
    }
}

fn text(node: &Handle) -> String {
    match &node.data {
        NodeData::Text { contents } => contents.borrow().to_string(),
        _ => node.children.borrow().iter().map(text).collect(),
    }
}

#[test]
fn the_page_is_valid_and_has_the_results() {
    let page = Page::of(&[results("real", "Two loads", 1.0)]);
    assert_eq!(page.texts("h1"), ["Two loads"]);
    assert_eq!(page.texts("title"), ["Two loads"]);
    let headings = page.texts("h2");
    assert!(headings.contains(&"1 of 3 conditions held".to_owned()), "{headings:?}");
    let words = page.texts("b");
    let [one, other, third] = ["holds", "does not hold", "is not valid"];
    assert!(words.iter().map(String::as_str).eq([one, other, third]), "{words:?}");
    let facts = page.texts("dd");
    for fact in ["200.0 calls/s", "5.00 ms", "500 ms", "7", "6", "Abacus, 2 cores", "cafe"] {
        assert!(facts.iter().any(|said| said == fact), "{fact}: {facts:?}");
    }
    let cells = page.texts("td");
    assert_eq!(cells[..3], ["pi (arrival, class)", "1", "0.9000.810 – 0.990"]);
    assert_eq!(page.texts("tr").len(), 3, "a head and two rows");
    assert!(!page.texts("button").is_empty());
}

#[test]
fn a_capacity_that_differs_between_the_runs_has_no_number() {
    let mut results = results("sim", "t", 1.0);
    results["capacity_cps"] = Value::Null;
    let facts = Page::of(&[results]).texts("dd");
    assert!(facts.iter().any(|said| said == "differs between the runs"), "{facts:?}");
}

#[test]
fn charts_are_given_every_row_with_its_bound_and_timeline() {
    let data = Page::of(&[results("real", "Two loads", 1.0)]).island();
    let experiment = &data["experiments"][0];
    assert_eq!(experiment["deadline_ms"], 500.0);
    assert_eq!(experiment["sources"][0]["rows"][1]["goodput"]["median"], 0.81);
    // A rejection costs 1/11 of a call, so the bound is 0.9 at twice the capacity.
    assert_eq!(experiment["bounds"][0]["corners"], json!([[0.0, 0.0], [1.0, 1.0], [2.0, 0.9]]));
    let run = &experiment["sources"][0]["runs"][0];
    assert_eq!(run["times"], json!([[0.0], [1.0]]));
    let series: Vec<_> =
        run["series"].as_array().unwrap().iter().map(|s| (&s["times"], &s["values"])).collect();
    assert_eq!(
        series,
        [(&json!(0), &json!([1.0])), (&json!(0), &json!([2.0])), (&json!(1), &json!([3.0]))]
    );
    assert_eq!(experiment["left_out"], 0);
}

#[test]
fn the_page_loads_nothing_from_another_host() {
    let page = Page::of(&[results("real", HOSTILE, 1.0)]);
    let mut policies = 0;
    page.elements(|name, attributes, text| {
        for attribute in attributes.borrow().iter() {
            let (key, value) = (&*attribute.name.local, &*attribute.value);
            let loads = ["src", "href", "srcset", "data", "action", "poster"].contains(&key);
            assert!(!loads || value.starts_with('#') || value == "data:,", "{name} {key}={value}");
            assert!(!key.starts_with("on"), "{name} {key}={value}");
            policies += usize::from(value.starts_with("default-src 'none';"));
        }
        assert!(name != "style" || !(text.contains("url(") || text.contains("@import")));
    });
    assert_eq!(policies, 1, "and the browser would refuse to");
}

#[test]
fn text_of_a_scenario_is_escaped() {
    let page = Page::of(&[results("real", HOSTILE, 1.0)]);
    assert_eq!(page.texts("h1"), [HOSTILE]);
    assert_eq!(page.texts("code"), [HOSTILE], "the scenario's text");
    assert!(page.texts("img").is_empty());
    let harmless = Page::of(&[results("real", "harmless", 1.0)]);
    assert_eq!(page.texts("script").len(), harmless.texts("script").len());
    let experiment = &page.island()["experiments"][0];
    assert_eq!(experiment["sources"][0]["rows"][0]["panel"], HOSTILE);
    assert_eq!(experiment["sources"][0]["runs"][0]["series"][0]["quantity"], HOSTILE);
}

#[test]
fn both_worlds_of_a_scenario_are_compared() {
    let both = [results("real", "Two", 1.0), results("sim", "Two", 1.05)];
    let report = report(&both);
    let experiment = &report.experiments[0];
    let labels: Vec<&str> = experiment.sources.iter().map(|source| &*source.label).collect();
    assert_eq!(labels, ["simulated time", "real sockets"]);
    let comparisons = report.comparisons();
    let row = &comparisons[0].rows[1];
    assert!((row.goodput.error() - 0.0405).abs() < 1e-9, "{row:?}");
    assert!((row.p99_ms.unwrap().relative_error().unwrap() - 0.05).abs() < 1e-9, "{row:?}");
    let text = comparisons[0].text();
    let words: Vec<&str> = text.lines().nth(4).unwrap().split_whitespace().collect();
    let expected = ["2", "0.851", "0.810", "+0.041", "42", "40", "+5", "%"];
    assert_eq!(words[3..], expected, "{text}");
    let verdict = "error in goodput: median 0.043 of the capacity, largest 0.045 of the capacity \
                   (pi (arrival, class), load 1)";
    assert!(text.contains(verdict), "{text}");
    let page = Page::of(&both);
    assert!(page.texts("p").iter().any(|said| said == verdict));
    assert!(page.texts("td").contains(&"+0.041".to_owned()));
}

#[test]
fn both_worlds_are_drawn_in_one_figure() {
    let report = report(&[results("sim", "Two", 1.05), results("real", "Two", 1.0)]);
    let figures = report.comparisons()[0].figures();
    let names: Vec<&str> = figures.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["worlds-goodput", "worlds-set-up-delay"]);
    let lines = &figures[0].1.panels[0].lines;
    let drawn: Vec<_> = lines.iter().map(|line| (&*line.name, line.stroke)).collect();
    use crate::figure::Stroke::{Beside, Measured, Reference};
    assert_eq!(drawn, [("bound", Reference), ("pi", Measured), ("pi", Beside)]);
    let at = |line: usize, point: usize| lines[line].points[point].median;
    assert!((at(1, 1) - 0.8505).abs() < 1e-9 && (at(2, 1) - 0.81).abs() < 1e-9);
    assert!((lines[0].points.last().unwrap().median - 0.9).abs() < 1e-9);
    // The name appears once, beside one of the lines.
    let names = figures[0].1.svg().lines().filter(|line| *line == "pi").count();
    assert_eq!(names, 1);
}

#[test]
fn with_a_profile_runs_are_shown_at_their_mean_load() {
    let halved = |world: &str| {
        let mut results = results(world, "Two", 1.0);
        for row in results["rows"].as_array_mut().unwrap() {
            row["mean_load"] = json!(row["load"].as_f64().unwrap() / 2.0);
        }
        results
    };
    let both = [halved("sim"), halved("real")];
    let figures = report(&both).comparisons()[0].figures();
    let lines = &figures[0].1.panels[0].lines;
    let drawn: Vec<f64> = lines[1].points.iter().map(|point| point.x).collect();
    assert_eq!(drawn, [0.5, 1.0]);
    let heads = Page::of(&both).texts("th");
    assert!(heads.contains(&"mean load".to_owned()), "{heads:?}");
    let constant = Page::of(&[results("sim", "Two", 1.0)]).texts("th");
    assert!(!constant.contains(&"mean load".to_owned()), "{constant:?}");
}

#[test]
fn results_of_one_world_are_not_compared_and_have_different_labels() {
    let report = report(&[results("real", "Two", 1.0), results("real", "Two", 0.9)]);
    assert!(report.comparisons().is_empty());
    let labels: Vec<&String> = report.experiments[0].sources.iter().map(|s| &s.label).collect();
    assert!(labels[0].starts_with("real sockets, /") && labels[0] != labels[1], "{labels:?}");
}

#[test]
fn a_report_has_a_part_for_each_scenario() {
    let mut other = results("sim", "Another", 1.0);
    other["scenario"] = json!("another");
    let page = Page::of(&[results("real", "Two", 1.0), other]);
    assert_eq!(page.texts("h1"), ["Two", "Another"]);
    assert_eq!(page.texts("a"), ["Two", "Another"]);
    assert_eq!(page.island()["experiments"].as_array().unwrap().len(), 2);
}
