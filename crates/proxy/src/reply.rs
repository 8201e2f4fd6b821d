//! Replies that the proxy makes itself, without keeping any state.

use arrayvec::ArrayVec;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_sip::{Message, Reply, reason, reply_target, write_reply};
use tidegate_world::{Buffer, Path, Pool, Received, Transmit};

use crate::secret::Keys;

/// Begins every To-tag of ours, so that an ACK to a back end's response costs no hash.
const PREFIX: &[u8] = b"tg";
const TAG: usize = PREFIX.len() + 11;

/// The To-tag of our reply to a request with this branch and Call-ID: a keyed hash,
/// so that we know its ACK without having kept anything. RFC 3261 §8.2.7: "To header tags
/// MUST be generated for responses in a stateless manner - in a manner that will generate
/// the same tag for the same request consistently."
pub(crate) fn tag(keys: &Keys, call_id: &[u8], branch: &[u8]) -> [u8; TAG] {
    let mut text = [0; TAG];
    text[..PREFIX.len()].copy_from_slice(PREFIX);
    let hash = keys.tag.hash(&[call_id, branch]).to_be_bytes();
    let written = URL_SAFE_NO_PAD.encode_slice(hash, &mut text[PREFIX.len()..]);
    debug_assert_eq!(written, Ok(11), "8 bytes are 11 characters");
    text
}

/// Whether an ACK with this To-tag acknowledges a reply of ours.
pub(crate) fn is_own_tag(keys: &Keys, to_tag: &[u8], call_id: &[u8], branch: &[u8]) -> bool {
    to_tag.starts_with(PREFIX) && to_tag == tag(keys, call_id, branch)
}

/// A reply to `message`, which came as `received`; `None` if it has no usable Via or
/// would not fit into a datagram.
pub(crate) fn reply(
    keys: &Keys,
    pool: &Pool,
    received: &Received,
    message: &Message<'_>,
    status: u16,
    headers: &[(&str, &[u8])],
) -> Option<Transmit> {
    let via = message.top_via().ok()?;
    let tag = tag(keys, message.call_id().unwrap_or_default(), via.branch().unwrap_or_default());
    let source = received.path.remote;
    let mut all = ArrayVec::<(&str, &[u8]), 6>::new();
    all.push(("Server", SERVER.as_bytes()));
    all.extend(headers.iter().copied().take(all.remaining_capacity()));
    let reply = Reply {
        status,
        reason: reason(status),
        to_tag: Some(&tag),
        source: Some(source),
        headers: &all,
    };
    let mut bytes: Buffer = pool.take();
    write_reply(message, &reply, &mut bytes).ok()?;
    let remote = reply_target(&via, source);
    Some(Transmit { path: Path { remote, ..received.path }, bytes })
}

/// The Server header of our replies, RFC 3261 §20.35.
const SERVER: &str = concat!("Tidegate/", env!("CARGO_PKG_VERSION"));
