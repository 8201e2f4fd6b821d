//! `[resolver]`.

use std::net::SocketAddr;

use crate::config::address;
use crate::config::knob::{Absent, Knob, Table};
use crate::config::shape::{List, Text};

pub static RESOLVER: Table = Table {
    header: "[resolver]",
    name: "resolver",
    count: 0..=1,
    doc: "Resolution of host names. The file `/etc/hosts`, read at the start, comes first.",
    knobs: &[&RESOLVER_SERVERS],
    tables: &[],
    has_free_keys: false,
    reserved: &[],
};

pub static RESOLVER_SERVERS: Knob<List<Text<SocketAddr>>> = Knob {
    name: "servers",
    shape: List {
        of: Text {
            what: "an IP address, with a port other than 53 if need be, such as `\"192.0.2.53\"`",
            parse: address::name_server,
        },
        count_max: 8,
    },
    absent: Absent::Means("those of `/etc/resolv.conf`, read at the start"),
    doc: "Name servers to ask, over UDP, and over TCP if the answer is too long for UDP. If this \
          key is set, the search list of `/etc/resolv.conf` is not used.",
};
