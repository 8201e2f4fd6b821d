//! `pool`: how a server chooses among those it sends to.

use tidegate_balance::Entry;
use tidegate_server::config::schema::{Absent, Choice, Knob, Table, of_pool};

pub(in crate::scenario) static POOL: Table = Table {
    header: "[pool]",
    name: "pool",
    count: 0..=1,
    doc: "How a server chooses among those it sends to, as `[[pool]]` of the configuration says it: \
          `policy` and `params`.",
    knobs: &[&POLICY],
    tables: &[&of_pool::POOL_PARAMS],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::scenario) static POLICY: Knob<Choice<Option<&'static Entry>>> = Knob {
    name: "policy",
    shape: Choice { words: of_pool::POLICY.shape.words, reserved: &[] },
    absent: Absent::Required,
    doc: "Who gets the next call.",
};
