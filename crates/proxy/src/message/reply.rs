//! Stateless replies: responses that the proxy itself generates without keeping state.

use std::net::SocketAddr;

use arrayvec::ArrayVec;
use memchr::memmem;
use tidegate_sip::{
    Message, Method, Outline, Reply, ScanStart, reason, reply_target, scan_ack, write_reply_by_via,
};
use tidegate_world::{Batching, Buffer, Flow, Pool, Received, Transmit};

use crate::keys::Keys;
use crate::keys::text64::{encode, text_len};
use crate::message::batching::sequence_of;
use crate::rejection::{HEADERS_MAX, Hints, ReplyHeaders};

/// The prefix of the To-tags of stateless replies. If the To-tag of an ACK has another prefix, the
/// ACK acknowledges another response. The hash in its tag need not be checked.
const PREFIX: &[u8] = b"tg";
const TAG: usize = PREFIX.len() + text_len(size_of::<u64>());

/// Returns the To-tag of our stateless reply to a request with this branch and Call-ID. The tag is
/// a keyed hash, so we recognize the ACK without state. RFC 3261 §8.2.7: "To header tags MUST be
/// generated for responses in a stateless manner - in a manner that will generate the same tag for
/// the same request consistently."
pub(crate) fn tag(keys: &Keys, call_id: &[u8], branch: &[u8]) -> [u8; TAG] {
    let mut text = [0; TAG];
    text[..PREFIX.len()].copy_from_slice(PREFIX);
    let hash = keys.tag.hash(&[call_id, branch]).to_be_bytes();
    encode(&hash, &mut text[PREFIX.len()..]);
    text
}

/// Returns the To-tag of our final reply in the transaction with this identity. Its prefix differs
/// from that of a stateless reply, because the ACK to this reply belongs to the transaction.
pub(crate) fn transaction_tag(keys: &Keys, identity: u64) -> [u8; TAG] {
    let mut text = [0; TAG];
    text[..PREFIX.len()].copy_from_slice(b"tx");
    let hash = keys.tag.hash(&[b"transaction", &identity.to_be_bytes()]).to_be_bytes();
    encode(&hash, &mut text[PREFIX.len()..]);
    text
}

/// Returns whether an ACK with this To-tag acknowledges a stateless reply of ours.
pub(crate) fn is_own_tag(keys: &Keys, to_tag: &[u8], call_id: &[u8], branch: &[u8]) -> bool {
    to_tag.starts_with(PREFIX) && to_tag == tag(keys, call_id, branch)
}

/// Returns whether `bytes` are an ACK to a stateless reply of ours. Such an ACK is not forwarded.
pub(crate) fn is_own_ack(keys: &Keys, bytes: &[u8]) -> bool {
    may_have_own_tag(bytes)
        && scan_ack(bytes).is_some_and(|ack| {
            is_own_tag(keys, ack.to_tag, ack.call_id, ack.branch.unwrap_or_default())
        })
}

/// Returns false if no parameter in the message `bytes` can have a value with the prefix of the
/// To-tags of stateless replies. This cheap check suffices for most ACKs, because they acknowledge
/// responses of back ends.
///
/// RFC 3261 §25.1: "generic-param = token [ EQUAL gen-value ]" and "EQUAL = SWS "=" SWS ; equal".
fn may_have_own_tag(bytes: &[u8]) -> bool {
    memmem::find_iter(bytes, PREFIX)
        .any(|at| matches!(bytes[..at].last(), Some(b'=' | b' ' | b'\t' | b'\r' | b'\n')))
}

/// Returns the Server header of a reply (RFC 3261 §20.35), unless `name`, the name of this proxy,
/// is empty. "The Server header field contains information about the software used by the UAS to
/// handle the request. Revealing the specific software version of the server might allow the server
/// to become more vulnerable to attacks".
pub(crate) fn server(name: &str) -> Option<(&'static str, &[u8])> {
    (!name.is_empty()).then_some(("Server", name.as_bytes()))
}

/// Writes a response that rejects the request in `received`, and parses as little of the request as
/// possible. `name` is the name of this proxy. Returns `None` if the message is not a request that
/// can be answered.
pub(crate) fn rejection(
    keys: &Keys,
    name: &str,
    pool: &Pool,
    received: &Received,
    status: u16,
    hints: &Hints,
) -> Option<Transmit> {
    if let Some(outline) = Outline::of(&received.bytes) {
        return rejection_of(keys, name, pool, received, &outline, status, hints);
    }
    // Parse only the head, so that a wrong Content-Length is answered too.
    let message = Message::parse_head(&received.bytes).ok()?;
    let may_be_answered = message.is_request() && message.method() != Some(Method::Ack);
    if !may_be_answered {
        return None;
    }
    let mut digits = itoa::Buffer::new();
    reply(keys, name, pool, received, &message, status, &hints.headers(&mut digits))
}

/// Writes a [`rejection`] of the request with this outline. Returns `None` if the request is an ACK,
/// or if the reply cannot be sent.
pub(crate) fn rejection_of(
    keys: &Keys,
    name: &str,
    pool: &Pool,
    received: &Received,
    outline: &Outline<'_>,
    status: u16,
    hints: &Hints,
) -> Option<Transmit> {
    let scan = &outline.scan;
    // RFC 3261 §17.1.1.3: an ACK gets no response.
    if matches!(scan.start, ScanStart::Request { method: Method::Ack, .. }) {
        return None;
    }
    let source = received.flow.remote;
    let flow = reply_flow(outline.reply_target(source), received)?;
    let tag = tag(keys, scan.call_id, scan.branch.unwrap_or_default());
    let mut digits = itoa::Buffer::new();
    let mut headers = hints.headers(&mut digits);
    headers.extend(server(name));
    let reply = Reply {
        status,
        reason: reason(status),
        to_tag: Some(&tag),
        source: Some(source),
        headers: &headers,
    };
    let mut bytes: Buffer = pool.take();
    outline.write_reply(&reply, &mut bytes).ok()?;
    let batching = Batching { sequence: sequence_of(scan.call_id), pad_at: 0 };
    Some(Transmit { batching, ..Transmit::new(flow, bytes) })
}

/// Returns the flow on which a reply to `received` goes to `remote`. Returns `None` if the reply
/// would be a datagram to port 0, which cannot be sent.
fn reply_flow(remote: SocketAddr, received: &Received) -> Option<Flow> {
    let flow = Flow { remote, ..received.flow };
    (remote.port() != 0 || flow.transport.is_reliable()).then_some(flow)
}

/// Writes a reply to `message`, which was received as `received`, with these `headers`. Returns
/// `None` if the message has no usable Via, if the reply would not fit into a datagram, or if it
/// cannot be sent.
///
/// RFC 3261 §16.1: "When responding directly to a request, the element is playing the role of a UAS
/// and MUST behave as described in Section 8.2."
pub(crate) fn reply(
    keys: &Keys,
    name: &str,
    pool: &Pool,
    received: &Received,
    message: &Message<'_>,
    status: u16,
    headers: &ReplyHeaders<'_>,
) -> Option<Transmit> {
    let via = message.top_via().ok()?;
    let tag = tag(keys, message.call_id().unwrap_or_default(), via.branch().unwrap_or_default());
    let source = received.flow.remote;
    let flow = reply_flow(reply_target(&via, source), received)?;
    let mut all = ArrayVec::<(&str, &[u8]), { HEADERS_MAX + 1 }>::new();
    all.extend(headers.iter().copied());
    all.extend(server(name));
    let reply = Reply {
        status,
        reason: reason(status),
        to_tag: Some(&tag),
        source: Some(source),
        headers: &all,
    };
    let mut bytes: Buffer = pool.take();
    write_reply_by_via(message, Some(&via), &reply, &mut bytes).ok()?;
    Some(Transmit::new(flow, bytes))
}

/// Pads a reply of ours to `length` bytes, at most [`PAD_MAX`]. A reply that already has this
/// length or more is not changed. `name` is the name of this proxy.
///
/// RFC 3261 §7.3.1: "The formal grammar for a message-header [...] allows for an arbitrary amount
/// of whitespace on either side of the colon". The padding is inserted before the value of Server,
/// on which no element acts. If the proxy has no name, it is inserted before the value of
/// Content-Length.
pub(crate) fn pad(reply: &mut Buffer, name: &str, length: usize) {
    let missing = length.min(PAD_MAX).saturating_sub(reply.len());
    let after = if name.is_empty() { LENGTH } else { END };
    let value = name.len() + after.len();
    let Some(at) = reply.len().checked_sub(value).filter(|_| reply.ends_with(after)) else {
        debug_assert!(false, "the reply does not end like all replies");
        return;
    };
    if missing > 0 {
        reply.set_len(at);
        let pushed = reply.push(&SPACES[..missing]).and_then(|()| reply.push(name.as_bytes()));
        let written = pushed.and_then(|()| reply.push(after));
        debug_assert!(written.is_ok(), "a buffer holds more than PAD_MAX");
    }
}

/// The largest length in bytes to which a reply can be padded: the UDP payload of an Ethernet frame
/// with IPv6.
pub const PAD_MAX: usize = 1452;

static SPACES: [u8; PAD_MAX] = [b' '; PAD_MAX];

/// The end of every reply of ours, after the value of Server.
const END: &[u8] = b"\r\nContent-Length: 0\r\n\r\n";

/// The end of every reply of ours, from the value of Content-Length.
const LENGTH: &[u8] = b"0\r\n\r\n";

/// The default name of the proxy in the Server header.
pub(crate) const SERVER: &str = concat!("Tidegate/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use tidegate_sip::HeaderName;
    use tidegate_world::Timestamp;

    use super::*;
    use crate::keys::Secret;

    const INVITE: &str = "INVITE sip:bob@biloxi.example SIP/2.0\r\n\
        Via: SIP/2.0/UDP 10.1.1.1:4540;rport;branch=z9hG4bK1\r\n\
        Max-Forwards: 70\r\n\
        To: Bob <sip:bob@biloxi.example>\r\n\
        From: Alice <sip:alice@atlanta.example>;tag=1\r\n\
        Call-ID: a84b4c76e66710\r\n\
        CSeq: 1 INVITE\r\n\
        Content-Length: 4\r\n\r\nbody";

    fn keys() -> Keys {
        Keys::new(&Secret::of([1; 32]), 0)
    }

    fn received(pool: &Pool, text: &str) -> Received {
        let at = |address: &str| address.parse().unwrap();
        let flow = Flow::udp(at("192.0.2.9:5060"), at("192.0.2.1:9988"));
        Received::new(Timestamp::ZERO, flow, pool.copy(text.as_bytes()))
    }

    fn rejected(text: &str) -> Option<(Flow, String)> {
        let pool = Pool::new();
        let transmit =
            rejection(&keys(), SERVER, &pool, &received(&pool, text), 503, &Hints::default())?;
        Some((transmit.flow, String::from_utf8(transmit.bytes.to_vec()).unwrap()))
    }

    /// Writes the rejection from the whole message, not from an outline.
    fn rejected_in_full(text: &str) -> Option<(Flow, String)> {
        let pool = Pool::new();
        let message = Message::parse_head(text.as_bytes()).ok()?;
        let (received, none) = (received(&pool, text), ReplyHeaders::new());
        let transmit = reply(&keys(), SERVER, &pool, &received, &message, 503, &none)?;
        Some((transmit.flow, String::from_utf8(transmit.bytes.to_vec()).unwrap()))
    }

    #[test]
    fn a_rejection_goes_back_and_says_who_sent_it() {
        let (flow, text) = rejected(INVITE).unwrap();
        assert_eq!(flow, received(&Pool::new(), "").flow);
        let tag = tag(&keys(), b"a84b4c76e66710", b"z9hG4bK1");
        let tag = std::str::from_utf8(&tag).unwrap();
        assert_eq!(
            text,
            format!(
                "SIP/2.0 503 Service Unavailable\r\n\
                 Via: SIP/2.0/UDP 10.1.1.1:4540;rport=9988;branch=z9hG4bK1;received=192.0.2.1\r\n\
                 To: Bob <sip:bob@biloxi.example>;tag={tag}\r\n\
                 From: Alice <sip:alice@atlanta.example>;tag=1\r\n\
                 Call-ID: a84b4c76e66710\r\n\
                 CSeq: 1 INVITE\r\n\
                 Server: {SERVER}\r\n\
                 Content-Length: 0\r\n\r\n"
            )
        );
    }

    #[test]
    fn a_rejection_is_the_same_with_and_without_an_outline() {
        for (from, to, outlined) in [
            ("", "", true),
            ("Content-Length: 4", "Content-Length: 400", true),
            (";branch=z9hG4bK1", "", true),
            (";rport", "", true),
            ("From: Alice <sip:alice@atlanta.example>;tag=1\r\n", "", true),
            ("To: Bob", "To: \"Bob", false),
            ("Call-ID: a84b4c76e66710\r\n", "", false),
            ("CSeq: 1 INVITE", "CSeq: 4294967296 INVITE", false),
        ] {
            let text = INVITE.replacen(from, to, 1);
            assert_eq!(Outline::of(text.as_bytes()).is_some(), outlined, "{to:?}");
            let answer = rejected(&text);
            assert!(answer.is_some(), "{to:?}");
            assert_eq!(answer, rejected_in_full(&text), "{to:?}");
        }
    }

    #[test]
    fn a_reply_has_all_its_headers() {
        let pool = Pool::new();
        let message = Message::parse_head(INVITE.as_bytes()).unwrap();
        let names = ["Allow", "Accept", "Accept-Encoding", "Accept-Language", "Supported"];
        let headers = ReplyHeaders::from(names.map(|name| (name, &b"x"[..])));
        let received = received(&pool, INVITE);
        let sent = reply(&keys(), SERVER, &pool, &received, &message, 200, &headers).unwrap();
        let text = String::from_utf8(sent.bytes.to_vec()).unwrap();
        for name in names {
            assert!(text.contains(&format!("\r\n{name}: x\r\n")), "{name}: {text}");
        }
        assert!(text.contains(&format!("\r\nServer: {SERVER}\r\n")), "{text}");
    }

    #[test]
    fn requests_that_cannot_be_answered_get_no_answer() {
        for (from, to) in [
            ("INVITE ", "ACK "),
            ("INVITE sip:bob@biloxi.example SIP/2.0", "SIP/2.0 200 OK"),
            ("10.1.1.1:4540", "10.1.1.1:x"),
            ("Via:", "X:"),
            ("Max-Forwards:", "Max-Forwards"),
        ] {
            assert_eq!(rejected(&INVITE.replacen(from, to, 1)), None, "{to:?}");
        }
        // An ACK without the fields that an outline needs is still an ACK.
        let ack = INVITE.replacen("INVITE ", "ACK ", 1).replacen("Call-ID", "X", 1);
        assert_eq!(rejected(&ack), None);
    }

    #[test]
    fn a_rejection_is_padded_to_a_length_and_says_the_same() {
        let pool = Pool::new();
        let bare = |name, retry_after_s| {
            let hints = Hints { retry_after_s, warning: None };
            rejection(&keys(), name, &pool, &received(&pool, INVITE), 503, &hints).unwrap()
        };
        for (name, wait, at) in [
            (SERVER, None, "Server:"),
            (SERVER, Some(1), "Server:"),
            ("edge", Some(3600), "Server:"),
            ("", Some(3600), "Content-Length:"),
        ] {
            let plain = bare(name, wait).bytes;
            for length in [plain.len() + 1, 700, PAD_MAX] {
                let mut padded = bare(name, wait).bytes;
                pad(&mut padded, name, length);
                assert_eq!(padded.len(), length);
                let text = String::from_utf8(padded.to_vec()).unwrap();
                let (before, after) = text.split_once(at).unwrap();
                let told = format!("{before}{at} {}", after.trim_start_matches(' '));
                assert_eq!(told.as_bytes(), &plain[..]);
                let message = Message::parse(&padded).unwrap();
                let server = message.field(HeaderName::Server).map(|field| field.value);
                assert_eq!(server.unwrap_or_default(), name.as_bytes());
            }
            for length in [0, plain.len() - 1, plain.len()] {
                let mut same = bare(name, wait).bytes;
                pad(&mut same, name, length);
                assert_eq!(same[..], plain[..]);
            }
        }
    }

    #[test]
    fn the_ack_of_a_rejection_is_known_and_no_other() {
        let tag = tag(&keys(), b"a84b4c76e66710", b"z9hG4bK1");
        let to = format!("biloxi.example>;tag={}", std::str::from_utf8(&tag).unwrap());
        let ack = INVITE.replace("INVITE", "ACK").replacen("biloxi.example>", &to, 1);
        assert!(is_own_ack(&keys(), ack.as_bytes()));
        for (from, to) in [
            ("ACK ", "BYE "),
            ("z9hG4bK1", "z9hG4bK2"),
            ("a84b4c76e66710", "a84b4c76e66711"),
            (";tag=tg", ";tag=gt"),
            (";tag=tg", ";gat=tg"),
        ] {
            assert!(!is_own_ack(&keys(), ack.replacen(from, to, 1).as_bytes()), "{to:?}");
        }
        // RFC 3261 §25.1: whitespace may stand around the equals sign.
        for equal in ["tag = tg", "tag=\ttg", "tag =\r\n tg"] {
            assert!(is_own_ack(&keys(), ack.replacen("tag=tg", equal, 1).as_bytes()), "{equal:?}");
        }
        let others = Keys::new(&Secret::of([2; 32]), 0);
        assert!(!is_own_ack(&others, ack.as_bytes()));
    }
}
