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
use crate::config::shape::{Choice, Flag, List, NotEmpty, Real, Text, Whole, Wrong, seconds};

/// The maximum number of networks in a list.
pub(super) const NETS_MAX: usize = 64;

pub(super) const NET: Text<IpNet> =
    Text::new("an address or network, such as `\"192.0.2.0/24\"`", address::network);

/// The values of `[overload.sources]`.
pub(in crate::config) struct SourcesTable {
    /// The values that the gate uses.
    pub gate: SourceSettings,
    /// The values that the proxy uses.
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
    why: "without `ban_above_cps`, no source is banned for its rate",
    instead: "add `ban_above_cps`",
};

keys! {
    /// The rules by which Tidegate distinguishes sources of new requests. A source is an IPv4
    /// address, or the /64 network of an IPv6 address. Over UDP a source address can be forged. A
    /// sender that forges the address of another source uses up the share of that source, and can
    /// cause a ban of that source.
    pub(in crate::config) static SOURCES: "[overload.sources]" 0..=1, Restart, []
        => SourcesTable;

    /// `true`: if Tidegate cannot admit all new work, it shares the admitted work fairly among
    /// sources (max-min). Each source gets what it sends, up to a level that is the same for all
    /// sources. So a source that floods takes nothing from the others. The throttle sets how much
    /// work Tidegate admits in total. The shares set how much of it each source gets. Tidegate
    /// shares the room in the queue of new INVITEs in the same way. If the kernel drops INVITEs and
    /// REGISTERs (see `disposal`), it drops only those of the sources that cause the overload,
    /// unless these are more than 12. If there is no `[[overload.weight]]`, back ends and the
    /// trusted sources of a listener (`trust`) count as 1,000 sources each. `false`: each source
    /// has the same share of the admitted work as of the work that arrives.
    key "fair" (gate.fair) = Flag, Default("true");
    /// The number of sources that a shard can distinguish at the same time, in each of its tables.
    /// An entry takes about 100 bytes. All sources without an entry count as one source. A shard
    /// forgets a source that has sent nothing for a second or two.
    key "table_max" (gate.sources_max) = Whole(64..=65_536), Default("4096");
    /// Bans a source that sends more than this number of messages a second. Only these messages
    /// count: requests for new work, messages that cannot be parsed, messages that claim to belong
    /// to calls that do not exist (BYE, ACK, CANCEL and responses too), and messages above the rate
    /// of their call (`call_flood`). Each shard counts separately. All datagrams from one port of a
    /// source go to the same shard, but a source that uses many ports or connections may send this
    /// number to each shard. A ban applies to all shards. Tidegate bans a whole IPv6 /56 network
    /// that sends more than twice this number, and a /48 network that sends more than four times
    /// this number. A ban drops only new work and messages above the rate of their call. All other
    /// messages that belong to the source's calls pass. Back ends are never banned.
    key "ban_above_cps" {
        |table| table.sources.flood.map(|flood| flood.above_cps),
        |table, above_cps| {
            let above_cps = above_cps.into_inner();
            table.sources.flood = Some(Flood { above_cps, after_s: 1, ban: Duration::ZERO });
        }
    } = Whole(HARM_CPS..=10_000_000), Means("no source is banned for its rate");
    /// With `ban_above_cps`: the number of consecutive seconds above that rate after which the ban
    /// begins.
    key "ban_after_s" {
        |table| table.sources.flood.map(|flood| flood.after_s),
        |table, value| {
            if let Some(flood) = &mut table.sources.flood {
                flood.after_s = value.into_inner();
            }
        }
    } = Whole(1..=3600), Default("1"), only(&BANS_FLOODS);
    /// With `ban_above_cps`: the duration of the ban, in seconds.
    key "ban_s" {
        |table| table.sources.flood.map(|flood| flood.ban),
        |table, value| {
            if let Some(flood) = &mut table.sources.flood {
                flood.ban = value.into_inner();
            }
        }
    } = seconds(1..=86_400), Default("60"), only(&BANS_FLOODS);
    /// Sources that Tidegate never bans, neither by `ban_above_cps` nor by a limit. List the peers
    /// on which you depend, because someone could forge their addresses.
    key "never_ban" (sources.never_ban) = List { of: NET, count_max: NETS_MAX }, Default("[]");
    /// The number of sources that can be banned at the same time. If the list is full, a further
    /// source is banned only if it sends more than one of the banned sources. It then replaces the
    /// banned source that sent least. The metric `tidegate_bans_overflowed_total` counts bans for
    /// which the list had no room.
    key "bans_max" (sources.bans_max) = Whole(1..=65_536), Default("1024");
}

keys! {
    /// A source that counts as several sources, such as a trunk with a thousand users. The first
    /// entry that matches a source applies. A source without an entry has weight 1.
    pub(in crate::config) static SOURCE_WEIGHT: "[[overload.weight]]" 0..=NETS_MAX, Restart, []
        => SourceWeight;

    /// The network. Each source in this network has the `weight` of this entry.
    key "from" (from) = NET, Required;
    /// The number of ordinary sources that this source counts as. With `fair` the source gets this
    /// many times the share of another source. The source may also send this many times
    /// `ban_above_cps`, and this many times as many requests above a limit with `then = "ban"`,
    /// before it is banned.
    key "weight" (weight) = Whole(1..=100_000), Required;
}

/// The value of the word `ban`. The key `ban_s` sets the duration.
const BAN: Excess = Excess::Ban(Duration::ZERO);

static BANS: Only<SourceLimit> = Only {
    by: "then",
    when: |limit| matches!(limit.then, Excess::Ban(_)),
    why: "this limit bans no source",
    instead: "add `then = \"ban\"`",
};

keys! {
    /// A limit on the new work from some sources. It applies at any load. The first entry that
    /// matches a source applies. With `then = "drop"`, or with `sticky = false` (`[overload]`), a
    /// retransmission counts like a new request. Otherwise retransmissions do not count.
    pub(in crate::config) static LIMIT: "[[overload.limit]]" 0..=NETS_MAX, Restart, []
        => SourceLimit;

    /// The network to which the limit applies.
    key "from" (from) = NET, Required;
    /// The number of new calls and requests outside a dialog in a second. Each shard applies the
    /// limit separately. All requests from one port of a source go to the same shard.
    key "rate_cps" (rate_cps) = Real(0.001..=1_000_000.0), Required;
    /// The number of requests that may arrive at once.
    key "burst" (burst) = Whole(1..=1_000_000), Default("10");
    /// The scope of the limit. `source`: each source in the network has its own limit. `limit`: all
    /// sources in the network share one limit.
    key "per" (per) = Choice { words: &[("source", Per::Source), ("limit", Per::Limit)], reserved: &[] },
        Default("\"source\"");
    /// The treatment of requests beyond the limit. `reject`: `disposal` applies. `drop`: Tidegate
    /// drops the requests, which costs less. `ban`: Tidegate drops the requests and their
    /// retransmissions, and bans a source that sends 100 such requests in a second to one shard, or
    /// 100 times its `[[overload.weight]]`. A banned source can begin no new work.
    key "then" {
        |limit| Some(if let Excess::Ban(_) = limit.then { BAN } else { limit.then }),
        |limit, then| limit.then = then.into_inner()
    } = Choice {
        words: &[("reject", Excess::Reject), ("drop", Excess::Drop), ("ban", BAN)],
        reserved: &[],
    }, Default("\"reject\"");
    /// With `then = "ban"`: the duration of the ban, in seconds.
    key "ban_s" {
        |limit| match limit.then {
            Excess::Ban(time) => Some(time),
            Excess::Reject | Excess::Drop => None,
        },
        |limit, time| {
            if let Excess::Ban(ban) = &mut limit.then {
                *ban = time.into_inner();
            }
        }
    } = seconds(1..=86_400), Default("60"), only(&BANS);
}

keys! {
    /// Priority calls are new calls that Tidegate serves before all other new work, from a
    /// separate queue, whatever the law decides. Without this table no call has priority. A call
    /// from a source that is not listed here never has priority, whatever the request contains.
    pub(in crate::config) static PRIORITY: "[overload.priority]" 0..=1, Restart, []
        => Priority;

    /// Sources that may send priority calls.
    key "from" (from) = NotEmpty(List { of: NET, count_max: NETS_MAX }), Required;
    /// `true`: calls to `urn:service:sos` and to its sub-services, such as `urn:service:sos.fire`,
    /// have priority (RFC 5031).
    key "emergency" (emergency) = Flag, Default("true");
    /// Values of Resource-Priority (RFC 4412) that give a call priority. In the namespaces `dsn`,
    /// `drsn`, `q735`, `ets` and `wps`, every value above a listed one gives priority too. For any
    /// other namespace, list every value. Tidegate ignores values that it does not know. It answers
    /// 417 only if it knows none of the values and a Require header lists `resource-priority`.
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
    /// The number of priority calls a second, for the whole process. A burst may contain as many
    /// calls as this number allows in one second. Tidegate treats priority calls beyond this limit
    /// like other calls.
    key "cap_cps" (rate_cps) = Real(0.001..=1_000_000.0), Default("10");
}

/// Returns `text` if [`ResourceValues`] accepts it as a value.
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
