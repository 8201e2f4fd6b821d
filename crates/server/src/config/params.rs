//! Reads a table with the parameters of a law or policy. The law or policy determines the keys of
//! the table.

use tidegate_world::param::Entry;
use tidegate_world::{Kind, Param, Values, Wrong};

use super::diagnostic::{Report, nearest, quoted};
use super::knob::Shape;
use super::section::Section;
use super::shape::Real;

/// Returns the parameters of the law or policy `entry` with the values in `section`, or `None` if
/// an error was reported.
pub(super) fn read<K: Kind>(
    entry: &'static Entry<K>,
    section: &Section<'_, '_>,
    report: &mut Report,
) -> Option<Values<K>> {
    let kind = K::WORD;
    let mut given = Vec::new();
    let mut right = true;
    for (key, value) in section.each() {
        let known = entry.params.iter().find(|param| param.name == &**key.get_ref());
        let Some(param) = known else {
            let names = || entry.params.iter().map(|param| param.name);
            let help = match report.is_full() {
                true => String::new(),
                false => section.remedy(key.get_ref(), nearest(key.get_ref(), names()), names()),
            };
            let name = quoted(key.get_ref());
            let title = format!("{kind} `{}` has no parameter {name}", entry.name);
            report.error(key.span(), title, format!("not known to this {kind}"), help);
            right = false;
            continue;
        };
        let Param { name, range, .. } = **param;
        match Real(range.bounds()).read(name, value, report) {
            Some(number) if range.contains(number) => given.push((name, number)),
            Some(_) => {
                let title = format!("`{name}` must be a whole number");
                report.error(value.span(), title, "has a fraction", format!("write {range}"));
                right = false;
            }
            None => right = false,
        }
    }
    if !right {
        return None;
    }
    match entry.values(&given) {
        Ok(values) => Some(values),
        Err(Wrong::Contradiction(needed)) => {
            let title = format!("the parameters of {kind} `{}` do not fit together", entry.name);
            let label = format!("this condition is not met: {needed}");
            report.error(section.span(), title, label, format!("write values with {needed}"));
            None
        }
        Err(Wrong::Unknown(_) | Wrong::OutOfRange(..)) => {
            unreachable!("names and bounds were checked one by one")
        }
    }
}
