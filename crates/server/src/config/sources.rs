//! `[overload.sources]`, `[[overload.weight]]`, `[[overload.limit]]` and `[overload.priority]`: who
//! asks for new work.

use std::time::Duration;

use ipnet::IpNet;
use tidegate_control::SourceSettings;
use tidegate_proxy::{Excess, Flood, Priority, ResourceValues, SourceLimit, SourceWeight, Sources};
use toml::Spanned;

use super::diagnostic::Report;
use super::knob::Knob;
use super::section::Section;
use super::shape::{List, Text};
use super::tables::{
    BAN_ABOVE_CPS, BAN_AFTER_S, BAN_S, BANS_MAX, CAP_CPS, EMERGENCY, FAIR, LIMIT, LIMIT_BAN_S,
    LIMIT_BURST, LIMIT_CPS, LIMIT_FROM, LIMIT_PER, LIMIT_THEN, NEVER_BAN, PRIORITY, PRIORITY_FROM,
    RESOURCE_PRIORITY, SOURCE_WEIGHT, SOURCE_WEIGHT_WEIGHT, SOURCES, TABLE_MAX, Then, WEIGHT_FROM,
};

/// Returns what the four tables in `[overload]` say; `None` when something was reported. What the
/// proxy tells its gate of limits and priority is not yet in what the gate is told.
pub(super) fn read(
    overload: &Section<'_, '_>,
    report: &mut Report,
) -> Option<(SourceSettings, Sources)> {
    let limits = overload.read_all(&LIMIT, read_limit, report);
    let weights = overload.read_all(&SOURCE_WEIGHT, read_weight, report);
    let priority = overload.read_all(&PRIORITY, read_priority, report).pop();
    let (gate, sources) = overload.read_one(&SOURCES, read_sources, report)?;
    let sources = Sources {
        limits: limits.into_iter().collect::<Option<_>>()?,
        weights: weights.into_iter().collect::<Option<_>>()?,
        // Absent, or read.
        priority: match priority {
            None => None,
            Some(read) => Some(read?),
        },
        ..sources
    };
    Some((gate, sources))
}

fn read_sources(
    section: &Section<'_, '_>,
    report: &mut Report,
) -> Option<(SourceSettings, Sources)> {
    let fair = section.value(&FAIR, report).map(Spanned::into_inner);
    let never_ban = nets(section, &NEVER_BAN, report);
    let mut whole = |knob| section.value(knob, report).map(Spanned::into_inner);
    let (table_max, bans_max) = (whole(&TABLE_MAX), whole(&BANS_MAX));
    let (after_s, ban_s) = (whole(&BAN_AFTER_S), whole(&BAN_S));
    let above = section.given(&BAN_ABOVE_CPS, report).map(Spanned::into_inner);
    if !section.has(&BAN_ABOVE_CPS) {
        for knob in [&BAN_AFTER_S, &BAN_S] {
            report_idle(section, knob, "`ban_above_cps`", report);
        }
    }
    let flood = |above: u64| {
        Some(Flood {
            above_cps: u32::try_from(above).ok()?,
            after_s: u32::try_from(after_s?).ok()?,
            ban: Duration::from_secs(ban_s?),
        })
    };
    let gate = SourceSettings {
        fair: fair?,
        sources_max: usize::try_from(table_max?).ok()?,
        ..SourceSettings::default()
    };
    let sources = Sources {
        flood: above.and_then(flood),
        never_ban: never_ban?,
        bans_max: usize::try_from(bans_max?).ok()?,
        ..Sources::default()
    };
    Some((gate, sources))
}

fn read_limit(section: &Section<'_, '_>, report: &mut Report) -> Option<SourceLimit> {
    let from = section.value(&LIMIT_FROM, report).map(Spanned::into_inner);
    let rate_cps = section.value(&LIMIT_CPS, report).map(Spanned::into_inner);
    let burst = section.value(&LIMIT_BURST, report).map(Spanned::into_inner);
    let per = section.value(&LIMIT_PER, report).map(Spanned::into_inner);
    let then = section.value(&LIMIT_THEN, report).map(Spanned::into_inner);
    let ban_s = section.value(&LIMIT_BAN_S, report).map(Spanned::into_inner);
    if then.is_some_and(|then| then != Then::Ban) {
        report_idle(section, &LIMIT_BAN_S, "`then = \"ban\"`", report);
    }
    Some(SourceLimit {
        from: from?,
        rate_cps: rate_cps?,
        burst: u32::try_from(burst?).ok()?,
        per: per?,
        then: match then? {
            Then::Refuse => Excess::Refuse,
            Then::Drop => Excess::Drop,
            Then::Ban => Excess::Ban(Duration::from_secs(ban_s?)),
        },
    })
}

fn read_weight(section: &Section<'_, '_>, report: &mut Report) -> Option<SourceWeight> {
    let from = section.value(&WEIGHT_FROM, report).map(Spanned::into_inner);
    let weight = section.value(&SOURCE_WEIGHT_WEIGHT, report).map(Spanned::into_inner);
    Some(SourceWeight { from: from?, weight: u32::try_from(weight?).ok()? })
}

fn read_priority(section: &Section<'_, '_>, report: &mut Report) -> Option<Priority> {
    let from = nets(section, &PRIORITY_FROM, report);
    let emergency = section.value(&EMERGENCY, report).map(Spanned::into_inner);
    let listed = section.value(&RESOURCE_PRIORITY, report).map(Spanned::into_inner);
    let rate_cps = section.value(&CAP_CPS, report).map(Spanned::into_inner);
    let mut values = ResourceValues::default();
    for text in listed? {
        values.add(text.get_ref()).ok()?;
    }
    Some(Priority { from: from?, emergency: emergency?, values, rate_cps: rate_cps? })
}

fn nets(
    section: &Section<'_, '_>,
    knob: &Knob<List<Text<IpNet>>>,
    report: &mut Report,
) -> Option<Vec<IpNet>> {
    let nets = section.value(knob, report)?.into_inner();
    Some(nets.into_iter().map(Spanned::into_inner).collect())
}

/// Reports a key that is given where nothing heeds it.
fn report_idle<S: super::knob::Shape>(
    section: &Section<'_, '_>,
    knob: &Knob<S>,
    wanted: &str,
    report: &mut Report,
) {
    if !section.has(knob) {
        return;
    }
    if let Some(given) = section.given(knob, report) {
        let title = format!("`{}` has no effect", knob.name);
        let label = format!("without {wanted}");
        report.error(given.span(), title, label, format!("remove it, or add {wanted}"));
    }
}
