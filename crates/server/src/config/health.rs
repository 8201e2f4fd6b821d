//! Reads `[pool.health]`: the health checks of a pool.

use tidegate_proxy::{Accept, Health, Mode};

use super::diagnostic::Report;
use super::section::Section;
use super::tables::health::HealthTable;
use super::tables::pool::{KEEP_THEM, STATELESS};

/// Reads the table `[pool.health]` of a pool. `mode` is the mode of the pool, or `None` if it is
/// invalid. Returns `None` if an error was reported.
pub(super) fn read(
    section: &Section<'_, '_>,
    mode: Option<Mode>,
    report: &mut Report,
) -> Option<Health> {
    let mut table = HealthTable::default();
    let wrong = section.fill(&mut table, report);
    if mode == Some(Mode::Stateless) {
        let keys = ["error_limit", "retry_after_max_s"];
        section.report_idle(&keys, STATELESS, KEEP_THEM, report);
    }
    let HealthTable { is_probed, mut probe, health } = table;
    if let (Some(span), Accept::Only(statuses)) = (section.place("accept"), &probe.accept)
        && statuses.is_empty()
    {
        let help = "remove `accept`: every response except 503 then counts as success";
        report.error(span, "`accept` is empty, so every probe would fail", "", help);
    }
    match section.place("timeout_ms") {
        None => probe.timeout = probe.timeout.min(probe.interval),
        Some(span) if wrong.is_empty() && probe.timeout > probe.interval => {
            let title = "the probe timeout is longer than the interval";
            let interval = probe.interval.as_secs_f64();
            let label = format!("this is longer than the {interval} s between two probes");
            let help = "write a shorter `timeout_ms` or a longer `interval_s`";
            report.error(span, title, label, help);
        }
        Some(_) => {}
    }
    wrong.is_empty().then(|| Health { probe: is_probed.then_some(probe), ..health })
}
