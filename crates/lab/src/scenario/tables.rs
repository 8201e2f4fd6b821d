//! Defines every table and every key of a scenario file.

/// Defines keys that are not the fields of one struct: conditions that scenarios vary, and keys
/// that two tables share.
macro_rules! knobs {
    ($(
        $(#[doc = $doc:literal])*
        $KEY:ident $name:literal: $Shape:ty = $shape:expr, $absent:ident $(($text:expr))?;
    )*) => {$(
        $(#[doc = $doc])*
        pub(in crate::scenario) static $KEY: tidegate_server::config::schema::Knob<$Shape> =
            tidegate_server::config::schema::Knob {
                name: $name,
                shape: $shape,
                absent: tidegate_server::config::schema::Absent::$absent $(($text))?,
                doc: concat!($($doc),*),
            };
    )*};
}

mod disturbance;
mod farm;
mod network;
mod people;
mod pool;
mod servers;
mod tcp;
mod workload;

use std::time::Duration;

use tidegate_server::config::schema::{
    EMULATE, Flag, List, OVERLOAD, Real, Table, Text, Whole, Wrong, describe, real_millis,
    real_seconds,
};
use tidegate_server::config_table;

pub(super) use disturbance::{DISTURBANCE, DisturbanceDraft, DisturbanceTable};
pub(super) use farm::{FARM, NODES, PAUSE_EVERY_S, PAUSE_MS, SPEEDS};
pub(super) use network::{
    AT_S, BANDWIDTH_MBPS, DELAY_MS, DUPLICATE, FAILS, FAULT, FOR_S, FROM, JITTER_MS, KIND, Kind,
    LINK, LOSS, OF_NODE, QUEUE_BYTES, REORDER, SILENT, TO as LINK_TO,
};
pub(super) use people::{DEVICES, DevicesDraft, EMERGENCY, REDIAL, RedialDraft, RedialTable};
pub(super) use pool::{POOL, PoolDraft, PoolTable};
pub(super) use servers::{INVITE_TO_BYE, MODE, NODE, NodeDraft, NodeTable, QUEUE_MAX, SERVER};
pub(super) use tcp::{BUFFER_BYTES, TCP, WINDOW_BYTES};
pub(super) use workload::{
    ANSWERERS, ARRIVALS, Arrivals, DEADLINE_MS, FAILOVER, GOODPUT, HOLD, HOLD_S, LOAD, OPEN_LIMIT,
    OPEN_MAX, PATIENCE_S, PROFILE, RETRANSMISSIONS, SOURCES, T1_MS, TRUNK, TRYING, WORKLOAD,
};

pub(super) static ROOT: Table = Table {
    knobs: || vec![&TITLE],
    tables: &[
        &WORKLOAD,
        &SERVER,
        &FARM,
        &NODE,
        &TCP,
        &LINK,
        &FAULT,
        &EMULATE,
        &DISTURBANCE,
        &SWEEP,
        &VARIANT,
        &SCHEDULE,
        &EXPECT,
    ],
    ..Table::EMPTY
};

knobs! {
    /// The result that the scenario shows, in one line.
    TITLE "title": Text<String> = Text::new("a line of at most 100 characters", line), Required;
}

pub(super) static SWEEP: Table = Table {
    header: "[sweep]",
    name: "sweep",
    doc: "The conditions to vary, each with a list of values: `load`, `hold_s`, `patience_s`, \
          `deadline_ms`, `t1_ms` and `answerers` of `[workload]`, `queue_max` and `invite_to_bye` \
          of `[server]`, `nodes`, `pause_ms` and `pause_every_s` of `[farm]`, and `window_bytes` \
          and `buffer_bytes` of `[tcp]`. `lab run` runs every combination of the values.",
    has_free_keys: true,
    ..Table::EMPTY
};

config_table! {
    /// The configurations to compare. `overload` is the table `[overload]` of [the
    /// configuration](configuration.md), for the servers under test. `pool` ([below](#pool)) says
    /// how servers that send to several nodes select among them, and which limits these nodes have.
    /// Without `pool`, servers use each node in turn, without limits. The name of a variant is its
    /// label with the values of `decide` and `queue`, as in `pi (arrival, class)`.
    pub(super) static VARIANT: "[[variant]]" 1..=64, None, [POOL, OVERLOAD]
        => VariantTable, VariantDraft;

    /// The label of the variant in tables and figures.
    label: String | None = Text::new("a line of at most 24 characters", label),
        Means("the name of the variant's policy, or of its law if it has no policy");
    /// The values of the keys that are absent from `overload`. `true`: the defaults of [the
    /// configuration](configuration.md). With `mode = "transaction"` in `[server]`, an empty
    /// `overload` is then the default of Tidegate. `false`: the same defaults with two exceptions,
    /// so that variants differ only in their laws. If `disposal` is absent, work that is not
    /// admitted gets a 503 (`reject`). If `sources` is absent, sources do not share the admitted
    /// work fairly (`fair = false`).
    product_defaults: bool = Flag, Default("false");
}

config_table! {
    /// The times and repetitions of the measurement.
    pub static SCHEDULE: "[schedule]" 0..=1, None, [] => Schedule, ScheduleDraft;

    /// Seconds of load before the measurement begins.
    warm_up("warm_up_s"): Duration = real_seconds(0.0..=3600.0), Default("4");
    /// Duration of the measurement, in seconds. Afterwards the load continues for `deadline_ms`.
    measured("measured_s"): Duration = real_seconds(0.1..=86_400.0), Default("8");
    /// Number of runs of each parameter set.
    repetitions: u32 = Whole(1..=1000), Default("3");
    /// Seed of the first run of each parameter set. Each further run uses the next number. `--seed`
    /// overrides this seed.
    seed: u64 = Whole(0..=i64::MAX as u64), Default("1");
    /// Sampling interval of servers and callers, for `timeline.csv` in the folder of each run. The
    /// interval is longer if a run would have more than 10,000 samples.
    sample("sample_ms"): Duration | None = real_millis(1.0..=60_000.0),
        Means("100 in simulated time, 250 on real sockets");
}

config_table! {
    /// Expected result of a variant. If the result differs, `lab run` exits with 1. The bound is
    /// the highest goodput that any law could reach at the offered load.
    pub static EXPECT: "[[expect]]" 0..=100, None, [] => Expectation, ExpectationDraft;

    /// Name of the variant that must have this result.
    variant: String =
        Text::new("the name of a variant, such as `\"pi (arrival, class)\"`", any), Required;
    /// The loads at which the variant must have this result.
    loads: Vec<f64> | None =
        List { of: Real(0.001..=1000.0), count_max: 100 }, Means("all loads");
    /// Minimum goodput as a fraction of the bound. The goodput is the median of the runs.
    goodput_of_bound_min: f64 | None = Real(0.0..=1.0), Means("no minimum");
    /// Maximum goodput as a fraction of the bound. The goodput is the median of the runs.
    goodput_of_bound_max: f64 | None = Real(0.0..=1.0), Means("no maximum");
}

const HEAD: &str = "\
# Scenarios

Generated from the program: change the items in `crates/lab/src/scenario/tables`, then run
`TIDEGATE_BLESS=1 cargo test -p tidegate-lab --test reference`.

A scenario is one experiment: a workload, the configurations to compare, and the conditions to vary.
`tidegate lab run FILE` runs it, in simulated time or on real sockets
([the laboratory](laboratory.md)). The scenarios of this project are in
`scenarios/`. `[emulate]`, and `overload` of a variant, have the same keys as the tables `[emulate]`
and `[overload]` of [the configuration](configuration.md).

A file begins with `title = \"…\"`, one line that says what the scenario shows. It needs at least
one `[[variant]]`, and `[emulate]` with costs above 0, because the costs determine the capacity, and
loads are multiples of the capacity. The smallest useful file:

```toml
title = \"tide against no control\"

[sweep]
load = [0.5, 1, 2, 5]

# A call is six messages of 833 µs, 5 ms in all, so the capacity is 200 calls/s.
[emulate]
offer_us = 80
serve_us = 753
reject_us = 40

[[variant]]
overload = { law = \"none\", queue = \"fifo\" }

[[variant]]
overload = { law = \"tide\" }

[[expect]]
variant = \"tide (arrival, class)\"
goodput_of_bound_min = 0.8
```

`tidegate lab list scenarios --dir DIR` reports the errors of all files in `DIR` without running
them.
";

/// Returns the reference documentation of every table and key, in Markdown.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    for table in ROOT.tables.iter().filter(|table| !std::ptr::eq(**table, &EMULATE)) {
        describe(table, &mut out);
        if std::ptr::eq(*table, &WORKLOAD) {
            describe(&REDIAL, &mut out);
            describe(&DEVICES, &mut out);
        }
        if std::ptr::eq(*table, &VARIANT) {
            describe(&POOL, &mut out);
        }
    }
    out
}

fn any(text: &str) -> Result<String, Wrong> {
    Ok(text.to_owned())
}

fn line(text: &str) -> Result<String, Wrong> {
    printable(text, 100)
}

fn label(text: &str) -> Result<String, Wrong> {
    printable(text, 24)
}

fn printable(text: &str, length_max: usize) -> Result<String, Wrong> {
    match text.chars().count() {
        0 => Err("empty".into()),
        n if n > length_max => Err(format!("{n} characters").into()),
        _ if text.chars().any(char::is_control) => {
            Err("the text contains a control character".into())
        }
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use toml::de::DeValue;

    use super::*;
    use tidegate_server::config::schema::{Absent, Keys, Knob, Report, Shape};

    #[test]
    fn every_default_is_valid_for_its_key() {
        fn check<S: Shape>(knob: &Knob<S>) {
            let Absent::Default(text) = knob.absent else { return };
            let value = DeValue::parse(text).unwrap();
            let mut report = Report::default();
            let read = knob.shape.read(knob.name, &value, &mut report);
            assert!(read.is_some() && report.is_empty(), "{}", knob.name);
        }
        for knob in [&LOAD, &HOLD_S, &PATIENCE_S, &DEADLINE_MS, &T1_MS] {
            check(knob);
        }
        [&ANSWERERS, &QUEUE_MAX, &WINDOW_BYTES].into_iter().for_each(check);
        check(&ARRIVALS);
        check_keys::<DisturbanceDraft>();
        check_keys::<RedialDraft>();
        check_keys::<DevicesDraft>();
        check_keys::<PoolDraft>();
        check_keys::<NodeDraft>();
        check_keys::<VariantDraft>();
        check_keys::<ScheduleDraft>();
        check_keys::<ExpectationDraft>();
    }

    fn check_keys<T: Keys>() {
        for key in T::entries() {
            let has_default = matches!(key.absent(), Absent::Default(_));
            assert_eq!(key.default().is_some(), has_default, "{}", key.name());
        }
    }

    #[test]
    fn texts_are_short_lines() {
        assert_eq!(label("pi, tuned").as_deref(), Ok("pi, tuned"));
        for wrong in ["", "a\nb", &"x".repeat(25)] {
            assert!(label(wrong).is_err(), "{wrong:?}");
        }
    }
}
