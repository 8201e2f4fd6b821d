//! `[resolver]`.

use std::net::SocketAddr;

use crate::config::address;
use crate::config::keys::table;
use crate::config::shape::{List, Text};

table! {
    /// Resolution of host names. The file `/etc/hosts`, read at the start, comes first.
    pub static RESOLVER: "[resolver]" 0..=1, Restart, [] => Resolver, ResolverDraft;

    /// Name servers to ask, over UDP, and over TCP if the answer is too long for UDP. If this key
    /// is set, the search list of `/etc/resolv.conf` is not used.
    servers: Vec<SocketAddr> | None = List {
        of: Text::new(
            "an IP address, with a port other than 53 if need be, such as `\"192.0.2.53\"`",
            address::name_server,
        ),
        count_max: 8,
    }, Means("those of `/etc/resolv.conf`, read at the start");
}
