//! `amplification`: an unverified source gets little more than it sends.
//!
//! Over UDP the source of a request may be forged, so the packets that a proxy sends to an address
//! may go to a victim. Nevertheless a proxy may answer each request with each provisional status
//! once, with the final response, and with one retransmission of the final response. All other
//! responses, such as further retransmissions and responses of other branches of a fork, are
//! limited: an address gets at most [`FACTOR`] times the bytes that came from it, as in QUIC (RFC
//! 9000 §8: "three times the amount of data"). The limit ends when a request with a To-tag that was
//! sent to the address comes from there: then its sender has shown that it receives messages.
//!
//! Only responses are counted. Requests of back ends are not counted, because a caller whose ACK
//! takes another path needs them. An example is the BYE, with its retransmissions, by which an
//! answerer ends a call whose 2xx was never acknowledged (RFC 3261 §13.3.1.4).
//!
//! The rule is not asserted for a proxy without transactions whose call table is small. Such a
//! proxy forgets ended calls because it has no room, and forwards their retransmissions.
//!
//! The rule is asserted for addresses of attackers, and for addresses where nothing listens. It is
//! not asserted for callers and back ends. They acknowledge the messages that they get, so a proxy
//! sends them more only if the network loses messages. After a crash, the received bytes are
//! forgotten, but the new process forwards responses to requests of its predecessor. So addresses
//! from before the crash are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_sip::Method;
use tidegate_world::Timestamp;

use super::Findings;
use super::recent::Recent;
use super::seen::{Kind, Seen, hash};
use crate::node_id::NodeId;

/// The checker's name.
pub const NAME: &str = "amplification";

/// Maximum number of bytes sent for each byte received, in addition to the responses that are
/// always allowed (RFC 9000 §8.1).
pub(crate) const FACTOR: u64 = 3;

/// Number of final responses that may be sent for a request in any case.
const FINALS: u64 = 2;

/// Time after which a provisional response may be sent again in any case.
// RFC 3261 §13.3.1.1: a UAS "MUST send a non-100 provisional response at every minute".
const PROVISIONAL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Account {
    /// Bytes received from the address.
    received: u64,
    /// Bytes sent to the address in addition to the responses that are always allowed.
    beyond: u64,
    /// Requests received, by [`identity`]. For each, the number of responses sent to it, and the
    /// time of the last allowed one, by status. All final responses count as 200.
    requests: BTreeMap<u64, BTreeMap<u16, (u64, Timestamp)>>,
    /// To-tags of the responses sent to this address, as hashes.
    tags: BTreeSet<u64>,
    has_proved: bool,
    is_reported: bool,
}

#[derive(Debug, Default)]
pub(super) struct Amplification {
    accounts: Recent<(NodeId, SocketAddr), Account>,
}

/// Maximum number of To-tags that the checker remembers for one address.
const TAGS_MAX: usize = 1024;

/// Maximum number of distinct requests of one address that the checker remembers. No attacker sends
/// more.
const REQUESTS_MAX: usize = 1 << 16;

/// Returns the identity that a request shares with its copies and its responses. The method is
/// needed because a CANCEL has the branch of its INVITE. The other parts are needed because a
/// branch without the magic cookie need not be unique (RFC 3261 §17.2.3).
fn identity(seen: &Seen) -> u64 {
    let from = seen.from_tag.unwrap_or_default().to_le_bytes();
    hash(&[&seen.vias[0].to_le_bytes(), &seen.request().to_le_bytes(), &from])
}

impl Amplification {
    pub(super) fn on_delivered(
        &mut self,
        now: Timestamp,
        to: NodeId,
        from: SocketAddr,
        (bytes, seen): (usize, Option<&Seen>),
    ) {
        let Some(account) = self.accounts.entry(now, (to, from)) else { return };
        account.received += bytes as u64;
        let Some(seen) = seen else { return };
        // RFC 3261 §17: an ACK gets no response.
        let gets_response = seen.is_request() && seen.method != Method::Ack;
        if gets_response && account.requests.len() < REQUESTS_MAX {
            account.requests.entry(identity(seen)).or_default();
        }
        let has_heard =
            seen.is_request() && seen.to_tag.is_some_and(|tag| account.tags.contains(&tag));
        account.has_proved |= has_heard;
    }

    pub(super) fn on_sent(
        &mut self,
        seen: &Seen,
        to: SocketAddr,
        bytes: usize,
        found: &mut Findings,
    ) {
        let (status, times) = match seen.kind {
            Kind::Response(status @ ..200) => (status, 1),
            Kind::Response(_) => (200, FINALS),
            Kind::Request => return,
        };
        let Some(account) = self.accounts.entry(seen.now, (seen.node, to)) else { return };
        let is_allowed = account.requests.get_mut(&identity(seen)).is_some_and(|responses| {
            let (count, last) = responses.entry(status).or_default();
            *count += 1;
            let is_due = status < 200 && seen.now.since(*last) >= PROVISIONAL;
            let is_allowed = *count <= times || is_due;
            if is_allowed {
                *last = seen.now;
            }
            is_allowed
        });
        if !is_allowed {
            account.beyond += bytes as u64;
        }
        if let Some(tag) = seen.to_tag
            && account.tags.len() < TAGS_MAX
        {
            account.tags.insert(tag);
        }
        let Account { received, beyond, has_proved, is_reported, .. } = *account;
        if !has_proved && !is_reported && beyond > FACTOR * received {
            account.is_reported = true;
            let what = format!(
                "{to} has sent {received} bytes and no proof that it receives, but gets {beyond} bytes \
                 beyond the allowed answers"
            );
            found.report(NAME, Some(seen.node), what);
        }
    }

    pub(super) fn crashed(&mut self, node: NodeId) {
        self.accounts.change(|(at, _), account| account.has_proved |= *at == node);
    }

    pub(super) fn unwatched(&self) -> u64 {
        self.accounts.unwatched()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Role;

    const BYTES: usize = 400;

    fn seen(start: &str, call: usize) -> Seen {
        let role = Role::Proxy { stateful: true, bridges: false, sticky: true, roomy: true };
        let text = format!(
            "{start}\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK{call}\r\n\
             From: <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\nCall-ID: {call}\r\n\
             CSeq: 1 INVITE\r\n\r\n"
        );
        Seen::read(Timestamp::ZERO, NodeId::new(1), role, text.as_bytes()).unwrap()
    }

    /// Returns the number of findings if an address sends a hundred requests. `finals` returns the
    /// number of final responses to a request.
    fn found(finals: impl Fn(usize) -> usize) -> usize {
        let address = "192.0.2.1:5060".parse().unwrap();
        let (mut checker, mut found) = (Amplification::default(), Findings::default());
        for call in 0..100 {
            let request = seen("INVITE sip:c@d SIP/2.0", call);
            checker.on_delivered(request.now, request.node, address, (BYTES, Some(&request)));
        }
        for call in 0..100 {
            for _ in 0..finals(call) {
                checker.on_sent(&seen("SIP/2.0 486 Busy", call), address, BYTES, &mut found);
            }
        }
        found.kept.len()
    }

    /// One request could once get the responses that other requests were allowed but did not get.
    #[test]
    fn each_request_allows_only_its_own_responses() {
        assert_eq!(found(|_| 2), 0);
        // 298 responses are beyond the allowed ones, which is less than three times the bytes.
        assert_eq!(found(|call| if call == 0 { 300 } else { 0 }), 0);
        assert_eq!(found(|call| if call == 0 { 400 } else { 0 }), 1);
    }

    #[test]
    fn a_provisional_response_may_come_again_each_minute() {
        let found = |pause_s: u64| {
            let address = "192.0.2.1:5060".parse().unwrap();
            let (mut checker, mut found) = (Amplification::default(), Findings::default());
            let request = seen("INVITE sip:c@d SIP/2.0", 1);
            checker.on_delivered(request.now, request.node, address, (BYTES, Some(&request)));
            for i in 0..10 {
                let now = Timestamp::ZERO + Duration::from_secs(i * pause_s);
                let ringing = Seen { now, ..seen("SIP/2.0 180 Ringing", 1) };
                checker.on_sent(&ringing, address, BYTES, &mut found);
            }
            found.kept.len()
        };
        assert_eq!((found(60), found(59)), (0, 1));
    }
}
