//! `[[pool]]` and `[[pool.backend]]`.

use ipnet::IpNet;
use tidegate_balance::Entry;
use tidegate_balance::registry::POLICIES;
use tidegate_proxy::{Mode, TRIES_MAX as PROXY_TRIES_MAX};

use crate::config::address;
use crate::config::endpoint::{self, Endpoint};
use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Choice, List, Positive, Real, Text, Whole};
use crate::config::tables::health::HEALTH;
use crate::config::tables::limit::POOL_LIMIT;
use crate::config::word;

pub static POOL: Table = Table {
    header: "[[pool]]",
    name: "pool",
    count: 1..=256,
    doc: "Servers among which calls are divided.",
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
    doc: "Its name in routes, metrics and commands.",
};

static POLICY_WORDS: [(&str, Option<&Entry>); POLICIES.len() + 1] = {
    let mut words = [("fork", None); POLICIES.len() + 1];
    let mut i = 0;
    while i < POLICIES.len() {
        words[i] = (POLICIES[i].name, Some(POLICIES[i]));
        i += 1;
    }
    words
};

/// Who gets a new request; `None` is a fork.
pub static POLICY: Knob<Choice<Option<&'static Entry>>> = Knob {
    name: "policy",
    shape: Choice { words: &POLICY_WORDS, reserved: &[] },
    absent: Absent::Default("\"tlwl\""),
    doc: "Who gets the next call; each policy is described below, and all heed the weights. \
          `fork` calls all back ends, those of the highest `q` at once and then \
          those of the next; who answers first has the call (RFC 3261 §16.6).",
};

/// Parameters of the policy.
pub static POOL_PARAMS: Table = Table {
    header: "[pool.params]",
    name: "params",
    count: 0..=1,
    doc: "Parameters of the policy of the pool above it.",
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
    doc: "`transaction` keeps transactions of what it forwards (RFC 3261 §16): it answers 100 at \
          once, repeats what is lost, absorbs repetitions, and sends a request on to another \
          back end where one refuses it with 503, is silent or is gone. `stateless` forwards \
          without transactions of its own (§16.11), for less work a message, and holds the \
          choice of a back end for each call. `adaptive` is `transaction` as long as the processor \
          is occupied no further than `stateful_max` (`[overload]`); beyond it as many new calls \
          as must be are served as with `stateless`, each from its first message to its last, \
          before any is refused. So are those for which the table of transactions has no room.",
};

pub static FAILOVER_AFTER_MS: Knob<Whole> = Knob {
    name: "failover_after_ms",
    shape: Whole(100..=32_000),
    absent: Absent::Default("4_000"),
    doc: "Milliseconds after which a back end that has answered nothing to a new request is \
          given up for another; with transactions only. 4,000 are three repetitions over UDP \
          (RFC 3261 §17.1.1.2).",
};

pub static TRIES_MAX: Knob<Whole> = Knob {
    name: "tries_max",
    shape: Whole(1..=PROXY_TRIES_MAX as u64),
    absent: Absent::Default("3"),
    doc: "Back ends that a new request is sent to one after the other, at the most; with \
          transactions only. One that has answered 503 within the last second is passed over.",
};

pub static BACKUP: Knob<Text<String>> = Knob {
    name: "backup",
    shape: Text { what: "the name of a pool", parse: word::pool_name },
    absent: Absent::Means("none"),
    doc: "The pool that stands in as long as none of its back ends may be given new calls, or has \
          headroom for them (`calls_max`, `cps_max`, `[pool.limit]`). With \
          transactions it also gets what all of them have refused.",
};

pub static POOL_LISTENER: Knob<Text<String>> = Knob {
    name: "listener",
    shape: Text { what: "the name of a `[[listen]]`", parse: word::name },
    absent: Absent::Means("by the routing table of this machine, as it was at the start"),
    doc: "The listener from which requests and probes go to the back ends of the pool, and which they \
          see in Record-Route. Without it a request leaves from the listener with the address from \
          which the kernel would send; if no listener has it, from the one at which the request \
          arrived. Needed with policy routing, or where routes change.",
};

pub static BACKEND: Table = Table {
    header: "[[pool.backend]]",
    name: "backend",
    count: 1..=16_384,
    doc: "A server of the pool above it.",
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
    doc: "Its address, or a host name with a port. An address without a port has port 5060. A name \
          without a port is a domain, as in RFC 3263: each server that its SRV records list becomes a \
          back end, with the keys of this table. SRV weights multiply `weight`; servers of the \
          lowest SRV priority have the `priority` of this table, those of each further one the \
          next number. A domain without SRV records is one server at port 5060. A server may be in several pools, such as one for \
          calls and one for registrations. It is one back end, with one health and one count of \
          calls; the first of these pools describes it. A host name is resolved (`[resolver]`) to an address of the \
          family of the first `[[listen]]`, at the start, and again when the answer's time to live \
          is over, after 5 seconds to an hour. Of several addresses one is used: the present one \
          while it is among them, else the first. Calls stay at the address where they are. Until \
          there is an address it gets no calls; once there is one it is used until another is \
          found.",
};

pub static BACKEND_NAME: Knob<Text<String>> = Knob {
    name: "name",
    shape: Text {
        what: "1 to 64 letters, digits and `_-.:`, such as `\"app-1\"`",
        parse: word::name,
    },
    absent: Absent::Means("its address or host name, and port"),
    doc: "Its name in metrics and commands, different from every other back end's.",
};

pub static WEIGHT: Knob<Positive> = Knob {
    name: "weight",
    shape: Positive {
        most: 1000,
        zero: "to keep new calls away, leave the weight and run `tidegate ctl drain NAME`; write an \
               integer from 1 to 1000",
    },
    absent: Absent::Default("1"),
    doc: "Its share of the calls in proportion to the others' weights.",
};

pub static BACKEND_PRIORITY: Knob<Whole> = Knob {
    name: "priority",
    shape: Whole(0..=255),
    absent: Absent::Default("0"),
    doc: "Calls go to the back ends of the lowest number; those of the next stand in when none of \
          the better ones may be given any: they are down, drained, have asked for a pause, or are \
          at their limits.",
};

pub static BACKEND_CALLS_MAX: Knob<Whole> = Knob {
    name: "calls_max",
    shape: Whole(1..=10_000_000),
    absent: Absent::Means("any number"),
    doc: "Calls that it holds at once, from their INVITE on. Calls with priority \
          (`[overload.priority]`) find a twentieth more, and one at the least. What was set up \
          before a restart is not counted.",
};

pub static BACKEND_CPS_MAX: Knob<Real> = Knob {
    name: "cps_max",
    shape: Real(0.1..=1_000_000.0),
    absent: Absent::Means("any number"),
    doc: "Requests a second that it is given, of those that begin a call or stand alone; by all \
          shards together. A tenth of a second's worth may come at once, and two at the least; calls \
          with priority find a second's worth more.",
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
    doc: "Networks from which it sends requests, besides its own address and port: other ports of its \
          host, or the addresses of a cluster. Each sender there may reach addresses outside, as the \
          back end itself may.",
};

pub static Q: Knob<Real> = Knob {
    name: "q",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("1"),
    doc: "With the policy `fork`: when its turn comes. The highest are called first.",
};
