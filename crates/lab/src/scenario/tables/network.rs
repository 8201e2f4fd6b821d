//! `[[link]]` and `[[fault]]`: the network between callers, servers and answerers, and its faults.

use tidegate_server::config::schema::{Choice, Flag, Real, Table, Text, Whole};

use super::any;

pub(in crate::scenario) static LINK: Table = Table {
    header: "[[link]]",
    name: "link",
    count: 0..=256,
    doc: "Properties of the network between two nodes. If several links apply to a packet, the \
          last one in the file is used. Without a link, packets arrive at once. Links exist only \
          in simulated time. On real sockets there is only the network of the machine.",
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

knobs! {
    /// The sender: a node, `callers` or `answerers`.
    FROM "from": Text<String> = PARTY, Means("all senders");
    /// The receiver. The opposite direction is another link.
    TO "to": Text<String> = PARTY, Means("all receivers");
    /// Delay of every packet, in milliseconds.
    DELAY_MS "delay_ms": Real = Real(0.0..=60_000.0), Default("0");
    /// Longest additional delay, in milliseconds. The additional delay of each packet is random,
    /// uniformly distributed between 0 and this value.
    JITTER_MS "jitter_ms": Real = Real(0.0..=60_000.0), Default("0");
    /// Share of the packets that are lost.
    LOSS "loss": Real = Real(0.0..=1.0), Default("0");
    /// Share of the queries for a host name that fail.
    FAILS "fails": Real = Real(0.0..=1.0), Default("0");
    /// Share of the packets that are not delayed, and so overtake others.
    REORDER "reorder": Real = Real(0.0..=1.0), Default("0");
    /// Share of the packets that arrive twice.
    DUPLICATE "duplicate": Real = Real(0.0..=1.0), Default("0");
    /// Bandwidth of the link in megabits a second. It includes the headers of IP and UDP.
    BANDWIDTH_MBPS "bandwidth_mbps": Real = Real(0.001..=1_000_000.0), Means("no limit");
    /// Length of the queue of a link with limited bandwidth, in bytes. A packet that does not fit
    /// is lost.
    QUEUE_BYTES "queue_bytes": Whole = Whole(1500..=1_000_000_000), Default("262_144");
}

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

knobs! {
    /// `crash`: `node` loses its state and starts again when the fault ends. `stall`: `node` gets
    /// no processor time. On real sockets, if the costs of the node are emulated, the emulated
    /// processor continues to work, and the node sends all results when the fault ends.
    /// `partition`: no packets pass between `from` and `to`, in either direction. This kind needs
    /// both keys. `link`: the keys of a `[[link]]`, such as `delay_ms` and `loss`, apply to packets
    /// from `from` to `to`. `resolver`: a query for a host name is answered after `delay_ms` and a
    /// random time of up to `jitter_ms`. `loss` is the share of queries that get no answer, and
    /// `fails` is the share of queries that fail. In a scenario with a `resolver` fault, servers
    /// look up the host names of their next hops. Each answer is valid for 10 s. Outside the time
    /// of the fault, queries are answered at once.
    KIND "kind": Choice<Kind> = Choice {
        words: &[
            ("crash", Kind::Crash),
            ("stall", Kind::Stall),
            ("partition", Kind::Partition),
            ("link", Kind::Link),
            ("resolver", Kind::Resolver),
        ],
        reserved: &[],
    }, Required;
    /// Start of the fault, in seconds after the start of the warm-up.
    AT_S "at_s": Real = Real(0.0..=90_000.0), Required;
    /// Duration of the fault, in seconds.
    FOR_S "for_s": Real = Real(0.001..=90_000.0), Required;
    /// The server that crashes or stalls.
    OF_NODE "node": Text<String> = Text::new("the name of a node", any), Means("the only server");
    /// True if the machine of a crashed server is down too. `true`: the machine is down, and
    /// senders get no ICMP errors. This works only in simulated time. `false`: only the ports of
    /// the server are closed, and senders get ICMP errors.
    SILENT "silent": Flag = Flag, Default("false");
}
