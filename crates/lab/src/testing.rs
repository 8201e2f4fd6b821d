//! Scenarios for the unit tests.

use std::path::Path;

use crate::run_spec::{RunSpec, runs};
use crate::scenario::Scenario;
use crate::worlds::Kind;

/// Reads a scenario. The text does not contain the title.
pub(crate) fn scenario(text: &str) -> Scenario {
    let text = format!("title = \"t\"\n{text}");
    Scenario::parse(Path::new("s"), text.as_bytes()).unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// Returns the runs of a scenario in a world of this kind.
pub(crate) fn planned(text: &str, world: Kind) -> Vec<RunSpec> {
    runs(&scenario(text), world)
}
