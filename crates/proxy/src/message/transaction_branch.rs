//! The branch of a request that we forward with a transaction: it identifies the transaction.
//!
//! The branch has `z9hG4bK` and 40 characters (30 bytes): version and listener, shard, process,
//! identity of the received request, tag of the target, hash for loop detection, MAC. Shard and
//! identity determine the response context (RFC 3261 §16.2), and the tag determines the target
//! within this context. The process shows whether the context can be one of ours. After a restart
//! the context does not exist, and the response is forwarded as if its request had been forwarded
//! without state.
//!
//! All parts can be derived again from a CANCEL of the request, from its target, and from the
//! numbers of the process and the shard. So a process can cancel a request that its predecessor sent
//! (see `lost`).

use std::net::{IpAddr, SocketAddr};

use tidegate_transaction::COOKIE;

use crate::keys::text64::decode;
use crate::keys::{Keys, ProcessMark};
use crate::message::branch::{BranchText, mac};

const VERSION: u8 = 4;
const CONTENT: usize = 22;
const RAW: usize = CONTENT + 8;
const ENCODED: usize = RAW / 3 * 4;

/// The content of the branch of a client transaction.
///
/// RFC 3261 §16.6: "A proxy choosing to detect loops SHOULD create a branch parameter separable
/// into two parts by the implementation." "The first part MUST satisfy the constraints of Section
/// 8.1.1.7 as described above."
///
/// RFC 5393 §4.2.1: "Such proxies SHOULD create a branch value separable into two parts in any
/// implementation-dependent way." "The first part of the branch value MUST satisfy the constraints
/// of Section 8.1.1.7."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionBranch {
    /// The listener that received the request.
    pub(crate) listener: u8,
    /// The shard that has the transaction.
    pub(crate) shard: u8,
    /// The process that made the branch.
    pub(crate) process: ProcessMark,
    /// Keyed hash of the branch in the received request. It identifies the response context.
    pub(crate) identity: u64,
    /// The tag of the target within the response context.
    pub(crate) tag: TargetTag,
    /// The hash that detects loops (RFC 5393 §4.2). It is the same each time the request arrives.
    pub(crate) loop_hash: u32,
}

/// A keyed hash that identifies one target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TargetTag([u8; 5]);

impl TargetTag {
    /// Returns the tag of `target` in the transaction with this identity. `nth` is the number of
    /// earlier branches of this transaction to the same address.
    ///
    /// The tag is a keyed hash. It does not reveal the address, and a receiver of one branch of a
    /// request cannot derive the tag of another.
    pub(crate) fn of(keys: &Keys, identity: u64, target: SocketAddr, nth: u8) -> Self {
        let [p0, p1] = target.port().to_be_bytes();
        let (identity, end) = (identity.to_be_bytes(), [p0, p1, nth]);
        let hash = match target.ip() {
            IpAddr::V4(ip) => keys.branch.hash(&[&identity, &ip.octets(), &end]),
            IpAddr::V6(ip) => keys.branch.hash(&[&identity, &ip.octets(), &end]),
        };
        let [a, b, c, d, e, ..] = hash.to_be_bytes();
        Self([a, b, c, d, e])
    }
}

impl TransactionBranch {
    /// Returns the branch of a request whose response goes to `target`.
    pub(crate) fn encode(&self, keys: &Keys, target: SocketAddr) -> BranchText {
        let mut raw = [0; RAW];
        raw[0] = VERSION << 4 | self.listener;
        raw[1] = self.shard;
        raw[2..5].copy_from_slice(&self.process);
        raw[5..13].copy_from_slice(&self.identity.to_be_bytes());
        raw[13..18].copy_from_slice(&self.tag.0);
        raw[18..CONTENT].copy_from_slice(&self.loop_hash.to_be_bytes());
        let mac = mac(keys, &raw[..CONTENT], target);
        raw[CONTENT..].copy_from_slice(&mac.to_be_bytes());
        BranchText::of(&raw)
    }

    /// Returns the branch in `text` if our key made it for a response that goes to `target`.
    pub(crate) fn decode(text: &[u8], keys: &Keys, target: SocketAddr) -> Option<Self> {
        let (content, mac) = Self::read(text)?;
        (mac == self::mac(keys, &content, target)).then(|| Self::of(&content))
    }

    /// Returns the content of the branch in `text` without checking its MAC.
    pub(crate) fn claimed(text: &[u8]) -> Option<Self> {
        let (content, _) = Self::read(text)?;
        Some(Self::of(&content))
    }

    /// Returns whether this process made the branch, not a previous one or another instance.
    pub(crate) fn is_own(&self, keys: &Keys) -> bool {
        self.process == keys.process
    }

    /// Returns the content and the MAC of the branch in `text` without checking the MAC, or `None`
    /// if the text does not have the form of our branches.
    fn read(text: &[u8]) -> Option<([u8; CONTENT], u64)> {
        let encoded = text.strip_prefix(COOKIE).filter(|encoded| encoded.len() == ENCODED)?;
        let mut raw = [0; RAW];
        decode(encoded, &mut raw)?;
        let (content, mac) = raw.split_at(CONTENT);
        let content: [u8; CONTENT] = content.try_into().ok()?;
        let mac = u64::from_be_bytes(mac.try_into().ok()?);
        (content[0] >> 4 == VERSION).then_some((content, mac))
    }

    fn of(content: &[u8; CONTENT]) -> Self {
        let [head, shard, p0, p1, p2, i0, i1, i2, i3, i4, i5, i6, i7, rest @ ..] = *content;
        let [t0, t1, t2, t3, t4, l0, l1, l2, l3] = rest;
        Self {
            listener: head & 0xf,
            shard,
            process: [p0, p1, p2],
            identity: u64::from_be_bytes([i0, i1, i2, i3, i4, i5, i6, i7]),
            tag: TargetTag([t0, t1, t2, t3, t4]),
            loop_hash: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Secret;

    fn keys(secret: u8, process: u64) -> Keys {
        Keys::new(&Secret::of([secret; 32]), process)
    }

    fn branch() -> TransactionBranch {
        TransactionBranch {
            listener: 11,
            shard: 200,
            process: keys(1, 1).process,
            identity: 0x0102_0304_0506_0708,
            tag: TargetTag::of(&keys(1, 1), 0x0102_0304_0506_0708, target(), 0),
            loop_hash: 0x0809_0a0b,
        }
    }

    fn target() -> SocketAddr {
        "198.51.100.7:5060".parse().unwrap()
    }

    #[test]
    fn decodes_to_what_was_encoded() {
        let text = branch().encode(&keys(1, 1), target());
        assert_eq!(text.as_bytes().len(), COOKIE.len() + 40);
        let decode = |keys: &Keys| TransactionBranch::decode(text.as_bytes(), keys, target());
        assert_eq!(decode(&keys(1, 1)), Some(branch()));
        assert!(branch().is_own(&keys(1, 1)));
        assert_eq!(decode(&keys(1, 2)), Some(branch()), "another process");
        assert!(!branch().is_own(&keys(1, 2)));
        assert_eq!(decode(&keys(2, 1)), None, "another key");
    }

    #[test]
    fn any_other_text_is_not_ours() {
        let text = branch().encode(&keys(1, 1), target());
        let text = text.as_bytes();
        let decode = |text: &[u8]| TransactionBranch::decode(text, &keys(1, 1), target());
        let elsewhere = "198.51.100.7:5061".parse().unwrap();
        assert_eq!(TransactionBranch::decode(text, &keys(1, 1), elsewhere), None);
        for i in 0..text.len() {
            let mut forged = text.to_vec();
            forged[i] = if forged[i] == b'A' { b'B' } else { b'A' };
            assert_eq!(decode(&forged), None, "changed at {i}");
            assert_eq!(decode(&text[..i]), None);
        }
        assert_eq!(decode(&[text, b"AAAA"].concat()), None);
    }

    #[test]
    fn targets_and_their_turns_have_tags_of_their_own() {
        let keys = keys(1, 1);
        let of =
            |identity, text: &str, nth| TargetTag::of(&keys, identity, text.parse().unwrap(), nth);
        let tag = |text, nth| of(1, text, nth);
        let all = [
            of(2, "10.0.0.1:5060", 0),
            tag("10.0.0.1:5060", 0),
            tag("10.0.0.1:5060", 1),
            tag("10.0.0.1:5061", 0),
            tag("10.0.0.2:5060", 0),
            tag("[::ffff:10.0.0.1]:5060", 0),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b));
        }
        assert_eq!(tag("10.0.0.1:5060", 0), all[1]);
    }
}
