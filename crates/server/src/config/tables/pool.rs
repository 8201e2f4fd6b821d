//! `[[pool]]` and `[[pool.backend]]`.

use std::time::Duration;

use ipnet::IpNet;
use tidegate_balance::registry::POLICIES;
use tidegate_balance::{Entry, Learning, Values};
use tidegate_proxy::{Health, Mode, Obedience, PathMode, TRIES_MAX};
use tidegate_world::Transport;

use crate::config::address;
use crate::config::endpoint::{self, Endpoint};
use crate::config::keys::{Only, table};
use crate::config::knob::Table;
use crate::config::shape::{Choice, List, NamedOr, Positive, Real, Text, Whole, millis};
use crate::config::tables::health::HEALTH;
use crate::config::tables::limit::POOL_LIMIT;
use crate::config::tables::tls::{POOL_TLS, PoolTls};
use crate::config::word;

/// The reason why a key for transactions has no effect. [`KEEP_THEM`] is the remedy.
pub(in crate::config) const STATELESS: &str = "a pool without transactions does not use this key";
pub(in crate::config) const KEEP_THEM: &str = "write another `mode` than `\"stateless\"`";

/// The reason why a listener for WebSockets reaches no back end.
pub(in crate::config) const NO_WEBSOCKETS: &str = "Tidegate opens no WebSockets";

/// The transports over which peers reach Tidegate but Tidegate reaches no back end.
const WEBSOCKETS: &[(&str, &str)] = &[("ws", NO_WEBSOCKETS), ("wss", NO_WEBSOCKETS)];

/// The transports by which Tidegate reaches back ends.
const TRANSPORTS: &[(&str, Transport)] =
    &[("udp", Transport::Udp), ("tcp", Transport::Tcp), ("tls", Transport::Tls)];

static WITH_TRANSACTIONS: Only<PoolDraft> = Only {
    by: "mode",
    when: |pool| pool.mode.as_ref().is_none_or(|mode| *mode.get_ref() != Mode::Stateless),
    why: STATELESS,
    instead: KEEP_THEM,
};

table! {
    /// A group of servers. Tidegate distributes calls among them.
    pub static POOL: "[[pool]]" 1..=256, NewCalls, [POOL_PARAMS, BACKEND, HEALTH, POOL_LIMIT, POOL_TLS]
        => Pool, PoolDraft;

    /// The name of the pool in routes, metrics and commands.
    name: String = Text::new(
        "1 to 64 letters, digits and `_-.:`, such as `\"app\"`",
        word::pool_name,
    ), Required;
    /// The policy that selects the back end for a new call. The policies are described below. All
    /// of them use the weights of back ends. The word `fork` means that the call goes to all back
    /// ends: first to the back ends with the highest `q`, then to the back ends with the next lower
    /// `q`. The first back end to answer gets the call (RFC 3261 §16.6).
    policy_entry("policy"): Option<&'static Entry> =
        NamedOr(&POLICIES, "fork"), Default("\"tlwl\"");
    /// `transaction`: Tidegate is a stateful proxy (RFC 3261 §16). It responds with 100 at once,
    /// retransmits lost messages and absorbs retransmissions. If a back end rejects a request with
    /// 503, sends no response or is down, Tidegate sends the request to another back end.
    /// `stateless`: Tidegate forwards without transactions (§16.11), which costs less for each
    /// message. It remembers the back end of each call. `adaptive`: like `transaction` while the
    /// occupancy of the processor is at most `stateful_max` (`[overload]`). At a higher occupancy,
    /// Tidegate serves as many new calls without transactions as necessary, as in `stateless`. It
    /// rejects calls only if that is not enough. A call that began without transactions is served
    /// without them until it ends. Calls for which the transaction table has no room are also
    /// served without transactions.
    mode: Mode = Choice {
        words: &[
            ("transaction", Mode::Transaction),
            ("stateless", Mode::Stateless),
            ("adaptive", Mode::Adaptive),
        ],
        reserved: &[],
    }, Default("\"transaction\"");
    /// Milliseconds without a response after which Tidegate sends a new INVITE, REGISTER or OPTIONS
    /// to another back end. Any other request waits until the back end is down, or for 32 s.
    /// Otherwise the request could arrive at both back ends. In 4,000 ms Tidegate retransmits an
    /// INVITE three times over UDP (RFC 3261 §17.1.1.2). This key applies only with transactions.
    failover_after("failover_after_ms"): Duration =
        millis(100..=32_000), Default("4_000"), only(&WITH_TRANSACTIONS);
    /// The largest number of back ends that Tidegate tries for a new request, one after the other.
    /// After a 503, Tidegate skips back ends that have sent a 503 within the last second. After a
    /// missing response, it skips only back ends that are proved to be overloaded. This key applies
    /// only with transactions.
    tries_max: u8 = Whole(1..=TRIES_MAX), Default("3"), only(&WITH_TRANSACTIONS);
    /// The pool that gets new calls while no back end of this pool can take a call. A back end can
    /// take no call if it is unavailable or at its limits (`calls_max`, `cps_max`, `[pool.limit]`).
    /// With transactions, the backup pool also gets calls that all back ends of this pool have
    /// rejected.
    backup: String | None = Text::new("the name of a pool", word::pool_name), Means("none");
    /// Tidegate can obey a back end that asks for fewer requests (RFC 7339, RFC 7415). It then
    /// sends no more requests than the back end asks for, and sends in-dialog requests first.
    /// Tidegate rejects the other requests with 503, or sends them to another back end that is
    /// known to have room. `proven`: Tidegate begins to offer overload control and to obey feedback
    /// after a response to a health check (`[pool.health] probe`) has shown that the back end
    /// itself sends feedback. `always`: Tidegate offers overload control in every request and obeys
    /// all feedback in responses. With `always`, if the back end does not implement RFC 7339,
    /// anyone behind it can stop the calls to it. `never`: Tidegate ignores feedback.
    obedience("obey_feedback"): Obedience = Choice {
        words: &[
            ("proven", Obedience::Proven),
            ("always", Obedience::Always),
            ("never", Obedience::Never),
        ],
        reserved: &[],
    }, Default("\"proven\"");
    /// The transport of requests that are longer than 1,300 bytes and would leave by UDP (RFC 3261
    /// §18.1.1). `udp`: such a request leaves in fragments. `tcp`: it leaves over TCP, with a
    /// transaction. If the connection to the back end cannot be opened, Tidegate sends this request
    /// by UDP, and for a minute all other large requests to this back end too. The file must have a
    /// `[[listen]]` with TCP at the IP address from which Tidegate sends the other requests of the
    /// pool. Back ends answer on the connection, and send their own requests by UDP as before.
    large_over_tcp("large_requests"): bool =
        Choice { words: &[("udp", false), ("tcp", true)], reserved: &[] }, Default("\"udp\"");
    /// With a Path (RFC 3327), requests of a registrar behind Tidegate reach a phone on the
    /// connection or at the address from which the phone registered. Tidegate adds the Path to a
    /// REGISTER. The registrar stores the Path and writes it into the Route of requests for that
    /// phone. `supported`: Tidegate adds a Path if the phone lists `path` in Supported, or has
    /// `+sip.instance` and `reg-id` in its Contact (RFC 5626). `always`: Tidegate adds a Path to
    /// every REGISTER. The registrar has to accept a Path that the phone does not support. `never`:
    /// Tidegate adds no Path.
    path: PathMode = Choice {
        words: &[
            ("supported", PathMode::Supported),
            ("always", PathMode::Always),
            ("never", PathMode::Never),
        ],
        reserved: &[],
    }, Default("\"supported\"");
    /// The transport to the back ends of the pool. The file must have a `[[listen]]` with this
    /// transport. Back ends see the address of that listener and send their own requests to it.
    /// Tidegate reaches no back end over a WebSocket.
    transport: Transport | None = Choice { words: TRANSPORTS, reserved: WEBSOCKETS }, Means("the transport of its `listener`. A pool without `listener` has `udp` if a `[[listen]]` has `udp`, and otherwise the transport of the first `[[listen]]` without WebSockets");
    /// The listener from which Tidegate sends requests and probes to the back ends of the pool. It
    /// must not be shared. There is one exception: a listener for TCP or TLS may have `shared =
    /// "processes"`. The address of the listener is in the Record-Route that the back ends receive.
    /// Without this key, Tidegate uses the listener whose address the kernel would choose as
    /// source. If no listener has that address, Tidegate uses the listener at which the request
    /// arrived. Listeners that are not shared always take precedence. Set this key if the machine
    /// has policy routing or if its routes change.
    listener_name("listener"): String | None = Text::new("the name of a `[[listen]]`", word::name),
        Means("the listener at the address that the routing table selects when Tidegate starts");
    +
    /// The policy with its parameters.
    policy: Selection;
    /// The settings of health checks.
    health: Health;
    /// The settings of TLS.
    tls: PoolTls;
    /// The settings for learning the limits of each back end.
    learning: Learning;
    /// The index of the listener from which requests and probes go to the back ends, or `None` if
    /// the pool names no listener.
    listener: Option<usize>;
    /// The servers, at least one, in the order of the file. A domain stands for the servers that
    /// the DNS lists for it.
    backends: Vec<Backend>;
}

/// The selection of back ends for a new request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Selection {
    /// One back end, by a policy and its parameters.
    One(Values),
    /// All back ends, in the order of their `q`.
    Fork,
}

impl Selection {
    /// Returns the value of the key `policy` for this selection.
    pub fn name(self) -> &'static str {
        match self {
            Self::One(policy) => policy.entry().name,
            Self::Fork => "fork",
        }
    }
}

/// Parameters of the policy.
pub static POOL_PARAMS: Table = Table {
    header: "[pool.params]",
    name: "params",
    doc: "Parameters of the policy of the preceding pool.",
    has_free_keys: true,
    ..Table::EMPTY
};

table! {
    /// A server of the preceding pool.
    pub static BACKEND: "[[pool.backend]]" 1..=16_384, NewCalls, [] => Backend, BackendDraft;

    /// The IP address of the server, or a host name with a port, or a domain. An IP address without
    /// a port has port 5060, or 5061 if the pool uses TLS.
    ///
    /// A host name with a port: Tidegate resolves the name (`[resolver]`) to an address of the
    /// family of the `listener` of its pool, or of the `[[listen]]` tables with the `transport` of
    /// the pool. If they have both families, Tidegate asks for the family of the first one, and for
    /// the other if the name has no usable address of the first. Tidegate resolves the name when it
    /// starts, and again when the TTL of the answer expires (after at least 5 seconds and at most
    /// an hour). If there are several addresses, Tidegate uses the first one, and keeps it while
    /// the name still has it. A call stays at the address where the call began. A back end gets no
    /// calls until its name has an address. After that, the back end keeps this address until the
    /// name resolves to another one.
    ///
    /// A name without a port is a domain (RFC 3263). Each server in the SRV records of the domain
    /// becomes a back end with the keys of this table. The SRV weight of the server multiplies
    /// `weight`. The servers with the lowest SRV priority get the `priority` of this table, the
    /// servers with the next SRV priority get `priority` + 1, and so on. A domain without SRV
    /// records is one server at port 5060, or 5061 if the pool uses TLS.
    ///
    /// A server may be in several pools, such as one pool for calls and one for registrations. It
    /// is then one back end, with one health state and one count of calls. The keys in the first of
    /// these pools apply, and also the probes, `slow_start_s` and `[pool.limit]` of that pool.
    endpoint("uri"): Endpoint = Text {
        what: "a SIP URI of an IP address or a host name, such as `\"sip:192.0.2.10:5060\"`",
        parse: endpoint::server,
        write: |endpoint| format!("sip:{endpoint}"),
    }, Required;
    /// The name of the back end in metrics and commands. No two back ends may have the same name.
    own_name("name"): String | None = Text::new(
        "1 to 64 letters, digits and `_-.:`, such as `\"app-1\"`",
        word::name,
    ), Means("the address or host name of the back end, and its port");
    /// The share of calls that the back end gets, relative to the weights of the other back ends.
    /// The policy `fork` does not use this key.
    weight: u32 = Positive {
        most: 1000,
        zero: "to stop new calls, keep the weight and run `tidegate ctl drain NAME`; write an \
               integer from 1 to 1000",
    }, Default("1");
    /// Calls go to the back ends with the lowest number. A back end with a higher number gets calls
    /// only while no back end with a lower number can take a call. A back end can take no call
    /// while it is down, drained, paused, or at its limits. The policy `fork` does not use this key
    /// (see `q`).
    priority: u32 = Whole(0..=255), Default("0");
    /// The largest number of calls that the back end may have at the same time. A call counts from
    /// its INVITE. Calls with priority (`[overload.priority]`) may exceed this limit by 5 %, and by
    /// at least one call. Calls that were set up before a restart do not count.
    calls_max: u64 | None = Whole(1..=10_000_000), Means("no limit");
    /// The largest number of new calls and requests outside a dialog that all shards together send
    /// to the back end in a second. Up to a tenth of this number, and at least two requests, may
    /// arrive in a burst. Calls with priority may exceed the burst by as many calls as `cps_max`
    /// allows in a second.
    cps_max: f64 | None = Real(0.1..=1_000_000.0), Means("no limit");
    /// Networks from which the back end sends requests, besides its own address and port. Examples
    /// are other ports of its host, or the addresses of a cluster. Every host in these networks may
    /// send requests to outside addresses, as the back end itself may.
    sources: Vec<IpNet> = List {
        of: Text::new("an address or network, such as `\"192.0.2.10\"`", address::network),
        count_max: 64,
    }, Default("[]");
    /// With the policy `fork`: the order in which Tidegate tries back ends. The highest `q` comes
    /// first.
    q: f64 = Real(0.0..=1.0), Default("1");
    +
    /// The name of the back end in metrics and commands. No two back ends may have the same name.
    name: String;
}
