//! `[[link]]` and `[[fault]]`: the network between callers, servers and answerers, and its faults.

use tidegate_server::config::schema::{
    Absent, Choice, Flag, Knob, Real, Table, Text, Whole, Wrong,
};

pub(in crate::scenario) static LINK: Table = Table {
    header: "[[link]]",
    name: "link",
    count: 0..=256,
    doc: "Properties of the network between two nodes. If several links apply to a packet, the \
          last one in the file counts. Without a link, packets arrive at once. Links exist only in \
          simulated time. On real sockets there is only the network of the machine.",
    knobs: || {
        vec![
            &FROM,
            &TO,
            &DELAY_MS,
            &JITTER_MS,
            &LOSS,
            &REORDER,
            &DUPLICATE,
            &BANDWIDTH_MBPS,
            &QUEUE_BYTES,
        ]
    },
    ..Table::EMPTY
};

const PARTY: Text<String> = Text::new("the name of a node, `\"callers\"` or `\"answerers\"`", any);

pub(in crate::scenario) static FROM: Knob<Text<String>> = Knob {
    name: "from",
    shape: PARTY,
    absent: Absent::Means("from all nodes"),
    doc: "The sender: a node, `callers` or `answerers`.",
};

pub(in crate::scenario) static TO: Knob<Text<String>> = Knob {
    name: "to",
    shape: PARTY,
    absent: Absent::Means("to all nodes"),
    doc: "The receiver. The opposite direction is another link.",
};

pub(in crate::scenario) static DELAY_MS: Knob<Real> = Knob {
    name: "delay_ms",
    shape: Real(0.0..=60_000.0),
    absent: Absent::Default("0"),
    doc: "Delay of every packet.",
};

pub(in crate::scenario) static JITTER_MS: Knob<Real> = Knob {
    name: "jitter_ms",
    shape: Real(0.0..=60_000.0),
    absent: Absent::Default("0"),
    doc: "Longest additional delay. The additional delay of each packet is random, uniformly \
          distributed between 0 and this value.",
};

pub(in crate::scenario) static LOSS: Knob<Real> = Knob {
    name: "loss",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("0"),
    doc: "Share of the packets that are lost.",
};

pub(in crate::scenario) static FAILS: Knob<Real> = Knob {
    name: "fails",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("0"),
    doc: "Share of the queries for a host name that fail.",
};

pub(in crate::scenario) static REORDER: Knob<Real> = Knob {
    name: "reorder",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("0"),
    doc: "Share of the packets that are not delayed, and so overtake others.",
};

pub(in crate::scenario) static DUPLICATE: Knob<Real> = Knob {
    name: "duplicate",
    shape: Real(0.0..=1.0),
    absent: Absent::Default("0"),
    doc: "Share of the packets that arrive twice.",
};

pub(in crate::scenario) static BANDWIDTH_MBPS: Knob<Real> = Knob {
    name: "bandwidth_mbps",
    shape: Real(0.001..=1_000_000.0),
    absent: Absent::Means("no limit"),
    doc: "Bandwidth of the link in megabits a second. The headers of IP and UDP count.",
};

pub(in crate::scenario) static QUEUE_BYTES: Knob<Whole> = Knob {
    name: "queue_bytes",
    shape: Whole(1500..=1_000_000_000),
    absent: Absent::Default("262_144"),
    doc: "Length of the queue of a link with limited bandwidth, in bytes. A packet that does \
          not fit is lost.",
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenario) enum Kind {
    Crash,
    Stall,
    Partition,
    Link,
    Resolver,
}

pub(in crate::scenario) static FAULT: Table = Table {
    header: "[[fault]]",
    name: "fault",
    count: 0..=256,
    doc: "A fault for a limited time. On real sockets, only `crash` and `stall` are possible.",
    knobs: || {
        vec![
            &KIND,
            &AT_S,
            &FOR_S,
            &OF_NODE,
            &SILENT,
            &FROM,
            &TO,
            &DELAY_MS,
            &JITTER_MS,
            &LOSS,
            &FAILS,
            &REORDER,
            &DUPLICATE,
            &BANDWIDTH_MBPS,
            &QUEUE_BYTES,
        ]
    },
    ..Table::EMPTY
};

pub(in crate::scenario) static KIND: Knob<Choice<Kind>> = Knob {
    name: "kind",
    shape: Choice {
        words: &[
            ("crash", Kind::Crash),
            ("stall", Kind::Stall),
            ("partition", Kind::Partition),
            ("link", Kind::Link),
            ("resolver", Kind::Resolver),
        ],
        reserved: &[],
    },
    absent: Absent::Required,
    doc: "`crash`: `node` loses its state and starts again when the fault ends. `stall`: `node` \
          gets no processor time. If the costs of the node are emulated, the emulated processor \
          continues to work, and the node sends all results when the fault ends. `partition`: no \
          packets pass between `from` and `to`, in both directions. This kind needs both keys. \
          `link`: the keys of a `[[link]]`, such as `delay_ms` and `loss`, apply to packets from \
          `from` to `to`. `resolver`: a query for a host name is answered after `delay_ms` and a \
          random time of up to `jitter_ms`. `loss` is the share of queries that get no answer, and \
          `fails` is the share of queries that fail. In a scenario with a `resolver` fault, \
          servers know their next hops by host names. Each answer is valid for 10 s. Outside the \
          time of the fault, queries are answered at once.",
};

pub(in crate::scenario) static AT_S: Knob<Real> = Knob {
    name: "at_s",
    shape: Real(0.0..=90_000.0),
    absent: Absent::Required,
    doc: "Start of the fault, in seconds after the start of the warm-up.",
};

pub(in crate::scenario) static FOR_S: Knob<Real> = Knob {
    name: "for_s",
    shape: Real(0.001..=90_000.0),
    absent: Absent::Required,
    doc: "Duration of the fault, in seconds.",
};

pub(in crate::scenario) static OF_NODE: Knob<Text<String>> = Knob {
    name: "node",
    shape: Text::new("the name of a node", any),
    absent: Absent::Means("the only server"),
    doc: "The server that crashes or stalls.",
};

pub(in crate::scenario) static SILENT: Knob<Flag> = Knob {
    name: "silent",
    shape: Flag,
    absent: Absent::Default("false"),
    doc: "Whether the machine of a crashed server is down too. `true`: the machine is down, and \
          senders get no ICMP errors. This works only in simulated time. `false`: only the ports \
          of the server are closed, and senders get ICMP errors.",
};

fn any(text: &str) -> Result<String, Wrong> {
    Ok(text.to_owned())
}
