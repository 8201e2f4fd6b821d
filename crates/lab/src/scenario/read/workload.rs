//! Reads `[workload]`.

use std::path::Path;

use tidegate_agent::{DevicesConfig, Process, Profile, Redial, Trace};
use tidegate_server::config::schema::{Report, Section, quoted};
use toml::Spanned;

use super::people;
use crate::scenario::tables::{
    ARRIVALS, Arrivals, EMERGENCY, FAILOVER, GOODPUT, HOLD, OPEN_LIMIT, OPEN_MAX, PROFILE,
    RETRANSMISSIONS, SOURCES, TRUNK, TRYING,
};
use crate::scenario::{Goodput, Hold};

/// The maximum length of a trace file, in bytes.
const TRACE_MAX: u64 = 256 << 20;

/// The values of those keys of `[workload]` that cannot be swept.
pub(super) struct Workload {
    pub arrivals: Spanned<Process>,
    pub profile: Spanned<Profile>,
    pub hold: Hold,
    pub retransmissions: bool,
    pub open_max: Option<usize>,
    pub open_limit: Option<usize>,
    pub failover: bool,
    pub trying: bool,
    pub goodput: Goodput,
    pub sources: u32,
    pub trunk: f64,
    pub redial: Option<Redial>,
    pub emergency: f64,
    pub devices: Option<DevicesConfig>,
}

/// Reads `[workload]`. Relative paths in the section start at `folder`, the folder of the scenario.
pub(super) fn read(
    section: &Section<'_, '_>,
    folder: &Path,
    report: &mut Report,
) -> Option<Workload> {
    let arrivals = section.value(&ARRIVALS, report).and_then(|a| process(a, folder, report));
    let profile = section.value(&PROFILE, report);
    let hold = section.plain(&HOLD, report);
    let retransmissions = section.plain(&RETRANSMISSIONS, report);
    let open_max = section.given_plain(&OPEN_MAX, report);
    let open_limit = section.given_plain(&OPEN_LIMIT, report);
    let failover = section.plain(&FAILOVER, report);
    let trying = section.plain(&TRYING, report);
    let goodput = section.plain(&GOODPUT, report);
    let sources = section.value(&SOURCES, report);
    let trunk = section.plain(&TRUNK, report);
    let emergency = section.plain(&EMERGENCY, report);
    let redial = people::redial(section, report);
    let devices = people::devices(section, report);
    let (arrivals, profile, sources) = (arrivals?, profile?, sources?);
    let has_several = *sources.get_ref() > 1 || trunk.is_some_and(|trunk| trunk > 0.0);
    if devices.as_ref().is_some_and(Option::is_some) && *sources.get_ref() > 1 {
        let help = "remove `sources` or `devices`";
        report.error(
            sources.span(),
            "devices need `sources = 1`",
            "this is more than one source",
            help,
        );
        return None;
    }
    if matches!(arrivals.get_ref(), Process::Trace(_)) && *profile.get_ref() != Profile::Constant {
        report.clash(
            "a trace cannot have a profile",
            (profile.span(), "the profile changes the rate"),
            (arrivals.span(), "the trace has the time of each call"),
            "remove `profile`, or use other `arrivals`",
        );
        return None;
    }
    if matches!(arrivals.get_ref(), Process::Trace(_)) && has_several {
        report.error(
            arrivals.span(),
            "a trace needs `sources = 1` and `trunk = 0`",
            "its calls cannot be divided among sources",
            "remove `sources` and `trunk`, or use other `arrivals`",
        );
        return None;
    }
    if let Some(limit) = section.place(OPEN_LIMIT.name).filter(|_| has_several) {
        report.error(
            limit,
            "a closed loop needs `sources = 1` and `trunk = 0`",
            "one limit cannot be shared by several sources",
            "remove `sources` and `trunk`, or `open_limit`",
        );
        return None;
    }
    Some(Workload {
        arrivals,
        profile,
        hold: hold?,
        retransmissions: retransmissions?,
        open_max: open_max.and_then(|max| usize::try_from(max).ok()),
        open_limit: open_limit.and_then(|limit| usize::try_from(limit).ok()),
        failover: failover?,
        trying: trying?,
        goodput: goodput?,
        sources: u32::try_from(sources.into_inner()).ok()?,
        trunk: trunk?,
        redial: redial?,
        emergency: emergency?,
        devices: devices?,
    })
}

/// Returns the arrival process. If the arrivals are a trace, reads the trace file.
fn process(
    arrivals: Spanned<Arrivals>,
    folder: &Path,
    report: &mut Report,
) -> Option<Spanned<Process>> {
    let span = arrivals.span();
    let file = match arrivals.into_inner() {
        Arrivals::Process(process) => return Some(Spanned::new(span, process)),
        Arrivals::TraceFile(file) => folder.join(file),
    };
    match trace(&file) {
        Ok(trace) => Some(Spanned::new(span, Process::Trace(trace))),
        Err(why) => {
            let title =
                format!("the file {} is not a valid trace", quoted(&file.display().to_string()));
            report.error(span, title, why, "write one time in seconds on each line, in order");
            None
        }
    }
}

fn trace(file: &Path) -> Result<Trace, String> {
    let unread = |error: std::io::Error| error.to_string();
    let length = std::fs::metadata(file).map_err(unread)?.len();
    if length > TRACE_MAX {
        return Err(format!("the file has {length} bytes, the limit is {TRACE_MAX}"));
    }
    let text = std::fs::read_to_string(file).map_err(unread)?;
    text.parse::<Trace>().map_err(|why| why.to_string())
}
