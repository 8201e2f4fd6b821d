//! `[overload.sources]`, `[[overload.weight]]`, `[[overload.limit]]` and `[overload.priority]`.

use ipnet::IpNet;
use tidegate_control::Per;
use tidegate_proxy::{HARM_CPS, NoValue, ResourceValues};

use crate::config::address;
use crate::config::diagnostic::alternatives;
use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Choice, Flag, List, Real, Text, Whole, Wrong};

/// Networks in a list, at the most.
const NETS_MAX: usize = 64;

const fn net() -> Text<IpNet> {
    Text { what: "an address or network, such as `\"192.0.2.0/24\"`", parse: address::network }
}

/// How sources are told apart.
pub static SOURCES: Table = Table {
    header: "[overload.sources]",
    name: "sources",
    count: 0..=1,
    doc: "How those are told apart who ask for new work. A source is an IPv4 address, or the /64 \
          network of an IPv6 address. Over UDP an address proves nothing: who forges that of \
          somebody else uses up his share and may have him banned.",
    knobs: &[&FAIR, &TABLE_MAX, &BAN_ABOVE_CPS, &BAN_AFTER_S, &BAN_S, &NEVER_BAN, &BANS_MAX],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static FAIR: Knob<Flag> = Knob {
    name: "fair",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "Whether what the law admits is shared fairly among sources: each gets the least of what \
          it asks for and of a level that is the same for all (max-min), so that one that floods \
          takes nothing from the others. The throttle then says how much is admitted, and the \
          shares which. So is the room in the queue of new INVITEs shared.",
};

pub(in crate::config) static TABLE_MAX: Knob<Whole> = Knob {
    name: "table_max",
    shape: Whole(64..=65_536),
    absent: Absent::Default("4096"),
    doc: "Sources that a shard tells apart at the same time, in each of its tables; 100 bytes or \
          so each. All others are one source together. One that has been silent for a second or \
          two is forgotten.",
};

pub(in crate::config) static BAN_ABOVE_CPS: Knob<Whole> = Knob {
    name: "ban_above_cps",
    shape: Whole(HARM_CPS as u64..=10_000_000),
    absent: Absent::Means("nobody is banned so"),
    doc: "Bans a source that sends more than so many messages a second that ask for new work, cannot \
          be parsed, or claim to belong to calls that do not exist (BYE, ACK, CANCEL and responses \
          too). An IPv6 /56 may send twice as much as one of its /64 networks, and a /48 four times \
          as much, before it is banned as a whole. A banned source loses new work only: messages of \
          its calls pass. Back ends are never banned.",
};

pub(in crate::config) static BAN_AFTER_S: Knob<Whole> = Knob {
    name: "ban_after_s",
    shape: Whole(1..=3600),
    absent: Absent::Default("1"),
    doc: "With `ban_above_cps`: in so many seconds in a row.",
};

pub(in crate::config) static BAN_S: Knob<Whole> = Knob {
    name: "ban_s",
    shape: Whole(1..=86_400),
    absent: Absent::Default("60"),
    doc: "Seconds for which such a source is banned.",
};

pub(in crate::config) static NEVER_BAN: Knob<List<Text<IpNet>>> = Knob {
    name: "never_ban",
    shape: List { of: net(), count_max: NETS_MAX },
    absent: Absent::Default("[]"),
    doc: "Sources that are never banned, neither by `ban_above_cps` nor by a limit: peers on whom \
          one depends, whose address somebody could forge.",
};

pub(in crate::config) static BANS_MAX: Knob<Whole> = Knob {
    name: "bans_max",
    shape: Whole(1..=65_536),
    absent: Absent::Default("1024"),
    doc: "Sources that are banned at the same time. In a full list a source that sends more replaces \
          the one that sent least; the sources without a place are counted.",
};

/// As how many sources one counts.
pub static SOURCE_WEIGHT: Table = Table {
    header: "[[overload.weight]]",
    name: "weight",
    count: 0..=NETS_MAX,
    doc: "A source that stands for several, such as a trunk of a thousand users. The first entry that \
          matches a source holds; a source without one has weight 1.",
    knobs: &[&WEIGHT_FROM, &SOURCE_WEIGHT_WEIGHT],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static WEIGHT_FROM: Knob<Text<IpNet>> =
    Knob { name: "from", shape: net(), absent: Absent::Required, doc: "Each source in here." };

pub(in crate::config) static SOURCE_WEIGHT_WEIGHT: Knob<Whole> = Knob {
    name: "weight",
    shape: Whole(1..=100_000),
    absent: Absent::Required,
    doc: "The number of sources as which it counts. With `fair` it has as many times the share of \
          another source, and it may send as many times `ban_above_cps` before it is banned.",
};

/// A limit.
pub static LIMIT: Table = Table {
    header: "[[overload.limit]]",
    name: "limit",
    count: 0..=NETS_MAX,
    doc: "A limit on the new work from some sources, whatever the load. The first that is for a \
          source holds. Repetitions count nothing.",
    knobs: &[&LIMIT_FROM, &LIMIT_CPS, &LIMIT_BURST, &LIMIT_PER, &LIMIT_THEN, &LIMIT_BAN_S],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static LIMIT_FROM: Knob<Text<IpNet>> =
    Knob { name: "from", shape: net(), absent: Absent::Required, doc: "Whom it is for." };

pub(in crate::config) static LIMIT_CPS: Knob<Real> = Knob {
    name: "rate_cps",
    shape: Real(0.001..=1_000_000.0),
    absent: Absent::Required,
    doc: "Calls, and requests that stand alone, in a second. Each shard has a limit of its own; a \
          source sends to one shard as long as it keeps its port.",
};

pub(in crate::config) static LIMIT_BURST: Knob<Whole> = Knob {
    name: "burst",
    shape: Whole(1..=1_000_000),
    absent: Absent::Default("10"),
    doc: "As many at once.",
};

pub(in crate::config) static LIMIT_PER: Knob<Choice<Per>> = Knob {
    name: "per",
    shape: Choice { words: &[("source", Per::Source), ("limit", Per::Limit)], reserved: &[] },
    absent: Absent::Default("\"source\""),
    doc: "Whose work it counts: that of each `source` by itself, or that of all whom the `limit` is \
          for.",
};

/// What becomes of what is beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Then {
    Refuse,
    Drop,
    Ban,
}

pub(in crate::config) static LIMIT_THEN: Knob<Choice<Then>> = Knob {
    name: "then",
    shape: Choice {
        words: &[("refuse", Then::Refuse), ("drop", Then::Drop), ("ban", Then::Ban)],
        reserved: &[],
    },
    absent: Absent::Default("\"refuse\""),
    doc: "What becomes of requests beyond the limit. `refuse`: as `disposal` says. `drop`: they are \
          dropped, which costs less. `ban`: they are dropped, and a source that has 100 of them in a \
          second is banned and loses all new work.",
};

pub(in crate::config) static LIMIT_BAN_S: Knob<Whole> = Knob {
    name: "ban_s",
    shape: Whole(1..=86_400),
    absent: Absent::Default("60"),
    doc: "With `then = \"ban\"`: for so many seconds.",
};

/// Which calls go before others.
pub static PRIORITY: Table = Table {
    header: "[overload.priority]",
    name: "priority",
    count: 0..=1,
    doc: "New calls that go before all others, in a queue of their own, whatever the law admits: \
          without this table there are none. To sources that are not listed it makes no \
          difference what they write.",
    knobs: &[&PRIORITY_FROM, &EMERGENCY, &RESOURCE_PRIORITY, &CAP_CPS],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static PRIORITY_FROM: Knob<List<Text<IpNet>>> = Knob {
    name: "from",
    shape: List { of: net(), count_max: NETS_MAX },
    absent: Absent::Required,
    doc: "Sources of which it is believed that a call is urgent.",
};

pub(in crate::config) static EMERGENCY: Knob<Flag> = Knob {
    name: "emergency",
    shape: Flag,
    absent: Absent::Default("true"),
    doc: "Whether calls to `urn:service:sos` are, and to what is below it, such as \
          `urn:service:sos.fire` (RFC 5031).",
};

pub(in crate::config) static RESOURCE_PRIORITY: Knob<List<Text<String>>> = Knob {
    name: "resource_priority",
    shape: List {
        of: Text { what: "a resource value, such as `\"ets.4\"`", parse: resource_value },
        count_max: NETS_MAX,
    },
    absent: Absent::Default(
        "[\"dsn.priority\", \"drsn.priority\", \"q735.3\", \"ets.4\", \"wps.4\"]",
    ),
    doc: "Values of Resource-Priority (RFC 4412) that make a call urgent. In `dsn`, `drsn`, `q735`, \
          `ets` and `wps` all values above the one that is named do as well; of any other \
          namespace list each value. What is unknown is passed over; only if a Require lists \
          `resource-priority` and no value is understood, the call gets a 417.",
};

pub(in crate::config) static CAP_CPS: Knob<Real> = Knob {
    name: "cap_cps",
    shape: Real(0.001..=1_000_000.0),
    absent: Absent::Default("10"),
    doc: "Urgent calls a second for the whole process, in bursts of what comes in a second; those \
          beyond are as any other.",
};

/// A resource value as [`ResourceValues`] takes it.
fn resource_value(text: &str) -> Result<String, Wrong> {
    match ResourceValues::default().add(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(NoValue::Form) => Err("not a namespace, a dot and a value".into()),
        Err(NoValue::Value(known)) => {
            let namespace = text.split('.').next().unwrap_or_default().to_ascii_lowercase();
            let values = known.iter().map(|value| format!("\"{namespace}.{value}\""));
            Err(Wrong::with_help(
                "not a value of this namespace",
                format!("write {}", alternatives(values)),
            ))
        }
    }
}
