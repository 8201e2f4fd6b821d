//! What a response context finds around it: the time, the pools, a way to send.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_world::Timestamp;

use super::message::{Message, Packet, parameter, sent_by};

/// A back end whose delivery failed gets nothing new for this long, unless it answers.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

/// One that has refused with 503 gets nothing for this long that another has refused.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// Answers of a back end are noted no more often than this.
const ANSWERS_APART: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct Backend {
    pub address: SocketAddr,
    /// Its q-value, in thousandths.
    pub q: u16,
    pub down_until: Timestamp,
    pub refused_at: Option<Timestamp>,
    /// When it last failed.
    pub failed_at: Timestamp,
    /// It is used although it is down, or too few of its pool were.
    pub is_spared: bool,
    pub answered_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One back end, without transactions.
    Stateless,
    /// One back end, another if it fails.
    One,
    /// All back ends, by their q.
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
            refused_at: None,
            failed_at: Timestamp::ZERO,
            is_spared: false,
            answered_at: Timestamp::ZERO,
        };
        Self { domain: domain.to_owned(), kind, backends: backends.iter().map(backend).collect() }
    }
}

impl Pool {
    /// No more than half are taken down by what requests show; beyond that those that failed first
    /// are used.
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
    /// What was sent since it was last taken.
    pub sent: Vec<Packet>,
    /// The choices that are left to a policy, as the other implementation has made them: a
    /// request of this call went there.
    pub chosen: Vec<(String, SocketAddr)>,
    /// Where requests of each call were sent, ever.
    pub had: Vec<(String, SocketAddr)>,
    /// What each branch of ours was given to.
    passed: Vec<(String, Vec<String>)>,
    failures: Vec<(SocketAddr, Timestamp)>,
    /// Where each branch of ours was sent.
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

    /// RFC 3261 §16.6 item 8: the branch "will be globally unique for that branch". It is one of a
    /// request, a target and a turn: a request that comes again when all else is forgotten is the
    /// same one (§16.11).
    pub fn new_branch(&mut self, request: &str, target: SocketAddr, turn: usize) -> String {
        let name = format!("z9hG4bK-new-{request}-{target}-{turn}");
        self.branches.insert(name.clone());
        name
    }

    /// Whether a branch of ours was sent there, however long ago.
    pub fn has_asked(&self, branch: &str, at: SocketAddr) -> bool {
        self.went.iter().any(|(known, to)| known == branch && *to == at)
    }

    /// The pool that a back end belongs to.
    pub fn backend_mut(&mut self, at: SocketAddr) -> Option<&mut Backend> {
        self.pools.iter_mut().flat_map(|pool| &mut pool.backends).find(|b| b.address == at)
    }

    pub fn backend(&self, at: SocketAddr) -> Option<&Backend> {
        self.pools.iter().flat_map(|pool| &pool.backends).find(|b| b.address == at)
    }

    /// Notes what a branch of ours was given to.
    pub fn note_branch(&mut self, branch: &str, received: &Message, source: SocketAddr) {
        self.passed.push((branch.to_owned(), Self::decisive(received, source)));
    }

    /// Whether a request was here before, and is still on the same way.
    pub fn has_looped(&self, request: &Message, source: SocketAddr) -> bool {
        let now = Self::decisive(request, source);
        request.all("Via").into_iter().any(|via| {
            let before = |(branch, of): &(String, Vec<String>)| {
                parameter(via, "branch") == Some(branch) && *of == now
            };
            sent_by(via) == self.own.to_string() && self.passed.iter().any(before)
        })
    }

    /// Where requests of a call were sent until now.
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

    /// Back ends that may be tried after others: up, not tried, and for what another has refused not
    /// refusing. That the others pass over those that refuse several callees is not modelled: there
    /// is but one.
    pub fn alternatives(
        &self,
        pool: usize,
        tried: &[SocketAddr],
        is_refused: bool,
    ) -> Vec<SocketAddr> {
        let refusing = |at| {
            let refused = self.backend(at).and_then(|b| b.refused_at);
            refused.is_some_and(|refused| self.now < refused + REFUSAL_PAUSE)
        };
        let mut left = self.up(pool);
        left.retain(|&at| !(tried.contains(&at) || is_refused && refusing(at)));
        left
    }

    /// It has answered 503.
    pub fn on_refused(&mut self, at: SocketAddr) {
        let now = self.now;
        if let Some(backend) = self.backend_mut(at) {
            backend.refused_at = Some(now);
        }
    }

    /// Who of several gets a request: the policy's choice, where it was one of them.
    pub fn choose(&self, call: &str, among: &[SocketAddr]) -> Option<SocketAddr> {
        self.chosen_of(call, among).or_else(|| among.first().copied())
    }

    /// The choice that was made for a call, if it was one of these.
    pub fn chosen_of(&self, call: &str, among: &[SocketAddr]) -> Option<SocketAddr> {
        let mut theirs = self.chosen.iter().filter(|(of, _)| of == call).map(|&(_, to)| to);
        theirs.find(|to| among.contains(to))
    }

    /// It gets nothing new for a while.
    fn take_down(&mut self, at: SocketAddr) {
        let until = self.now + FAILURE_PAUSE;
        if let Some(backend) = self.backend_mut(at) {
            (backend.down_until, backend.failed_at) = (until, until);
        }
        self.pools.iter_mut().for_each(|pool| pool.spare(self.now));
    }

    /// The transport failed to deliver to it.
    pub fn on_failed(&mut self, at: SocketAddr) {
        self.take_down(at);
        self.failures.push((at, self.now));
    }

    /// Whether the transport has failed to deliver since then.
    pub fn has_failed(&self, at: SocketAddr, then: Timestamp) -> bool {
        self.failures.iter().any(|&(to, failed)| to == at && failed >= then)
    }

    /// Whether it is one of ours.
    pub fn is_backend(&self, at: SocketAddr) -> bool {
        self.backend(at).is_some()
    }

    /// It is there.
    pub fn on_heard(&mut self, at: SocketAddr) {
        let now = self.now;
        if let Some(backend) = self.backend_mut(at) {
            backend.down_until = Timestamp::ZERO;
            if now.since(backend.answered_at) >= ANSWERS_APART {
                backend.answered_at = now;
            }
        }
    }

    /// §16.6 item 8: "the To tag, From tag, Call-ID header field, the Request-URI of the request
    /// received (before translation), [...] and the sequence number from the CSeq header field, in
    /// addition to any Proxy-Require and Proxy-Authorization header fields that may be present".
    /// It "MUST depend on all information affecting processing of a request", which are the Route
    /// and who sends it, too.
    fn decisive(request: &Message, source: SocketAddr) -> Vec<String> {
        let mut parts = vec![request.uri().to_owned(), request.cseq_number().to_owned()];
        for name in ["From", "To", "Call-ID", "Route", "Proxy-Require", "Proxy-Authorization"] {
            parts.push(request.all(name).join(","));
        }
        parts.push(source.to_string());
        parts
    }
}
