//! Our own branch: all that is needed to bring a response back, without a search.
//!
//! `z9hG4bK` and 32 characters (24 bytes): version and listener, shard, call slot
//! and generation, identity of the request, MAC. The identity makes it a function
//! of the received request alone, as a proxy without transactions must have it
//! (RFC 3261 §16.11), so retransmissions, and the ACK and CANCEL of an INVITE, get
//! the branch their INVITE got. The MAC makes it ours: what comes back with it is a
//! response to a request that we forwarded.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_sip::Essentials;

use crate::calls::CallRef;
use crate::secret::Keys;

/// RFC 3261 §8.1.1.7: the magic cookie.
const COOKIE: &[u8] = b"z9hG4bK";
const VERSION: u8 = 1;
const RAW: usize = 24;
const ENCODED: usize = 32;

/// Listeners that fit into the four bits a branch has for them.
pub const LISTENERS_MAX: usize = 16;
/// Shards that fit into the byte a branch and a token have for them.
pub const SHARDS_MAX: u16 = 256;

/// What our branch says of the request it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The listener where the request came in, and its responses go out.
    pub(crate) listener: u8,
    /// The shard that holds its call.
    pub(crate) shard: u8,
    /// Its entry in that shard's call table.
    pub(crate) call: CallRef,
    /// Keyed hash of the received branch.
    pub(crate) identity: u64,
}

/// The text of a branch parameter's value.
pub(crate) struct BranchText([u8; COOKIE.len() + ENCODED]);

impl BranchText {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Branch {
    pub(crate) fn encode(&self, keys: &Keys) -> BranchText {
        let mut raw = [0; RAW];
        raw[0] = VERSION << 4 | self.listener;
        raw[1] = self.shard;
        raw[2..6].copy_from_slice(&self.call.slot.to_be_bytes());
        raw[6..8].copy_from_slice(&self.call.generation.to_be_bytes());
        raw[8..16].copy_from_slice(&self.identity.to_be_bytes());
        let mac = keys.branch.hash(&[&raw[..16]]);
        raw[16..].copy_from_slice(&mac.to_be_bytes());

        let mut text = [0; COOKIE.len() + ENCODED];
        text[..COOKIE.len()].copy_from_slice(COOKIE);
        let written = URL_SAFE_NO_PAD.encode_slice(raw, &mut text[COOKIE.len()..]);
        debug_assert_eq!(written, Ok(ENCODED), "24 bytes are 32 characters");
        BranchText(text)
    }

    /// The branch in `text`, if it is one of ours.
    pub(crate) fn decode(text: &[u8], keys: &Keys) -> Option<Self> {
        let encoded = text.strip_prefix(COOKIE)?;
        if encoded.len() != ENCODED {
            return None;
        }
        let mut raw = [0; RAW];
        URL_SAFE_NO_PAD.decode_slice(encoded, &mut raw).ok()?;
        let mac = u64::from_be_bytes(raw[16..].try_into().ok()?);
        if raw[0] >> 4 != VERSION || mac != keys.branch.hash(&[&raw[..16]]) {
            return None;
        }
        Some(Self {
            listener: raw[0] & 0xf,
            shard: raw[1],
            call: CallRef {
                slot: u32::from_be_bytes(raw[2..6].try_into().ok()?),
                generation: u16::from_be_bytes(raw[6..8].try_into().ok()?),
            },
            identity: u64::from_be_bytes(raw[8..16].try_into().ok()?),
        })
    }
}

/// What stays the same over all copies of a request, and tells it from any other.
///
/// RFC 3261 §16.11: "The proxy examines the branch ID in the topmost Via header field of
/// the received request. If it begins with the magic cookie, the first component of the
/// branch ID of the outgoing request is computed as a hash of the received branch ID.
/// Otherwise, the first component of the branch ID is computed as a hash of the topmost
/// Via, the tag in the To header field, the tag in the From header field, the Call-ID
/// header field, the CSeq number (but not method), and the Request-URI from the received
/// request."
pub(crate) fn identity(keys: &Keys, essentials: &Essentials<'_>, uri: &[u8]) -> u64 {
    let Essentials { via, from, call_id, cseq, .. } = essentials;
    let branch = via.branch().unwrap_or_default();
    if branch.starts_with(COOKIE) {
        return keys.identity.hash(&[branch, via.sent_by]);
    }
    let from_tag = from.tag().unwrap_or_default();
    // The To-tag is left out: the ACK to a non-2xx has one that its INVITE had not,
    // and must get the INVITE's branch.
    let number = cseq.number.to_be_bytes();
    keys.identity.hash(&[branch, via.sent_by, from_tag, call_id, &number, uri])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn keys(byte: u8) -> Keys {
        Keys::new(&Secret { current: [byte; 32], previous: Vec::new() })
    }

    const BRANCH: Branch = Branch {
        listener: 3,
        shard: 200,
        call: CallRef { slot: 0xdead_beef, generation: 0x1234 },
        identity: 0x0123_4567_89ab_cdef,
    };

    #[test]
    fn decodes_to_what_was_encoded() {
        let text = BRANCH.encode(&keys(1));
        assert_eq!(Branch::decode(text.as_bytes(), &keys(1)), Some(BRANCH));
    }

    #[test]
    fn any_other_text_is_not_ours() {
        let keys1 = keys(1);
        let text = BRANCH.encode(&keys1);
        assert_eq!(Branch::decode(text.as_bytes(), &keys(2)), None, "another key");
        for i in 0..text.as_bytes().len() {
            let mut forged = text.as_bytes().to_vec();
            forged[i] = if forged[i] == b'A' { b'B' } else { b'A' };
            assert_eq!(Branch::decode(&forged, &keys1), None, "changed at {i}");
        }
        for short in 0..text.as_bytes().len() {
            assert_eq!(Branch::decode(&text.as_bytes()[..short], &keys1), None);
        }
    }
}
