//! `[[listen]]`.

use std::net::SocketAddr;

use ipnet::IpNet;
use tidegate_proxy::LISTENERS_MAX;
use tidegate_world::Transport;

use crate::config::address::{self, HostPort};
use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{Choice, List, Text, Whole};
use crate::config::word;

pub static LISTEN: Table = Table {
    header: "[[listen]]",
    name: "listen",
    count: 1..=LISTENERS_MAX,
    doc: "An address at which Tidegate receives SIP and from which it sends SIP.",
    knobs: &[
        &LISTEN_NAME,
        &TRANSPORT,
        &LISTEN_ADDRESS,
        &ADVERTISE,
        &SHARED,
        &TRUST,
        &TRUST_IDENTITY,
        &RECEIVE_BUFFER,
    ],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub static LISTEN_NAME: Knob<Text<String>> = Knob {
    name: "name",
    shape: Text {
        what: "1 to 64 letters, digits and `_-.:`, such as `\"inside\"`",
        parse: word::name,
    },
    absent: Absent::Means("none"),
    doc: "The name by which `listener` of a `[[pool]]` refers to it.",
};

pub static TRANSPORT: Knob<Choice<Transport>> = Knob {
    name: "transport",
    shape: Choice { words: &[("udp", Transport::Udp)], reserved: &["tcp", "tls", "ws", "wss"] },
    absent: Absent::Required,
    doc: "The transport protocol.",
};

pub static LISTEN_ADDRESS: Knob<Text<SocketAddr>> = Knob {
    name: "address",
    shape: Text {
        what: "an IP address and port, such as `\"192.0.2.1:5060\"`",
        parse: address::listening,
    },
    absent: Absent::Required,
    doc: "The address to listen on. `0.0.0.0` or `[::]` is every address of the machine and needs \
          `advertise`. Port 0 takes a free port.",
};

pub static ADVERTISE: Knob<Text<HostPort>> = Knob {
    name: "advertise",
    shape: Text {
        what: "a host and port, such as `\"sip.example.com:5060\"`",
        parse: address::advertised,
    },
    absent: Absent::Means("`address`; required when that is a wildcard"),
    doc: "The address that Tidegate writes into Via and Record-Route, by which peers reach this \
          listener. Behind NAT this is the outer address.",
};

/// Who else listens at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody.
    No,
    /// Instances on other machines: the network chooses which of them a datagram reaches.
    Hosts,
    /// Processes of the same user on this machine, among which the kernel chooses.
    Processes,
}

pub static SHARED: Knob<Choice<Sharing>> = Knob {
    name: "shared",
    shape: Choice {
        words: &[("no", Sharing::No), ("hosts", Sharing::Hosts), ("processes", Sharing::Processes)],
        reserved: &[],
    },
    absent: Absent::Default("\"no\""),
    doc: "Which other instances listen at this address. `hosts`: instances on other machines, \
          among which the network chooses (anycast, ECMP). `processes`: other processes of this \
          user on this machine, all of which must have the same value. In both cases Tidegate \
          sends requests to back ends from the first listener that is not shared, so that \
          responses reach the instance that sent the request; there must be such a listener. A \
          call belongs to every instance that has the same keys. With `processes` the kernel \
          neither separates INVITEs from other messages nor drops messages for Tidegate.",
};

const NETWORKS: List<Text<IpNet>> = List {
    of: Text { what: "an address or network, such as `\"192.0.2.0/24\"`", parse: address::network },
    count_max: 1024,
};

pub static TRUST: Knob<List<Text<IpNet>>> = Knob {
    name: "trust",
    shape: NETWORKS,
    absent: Absent::Default("[]"),
    doc: "Peers whose requests may go to the target that the request itself names (routes with \
          `from = \"trusted\"`). Back ends need not be listed.",
};

pub static TRUST_IDENTITY: Knob<List<Text<IpNet>>> = Knob {
    name: "trust_identity",
    shape: NETWORKS,
    absent: Absent::Default("[]"),
    doc: "Peers that are trusted to assert the identity of the caller (RFC 3325), besides back \
          ends and the peers in `trust`. Tidegate removes `P-Asserted-Identity` from messages of \
          any other peer. From messages to other peers it removes `P-Preferred-Identity`, and \
          `P-Asserted-Identity` if `Privacy: id` protects it.",
};

pub static RECEIVE_BUFFER: Knob<Whole> = Knob {
    name: "receive_buffer",
    shape: Whole(4096..=1 << 30),
    absent: Absent::Default("4_194_304"),
    doc: "Bytes of the kernel's receive buffer for each socket of this listener. The kernel may \
          grant less (`net.core.rmem_max`); `/status` shows the granted size.",
};
