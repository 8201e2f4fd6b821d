//! `[overload]`.

use tidegate_control::registry::LAWS;
use tidegate_control::{Decide, Laws, Occupancy, SessionCheck, ThrottleKind, Weight};
use tidegate_proxy::{Class, Disposal, PAD_MAX, Queueing};

use super::sources::{LIMIT, PRIORITY, SOURCE_WEIGHT, SOURCES};
use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Choice, Flag, List, Named, NamedOr, Real, Whole};

/// What is admitted.
pub static OVERLOAD: Table = Table {
    header: "[overload]",
    name: "overload",
    count: 0..=1,
    doc: "Overload control: which new work Tidegate admits when more arrives than the processor \
          can serve. It never rejects responses, ACK, BYE, CANCEL and requests within a call, \
          unless `classes` says so. Without this table the law `tide` protects the server.",
    knobs: &[
        &LAW,
        &DECIDE,
        &QUEUE,
        &CLASSES,
        &REINVITES,
        &SCALED,
        &SHED,
        &SHED_BY,
        &THROTTLE,
        &BURST,
        &DISPOSAL,
        &REFUSING_MAX,
        &STATEFUL_MAX,
        &RETRY_AFTER,
        &PAD,
        &OCCUPANCY,
        &STICKY,
        &MEMORY_MAX,
    ],
    tables: &[&PARAMS, &SHADOW, &SESSIONS, &SOURCES, &SOURCE_WEIGHT, &LIMIT, &PRIORITY],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static LAW: Knob<Named<Laws>> = Knob {
    name: "law",
    shape: Named(&LAWS),
    absent: Absent::Default("\"tide\""),
    doc: "The law that decides how much new work is admitted. `tidegate lab list laws` describes \
          each; `none` admits everything.",
};

pub(in crate::config) static DECIDE: Knob<Choice<Decide>> = Knob {
    name: "decide",
    shape: Choice {
        words: &[("arrival", Decide::Arrival), ("service", Decide::Service)],
        reserved: &[],
    },
    absent: Absent::Default("\"arrival\""),
    doc: "When Tidegate decides about new work: at its arrival, before it is queued, or when the \
          processor takes it from the queue.",
};

pub(in crate::config) static QUEUE: Knob<Choice<Queueing>> = Knob {
    name: "queue",
    shape: Choice { words: &[("class", Queueing::Class), ("fifo", Queueing::Fifo)], reserved: &[] },
    absent: Absent::Default("\"class\""),
    doc: "`class`: messages that finish work are served before messages that begin it, and \
          messages of no known call after all others. `fifo`: all messages, those of no known call \
          too, wait in one queue and are served in the order of their arrival; messages that find \
          it full are lost, as in most SIP servers. There is only one socket for all messages \
          then. For comparison only.",
};

/// How messages are sorted into what may be shed and what may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Classes {
    /// New INVITEs; other new requests; all else, which is never shed.
    Simplified,
    /// All alike.
    Single,
    /// In a configured order.
    Multi,
}

pub(in crate::config) static CLASSES: Knob<Choice<Classes>> = Knob {
    name: "classes",
    shape: Choice {
        words: &[
            ("simplified", Classes::Simplified),
            ("single", Classes::Single),
            ("multi", Classes::Multi),
        ],
        reserved: &[],
    },
    absent: Absent::Default("\"simplified\""),
    doc: "Which messages the admitted share applies to. `simplified`: to new work; new INVITEs go \
          through one throttle, REGISTER and other requests outside a dialog through another, and \
          nothing else is shed. `single`: to all messages alike, responses too, so that admitted \
          calls fail; for comparison only. `multi`: to the whole load, which is shed from the \
          classes in `shed`, one after the other.",
};

pub(in crate::config) static REINVITES: Knob<Flag> = Knob {
    name: "reinvites",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "Whether an INVITE within a call is treated like one that begins a call, as in paper 000.",
};

pub(in crate::config) static SCALED: Knob<Flag> = Knob {
    name: "scaled",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "With `classes = \"simplified\"`: whether the admitted share applies to all messages, as \
          in paper 000. New work must then shed what all messages would: if one message in six is \
          new, a share of 0.9 of all messages is a share of 0.4 of new work.",
};

pub(in crate::config) static SHED: Knob<List<Choice<Class>>> = Knob {
    name: "shed",
    shape: List { of: Choice { words: &CLASS_WORDS, reserved: &[] }, count_max: Class::ALL.len() },
    absent: Absent::Default("[\"provisional\", \"register\", \"other\", \"invite\"]"),
    doc: "With `classes = \"multi\"`: the classes that are shed, in this order. A class is shed \
          only when all classes before it are shed completely. Classes that are not listed are \
          always admitted. `[\"register\"]` sheds only REGISTER, `[\"provisional\"]` only 180s. \
          Tidegate drops a shed response or ACK, and treats a shed request as `disposal` says.",
};

pub(in crate::config) static SHED_BY: Knob<Choice<Weight>> = Knob {
    name: "shed_by",
    shape: Choice { words: &[("cost", Weight::Cost), ("count", Weight::Count)], reserved: &[] },
    absent: Absent::Default("\"cost\""),
    doc: "With `classes = \"multi\"`: how much of the load a message is: the measured cost of its \
          class, or the same for every message.",
};

static CLASS_WORDS: [(&str, Class); Class::ALL.len()] = {
    let mut words = [("", Class::Final); Class::ALL.len()];
    let mut i = 0;
    while i < words.len() {
        words[i] = (Class::ALL[i].name(), Class::ALL[i]);
        i += 1;
    }
    words
};

pub(in crate::config) static THROTTLE: Knob<Choice<ThrottleKind>> = Knob {
    name: "throttle",
    shape: Choice { words: &THROTTLES, reserved: &[] },
    absent: Absent::Default("\"deterministic\""),
    doc: "How the throttle selects the requests that are admitted. By count: `deterministic`, \
          evenly spread; `random`, by a random draw for each. By time: `leaky-bucket` (RFC 7415 \
          §3.5.1) and `token-bucket`, which admit up to `burst` at once; `gapping`, a minimum time \
          between two. If a law sets a share, a throttle by time admits that share of the arrival \
          rate. If a law sets a rate, a throttle by count admits the fraction that the rate is of \
          the arrivals.",
};

static THROTTLES: [(&str, ThrottleKind); ThrottleKind::ALL.len()] = {
    let mut words = [("", ThrottleKind::Deterministic); ThrottleKind::ALL.len()];
    let mut i = 0;
    while i < words.len() {
        words[i] = (ThrottleKind::ALL[i].name(), ThrottleKind::ALL[i]);
        i += 1;
    }
    words
};

pub(in crate::config) static BURST: Knob<Whole> = Knob {
    name: "burst",
    shape: Whole(1..=1000),
    absent: Absent::Default("5"),
    doc: "Calls that a throttle with a bucket admits at once. RFC 7415 §3.5.1 calls a tolerance of \
          four intervals reasonable, which is a burst of 5.",
};

pub(in crate::config) static DISPOSAL: Knob<Choice<Disposal>> = Knob {
    name: "disposal",
    shape: Choice {
        words: &[
            ("reject", Disposal::Reject),
            ("drop", Disposal::Drop),
            ("kernel", Disposal::Kernel),
        ],
        reserved: &[],
    },
    absent: Absent::Default("\"reject\""),
    doc: "What happens to work that is not admitted. `reject`: it gets a 503. `drop`: it gets no \
          response, and its sender retransmits it up to six times. `kernel`: it gets a 503. If \
          rejecting takes more of the processor than `refusing_max`, or receive buffers overflow, \
          the kernel drops as large a share of the INVITEs as necessary before they are read, with \
          all their retransmissions. It also drops INVITEs of callers that would have been \
          admitted. The kernel spares 64 networks: \
          those that may claim priority, have a weight, are in `never_ban`, or are `sources` of a \
          back end.",
};

pub(in crate::config) static REFUSING_MAX: Knob<Real> = Knob {
    name: "refusing_max",
    shape: Real(0.05..=0.9),
    absent: Absent::Default("0.4"),
    doc: "With `disposal = \"kernel\"`: the share of the processor that rejecting may use.",
};

pub(in crate::config) static STATEFUL_MAX: Knob<Real> = Knob {
    name: "stateful_max",
    shape: Real(0.05..=1.0),
    absent: Absent::Default("0.85"),
    doc: "In pools with `mode = \"adaptive\"`: the occupancy of the processor up to which all new \
          calls are served with transactions. If the law has a target occupancy, at most nine \
          tenths of that: Tidegate serves calls without transactions before it rejects any.",
};

pub(in crate::config) static RETRY_AFTER: Knob<List<Whole>> = Knob {
    name: "retry_after",
    shape: List { of: Whole(0..=3600), count_max: 2 },
    absent: Absent::Means("no Retry-After"),
    doc: "The shortest and the longest Retry-After, in seconds, in the 503 to work that is not \
          admitted, such as `[5, 15]`. Each 503 gets a random value between them. A client that \
          receives one should send nothing at all to this server for that time (RFC 3261 §21.5.4), \
          whichever of its callers was rejected.",
};

pub(in crate::config) static PAD: Knob<Whole> = Knob {
    name: "pad",
    shape: Whole(256..=PAD_MAX as u64),
    absent: Absent::Means("no padding"),
    doc: "The length in bytes to which the 503 to work that is not admitted is padded, by spaces \
          before the value of its Server header (RFC 3261 §7.3.1). A longer 503 stays as it is. \
          For a trunk or proxy that sends many calls: several datagrams of one length to one peer \
          cost little more to send than one. Choose a length that nearly all 503s to it fit in. \
          The cost is longer datagrams.",
};

pub(in crate::config) static OCCUPANCY: Knob<Choice<Occupancy>> = Knob {
    name: "occupancy",
    shape: Choice { words: &[("busy", Occupancy::Busy), ("cpu", Occupancy::Cpu)], reserved: &[] },
    absent: Absent::Default("\"busy\""),
    doc: "How occupancy is measured. `busy`: the time for which a shard is not idle. `cpu`: its \
          CPU time, which is too low when the processor is shared with other programs.",
};

pub(in crate::config) static STICKY: Knob<Flag> = Knob {
    name: "sticky",
    shape: Flag,
    absent: Absent::Default("true"),
    doc: "Whether a retransmission of a request gets the decision that its first copy got. The \
          servers in the papers decide about each copy separately.",
};

pub(in crate::config) static MEMORY_MAX: Knob<Whole> = Knob {
    name: "memory_max",
    shape: Whole(1024..=100_000_000),
    absent: Absent::Default("1_000_000"),
    doc: "Decisions remembered for retransmissions, in each of two generations of 32 seconds. A \
          decision takes 16 to 32 bytes.",
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

pub(in crate::config) static SHADOW: Table = Table {
    header: "[overload.shadow]",
    name: "shadow",
    count: 0..=1,
    doc: "A shadow law: a second law that sees the same signals and only counts. For each piece of \
          new work `shadow_work` in `/metrics` counts the decision of the law in force and the \
          decision that the shadow law would have made. The signals are those of a server under \
          the law in force. So the shadow shows when it would begin to reject, not where it would \
          settle.",
    knobs: &[&SHADOW_LAW],
    tables: &[&SHADOW_PARAMS],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static SHADOW_LAW: Knob<NamedOr<Laws>> = Knob {
    name: "law",
    shape: NamedOr(&LAWS, "off"),
    absent: Absent::Default("\"off\""),
    doc: "The shadow law. `off`: none, at no cost.",
};

pub(in crate::config) static SHADOW_PARAMS: Table = Table {
    header: "[overload.shadow.params]",
    name: "params",
    count: 0..=1,
    doc: "Parameters of the shadow law.",
    knobs: &[],
    tables: &[],
    has_free_keys: true,
    reserved: &[],
};

pub(in crate::config) static SESSIONS: Table = Table {
    header: "[overload.sessions]",
    name: "sessions",
    count: 0..=1,
    doc: "How Tidegate estimates whole calls from messages (paper 002 §3.1), for `/metrics` and \
          for laws that count calls: how many are served in a second, of how many messages each, \
          and how many wait.",
    knobs: &[&CHECK, &INTERVAL_MS, &SESSION_WEIGHT, &RATE_CPS, &RATE_MIN_CPS],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static CHECK: Knob<Choice<SessionCheck>> = Knob {
    name: "check",
    shape: Choice {
        words: &[("start", SessionCheck::Start), ("full", SessionCheck::Full)],
        reserved: &[],
    },
    absent: Absent::Default("\"start\""),
    doc: "Which event counts as a call. `start`: the beginning of a call. `full`: the end of a \
          call that has begun, which needs both the INVITE and the BYE to pass through this \
          server.",
};

pub(in crate::config) static INTERVAL_MS: Knob<Whole> = Knob {
    name: "interval_ms",
    shape: Whole(10..=10_000),
    absent: Absent::Default("100"),
    doc: "The length of a measurement T_m, in milliseconds.",
};

pub(in crate::config) static SESSION_WEIGHT: Knob<Real> = Knob {
    name: "weight",
    shape: Real(0.001..=1.0),
    absent: Absent::Default("0.1"),
    doc: "The weight of the newest measurement in the estimate.",
};

pub(in crate::config) static RATE_CPS: Knob<Real> = Knob {
    name: "rate_cps",
    shape: Real(0.1..=1_000_000.0),
    absent: Absent::Default("100"),
    doc: "The expected rate, in calls a second: the estimate before the first measurement.",
};

pub(in crate::config) static RATE_MIN_CPS: Knob<Real> = Knob {
    name: "rate_min_cps",
    shape: Real(0.1..=1_000_000.0),
    absent: Absent::Default("1"),
    doc: "The lowest estimate, in calls a second.",
};
