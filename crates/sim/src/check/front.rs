//! The configuration of a proxy that faces attackers.

use std::net::SocketAddr;
use std::time::Duration;

/// The parts of a proxy's configuration that protect the proxy and its back ends against attackers.
#[derive(Clone, Debug)]
pub struct Front {
    /// The proxy's own address.
    pub address: SocketAddr,
    /// The proxy's back ends, in the order in which it reports them.
    pub backends: Vec<SocketAddr>,
    /// Limit on the calls of each back end, or `None` if there is no limit. Also `None` if the
    /// checker cannot count the calls: if an answerer may answer a cancelled call, or if a back end
    /// may be removed and added again.
    pub calls_max: Option<u64>,
    /// Limit on the requests a second that each back end gets, or `None` if there is no limit.
    pub cps_max: Option<f64>,
    /// Time without a request after which an answered call counts as ended.
    pub idle_max: Duration,
    /// True if the proxy handles each packet immediately and knows the addresses of its back ends.
    pub at_once: bool,
    /// True if the checker [`exclusion`](super::exclusion) sees all evidence against a back end in
    /// the packets. They do not show, for example, a refused connection.
    pub sees_evidence: bool,
    /// Time without a response after which the proxy may suspect a back end.
    pub silent_after: Duration,
    /// True if the proxy has a record of all its requests, because it keeps transactions or has
    /// room for all calls.
    pub keeps_accounts: bool,
    /// Maximum number of server transactions.
    pub transactions_max: u64,
}

impl Front {
    pub(super) fn backend_at(&self, address: SocketAddr) -> Option<usize> {
        self.backends.iter().position(|&backend| backend == address)
    }
}
