//! `[[pool]]` and `[[pool.backend]]`.

use std::net::SocketAddr;

use tidegate_balance::Policy;
use tidegate_proxy::{Mode, TRIES_MAX as PROXY_TRIES_MAX};

use crate::config::address;
use crate::config::knob::{Absent, Knob, Table};
use crate::config::pool::Selection;
use crate::config::shape::{Choice, Real, Text, Whole};
use crate::config::tables::health::HEALTH;
use crate::config::word;

pub static POOL: Table = Table {
    header: "[[pool]]",
    name: "pool",
    count: 1..=256,
    doc: "Servers among which calls are divided.",
    knobs: &[&POOL_NAME, &POLICY, &MODE, &FAILOVER_AFTER_MS, &TRIES_MAX, &BACKUP],
    tables: &[&BACKEND, &HEALTH],
    has_free_keys: false,
    reserved: &["limit"],
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

pub static POLICY: Knob<Choice<Selection>> = Knob {
    name: "policy",
    shape: Choice {
        words: &[
            (Policy::Rr.name(), Selection::One(Policy::Rr)),
            (Policy::Hash.name(), Selection::One(Policy::Hash)),
            (Policy::Cjsq.name(), Selection::One(Policy::Cjsq)),
            (Policy::Tlwl.name(), Selection::One(Policy::Tlwl)),
            ("fork", Selection::Fork),
        ],
        reserved: &[],
    },
    absent: Absent::Default("\"tlwl\""),
    doc: "Who gets the next call: `rr` each in turn; `hash` by the Call-ID; `cjsq` the one with \
          the fewest open calls; `tlwl` the one with the least work in open transactions. All \
          heed the weights. `fork` calls all of them, those of the highest `q` at once and then \
          those of the next; who answers first has the call (RFC 3261 §16.6).",
};

pub static MODE: Knob<Choice<Mode>> = Knob {
    name: "mode",
    shape: Choice {
        words: &[("transaction", Mode::Transaction), ("stateless", Mode::Stateless)],
        reserved: &[],
    },
    absent: Absent::Default("\"transaction\""),
    doc: "`transaction` keeps transactions of what it forwards (RFC 3261 §16): it answers 100 at \
          once, repeats what is lost, absorbs repetitions, and sends a request on to another \
          back end where one refuses it with 503, is silent or is gone. `stateless` forwards \
          without transactions of its own (§16.11), for less work a message, and holds the \
          choice of a back end for each call.",
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
    doc: "The pool that stands in as long as none of its back ends may be given new calls. With \
          transactions it also gets what all of them have refused.",
};

pub static BACKEND: Table = Table {
    header: "[[pool.backend]]",
    name: "backend",
    count: 1..=1024,
    doc: "A server of the pool above it.",
    knobs: &[&URI, &BACKEND_NAME, &WEIGHT, &BACKEND_PRIORITY, &Q],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub static URI: Knob<Text<SocketAddr>> = Knob {
    name: "uri",
    shape: Text {
        what: "a SIP URI of an IP address, such as `\"sip:192.0.2.10:5060\"`",
        parse: address::server,
    },
    absent: Absent::Required,
    doc: "Where it is. Without a port, 5060. A server belongs to one pool only, because its \
          open calls are counted there.",
};

pub static BACKEND_NAME: Knob<Text<String>> = Knob {
    name: "name",
    shape: Text {
        what: "1 to 64 letters, digits and `_-.:`, such as `\"app-1\"`",
        parse: word::name,
    },
    absent: Absent::Means("its address and port"),
    doc: "Its name in metrics and commands, different from every other back end's.",
};

pub static WEIGHT: Knob<Whole> = Knob {
    name: "weight",
    shape: Whole(1..=1000),
    absent: Absent::Default("1"),
    doc: "Its share of the calls in proportion to the others' weights.",
};

pub static BACKEND_PRIORITY: Knob<Whole> = Knob {
    name: "priority",
    shape: Whole(0..=255),
    absent: Absent::Default("0"),
    doc: "Calls go to the back ends of the lowest number; those of the next stand in when none of \
          the better ones may be given any: they are down, drained, or have asked for a pause.",
};

pub static Q: Knob<Real> = Knob {
    name: "q",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("1"),
    doc: "With the policy `fork`: when its turn comes. The highest are called first.",
};
