//! The branch of a request that we forward with a transaction: which transaction it is.
//!
//! `z9hG4bK` and 28 characters (21 bytes): version, shard, slot and generation in the shard's
//! table, index among the branches of the response context, hash for the detection of loops,
//! MAC. What comes back with it finds its transaction without a search. The MAC covers which
//! process it was: after a restart a slot and its generation mean another request.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_transaction::{COOKIE, Handle};

use crate::branch::BranchText;
use crate::secret::Keys;

const VERSION: u8 = 2 << 4;
const CONTENT: usize = 13;
const RAW: usize = CONTENT + 8;
const ENCODED: usize = RAW / 3 * 4;

/// What the branch of a client transaction says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionBranch {
    /// The shard that holds it.
    pub(crate) shard: u8,
    /// The response context.
    pub(crate) context: Handle,
    /// Which of the branches there.
    pub(crate) index: u8,
    /// RFC 5393 §4.2: the same whenever the same request comes by.
    pub(crate) loop_hash: u32,
}

impl TransactionBranch {
    pub(crate) fn encode(&self, keys: &Keys) -> BranchText {
        let mut raw = [0; RAW];
        raw[0] = VERSION;
        raw[1] = self.shard;
        raw[2..6].copy_from_slice(&self.context.slot.to_be_bytes());
        raw[6..8].copy_from_slice(&self.context.generation.to_be_bytes());
        raw[8] = self.index;
        raw[9..CONTENT].copy_from_slice(&self.loop_hash.to_be_bytes());
        let mac = keys.mac_of_process(&raw[..CONTENT]);
        raw[CONTENT..].copy_from_slice(&mac.to_be_bytes());
        BranchText::of(&raw)
    }

    /// The branch in `text`, if this process made it.
    pub(crate) fn decode(text: &[u8], keys: &Keys) -> Option<Self> {
        let encoded = text.strip_prefix(COOKIE).filter(|encoded| encoded.len() == ENCODED)?;
        let mut raw = [0; RAW];
        URL_SAFE_NO_PAD.decode_slice(encoded, &mut raw).ok()?;
        let (content, mac) = raw.split_last_chunk()?;
        if content[0] != VERSION || u64::from_be_bytes(*mac) != keys.mac_of_process(content) {
            return None;
        }
        let [_, shard, slot @ .., g0, g1, index, l0, l1, l2, l3] = content else { return None };
        Some(Self {
            shard: *shard,
            context: Handle {
                slot: u32::from_be_bytes(slot.try_into().ok()?),
                generation: u16::from_be_bytes([*g0, *g1]),
            },
            index: *index,
            loop_hash: u32::from_be_bytes([*l0, *l1, *l2, *l3]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    const BRANCH: TransactionBranch = TransactionBranch {
        shard: 200,
        context: Handle { slot: 0x0102_0304, generation: 0x0506 },
        index: 7,
        loop_hash: 0x0809_0a0b,
    };

    fn keys(secret: u8, process: u64) -> Keys {
        Keys::new(&Secret { current: [secret; 32], previous: Vec::new() }, process)
    }

    #[test]
    fn decodes_to_what_was_encoded() {
        let text = BRANCH.encode(&keys(1, 1));
        assert_eq!(text.as_bytes().len(), COOKIE.len() + 28);
        assert_eq!(TransactionBranch::decode(text.as_bytes(), &keys(1, 1)), Some(BRANCH));
    }

    #[test]
    fn any_other_text_is_not_ours() {
        let text = BRANCH.encode(&keys(1, 1));
        let text = text.as_bytes();
        let decode = TransactionBranch::decode;
        assert_eq!(decode(text, &keys(2, 1)), None, "another key");
        assert_eq!(decode(text, &keys(1, 2)), None, "another process");
        for i in 0..text.len() {
            let mut forged = text.to_vec();
            forged[i] = if forged[i] == b'A' { b'B' } else { b'A' };
            assert_eq!(decode(&forged, &keys(1, 1)), None, "changed at {i}");
            assert_eq!(decode(&text[..i], &keys(1, 1)), None);
        }
        assert_eq!(decode(&[text, b"AAAA"].concat(), &keys(1, 1)), None);
    }
}
