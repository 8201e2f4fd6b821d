//! `limits`: no request evades a limit by an unusual form.
//!
//! The checker counts the INVITEs that a proxy sends to a back end and that can create a dialog. It
//! counts them on the wire:
//!
//! - A copy has the same Call-ID, From-tag, CSeq, method and Request-URI (RFC 3261 §8.2.2.2: the
//!   same "From tag, Call-ID, and CSeq"), with any branch. Any other INVITE is new, unless its
//!   To-tag is that of a dialog which the back end has confirmed (§12.2.2). An INVITE with an
//!   unknown To-tag is new, because it causes work at the server in any case.
//! - `cps_max`: a back end gets no more new INVITEs than its rate allows. A burst may have as many
//!   as the rate allows in a tenth of a second, and at least two.
//! - `calls_max`: the number of calls that a back end got from this proxy and still has does not
//!   exceed its limit. A call starts when the proxy gets the 2xx. It ends when the proxy forwards a
//!   BYE with the tags of the call (§15: a BYE that matches no dialog ends none), or after the idle
//!   time. So a call counts only during the time in which the proxy can know of it, and a BYE with
//!   a wrong To-tag ends no call.
//! - Every forwarded new INVITE was admitted: the number of forwarded INVITEs is at most the number
//!   of INVITEs that the gate has counted. So they evaded neither the law nor the limits of
//!   sources. A gate shows its count a moment later ([`SHOWN_WITHIN`]), so the INVITEs forwarded
//!   until one check are compared with the count at the next check. An INVITE that was admitted but
//!   not forwarded, because its caller cancelled it or the proxy had no back end for it, can hide
//!   one that was forwarded without admission.
//!
//! After a crash these rules are not asserted for calls from before the crash, because the
//! restarted proxy has not counted them.
//! The rule `calls_max` is not asserted for proxies that were stalled or drained.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use super::Findings;
use super::books::ProxyBook;
use super::front::Front;
use super::lives::Lives;
use super::recent::Recent;
use super::seen::{Kind, Seen, hash};
use crate::node_id::NodeId;

/// The checker's name.
pub const NAME: &str = "limits";

/// Number of INVITEs by which a burst may exceed its limit, because INVITEs are forwarded a little
/// later than the proxy has counted them.
const SLACK: f64 = 2.0;

/// Maximum time from the admission of a request until the proxy's book (the counts that it reports
/// about itself) counts the request as admitted. The proxy updates this count when it next reads
/// the load, every 2 ms.
const SHOWN_WITHIN: Duration = Duration::from_millis(10);

/// A proxy, and the index of one of its back ends.
type BackendOf = (NodeId, usize);

/// A call that a back end has, derived from the packets.
#[derive(Debug)]
struct Held {
    from_tag: u64,
    to_tags: Vec<u64>,
    until: Timestamp,
}

/// The state of a leaky bucket that drains at `cps_max`: the time of its last update, and the
/// number of INVITEs in it.
#[derive(Debug, Default)]
struct Level {
    at: Timestamp,
    given: f64,
}

#[derive(Debug, Default)]
pub(super) struct Limits {
    /// New INVITEs that a proxy has sent to a back end: proxy, back end, and identity of the INVITE.
    /// Each INVITE has two entries: its identity with the Request-URI, and without.
    given: Recent<(NodeId, usize, u64), ()>,
    /// New INVITEs that a proxy has forwarded to any back end, by their identity.
    passed: Recent<(NodeId, u64), ()>,
    passed_count: BTreeMap<NodeId, u64>,
    /// Time of the last check of a proxy, and the number of INVITEs that the proxy had forwarded
    /// until then.
    looked: BTreeMap<NodeId, (Timestamp, u64)>,
    /// Dialogs that a response from a back end has created at a proxy: proxy, Call-ID, and the tag
    /// of the back end.
    dialogs: Recent<(NodeId, u64, u64), ()>,
    levels: BTreeMap<BackendOf, Level>,
    /// Calls that back ends have, by the hashes of Call-ID and From-tag, and the CSeq.
    held: BTreeMap<BackendOf, BTreeMap<(u64, u64, u32), Held>>,
    /// True while a back end has more calls than its limit. The checker reports each excess once.
    is_over: BTreeMap<BackendOf, bool>,
}

/// Returns the identity shared by all copies of one INVITE.
fn identity(seen: &Seen) -> u64 {
    let from = seen.from_tag.unwrap_or_default().to_le_bytes();
    let (call, cseq, uri) =
        (seen.call.to_le_bytes(), seen.cseq.to_le_bytes(), seen.uri.to_le_bytes());
    hash(&[&call, &from, &cseq, &uri])
}

impl Limits {
    /// Records a packet that a proxy sends: a BYE to any address, or an INVITE to a back end.
    pub(super) fn on_sent(
        &mut self,
        seen: &Seen,
        to: SocketAddr,
        front: &Front,
        found: &mut Findings,
    ) {
        if seen.is_request() && seen.method == Method::Bye {
            self.end(seen);
        }
        let Some(backend) = front.backend_at(to) else { return };
        if seen.is_request() && seen.method == Method::Invite && seen.vias.len() > 1 {
            self.give(seen, backend, front, found);
        }
    }

    /// Records a packet from a back end to a proxy.
    pub(super) fn on_delivered(
        &mut self,
        seen: &Seen,
        from: SocketAddr,
        front: &Front,
        lives: &Lives,
        found: &mut Findings,
    ) {
        let (Kind::Response(status @ 101..300), Some(backend)) =
            (seen.kind, front.backend_at(from))
        else {
            return;
        };
        let Some(tag) = seen.to_tag.filter(|_| seen.method == Method::Invite) else { return };
        let _ = self.dialogs.entry(seen.now, (seen.node, seen.call, tag));
        if status < 200 {
            return;
        }
        let party = (seen.node, backend);
        // A request that an earlier process has sent is not in the counts of this process.
        let key = (seen.node, backend, identity_of_response(seen));
        if self.given.get(seen.now, key).is_none() {
            return;
        }
        let calls = self.held.entry(party).or_default();
        calls.retain(|_, held| held.until > seen.now);
        let from_tag = seen.from_tag.unwrap_or_default();
        let held = calls.entry((seen.call, from_tag, seen.cseq)).or_insert_with(|| Held {
            from_tag,
            to_tags: Vec::new(),
            until: seen.now + front.idle_max,
        });
        if !held.to_tags.contains(&tag) {
            held.to_tags.push(tag);
        }
        let Some(calls_max) = front.calls_max.filter(|_| !lives.is_disturbed(seen.node)) else {
            return;
        };
        let count = calls.len() as u64;
        let was_over = self.is_over.insert(party, count > calls_max);
        if count > calls_max && was_over != Some(true) {
            let what = format!("{from} has {count} calls, but the limit is {calls_max}");
            found.report(NAME, Some(seen.node), what);
        }
    }

    /// Compares the number of INVITEs that a proxy has forwarded with the number that its gate has
    /// admitted.
    pub(super) fn look(&mut self, node: NodeId, book: &ProxyBook, found: &mut Findings) {
        let (at, passed) = self.looked.get(&node).copied().unwrap_or_default();
        if found.now < at + SHOWN_WITHIN {
            return;
        }
        let count = self.passed_count.get(&node).copied().unwrap_or_default();
        self.looked.insert(node, (found.now, count));
        if let Some(admitted) = book.admitted.filter(|&admitted| passed > admitted) {
            let what =
                format!("{passed} new INVITEs were forwarded, but only {admitted} were admitted");
            found.report(NAME, Some(node), what);
        }
    }

    /// Resets the counts of a crashed node.
    pub(super) fn crashed(&mut self, node: NodeId) {
        self.passed_count.remove(&node);
        self.looked.remove(&node);
        self.levels.retain(|(at, _), _| *at != node);
        self.held.retain(|(at, _), _| *at != node);
        self.given.forget(|(at, ..)| *at == node);
        self.passed.forget(|(at, _)| *at == node);
    }

    pub(super) fn unwatched(&self) -> u64 {
        self.given.unwatched() + self.passed.unwatched() + self.dialogs.unwatched()
    }

    fn give(&mut self, seen: &Seen, backend: usize, front: &Front, found: &mut Findings) {
        let (now, node) = (seen.now, seen.node);
        // Either end of a dialog may be the sender.
        let ends = [seen.to_tag, seen.from_tag].into_iter().flatten();
        let is_within = seen.to_tag.is_some()
            && ends.into_iter().any(|tag| self.dialogs.get(now, (node, seen.call, tag)).is_some());
        if is_within {
            return;
        }
        let identity = identity(seen);
        if self.passed.get(now, (node, identity)).is_none() {
            let _ = self.passed.entry(now, (node, identity));
            *self.passed_count.entry(node).or_default() += 1;
        }
        // A response has no Request-URI, so the identity for responses does not include it.
        let of_response = (node, backend, identity_of_response(seen));
        let key = (node, backend, identity);
        let is_new = self.given.get(now, key).is_none();
        let _ = self.given.entry(now, of_response);
        let _ = self.given.entry(now, key);
        let Some(cps_max) = front.cps_max.filter(|_| is_new) else { return };
        let level = self.levels.entry((node, backend)).or_default();
        let worn = now.since(level.at).as_secs_f64() * cps_max;
        (level.at, level.given) = (now, (level.given - worn).max(0.0) + 1.0);
        let at_once = (cps_max / 10.0).max(2.0);
        if level.given > at_once + SLACK {
            // Report each excess once.
            level.given = 0.0;
            let to = front.backends[backend];
            let what = format!("{to} gets more than {cps_max} new INVITEs/s");
            found.report(NAME, Some(node), what);
        }
    }

    /// Ends the calls that have the tags of a forwarded BYE.
    fn end(&mut self, seen: &Seen) {
        let (Some(from), Some(to)) = (seen.from_tag, seen.to_tag) else { return };
        let of_node = self.held.iter_mut().filter(|((node, _), _)| *node == seen.node);
        for (_, calls) in of_node {
            let of_call = (seen.call, 0, 0)..=(seen.call, u64::MAX, u32::MAX);
            let matches = |held: &Held| {
                held.from_tag == from && held.to_tags.contains(&to)
                    || held.from_tag == to && held.to_tags.contains(&from)
            };
            let ended: Vec<_> = calls
                .range(of_call)
                .filter(|(_, held)| matches(held))
                .map(|(key, _)| *key)
                .collect();
            for key in ended {
                calls.remove(&key);
            }
        }
    }
}

fn identity_of_response(seen: &Seen) -> u64 {
    let from = seen.from_tag.unwrap_or_default().to_le_bytes();
    let (call, cseq) = (seen.call.to_le_bytes(), seen.cseq.to_le_bytes());
    hash(&[&call, &from, &cseq])
}
