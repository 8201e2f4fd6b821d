//! `[overload.sources]`, `[[overload.weight]]`, `[[overload.limit]]` and `[overload.priority]`.

use std::time::Duration;

use ipnet::IpNet;
use tidegate_control::{Per, SourceSettings};
use tidegate_proxy::{
    Excess, Flood, HARM_CPS, NoValue, Overload, Priority, ResourceValues, SourceLimit,
    SourceWeight, Sources,
};

use crate::config::address;
use crate::config::diagnostic::alternatives;
use crate::config::keys::{Only, keys};
use crate::config::shape::{Choice, Flag, List, Real, Text, Whole, Wrong, seconds};

/// The maximum number of networks in a list.
pub(super) const NETS_MAX: usize = 64;

pub(super) const NET: Text<IpNet> =
    Text::new("an address or network, such as `\"192.0.2.0/24\"`", address::network);

/// The values of `[overload.sources]`.
pub(in crate::config) struct SourcesTable {
    /// Those of the gate.
    pub gate: SourceSettings,
    /// Those of the proxy.
    pub sources: Sources,
}

impl From<&Overload> for SourcesTable {
    fn from(overload: &Overload) -> Self {
        Self { gate: overload.gate.sources.clone(), sources: overload.sources.clone() }
    }
}

static BANS_FLOODS: Only<SourcesTable> = Only {
    by: "ban_above_cps",
    when: |table| table.sources.flood.is_some(),
    why: "without `ban_above_cps`",
    instead: "add `ban_above_cps`",
};

keys! {
    /// The rules by which sources of new requests are distinguished. A source is an IPv4 address,
    /// or the /64 network of an IPv6 address. Over UDP an address proves nothing: a sender that
    /// forges the address of another source uses up that source's share and can get it banned.
    pub(in crate::config) static SOURCES: "[overload.sources]" 0..=1, Restart, []
        => SourcesTable;

    /// Shares the admitted work fairly among sources (max-min): each source gets what it asks for,
    /// up to a level that is the same for all, so that a source that floods takes nothing from the
    /// others. The throttle then sets how much is admitted in total, and the shares set from which
    /// sources. The room in the queue of new INVITEs is shared in the same way.
    key "fair" (gate.fair) = Flag, Default("false");
    /// Sources that a shard distinguishes at the same time, in each of its tables, at about 100
    /// bytes each. All other sources count as one. A source that has been silent for a second or
    /// two is forgotten.
    key "table_max" (gate.sources_max) = Whole(64..=65_536), Default("4096");
    /// Bans a source that sends more than this number of messages a second that ask for new work,
    /// cannot be parsed, or claim to belong to calls that do not exist (BYE, ACK, CANCEL and
    /// responses too). A network is banned as a whole if an IPv6 /56 sends more than twice this
    /// number, or a /48 more than four times. A ban drops only new work: messages of the source's
    /// calls pass. Back ends are never banned.
    key "ban_above_cps" {
        |table| table.sources.flood.map(|flood| flood.above_cps),
        |table, above_cps| {
            let above_cps = above_cps.into_inner();
            table.sources.flood = Some(Flood { above_cps, after_s: 1, ban: Duration::ZERO });
        }
    } = Whole(HARM_CPS..=10_000_000), Means("no source is banned for its rate");
    /// With `ban_above_cps`: the number of seconds in a row after which the ban begins.
    key "ban_after_s" {
        |table| table.sources.flood.map(|flood| flood.after_s),
        |table, value| {
            if let Some(flood) = &mut table.sources.flood {
                flood.after_s = value.into_inner();
            }
        }
    } = Whole(1..=3600), Default("1"), only(&BANS_FLOODS);
    /// The duration of such a ban, in seconds.
    key "ban_s" {
        |table| table.sources.flood.map(|flood| flood.ban),
        |table, value| {
            if let Some(flood) = &mut table.sources.flood {
                flood.ban = value.into_inner();
            }
        }
    } = seconds(1..=86_400), Default("60"), only(&BANS_FLOODS);
    /// Sources that are never banned, neither by `ban_above_cps` nor by a limit. List the peers on
    /// which you depend: someone could forge their addresses.
    key "never_ban" (sources.never_ban) = List { of: NET, count_max: NETS_MAX }, Default("[]");
    /// Sources that can be banned at the same time. In a full list a source that sends more
    /// replaces the one that sent least. Bans without room are counted (`bans_overflowed`).
    key "bans_max" (sources.bans_max) = Whole(1..=65_536), Default("1024");
}

keys! {
    /// A source that counts as several, such as a trunk of a thousand users. The first entry that
    /// matches a source applies; a source without an entry has weight 1.
    pub(in crate::config) static SOURCE_WEIGHT: "[[overload.weight]]" 0..=NETS_MAX, Restart, []
        => SourceWeight;

    /// The network: each source in it has this weight.
    key "from" (from) = NET, Required;
    /// The number of sources as which it counts. With `fair` it gets this many times the share of
    /// another source. It may also send this many times `ban_above_cps` before it is banned.
    key "weight" (weight) = Whole(1..=100_000), Required;
}

/// The word `ban`; `ban_s` sets the time.
const BAN: Excess = Excess::Ban(Duration::ZERO);

static BANS: Only<SourceLimit> = Only {
    by: "then",
    when: |limit| matches!(limit.then, Excess::Ban(_)),
    why: "without `then = \"ban\"`",
    instead: "add `then = \"ban\"`",
};

keys! {
    /// A limit on the new work from some sources, whatever the load. The first entry that matches a
    /// source applies. Retransmissions do not count.
    pub(in crate::config) static LIMIT: "[[overload.limit]]" 0..=NETS_MAX, Restart, []
        => SourceLimit;

    /// The network to which the limit applies.
    key "from" (from) = NET, Required;
    /// New calls and requests outside a dialog, in a second. Each shard applies the limit by
    /// itself; a source sends to one shard as long as it keeps its port.
    key "rate_cps" (rate_cps) = Real(0.001..=1_000_000.0), Required;
    /// Requests that may arrive at once.
    key "burst" (burst) = Whole(1..=1_000_000), Default("10");
    /// The unit of the limit: each `source` has it for itself, or all sources of the network share
    /// one `limit`.
    key "per" (per) = Choice { words: &[("source", Per::Source), ("limit", Per::Limit)], reserved: &[] },
        Default("\"source\"");
    /// The treatment of requests beyond the limit. `refuse`: what `disposal` says. `drop`: they are
    /// dropped, which costs less. `ban`: they are dropped, and a source with 100 of them in a
    /// second is banned and loses all new work.
    key "then" {
        |limit| Some(if let Excess::Ban(_) = limit.then { BAN } else { limit.then }),
        |limit, then| limit.then = then.into_inner()
    } = Choice {
        words: &[("refuse", Excess::Refuse), ("drop", Excess::Drop), ("ban", BAN)],
        reserved: &[],
    }, Default("\"refuse\"");
    /// With `then = "ban"`: how long the ban lasts, in seconds.
    key "ban_s" {
        |limit| match limit.then {
            Excess::Ban(time) => Some(time),
            Excess::Refuse | Excess::Drop => None,
        },
        |limit, time| {
            if let Excess::Ban(ban) = &mut limit.then {
                *ban = time.into_inner();
            }
        }
    } = seconds(1..=86_400), Default("60"), only(&BANS);
}

keys! {
    /// Priority calls: new calls that are served before all others, from a queue of their own,
    /// whatever the law admits. Without this table no call has priority. Calls from sources that
    /// are not listed never have priority, whatever they contain.
    pub(in crate::config) static PRIORITY: "[overload.priority]" 0..=1, Restart, []
        => Priority;

    /// Sources that may send priority calls.
    key "from" (from) = List { of: NET, count_max: NETS_MAX }, Required;
    /// Gives priority to calls to `urn:service:sos` and to its sub-services, such as
    /// `urn:service:sos.fire` (RFC 5031).
    key "emergency" (emergency) = Flag, Default("true");
    /// Values of Resource-Priority (RFC 4412) that give a call priority. In `dsn`, `drsn`, `q735`,
    /// `ets` and `wps`, all higher values do so too; of any other namespace list every value.
    /// Unknown values are ignored. A call gets a 417 only if a Require header lists
    /// `resource-priority` and Tidegate knows none of the values.
    key "resource_priority" {
        |priority| Some(priority.values.texts()),
        |priority, texts| {
            for text in texts.into_inner() {
                priority.values.add(&text).expect("the reader has checked it");
            }
        }
    } = List {
        of: Text::new("a resource value, such as `\"ets.4\"`", resource_value),
        count_max: NETS_MAX,
    }, Default("[\"dsn.priority\", \"drsn.priority\", \"q735.3\", \"ets.4\", \"wps.4\"]");
    /// Priority calls a second, for the whole process. A burst may have the amount of one second.
    /// Calls beyond this are treated like any other call.
    key "cap_cps" (rate_cps) = Real(0.001..=1_000_000.0), Default("10");
}

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
