//! Asserted identities and privacy: RFC 3325.
//!
//! The trust domain (§1) is Tidegate, the back ends and the sources of `trust` and
//! `trust_identity`. Tidegate does not authenticate callers, so it asserts no identity itself.
//!
//! `P-Preferred-Identity` is a hint for the proxy that authenticates the caller. By §6 that proxy
//! removes it "from any message it forwards". Here a back end is that proxy. So Tidegate passes the
//! hint of any source to back ends, and removes it from messages to elements that are not trusted.
//! `Privacy` is the caller's own request, and Tidegate forwards it.

use tidegate_sip::{HeaderName, Message, write_without};
use tidegate_world::{Buffer, Flow};

use crate::snapshot::Snapshot;

/// Returns a copy of the request without the asserted identity, if the request came on `flow` and
/// Tidegate must not forward this identity.
///
/// RFC 3325 §5: "If the proxy received the message from an element that it does not trust and
/// there is a P-Asserted-Identity header present which contains a SIP or SIPS URI, the proxy
/// MUST replace that SIP or SIPS URI with a single SIP or SIPS URI or remove this header
/// field." The next sentence says the same of a tel URI.
pub(crate) fn disbelieve(
    snapshot: &Snapshot,
    flow: &Flow,
    message: &Message<'_>,
) -> Option<Buffer> {
    if !message.has_identity() || snapshot.addresses.believes(flow) {
        return None;
    }
    let asserts = |name| name == HeaderName::PAssertedIdentity;
    message.field(HeaderName::PAssertedIdentity)?;
    // A back end that is reached over UDP may also open a connection, from any port. Then only the
    // Via of its request names this back end.
    let names_backend = |via| snapshot.addresses.backend_by_via(flow, &via).is_some();
    if message.top_via().is_ok_and(names_backend) {
        return None;
    }
    let mut bytes = snapshot.buffers.take();
    write_without(message.bytes(), asserts, &mut bytes).ok()?;
    Some(bytes)
}

/// Returns a message about to leave on `flow` without the identities that its receiver must not
/// see.
///
/// RFC 3325 §5: "If it does not trust the element, then the proxy MUST examine the Privacy header
/// field (if present) to determine if the user requested that asserted identity information be kept
/// private." §7 says of the value `id`: "If this token is present, proxies MUST remove all the
/// P-Asserted-Identity header fields before forwarding messages to elements that are not trusted.
/// If the Privacy header field value is set to "none" then the proxy MUST NOT remove the
/// P-Asserted-Identity header fields." Without a Privacy header field, §7 leaves this to the trust
/// domain, and RECOMMENDS not to remove them unless local privacy policies prevent it. §6: "The
/// proxy MUST remove the user-provided P-Preferred-Identity header from any message it forwards."
pub(crate) fn keep_private(snapshot: &Snapshot, flow: &Flow, bytes: Buffer) -> Buffer {
    if snapshot.addresses.believes(flow) {
        return bytes;
    }
    let hides = asks_for_privacy(&bytes);
    let goes = |name| match name {
        HeaderName::PAssertedIdentity => hides,
        HeaderName::PPreferredIdentity => true,
        _ => false,
    };
    let mut left = snapshot.buffers.take();
    let written = write_without(&bytes, goes, &mut left);
    debug_assert!(written.is_ok(), "what is left is no longer than what there was");
    left
}

/// Removes identities from a response that came on `from`: those that [`keep_private`] removes, and
/// those that an untrusted element asserts.
pub(crate) fn filter_response(
    snapshot: &Snapshot,
    from: &Flow,
    to: &Flow,
    bytes: Buffer,
) -> Buffer {
    if snapshot.addresses.believes(from) {
        return keep_private(snapshot, to, bytes);
    }
    let mut left = snapshot.buffers.take();
    let asserts = |name| name == HeaderName::PAssertedIdentity;
    let written = write_without(&bytes, asserts, &mut left);
    debug_assert!(written.is_ok(), "what is left is no longer than what there was");
    keep_private(snapshot, to, left)
}

/// Returns whether the caller has asked that untrusted elements not learn its identity: RFC 3325
/// §9.3. A message that cannot be read counts as one that asks for this.
fn asks_for_privacy(bytes: &[u8]) -> bool {
    let Ok(message) = Message::parse_head(bytes) else { return true };
    // RFC 3323 §4.2: `Privacy-hdr = "Privacy" HCOLON priv-value *(";" priv-value)`. Some
    // implementations write commas.
    let mut lines = message.fields().filter(|field| field.name == HeaderName::Privacy);
    lines.any(|field| {
        let mut values = field.value.split(|b| matches!(b, b';' | b','));
        values.any(|value| value.trim_ascii().eq_ignore_ascii_case(b"id"))
    })
}
