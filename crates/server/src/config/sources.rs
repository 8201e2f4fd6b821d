//! Reads `[overload.sources]`, `[[overload.weight]]`, `[[overload.limit]]` and
//! `[overload.priority]`: the settings for the sources of new work.

use ipnet::IpNet;
use tidegate_control::Per;
use tidegate_proxy::{Excess, Overload, Priority, ResourceValues, SourceLimit, SourceWeight};

use super::diagnostic::Report;
use super::keys::Keys;
use super::section::Section;
use super::tables::sources::{LIMIT, PRIORITY, SOURCE_WEIGHT, SOURCES, SourcesTable};

/// Reads the tables about sources in `[overload]` into `overload`. Returns `None` if an error was
/// reported.
pub(super) fn read(
    section: &Section<'_, '_>,
    overload: &mut Overload,
    report: &mut Report,
) -> Option<()> {
    let from = IpNet::default();
    let limit = SourceLimit { from, rate_cps: 0.0, burst: 0, per: Per::Source, then: Excess::Drop };
    let limits = section.read_all(&LIMIT, |given, report| filled(limit, given, report), report);
    let weight = SourceWeight { from, weight: 0 };
    let weights =
        section.read_all(&SOURCE_WEIGHT, |given, report| filled(weight, given, report), report);
    let values = ResourceValues::default();
    let priority = Priority { from: Vec::new(), emergency: false, values, rate_cps: 0.0 };
    let priorities = section.read_all(
        &PRIORITY,
        |given, report| filled(priority.clone(), given, report),
        report,
    );
    let table = SourcesTable::from(&*overload);
    let table = section.read_one(&SOURCES, |given, report| filled(table, given, report), report)?;
    (overload.gate.sources, overload.sources) = (table.gate, table.sources);
    overload.sources.limits = limits.into_iter().collect::<Option<_>>()?;
    overload.sources.weights = weights.into_iter().collect::<Option<_>>()?;
    overload.sources.priority = priorities.into_iter().collect::<Option<Vec<_>>>()?.pop();
    Some(())
}

/// Returns `table` with the values in `section`, or `None` if an error was reported.
fn filled<T: Keys>(mut table: T, section: &Section<'_, '_>, report: &mut Report) -> Option<T> {
    section.fill(&mut table, report).is_empty().then_some(table)
}
