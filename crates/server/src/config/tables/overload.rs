//! `[overload]` and `[emulate]`.

use tidegate_control::registry::LAWS;
use tidegate_control::{Decide, Entry, Occupancy, ThrottleKind};
use tidegate_proxy::{Disposal, Queueing};

use crate::config::by_class::ByClass;
use crate::config::knob::{Absent, Knob, Table};
use crate::config::overload::Classes;
use crate::config::shape::{Choice, Flag, Real, Whole};

/// What is admitted.
pub static OVERLOAD: Table = Table {
    header: "[overload]",
    name: "overload",
    count: 0..=1,
    doc: "Which new work is admitted when more arrives than can be done. Responses, ACK, BYE, \
          CANCEL and requests within a call are never refused by it.",
    knobs: &[
        &LAW,
        &DECIDE,
        &QUEUE,
        &CLASSES,
        &THROTTLE,
        &DISPOSAL,
        &OCCUPANCY,
        &STICKY,
        &MEMORY_MAX,
    ],
    tables: &[&PARAMS],
    has_free_keys: false,
    reserved: &[],
};

const fn words() -> [(&'static str, &'static Entry); LAWS.len()] {
    let mut words = [("", LAWS[0]); LAWS.len()];
    let mut i = 0;
    while i < LAWS.len() {
        words[i] = (LAWS[i].name, LAWS[i]);
        i += 1;
    }
    words
}

static WORDS: [(&str, &Entry); LAWS.len()] = words();

pub(in crate::config) static LAW: Knob<Choice<&'static Entry>> = Knob {
    name: "law",
    shape: Choice { words: &WORDS, reserved: &[] },
    absent: Absent::Default("\"none\""),
    doc: "The law that decides. `tidegate lab list laws` describes each.",
};

pub(in crate::config) static DECIDE: Knob<Choice<Decide>> = Knob {
    name: "decide",
    shape: Choice {
        words: &[("arrival", Decide::Arrival), ("service", Decide::Service)],
        reserved: &[],
    },
    absent: Absent::Default("\"arrival\""),
    doc: "When new work is judged: before it is queued, or when the processor takes it from \
          the queue.",
};

pub(in crate::config) static QUEUE: Knob<Choice<Queueing>> = Knob {
    name: "queue",
    shape: Choice { words: &[("class", Queueing::Class), ("fifo", Queueing::Fifo)], reserved: &[] },
    absent: Absent::Default("\"class\""),
    doc: "`class`: what finishes work is served before what begins it. `fifo`: all messages wait \
          in one queue, and what finds it full is lost, as in most SIP servers; for comparison. The socket is one for all messages, too.",
};

pub(in crate::config) static CLASSES: Knob<Choice<Classes>> = Knob {
    name: "classes",
    shape: Choice { words: &[("simplified", Classes::Simplified)], reserved: &["single", "multi"] },
    absent: Absent::Default("\"simplified\""),
    doc: "`simplified`: new INVITEs go through one throttle, REGISTER and other requests that \
          stand alone through another, and nothing else is shed.",
};

pub(in crate::config) static THROTTLE: Knob<Choice<ThrottleKind>> = Knob {
    name: "throttle",
    shape: Choice {
        words: &[("deterministic", ThrottleKind::Deterministic), ("random", ThrottleKind::Random)],
        reserved: &[],
    },
    absent: Absent::Default("\"deterministic\""),
    doc: "How a share of new work is picked: evenly spread, or by a draw for each.",
};

pub(in crate::config) static DISPOSAL: Knob<Choice<Disposal>> = Knob {
    name: "disposal",
    shape: Choice {
        words: &[("reject", Disposal::Reject), ("drop", Disposal::Drop)],
        reserved: &["kernel"],
    },
    absent: Absent::Default("\"reject\""),
    doc: "What happens to work that is not admitted: a 503 without Retry-After, or silence, after \
          which its sender repeats it up to six times.",
};

pub(in crate::config) static OCCUPANCY: Knob<Choice<Occupancy>> = Knob {
    name: "occupancy",
    shape: Choice { words: &[("busy", Occupancy::Busy), ("cpu", Occupancy::Cpu)], reserved: &[] },
    absent: Absent::Default("\"busy\""),
    doc: "What counts as occupied: the time a shard does not wait, or its CPU time, which reads \
          low when the processor is shared.",
};

pub(in crate::config) static STICKY: Knob<Flag> = Knob {
    name: "sticky",
    shape: Flag,
    absent: Absent::Default("true"),
    doc: "Whether the repetition of a request gets the decision that was made before. The servers \
          of the papers judge each anew.",
};

pub(in crate::config) static MEMORY_MAX: Knob<Whole> = Knob {
    name: "memory_max",
    shape: Whole(1024..=100_000_000),
    absent: Absent::Default("1_000_000"),
    doc: "Decisions remembered for repetitions, in each of two generations of 32 seconds; each \
          takes 16 to 32 bytes.",
};

pub(in crate::config) static PARAMS: Table = Table {
    header: "[overload.params]",
    name: "params",
    count: 0..=1,
    doc: "Parameters of the law.",
    knobs: &[],
    tables: &[],
    has_free_keys: true,
    reserved: &[],
};

/// How slow a server is to seem.
pub static EMULATE: Table = Table {
    header: "[emulate]",
    name: "emulate",
    count: 0..=1,
    doc: "A slower server than this machine is, for experiments: each message is charged in model \
          time on a processor of its own for each shard, and what it causes is sent when that \
          time has passed. Costs are a number of microseconds for every message, or a table by \
          class of message.",
    knobs: &[&RECEIVE_US, &OFFER_US, &SERVE_US, &REFUSE_US, &SOCKET_MAX],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static RECEIVE_US: Knob<Real> = Knob {
    name: "receive_us",
    shape: Real(0.0..=3_600_000_000.0),
    absent: Absent::Default("0"),
    doc: "To take a message from the receive buffer, whatever becomes of it: with `queue = \
          \"fifo\"` it may find the queue full, and be lost unread.",
};

pub(in crate::config) static OFFER_US: Knob<ByClass> = Knob {
    name: "offer_us",
    shape: ByClass,
    absent: Absent::Default("0"),
    doc: "To look at a message and decide what becomes of it.",
};

pub(in crate::config) static SERVE_US: Knob<ByClass> = Knob {
    name: "serve_us",
    shape: ByClass,
    absent: Absent::Default("0"),
    doc: "To serve a message.",
};

pub(in crate::config) static REFUSE_US: Knob<ByClass> = Knob {
    name: "refuse_us",
    shape: ByClass,
    absent: Absent::Default("0"),
    doc: "To refuse a message.",
};

pub(in crate::config) static SOCKET_MAX: Knob<Whole> = Knob {
    name: "socket_max",
    shape: Whole(1..=1_000_000),
    absent: Absent::Default("2048"),
    doc: "Datagrams that an emulated receive buffer holds.",
};
