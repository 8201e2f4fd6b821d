//! `amplification`: whoever has proved nothing gets little more than it sends.
//!
//! Over UDP the source of a request may be forged, so what a proxy sends to an address may be sent
//! to a victim. Until somebody at the address has shown that it hears what is sent there (by a request
//! with a To-tag that was sent there, or by a response), a proxy sends no more than [`FACTOR`] times the
//! bytes that came from there, as QUIC does (RFC 9000 §8: "three times the amount of data"), and the
//! first responses. Repetitions of final responses count.
//!
//! Asserted of addresses where strangers are, or nobody: crowds and back ends acknowledge what they
//! get, or a network loses it. A crash forgets what came: its successor passes on responses to
//! what its predecessor sent, so addresses from before are left out.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use tidegate_world::Timestamp;

use super::Findings;
use super::recent::Recent;
use super::seen::Seen;
use crate::network::NodeId;

/// The checker's name.
pub const NAME: &str = "amplification";

/// Bytes sent for each byte received, at the most (RFC 9000 §8.1).
pub const FACTOR: u64 = 3;

/// Bytes of the first responses to an address: a 100, one provisional and one final response.
pub const FIRST: u64 = 2500;

#[derive(Debug, Default)]
struct Account {
    received: u64,
    sent: u64,
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
        let Some(account) = self.accounts.entry(seen.now, (seen.node, to)) else { return };
        account.sent += bytes as u64;
        if let Some(tag) = seen.to_tag
            && account.tags.len() < TAGS_MAX
        {
            account.tags.insert(tag);
        }
        let Account { received, sent, has_proved, is_reported, .. } = *account;
        if !has_proved && !is_reported && sent > FACTOR * received + FIRST {
            account.is_reported = true;
            let what = format!("{sent} bytes go to {to}, from where {received} came and no proof");
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
