//! `[pool.limit]`.

use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Choice, Real, Whole};

/// How the rates of back ends are learned.
pub static POOL_LIMIT: Table = Table {
    header: "[pool.limit]",
    name: "limit",
    count: 0..=1,
    doc: "How Tidegate learns the rate that each back end of the preceding pool can take. \
          `calls_max` and `cps_max` of a back end apply as well.",
    knobs: &[&LEARN, &LEARN_INTERVAL_MS, &INCREASE, &DECREASE, &RATE_MIN],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub static LEARN: Knob<Choice<bool>> = Knob {
    name: "learn",
    shape: Choice { words: &[("off", false), ("refusals", true)], reserved: &[] },
    absent: Absent::Default("\"off\""),
    doc: "`refusals`: Tidegate learns the rate from requests that the back end rejects with 503 or \
          leaves without a response. The rate falls to the rate that the back end accepted. It \
          grows while it is used up, or more is demanded, and nothing is rejected. Before the \
          first rejection there is no limit. A 503 then causes no pause, unless \
          `retry_after_max_s` is set.",
};

pub static LEARN_INTERVAL_MS: Knob<Whole> = Knob {
    name: "interval_ms",
    shape: Whole(20..=10_000),
    absent: Absent::Default("200"),
    doc: "Milliseconds from one adjustment to the next; up to two seconds if fewer than ten \
          requests arrive in that time.",
};

pub static INCREASE: Knob<Real> = Knob {
    name: "increase",
    shape: Real(0.001..=1.0),
    absent: Absent::Default("0.05"),
    doc: "The fraction by which the rate grows in a second while nine tenths of it are used, or \
          more is demanded. It doubles after each four such seconds without a rejection, up to 1.",
};

pub static DECREASE: Knob<Real> = Knob {
    name: "decrease",
    shape: Real(0.5..=0.99),
    absent: Absent::Default("0.95"),
    doc: "The fraction of the accepted rate that remains the limit after a rejection.",
};

pub static RATE_MIN: Knob<Real> = Knob {
    name: "rate_min_cps",
    shape: Real(0.1..=100_000.0),
    absent: Absent::Default("1"),
    doc: "The lowest learned rate, in requests a second.",
};
