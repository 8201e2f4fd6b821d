//! `hops`: an ACK or CANCEL of one hop belongs to an INVITE, and retransmissions are limited.
//!
//! The checker watches every node that keeps client transactions: callers, answerers (for their
//! BYEs) and stateful proxies.
//!
//! - RFC 3261 §17.1.1.3: the ACK to a final response other than 2xx has the branch of its INVITE
//!   and the To-tag of that response, which has arrived before. There is one exception. A restarted
//!   process forwards the rejections of all branches of a fork, and forwards the ACK to one of them
//!   to every branch that was rejected. The To-tag of this ACK may be that of a rejection of any
//!   branch. The process must do so, because a client repeats its first ACK for any further
//!   rejection (§17.1.1.2), and the branch alone identifies the INVITE (§17.2.3).
//! - §9.1: "If no provisional response has been received, the CANCEL request MUST NOT be sent"; it
//!   has the branch and the Request-URI of its INVITE.
//! - §17.1.1.2: Timer A doubles from T1 until Timer B fires at 64·T1. So an INVITE is sent at most
//!   7 times. §17.1.2.2: any other request is sent at most 11 times, because Timer E stops doubling
//!   at T2. If a proxy forwards a request without a transaction, the copies that it received are
//!   allowed in addition. A copy that is served more than 64·T1 after the first one starts another
//!   transaction. Its transmissions and its CANCEL are counted from zero. The BYE of a caller is
//!   not checked, because every copy of a 2xx whose dialog the call does not keep causes one
//!   (§13.2.2.4).
//! - §9.1, §16.11: a proxy without transactions gives a CANCEL the branch that the INVITE got.
//!   Otherwise the CANCEL would match no transaction at the next element. This is asserted if no
//!   back end was replaced, and for a CANCEL that comes from the source of its INVITE. Another
//!   sender cannot cancel the request, even if it knows the Via of the INVITE.
//!
//! A restarted proxy does not know the requests of its predecessor, so it can neither acknowledge
//! nor cancel them. Therefore the rules also apply after a crash.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use super::recent::Recent;
use super::seen::{Seen, Transaction};
use super::{Findings, Role};
use crate::node_id::NodeId;

/// The checker's name.
pub const NAME: &str = "hops";

/// Maximum number of transmissions of an INVITE: at 0, 1, 3, 7, 15, 31 and 63 T1.
const INVITES_MAX: u32 = 7;

/// Maximum number of transmissions of any other request: at 0, 1, 3 and 7 T1, and then every T2 =
/// 8·T1 up to 63.
const OTHERS_MAX: u32 = 11;

/// Time after which a client transaction gives up: 64·T1, Timers B and F (RFC 3261 §17.1.1.2,
/// §17.1.2.2). This value is a little less, because the timers begin when the proxy serves the
/// request, and an emulated processor sends it later. The last retransmission is sent 63·T1 after
/// the request.
const PATIENCE: Duration = Duration::from_millis(31_900);

/// Maximum number of To-tags of rejections, and maximum number of branches, that the checker
/// remembers for one request.
const REMEMBERED_MAX: usize = 32;

/// A request that a node has sent, and the responses to it.
#[derive(Debug, Default)]
struct Sent {
    times: u32,
    /// Start of the current transaction with this branch.
    since: Timestamp,
    /// Number of earlier transactions with this branch.
    over: u32,
    uri: u64,
    has_provisional: bool,
    rejections: Vec<Option<u64>>,
}

#[derive(Debug, Default)]
pub(super) struct Hops {
    sent: Recent<Transaction, Sent>,
    /// To-tags of the rejections of all branches of a forwarded INVITE, by the node and the Via
    /// with which the INVITE came.
    rejected: Recent<(NodeId, u64), Vec<Option<u64>>>,
    /// The INVITEs that a stateless proxy has forwarded, by the Via with which they came.
    given: Recent<(NodeId, u64), ForwardedInvite>,
}

/// An INVITE that a stateless proxy has forwarded.
#[derive(Debug, Default)]
struct ForwardedInvite {
    from: Option<SocketAddr>,
    /// The branches with which the INVITE was forwarded.
    branches: Vec<u64>,
    /// True if a CANCEL has come from another source than the INVITE.
    has_forgery: bool,
}

impl Hops {
    pub(super) fn on_delivered(&mut self, seen: &Seen, from: SocketAddr) {
        let is_stateless = matches!(seen.role, Role::Proxy { stateful: false, .. });
        if is_stateless && seen.is_request() {
            self.on_passing(seen, from);
        }
        let Some(status) = seen.status().filter(|_| seen.method == Method::Invite) else { return };
        let Some(sent) = self.sent.get(seen.now, seen.transaction()) else { return };
        if status >= 300
            && let Some(&below) = seen.vias.get(1)
            && let Some(tags) = self.rejected.entry(seen.now, (seen.node, below))
            && tags.len() < REMEMBERED_MAX
        {
            tags.push(seen.to_tag);
        }
        match status {
            ..200 => sent.has_provisional = true,
            300.. if sent.rejections.len() < REMEMBERED_MAX => sent.rejections.push(seen.to_tag),
            _ => {}
        }
    }

    /// Records a request that arrives at a proxy without transactions.
    fn on_passing(&mut self, seen: &Seen, from: SocketAddr) {
        let key = (seen.node, seen.vias[0]);
        match seen.method {
            Method::Invite => {
                if let Some(given) = self.given.entry(seen.now, key) {
                    given.from.get_or_insert(from);
                }
            }
            Method::Cancel => {
                if let Some(given) = self.given.get(seen.now, key) {
                    given.has_forgery |= given.from != Some(from);
                }
            }
            _ => {}
        }
    }

    /// Checks a request that a node sends. `copies` is the number of times that the node has
    /// received the request, or 0 if the node does not forward it.
    pub(super) fn on_sent(&mut self, seen: &Seen, copies: u32, found: &mut Findings) {
        if !seen.is_request() {
            return;
        }
        let wrong = match seen.role {
            Role::Proxy { stateful: false, bridges: true, .. } => None,
            Role::Proxy { stateful: false, .. } => self.passes(seen),
            _ => self.begins(seen, copies),
        };
        if let Some(wrong) = wrong {
            found.report(
                NAME,
                Some(seen.node),
                format!("{:?} {}: {wrong}", seen.method, seen.cseq),
            );
        }
    }

    pub(super) fn unwatched(&self) -> u64 {
        self.sent.unwatched() + self.rejected.unwatched() + self.given.unwatched()
    }

    /// Checks a request that a node with client transactions sends, and counts its transmissions.
    /// Returns the violation, if any.
    fn begins(&mut self, seen: &Seen, copies: u32) -> Option<String> {
        let of_hop = seen.vias.len() == 1;
        let (node, branch, _) = seen.transaction();
        let invite = self.sent.get(seen.now, (node, branch, Method::Invite as u32));
        match (seen.method, invite) {
            // The ACK to a 2xx is a transaction of its own, which the checker does not watch.
            (Method::Ack, None) if !of_hop || seen.role == Role::Caller => return None,
            (Method::Ack, None) => return Some("there is no such INVITE".into()),
            // RFC 3261 §16.10 says that a proxy forwards a CANCEL for an unknown INVITE. A
            // restarted process does the same with the ACK to a rejection, under the branch of the
            // INVITE.
            (Method::Ack, Some(invite)) if !of_hop => {
                let is_rejected = !invite.rejections.is_empty();
                let tags = self.rejected.get(seen.now, (seen.node, seen.vias[1]));
                let is_rejections = tags.is_some_and(|tags| tags.contains(&seen.to_tag));
                return (!is_rejected || !is_rejections)
                    .then(|| "the ACK to a 2xx needs its own branch".into());
            }
            (Method::Ack, Some(invite)) => {
                let is_due = invite.rejections.contains(&seen.to_tag);
                return (!is_due)
                    .then(|| "the response that it acknowledges has not arrived".into());
            }
            // RFC 3261 §16.10: a proxy forwards a CANCEL for which it has no response context.
            (Method::Cancel, _) if !of_hop => return None,
            (Method::Cancel, None) => return Some("there is no such INVITE".into()),
            (Method::Cancel, Some(invite)) if !invite.has_provisional => {
                return Some("no provisional response has arrived".into());
            }
            (Method::Cancel, Some(invite)) if invite.uri != seen.uri => {
                return Some("its Request-URI is not that of the INVITE".into());
            }
            _ => {}
        }
        let (times, over) = self.count(seen, copies)?;
        let times_max = match seen.method {
            Method::Invite => INVITES_MAX,
            // There is one BYE for each copy of a 2xx whose dialog the call does not keep
            // (§13.2.2.4).
            Method::Bye if seen.role == Role::Caller => return None,
            _ => OTHERS_MAX + copies.saturating_sub(over),
        };
        (times == times_max + 1).then(|| format!("it is sent more than {times_max} times"))
    }

    /// Counts a transmission of a request. Returns the number of its transmissions in the current
    /// client transaction, and the number of earlier transactions with the same branch.
    fn count(&mut self, seen: &Seen, copies: u32) -> Option<(u32, u32)> {
        let (node, branch, _) = seen.transaction();
        let sent = self.sent.entry(seen.now, seen.transaction())?;
        let is_over = copies > sent.over + 1 && seen.now >= sent.since + PATIENCE;
        if sent.times == 0 {
            sent.since = seen.now;
        } else if is_over {
            (sent.times, sent.since, sent.over) = (0, seen.now, sent.over + 1);
        }
        (sent.times, sent.uri) = (sent.times + 1, seen.uri);
        let counts = (sent.times, sent.over);
        let cancel = (node, branch, Method::Cancel as u32);
        if is_over
            && seen.method == Method::Invite
            && let Some(cancel) = self.sent.get(seen.now, cancel)
        {
            cancel.times = 0;
        }
        Some(counts)
    }

    /// Records the branch of an INVITE that a proxy without transactions forwards, and checks the
    /// branch of a CANCEL. Returns the violation, if any.
    fn passes(&mut self, seen: &Seen) -> Option<String> {
        let key = (seen.node, *seen.vias.get(1)?);
        match seen.method {
            Method::Invite => {
                let given = self.given.entry(seen.now, key)?;
                let branches = &mut given.branches;
                if !branches.contains(&seen.vias[0]) && branches.len() < REMEMBERED_MAX {
                    branches.push(seen.vias[0]);
                }
                None
            }
            Method::Cancel => {
                let given = self.given.get(seen.now, key)?;
                // If the proxy has rejected the INVITE, it has not forwarded it with any branch.
                let is_other =
                    !given.branches.is_empty() && !given.branches.contains(&seen.vias[0]);
                (is_other && !given.has_forgery)
                    .then(|| "its branch is not that of its INVITE".into())
            }
            _ => None,
        }
    }
}
