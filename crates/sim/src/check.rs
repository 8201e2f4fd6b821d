//! Checkers: assertions that must hold in every run, with any seed, load and faults.
//!
//! [`Checkers`] taps a [`Network`](crate::Network), reads every packet once and passes it to each
//! checker. At the end it compares the packets with the counts that the nodes report about
//! themselves, their *books* ([`books`]). Checkers derive the expected behaviour of a node from its
//! [`Role`] and from the RFCs, not from its code. Each file begins with the assertions of its
//! checker, the reason for them, and the assertions that still apply after a crash of a proxy.
//!
//! | checker | asserts |
//! | --- | --- |
//! | [`calls`] | every call ends in exactly one way, and both ends count it as the packets show it |
//! | [`finals`] | a request gets one final response, and no provisional response after it |
//! | [`answers`] | an INVITE that a proxy has answered with 100 gets a final response |
//! | [`provenance`] | a proxy sends nothing without a reason in its inputs |
//! | [`forwarding`] | a proxy makes only the changes of RFC 3261 §16 to a message |
//! | [`hops`] | an ACK or CANCEL of one hop belongs to an INVITE, and retransmissions are limited |
//! | [`conservation`] | packets neither vanish nor appear from nowhere, and nodes count them all |
//! | [`leases`] | a balancer has the same counts for its back ends as a slow, simple model of it |
//! | [`counts`] | at the end every count has returned to zero |
//! | [`bounds`] | no table and no queue is longer than its limit |
//! | [`limits`] | no request evades a limit by an unusual form |
//! | [`exclusion`] | a back end that answers well-behaved callers is not excluded |
//! | [`innocents`] | a call of a well-behaved caller continues, whatever attackers send |
//! | [`shares`] | no address fills the tables of a proxy |
//! | [`amplification`] | a source that is not verified gets little more than it sends |
//!
//! The memory of all checkers is bounded ([`Recent`](recent::Recent)): entries older than any timer
//! of SIP are forgotten. If an entry does not fit into the memory of a checker, the checker counts
//! the entry and does not watch it.

pub mod amplification;
pub mod answers;
pub mod books;
pub mod bounds;
pub mod calls;
pub mod conservation;
pub mod counts;
pub mod exclusion;
pub mod finals;
pub mod forwarding;
pub mod front;
pub mod hops;
pub mod innocents;
pub mod leases;
pub mod limits;
mod lives;
pub mod provenance;
mod recent;
mod seen;
pub mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use tidegate_world::{Flow, Timestamp};

use crate::node_id::NodeId;
use crate::tap::{Loss, Tap};
use books::Book;
use front::Front;
use leases::{Balancer, Leases};
use lives::Lives;
use provenance::Provenance;
use seen::Seen;

/// Maximum number of violations in a report. Further violations are only counted, but the first
/// violation of each checker is always in the report.
const VIOLATIONS_MAX: usize = 32;

/// The role of a node, as far as the assertions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A group of callers.
    Caller,
    /// A user agent that takes calls.
    Answerer {
        /// True if the call table of the answerer has room for all calls. If false, the checker of
        /// final responses ignores its 503s, because an answerer with a full table cannot remember
        /// the calls that it has rejected.
        roomy: bool,
    },
    /// A proxy.
    Proxy {
        /// True if the proxy keeps transactions (RFC 3261 §16.2). Otherwise it forwards without
        /// them (§16.11).
        stateful: bool,
        /// True if the proxy has streams on one side and datagrams on the other. If true, the proxy
        /// forwards messages from streams to datagrams with transactions, even if `stateful` is
        /// false.
        bridges: bool,
        /// True if the proxy rejects a retransmission of a rejected request again. If not, the
        /// checker of final responses ignores the 503s of the proxy, because another response may
        /// follow them.
        sticky: bool,
        /// True if the transaction table of the proxy has room for all requests. If not, the proxy
        /// forwards in-dialog requests without a transaction, and the checker of final responses
        /// ignores the responses to its BYEs.
        roomy: bool,
    },
}

/// A violated assertion.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// Name of the checker that found the violation.
    pub checker: &'static str,
    /// Time at which the checker found the violation.
    pub at: Timestamp,
    /// The node that violated the assertion, or `None` if the violation concerns no single node.
    pub node: Option<NodeId>,
    /// Description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checker, at, node, what } = self;
        write!(f, "{checker}: {what} (at {at:?}")?;
        match node {
            Some(node) => write!(f, ", node {})", node.index()),
            None => f.write_str(")"),
        }
    }
}

/// The violations that the checkers have found so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    now: Timestamp,
    kept: Vec<Violation>,
    dropped: u64,
}

impl Findings {
    pub(crate) fn report(&mut self, checker: &'static str, node: Option<NodeId>, what: String) {
        // The first violation of each checker is always kept.
        let is_first = self.kept.iter().all(|known| known.checker != checker);
        if self.kept.len() < VIOLATIONS_MAX || is_first {
            self.kept.push(Violation { checker, at: self.now, node, what });
        } else {
            self.dropped += 1;
        }
    }
}

/// A [`Tap`] that passes every packet of a network to all checkers.
#[derive(Default)]
pub struct Checkers {
    roles: BTreeMap<NodeId, Role>,
    lives: Lives,
    provenance: Provenance,
    calls: calls::Calls,
    finals: finals::Finals,
    answers: answers::Answers,
    hops: hops::Hops,
    conservation: conservation::Conservation,
    leases: Leases,
    fronts: BTreeMap<NodeId, Front>,
    parties: BTreeSet<SocketAddr>,
    limits: limits::Limits,
    exclusion: exclusion::Exclusion,
    innocents: innocents::Innocents,
    shares: shares::Shares,
    amplification: amplification::Amplification,
    found: Findings,
}

impl Checkers {
    /// Creates checkers that do not know any node yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares the role of a node. Nodes without a role are not checked.
    pub fn watch(&mut self, node: NodeId, role: Role) {
        self.roles.insert(node, role);
    }

    /// Declares the parts of a proxy's configuration that determine its counts of calls, so that
    /// [`leases`] checks these counts. The proxy must handle each packet at once.
    pub fn balances(&mut self, node: NodeId, balancer: Balancer) {
        self.leases.declare(node, balancer);
    }

    /// Declares the limits that protect a proxy against attackers.
    pub fn guards(&mut self, node: NodeId, front: Front) {
        self.fronts.insert(node, front);
    }

    /// Declares the address of a node that is not an attacker.
    pub fn knows(&mut self, address: SocketAddr) {
        self.parties.insert(address);
    }

    /// Records that a node crashed at `now`. The checkers assert nothing about the state that the
    /// node has lost.
    pub fn crashed(&mut self, now: Timestamp, node: NodeId) {
        self.conservation.crashed(node);
        self.leases.crashed(node);
        self.limits.crashed(node);
        self.exclusion.crashed(node);
        self.shares.crashed(node);
        self.amplification.crashed(node);
        self.lives.crashed(now, node);
    }

    /// Records that a node was stalled or told to drain. From then on the checkers allow that its
    /// timers are late and that it rejects new work.
    pub fn disturbed(&mut self, node: NodeId) {
        self.lives.disturbed(node);
    }

    /// Checks the book of a running node: the counts that the node reports about itself.
    pub fn look(&mut self, now: Timestamp, node: NodeId, book: &Book) {
        self.found.now = now;
        bounds::check(node, book, &mut self.found);
        self.leases.look(node, book, &self.lives, &mut self.found);
        if let (Book::Proxy(book), Some(front)) = (book, self.fronts.get(&node)) {
            self.limits.look(node, book, &mut self.found);
            if front.sees_evidence {
                self.exclusion.look(node, book, front, &self.lives, &mut self.found);
            }
        }
    }

    /// Makes the checks at the end of a run. `books` are the books of the nodes that are up.
    /// `quiet` is true if no more events are left.
    pub fn finish(mut self, now: Timestamp, quiet: bool, books: &[(NodeId, Book)]) -> Report {
        let found = &mut self.found;
        found.now = now;
        counts::check_quiet(quiet, found);
        for (node, book) in books {
            bounds::check(*node, book, found);
            self.leases.look(*node, book, &self.lives, found);
            if quiet {
                counts::check(*node, book, found);
                self.conservation.compare(*node, book, found);
            }
        }
        if quiet {
            self.calls.finish(books, &self.lives, found);
            self.answers.finish(books, &self.lives, found);
            self.conservation.finish(found);
            self.innocents.finish(self.fronts.keys().copied(), &self.lives, found);
        }
        let unwatched = self.provenance.unwatched()
            + self.finals.unwatched()
            + self.answers.unwatched()
            + self.hops.unwatched()
            + self.conservation.unwatched()
            + self.calls.unwatched()
            + self.limits.unwatched()
            + self.exclusion.unwatched()
            + self.innocents.unwatched()
            + self.amplification.unwatched();
        Report { violations: self.found.kept, further: self.found.dropped, unwatched }
    }
}

/// The violations that the checkers have found in a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Violations in the order in which they were found.
    pub violations: Vec<Violation>,
    /// Number of violations that were found but are not kept in `violations`.
    pub further: u64,
    /// Requests, responses and calls that the checkers did not watch because their memory was full.
    pub unwatched: u64,
}

/// Returns whether the packet is a keep-alive of a stream (RFC 5626 §4.4.1), which is not a message
/// and is not checked.
fn is_keepalive(flow: Flow, bytes: &[u8]) -> bool {
    flow.transport.is_reliable() && bytes.iter().all(|b| matches!(b, b'\r' | b'\n'))
}

impl Tap for Checkers {
    fn sent(&mut self, now: Timestamp, from: NodeId, flow: Flow, bytes: &[u8]) {
        if is_keepalive(flow, bytes) {
            return;
        }
        let found = &mut self.found;
        found.now = now;
        self.conservation.on_sent(now, from, flow, bytes);
        let Some(&role) = self.roles.get(&from) else { return };
        let Some(seen) = Seen::read(now, from, role, bytes) else {
            // The rejection of a request with invalid Vias copies these Vias, by RFC 3261 §8.2.6.2.
            let is_rejection = bytes.starts_with(b"SIP/2.0 4") || bytes.starts_with(b"SIP/2.0 5");
            if !is_rejection {
                let what = "it sends a packet that is not SIP".to_owned();
                found.report(provenance::NAME, Some(from), what);
            }
            return;
        };
        self.conservation.on_seen(&seen);
        let origin = self.provenance.origin(&seen);
        provenance::check(&seen, &origin, found);
        forwarding::check(&seen, &origin, found);
        self.finals.on_sent(&seen, (flow, &origin), &self.lives, found);
        self.answers.on_sent(&seen);
        self.hops.on_sent(&seen, origin.copies(), found);
        self.calls.on_sent(&seen, flow.transport);
        self.leases.on_sent(&seen, flow);
        self.innocents.on_sent(&seen, &self.fronts);
        let Some(front) = self.fronts.get(&from) else { return };
        self.limits.on_sent(&seen, flow.remote, front, found);
        if self.innocents.has(&seen) || seen.is_probe() {
            self.exclusion.on_sent(&seen, flow.remote, front);
        }
        if !self.parties.contains(&flow.remote) {
            self.shares.on_sent(&seen, flow.remote.ip(), front, found);
            // Only datagrams can go to a victim. Bytes on a connection go to its peer.
            if front.keeps_accounts && !flow.transport.is_reliable() {
                self.amplification.on_sent(&seen, flow.remote, bytes.len(), found);
            }
        }
    }

    fn delivered(&mut self, now: Timestamp, to: NodeId, flow: Flow, bytes: &[u8]) {
        if is_keepalive(flow, bytes) {
            return;
        }
        let found = &mut self.found;
        found.now = now;
        self.conservation.on_delivered(now, to, flow, bytes, found);
        let Some(&role) = self.roles.get(&to) else { return };
        let seen = Seen::read(now, to, role, bytes);
        if self.fronts.contains_key(&to) && !self.parties.contains(&flow.remote) {
            let read = (bytes.len(), seen.as_ref());
            self.amplification.on_delivered(now, to, flow.remote, read);
            if let Some(seen) = &seen {
                self.shares.on_delivered(seen, flow.remote.ip());
            }
        }
        let Some(seen) = seen else { return };
        self.provenance.on_delivered(&seen);
        self.finals.on_delivered(&seen);
        self.hops.on_delivered(&seen, flow.remote);
        self.calls.on_delivered(&seen, found);
        self.leases.on_delivered(&seen, flow);
        self.innocents.on_delivered(&seen, &self.fronts);
        let Some(front) = self.fronts.get(&to) else { return };
        self.limits.on_delivered(&seen, flow.remote, front, &self.lives, found);
        if self.innocents.has(&seen) || seen.is_probe() {
            self.exclusion.on_delivered(&seen, flow.remote, front);
        }
    }

    fn lost(&mut self, now: Timestamp, why: Loss, flow: Flow, bytes: &[u8]) {
        if is_keepalive(flow, bytes) {
            return;
        }
        self.found.now = now;
        self.conservation.on_lost(now, why, flow, bytes, &mut self.found);
        self.innocents.on_lost(now, why, flow, bytes, &mut self.found);
        for (node, front) in &self.fronts {
            let other = match front.address {
                address if address == flow.local => flow.remote,
                address if address == flow.remote => flow.local,
                _ => continue,
            };
            if let Some(backend) = front.backend_at(other) {
                self.exclusion.on_lost(now, *node, backend);
            }
        }
    }
}
