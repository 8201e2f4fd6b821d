//! `finals`: a request gets one final response, and no provisional response after it.
//!
//! The checker watches each answerer, and the upstream side of each proxy that keeps transactions.
//! It identifies a request by the branch and sent-by of its top Via and by its method (RFC 3261
//! §17.2.3).
//!
//! - RFC 3261 §17.2.1, §17.2.2: a retransmitted final response is the same, byte for byte. A copy
//!   of a 503 without a transaction (§8.2.7) has the same To-tag, but may name another cause.
//! - §16.7 item 5: after a final response only a 2xx to an INVITE may follow. A fork may bring
//!   several of these (§13.2.2.4), each with another To-tag.
//! - §17.2.1: a provisional response is only sent in the Proceeding state, before any final one.
//!
//! A transaction ends 64·T1 after its final response (Timers H, J and L), or T4 after the ACK to a
//! rejection (Timer I). A copy of the request that arrives later, from a slow link or a queue,
//! starts another transaction. The node may not have read the ACK, for example because its queue was
//! full. So copies of the final response of the earlier transaction may still follow.
//!
//! Nothing is asserted here about a proxy without transactions, because it forwards all responses
//! (§16.11). [`provenance`](super::provenance) watches it. These responses are exempt:
//!
//! - A 503, if the proxy does not remember its rejections. Then the gate decides again on each
//!   retransmission of the request.
//! - After a crash of the proxy, the responses to requests that first came before the restart. The
//!   restarted proxy forwards responses to requests of the earlier process.
//! - The responses of answerers to BYEs, if any node has crashed or if there are streams. Then one
//!   BYE may reach an answerer in two transactions, and the second may exist longer than the call.
//! - A 481 of a proxy to a CANCEL. Our proxy answers a CANCEL as long as it knows the INVITE, and
//!   forwards a copy that comes later (§16.10). The response to a copy of a CANCEL from another
//!   address goes to that address, which is then in the Via (§18.2.1). So only the status and the
//!   To-tag of that response are compared.
//! - A 481 of a proxy to a BYE. The proxy sends it without a transaction, for a dialog that it does
//!   not know, because a fork may set up more dialogs than a call keeps. When one of the kept
//!   dialogs ends, the proxy records another one. A caller sends a BYE for each copy of a 2xx whose
//!   dialog it does not keep (§13.2.2.4), all in one transaction. So the proxy may forward a later
//!   BYE of this transaction.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sip::Method;
use tidegate_world::{Flow, Timestamp};

use super::lives::Lives;
use super::provenance::Origin;
use super::recent::Recent;
use super::seen::{Seen, Transaction};
use super::{Findings, Role};

/// The checker's name.
pub const NAME: &str = "finals";

/// Maximum number of branches that may answer one INVITE with 2xx: as many as the back ends to
/// which a pool can fork.
const FORKS_MAX: usize = 32;

/// Time for which a server transaction lasts after its final response over UDP: 64·T1, Timers H, J
/// and L (RFC 3261 §17.2.1, §17.2.2, RFC 6026 §8.7). This value is a second less, because the
/// timers begin when the response is made, and an emulated processor sends it later.
const LINGER: Duration = Duration::from_secs(31);

/// Time for which a server transaction lasts after the ACK to a rejection over UDP: T4, Timer I
/// (RFC 3261 §17.2.1). This value is a second less, for the same reason as [`LINGER`].
const LINGER_ACKNOWLEDGED: Duration = Duration::from_secs(4);

/// The responses of one node to one request.
#[derive(Debug, Default)]
struct Answered {
    /// Time at which the first copy of the request arrived.
    asked: Timestamp,
    /// End of the server transaction, or `None` before the final response.
    over: Option<Timestamp>,
    /// The final response, or `None` if there is none. A 2xx to an INVITE is in `successes`
    /// instead.
    last: Option<Last>,
    /// The final response of the transaction before this one, like `last`.
    earlier: Option<Last>,
    /// Hashes of the To-tag and of the bytes of each 2xx to an INVITE.
    successes: Vec<(u64, u64)>,
}

/// The properties of a final response that its copies must share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    status: u16,
    to_tag: u64,
    whole: u64,
    /// Address to which the node sent the response.
    to: SocketAddr,
}

#[derive(Debug, Default)]
pub(super) struct Finals {
    answered: Recent<Transaction, Answered>,
    /// True if any node has sent a response on a stream.
    has_streams: bool,
}

impl Finals {
    pub(super) fn on_delivered(&mut self, seen: &Seen) {
        if !seen.is_request() {
            return;
        }
        if seen.method == Method::Ack {
            let (node, branch, _) = seen.transaction();
            let invite = self.answered.get(seen.now, (node, branch, Method::Invite as u32));
            if let Some(invite) = invite.filter(|invite| invite.last.is_some()) {
                let over = seen.now + LINGER_ACKNOWLEDGED;
                invite.over = invite.over.map(|until| until.min(over));
            }
            return;
        }
        if let Some(answered) = self.answered.entry(seen.now, seen.transaction())
            && answered.asked == Timestamp::ZERO
        {
            answered.asked = seen.now;
        }
    }

    pub(super) fn on_sent(
        &mut self,
        seen: &Seen,
        (flow, origin): (Flow, &Origin),
        lives: &Lives,
        found: &mut Findings,
    ) {
        let Some(status) = seen.status() else { return };
        let is_reliable = flow.transport.is_reliable();
        self.has_streams |= is_reliable;
        let exempt = match seen.role {
            Role::Caller | Role::Proxy { stateful: false, .. } => true,
            Role::Answerer { roomy } => {
                // A caller that has ended a call sends its BYE for each copy of the 2xx. On
                // streams, and after a crash, each BYE is another transaction at the proxies before
                // this node.
                !roomy && status == 503
                    || seen.method == Method::Bye && (self.has_streams || lives.has_any_crashed())
            }
            Role::Proxy { sticky, roomy, .. } => {
                !sticky && status == 503
                    || !roomy && seen.method == Method::Bye
                    || seen.method == Method::Cancel && status == 481
            }
        };
        if exempt {
            return;
        }
        let Some(answered) = self.answered.entry(seen.now, seen.transaction()) else { return };
        if lives.is_of_another_life(seen.node, answered.asked) {
            return;
        }
        let is_unknown =
            seen.method == Method::Bye && status == 481 && matches!(origin, Origin::Own);
        if is_unknown && answered.over.is_none() {
            return;
        }
        if answered.over.is_some_and(|over| over <= seen.now) {
            if answered.knows(seen, status) {
                return;
            }
            answered.begin_again();
        }
        if answered.knows_from_earlier(seen, status) {
            return;
        }
        let wrong = answered.take(seen, status, flow.remote);
        if status >= 200 && answered.over.is_none() {
            // RFC 3261 §17.2.2: Timer J fires in "zero seconds for reliable transports".
            let is_over = is_reliable && seen.method != Method::Invite;
            answered.over = Some(if is_over { seen.now } else { seen.now + LINGER });
        }
        if let Some(wrong) = wrong {
            let first = answered.over.unwrap_or(seen.now) - LINGER;
            let what = format!("{:?} {}: {wrong} of {first:?}", seen.method, seen.cseq);
            found.report(NAME, Some(seen.node), what);
        }
    }

    pub(super) fn unwatched(&self) -> u64 {
        self.answered.unwatched()
    }
}

impl Answered {
    /// Returns whether the response is a copy of a final response that the node has already sent.
    fn knows(&self, seen: &Seen, status: u16) -> bool {
        let success = (seen.to_tag.unwrap_or_default(), seen.whole);
        let is_last = |last: Last| (last.status, last.whole) == (status, seen.whole);
        self.last.is_some_and(is_last) || self.successes.contains(&success)
    }

    /// Starts the next transaction of the same request.
    fn begin_again(&mut self) {
        let earlier = self.last.or(self.earlier);
        *self = Self { asked: self.asked, earlier, ..Self::default() };
    }

    /// Returns whether the response is a copy of the final response of the earlier transaction.
    fn knows_from_earlier(&self, seen: &Seen, status: u16) -> bool {
        self.earlier.is_some_and(|last| (last.status, last.whole) == (status, seen.whole))
    }

    /// Records a response that the node sends to the address `to`. Returns the violation, if any.
    fn take(&mut self, seen: &Seen, status: u16, to: SocketAddr) -> Option<String> {
        let before = self.last.map(|last| last.status);
        let before = before.or((!self.successes.is_empty()).then_some(200));
        let to_tag = seen.to_tag.unwrap_or_default();
        let this = Last { status, to_tag, whole: seen.whole, to };
        match status {
            ..200 => before.map(|before| format!("{status} after its final response {before}")),
            200..300 if seen.method == Method::Invite => {
                let tag = seen.to_tag.unwrap_or_default();
                match self.successes.iter().find(|(known, _)| *known == tag) {
                    Some(&(_, whole)) if whole == seen.whole => None,
                    Some(_) => Some(format!("two different {status} of one To-tag")),
                    None if self.successes.len() == FORKS_MAX => {
                        Some(format!("2xx from more than {FORKS_MAX} To-tags"))
                    }
                    None => {
                        self.successes.push((tag, seen.whole));
                        None
                    }
                }
            }
            _ => match (self.last, before) {
                (Some(last), _) if last.is_repeated_by(&this, seen.method) => None,
                (_, Some(before)) => Some(format!("{status} after its final response {before}")),
                (_, None) => {
                    self.last = Some(this);
                    None
                }
            },
        }
    }
}

impl Last {
    /// Returns whether `other` is a copy of this response.
    fn is_repeated_by(&self, other: &Self, method: Method) -> bool {
        let is_elsewhere = method == Method::Cancel && self.to != other.to;
        self.status == other.status
            && self.to_tag == other.to_tag
            && (self.whole == other.whole || self.status == 503 || is_elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_id::NodeId;

    fn response(status: u16, to_tag: &str) -> Seen {
        let text = format!(
            "SIP/2.0 {status} X\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nFrom: <sip:a@a>;tag=1\r\n\
             To: <sip:b@b>;tag={to_tag}\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\n\r\n"
        );
        let role = Role::Proxy { stateful: true, bridges: false, sticky: true, roomy: true };
        Seen::read(Timestamp::ZERO, NodeId::new(0), role, text.as_bytes()).unwrap()
    }

    /// A rejection is acknowledged, but the proxy does not read the ACK. A 2xx of a slow branch
    /// comes after Timer I would have fired. Timer G then sends the rejection again.
    #[test]
    fn a_rejection_is_repeated_if_its_ack_was_not_read() {
        let to = "10.0.0.1:5060".parse().unwrap();
        let mut answered = Answered::default();
        let (rejection, success) = (response(500, "p"), response(200, "b"));
        assert_eq!(answered.take(&rejection, 500, to), None);
        answered.begin_again();
        assert!(!answered.knows_from_earlier(&success, 200));
        assert_eq!(answered.take(&success, 200, to), None);
        assert!(answered.knows_from_earlier(&rejection, 500));
        let other = response(500, "q");
        assert!(!answered.knows_from_earlier(&other, 500));
        assert!(answered.take(&other, 500, to).is_some());
    }
}
