//! Reads `[farm]`.

use tidegate_proxy::Mode;
use tidegate_server::config::schema::{Report, Section};

use crate::scenario::farm::Farm;
use crate::scenario::tables::{FARM, NODE, NODES, PAUSE_EVERY_S, PAUSE_MS, SPEEDS};

/// Reads the table `[farm]` of the scenario `root`. `mode` becomes the mode of the servers. The
/// inner `None` means that the scenario has no farm. The outer `None` means that an error was
/// reported.
pub(super) fn read(
    root: &Section<'_, '_>,
    mode: Mode,
    report: &mut Report,
) -> Option<Option<Farm>> {
    root.read_optional(
        &FARM,
        |section, report| {
            if root.names().any(|name| name == NODE.name) {
                let help = "remove `[farm]` or all `[[node]]`";
                let title = "`[farm]` and `[[node]]` exclude each other";
                report.error(section.span(), title, "this table also defines servers", help);
                return None;
            }
            let nodes = section.plain(&NODES, report);
            let speeds = section.given_plain(&SPEEDS, report);
            let mut real = |knob| section.plain(knob, report);
            let (pause_ms, pause_every_s) = (real(&PAUSE_MS), real(&PAUSE_EVERY_S));
            Some(Farm {
                nodes: usize::try_from(nodes?).ok()?,
                speeds: speeds.unwrap_or_default(),
                pause_ms: pause_ms?,
                pause_every_s: pause_every_s?,
                mode,
            })
        },
        report,
    )
}
