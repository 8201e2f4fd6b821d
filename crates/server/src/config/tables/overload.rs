//! `[overload]` and its tables, except those about sources.

use tidegate_control::registry::LAWS;
use tidegate_control::{
    Decide, Entry, Estimation, Laws, Occupancy, Scheme, SessionCheck, ShedOrder, ThrottleKind,
    Values, Weight,
};
use tidegate_proxy::{Class, Disposal, Overload, PAD_MAX, Queueing};

use super::feedback::FEEDBACK;
use super::sources::{LIMIT, PRIORITY, SOURCE_WEIGHT, SOURCES};
use crate::config::bounds::Bounds;
use crate::config::keys::{Only, keys};
use crate::config::knob::{Reload, Table};
use crate::config::shape::{Choice, Flag, List, Named, NamedOr, Real, Whole, millis};

/// The words of `decide`.
pub(in crate::config) const DECIDE: Choice<Decide> =
    Choice { words: &[("arrival", Decide::Arrival), ("service", Decide::Service)], reserved: &[] };

/// The words of `queue`.
pub(in crate::config) const QUEUE: Choice<Queueing> =
    Choice { words: &[("class", Queueing::Class), ("fifo", Queueing::Fifo)], reserved: &[] };

/// The way in which messages are sorted into those that may be shed and those that may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Classes {
    /// New INVITEs; other new requests; all else, which is never shed.
    Simplified,
    /// All alike.
    Single,
    /// In a configured order.
    Multi,
}

impl From<&Scheme> for Classes {
    fn from(scheme: &Scheme) -> Self {
        match scheme {
            Scheme::Simplified { .. } => Self::Simplified,
            Scheme::Single => Self::Single,
            Scheme::Multi(_) => Self::Multi,
        }
    }
}

impl From<Classes> for Scheme {
    fn from(classes: Classes) -> Self {
        match classes {
            Classes::Simplified => Self::Simplified { scaled: false },
            Classes::Single => Self::Single,
            Classes::Multi => {
                Self::Multi(ShedOrder { order: Default::default(), weight: Weight::Cost })
            }
        }
    }
}

static CLASS_WORDS: [(&str, Class); Class::ALL.len()] = {
    let mut words = [("", Class::Final); Class::ALL.len()];
    let mut i = 0;
    while i < words.len() {
        words[i] = (Class::ALL[i].name(), Class::ALL[i]);
        i += 1;
    }
    words
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

static SIMPLIFIED: Only<Overload> = Only {
    by: "classes",
    when: |overload| matches!(overload.gate.scheme, Scheme::Simplified { .. }),
    why: "not used with these `classes`",
    instead: "write `classes = \"simplified\"`",
};

static MULTI: Only<Overload> = Only {
    by: "classes",
    when: |overload| matches!(overload.gate.scheme, Scheme::Multi(_)),
    why: "not used with these `classes`",
    instead: "write `classes = \"multi\"`",
};

static KERNEL: Only<Overload> = Only {
    by: "disposal",
    when: |overload| matches!(overload.disposal, Disposal::Auto | Disposal::Kernel),
    why: "not used with this `disposal`",
    instead: "write `disposal = \"auto\"`",
};

static REJECTED: Only<Overload> = Only {
    by: "disposal",
    when: |overload| overload.disposal != Disposal::Drop,
    why: "dropped requests get no 503",
    instead: "write `disposal = \"reject\"`",
};

keys! {
    /// Overload control: which new work Tidegate admits when more arrives than the processor can
    /// serve. It never rejects responses, ACK, BYE, CANCEL and requests within a call, unless
    /// `classes` says so. Without this table the law `tide` protects the server.
    pub static OVERLOAD: "[overload]" 0..=1, Restart,
        [PARAMS, SHADOW, SESSIONS, SOURCES, SOURCE_WEIGHT, LIMIT, PRIORITY, FEEDBACK] => Overload;

    /// The law that decides how much new work is admitted. `tidegate lab list laws` describes each;
    /// `none` admits everything.
    key "law" {
        |all| Some(all.gate.law.entry()),
        |all, law| all.gate.law = law.into_inner().defaults()
    } = Named(&LAWS), Default("\"tide\""), reload(Reload::Live);
    /// When Tidegate decides about new work: at its arrival, before it is queued, or when the
    /// processor takes it from the queue.
    key "decide" (gate.decide) = DECIDE, Default("\"arrival\"");
    /// `class`: messages that finish work are served before messages that begin it, and messages of
    /// no known call after all others. `fifo`: all messages, those of no known call too, wait in
    /// one queue and are served in the order of their arrival; messages that find it full are lost,
    /// as in most SIP servers. There is only one socket for all messages then. For comparison only.
    key "queue" (queueing) = QUEUE, Default("\"class\"");
    /// The messages to which the admitted share applies. `simplified`: to new work; new INVITEs go
    /// through one throttle, REGISTER and other requests outside a dialog through another, and
    /// nothing else is shed. `single`: to all messages alike, responses too, so that admitted calls
    /// fail; for comparison only. `multi`: to the whole load, which is shed from the classes in
    /// `shed`, one after the other.
    key "classes" {
        |all| Some(Classes::from(&all.gate.scheme)),
        |all, classes| all.gate.scheme = classes.into_inner().into()
    } = Choice {
        words: &[
            ("simplified", Classes::Simplified),
            ("single", Classes::Single),
            ("multi", Classes::Multi),
        ],
        reserved: &[],
    }, Default("\"simplified\"");
    /// Treats an INVITE within a call like one that begins a call, as in paper 000.
    key "reinvites" (reinvites) = Flag, Default("false");
    /// With `classes = "simplified"`: whether the admitted share applies to all messages, as in
    /// paper 000. New work must then shed what all messages would: if one message in six is new, a
    /// share of 0.9 of all messages is a share of 0.4 of new work.
    key "scaled" {
        |all| match all.gate.scheme {
            Scheme::Simplified { scaled } => Some(scaled),
            _ => None,
        },
        |all, value| {
            if let Scheme::Simplified { scaled } = &mut all.gate.scheme {
                *scaled = value.into_inner();
            }
        }
    } = Flag, Default("false"), only(&SIMPLIFIED);
    /// With `classes = "multi"`: the classes that are shed, in this order. A class is shed only
    /// when all classes before it are shed completely. Classes that are not listed are always
    /// admitted. `["register"]` sheds only REGISTER, `["provisional"]` only 180s. Tidegate drops a
    /// shed response or ACK, and treats a shed request as `disposal` says.
    key "shed" {
        |all| match &all.gate.scheme {
            Scheme::Multi(shed) => Some(shed.order.iter().map(|class| of_number(*class)).collect()),
            _ => None,
        },
        |all, order| {
            if let Scheme::Multi(shed) = &mut all.gate.scheme {
                shed.order = order.into_inner().into_iter().map(|class| class as u8).collect();
            }
        }
    } = List { of: Choice { words: &CLASS_WORDS, reserved: &[] }, count_max: Class::ALL.len() },
        Default("[\"provisional\", \"register\", \"other\", \"invite\"]"), only(&MULTI);
    /// With `classes = "multi"`: how much of the load a message is: the measured cost of its class,
    /// or the same for every message.
    key "shed_by" {
        |all| match &all.gate.scheme {
            Scheme::Multi(shed) => Some(shed.weight),
            _ => None,
        },
        |all, weight| {
            if let Scheme::Multi(shed) = &mut all.gate.scheme {
                shed.weight = weight.into_inner();
            }
        }
    } = Choice { words: &[("cost", Weight::Cost), ("count", Weight::Count)], reserved: &[] },
        Default("\"cost\""), only(&MULTI);
    /// The rule by which the throttle selects the admitted requests. By count: `deterministic`, evenly
    /// spread; `random`, by a random draw for each. By time: `leaky-bucket` (RFC 7415 §3.5.1) and
    /// `token-bucket`, which admit up to `burst` at once; `gapping`, a minimum time between two. If
    /// a law sets a share, a throttle by time admits that share of the arrival rate. If a law sets
    /// a rate, a throttle by count admits the fraction that the rate is of the arrivals.
    key "throttle" (gate.throttle) =
        Choice { words: &THROTTLES, reserved: &[] }, Default("\"deterministic\"");
    /// Calls that a throttle with a bucket admits at once. RFC 7415 §3.5.1 calls a tolerance of
    /// four intervals reasonable, which is a burst of 5.
    key "burst" (gate.burst) = Whole(1..=1000), Default("5");
    /// The treatment of work that is not admitted. `reject`: it gets a 503. `drop`: it gets no
    /// response, and its sender retransmits it up to six times. `kernel`: it gets a 503. If
    /// rejecting takes more of the processor than `refusing_max`, or receive buffers overflow, the
    /// kernel drops as large a share of the INVITEs as necessary before they are read, with all
    /// their retransmissions. It also drops INVITEs of callers that would have been admitted, and
    /// those within calls. The kernel spares calls to `urn:service:sos`, and 64 networks: those that may claim priority, are
    /// `sources` of a back end, are in `never_ban`, or have a weight. `auto`: as `kernel`, and 503s
    /// have few lengths while rejecting takes more than half of `refusing_max`, because the kernel
    /// takes messages of one length in batches. At an address that processes share, and with the
    /// law `none`, `auto` lets the kernel drop nothing.
    key "disposal" (disposal) = Choice {
        words: &[
            ("auto", Disposal::Auto),
            ("reject", Disposal::Reject),
            ("drop", Disposal::Drop),
            ("kernel", Disposal::Kernel),
        ],
        reserved: &[],
    }, Default("\"auto\"");
    /// With `disposal = "auto"` or `"kernel"`: the share of the processor that rejecting may use
    /// before the kernel drops INVITEs. Served calls lack that share. With a higher value more
    /// callers get a 503 and fewer are dropped.
    key "refusing_max" (refusing_max) = Real(0.01..=0.9), Default("0.08"), only(&KERNEL);
    /// In pools with `mode = "adaptive"`: the occupancy of the processor up to which all new calls
    /// are served with transactions. If the law has a target occupancy, at most nine tenths of
    /// that: Tidegate serves calls without transactions before it rejects any.
    key "stateful_max" (stateful_max) = Real(0.05..=1.0), Default("0.85");
    /// The shortest and the longest Retry-After, in seconds, in the 503 to work that is not
    /// admitted, such as `[5, 15]`. Each 503 gets a random value between them. A client that
    /// receives one should send nothing at all to this server for that time (RFC 3261 §21.5.4),
    /// whichever of its callers was rejected.
    key "retry_after" (? retry_after) = Bounds(0..=3600), Means("no Retry-After");
    /// The length in bytes to which the 503 to work that is not admitted is padded, by spaces
    /// before the value of its Server header (RFC 3261 §7.3.1). A longer 503 stays as it is. For a
    /// trunk or proxy that sends many calls: several datagrams of one length to one peer cost
    /// little more to send than one. Choose a length that nearly all 503s to it fit in. The cost is
    /// longer datagrams.
    key "pad" (? pad) = Whole(256..=PAD_MAX), Means("no padding"),
        only(&REJECTED);
    /// The measure of occupancy. `busy`: the time for which a shard is not idle. `cpu`: its CPU
    /// time, which is too low when the processor is shared with other programs.
    key "occupancy" (gate.occupancy) =
        Choice { words: &[("busy", Occupancy::Busy), ("cpu", Occupancy::Cpu)], reserved: &[] },
        Default("\"busy\"");
    /// Gives a retransmission of a request the decision that its first copy got. The servers in
    /// the papers decide about each copy separately.
    key "sticky" (gate.sticky) = Flag, Default("true");
    /// Decisions remembered for retransmissions, in each of two generations of 32 seconds. A
    /// decision takes 16 to 32 bytes.
    key "memory_max" (gate.memory_max) = Whole(1024..=100_000_000), Default("1_000_000");
}

fn of_number(number: u8) -> Class {
    let found = Class::ALL.into_iter().find(|class| *class as u8 == number);
    found.expect("every class has a number")
}

/// Parameters of the law.
pub(in crate::config) static PARAMS: Table = Table {
    header: "[overload.params]",
    name: "params",
    count: 0..=1,
    doc: "Parameters of the law.",
    knobs: Vec::new,
    tables: &[],
    has_free_keys: true,
};

keys! {
    /// A shadow law: a second law that sees the same signals and only counts. For each piece of new
    /// work `shadow_work` in `/metrics` counts the decision of the law in force and the decision
    /// that the shadow law would have made. The signals are those of a server under the law in
    /// force. So the shadow shows when it would begin to reject, not where it would settle.
    pub(in crate::config) static SHADOW: "[overload.shadow]" 0..=1, Live, [SHADOW_PARAMS]
        => Option<Values>;

    /// The shadow law. `off`: none, at no cost.
    key "law" {
        |shadow| Some(shadow.map(|law| law.entry())),
        |shadow, law| *shadow = law.into_inner().map(Entry::defaults)
    } = NamedOr::<Laws>(&LAWS, "off"), Default("\"off\"");
}

/// Parameters of the shadow law.
pub(in crate::config) static SHADOW_PARAMS: Table = Table {
    header: "[overload.shadow.params]",
    name: "params",
    count: 0..=1,
    doc: "Parameters of the shadow law.",
    knobs: Vec::new,
    tables: &[],
    has_free_keys: true,
};

keys! {
    /// The estimation of whole calls from messages (paper 002 §3.1), for `/metrics` and for
    /// laws that count calls: how many are served in a second, of how many messages each, and how
    /// many wait.
    pub(in crate::config) static SESSIONS: "[overload.sessions]" 0..=1, Restart, [] => Estimation;

    /// The event that counts as a call. `start`: the beginning of a call. `full`: the end of a call
    /// that has begun, which needs both the INVITE and the BYE to pass through this server.
    key "check" (check) = Choice {
        words: &[("start", SessionCheck::Start), ("full", SessionCheck::Full)],
        reserved: &[],
    }, Default("\"start\"");
    /// The length of a measurement T_m, in milliseconds.
    key "interval_ms" (interval) = millis(10..=10_000), Default("100");
    /// The weight of the newest measurement in the estimate.
    key "weight" (weight) = Real(0.001..=1.0), Default("0.1");
    /// The expected rate, in calls a second: the estimate before the first measurement.
    key "rate_cps" (rate_cps) = Real(0.1..=1_000_000.0), Default("100");
    /// The lowest estimate, in calls a second.
    key "rate_min_cps" (rate_min_cps) = Real(0.1..=1_000_000.0), Default("1");
}
