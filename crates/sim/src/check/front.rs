//! Proxies as strangers find them: in front of back ends, with limits.

use std::net::SocketAddr;
use std::time::Duration;

/// A proxy in front of back ends, as far as its configuration decides what strangers can make of it.
#[derive(Clone, Debug)]
pub struct Front {
    /// Its own address.
    pub address: SocketAddr,
    /// Its back ends, in the order of its book.
    pub backends: Vec<SocketAddr>,
    /// Calls that each of them may hold; `None` also where it cannot be seen which ones it was given:
    /// a call that was given up may be answered after all, or a back end is forgotten and comes back.
    pub calls_max: Option<u64>,
    /// Requests a second that each of them may be given, if that is limited.
    pub cps_max: Option<f64>,
    /// An answered call is taken for ended after this long without a request.
    pub idle_max: Duration,
    /// It handles each packet when it gets it, and knows the addresses of its back ends.
    pub at_once: bool,
    /// What speaks against a back end is seen: that it refuses a connection is not.
    pub sees_evidence: bool,
    /// A back end that says nothing for so long may be taken for ill.
    pub silent_after: Duration,
    /// It keeps transactions, or has room for all calls: it knows what it has sent to whom.
    pub keeps_accounts: bool,
    /// Server transactions that it has room for.
    pub transactions_max: u64,
}

impl Front {
    pub(super) fn backend_at(&self, address: SocketAddr) -> Option<usize> {
        self.backends.iter().position(|&backend| backend == address)
    }
}
