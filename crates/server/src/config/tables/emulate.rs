//! `[emulate]`.

use crate::config::by_class::ByClass;
use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Real, Whole};

/// How slow a server is to seem.
pub static EMULATE: Table = Table {
    header: "[emulate]",
    name: "emulate",
    count: 0..=1,
    doc: "Emulates a slower server than this machine, for experiments. Each shard has an emulated \
          processor that charges each message in model time; the resulting messages are sent when \
          that time has passed. A cost is a number of microseconds for every message, or a table \
          by message class.",
    knobs: &[&RECEIVE_US, &OFFER_US, &SERVE_US, &SERVE_STATELESS_US, &REFUSE_US, &SOCKET_MAX],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static RECEIVE_US: Knob<Real> = Knob {
    name: "receive_us",
    shape: Real(0.0..=3_600_000_000.0),
    absent: Absent::Default("0"),
    doc: "Cost of reading a message from the receive buffer, whatever happens to it afterwards. \
          With `queue = \"fifo\"` it may find the queue full and be lost unread.",
};

pub(in crate::config) static OFFER_US: Knob<ByClass> = Knob {
    name: "offer_us",
    shape: ByClass,
    absent: Absent::Default("0"),
    doc: "Cost of classifying a message and deciding about it.",
};

pub(in crate::config) static SERVE_US: Knob<ByClass> = Knob {
    name: "serve_us",
    shape: ByClass,
    absent: Absent::Default("0"),
    doc: "Cost of serving a message.",
};

pub(in crate::config) static SERVE_STATELESS_US: Knob<ByClass> = Knob {
    name: "serve_stateless_us",
    shape: ByClass,
    absent: Absent::Means("as `serve_us`"),
    doc: "Cost of serving a message without transactions.",
};

pub(in crate::config) static REFUSE_US: Knob<ByClass> = Knob {
    name: "refuse_us",
    shape: ByClass,
    absent: Absent::Default("0"),
    doc: "Cost of rejecting a message.",
};

pub(in crate::config) static SOCKET_MAX: Knob<Whole> = Knob {
    name: "socket_max",
    shape: Whole(1..=1_000_000),
    absent: Absent::Default("2048"),
    doc: "Datagrams that an emulated receive buffer holds.",
};
