//! Reads `[workload.redial]` and `[workload.devices]`.

use std::time::Duration;

use tidegate_agent::{BackOff, DevicesConfig, Redial, RegistrationLoss};
use tidegate_server::config::schema::{Report, Section};
use toml::Spanned;

use crate::scenario::tables::{
    ATTEMPTS_MAX, COUNT, DEVICES, JITTER, LOST, LOST_AT_S, LOST_WITHIN_S, OBEYS, PROBABILITY,
    REDIAL, REFRESH_S, RETRY_MAX_S, RETRY_S, WAIT, WAIT_S, WAITING_MAX,
};

/// Reads the table `redial` of `[workload]`. The inner `None` means that the scenario has no
/// `redial` table. The outer `None` means that an error was reported.
pub(super) fn redial(workload: &Section<'_, '_>, report: &mut Report) -> Option<Option<Redial>> {
    match workload.read_all(&REDIAL, read_redial, report).pop() {
        None => Some(None),
        Some(redial) => redial.map(Some),
    }
}

/// Reads the table `devices` of `[workload]`. The inner `None` means that the scenario has no
/// `devices` table. The outer `None` means that an error was reported.
pub(super) fn devices(
    workload: &Section<'_, '_>,
    report: &mut Report,
) -> Option<Option<DevicesConfig>> {
    match workload.read_all(&DEVICES, read_devices, report).pop() {
        None => Some(None),
        Some(devices) => devices.map(Some),
    }
}

fn read_redial(section: &Section<'_, '_>, report: &mut Report) -> Option<Redial> {
    let attempts_max = section.value(&ATTEMPTS_MAX, report).map(Spanned::into_inner);
    let probability = section.value(&PROBABILITY, report).map(Spanned::into_inner);
    let wait_s = section.value(&WAIT_S, report).map(Spanned::into_inner);
    let wait = section.value(&WAIT, report).map(Spanned::into_inner);
    let waiting_max = section.value(&WAITING_MAX, report).map(Spanned::into_inner);
    Some(Redial {
        attempts_max: u32::try_from(attempts_max?).ok()?,
        probability: probability?,
        wait: wait?.span(Duration::from_secs_f64(wait_s?)),
        waiting_max: usize::try_from(waiting_max?).ok()?,
    })
}

fn read_devices(section: &Section<'_, '_>, report: &mut Report) -> Option<DevicesConfig> {
    let seconds = Duration::from_secs_f64;
    let count = section.value(&COUNT, report).map(Spanned::into_inner);
    let refresh = section.value(&REFRESH_S, report).map(Spanned::into_inner);
    let base = section.value(&RETRY_S, report).map(Spanned::into_inner);
    let max = section.value(&RETRY_MAX_S, report).map(Spanned::into_inner);
    let jitter = section.value(&JITTER, report).map(Spanned::into_inner);
    let obeys = section.value(&OBEYS, report).map(Spanned::into_inner);
    let at = section.given(&LOST_AT_S, report).map(Spanned::into_inner);
    let share = section.value(&LOST, report).map(Spanned::into_inner);
    let within = section.value(&LOST_WITHIN_S, report).map(Spanned::into_inner);
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
