//! The environment of a response context: the time, the pools, a way to send.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::Timestamp;

use super::message::{Message, Packet, parameter, sent_by};

/// The time for which a back end gets no new request after a failed delivery, unless it responds.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

/// The time after a 503 for which a back end gets no request that another has rejected.
const REJECTION_PAUSE: Duration = Duration::from_secs(1);

/// The shortest time between recorded responses of a back end.
const ANSWERS_APART: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct Backend {
    pub address: SocketAddr,
    /// Its q-value, in thousandths.
    pub q: u16,
    pub down_until: Timestamp,
    pub rejected_at: Option<Timestamp>,
    /// The time of its last failure.
    pub failed_at: Timestamp,
    /// True if the back end is used although requests marked it as down, because they marked too
    /// many back ends of its pool.
    pub is_spared: bool,
    pub answered_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One back end, without transactions.
    Stateless,
    /// One back end, and another if it fails.
    One,
    /// All back ends by their q.
    Fork,
}

#[derive(Clone, Debug)]
pub struct Pool {
    pub domain: String,
    pub kind: Kind,
    pub backends: Vec<Backend>,
}

impl Pool {
    pub fn new(domain: &str, kind: Kind, backends: &[(SocketAddr, u16)]) -> Self {
        let backend = |&(address, q): &(SocketAddr, u16)| Backend {
            address,
            q,
            down_until: Timestamp::ZERO,
            rejected_at: None,
            failed_at: Timestamp::ZERO,
            is_spared: false,
            answered_at: Timestamp::ZERO,
        };
        Self { domain: domain.to_owned(), kind, backends: backends.iter().map(backend).collect() }
    }
}

impl Pool {
    /// Spares back ends so that failed requests mark at most half of them as down. The back ends
    /// that failed first are spared.
    fn spare(&mut self, now: Timestamp) {
        let is_up = |backend: &Backend| backend.down_until <= now;
        let up = self.backends.iter().filter(|backend| is_up(backend)).count();
        let least = (self.backends.len() - self.backends.len() / 2).max(1);
        let mut order: Vec<_> = self.backends.iter_mut().collect();
        order.sort_by_key(|backend| backend.failed_at);
        let mut missing = least.saturating_sub(up);
        for backend in order {
            backend.is_spared = !is_up(backend) && missing > 0;
            missing -= usize::from(backend.is_spared);
        }
    }
}

#[derive(Debug)]
pub struct Surroundings {
    pub now: Timestamp,
    /// The proxy's own address.
    pub own: SocketAddr,
    pub pools: Vec<Pool>,
    /// Packets sent since packets were last taken.
    pub sent: Vec<Packet>,
    /// Choices of a policy, taken from the other implementation: the call of a request and its
    /// target.
    pub chosen: Vec<(String, SocketAddr)>,
    /// All targets of each call's requests so far.
    pub had: Vec<(String, SocketAddr)>,
    /// The parts of the received request that determine its target, for each branch of the proxy.
    passed: Vec<(String, Vec<String>)>,
    failures: Vec<(SocketAddr, Timestamp)>,
    /// The target of each branch of the proxy.
    went: Vec<(String, SocketAddr)>,
    branches: BTreeSet<String>,
}

impl Surroundings {
    pub fn new(own: SocketAddr, pools: Vec<Pool>) -> Self {
        let (sent, chosen, had, failures) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (now, passed, branches) = (Timestamp::ZERO, Vec::new(), BTreeSet::new());
        let went = Vec::new();
        Self { now, own, pools, sent, chosen, had, passed, failures, went, branches }
    }

    pub fn send(&mut self, to: SocketAddr, message: &Message) {
        if message.status().is_none() {
            if let Some(branch) = message.branch() {
                self.went.push((branch.to_owned(), to));
            }
            self.had.push((message.first("Call-ID").to_owned(), to));
        }
        self.sent.push(Packet { from: self.own, to, message: message.clone() });
    }

    /// Makes a branch. RFC 3261 §16.6 item 8: it "will be globally unique for that branch". It
    /// depends on the request, the target and the turn: if all else is forgotten, a retransmission
    /// still gets the same branch (§16.11).
    pub fn new_branch(&mut self, request: &str, target: SocketAddr, turn: usize) -> String {
        let name = format!("z9hG4bK-new-{request}-{target}-{turn}");
        self.branches.insert(name.clone());
        name
    }

    /// Returns whether a branch of the proxy was ever sent to `at`.
    pub fn has_asked(&self, branch: &str, at: SocketAddr) -> bool {
        self.went.iter().any(|(known, to)| known == branch && *to == at)
    }

    /// Returns the back end at an address.
    pub fn backend_mut(&mut self, at: SocketAddr) -> Option<&mut Backend> {
        self.pools.iter_mut().flat_map(|pool| &mut pool.backends).find(|b| b.address == at)
    }

    pub fn backend(&self, at: SocketAddr) -> Option<&Backend> {
        self.pools.iter().flat_map(|pool| &pool.backends).find(|b| b.address == at)
    }

    /// Records the parts of a received request that determine its target, for the branch `branch`
    /// of the proxy.
    pub fn record_branch(&mut self, branch: &str, received: &Message, source: SocketAddr) {
        self.passed.push((branch.to_owned(), Self::decisive(received, source)));
    }

    /// Returns whether a request was here before with the same parts that determine its target.
    pub fn has_looped(&self, request: &Message, source: SocketAddr) -> bool {
        let now = Self::decisive(request, source);
        request.all("Via").into_iter().any(|via| {
            let before = |(branch, of): &(String, Vec<String>)| {
                parameter(via, "branch") == Some(branch) && *of == now
            };
            sent_by(via) == self.own.to_string() && self.passed.iter().any(before)
        })
    }

    /// Returns the targets of a call's requests so far.
    pub fn had(&self, call: &str) -> Vec<SocketAddr> {
        self.had.iter().filter(|(of, _)| of == call).map(|&(_, to)| to).collect()
    }

    pub fn is_up(&self, at: SocketAddr) -> bool {
        self.backend(at).is_some_and(|b| b.down_until <= self.now || b.is_spared)
    }

    pub fn up(&self, pool: usize) -> Vec<SocketAddr> {
        let all = self.pools[pool].backends.iter().map(|b| b.address);
        all.filter(|&at| self.is_up(at)).collect()
    }

    /// Returns the back ends that may be tried next: up, untried and, for a request that another
    /// has rejected, without a recent 503. The core also skips back ends that reject several
    /// callees. This is not modelled because there is only one callee.
    pub fn alternatives(
        &self,
        pool: usize,
        tried: &[SocketAddr],
        is_rejected: bool,
    ) -> Vec<SocketAddr> {
        let rejecting = |at| {
            let rejected = self.backend(at).and_then(|b| b.rejected_at);
            rejected.is_some_and(|rejected| self.now < rejected + REJECTION_PAUSE)
        };
        let mut left = self.up(pool);
        left.retain(|&at| !(tried.contains(&at) || is_rejected && rejecting(at)));
        left
    }

    /// Records a 503 from a back end.
    pub fn on_rejected(&mut self, at: SocketAddr) {
        let now = self.now;
        if let Some(backend) = self.backend_mut(at) {
            backend.rejected_at = Some(now);
        }
    }

    /// Returns the back end for a request: the choice of the core if it is in `among`, otherwise
    /// the first one in `among`.
    pub fn choose(&self, call: &str, among: &[SocketAddr]) -> Option<SocketAddr> {
        self.chosen_of(call, among).or_else(|| among.first().copied())
    }

    /// Returns the target that the core has selected for a call, if it is in `among`.
    pub fn chosen_of(&self, call: &str, among: &[SocketAddr]) -> Option<SocketAddr> {
        let mut theirs = self.chosen.iter().filter(|(of, _)| of == call).map(|&(_, to)| to);
        theirs.find(|to| among.contains(to))
    }

    /// Marks a back end as down for a while.
    fn take_down(&mut self, at: SocketAddr) {
        let until = self.now + FAILURE_PAUSE;
        if let Some(backend) = self.backend_mut(at) {
            (backend.down_until, backend.failed_at) = (until, until);
        }
        self.pools.iter_mut().for_each(|pool| pool.spare(self.now));
    }

    /// Records a failed delivery.
    pub fn on_failed(&mut self, at: SocketAddr) {
        self.take_down(at);
        self.failures.push((at, self.now));
    }

    /// Returns whether a delivery has failed since `then`.
    pub fn has_failed(&self, at: SocketAddr, then: Timestamp) -> bool {
        self.failures.iter().any(|&(to, failed)| to == at && failed >= then)
    }

    /// Returns whether the address is a back end of the proxy.
    pub fn is_backend(&self, at: SocketAddr) -> bool {
        self.backend(at).is_some()
    }

    /// Records that a back end has responded.
    pub fn on_heard(&mut self, at: SocketAddr) {
        let now = self.now;
        if let Some(backend) = self.backend_mut(at) {
            backend.down_until = Timestamp::ZERO;
            if now.since(backend.answered_at) >= ANSWERS_APART {
                backend.answered_at = now;
            }
        }
    }

    /// Returns the parts of a request that determine its way. §16.6 item 8: "the To tag, From tag,
    /// Call-ID header field, the Request-URI of the request received (before translation), [...]
    /// and the sequence number from the CSeq header field, in addition to any Proxy-Require and
    /// Proxy-Authorization header fields that may be present". It "MUST depend on all information
    /// affecting processing of a request", which includes the Route and the source.
    fn decisive(request: &Message, source: SocketAddr) -> Vec<String> {
        let mut parts = vec![request.uri().to_owned(), request.cseq_number().to_owned()];
        for name in ["From", "To", "Call-ID", "Route", "Proxy-Require", "Proxy-Authorization"] {
            parts.push(request.all(name).join(","));
        }
        parts.push(source.to_string());
        parts
    }
}
