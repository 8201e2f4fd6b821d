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
    doc: "How sources of new requests are distinguished. A source is an IPv4 address, or the /64 \
          network of an IPv6 address. Over UDP an address proves nothing: a sender that forges the \
          address of another source uses up that source's share and can get it banned.",
    knobs: &[&FAIR, &TABLE_MAX, &BAN_ABOVE_CPS, &BAN_AFTER_S, &BAN_S, &NEVER_BAN, &BANS_MAX],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static FAIR: Knob<Flag> = Knob {
    name: "fair",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "Whether the admitted work is shared fairly among sources (max-min): each source gets \
          what it asks for, up to a level that is the same for all, so that a source that floods \
          takes nothing from the others. The throttle then sets how much is admitted in total, and \
          the shares set from which sources. The room in the queue of new INVITEs is shared in the \
          same way.",
};

pub(in crate::config) static TABLE_MAX: Knob<Whole> = Knob {
    name: "table_max",
    shape: Whole(64..=65_536),
    absent: Absent::Default("4096"),
    doc: "Sources that a shard distinguishes at the same time, in each of its tables, at about 100 \
          bytes each. All other sources count as one. A source that has been silent for a second \
          or two is forgotten.",
};

pub(in crate::config) static BAN_ABOVE_CPS: Knob<Whole> = Knob {
    name: "ban_above_cps",
    shape: Whole(HARM_CPS as u64..=10_000_000),
    absent: Absent::Means("no source is banned for its rate"),
    doc: "Bans a source that sends more than this number of messages a second that ask for new \
          work, cannot be parsed, or claim to belong to calls that do not exist (BYE, ACK, CANCEL \
          and responses too). A network is banned as a whole if an IPv6 /56 sends more than twice \
          this number, or a /48 more than four times. A ban drops only new work: messages of the \
          source's calls pass. Back ends are never banned.",
};

pub(in crate::config) static BAN_AFTER_S: Knob<Whole> = Knob {
    name: "ban_after_s",
    shape: Whole(1..=3600),
    absent: Absent::Default("1"),
    doc: "With `ban_above_cps`: the number of seconds in a row after which the ban begins.",
};

pub(in crate::config) static BAN_S: Knob<Whole> = Knob {
    name: "ban_s",
    shape: Whole(1..=86_400),
    absent: Absent::Default("60"),
    doc: "How long such a ban lasts, in seconds.",
};

pub(in crate::config) static NEVER_BAN: Knob<List<Text<IpNet>>> = Knob {
    name: "never_ban",
    shape: List { of: net(), count_max: NETS_MAX },
    absent: Absent::Default("[]"),
    doc: "Sources that are never banned, neither by `ban_above_cps` nor by a limit. List the peers \
          on which you depend: someone could forge their addresses.",
};

pub(in crate::config) static BANS_MAX: Knob<Whole> = Knob {
    name: "bans_max",
    shape: Whole(1..=65_536),
    absent: Absent::Default("1024"),
    doc: "Sources that can be banned at the same time. In a full list a source that sends more \
          replaces the one that sent least. Bans without room are counted (`bans_overflowed`).",
};

/// As how many sources one counts.
pub static SOURCE_WEIGHT: Table = Table {
    header: "[[overload.weight]]",
    name: "weight",
    count: 0..=NETS_MAX,
    doc: "A source that counts as several, such as a trunk of a thousand users. The first entry \
          that matches a source applies; a source without an entry has weight 1.",
    knobs: &[&WEIGHT_FROM, &SOURCE_WEIGHT_WEIGHT],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static WEIGHT_FROM: Knob<Text<IpNet>> = Knob {
    name: "from",
    shape: net(),
    absent: Absent::Required,
    doc: "The network: each source in it has this weight.",
};

pub(in crate::config) static SOURCE_WEIGHT_WEIGHT: Knob<Whole> = Knob {
    name: "weight",
    shape: Whole(1..=100_000),
    absent: Absent::Required,
    doc: "The number of sources as which it counts. With `fair` it gets this many times the share \
          of another source. It may also send this many times `ban_above_cps` before it is banned.",
};

/// A limit.
pub static LIMIT: Table = Table {
    header: "[[overload.limit]]",
    name: "limit",
    count: 0..=NETS_MAX,
    doc: "A limit on the new work from some sources, whatever the load. The first entry that \
          matches a source applies. Retransmissions do not count.",
    knobs: &[&LIMIT_FROM, &LIMIT_CPS, &LIMIT_BURST, &LIMIT_PER, &LIMIT_THEN, &LIMIT_BAN_S],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static LIMIT_FROM: Knob<Text<IpNet>> = Knob {
    name: "from",
    shape: net(),
    absent: Absent::Required,
    doc: "The network to which the limit applies.",
};

pub(in crate::config) static LIMIT_CPS: Knob<Real> = Knob {
    name: "rate_cps",
    shape: Real(0.001..=1_000_000.0),
    absent: Absent::Required,
    doc: "New calls and requests outside a dialog, in a second. Each shard applies the limit by \
          itself; a source sends to one shard as long as it keeps its port.",
};

pub(in crate::config) static LIMIT_BURST: Knob<Whole> = Knob {
    name: "burst",
    shape: Whole(1..=1_000_000),
    absent: Absent::Default("10"),
    doc: "Requests that may arrive at once.",
};

pub(in crate::config) static LIMIT_PER: Knob<Choice<Per>> = Knob {
    name: "per",
    shape: Choice { words: &[("source", Per::Source), ("limit", Per::Limit)], reserved: &[] },
    absent: Absent::Default("\"source\""),
    doc: "Whether each `source` has this limit for itself, or all sources of the network share one \
          `limit`.",
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
    doc: "What happens to requests beyond the limit. `refuse`: what `disposal` says. `drop`: they \
          are dropped, which costs less. `ban`: they are dropped, and a source with 100 of them in \
          a second is banned and loses all new work.",
};

pub(in crate::config) static LIMIT_BAN_S: Knob<Whole> = Knob {
    name: "ban_s",
    shape: Whole(1..=86_400),
    absent: Absent::Default("60"),
    doc: "With `then = \"ban\"`: how long the ban lasts, in seconds.",
};

/// Which calls go before others.
pub static PRIORITY: Table = Table {
    header: "[overload.priority]",
    name: "priority",
    count: 0..=1,
    doc: "Priority calls: new calls that are served before all others, from a queue of their own, \
          whatever the law admits. Without this table no call has priority. Calls from sources \
          that are not listed never have priority, whatever they contain.",
    knobs: &[&PRIORITY_FROM, &EMERGENCY, &RESOURCE_PRIORITY, &CAP_CPS],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(in crate::config) static PRIORITY_FROM: Knob<List<Text<IpNet>>> = Knob {
    name: "from",
    shape: List { of: net(), count_max: NETS_MAX },
    absent: Absent::Required,
    doc: "Sources that may send priority calls.",
};

pub(in crate::config) static EMERGENCY: Knob<Flag> = Knob {
    name: "emergency",
    shape: Flag,
    absent: Absent::Default("true"),
    doc: "Whether calls to `urn:service:sos` and to its sub-services, such as \
          `urn:service:sos.fire`, have priority (RFC 5031).",
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
    doc: "Values of Resource-Priority (RFC 4412) that give a call priority. In `dsn`, `drsn`, \
          `q735`, `ets` and `wps`, all higher values do so too; of any other namespace list every \
          value. Unknown values are ignored. A call gets a 417 only if a Require header lists \
          `resource-priority` and Tidegate knows none of the values.",
};

pub(in crate::config) static CAP_CPS: Knob<Real> = Knob {
    name: "cap_cps",
    shape: Real(0.001..=1_000_000.0),
    absent: Absent::Default("10"),
    doc: "Priority calls a second, for the whole process. A burst may have the amount of one \
          second. Calls beyond this are treated like any other call.",
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
