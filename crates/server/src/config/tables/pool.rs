//! `[[pool]]` and `[[pool.backend]]`.

use ipnet::IpNet;
use tidegate_balance::Policies;
use tidegate_balance::registry::POLICIES;
use tidegate_proxy::{Mode, TRIES_MAX as PROXY_TRIES_MAX};

use crate::config::address;
use crate::config::endpoint::{self, Endpoint};
use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Choice, List, NamedOr, Positive, Real, Text, Whole};
use crate::config::tables::health::HEALTH;
use crate::config::tables::limit::POOL_LIMIT;
use crate::config::word;

pub static POOL: Table = Table {
    header: "[[pool]]",
    name: "pool",
    count: 1..=256,
    doc: "A group of servers among which Tidegate distributes calls.",
    knobs: &[&POOL_NAME, &POLICY, &MODE, &FAILOVER_AFTER_MS, &TRIES_MAX, &BACKUP, &POOL_LISTENER],
    tables: &[&POOL_PARAMS, &BACKEND, &HEALTH, &POOL_LIMIT],
    has_free_keys: false,
    reserved: &[],
};

pub static POOL_NAME: Knob<Text<String>> = Knob {
    name: "name",
    shape: Text {
        what: "1 to 64 letters, digits and `_-.:`, such as `\"app\"`",
        parse: word::pool_name,
    },
    absent: Absent::Required,
    doc: "The name of the pool in routes, metrics and commands.",
};

/// Who gets a new request; `None` is a fork.
pub static POLICY: Knob<NamedOr<Policies>> = Knob {
    name: "policy",
    shape: NamedOr(&POLICIES, "fork"),
    absent: Absent::Default("\"tlwl\""),
    doc: "The policy that selects the back end for a new call. Each policy is described below, and \
          all of them use the weights. `fork` sends the call to all back ends, first to those with \
          the highest `q`, then to the next; the first to answer gets the call (RFC 3261 §16.6).",
};

/// Parameters of the policy.
pub static POOL_PARAMS: Table = Table {
    header: "[pool.params]",
    name: "params",
    count: 0..=1,
    doc: "Parameters of the policy of the preceding pool.",
    knobs: &[],
    tables: &[],
    has_free_keys: true,
    reserved: &[],
};

pub static MODE: Knob<Choice<Mode>> = Knob {
    name: "mode",
    shape: Choice {
        words: &[
            ("transaction", Mode::Transaction),
            ("stateless", Mode::Stateless),
            ("adaptive", Mode::Adaptive),
        ],
        reserved: &[],
    },
    absent: Absent::Default("\"transaction\""),
    doc: "`transaction`: Tidegate is a stateful proxy (RFC 3261 §16). It responds with 100 at \
          once, retransmits lost messages, absorbs retransmissions, and sends a request to another \
          back end if the first one rejects it with 503, is silent or is down. `stateless`: \
          Tidegate forwards without transactions (§16.11), for less work per message, and \
          remembers the back end of each call. `adaptive`: like `transaction` while the occupancy \
          of the processor is at most `stateful_max` (`[overload]`). Beyond that, Tidegate serves \
          as many new calls as necessary like `stateless`, from their first message to their last, \
          before it rejects any. It does the same with calls for which the transaction table has \
          no room.",
};

pub static FAILOVER_AFTER_MS: Knob<Whole> = Knob {
    name: "failover_after_ms",
    shape: Whole(100..=32_000),
    absent: Absent::Default("4_000"),
    doc: "Milliseconds after which a new request without any response goes to another back end; \
          with transactions only. 4,000 are three retransmissions over UDP (RFC 3261 §17.1.1.2).",
};

pub static TRIES_MAX: Knob<Whole> = Knob {
    name: "tries_max",
    shape: Whole(1..=PROXY_TRIES_MAX as u64),
    absent: Absent::Default("3"),
    doc: "The largest number of back ends that Tidegate tries for a new request, one after the \
          other; with transactions only. It skips back ends that have answered 503 within the last \
          second.",
};

pub static BACKUP: Knob<Text<String>> = Knob {
    name: "backup",
    shape: Text { what: "the name of a pool", parse: word::pool_name },
    absent: Absent::Means("none"),
    doc: "The pool that gets new calls while no back end of this pool can take them, because each \
          is unavailable or at its limits (`calls_max`, `cps_max`, `[pool.limit]`). With \
          transactions it also gets calls that all back ends of this pool have rejected.",
};

pub static POOL_LISTENER: Knob<Text<String>> = Knob {
    name: "listener",
    shape: Text { what: "the name of a `[[listen]]`", parse: word::name },
    absent: Absent::Means("by the routing table of this machine at the start"),
    doc: "The listener from which requests and probes go to the back ends of the pool, and which \
          they see in Record-Route. Without this key a request leaves from the listener with the \
          address from which the kernel would send; if no listener has that address, from the one \
          at which the request arrived. Needed with policy routing, or if routes change.",
};

pub static BACKEND: Table = Table {
    header: "[[pool.backend]]",
    name: "backend",
    count: 1..=16_384,
    doc: "A server of the preceding pool.",
    knobs: &[
        &URI,
        &BACKEND_NAME,
        &WEIGHT,
        &BACKEND_PRIORITY,
        &BACKEND_CALLS_MAX,
        &BACKEND_CPS_MAX,
        &BACKEND_SOURCES,
        &Q,
    ],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub static URI: Knob<Text<Endpoint>> = Knob {
    name: "uri",
    shape: Text {
        what: "a SIP URI of an IP address or a host name, such as `\"sip:192.0.2.10:5060\"`",
        parse: endpoint::server,
    },
    absent: Absent::Required,
    doc: "The address of the server, or a host name with a port. An address without a port has \
          port 5060. A name without a port is a domain, as in RFC 3263: each server that its SRV \
          records list becomes a back end, with the keys of this table. SRV weights multiply \
          `weight`. Servers of the best SRV priority have the `priority` of this table; each \
          further SRV priority gets the next number. A domain without SRV records is one server at \
          port 5060. A server may be in several pools, such as one for calls and one for \
          registrations: it is one back end, with one health and one count of calls, and the first \
          of these pools sets its keys. A host name is resolved (`[resolver]`) to an address of \
          the family of the first `[[listen]]`, at the start and again when the answer's time to \
          live is over, after 5 seconds to an hour. If there are several addresses, Tidegate uses \
          one: the present one while it is among them, else the first. A call stays at the address \
          where it began. A back end gets no calls until its name has an address; then it keeps \
          that address until the name resolves to another one.",
};

pub static BACKEND_NAME: Knob<Text<String>> = Knob {
    name: "name",
    shape: Text {
        what: "1 to 64 letters, digits and `_-.:`, such as `\"app-1\"`",
        parse: word::name,
    },
    absent: Absent::Means("its address or host name, and port"),
    doc: "The name of the back end in metrics and commands. No two back ends may have the same \
          name.",
};

pub static WEIGHT: Knob<Positive> = Knob {
    name: "weight",
    shape: Positive {
        most: 1000,
        zero: "to keep new calls away, leave the weight and run `tidegate ctl drain NAME`; write an \
               integer from 1 to 1000",
    },
    absent: Absent::Default("1"),
    doc: "The share of calls that it gets, relative to the weights of the other back ends.",
};

pub static BACKEND_PRIORITY: Knob<Whole> = Knob {
    name: "priority",
    shape: Whole(0..=255),
    absent: Absent::Default("0"),
    doc: "Calls go to the back ends with the lowest number. Those with a higher number get calls \
          only while no back end with a lower number can take them, because each is down, drained, \
          paused, or at its limits.",
};

pub static BACKEND_CALLS_MAX: Knob<Whole> = Knob {
    name: "calls_max",
    shape: Whole(1..=10_000_000),
    absent: Absent::Means("any number"),
    doc: "Calls that the back end may have at the same time, counted from their INVITE. Calls with \
          priority (`[overload.priority]`) may exceed this by a twentieth, and by one at least. \
          Calls that were set up before a restart do not count.",
};

pub static BACKEND_CPS_MAX: Knob<Real> = Knob {
    name: "cps_max",
    shape: Real(0.1..=1_000_000.0),
    absent: Absent::Means("any number"),
    doc: "New calls and requests outside a dialog that the back end gets in a second, from all \
          shards together. A burst may have a tenth of this number, and two requests at least; \
          calls with priority may use the amount of one second more.",
};

pub static BACKEND_SOURCES: Knob<List<Text<IpNet>>> = Knob {
    name: "sources",
    shape: List {
        of: Text {
            what: "an address or network, such as `\"192.0.2.10\"`",
            parse: address::network,
        },
        count_max: 64,
    },
    absent: Absent::Default("[]"),
    doc: "Networks from which the back end sends requests, besides its own address and port: other \
          ports of its host, or the addresses of a cluster. Each sender there may send requests to \
          outside addresses, as the back end itself may.",
};

pub static Q: Knob<Real> = Knob {
    name: "q",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("1"),
    doc: "With the policy `fork`: the order in which back ends are tried, the highest `q` first.",
};
