//! What a pool's `[pool.health]` says.

use std::time::Duration;

use tidegate_proxy::{Accept, Health, Mode, Probe};
use toml::Spanned;

use super::diagnostic::Report;
use super::section::Section;
use super::tables::{
    ACCEPT, EJECT_MAX, ERROR_LIMIT, FALL, JITTER, PROBE, PROBE_FROM, PROBE_INTERVAL_S,
    PROBE_TIMEOUT_MS, RETRY_AFTER_MAX_S, RISE, SLOW_START_S,
};

/// Why what concerns transactions has no effect, and what would give it one.
pub(super) const STATELESS: &str = "a pool without transactions does not use it";
pub(super) const KEEP_THEM: &str = "write another `mode` than `\"stateless\"`";

/// The pool whose health it is.
#[derive(Clone, Copy)]
pub(super) struct Of {
    /// What it keeps, if that could be read.
    pub mode: Option<Mode>,
    /// Whether its rates are learned.
    pub learns: bool,
}

pub(super) fn read(section: &Section<'_, '_>, of: Of, report: &mut Report) -> Option<Health> {
    let count = |n: Spanned<u64>| u32::try_from(n.into_inner()).ok();
    let seconds = |s: Spanned<f64>| Duration::from_secs_f64(s.into_inner());
    let is_probed = section.value(&PROBE, report).map(Spanned::into_inner);
    if is_probed == Some(false) {
        let of_time = [PROBE_INTERVAL_S.name, PROBE_TIMEOUT_MS.name, JITTER.name];
        let of_answers = [FALL.name, RISE.name, ACCEPT.name, PROBE_FROM.name];
        let keys = [&of_time[..], &of_answers].concat();
        let why = "probes are off";
        section.report_idle(&keys, why, "write `probe = \"options\"`", report);
    }
    if of.mode == Some(Mode::Stateless) {
        let keys = [ERROR_LIMIT.name, RETRY_AFTER_MAX_S.name];
        section.report_idle(&keys, STATELESS, KEEP_THEM, report);
    }
    let interval = section.value(&PROBE_INTERVAL_S, report).map(seconds);
    let timeout = timeout(section, interval, report);
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
    let eject_max = section.value(&EJECT_MAX, report).map(Spanned::into_inner);
    let retry_after_max = section.has(&RETRY_AFTER_MAX_S).then(|| {
        let max = section.given(&RETRY_AFTER_MAX_S, report)?;
        Some(Duration::from_secs(max.into_inner()))
    });
    let slow_start = section.value(&SLOW_START_S, report).map(seconds);
    let probe = Probe {
        interval: interval?,
        timeout: timeout?,
        jitter: jitter?,
        fall: fall?,
        rise: rise?,
        accept: accept.map_or(Accept::Any, |(_, statuses)| Accept::Only(statuses)),
        from,
    };
    Some(Health {
        probe: is_probed?.then_some(probe),
        error_limit: error_limit?,
        eject_max: eject_max?,
        retry_after_max: match retry_after_max {
            Some(written) => written?,
            // RFC 5390 §5.3: "The mechanism is an all-or-nothing technique." Who learns how much a
            // back end takes does not need it.
            None if of.learns => Duration::ZERO,
            None => Health::default().retry_after_max,
        },
        slow_start: slow_start?,
    })
}

/// How long the answer to a probe is awaited: no longer than until the next one is due.
fn timeout(
    section: &Section<'_, '_>,
    interval: Option<Duration>,
    report: &mut Report,
) -> Option<Duration> {
    if !section.has(&PROBE_TIMEOUT_MS) {
        return Some(Probe::default().timeout.min(interval?));
    }
    let given = section.given(&PROBE_TIMEOUT_MS, report)?;
    let (timeout, interval) = (Duration::from_millis(*given.get_ref()), interval?);
    if timeout > interval {
        let title = "a probe timeout longer than the interval";
        let label = format!("longer than the {} s between two probes", interval.as_secs_f64());
        let help = "write a shorter `timeout_ms` or a longer `interval_s`";
        report.error(given.span(), title, label, help);
        return None;
    }
    Some(timeout)
}
