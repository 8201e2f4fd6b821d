//! The `flow` parameter of our Via: it names the connection of a request that we forward without
//! state.
//!
//! Responses must return on that connection (RFC 3261 §18.2.2), and we keep no state that names it.
//! The connection cannot be part of the branch. An INVITE, its copies and its CANCEL must have the
//! same branch (§16.11). But a caller that has lost its connection sends the CANCEL on another
//! connection. Other parameters of the Via are not compared when a request is matched to a
//! transaction (§17.2.3). The value has 20 characters (15 bytes): process and connection,
//! encrypted, and a MAC that covers the branch.

use arrayvec::ArrayVec;
use tidegate_world::ConnectionId;

use crate::keys::text64::{decode, encode, text_len};
use crate::keys::{CONNECTION_NAME, Keys};

/// The name of the parameter.
pub(crate) const FLOW_PARAM: &str = "flow";

const MAC: usize = 8;
const RAW: usize = CONNECTION_NAME + MAC;

/// The value of the parameter.
pub(crate) type FlowText = ArrayVec<u8, { text_len(RAW) }>;

/// Returns the parameter for a request that came on `connection` and is forwarded with `branch`.
pub(crate) fn encode_flow(keys: &Keys, connection: ConnectionId, branch: &[u8]) -> FlowText {
    let mut raw = [0; RAW];
    let (name, mac) = raw.split_at_mut(CONNECTION_NAME);
    name.copy_from_slice(&keys.name_of(connection));
    let hash = keys.branch.hash(&[name, branch]);
    keys.veil.veil(hash, name);
    mac.copy_from_slice(&hash.to_be_bytes());
    let mut text = FlowText::from([0; text_len(RAW)]);
    let length = encode(&raw, &mut text);
    text.truncate(length);
    text
}

/// Returns the connection in a parameter if this process wrote it for that branch.
pub(crate) fn decode_flow(keys: &Keys, text: &[u8], branch: &[u8]) -> Option<ConnectionId> {
    let mut raw = [0; RAW];
    if decode(text, &mut raw)? != RAW {
        return None;
    }
    let (name, mac) = raw.split_last_chunk_mut::<MAC>()?;
    let mac = u64::from_be_bytes(*mac);
    keys.veil.veil(mac, name);
    if keys.branch.hash(&[name, branch]) != mac {
        return None;
    }
    keys.connection_in(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Secret;

    #[test]
    fn it_names_a_connection_of_this_process_and_of_its_branch_alone() {
        let keys = |process| Keys::new(&Secret::of([1; 32]), process);
        let connection = ConnectionId::new(0x1234_5678).unwrap();
        let text = encode_flow(&keys(1), connection, b"z9hG4bKa");
        assert_eq!(text.len(), 20);
        let read = |text: &[u8], process, branch: &[u8]| decode_flow(&keys(process), text, branch);
        assert_eq!(read(&text, 1, b"z9hG4bKa"), Some(connection));
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
