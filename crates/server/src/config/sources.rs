//! Reads `[overload.sources]`, `[[overload.weight]]`, `[[overload.limit]]` and
//! `[overload.priority]`: the settings for the sources of new work.

use ipnet::IpNet;
use tidegate_control::Per;
use tidegate_proxy::{Excess, Overload, Priority, ResourceValues, SourceLimit, SourceWeight};
use toml::Spanned;

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
    let limits = section.read_all(
        &LIMIT,
        |given, report| Entry::read(limit, |limit| limit.from, given, report),
        report,
    );
    check_reached(&limits, "limit", report);
    let weight = SourceWeight { from, weight: 0 };
    let weights = section.read_all(
        &SOURCE_WEIGHT,
        |given, report| Entry::read(weight, |weight| weight.from, given, report),
        report,
    );
    check_reached(&weights, "weight", report);
    let priorities = section.read_all(&PRIORITY, read_priority, report);
    let table = SourcesTable::from(&*overload);
    let table = section.read_one(&SOURCES, |given, report| filled(table, given, report), report)?;
    (overload.gate.sources, overload.sources) = (table.gate, table.sources);
    let limits = limits.into_iter().map(|entry| entry.values);
    let weights = weights.into_iter().map(|entry| entry.values);
    overload.sources.limits = limits.collect::<Option<_>>()?;
    overload.sources.weights = weights.collect::<Option<_>>()?;
    overload.sources.priority = priorities.into_iter().collect::<Option<Vec<_>>>()?.pop();
    Some(())
}

/// An entry of `[[overload.limit]]` or `[[overload.weight]]`.
struct Entry<T> {
    /// The values of the entry, or `None` if an error was reported.
    values: Option<T>,
    /// The network in `from`, with its position in the file. `None` if it could not be read.
    from: Option<Spanned<IpNet>>,
}

impl<T: Keys> Entry<T> {
    /// Reads the keys in `section` into `values`. `from` returns the network of an entry.
    fn read(
        mut values: T,
        from: fn(&T) -> IpNet,
        section: &Section<'_, '_>,
        report: &mut Report,
    ) -> Self {
        let wrong = section.fill(&mut values, report);
        let span = section.place("from").filter(|_| !wrong.contains(&"from"));
        let from = span.map(|span| Spanned::new(span, from(&values)));
        Self { values: wrong.is_empty().then_some(values), from }
    }
}

/// Reports each entry that never applies, because the first entry that matches a source applies and
/// earlier entries match all its sources. `kind` is the word for an entry.
fn check_reached<T>(entries: &[Entry<T>], kind: &str, report: &mut Report) {
    let networks: Vec<_> = entries.iter().filter_map(|entry| entry.from.as_ref()).collect();
    for (i, later) in networks.iter().enumerate() {
        let net = later.get_ref();
        let matches_all = |last: &usize| {
            let earlier = networks[..=*last].iter().map(|earlier| *earlier.get_ref()).collect();
            IpNet::aggregate(&earlier).iter().any(|joined| joined.contains(net))
        };
        let Some(last) = (0..i).find(matches_all).map(|last| networks[last]) else { continue };
        let is_alone = last.get_ref().contains(net);
        let label = match is_alone {
            true => format!("this {kind} applies to them"),
            false => format!("this {kind} and those above it apply to them"),
        };
        let help = match last.get_ref() == net {
            true => format!("remove one {kind}: a network has only one"),
            false if is_alone => format!("move the later {kind} up, or remove it"),
            // Above one of the earlier entries, it would match all sources of that entry.
            false => format!("remove the later {kind}"),
        };
        report.clash(
            format!("no source has this {kind}"),
            (later.span(), "earlier entries match all these sources"),
            (last.span(), &label),
            help,
        );
    }
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
