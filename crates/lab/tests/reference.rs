//! Tests that `docs/scenarios.md` is what the program would write today, and that the scenarios
//! beside it are valid.

#[path = "../../world/tests/committed/mod.rs"]
mod committed;

use std::fs;
use std::path::{Path, PathBuf};

use committed::assert_committed;
use tidegate_lab::cost::Capacity;
use tidegate_lab::scenario::{Scenario, reference};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_committed_reference_is_not_stale() {
    assert_committed("../../docs/scenarios.md", &reference(), None);
}

#[test]
fn the_example_in_the_reference_is_right() {
    let text = reference();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let scenario = Scenario::parse(Path::new("example.toml"), example.as_bytes());
    let scenario = scenario.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(Capacity::under(&scenario.conditions).cps.round(), 200.0);
}

#[test]
fn every_committed_scenario_is_right() {
    let files = fs::read_dir(root().join("scenarios")).unwrap();
    let mut count = 0;
    for path in files.map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        if let Err(wrong) = Scenario::load(&path) {
            panic!("{wrong}");
        }
        count += 1;
    }
    assert!(count > 0, "there are scenarios");
}

/// Paper 000 §6.6-6.9: two kinds of classes, three profiles of load, with and without
/// retransmissions.
#[test]
fn each_of_the_twelve_experiments_of_000_is_a_scenario() {
    for kind in ["single", "simplified"] {
        for (load, profile, measured_s) in [
            ("", "steps:0=0.6", [60, 60]),
            // §6.4.1: 120 s and 90 s, of which the first 10 s have no load.
            ("-gradual", "gradual:50,30,50", [110, 80]),
            ("-instant", "instant:10", [30, 30]),
        ] {
            for (once, seconds) in ["", "-once"].into_iter().zip(measured_s) {
                let name = format!("paper-000-{kind}{load}{once}");
                let path = root().join(format!("scenarios/{name}.toml"));
                let scenario = Scenario::load(&path).unwrap_or_else(|wrong| panic!("{wrong}"));
                assert!(scenario.title.starts_with(&format!("000: {kind} class, ")), "{name}");
                assert_eq!(scenario.conditions.profile.to_string(), profile, "{name}");
                assert_eq!(scenario.conditions.retransmissions, once.is_empty(), "{name}");
                assert_eq!(scenario.schedule.measured.as_secs(), seconds, "{name}");
                let labels: Vec<&str> =
                    scenario.variants.iter().map(|variant| &*variant.label).collect();
                assert_eq!(labels, ["basic", "occupancy", "sired", "aro"], "{name}");
            }
        }
    }
}
