//! `[pool.limit]`.

use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Choice, Real, Whole};

/// How the rates of back ends are learned.
pub static POOL_LIMIT: Table = Table {
    header: "[pool.limit]",
    name: "limit",
    count: 0..=1,
    doc: "How the rate is learned that each back end of the pool above takes. `calls_max` and \
          `cps_max` of a back end hold besides.",
    knobs: &[&LEARN, &LEARN_INTERVAL_MS, &INCREASE, &DECREASE, &RATE_MIN],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub static LEARN: Knob<Choice<bool>> = Knob {
    name: "learn",
    shape: Choice { words: &[("off", false), ("refusals", true)], reserved: &[] },
    absent: Absent::Default("\"off\""),
    doc: "`refusals` learns it from what a back end refuses with 503 or leaves unanswered: it falls \
          to what was taken, and grows while it is used, or more is wanted, and nothing is refused. Before the first \
          refusal there is none. A 503 then makes no pause, unless `retry_after_max_s` is written.",
};

pub static LEARN_INTERVAL_MS: Knob<Whole> = Knob {
    name: "interval_ms",
    shape: Whole(20..=10_000),
    absent: Absent::Default("200"),
    doc: "Milliseconds from one step to the next; up to two seconds where fewer than ten requests \
          come in that time.",
};

pub static INCREASE: Knob<Real> = Knob {
    name: "increase",
    shape: Real(0.001..=1.0),
    absent: Absent::Default("0.05"),
    doc: "The share of itself by which the rate grows a second while nine tenths of it are used, \
          or more is wanted; twice that after each four such seconds without a refusal, up to all of \
          it.",
};

pub static DECREASE: Knob<Real> = Knob {
    name: "decrease",
    shape: Real(0.5..=0.99),
    absent: Absent::Default("0.95"),
    doc: "What is kept at a refusal of the rate that was taken.",
};

pub static RATE_MIN: Knob<Real> = Knob {
    name: "rate_min_cps",
    shape: Real(0.1..=100_000.0),
    absent: Absent::Default("1"),
    doc: "Requests a second below which the learned rate does not fall.",
};
