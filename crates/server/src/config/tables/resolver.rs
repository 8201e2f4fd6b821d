//! `[resolver]`.

use std::net::SocketAddr;

use crate::config::address;
use crate::config::keys::table;
use crate::config::shape::{List, NotEmpty, Text};

table! {
    /// The resolution of host names. Tidegate first looks in `/etc/hosts`, which it reads when it
    /// starts.
    pub static RESOLVER: "[resolver]" 0..=1, Restart, [] => Resolver, ResolverDraft;

    /// The name servers that Tidegate asks. It asks over UDP, and again over TCP if an answer is
    /// too long for UDP. If this key is set, Tidegate does not use the search list of
    /// `/etc/resolv.conf`.
    servers: Vec<SocketAddr> | None = NotEmpty(List {
        of: Text::new(
            "an IP address, with its port if that is not 53, such as `\"192.0.2.53\"`",
            address::name_server,
        ),
        count_max: 8,
    }), Means("the name servers in `/etc/resolv.conf`, which Tidegate reads when it starts");
}
