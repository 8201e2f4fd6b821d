//! The branch of a request that we forward with a transaction: which transaction it is.
//!
//! `z9hG4bK` and 32 characters (24 bytes): version and listener, shard, process, slot and
//! generation in the shard's table, index among the branches of the response context, hash for
//! the detection of loops, MAC. What comes back with it finds its transaction without a search.
//! After a restart slot and generation mean another request: which process made the branch
//! stands in it, and the response to a request of an earlier one goes back as one that was
//! forwarded without state does.

use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_transaction::{COOKIE, Handle};

use crate::branch::{BranchText, mac};
use crate::secret::Keys;

const VERSION: u8 = 2;
const CONTENT: usize = 16;
const RAW: usize = CONTENT + 8;
const ENCODED: usize = RAW / 3 * 4;

/// What the branch of a client transaction says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionBranch {
    /// The listener where the request came in.
    pub(crate) listener: u8,
    /// The shard that holds it.
    pub(crate) shard: u8,
    /// Whether this process has made it, or one before it, or another instance.
    pub(crate) is_own: bool,
    /// The response context.
    pub(crate) context: Handle,
    /// Which of the branches there.
    pub(crate) index: u8,
    /// RFC 5393 §4.2: the same whenever the same request comes by.
    pub(crate) loop_hash: u32,
}

impl TransactionBranch {
    /// The branch of a request whose response goes to `target`.
    pub(crate) fn encode(&self, keys: &Keys, target: SocketAddr) -> BranchText {
        let mut raw = [0; RAW];
        raw[0] = VERSION << 4 | self.listener;
        raw[1] = self.shard;
        raw[2..5].copy_from_slice(&keys.process);
        raw[5..9].copy_from_slice(&self.context.slot.to_be_bytes());
        raw[9..11].copy_from_slice(&self.context.generation.to_be_bytes());
        raw[11] = self.index;
        raw[12..CONTENT].copy_from_slice(&self.loop_hash.to_be_bytes());
        let mac = mac(keys, &raw[..CONTENT], target);
        raw[CONTENT..].copy_from_slice(&mac.to_be_bytes());
        BranchText::of(&raw)
    }

    /// The branch in `text`, if our key made it for a response that goes to `target`.
    pub(crate) fn decode(text: &[u8], keys: &Keys, target: SocketAddr) -> Option<Self> {
        let (content, mac) = Self::read(text)?;
        (mac == self::mac(keys, &content, target)).then(|| Self::of(&content, keys))
    }

    /// What the branch in `text` claims to be, by anybody's word.
    pub(crate) fn claimed(text: &[u8], keys: &Keys) -> Option<Self> {
        let (content, _) = Self::read(text)?;
        Some(Self::of(&content, keys))
    }

    /// Content and MAC.
    fn read(text: &[u8]) -> Option<([u8; CONTENT], u64)> {
        let encoded = text.strip_prefix(COOKIE).filter(|encoded| encoded.len() == ENCODED)?;
        let mut raw = [0; RAW];
        URL_SAFE_NO_PAD.decode_slice(encoded, &mut raw).ok()?;
        let (content, mac) = raw.split_at(CONTENT);
        let content: [u8; CONTENT] = content.try_into().ok()?;
        let mac = u64::from_be_bytes(mac.try_into().ok()?);
        (content[0] >> 4 == VERSION).then_some((content, mac))
    }

    fn of(content: &[u8; CONTENT], keys: &Keys) -> Self {
        let [head, shard, p0, p1, p2, s0, s1, s2, s3, g0, g1, index, l0, l1, l2, l3] = *content;
        Self {
            listener: head & 0xf,
            shard,
            is_own: [p0, p1, p2] == keys.process,
            context: Handle {
                slot: u32::from_be_bytes([s0, s1, s2, s3]),
                generation: u16::from_be_bytes([g0, g1]),
            },
            index,
            loop_hash: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    const BRANCH: TransactionBranch = TransactionBranch {
        listener: 11,
        shard: 200,
        is_own: true,
        context: Handle { slot: 0x0102_0304, generation: 0x0506 },
        index: 7,
        loop_hash: 0x0809_0a0b,
    };

    fn keys(secret: u8, process: u64) -> Keys {
        Keys::new(&Secret::of([secret; 32]), process)
    }

    fn target() -> SocketAddr {
        "198.51.100.7:5060".parse().unwrap()
    }

    #[test]
    fn decodes_to_what_was_encoded() {
        let text = BRANCH.encode(&keys(1, 1), target());
        assert_eq!(text.as_bytes().len(), COOKIE.len() + 32);
        let decode = |keys: Keys| TransactionBranch::decode(text.as_bytes(), &keys, target());
        assert_eq!(decode(keys(1, 1)), Some(BRANCH));
        let of_before = TransactionBranch { is_own: false, ..BRANCH };
        assert_eq!(decode(keys(1, 2)), Some(of_before), "another process");
        assert_eq!(decode(keys(2, 1)), None, "another key");
    }

    #[test]
    fn any_other_text_is_not_ours() {
        let text = BRANCH.encode(&keys(1, 1), target());
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
}
