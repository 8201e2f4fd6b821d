//! Reads `[overload]`: overload control of new work.

use tidegate_control::Values;
use tidegate_proxy::{Disposal, Overload};

use super::diagnostic::Report;
use super::params;
use super::section::Section;
use super::sources;
use super::tables::feedback::FEEDBACK;
use super::tables::overload::{PARAMS, SESSIONS, SHADOW, SHADOW_PARAMS};

/// Reads the table `[overload]`. Returns `None` when an error was reported.
pub fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Overload> {
    let mut overload = Overload::default();
    let wrong = section.fill(&mut overload, report);
    let estimation = &mut overload.gate.sessions;
    section.read_one(&SESSIONS, |sessions, report| sessions.fill(estimation, report), report);
    let feedback = &mut overload.feedback;
    section.read_one(&FEEDBACK, |given, report| given.fill(feedback, report), report);
    // Read every table before giving up, so that all errors are reported.
    let sources = sources::read(section, &mut overload, report);
    let law = overload.gate.law.entry();
    // The law determines which parameters there are.
    let law = match wrong.contains(&"law") {
        true => None,
        false => {
            let read =
                |given: &Section<'_, '_>, report: &mut Report| params::read(law, given, report);
            section.read_one(&PARAMS, read, report)
        }
    };
    let shadow = section.read_one(&SHADOW, read_shadow, report);
    sources?;
    (overload.gate.law, overload.gate.shadow) = (law?, shadow?);
    wrong.is_empty().then_some(overload)
}

/// Reads the table `[overload]` of an experiment that compares laws. Two defaults differ from those
/// of a server ([`read`]): work that is not admitted gets a 503, and admitted work is not shared
/// fairly among sources.
pub fn read_compared(section: &Section<'_, '_>, report: &mut Report) -> Option<Overload> {
    let mut overload = read(section, report)?;
    if section.place("disposal").is_none() {
        overload.disposal = Disposal::Reject;
    }
    if section.place("sources").is_none() {
        overload.gate.sources.fair = false;
    }
    Some(overload)
}

/// Reads the shadow law, if there is one. Returns `None` when an error was reported.
fn read_shadow(section: &Section<'_, '_>, report: &mut Report) -> Option<Option<Values>> {
    let mut shadow: Option<Values> = None;
    if !section.fill(&mut shadow, report).is_empty() {
        return None;
    }
    let Some(law) = shadow.map(|shadow| shadow.entry()) else {
        let given = |params: &Section<'_, '_>, report: &mut Report| {
            let idle = params.each().next().map(|(key, _)| key.span());
            if let Some(span) = idle.clone() {
                let help = "add `law = …`, or remove the parameters";
                report.error(
                    span,
                    "there are parameters, but no law",
                    "the shadow law is `off`",
                    help,
                );
            }
            idle.is_none()
        };
        return section.read_one(&SHADOW_PARAMS, given, report).then_some(None);
    };
    section
        .read_one(&SHADOW_PARAMS, |given, report| params::read(law, given, report), report)
        .map(Some)
}
