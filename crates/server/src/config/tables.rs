//! Every table and every key of the configuration file.

mod emulate;
mod health;
mod limit;
mod listen;
mod overload;
mod pool;
mod resolver;
mod sources;
mod user;

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_proxy::{SHARDS_MAX, Senders};

use super::address;
use super::knob::{Absent, Knob, Table};
use super::shape::{Flag, List, Text, Whole};
use super::word::{self, Destination};

pub use emulate::EMULATE;
pub(super) use emulate::{
    OFFER_US, RECEIVE_US, REFUSE_US, SERVE_STATELESS_US, SERVE_US, SOCKET_MAX,
};
pub(super) use health::{
    ACCEPT, EJECT_MAX, ERROR_LIMIT, FALL, HEALTH, JITTER, PROBE, PROBE_FROM, PROBE_INTERVAL_S,
    PROBE_TIMEOUT_MS, RETRY_AFTER_MAX_S, RISE, SLOW_START_S,
};
pub use limit::POOL_LIMIT;
pub(super) use limit::{DECREASE, INCREASE, LEARN, LEARN_INTERVAL_MS, RATE_MIN};
pub use listen::Sharing;
pub(super) use listen::{
    ADVERTISE, LISTEN, LISTEN_ADDRESS, LISTEN_NAME, RECEIVE_BUFFER, SHARED, TRANSPORT, TRUST,
    TRUST_IDENTITY,
};
pub use overload::OVERLOAD;
pub(super) use overload::{
    BURST, CHECK, CLASSES, Classes, DECIDE, DISPOSAL, INTERVAL_MS, LAW, MEMORY_MAX, OCCUPANCY, PAD,
    PARAMS, QUEUE, RATE_CPS, RATE_MIN_CPS, REFUSING_MAX, REINVITES, RETRY_AFTER, SCALED,
    SESSION_WEIGHT, SESSIONS, SHADOW, SHADOW_LAW, SHADOW_PARAMS, SHED, SHED_BY, STATEFUL_MAX,
    STICKY, THROTTLE,
};
pub(super) use pool::{
    BACKEND, BACKEND_CALLS_MAX, BACKEND_CPS_MAX, BACKEND_NAME, BACKEND_PRIORITY, BACKEND_SOURCES,
    BACKUP, FAILOVER_AFTER_MS, MODE, POOL, POOL_LISTENER, POOL_NAME, Q, TRIES_MAX, URI, WEIGHT,
};
pub use pool::{POLICY, POOL_PARAMS};
pub(super) use resolver::{RESOLVER, RESOLVER_SERVERS};
pub(super) use sources::{
    BAN_ABOVE_CPS, BAN_AFTER_S, BAN_S, BANS_MAX, CAP_CPS, EMERGENCY, FAIR, LIMIT, LIMIT_BAN_S,
    LIMIT_BURST, LIMIT_CPS, LIMIT_FROM, LIMIT_PER, LIMIT_THEN, NEVER_BAN, PRIORITY, PRIORITY_FROM,
    RESOURCE_PRIORITY, SOURCE_WEIGHT, SOURCE_WEIGHT_WEIGHT, SOURCES, TABLE_MAX, Then, WEIGHT_FROM,
};

pub(super) use user::{AOR, CONTACT, USER};

pub(super) static ROOT: Table = Table {
    header: "",
    name: "",
    count: 0..=1,
    doc: "",
    knobs: &[],
    tables: &[&SERVER, &ADMIN, &RESOLVER, &LISTEN, &POOL, &ROUTE, &USER, &OVERLOAD, &EMULATE],
    has_free_keys: false,
    reserved: &[],
};

pub(super) static SERVER: Table = Table {
    header: "[server]",
    name: "server",
    count: 0..=1,
    doc: "The process as a whole. Each limit is for the whole process, whatever the number of \
          shards.",
    knobs: &[
        &SHARDS,
        &STATE_DIR,
        &KEY_ROTATE_H,
        &KEY_SETTLE_S,
        &DRAIN_SECONDS,
        &CALLS_MAX,
        &TRANSACTIONS_MAX,
        &MESSAGE_MEMORY_MAX_MB,
        &AMPLIFICATION_MAX,
        &CALL_IDLE_SECONDS,
        &REMOVED_BACKEND_SECONDS,
        &QUEUE_MAX,
        &BACKEND_PAUSE_SECONDS,
        &COALESCE_US,
        &TIMER_SLACK_US,
        &GSO,
        &GSO_PADDING,
        &SERVER_NAME,
    ],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(super) static SHARDS: Knob<Whole> = Knob {
    name: "shards",
    shape: Whole(1..=SHARDS_MAX as u64),
    absent: Absent::Default("1"),
    doc: "Threads that handle messages. One thread handles all messages of a call. More threads \
          than cores cost processor time and gain nothing.",
};

pub(super) static STATE_DIR: Knob<Text<PathBuf>> = Knob {
    name: "state_dir",
    shape: Text {
        what: "an absolute path, such as `\"/var/lib/tidegate\"`",
        parse: word::directory,
    },
    absent: Absent::Means(
        "`$STATE_DIRECTORY` as systemd sets it, else `$XDG_STATE_HOME/tidegate`, else \
         `/var/lib/tidegate` for root and `~/.local/state/tidegate` for others",
    ),
    doc: "Directory of the files that must survive a restart. The keys in `route.key` let requests \
          within a dialog find their back end after a restart. Instances behind one address need \
          the same keys; instances on one machine may share the directory.",
};

pub(super) static KEY_ROTATE_H: Knob<Whole> = Knob {
    name: "key_rotate_h",
    shape: Whole(0..=8760),
    absent: Absent::Default("0"),
    doc: "Hours from one key for the tokens in Record-Route to the next. 0: a new key is made only \
          when an operator asks for it (`tidegate ctl rotate`). Tidegate keeps at most eight keys \
          and drops none within a day of its last use, so the shortest interval is 4 hours, or \
          longer if `key_settle_s` is several hours. Where instances have copies of the file, let \
          only one of them rotate.",
};

pub(super) static KEY_SETTLE_S: Knob<Whole> = Knob {
    name: "key_settle_s",
    shape: Whole(10..=604_800),
    absent: Absent::Default("60"),
    doc: "Seconds from the creation of a key until tokens are made with it. By then every instance \
          must have the key. Instances that share the file read it within 2 seconds; if you copy \
          the file, copy it within this time. All instances need the same value.",
};

pub(super) static DRAIN_SECONDS: Knob<Whole> = Knob {
    name: "drain_seconds",
    shape: Whole(0..=3600),
    absent: Absent::Default("35"),
    doc: "Seconds for which a stopping process continues to serve the calls that are being set up, \
          while `/readyz` reports 503. The default covers the 32 seconds of a transaction (RFC \
          3261 §17.1.1.2, 64·T1). A second signal ends the wait.",
};

pub(super) static CALLS_MAX: Knob<Whole> = Knob {
    name: "calls_max",
    shape: Whole(1000..=10_000_000),
    absent: Absent::Default("1_000_000"),
    doc: "Entries in the call table. A call has an entry from its INVITE until 32 seconds after \
          its end, so 1,000 new calls a second of three minutes each need 212,000. A request \
          outside any call (REGISTER, OPTIONS, MESSAGE) has an entry for 32 seconds.",
};

pub(super) static TRANSACTIONS_MAX: Knob<Whole> = Knob {
    name: "transactions_max",
    shape: Whole(1000..=10_000_000),
    absent: Absent::Default("1_000_000"),
    doc: "Requests with a transaction, in pools that keep transactions. Each counts until 32 \
          seconds after its final response (RFC 3261 §17.2), so 1,000 calls a second with a BYE \
          each need 64,000. Tidegate rejects requests beyond this number with 503.",
};

pub(super) static MESSAGE_MEMORY_MAX_MB: Knob<Whole> = Knob {
    name: "message_memory_max_mb",
    shape: Whole(16..=1_048_576),
    absent: Absent::Means(
        "a quarter of the machine's memory, or of the limit of its control group if that is lower",
    ),
    doc: "Megabytes of memory for stored messages: three quarters for transactions (about 3 KiB \
          each, more for long messages), one quarter for messages longer than 2 KiB that wait for \
          service.",
};

pub(super) static AMPLIFICATION_MAX: Knob<Whole> = Knob {
    name: "amplification_max",
    shape: Whole(0..=1000),
    absent: Absent::Default("3"),
    doc: "Limit for the responses to an address that has never acknowledged a response and so may \
          be forged: their bytes, retransmissions included, as a multiple of the bytes of the \
          request (3 in RFC 9000 §8.1). The first response of each kind and one retransmission of \
          the final response are always sent, and padding (`gso_padding`) does not count. 0: no \
          limit.",
};

pub(super) static CALL_IDLE_SECONDS: Knob<Whole> = Knob {
    name: "call_idle_seconds",
    shape: Whole(60..=86_400),
    absent: Absent::Default("10_800"),
    doc: "Seconds without a request after which Tidegate considers an answered call ended. A call \
          with a session timer (RFC 4028) is kept until 32 seconds after its session has expired \
          instead. Later requests of the call still find their back end by the token in their \
          Route.",
};

pub(super) static REMOVED_BACKEND_SECONDS: Knob<Whole> = Knob {
    name: "removed_backend_seconds",
    shape: Whole(0..=604_800),
    absent: Absent::Default("10_800"),
    doc: "Seconds for which requests within a dialog still reach a back end that was removed from \
          the configuration. This holds after a restart too: `state_dir` keeps the address. A back \
          end with a host name is forgotten at the restart.",
};

pub(super) static QUEUE_MAX: Knob<Whole> = Knob {
    name: "queue_max",
    // Divided among the shards, it must leave at least one for each.
    shape: Whole(SHARDS_MAX as u64..=1_000_000),
    absent: Absent::Default("4096"),
    doc: "Messages that may wait for service in each queue (responses, requests of calls in \
          progress, new INVITEs, registrations, other requests), or in the single queue of \
          `[overload] queue = \"fifo\"`. A queue should be so short that no message waits for 500 \
          ms, when its sender retransmits it (RFC 3261 §17.1.1.1, T1).",
};

pub(super) static BACKEND_PAUSE_SECONDS: Knob<Whole> = Knob {
    name: "backend_pause_seconds",
    shape: Whole(0..=3600),
    absent: Absent::Default("5"),
    doc: "Seconds for which a back end gets no new calls after a message could not be delivered to \
          it.",
};

pub(super) static TIMER_SLACK_US: Knob<Whole> = Knob {
    name: "timer_slack_us",
    shape: Whole(0..=50000),
    absent: Absent::Default("10000"),
    doc: "Microseconds that a SIP timer may fire late if other timers have fired just before it. \
          Timers that fire together cost less processor time. 0: each timer fires at its time. \
          Ticks of overload control are never late.",
};

pub(super) static COALESCE_US: Knob<Whole> = Knob {
    name: "coalesce_us",
    shape: Whole(0..=2000),
    absent: Absent::Default("500"),
    doc: "Microseconds that Tidegate may add to the set-up delay of a call, in the median, so that \
          a shard wakes up once for several messages. The shard pauses before it reads the next \
          messages. The pause is as long as 16 messages take to arrive, and at most this. If fewer \
          than four messages arrive in this time, the shard does not pause. 0: no pauses.",
};

pub(super) static GSO: Knob<Flag> = Knob {
    name: "gso",
    shape: Flag,
    absent: Absent::Default("true"),
    doc: "Whether Tidegate passes messages of the same length to the same destination to the \
          kernel as one packet, which the kernel or the network card splits (`UDP_SEGMENT`). This \
          costs less processor time for each message. A capture on this machine may show one \
          packet; with `false` every message is sent by itself.",
};

pub(super) static GSO_PADDING: Knob<Whole> = Knob {
    name: "gso_padding",
    shape: Whole(0..=64),
    absent: Absent::Default("32"),
    doc: "Bytes of white space that Tidegate may add to a message (with `gso`), so that it has the \
          same length as other messages to the same destination and can be sent together with \
          them. The spaces follow the colon of the first header field, where they have no meaning \
          (RFC 3261 §7.3.1). Only messages that are sent together get them. 0: no padding.",
};

pub(super) static SERVER_NAME: Knob<Text<String>> = Knob {
    name: "name",
    shape: Text {
        what: "up to 64 printable ASCII characters, such as `\"edge\"`, or `\"\"`",
        parse: word::server_name,
    },
    absent: Absent::Means("`Tidegate/` and the version"),
    doc: "The value of the Server header in responses that Tidegate itself generates (RFC 3261 \
          §20.35), and of the User-Agent header in its probes. `\"\"` leaves both headers out.",
};

pub(super) static ADMIN: Table = Table {
    header: "[admin]",
    name: "admin",
    count: 0..=1,
    doc: "The HTTP interface for operators: `/healthz`, `/readyz`, `/metrics` (OpenMetrics text), \
          and as JSON `/status`, `/backends`, `/overload` (the law and limits in force; PUT \
          changes them), `/laws`, `/policies`, `/rejections`, `/calls`, `/bans` and `/keys`. POST \
          to `/reload` reloads the configuration. The interface has no password.",
    knobs: &[&ADMIN_ADDRESS, &ADMIN_HOSTS, &REFUSALS_PER_SECOND, &REFUSALS_KEPT],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(super) static ADMIN_ADDRESS: Knob<Text<Option<SocketAddr>>> = Knob {
    name: "address",
    shape: Text {
        what: "an IP address and port, such as `\"127.0.0.1:8060\"`, or `\"off\"`",
        parse: address::listening_or_off,
    },
    absent: Absent::Default("\"127.0.0.1:8060\""),
    doc: "The address to listen on. Port 0 takes a free port.",
};

pub(super) static ADMIN_HOSTS: Knob<List<Text<String>>> = Knob {
    name: "hosts",
    shape: List {
        of: Text { what: "a host name, such as `\"sip1.example.com\"`", parse: word::host },
        count_max: 16,
    },
    absent: Absent::Default("[]"),
    doc: "Host names by which clients may address this interface, besides `localhost` and any IP \
          address. A request with another name in its Host header is rejected. Otherwise a web \
          page could point its own host name at this address, and read or change everything \
          through the browser of an operator (DNS rebinding).",
};

pub(super) static REFUSALS_PER_SECOND: Knob<Whole> = Knob {
    name: "refusals_per_second",
    shape: Whole(0..=1000),
    absent: Absent::Default("5"),
    doc: "Rejections that each shard keeps for `/rejections` in a second, for each reason.",
};

pub(super) static REFUSALS_KEPT: Knob<Whole> = Knob {
    name: "refusals_kept",
    shape: Whole(1..=100_000),
    absent: Absent::Default("256"),
    doc: "Rejections that are kept, divided among the shards. A new one replaces the oldest.",
};

pub(super) static ROUTE: Table = Table {
    header: "[[route]]",
    name: "route",
    count: 0..=1024,
    doc: "Where a request outside any dialog goes: the first route that matches decides. A request \
          that matches no route may go to the address in its Request-URI if it comes from a back \
          end or a trusted peer; any other is rejected. Without any route, all requests that are \
          not from a back end go to the only pool; with several pools at least one route is \
          needed.",
    knobs: &[&FROM, &METHOD, &DOMAIN, &TO],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub(super) static FROM: Knob<Text<Senders>> = Knob {
    name: "from",
    shape: Text {
        what: "`\"any\"`, `\"trusted\"`, `\"pool\"` or a network such as `\"192.0.2.0/24\"`",
        parse: word::source,
    },
    absent: Absent::Default("\"any\""),
    doc: "Who sent the request. `any`: anyone but a back end. `trusted`: a peer in the listener's \
          `trust`, or a back end. `pool`: a back end.",
};

pub(super) static METHOD: Knob<List<Text<String>>> = Knob {
    name: "method",
    shape: List {
        of: Text { what: "a method, such as `\"INVITE\"`", parse: word::method },
        count_max: 64,
    },
    absent: Absent::Means("every method"),
    doc: "The method of the request is one of these.",
};

pub(super) static DOMAIN: Knob<List<Text<String>>> = Knob {
    name: "domain",
    shape: List {
        of: Text { what: "a host name or address, such as `\"example.com\"`", parse: word::domain },
        count_max: 1024,
    },
    absent: Absent::Means("every name, and the addresses of Tidegate itself"),
    doc: "The host of the Request-URI is one of these.",
};

pub(super) static TO: Knob<Text<Destination>> = Knob {
    name: "to",
    shape: Text {
        what: "the name of a pool, `\"users\"` or `\"request-uri\"`",
        parse: word::destination,
    },
    absent: Absent::Required,
    doc: "The name of a pool: a back end of it. `users`: the contacts of the `[[user]]` that the \
          Request-URI names. `request-uri`: the target that the request itself names, which is \
          allowed only to back ends and trusted peers.",
};

#[cfg(test)]
mod tests;
