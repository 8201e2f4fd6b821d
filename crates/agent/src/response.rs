//! Responses and their destination (RFC 3261 §8.2.6, §18.2.2).

use std::net::SocketAddr;

use tidegate_sip::{Message, Reply, reason, reply_target, write_reply};
use tidegate_world::{Flow, Pool, Transmit};

/// The last bytes of a response without a body.
const NO_BODY: &[u8] = b"Content-Length: 0\r\n\r\n";

/// Returns the response to `request`, which came over `flow`. Returns `None` if the request has no
/// readable Via, or if the response would be too long.
pub(crate) fn to(
    request: &Message<'_>,
    flow: Flow,
    status: u16,
    to_tag: Option<&[u8]>,
    headers: &[(&str, &[u8])],
    pool: &Pool,
) -> Option<Transmit> {
    let source = Some(flow.remote);
    let reply = Reply { status, reason: reason(status), to_tag, source, headers };
    let mut bytes = pool.take();
    write_reply(request, &reply, &mut bytes).ok()?;
    let via = request.top_via().ok()?;
    // The response goes to the address of the source, in the form in which the socket reports it.
    let port = reply_target(&via, flow.remote).port();
    let remote = SocketAddr::new(flow.remote.ip(), port);
    Some(Transmit::new(Flow { remote, ..flow }, bytes))
}

/// Replaces the empty body of a response by `tail`, which contains further headers, an empty line
/// and a body. Returns `false` if the result would be too long for a datagram.
#[must_use]
pub(crate) fn add_body(response: &mut Transmit, tail: &[u8]) -> bool {
    let bytes = &mut response.bytes;
    debug_assert!(bytes.ends_with(NO_BODY), "the response already has a body");
    bytes.set_len(bytes.len() - NO_BODY.len());
    bytes.push(tail).is_ok()
}
