//! What a pool's `[pool.health]` says, and which pool stands in for which.

use std::time::Duration;

use tidegate_proxy::{Accept, Health, Probe};
use toml::Spanned;

use super::diagnostic::{Report, alternatives, nearest, quoted};
use super::pool;
use super::section::Section;
use super::tables::{
    ACCEPT, ERROR_LIMIT, FALL, JITTER, PROBE, PROBE_FROM, PROBE_INTERVAL_S, PROBE_TIMEOUT_MS,
    RETRY_AFTER_MAX_S, RISE, SLOW_START_S,
};

/// Of a pool whose rates are learned, or are not.
pub(super) fn read(section: &Section<'_, '_>, learns: bool, report: &mut Report) -> Option<Health> {
    let count = |n: Spanned<u64>| u32::try_from(n.into_inner()).ok();
    let seconds = |s: Spanned<f64>| Duration::from_secs_f64(s.into_inner());
    let is_probed = section.value(&PROBE, report).map(Spanned::into_inner);
    let interval = section.value(&PROBE_INTERVAL_S, report).map(seconds);
    let timeout = section.value(&PROBE_TIMEOUT_MS, report);
    let jitter = section.value(&JITTER, report).map(Spanned::into_inner);
    let fall = section.value(&FALL, report).and_then(count);
    let rise = section.value(&RISE, report).and_then(count);
    let from = section.given(&PROBE_FROM, report).map(Spanned::into_inner);
    let accept = section.given(&ACCEPT, report).map(|list| {
        let status = |status: &Spanned<u64>| *status.get_ref() as u16;
        (list.span(), list.get_ref().iter().map(status).collect::<Vec<_>>())
    });
    if let Some((span, statuses)) = &accept
        && statuses.is_empty()
    {
        let help = "leave `accept` out to accept any answer but 503";
        report.error(span.clone(), "an empty `accept`: no answer would count", "", help);
    }
    let error_limit = section.value(&ERROR_LIMIT, report).and_then(count);
    let retry_after_max = section.has(&RETRY_AFTER_MAX_S).then(|| {
        let max = section.given(&RETRY_AFTER_MAX_S, report)?;
        Some(Duration::from_secs(max.into_inner()))
    });
    let slow_start = section.value(&SLOW_START_S, report).map(seconds);
    let probe = Probe {
        interval: interval?,
        timeout: Duration::from_millis(timeout?.into_inner()),
        jitter: jitter?,
        fall: fall?,
        rise: rise?,
        accept: accept.map_or(Accept::Any, |(_, statuses)| Accept::Only(statuses)),
        from,
    };
    Some(Health {
        probe: is_probed?.then_some(probe),
        error_limit: error_limit?,
        retry_after_max: match retry_after_max {
            Some(written) => written?,
            // RFC 5390 §5.3: "The mechanism is an all-or-nothing technique." Who learns how much a
            // back end takes does not need it.
            None if learns => Duration::ZERO,
            None => Health::default().retry_after_max,
        },
        slow_start: slow_start?,
    })
}

/// Reports pools that stand in and do not exist, and circles of them.
pub(super) fn check_backups(drafts: &[pool::Draft], report: &mut Report) {
    // A pool whose name could not be read may be the one meant.
    let names = drafts.iter().map(|pool| Some(pool.name.as_ref()?.get_ref().as_str()));
    let Some(names) = names.collect::<Option<Vec<_>>>() else { return };
    let backup = |i: usize| {
        let name = drafts[i].backup.as_ref()?.get_ref();
        names.iter().position(|known| known == name)
    };
    for (i, draft) in drafts.iter().enumerate() {
        let Some(to) = &draft.backup else { continue };
        let Some(first) = backup(i) else {
            let help = match nearest(to.get_ref(), names.iter().copied()) {
                Some(near) => format!("did you mean `\"{near}\"`?"),
                None => format!("write {}", alternatives(names.iter().map(|n| format!("\"{n}\"")))),
            };
            let title = format!("an unknown pool {} as `backup`", quoted(to.get_ref()));
            report.error(to.span(), title, "no pool of this name", help);
            continue;
        };
        let chain = std::iter::successors(Some(first), |&next| backup(next));
        if chain.take(drafts.len()).any(|next| next == i) {
            let help = "remove one `backup` of the circle";
            report.error(to.span(), "pools that stand in for each other", "leads back here", help);
        }
    }
}
