//! The `flow` parameter of our Via in a request that is forwarded without state. It names the
//! connection on which the request came, and the shard that forwards the request.
//!
//! Responses must return on the connection of their request (RFC 3261 §18.2.2), and no state of
//! ours names it. The shard that forwards the request must also serve the responses, because its
//! table contains the call. This shard may differ from the shard of the connection. Neither
//! connection nor shard can be part of the branch, because an INVITE, its copies and its CANCEL
//! must have the same branch (§16.11). A caller that has lost its connection sends the CANCEL on
//! another connection, which another shard may have accepted. Other Via parameters are not compared
//! when a request is matched to a transaction (§17.2.3). The value of `flow` has 22 characters (16
//! bytes): process, connection and shard, encrypted, and a MAC that covers the branch.

use arrayvec::ArrayVec;
use tidegate_world::ConnectionId;

use crate::keys::text64::{decode, encode, text_len};
use crate::keys::{CONNECTION_NAME, Keys};

/// The name of the Via parameter that names the flow of a request.
pub(crate) const FLOW_PARAM: &str = "flow";

const CONTENT: usize = CONNECTION_NAME + 1;
const MAC: usize = 8;
const RAW: usize = CONTENT + MAC;

/// The value of a `flow` parameter, as text.
pub(crate) type FlowText = ArrayVec<u8, { text_len(RAW) }>;

/// The content of a `flow` parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestFlow {
    /// The connection on which the request came.
    pub(crate) connection: ConnectionId,
    /// The shard that forwards the request.
    pub(crate) shard: u8,
}

impl RequestFlow {
    /// Returns the value of the `flow` parameter for a request that is forwarded with `branch`.
    pub(crate) fn encode(&self, keys: &Keys, branch: &[u8]) -> FlowText {
        let mut raw = [0; RAW];
        raw[..CONNECTION_NAME].copy_from_slice(&keys.name_of(self.connection));
        raw[CONNECTION_NAME] = self.shard;
        let (content, mac) = raw.split_at_mut(CONTENT);
        let hash = keys.branch.hash(&[content, branch]);
        keys.veil.veil(hash, content);
        mac.copy_from_slice(&hash.to_be_bytes());
        let mut text = FlowText::from([0; text_len(RAW)]);
        let length = encode(&raw, &mut text);
        text.truncate(length);
        text
    }

    /// Returns the content of the `flow` parameter in `text`, if this process wrote it for
    /// `branch`.
    pub(crate) fn decode(keys: &Keys, text: &[u8], branch: &[u8]) -> Option<Self> {
        let mut raw = [0; RAW];
        if decode(text, &mut raw)? != RAW {
            return None;
        }
        let (content, mac) = raw.split_last_chunk_mut::<MAC>()?;
        let mac = u64::from_be_bytes(*mac);
        keys.veil.veil(mac, content);
        if keys.branch.hash(&[content, branch]) != mac {
            return None;
        }
        let (&shard, name) = content.split_last()?;
        Some(Self { connection: keys.connection_in(name)?, shard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Secret;

    #[test]
    fn it_names_a_connection_of_this_process_and_of_its_branch_alone() {
        let keys = |process| Keys::new(&Secret::of([1; 32]), process);
        let flow = RequestFlow { connection: ConnectionId::new(0x1234_5678).unwrap(), shard: 200 };
        let text = flow.encode(&keys(1), b"z9hG4bKa");
        assert_eq!(text.len(), 22);
        let read =
            |text: &[u8], process, branch: &[u8]| RequestFlow::decode(&keys(process), text, branch);
        assert_eq!(read(&text, 1, b"z9hG4bKa"), Some(flow));
        assert_eq!(read(&text, 1, b"z9hG4bKb"), None, "another branch");
        assert_eq!(read(&text, 2, b"z9hG4bKa"), None, "another process");
        for i in 0..text.len() {
            let mut forged = text.clone();
            forged[i] = if forged[i] == b'A' { b'B' } else { b'A' };
            assert_eq!(read(&forged, 1, b"z9hG4bKa"), None, "changed at {i}");
            assert_eq!(read(&text[..i], 1, b"z9hG4bKa"), None, "cut at {i}");
        }
    }
}
