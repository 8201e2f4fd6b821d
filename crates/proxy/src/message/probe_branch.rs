//! The branch of a probe: it identifies one of the probes that this process has sent.
//!
//! The branch has `z9hG4bK` and 28 characters (21 bytes): version, shard, process, index in the
//! shard's list of probed back ends, number of the probe, MAC. The MAC covers the address of the
//! back end, so that no other element can answer for it.

use std::net::SocketAddr;

use tidegate_transaction::COOKIE;

use crate::keys::Keys;
use crate::keys::text64::decode;
use crate::message::branch::{BranchText, mac};

const VERSION: u8 = 3;
const CONTENT: usize = 13;
const RAW: usize = CONTENT + 8;
const ENCODED: usize = RAW / 3 * 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeBranch {
    /// The shard that sent the probe.
    pub(crate) shard: u8,
    /// The index of the back end in the list of probed back ends.
    pub(crate) place: u32,
    /// The number of the probe among all probes of the shard.
    pub(crate) number: u32,
}

impl ProbeBranch {
    pub(crate) fn encode(&self, keys: &Keys, backend: SocketAddr) -> BranchText {
        let mut raw = [0; RAW];
        raw[0] = VERSION << 4;
        raw[1] = self.shard;
        raw[2..5].copy_from_slice(&keys.process);
        raw[5..9].copy_from_slice(&self.place.to_be_bytes());
        raw[9..CONTENT].copy_from_slice(&self.number.to_be_bytes());
        let mac = mac(keys, &raw[..CONTENT], backend);
        raw[CONTENT..].copy_from_slice(&mac.to_be_bytes());
        BranchText::of(&raw)
    }

    /// Returns the branch in `text` if this process made it for a probe of `backend`.
    pub(crate) fn decode(text: &[u8], keys: &Keys, backend: SocketAddr) -> Option<Self> {
        let encoded = text.strip_prefix(COOKIE).filter(|encoded| encoded.len() == ENCODED)?;
        let mut raw = [0; RAW];
        decode(encoded, &mut raw)?;
        let (content, mac) = raw.split_last_chunk::<8>()?;
        if content[0] != VERSION << 4
            || content[2..5] != keys.process
            || u64::from_be_bytes(*mac) != self::mac(keys, content, backend)
        {
            return None;
        }
        Some(Self {
            shard: content[1],
            place: u32::from_be_bytes(content[5..9].try_into().ok()?),
            number: u32::from_be_bytes(content[9..].try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Secret;

    const BRANCH: ProbeBranch = ProbeBranch { shard: 200, place: 0x0102_0304, number: 77 };

    fn keys(secret: u8, process: u64) -> Keys {
        Keys::new(&Secret::of([secret; 32]), process)
    }

    #[test]
    fn decodes_to_what_was_encoded_and_any_other_text_is_not_ours() {
        let backend = "198.51.100.7:5060".parse().unwrap();
        let text = BRANCH.encode(&keys(1, 1), backend);
        let text = text.as_bytes();
        let decode = |text: &[u8]| ProbeBranch::decode(text, &keys(1, 1), backend);
        assert_eq!(decode(text), Some(BRANCH));
        assert_eq!(ProbeBranch::decode(text, &keys(2, 1), backend), None, "another key");
        assert_eq!(ProbeBranch::decode(text, &keys(1, 2), backend), None, "another process");
        let elsewhere = "198.51.100.7:5061".parse().unwrap();
        assert_eq!(ProbeBranch::decode(text, &keys(1, 1), elsewhere), None, "another back end");
        for i in 0..text.len() {
            let mut forged = text.to_vec();
            forged[i] = if forged[i] == b'A' { b'B' } else { b'A' };
            assert_eq!(decode(&forged), None, "changed at {i}");
            assert_eq!(decode(&text[..i]), None);
        }
    }
}
