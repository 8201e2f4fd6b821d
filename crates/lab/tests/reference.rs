//! Tests that `docs/scenarios.md` is what the program would write today, and that the scenarios
//! beside it are valid.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_lab::scenario::{Scenario, reference};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_committed_reference_is_not_stale() {
    let committed = root().join("docs/scenarios.md");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&committed, reference()).unwrap();
    }
    let text = fs::read_to_string(committed).unwrap_or_default();
    assert!(text == reference(), "docs/scenarios.md is stale: run this test with TIDEGATE_BLESS=1");
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
