//! `[disturbance]`: disturbances of the servers under test, which overload control does not know.

use tidegate_server::config::schema::{Absent, Choice, Knob, Real, Table};

use crate::disturbance::Spread;

pub(in crate::scenario) static DISTURBANCE: Table = Table {
    header: "[disturbance]",
    name: "disturbance",
    doc: "Disturbances of the servers under test, such as costs that vary or a processor that \
          pauses. The laws get no information about them. They exist only in simulated time. The \
          capacity and the load are computed without them.",
    knobs: || vec![&COSTS, &DEARER, &DEARER_AT_S, &STOLEN_MS, &STOLEN_EVERY_MS, &MISREAD],
    ..Table::EMPTY
};

pub(in crate::scenario) static COSTS: Knob<Choice<Spread>> = Knob {
    name: "costs",
    shape: Choice {
        words: &[
            ("constant", Spread::Constant),
            ("exponential", Spread::Exponential),
            ("hyperexponential", Spread::Hyperexponential),
            ("pareto", Spread::Pareto),
        ],
        reserved: &[],
    },
    absent: Absent::Default("\"constant\""),
    doc: "The distribution of the cost of each message around its mean. `distribution` in \
          `[emulate]` has more distributions, and also works on real sockets. Only one of the two \
          keys may be given. `hyperexponential`: the variance is ten times the square of the mean, \
          and one message in twenty takes ten times the mean on average. `pareto`: α is 1.5, so the \
          most expensive hundredth of the messages takes a fifth of the time. The costs of \
          `pareto` are cut at a hundred times the mean.",
};

pub(in crate::scenario) static DEARER: Knob<Real> = Knob {
    name: "dearer",
    shape: Real(0.01..=100.0),
    absent: Absent::Default("1"),
    doc: "Factor by which all costs are multiplied from `dearer_at_s` on.",
};

pub(in crate::scenario) static DEARER_AT_S: Knob<Real> = Knob {
    name: "dearer_at_s",
    shape: Real(0.0..=3600.0),
    absent: Absent::Default("0"),
    doc: "Seconds after the start of the load at which all costs change by the factor `dearer`.",
};

pub(in crate::scenario) static STOLEN_MS: Knob<Real> = Knob {
    name: "stolen_ms",
    shape: Real(0.0..=60_000.0),
    absent: Absent::Default("0"),
    doc: "Milliseconds of each period (`stolen_every_ms`) in which the server does not have the \
          processor, because of other programs or of a quota.",
};

pub(in crate::scenario) static STOLEN_EVERY_MS: Knob<Real> = Knob {
    name: "stolen_every_ms",
    shape: Real(0.001..=60_000.0),
    absent: Absent::Default("100"),
    doc: "The period of `stolen_ms`, in milliseconds. It must be longer than `stolen_ms`.",
};

pub(in crate::scenario) static MISREAD: Knob<Real> = Knob {
    name: "misread",
    shape: Real(0.01..=100.0),
    absent: Absent::Default("1"),
    doc: "The server reads the occupancy of the processor multiplied by this factor. A law infers \
          the capacity from this occupancy, so the inferred capacity is wrong too. An occupancy \
          above 1 is read as 1.",
};
