//! What `[pool.limit]` says, and where limits cannot be.

use std::time::Duration;

use tidegate_balance::Learning;
use toml::Spanned;

use super::diagnostic::Report;
use super::pool::Draft;
use super::section::Section;
use super::tables::{DECREASE, INCREASE, LEARN, LEARN_INTERVAL_MS, RATE_MIN};

/// How rates are learned, placed at the key that asks for it: not at all if there is none. `None`
/// when something was reported.
pub fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Option<Spanned<Learning>>> {
    let learns = section.value(&LEARN, report);
    let interval = section.value(&LEARN_INTERVAL_MS, report).map(Spanned::into_inner);
    let [increase, decrease, rate_min_cps] = [&INCREASE, &DECREASE, &RATE_MIN]
        .map(|knob| section.value(knob, report).map(Spanned::into_inner));
    let learns = learns?;
    if !learns.get_ref() {
        let keys = [LEARN_INTERVAL_MS.name, INCREASE.name, DECREASE.name, RATE_MIN.name];
        section.report_idle(&keys, "no rate is learned", "write `learn = \"refusals\"`", report);
    }
    let learning = Learning {
        interval: Duration::from_millis(interval?),
        increase: increase?,
        decrease: decrease?,
        rate_min_cps: rate_min_cps?,
    };
    Some(learns.get_ref().then(|| Spanned::new(learns.span(), learning)))
}

/// Reports limits in pools that fork: such a call goes to all, whatever each has room for; and
/// learned rates that could not fall as far as the configured one.
pub(super) fn check(drafts: &[Draft], report: &mut Report) {
    for draft in drafts {
        let learned = draft.learning.as_ref().and_then(Option::as_ref);
        for backend in &draft.backends {
            if let (Some(learning), Some(cps_max)) =
                (learned.map(Spanned::get_ref), &backend.cps_max)
                && *cps_max.get_ref() < learning.rate_min_cps
            {
                report.error(
                    cps_max.span(),
                    "a `cps_max` below the `rate_min_cps` of its pool".to_owned(),
                    format!("less than {}", learning.rate_min_cps),
                    "write a lower `rate_min_cps` in its `[pool.limit]`".to_owned(),
                );
            }
        }
        if !draft.forks() {
            continue;
        }
        let spans = draft.backends.iter().flat_map(|backend| {
            let calls_max = backend.calls_max.as_ref().map(Spanned::span);
            calls_max.or(backend.cps_max.as_ref().map(Spanned::span))
        });
        let span = spans.chain(learned.map(Spanned::span)).next();
        if let Some(span) = span {
            report.error(
                span,
                "a limit in a pool that forks".to_owned(),
                "its calls go to all back ends, not to those with headroom".to_owned(),
                "remove the limit, or choose another policy".to_owned(),
            );
        }
    }
}
