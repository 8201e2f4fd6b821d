//! `amplification`: whoever has proved nothing gets little more than it sends.
//!
//! Over UDP the source of a request may be forged, so what a proxy sends to an address may be sent
//! to a victim. A request is owed an answer all the same: each provisional status
//! once, the final response, and one repetition of it. Of what goes to an address beyond that, such as
//! further repetitions and what other branches of a fork bring, there is no more than [`FACTOR`] times
//! the bytes that came from there, as QUIC has it (RFC 9000 §8: "three times the amount of data"),
//! until somebody at the address has shown that it hears what is sent there: by a request with a
//! To-tag that was sent there.
//!
//! Responses are counted. The requests of back ends are not, such as the BYE by which an answerer ends
//! a call whose 2xx nobody has acknowledged (RFC 3261 §13.3.1.4), with its repetitions: a caller whose
//! ACK takes another way needs them.
//!
//! Not asserted of a proxy without transactions whose table of calls is small: it forgets ended calls
//! for want of room, and passes on what is repeated of them.
//!
//! Asserted of addresses where strangers are, or nobody: crowds and back ends acknowledge what they
//! get, or a network loses it. A crash forgets what came: its successor passes on responses to
//! what its predecessor sent, so addresses from before are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use tidegate_world::Timestamp;

use super::Findings;
use super::recent::Recent;
use super::seen::{Kind, Seen};
use crate::node_id::NodeId;

/// The checker's name.
pub const NAME: &str = "amplification";

/// Bytes sent for each byte received, at the most, beyond what is owed (RFC 9000 §8.1).
pub const FACTOR: u64 = 3;

/// Final responses that a request is owed.
const FINALS: u64 = 2;

#[derive(Debug, Default)]
struct Account {
    received: u64,
    /// Bytes sent beyond what was owed.
    beyond: u64,
    /// The requests that came, by branch.
    requests: BTreeSet<u64>,
    /// Responses that were sent, by status; all final ones stand at 200.
    responses: BTreeMap<u16, u64>,
    /// To-tags that were sent there.
    tags: BTreeSet<u64>,
    has_proved: bool,
    is_reported: bool,
}

#[derive(Debug, Default)]
pub(super) struct Amplification {
    accounts: Recent<(NodeId, SocketAddr), Account>,
}

/// To-tags of one address that are remembered.
const TAGS_MAX: usize = 1024;

/// Requests of one address that are told apart: more than any stranger sends.
const REQUESTS_MAX: usize = 1 << 16;

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
        if seen.is_request() && account.requests.len() < REQUESTS_MAX {
            account.requests.insert(seen.vias[0]);
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
        let count = account.responses.entry(status).or_default();
        *count += 1;
        if *count > times * account.requests.len() as u64 {
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
                "{beyond} bytes more than it is owed go to {to}, from where {received} came and no proof"
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
