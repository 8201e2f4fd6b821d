//! Reads `[disturbance]`.

use tidegate_server::config::schema::{Report, Section};

use crate::disturbance::Disturbance;
use crate::scenario::tables::{DisturbanceDraft, DisturbanceTable};

/// Reads the table `[disturbance]`. Returns `None` when an error was reported.
pub(super) fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Disturbance> {
    let draft = DisturbanceDraft::read(section, report);
    if let (Some(stolen), Some(every)) = (&draft.stolen, &draft.stolen_every)
        && stolen.get_ref() >= every.get_ref()
    {
        let help = "make `stolen_every_ms` longer than `stolen_ms`";
        report.error(
            stolen.span(),
            "the server never has the processor",
            "this is a whole period or more",
            help,
        );
        return None;
    }
    let DisturbanceTable { costs, dearer, dearer_at, stolen, stolen_every, misread } =
        draft.finish()?;
    Some(Disturbance {
        costs,
        dearer: (dearer != 1.0).then_some((dearer_at, dearer)),
        stolen: (!stolen.is_zero()).then_some((stolen_every, stolen)),
        misread,
    })
}
