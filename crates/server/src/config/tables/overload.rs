//! `[overload]`.

use tidegate_control::registry::LAWS;
use tidegate_control::{Decide, Entry, Occupancy, SessionCheck, ThrottleKind, Weight};
use tidegate_proxy::{Class, Disposal, PAD_MAX, Queueing};

use super::sources::{LIMIT, PRIORITY, SOURCE_WEIGHT, SOURCES};
use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Choice, Flag, List, Real, Whole};

/// What is admitted.
pub static OVERLOAD: Table = Table {
    header: "[overload]",
    name: "overload",
    count: 0..=1,
    doc: "Which new work is admitted when more arrives than can be done. Responses, ACK, BYE, \
          CANCEL and requests within a call are never refused by it, unless `classes` says so.",
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
    doc: "`class`: messages that finish work are served before messages that begin it, and messages \
          of no known call after all others. `fifo`: all messages, those of no known call too, wait \
          in one queue and are served in the order of their arrival; messages that find it full are \
          lost, as in most SIP servers. It is for comparison only. All messages have one socket \
          then.",
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
    doc: "What the share that a law admits is of. `simplified`: of new work; new INVITEs go \
          through one throttle, REGISTER and other requests that stand alone through another, and \
          nothing else is shed. `single`: of all messages alike, responses too, so that admitted \
          calls break off; for comparison. `multi`: of all load, which is taken off the classes \
          in `shed`, one after the other.",
};

pub(in crate::config) static REINVITES: Knob<Flag> = Knob {
    name: "reinvites",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "Whether INVITEs within a call are judged as those that begin one, as in paper 000.",
};

pub(in crate::config) static SCALED: Knob<Flag> = Knob {
    name: "scaled",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "With `classes = \"simplified\"`: whether the share that a law admits is of all messages, \
          as in paper 000. New work must then shed what all messages would: where one message in \
          six is new, a share of 0.9 is 0.4 of new work.",
};

pub(in crate::config) static SHED: Knob<List<Choice<Class>>> = Knob {
    name: "shed",
    shape: List { of: Choice { words: &CLASS_WORDS, reserved: &[] }, count_max: Class::ALL.len() },
    absent: Absent::Default("[\"provisional\", \"register\", \"other\", \"invite\"]"),
    doc: "With `classes = \"multi\"`: the classes that are shed, each only when nothing is left of \
          those before it; all others are admitted always. `[\"register\"]` sheds REGISTER alone, \
          `[\"provisional\"]` the 180s. A response or ACK that is shed is dropped; a request is \
          disposed of as new work is.",
};

pub(in crate::config) static SHED_BY: Knob<Choice<Weight>> = Knob {
    name: "shed_by",
    shape: Choice { words: &[("cost", Weight::Cost), ("count", Weight::Count)], reserved: &[] },
    absent: Absent::Default("\"cost\""),
    doc: "With `classes = \"multi\"`: what a message counts for in the load, by the measured cost of \
          its class or each the same.",
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
    doc: "How what is admitted is picked. By count: `deterministic`, evenly spread; `random`, by a \
          draw for each. By time: `leaky-bucket` (RFC 7415 §3.5.1) and `token-bucket`, which let \
          `burst` pass at once; `gapping`, a least time between two. A law that sets a share is \
          obeyed by time as that share of what arrives, one that sets a rate by count as the part \
          of what arrives that the rate is.",
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
    doc: "Calls that a throttle with a bucket lets pass at once. RFC 7415 §3.5.1 calls a tolerance \
          of four intervals reasonable, which is a burst of 5.",
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
    doc: "What happens to work that is not admitted: a 503, or silence, after which its sender \
          repeats it up to six times. `kernel`: a 503, and if that takes more of the processor \
          than `refusing_max`, or receive buffers overflow, the kernel drops as large a share of \
          the INVITEs as it must before they are read, with all their repetitions, those of \
          callers that would have been admitted among them.",
};

pub(in crate::config) static REFUSING_MAX: Knob<Real> = Knob {
    name: "refusing_max",
    shape: Real(0.05..=0.9),
    absent: Absent::Default("0.4"),
    doc: "With `disposal = \"kernel\"`: the share of the processor that refusing may take.",
};

pub(in crate::config) static STATEFUL_MAX: Knob<Real> = Knob {
    name: "stateful_max",
    shape: Real(0.05..=1.0),
    absent: Absent::Default("0.85"),
    doc: "In pools with `mode = \"adaptive\"`: occupancy of the processor up to which all new calls \
          are served with transactions. Where the law aims at an occupancy, nine tenths of that at \
          the most: calls are to be served without transactions before any is refused.",
};

pub(in crate::config) static RETRY_AFTER: Knob<List<Whole>> = Knob {
    name: "retry_after",
    shape: List { of: Whole(0..=3600), count_max: 2 },
    absent: Absent::Means("no Retry-After"),
    doc: "Least and most seconds of a Retry-After in the 503 to work that is not admitted, such as \
          `[5, 15]`; each is drawn between them. A client that gets one should send nothing at all \
          to this server for so long (RFC 3261 §21.5.4), whichever of its callers was refused.",
};

pub(in crate::config) static PAD: Knob<Whole> = Knob {
    name: "pad",
    shape: Whole(256..=PAD_MAX as u64),
    absent: Absent::Means("each 503 as long as it comes out"),
    doc: "Bytes to which the 503 to work that is not admitted is lengthened, by spaces before the \
          value of its Server header (RFC 3261 §7.3.1); a longer one stays as it is. For a trunk \
          or proxy that sends many calls: several datagrams of one length to one peer cost little \
          more to send than one. Choose what nearly all of the 503s to it fit in; longer ones on \
          the wire are the price.",
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

pub(in crate::config) static SHADOW: Table = Table {
    header: "[overload.shadow]",
    name: "shadow",
    count: 0..=1,
    doc: "A second law that decides nothing. It sees what the first one sees, and each piece of \
          new work is counted by what was done with it and what this law would have done \
          (`shadow_work` in `/metrics`). Its signals are those of a server under the first law: \
          of a law that closes a loop it shows when it would act, not where it would settle.",
    knobs: &[&SHADOW_LAW],
    tables: &[&SHADOW_PARAMS],
    has_free_keys: false,
    reserved: &[],
};

static SHADOW_WORDS: [(&str, Option<&Entry>); LAWS.len() + 1] = {
    let mut words = [("off", None); LAWS.len() + 1];
    let mut i = 0;
    while i < LAWS.len() {
        words[i] = (LAWS[i].name, Some(LAWS[i]));
        i += 1;
    }
    words
};

pub(in crate::config) static SHADOW_LAW: Knob<Choice<Option<&'static Entry>>> = Knob {
    name: "law",
    shape: Choice { words: &SHADOW_WORDS, reserved: &[] },
    absent: Absent::Default("\"off\""),
    doc: "The law that looks on; `off`: none, which costs nothing.",
};

pub(in crate::config) static SHADOW_PARAMS: Table = Table {
    header: "[overload.shadow.params]",
    name: "params",
    count: 0..=1,
    doc: "Parameters of the law that looks on.",
    knobs: &[],
    tables: &[],
    has_free_keys: true,
    reserved: &[],
};

pub(in crate::config) static SESSIONS: Table = Table {
    header: "[overload.sessions]",
    name: "sessions",
    count: 0..=1,
    doc: "How whole calls are estimated from messages (paper 002 §3.1), for `/metrics` and for laws \
          that count in calls: how many are served a second, of how many messages each, and how \
          many wait.",
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
    doc: "What stands for a call: that it begins (`start`), or that one ends which has begun \
          (`full`), where INVITE and BYE both come this way.",
};

pub(in crate::config) static INTERVAL_MS: Knob<Whole> = Knob {
    name: "interval_ms",
    shape: Whole(10..=10_000),
    absent: Absent::Default("100"),
    doc: "Milliseconds T_m of a measurement.",
};

pub(in crate::config) static SESSION_WEIGHT: Knob<Real> = Knob {
    name: "weight",
    shape: Real(0.001..=1.0),
    absent: Absent::Default("0.1"),
    doc: "Weight of the newest measurement in the estimate.",
};

pub(in crate::config) static RATE_CPS: Knob<Real> = Knob {
    name: "rate_cps",
    shape: Real(0.1..=1_000_000.0),
    absent: Absent::Default("100"),
    doc: "Calls a second that the server is made for: the estimate before anything was measured.",
};

pub(in crate::config) static RATE_MIN_CPS: Knob<Real> = Knob {
    name: "rate_min_cps",
    shape: Real(0.1..=1_000_000.0),
    absent: Absent::Default("1"),
    doc: "The least number of calls a second that is estimated.",
};
