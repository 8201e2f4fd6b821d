//! Message properties that decide which messages can be sent together in one batch:
//! [`Batching`](tidegate_world::Batching).

use memchr::memchr;

/// Returns a number that all messages of one call share, and that few other calls have. The number
/// is never 0.
///
/// Messages with the same number are sent in order. If two calls share a number, this costs only
/// time, so the number need not be secure against attackers.
pub(crate) fn sequence_of(call_id: &[u8]) -> u32 {
    let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let ends = word(call_id.first_chunk()) ^ word(call_id.last_chunk()).rotate_left(23);
    let short = if call_id.len() < 8 { call_id } else { b"" };
    let all = short.iter().fold(ends, |hash, &b| hash.rotate_left(8) ^ u64::from(b));
    // The multiplier is 2^64 divided by the golden ratio: it spreads inputs that differ in few
    // bits.
    ((all.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32).max(1)
}

/// Returns the offset behind the colon of the first header field. Spaces may be inserted there, to
/// give all datagrams of a batch the same length. Returns 0 (no spaces) for an INVITE, and for a
/// message without header fields.
///
/// A next hop that sheds in the kernel decides by a hash of the first bytes of an INVITE, so that
/// it treats a retransmission like the original ([`Shedding`](tidegate_world::Shedding)). The
/// number of inserted spaces depends on the other datagrams of the batch. With spaces, a
/// retransmission could have other first bytes than the original, and get another decision.
///
/// RFC 3261 §7.3.1: "The formal grammar for a message-header [...] allows for an arbitrary amount
/// of whitespace on either side of the colon". In a request, the first header field is our Via.
pub(crate) fn pad_at(message: &[u8]) -> u16 {
    if message.starts_with(b"INVITE ") {
        return 0;
    }
    let colon = || {
        let header = memchr(b'\n', message)? + 1;
        let fields = &message[header..];
        // This shortcut works for nearly every message that we send.
        let length = if fields.starts_with(b"Via:") { 3 } else { memchr(b':', fields)? };
        Some(header + length + 1)
    };
    colon().and_then(|at| u16::try_from(at).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_padded_behind_the_colon_of_its_first_header() {
        let text = "BYE sip:bob@biloxi.example SIP/2.0\r\nVia: SIP/2.0/UDP a\r\nTo: <sip:b>\r\n";
        let at = usize::from(pad_at(text.as_bytes()));
        assert_eq!(&text[at - 4..at], "Via:");
        assert_eq!(&text[at..=at], " ");
        for none in ["", "BYE sip:bob@biloxi.example SIP/2.0\r\n", "a:b"] {
            assert_eq!(pad_at(none.as_bytes()), 0);
        }
    }

    #[test]
    fn an_invite_is_the_same_bytes_each_time() {
        assert_eq!(pad_at(b"INVITE sip:b@c SIP/2.0\r\nVia: SIP/2.0/UDP a\r\n"), 0);
    }

    #[test]
    fn calls_differ_and_their_messages_do_not() {
        let numbers: std::collections::BTreeSet<_> =
            (0..10_000).map(|n| sequence_of(format!("{n}-17373@127.0.0.1").as_bytes())).collect();
        assert!(numbers.len() > 9_990, "{} of 10,000", numbers.len());
        let short: std::collections::BTreeSet<_> =
            (0..100).map(|n: u32| sequence_of(n.to_string().as_bytes())).collect();
        assert_eq!(short.len(), 100);
        assert_eq!(sequence_of(b"a84b4c76e66710"), sequence_of(b"a84b4c76e66710"));
        assert_ne!(sequence_of(b""), 0);
    }
}
