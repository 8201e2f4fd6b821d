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
use crate::config::shape::{Choice, Flag, List, Named, NamedOr, NotEmpty, Real, Whole, millis};

/// The words that `decide` accepts.
pub(in crate::config) const DECIDE: Choice<Decide> =
    Choice { words: &[("arrival", Decide::Arrival), ("service", Decide::Service)], reserved: &[] };

/// The words that `queue` accepts.
pub(in crate::config) const QUEUE: Choice<Queueing> =
    Choice { words: &[("class", Queueing::Class), ("fifo", Queueing::Fifo)], reserved: &[] };

/// The rule that decides which messages may be shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Classes {
    /// New INVITEs and other new requests may be shed. All other messages are never shed.
    Simplified,
    /// All messages may be shed, in the same way.
    Single,
    /// The configured classes are shed, one after the other.
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

static BUCKET: Only<Overload> = Only {
    by: "throttle",
    when: |overload| {
        matches!(overload.gate.throttle, ThrottleKind::LeakyBucket | ThrottleKind::TokenBucket)
    },
    why: "this `throttle` has no bucket",
    instead: "write `throttle = \"token-bucket\"`",
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
    /// Overload control decides which new work Tidegate admits when more work arrives than the
    /// processor can serve. Unless `classes` says otherwise, overload control never rejects
    /// responses, ACK, BYE, CANCEL or other requests within a call. Without this table the law
    /// `tide` protects the server.
    pub static OVERLOAD: "[overload]" 0..=1, Restart,
        [PARAMS, SHADOW, SESSIONS, SOURCES, SOURCE_WEIGHT, LIMIT, PRIORITY, FEEDBACK] => Overload;

    /// The law that decides how much new work Tidegate admits. `curl http://127.0.0.1:8060/laws`
    /// describes each law. The law `none` admits everything.
    key "law" {
        |all| Some(all.gate.law.entry()),
        |all, law| all.gate.law = law.into_inner().defaults()
    } = Named(&LAWS), Default("\"tide\""), reload(Reload::Live);
    /// The time at which Tidegate decides about new work. `arrival`: when a message arrives, before
    /// it enters a queue. `service`: when the processor takes the message from the queue.
    key "decide" (gate.decide) = DECIDE, Default("\"arrival\"");
    /// The order in which Tidegate serves messages. `class`: messages that finish work come before
    /// messages that begin work, and messages that belong to no known call come last. `fifo`: all
    /// messages wait in one queue, and Tidegate serves them in the order of their arrival. If the
    /// queue is full, arriving messages are lost, as in most SIP servers. Messages that belong to
    /// no known call wait in the same queue, and there is only one socket for all messages. Use
    /// `fifo` only for comparisons.
    key "queue" (queueing) = QUEUE, Default("\"class\"");
    /// The messages to which the admitted share applies. `simplified`: the share applies to new
    /// work only. New INVITEs go through one throttle. REGISTER and other requests outside a dialog
    /// go through a second throttle. `single`: the share applies to all messages, responses too, so
    /// that admitted calls fail. Use `single` only for comparisons. `multi`: the share applies to
    /// the whole load. Tidegate sheds one class in `shed` after the other.
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
    /// `true`: Tidegate treats an INVITE within a call like an INVITE that begins a call, as in
    /// paper 000.
    key "reinvites" (reinvites) = Flag, Default("false");
    /// `true`: with `classes = "simplified"`, the admitted share is a share of all messages, as in
    /// paper 000, and not of new work. Tidegate sheds as many messages as this share requires, but
    /// only new work. For example, an admitted share of 0.9 means that 10 of 100 messages are shed.
    /// If one message in six is new work, only 0.4 of the new work is then admitted.
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
    /// With `classes = "multi"`: the classes that Tidegate sheds, in this order. Tidegate sheds a
    /// class only after it has shed all of the preceding classes completely. The law rejects no
    /// message of a class that is not in the list. `["register"]` sheds only REGISTER.
    /// `["provisional"]` sheds only 180 responses. If a response or an ACK is shed, Tidegate drops
    /// it. If any other request is shed, `disposal` applies.
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
    } = NotEmpty(List {
        of: Choice { words: &Class::NAMED, reserved: &[] },
        count_max: Class::ALL.len(),
    }), Default("[\"provisional\", \"register\", \"other\", \"invite\"]"), only(&MULTI);
    /// With `classes = "multi"`: the share of the load that one message counts for. `cost`: the
    /// measured cost of its class. `count`: the same for every message.
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
    /// The rule by which the throttle selects the requests that it admits. Two rules select by
    /// count. `deterministic` spreads the admitted requests evenly, and `random` draws a random
    /// number for each request. Three rules select by time. `leaky-bucket` (RFC 7415 §3.5.1) and
    /// `token-bucket` admit up to `burst` requests at once, and `gapping` keeps a minimum time
    /// between two requests. If a law sets a share, a rule by time admits that share of the arrival
    /// rate. If a law sets a rate, a rule by count admits the rate divided by the arrival rate.
    key "throttle" (gate.throttle) =
        Choice { words: &ThrottleKind::NAMED, reserved: &[] }, Default("\"deterministic\"");
    /// The number of calls that a throttle with a bucket admits at once. RFC 7415 §3.5.1 calls a
    /// tolerance of four intervals reasonable. This is a burst of 5.
    key "burst" (gate.burst) = Whole(1..=1000), Default("5"), only(&BUCKET);
    /// The treatment of work that Tidegate does not admit. `reject`: the request gets a 503.
    /// `drop`: the request gets no response. A sender over UDP retransmits an INVITE up to six
    /// times, and any other request up to ten times. `kernel`: the request gets a 503, but the
    /// kernel may drop INVITEs and REGISTERs before Tidegate reads them. The kernel does so if
    /// rejecting takes more of the processor than `rejecting_max`, or if receive buffers overflow.
    /// It drops as large a share of these requests as necessary. Of a dropped request it also drops
    /// all retransmissions. It also drops INVITEs within calls, and requests that Tidegate would
    /// have admitted. With `fair` (see `[overload.sources]`) it drops only requests of the sources
    /// that cause the overload. The kernel spares calls to `urn:service:sos`, except those of a
    /// source that floods with them. It also spares up to 64 networks: networks that may claim
    /// priority, back ends and their `sources`, networks in `never_ban`, networks with a weight,
    /// and `peers` of `[overload.feedback]`. `auto`: like `kernel`, but while rejecting takes more
    /// than half of `rejecting_max`, Tidegate pads each 503 to a multiple of 256 bytes. Many 503s
    /// then have the same length, so that the kernel sends them in batches. With `auto` the kernel
    /// drops nothing at an address that several processes share. It also drops nothing with the law
    /// `none`. Of the INVITEs and REGISTERs that arrive over TCP, TLS or a WebSocket, Tidegate
    /// itself drops the same share after it has read them, but no INVITE within a call.
    key "disposal" (disposal) = Choice {
        words: &[
            ("auto", Disposal::Auto),
            ("reject", Disposal::Reject),
            ("drop", Disposal::Drop),
            ("kernel", Disposal::Kernel),
        ],
        reserved: &[],
    }, Default("\"auto\"");
    /// With `disposal = "auto"` or `"kernel"`: the share of the processor that Tidegate may use for
    /// rejecting before the kernel drops INVITEs and REGISTERs. This share is not available for
    /// serving calls. With a higher value more callers get a 503, and the kernel drops fewer
    /// requests.
    key "rejecting_max" (rejecting_max) = Real(0.01..=0.9), Default("0.08"), only(&KERNEL);
    /// In pools with `mode = "adaptive"`: the occupancy of the processor up to which Tidegate
    /// serves all new calls with transactions. If the law has a target occupancy, the value is
    /// limited to nine tenths of that target. So Tidegate serves calls without transactions before
    /// it rejects any call.
    key "stateful_max" (stateful_max) = Real(0.05..=1.0), Default("0.85");
    /// The shortest and the longest Retry-After, in seconds, in the 503 for work that Tidegate does
    /// not admit, such as `[5, 15]`. Each 503 gets a random value between the two. A client that
    /// receives Retry-After should send nothing to this server for that time (RFC 3261 §21.5.4),
    /// not even requests of its other callers.
    key "retry_after" (? retry_after) = Bounds(0..=3600), Means("no Retry-After"),
        only(&REJECTED);
    /// The length in bytes to which Tidegate pads the 503 for work that it does not admit. It adds
    /// spaces before the value of the Server header (RFC 3261 §7.3.1). A longer 503 stays
    /// unchanged. Use this key for a trunk or proxy that sends many calls, because several
    /// datagrams of one length to one peer cost little more than one datagram. Choose a length that
    /// is enough for nearly all 503s to that peer. The disadvantage is longer datagrams.
    key "pad" (? pad) = Whole(256..=PAD_MAX), Means("no padding"),
        only(&REJECTED);
    /// The measure of occupancy. `busy`: the time in which a shard is not idle. `cpu`: the CPU time
    /// of the shard. This value is too low if other programs use the same processor.
    key "occupancy" (gate.occupancy) =
        Choice { words: &[("busy", Occupancy::Busy), ("cpu", Occupancy::Cpu)], reserved: &[] },
        Default("\"busy\"");
    /// `true`: a retransmission of a request gets the same decision as the first copy. `false`:
    /// Tidegate decides about each copy separately, like the server in paper 000.
    key "sticky" (gate.sticky) = Flag, Default("true");
    /// The number of decisions that Tidegate remembers for retransmissions. This limit applies to
    /// the decisions of the current 32 seconds, and separately to those of the 32 seconds before. A
    /// decision takes about 28 bytes. Tidegate also remembers the same number of challenges (401
    /// and 407) from back ends. If there is no room for a decision, a retransmission gets a new
    /// decision. If there is no room for a challenge, the request that answers it with credentials
    /// counts as new work, like the first request.
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
    doc: "Parameters of the law.",
    has_free_keys: true,
    ..Table::EMPTY
};

keys! {
    /// A shadow law is a second law that sees the same signals and has no effect on calls. For each
    /// new call or single request, Tidegate counts two decisions in the metric
    /// `tidegate_shadow_work`: the decision of the law in force, and the decision that the shadow
    /// law would have made. Neither decision includes the fair shares of sources. The signals are
    /// those of a server under the law in force. So these counters show when the shadow law would
    /// begin to reject. They do not show how much it would reject after that.
    pub(in crate::config) static SHADOW: "[overload.shadow]" 0..=1, Live, [SHADOW_PARAMS]
        => Option<Values>;

    /// The shadow law. `off`: there is no shadow law, and no cost.
    key "law" {
        |shadow| Some(shadow.map(|law| law.entry())),
        |shadow, law| *shadow = law.into_inner().map(Entry::defaults)
    } = NamedOr::<Laws>(&LAWS, "off"), Default("\"off\"");
}

/// Parameters of the shadow law.
pub(in crate::config) static SHADOW_PARAMS: Table = Table {
    header: "[overload.shadow.params]",
    name: "params",
    doc: "Parameters of the shadow law.",
    has_free_keys: true,
    ..Table::EMPTY
};

keys! {
    /// The estimation of whole calls from messages (paper 002 §3.1), for `/metrics` and for laws
    /// that count calls. Tidegate estimates how many calls it serves in a second, how many messages
    /// each call has, and how many calls wait.
    pub(in crate::config) static SESSIONS: "[overload.sessions]" 0..=1, Restart, [] => Estimation;

    /// The event by which calls are counted. `start`: Tidegate serves the INVITE of a call. `full`:
    /// Tidegate serves a BYE, and it has served an INVITE before for which no BYE has been counted.
    /// For `full`, both the INVITE and the BYE must pass through this server.
    key "check" (check) = Choice {
        words: &[("start", SessionCheck::Start), ("full", SessionCheck::Full)],
        reserved: &[],
    }, Default("\"start\"");
    /// The length of one measurement, T_m, in milliseconds.
    key "interval_ms" (interval) = millis(10..=10_000), Default("100");
    /// The weight of the newest measurement in the estimate.
    key "weight" (weight) = Real(0.001..=1.0), Default("0.1");
    /// The rate of calls served, in calls a second, that Tidegate assumes until the first
    /// measurement.
    key "rate_cps" (rate_cps) = Real(0.1..=1_000_000.0), Default("100");
    /// The lowest rate that Tidegate estimates, in calls a second.
    key "rate_min_cps" (rate_min_cps) = Real(0.1..=1_000_000.0), Default("1");
}
