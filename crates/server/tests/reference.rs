//! Tests that `docs/configuration.md` is the reference that the program generates now.

use std::fs;
use std::path::Path;

use tidegate_proxy::{DropReason, ReplyReason};
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

#[test]
fn the_guide_explains_every_reason_of_a_rejection_and_of_a_drop() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/troubleshooting.md");
    let text = fs::read_to_string(guide).unwrap();
    let names = ReplyReason::ALL.map(ReplyReason::name).into_iter();
    for name in names.chain(DropReason::ALL.map(DropReason::name)) {
        assert!(text.contains(&format!("\n| `{name}` |")), "no row for `{name}`");
    }
}
