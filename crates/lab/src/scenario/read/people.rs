//! Reads `[workload.redial]` and `[workload.devices]`.

use tidegate_agent::{BackOff, DevicesConfig, Redial, RegistrationLoss};
use tidegate_server::config::schema::{Report, Section};

use crate::scenario::tables::{DEVICES, DevicesDraft, REDIAL, RedialDraft, RedialTable};

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
    let table = DevicesDraft::read(section, report).finish()?;
    let loss = |at| RegistrationLoss { at, share: table.lost, within: table.lost_within };
    Some(DevicesConfig {
        count: table.count,
        refresh: table.refresh,
        back_off: BackOff { base: table.retry, max: table.retry_max, jitter: table.jitter },
        obeys_retry_after: table.obeys_retry_after,
        loss: table.lost_at.map(loss),
    })
}
