//! Reads `[workload.redial]` and `[workload.devices]`.

use std::time::Duration;

use tidegate_agent::{BackOff, DevicesConfig, Redial, RegistrationLoss};
use tidegate_server::config::schema::{Report, Section};

use crate::scenario::tables::{
    COUNT, DEVICES, JITTER, LOST, LOST_AT_S, LOST_WITHIN_S, OBEYS, REDIAL, REFRESH_S, RETRY_MAX_S,
    RETRY_S, RedialDraft, RedialTable,
};

/// Reads the table `redial` of `[workload]`. The inner `None` means that the scenario has no
/// `redial` table. The outer `None` means that an error was reported.
pub(super) fn redial(workload: &Section<'_, '_>, report: &mut Report) -> Option<Option<Redial>> {
    workload.read_optional(&REDIAL, read_redial, report)
}

/// Reads the table `devices` of `[workload]`. The inner `None` means that the scenario has no
/// `devices` table. The outer `None` means that an error was reported.
pub(super) fn devices(
    workload: &Section<'_, '_>,
    report: &mut Report,
) -> Option<Option<DevicesConfig>> {
    workload.read_optional(&DEVICES, read_devices, report)
}

fn read_redial(section: &Section<'_, '_>, report: &mut Report) -> Option<Redial> {
    let RedialTable { attempts_max, probability, wait_mean, wait, waiting_max } =
        RedialDraft::read(section, report).finish()?;
    Some(Redial { attempts_max, probability, wait: wait.span(wait_mean), waiting_max })
}

fn read_devices(section: &Section<'_, '_>, report: &mut Report) -> Option<DevicesConfig> {
    let seconds = Duration::from_secs_f64;
    let count = section.plain(&COUNT, report);
    let refresh = section.plain(&REFRESH_S, report);
    let base = section.plain(&RETRY_S, report);
    let max = section.plain(&RETRY_MAX_S, report);
    let jitter = section.plain(&JITTER, report);
    let obeys = section.plain(&OBEYS, report);
    let at = section.given_plain(&LOST_AT_S, report);
    let share = section.plain(&LOST, report);
    let within = section.plain(&LOST_WITHIN_S, report);
    if at.is_none() && !section.has(&LOST_AT_S) {
        section.report_idle(
            &[LOST.name, LOST_WITHIN_S.name],
            "no device loses its registration",
            "add `lost_at_s`",
            report,
        );
    }
    let (share, within) = (share?, within?);
    let loss = |at| RegistrationLoss { at: seconds(at), share, within: seconds(within) };
    Some(DevicesConfig {
        count: u32::try_from(count?).ok()?,
        refresh: seconds(refresh?),
        back_off: BackOff { base: seconds(base?), max: seconds(max?), jitter: jitter? },
        obeys_retry_after: obeys?,
        loss: at.map(loss),
    })
}
