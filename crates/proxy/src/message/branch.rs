//! The branch of a request that we forward without state. It contains everything that is needed to
//! forward the response. For the branch of a request with a transaction see `transaction_branch`.
//!
//! The branch has `z9hG4bK` and 24 characters (18 bytes): version and listener, shard, identity of
//! the request, MAC. If the listener has a wildcard address, the branch also holds the local
//! address to which the request was sent. This address stands before the MAC and is encrypted,
//! because callers must not learn it. The branch depends only on the received request, as RFC 3261
//! §16.11 requires of a proxy without transactions. Retransmissions, and the ACK and CANCEL of an
//! INVITE, get the branch of their INVITE from any process with our key. So no part of the branch
//! may come from a table. If the same INVITE arrived with another branch at a callee that still
//! rings, the callee would reject it as a merged request (§8.2.2.2). The MAC authenticates the
//! branch: a message that contains it is a response to a request that we forwarded.
//!
//! All datagrams from one address and port arrive at the same shard, so the branch may contain the
//! shard. But each connection of a sender may belong to another shard. So the branch of a request
//! that came on a stream has a zero in place of the shard, and the parameter `flow` beside the
//! branch names the shard (see `flow_param`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tidegate_transaction::COOKIE;

use crate::keys::Keys;
use crate::keys::text64::{decode, encode, text_len};

const VERSION: u8 = 1;

/// Length in bytes of the part of a branch before the optional local address. The MAC is at the end
/// of the branch.
const HEAD: usize = 10;
const MAC: usize = 8;
const RAW_MAX: usize = HEAD + size_of::<Ipv6Addr>() + MAC;
const ENCODED_MAX: usize = text_len(RAW_MAX);

/// Maximum number of listeners: a branch has four bits for the listener.
pub const LISTENERS_MAX: usize = 16;
/// Maximum number of shards: a branch and a token have one byte for the shard.
pub const SHARDS_MAX: u16 = 256;

/// The content of the branch of a request that is forwarded without state.
///
/// RFC 3261 §16.6: "In particular, CANCEL and ACK requests (for non-2xx responses) MUST have the
/// same branch value as the corresponding request they cancel or acknowledge."
///
/// RFC 3261 §16.11: "Thus for a stateless proxy, the branch parameter MUST be computed as a
/// combinatoric function of message parameters which are invariant on retransmission."
///
/// RFC 5393 §4.2.1: "CANCEL and non-200 ACK requests MUST have the same branch parameter value as
/// the corresponding request they cancel or acknowledge."
///
/// RFC 3261 §16.11: "Therefore, the component of the branch parameter that makes it unique MUST be
/// the same each time a retransmitted request is forwarded."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The listener that received the request and from which its responses are sent.
    pub(crate) listener: u8,
    /// The local address to which the request was sent, if the listener has a wildcard address.
    pub(crate) asked: Option<IpAddr>,
    /// The shard to which the call belongs, or 0 if the request came on a stream.
    pub(crate) shard: u8,
    /// Keyed hash of the branch in the received request.
    pub(crate) identity: u64,
}

/// The value of a branch parameter of a Via, as text.
#[derive(Clone)]
pub(crate) struct BranchText {
    text: [u8; COOKIE.len() + ENCODED_MAX],
    length: usize,
}

impl BranchText {
    /// Returns the text of the branch whose content is `raw`, at most [`RAW_MAX`] bytes.
    pub(crate) fn of(raw: &[u8]) -> Self {
        let mut text = [0; COOKIE.len() + ENCODED_MAX];
        text[..COOKIE.len()].copy_from_slice(COOKIE);
        let length = COOKIE.len() + encode(raw, &mut text[COOKIE.len()..]);
        Self { text, length }
    }

    /// Returns a copy of a received branch, or `None` if it is longer than any branch of this
    /// proxy.
    pub(crate) fn copied(branch: &[u8]) -> Option<Self> {
        let mut text = [0; COOKIE.len() + ENCODED_MAX];
        text.get_mut(..branch.len())?.copy_from_slice(branch);
        Some(Self { text, length: branch.len() })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

impl Branch {
    /// Returns the branch for a request whose response goes to `target`.
    pub(crate) fn encode(&self, keys: &Keys, target: SocketAddr) -> BranchText {
        let mut raw = [0; RAW_MAX];
        raw[0] = VERSION << 4 | self.listener;
        raw[1] = self.shard;
        raw[2..HEAD].copy_from_slice(&self.identity.to_be_bytes());
        let end = match self.asked {
            None => HEAD,
            Some(IpAddr::V4(ip)) => put(&mut raw, HEAD, &ip.octets()),
            Some(IpAddr::V6(ip)) => put(&mut raw, HEAD, &ip.octets()),
        };
        let mac = mac(keys, &raw[..end], target);
        keys.veil.veil(mac, &mut raw[HEAD..end]);
        let end = put(&mut raw, end, &mac.to_be_bytes());

        BranchText::of(&raw[..end])
    }

    /// Returns the content of the branch in `text`, if our key made it for a response that goes to
    /// `target`.
    pub(crate) fn decode(text: &[u8], keys: &Keys, target: SocketAddr) -> Option<Self> {
        let encoded = text.strip_prefix(COOKIE)?;
        let mut raw = [0; RAW_MAX];
        let length = decode(encoded, &mut raw)?;
        let (raw, mac) = raw[..length].split_last_chunk_mut::<MAC>()?;
        let mac = u64::from_be_bytes(*mac);
        let (head, asked) = raw.split_first_chunk_mut::<HEAD>()?;
        if head[0] >> 4 != VERSION {
            return None;
        }
        keys.veil.veil(mac, asked);
        if mac != self::mac(keys, raw, target) {
            return None;
        }
        let (head, asked) = raw.split_first_chunk::<HEAD>()?;
        let asked = match asked.len() {
            0 => None,
            4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(asked).ok()?).into()),
            _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(asked).ok()?).into()),
        };
        Some(Self {
            listener: head[0] & 0xf,
            asked,
            shard: head[1],
            identity: u64::from_be_bytes(head[2..].try_into().ok()?),
        })
    }
}

/// Returns the MAC of a branch, which also covers the target of the response. Otherwise an attacker
/// that has seen one of our branches could make us send responses to any address, by naming this
/// address in the Via below ours.
pub(crate) fn mac(keys: &Keys, content: &[u8], target: SocketAddr) -> u64 {
    let port = target.port().to_be_bytes();
    match target.ip() {
        IpAddr::V4(ip) => keys.branch.hash(&[content, &ip.octets(), &port]),
        IpAddr::V6(ip) => keys.branch.hash(&[content, &ip.octets(), &port]),
    }
}

/// Writes `bytes` at `from` and returns the position after them.
fn put(raw: &mut [u8; RAW_MAX], from: usize, bytes: &[u8]) -> usize {
    let end = from + bytes.len();
    raw[from..end].copy_from_slice(bytes);
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Secret;

    fn keys(byte: u8) -> Keys {
        Keys::new(&Secret::of([byte; 32]), 0)
    }

    fn target() -> SocketAddr {
        "198.51.100.7:5060".parse().unwrap()
    }

    const BRANCH: Branch =
        Branch { listener: 3, asked: None, shard: 200, identity: 0x0123_4567_89ab_cdef };

    fn branches() -> [Branch; 3] {
        let ips = [None, Some("192.0.2.1"), Some("2001:db8::1")];
        ips.map(|ip| Branch { asked: ip.map(|ip| ip.parse().unwrap()), ..BRANCH })
    }

    #[test]
    fn decodes_to_what_was_encoded() {
        for (branch, length) in branches().into_iter().zip([24, 30, 46]) {
            let text = branch.encode(&keys(1), target());
            assert_eq!(text.as_bytes().len(), COOKIE.len() + length);
            assert_eq!(Branch::decode(text.as_bytes(), &keys(1), target()), Some(branch));
        }
    }

    #[test]
    fn any_other_text_is_not_ours() {
        let keys1 = keys(1);
        for branch in branches() {
            let text = branch.encode(&keys1, target());
            assert_eq!(Branch::decode(text.as_bytes(), &keys(2), target()), None, "another key");
            let elsewhere = "198.51.100.7:5061".parse().unwrap();
            assert_eq!(Branch::decode(text.as_bytes(), &keys1, elsewhere), None, "another target");
            for i in 0..text.as_bytes().len() {
                let mut forged = text.as_bytes().to_vec();
                forged[i] = if forged[i] == b'A' { b'B' } else { b'A' };
                assert_eq!(Branch::decode(&forged, &keys1, target()), None, "changed at {i}");
            }
            for short in 0..text.as_bytes().len() {
                assert_eq!(Branch::decode(&text.as_bytes()[..short], &keys1, target()), None);
            }
            let long = [text.as_bytes(), b"AAAA"].concat();
            assert_eq!(Branch::decode(&long, &keys1, target()), None);
        }
    }
}
