//! Scenarios, messages and points in time for the unit tests.

use std::path::Path;
use std::time::Duration;

use tidegate_world::Timestamp;

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

/// Returns a message of a call. `start` is its first line, and `cseq` the method in its CSeq.
pub(crate) fn message(start: &str, call_id: &str, cseq: &str) -> Vec<u8> {
    format!(
        "{start}\r\nVia: SIP/2.0/UDP 10.0.2.1;branch=z9hG4bK1\r\nCall-ID: {call_id}\r\n\
         CSeq: 1 {cseq}\r\nTo: <sip:b>\r\nFrom: <sip:a>;tag=1\r\n\r\n"
    )
    .into_bytes()
}

/// Returns the time this number of milliseconds after the start.
pub(crate) fn at_ms(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}
