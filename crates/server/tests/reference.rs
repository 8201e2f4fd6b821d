//! Tests that `docs/configuration.md` is the reference that the program generates now.

#[path = "../../world/tests/committed/mod.rs"]
mod committed;

use std::fs;
use std::path::Path;

use committed::assert_committed;
use tidegate_proxy::{DropReason, ReplyReason};
use tidegate_server::config::{Config, reference};

#[test]
fn the_committed_reference_is_not_stale() {
    assert_committed("../../docs/configuration.md", &reference(), None);
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
