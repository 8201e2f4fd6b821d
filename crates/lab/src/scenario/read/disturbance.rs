//! Reads `[disturbance]`.

use std::time::Duration;

use tidegate_server::config::schema::{Report, Section};

use crate::disturbance::Disturbance;
use crate::scenario::tables::{COSTS, DEARER, DEARER_AT_S, MISREAD, STOLEN_EVERY_MS, STOLEN_MS};

/// Reads the table `[disturbance]`. Returns `None` when an error was reported.
pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Disturbance> {
    let costs = section.plain(&COSTS, report);
    let mut real = |knob| section.plain(knob, report);
    let (dearer, dearer_at_s) = (real(&DEARER), real(&DEARER_AT_S));
    let misread = real(&MISREAD);
    let (stolen, every) =
        (section.value(&STOLEN_MS, report), section.value(&STOLEN_EVERY_MS, report));
    let (stolen, every) = (stolen?, every?);
    if stolen.get_ref() >= every.get_ref() {
        let help = "make `stolen_every_ms` longer than `stolen_ms`";
        report.error(
            stolen.span(),
            "the server never has the processor",
            "this is a whole period or more",
            help,
        );
        return None;
    }
    let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
    let (stolen, every) = (stolen.into_inner(), every.into_inner());
    let dearer = dearer?;
    Some(Disturbance {
        costs: costs?,
        dearer: (dearer != 1.0).then_some((Duration::from_secs_f64(dearer_at_s?), dearer)),
        stolen: (stolen > 0.0).then(|| (ms(every), ms(stolen))),
        misread: misread?,
    })
}
