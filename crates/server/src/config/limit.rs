//! What `[pool.limit]` says.

use std::time::Duration;

use tidegate_balance::Learning;
use toml::Spanned;

use super::diagnostic::Report;
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
