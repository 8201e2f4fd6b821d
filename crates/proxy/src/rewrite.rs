//! Rewrites a message for its next hop (RFC 3261 §16.6): copies the received bytes, and cuts and
//! inserts parts.
//!
//! The result depends only on the received bytes and on a [`ForwardPlan`]. So a request that must
//! be sent again is written again, and the proxy keeps no copy of the forwarded request.

pub(crate) mod path;
mod peer;
pub(crate) mod privacy;
pub(crate) mod restore;

use std::io::{self, Write as _};
use std::net::SocketAddr;

use arrayvec::ArrayVec;
use memchr::{memchr, memmem};
use tidegate_sip::{
    HeaderName, Message, Method, Passage, Scheme, Splice, Uri, Via, forward as edit,
    may_have_overload_control, write_overload_control,
};
use tidegate_world::{Buffer, Flow, Received, Transport};

use crate::message::request::Request;
use crate::message::request_uri::cleaned;
use crate::message::token::{Minutes, RouteToken};
use crate::message::way_back::way_back;
use crate::network::canonical;
use crate::pushback::wire::OverloadOffer;
use crate::rejection::{DropReason, Rejection};
use crate::settings::BackendRef;
use crate::snapshot::Snapshot;
use crate::target::Target;
use crate::transport::addresses::Own;
use path::write_path;
use peer::peer_of;
use privacy::{filter_response, keep_private};

/// Maximum length in bytes of the headers that we insert on top: a Via and up to two Record-Routes
/// or a Path, with host names of up to 255 characters each, and a Max-Breadth.
const HEAD_MAX: usize = 1024 + 64;

/// RFC 3261 §16.6 item 3: a request without Max-Forwards gets 70.
pub(crate) const MAX_FORWARDS: u32 = 70;

/// The next hop of a request, and the resulting changes in the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardPlan {
    pub(crate) target: Target,
    /// The back end of the dialog that the request may begin.
    pub(crate) backend_ref: Option<BackendRef>,
    /// The listener from which the request leaves.
    pub(crate) egress: u8,
    /// The listener that our Record-Route names on the side of the next hop.
    pub(crate) recorded: u8,
    /// The value of Max-Breadth to write, RFC 5393 §5.3.3.
    pub(crate) max_breadth: Option<u32>,
    /// The overload control that our Via offers, RFC 7339 §4.1.
    pub(crate) offer: OverloadOffer,
    pub(crate) edits: Edits,
}

/// Changes in a request that are the same for each of its targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edits {
    /// True if the request goes to a back end or to a user, rather than coming from one.
    pub(crate) toward_backend: bool,
    /// True if the target is a contact of a user, and the sender is not a back end. Such a request
    /// may begin a dialog with the user.
    pub(crate) is_user: bool,
    /// The listener at which the request arrived.
    pub(crate) ingress: u8,
    /// Number of leading Route values that name us and are removed.
    pub(crate) own_routes: u8,
    /// True if the next hop is a strict router (RFC 3261 §16.6 item 6).
    pub(crate) is_strict: bool,
    /// Arrival time of the request, for the token in our Record-Route. It stays the same when the
    /// request is written again.
    pub(crate) made: Minutes,
}

/// Writes the request for the next hop. `from` is the flow on which the request arrived, and
/// `branch` is the branch of our Via.
///
/// RFC 3261 §16.6: "The copy MUST initially contain all of the header fields from the received
/// request." "Fields not detailed in the processing described below MUST NOT be removed." "The copy
/// SHOULD maintain the ordering of the header fields as in the received request." "The proxy MUST
/// NOT reorder field values with a common field name (See Section 7.3.1)." "The proxy MUST NOT add
/// to, modify, or remove the message body."
pub(crate) fn write_request(
    snapshot: &Snapshot,
    from: &Flow,
    request: &Request<'_>,
    plan: &ForwardPlan,
    branch: &[u8],
) -> Result<Buffer, Rejection> {
    let Request { message, max_forwards, essentials, .. } = request;
    // RFC 3261 §16.6 item 6: "Furthermore, if the Request-URI contains a SIPS URI, TLS MUST be used
    // to communicate with that proxy."
    if request.uri.scheme == Scheme::Sips && !plan.target.transport.is_secure() {
        return Err(Rejection::INSECURE);
    }
    let mut head = ArrayVec::new();
    write_head(&mut head, snapshot, from, request, plan, branch)?;
    let source = edit::Source::new(from.remote);
    // RFC 3261 §16.6: "If the copy contains a Max-Forwards header field, the proxy MUST decrement
    // its value by one (1)." "If the copy does not contain a Max-Forwards header field, the proxy
    // MUST add one with a field value, which SHOULD be 70."
    let max_forwards = max_forwards.map_or(MAX_FORWARDS, |n| n.saturating_sub(1));
    let (mut digits, mut breadth_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
    let mut length_digits = itoa::Buffer::new();
    let mut breadth = plan.max_breadth.map(|breadth| breadth_digits.format(breadth).as_bytes());
    // Most requests have no Max-Breadth: one insertion adds it together with the head.
    if let Some(value) = breadth
        && request.max_forwards.is_some()
        && message.field(HeaderName::MaxBreadth).is_none()
    {
        write_all(&mut head, &[b"Max-Breadth: ", value, b"\r\n"])?;
        breadth = None;
    }
    let around = around_strict_routers(request, plan)?;

    let mut splice = Splice::new(message);
    splice.insert(edit::top_of_headers(message), &head);
    edit::record_source(&mut splice, message, &essentials.via, &source);
    edit::set_max_forwards(&mut splice, message, digits.format(max_forwards).as_bytes());
    if let Some(breadth) = breadth {
        edit::set_max_breadth(&mut splice, message, breadth);
    }
    // RFC 3261 §16.6 item 10: "If the request will be sent to the next hop using a stream-based
    // transport and the copy contains no Content-Length header field, the proxy MUST insert one
    // with the correct value for the body of the request (see Section 20.14)."
    if plan.target.transport.is_reliable() && message.field(HeaderName::ContentLength).is_none() {
        let length = length_digits.format(message.body().len()).as_bytes();
        edit::set_content_length(&mut splice, message, length);
    }
    match &around {
        None => {
            edit::remove_first_route(&mut splice, message, plan.edits.own_routes.into());
            if let Some(uri) = &request.cleaned {
                edit::set_request_uri(&mut splice, message, uri);
            }
        }
        Some(Around { uri, routes }) => {
            edit::set_request_uri(&mut splice, message, uri);
            edit::replace_routes(&mut splice, message, routes);
        }
    }
    let mut bytes = snapshot.buffers.take();
    splice.write_to(&mut bytes).map_err(|error| unwritten(&error))?;
    // RFC 7339 §5.6: "Therefore, forwarding the contents of the overload control parameters is
    // generally NOT RECOMMENDED and should only be performed if permitted by the configuration of
    // SIP servers." "This means that a SIP proxy SHOULD strip the overload control parameters
    // inserted by the client before proxying the request further downstream."
    if may_have_foreign_overload_control(message, &essentials.via) {
        bytes = strip_overload_control(snapshot, &bytes, 1).map_err(|_| TOO_LONG)?;
    }
    if message.has_identity() {
        let own = snapshot.addresses.listener(plan.egress.into()).ok_or(Rejection::UNREACHABLE)?;
        bytes = keep_private(snapshot, &plan.target.flow_from(own.local), bytes);
    }
    Ok(bytes)
}

/// Writes our Via, our Record-Route if the request may begin a dialog, and our Path if it registers
/// a phone.
fn write_head(
    head: &mut ArrayVec<u8, HEAD_MAX>,
    snapshot: &Snapshot,
    from: &Flow,
    request: &Request<'_>,
    plan: &ForwardPlan,
    branch: &[u8],
) -> Result<(), Rejection> {
    let ForwardPlan { egress, recorded, edits: Edits { ingress, .. }, .. } = *plan;
    // RFC 3261 §16.6 item 8: our Via.
    let own = snapshot.addresses.listener(egress.into()).ok_or(Rejection::UNREACHABLE)?;
    // RFC 3261 §16.6: "The proxy MUST insert a Via header field value into the copy before the
    // existing Via header field values."
    // RFC 5393 §4.2.1: "The proxy MUST insert a Via header field value into the copy before the
    // existing Via header field values."
    let offer = snapshot.next_hops.offer_text(plan.offer);
    write_all(head, &[own.via.as_bytes(), branch, &offer, b"\r\n"])?;
    // RFC 3261 §16.6 item 4. Tidegate stays on the path of later requests in the dialog.
    // RFC 3261 §16.6: "If this proxy wishes to remain on the path of future requests in a dialog
    // created by this request (assuming the request creates a dialog), it MUST insert a
    // Record-Route header field value into the copy before any existing Record-Route header field
    // values, even if a Route header field is already present." "If this request is already part of
    // a dialog, the proxy SHOULD insert a Record-Route header field value if it wishes to remain on
    // the path of future requests in the dialog."
    if let Method::Invite | Method::Subscribe | Method::Refer | Method::Notify = request.method
        && let Some((backend, transport)) = backend_of(snapshot, from, request, plan)
    {
        let token = RouteToken {
            shard: snapshot.shard as u8,
            backend,
            transport,
            made: plan.edits.made,
            peer: Some(peer_of(snapshot, from, request, plan)),
            is_user: plan.backend_ref.is_none(),
        };
        let is_sips = request.uri.scheme == Scheme::Sips;
        let token = token.encode(&snapshot.keys, request.essentials.call_id);
        // Each side reaches us by the listener on its own side. The listener on the side of the
        // next hop is on top. If several instances share the listener `ingress`, only this listener
        // is named: the address of the other one may disappear with this instance, and the dialog
        // must survive.
        let shared = snapshot.addresses.listener(ingress.into()).is_some_and(Own::is_shared);
        let listeners: &[u8] =
            if recorded == ingress || shared { &[ingress] } else { &[recorded, ingress] };
        for listener in listeners {
            let Some(own) = snapshot.addresses.listener((*listener).into()) else { continue };
            // RFC 3261 §16.6 item 4: "If the Request-URI contains a SIPS URI, or the topmost Route
            // header field value (after the post processing of bullet 6) contains a SIPS URI, the
            // URI placed into the Record-Route header field MUST be a SIPS URI."
            let (scheme, end): (&[u8], _) = match is_sips && own.transport.is_secure() {
                true => (b"Record-Route: <sips:", &own.record_route_sips),
                false => (b"Record-Route: <sip:", &own.record_route),
            };
            write_all(head, &[scheme, &token, end.as_bytes()])?;
        }
    }
    write_path(head, snapshot, from, request, plan)
}

/// Returns the address and the transport of the party with which a request may begin a dialog: a
/// back end, a user, or a trusted source that calls a registered phone.
fn backend_of(
    snapshot: &Snapshot,
    from: &Flow,
    request: &Request<'_>,
    plan: &ForwardPlan,
) -> Option<(SocketAddr, Transport)> {
    let target = plan.target;
    let Some(backend_ref) = plan.backend_ref else {
        // RFC 5626 §5.3.1: "the proxy needs to adjust the route set to ensure that subsequent
        // requests in the dialog can be delivered over a valid flow to the UA instance identified
        // by the flow token." The phone is the peer in the route token.
        return match plan.edits.is_user {
            true => Some((canonical(target.address), target.transport)),
            false if target.is_registered => {
                Some((way_back(&request.essentials.via, from), from.transport))
            }
            false => None,
        };
    };
    let address = match (snapshot.backend(backend_ref).named(), plan.edits.toward_backend) {
        // A back end with a name may have moved. In this dialog it has the address to which this
        // request goes, or from which it came. A connection that it has opened has another port.
        (Some(_), true) => target.address,
        (Some(named), false) => named.address_behind(canonical(from.remote)),
        (None, _) => snapshot.backend(backend_ref).address().unwrap_or(target.address),
    };
    Some((address, snapshot.transport(backend_ref.pool)))
}

/// Returns the Request-URI and the Route to write if a strict router is before or behind us,
/// otherwise `None`.
fn around_strict_routers(
    request: &Request<'_>,
    plan: &ForwardPlan,
) -> Result<Option<Around>, Rejection> {
    if request.restored == 0 && !plan.edits.is_strict {
        return Ok(None);
    }
    let message = request.message;
    let mut routes = message.routes().collect::<Result<Vec<_>, _>>()?;
    routes.truncate(routes.len() - request.restored);
    let mut left = routes.into_iter().skip(plan.edits.own_routes.into());
    // RFC 3261 §16.6 item 6: "The proxy MUST place the Request-URI into the Route header
    // field as the last value." "The proxy MUST then place the first Route header field value
    // into the Request-URI and remove that value from the Route header field."
    // RFC 3261 §16.6: "If that URI does not contain an lr parameter, the proxy MUST modify the copy
    // as follows:"
    let (uri, last) = match plan.edits.is_strict.then(|| left.next()).flatten() {
        Some(first) => (first.uri, [b"<", request.uri_as_sent(), b">"].concat()),
        None => (request.uri_as_sent(), Vec::new()),
    };
    let mut values: Vec<&[u8]> = left.map(|route| route.element).collect();
    values.extend((!last.is_empty()).then_some(&*last));
    let routes = match values.join(&b", "[..]) {
        values if values.is_empty() => values,
        values => [b"Route: ", &*values, b"\r\n"].concat(),
    };
    // §16.6 item 2: "If the URI contains any parameters not allowed in a Request-URI, they MUST
    // be removed". The same applies to a URI that was in a Route.
    let cleaned = Uri::parse(uri).ok().and_then(|uri| cleaned(&uri, false));
    Ok(Some(Around { uri: cleaned.unwrap_or_else(|| uri.to_vec()), routes }))
}

/// Writes a response that goes back on `flow`. Our Via is removed, RFC 3261 §16.7 item 3.
///
/// RFC 3327 §5.2: "Proxies processing a REGISTER response SHOULD NOT alter any Path header field
/// values that may be present in the response."
///
/// RFC 3261 §16.7: "The following processing MUST be performed on each response that is forwarded."
/// "A proxy MUST NOT insert a tag into the To header field of a 1xx or 2xx response if the request
/// did not contain one." "A proxy MUST NOT modify the tag in the To header field of a 1xx or 2xx
/// response." "An element SHOULD preserve the To tag when simply forwarding a 3-6xx response to a
/// request that did not contain a To tag." "A proxy MUST NOT modify the To tag in any forwarded
/// response to a request that contains a To tag." "The proxy MUST NOT add to, modify, or remove the
/// message body." "Unless otherwise specified, the proxy MUST NOT remove any header field values
/// other than the Via header field value discussed in Section 16.7 Item 3." "In particular, the
/// proxy MUST NOT remove any "received" parameter it may have added to the next Via header field
/// value while processing the request associated with this response."
///
/// RFC 3261 §16.11: "The proxy MUST NOT add to, modify, or remove the message body." "Unless
/// specified otherwise, the proxy MUST NOT remove any other header field values."
pub(crate) fn write_response(
    snapshot: &Snapshot,
    received: &Received,
    passage: &Passage<'_>,
    flow: &Flow,
) -> Result<Buffer, DropReason> {
    let mut bytes = snapshot.buffers.take();
    passage.write_to(&mut bytes).map_err(|_| DropReason::TooLong)?;
    // RFC 7339 §5.4: "A SIP client SHOULD remove the "oc", "oc-validity", and "oc-seq" parameters
    // from all Via headers of a response received, except for the topmost Via header." The topmost
    // one is ours, and has been removed.
    if passage.has_foreign_overload_control {
        bytes = strip_overload_control(snapshot, &bytes, 0).map_err(|_| DropReason::TooLong)?;
    }
    if flow.transport.is_reliable() && !passage.has_length {
        bytes = with_length(snapshot, &bytes)?;
    }
    if passage.has_private {
        bytes = filter_response(snapshot, &received.flow, flow, bytes);
    }
    Ok(bytes)
}

/// Returns whether any Via may have overload control parameters. `top` is the topmost Via.
fn may_have_foreign_overload_control(message: &Message<'_>, top: &Via<'_>) -> bool {
    let mut lines = message.fields_of(HeaderName::Via).map(|line| line.value);
    let is_alone = lines.next().is_none_or(|line| line.len() == top.element.len());
    top.may_have_overload_control()
        || !is_alone
            && message.fields_of(HeaderName::Via).any(|line| may_have_overload_control(line.value))
        || lines.any(may_have_overload_control)
}

/// Returns a copy of a message without overload control parameters in its Vias. The first `kept`
/// Vias stay unchanged.
#[cold]
fn strip_overload_control(snapshot: &Snapshot, bytes: &[u8], kept: usize) -> io::Result<Buffer> {
    let mut out = snapshot.buffers.take();
    let are_valid = write_overload_control(bytes, kept, b"", &mut out)?;
    debug_assert!(are_valid, "`Message::essentials` and `Passage::parse` have checked the Vias");
    Ok(out)
}

/// Returns a copy of a response with a Content-Length.
///
/// RFC 3261 §18.3: "The Content-Length header field MUST be used with stream oriented transports."
#[cold]
fn with_length(snapshot: &Snapshot, bytes: &[u8]) -> Result<Buffer, DropReason> {
    // Insert the header field directly below the status line, because later lines may be malformed.
    let (line, head) =
        memchr(b'\n', bytes).zip(memmem::find(bytes, b"\r\n\r\n")).ok_or(DropReason::Malformed)?;
    let mut digits = itoa::Buffer::new();
    let length = digits.format(bytes.len() - (head + 4));
    let (start, rest) = bytes.split_at(line + 1);
    let mut out = snapshot.buffers.take();
    for part in [start, b"Content-Length: ", length.as_bytes(), b"\r\n", rest] {
        out.write_all(part).map_err(|_| DropReason::TooLong)?;
    }
    Ok(out)
}

/// Request-URI and Route line of a request that passes a strict router.
struct Around {
    uri: Vec<u8>,
    routes: Vec<u8>,
}

/// The rejection of a message that is too long to forward (RFC 3261 §21.5.7). Without a response
/// its sender would retransmit it.
const TOO_LONG: Rejection =
    Rejection::usual(513, "the forwarded request would be longer than a datagram");

/// The rejection of a message whose edits overlap because of a bug in this proxy. Such a bug must
/// not stop the process. RFC 3261 §21.5.1: "The server encountered an unexpected condition that
/// prevented it from fulfilling the request."
const NOT_REWRITTEN: Rejection = Rejection::usual(500, "the request cannot be rewritten");

/// Returns the rejection of a request whose forwarded form cannot be written, because of `error`.
#[cold]
fn unwritten(error: &io::Error) -> Rejection {
    match error.kind() {
        io::ErrorKind::InvalidInput => NOT_REWRITTEN,
        _ => TOO_LONG,
    }
}

fn write_all(head: &mut ArrayVec<u8, HEAD_MAX>, parts: &[&[u8]]) -> Result<(), Rejection> {
    for part in parts {
        head.write_all(part).map_err(|_| TOO_LONG)?;
    }
    Ok(())
}
