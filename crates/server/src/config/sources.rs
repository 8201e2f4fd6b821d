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
    let priorities = section.read_all(&PRIORITY, read_priority, report);
    let table = SourcesTable::from(&*overload);
    let table = section.read_one(&SOURCES, |given, report| filled(table, given, report), report)?;
    (overload.gate.sources, overload.sources) = (table.gate, table.sources);
    overload.sources.limits = limits.into_iter().collect::<Option<_>>()?;
    overload.sources.weights = weights.into_iter().collect::<Option<_>>()?;
    overload.sources.priority = priorities.into_iter().collect::<Option<Vec<_>>>()?.pop();
    Some(())
}

/// Reads `[overload.priority]`. Returns `None` if an error was reported.
fn read_priority(section: &Section<'_, '_>, report: &mut Report) -> Option<Priority> {
    let values = ResourceValues::default();
    let none = Priority { from: Vec::new(), emergency: false, values, rate_cps: 0.0 };
    let priority = filled(none, section, report)?;
    if priority.emergency || !priority.values.texts().is_empty() {
        return Some(priority);
    }
    let title = "`[overload.priority]` gives no call priority";
    let label = "this table names neither emergency calls nor a value of Resource-Priority";
    let help = "write `emergency = true`, list values in `resource_priority`, or remove the table";
    report.error(section.span(), title, label, help);
    None
}

/// Returns `table` with the values in `section`, or `None` if an error was reported.
fn filled<T: Keys>(mut table: T, section: &Section<'_, '_>, report: &mut Report) -> Option<T> {
    section.fill(&mut table, report).is_empty().then_some(table)
}
