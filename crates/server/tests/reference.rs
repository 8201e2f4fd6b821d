//! Tests that `docs/configuration.md` is what the program would write today.

use std::fs;
use std::path::Path;

use tidegate_server::config::{Config, reference};

fn committed() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")
}

#[test]
fn the_committed_reference_is_not_stale() {
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(committed(), reference()).unwrap();
    }
    let text = fs::read_to_string(committed()).unwrap_or_default();
    assert!(
        text == reference(),
        "docs/configuration.md is stale: run this test with TIDEGATE_BLESS=1"
    );
}

#[test]
fn the_example_in_the_reference_is_right() {
    let text = reference();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    if let Err(diagnostics) = Config::parse(Path::new("example"), example.as_bytes()) {
        panic!("{diagnostics}");
    }
}
