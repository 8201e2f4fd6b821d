//! Our Path in a REGISTER: RFC 3327, and RFC 5626 §5.1.
//!
//! The registrar stores the Path with the binding, and writes it into the Route of each request for
//! that phone. So the request comes to us, with a [flow token](crate::message::flow_token) that
//! identifies the flow on which the phone has registered.

use arrayvec::ArrayVec;
use tidegate_sip::{HeaderName, Message, Method, Scheme};
use tidegate_world::Flow;

use super::{ForwardPlan, HEAD_MAX, write_all};
use crate::message::flow_token::RegisteredFlow;
use crate::message::request::Request;
use crate::rejection::Rejection;
use crate::settings::PathMode;
use crate::snapshot::Snapshot;

/// Writes our Path if the registrar should send requests for the phone through this proxy.
///
/// RFC 3327 §5.2: "When a proxy processing a REGISTER request wishes to be on the path for future
/// requests toward the UA originating that REGISTER request, the proxy inserts a URI for that proxy
/// as the topmost value in the Path header field (or inserts a new topmost Path header) before
/// proxying that request."
pub(super) fn write_path(
    head: &mut ArrayVec<u8, HEAD_MAX>,
    snapshot: &Snapshot,
    from: &Flow,
    request: &Request<'_>,
    plan: &ForwardPlan,
) -> Result<(), Rejection> {
    if request.method != Method::Register || !adds_path(snapshot, request, plan) {
        return Ok(());
    }
    let ingress = usize::from(plan.edits.ingress);
    let is_shared = snapshot.addresses.listener(ingress).is_some_and(|own| own.is_shared());
    // If several instances share the listener of a phone that uses datagrams, the Path names this
    // listener. After this instance has ended, another one gets the requests of the registrar and
    // sends them from the same address. But only this instance has the connection of a phone.
    let named = match is_shared && !from.transport.is_reliable() {
        true => ingress,
        false => plan.recorded.into(),
    };
    let own = snapshot.addresses.listener(named).ok_or(Rejection::UNREACHABLE)?;
    let asked = snapshot.addresses.listener(ingress).and_then(|own| own.asked(from));
    let flow = RegisteredFlow::of(from, snapshot.shard, ingress, asked);
    let token = flow.encode(&snapshot.keys);
    let (scheme, end): (&[u8], _) =
        match request.uri.scheme == Scheme::Sips && own.transport.is_secure() {
            true => (b"Path: <sips:", &own.record_route_sips),
            false => (b"Path: <sip:", &own.record_route),
        };
    // RFC 5626 §5.1: "In addition, if the edge proxy is the first SIP node after the UAC, the edge
    // proxy either MUST store a "flow token" (containing information about the flow from the
    // previous hop) in its Path URI or reject the request."
    // RFC 3327 §4: "such values MUST include the loose-routing indicator parameter ";lr" for full
    // compliance".
    let end = end.strip_suffix(">\r\n").unwrap_or(end);
    let outbound: &[u8] = if is_first_hop_of_flow(request.message) { b";ob" } else { b"" };
    write_all(head, &[scheme, &token, end.as_bytes(), outbound, b">\r\n"])
}

/// Returns whether a REGISTER with this plan gets our Path.
///
/// RFC 3327 §5.2: "Intermediate proxies SHOULD NOT add a Path header field to a request unless the
/// UA has indicated support for this extension with a Supported header field value."
///
/// RFC 5626 §5.1: "If the edge proxy is the first hop, as indicated by the Via header field, it
/// MUST insert its URI in a Path header field value as described in \[RFC3327\]."
pub(crate) fn adds_path(snapshot: &Snapshot, request: &Request<'_>, plan: &ForwardPlan) -> bool {
    let Some(backend_ref) = plan.backend_ref.filter(|_| plan.edits.toward_backend) else {
        return false;
    };
    match snapshot.pool(backend_ref.pool).path {
        PathMode::Never => false,
        PathMode::Always => true,
        PathMode::Supported => {
            supports_path(request.message) || is_first_hop_of_flow(request.message)
        }
    }
}

/// Returns whether the user agent supports the option tag `path`.
///
/// RFC 3327 §4: "Support for the Path header field MAY be indicated by a UA by including the
/// option-tag "path" in a Supported header field."
fn supports_path(message: &Message<'_>) -> bool {
    let tags = message.fields_of(HeaderName::Supported).map(|field| field.value);
    tags.flat_map(|value| value.split(|&byte| byte == b','))
        .any(|tag| tag.trim_ascii().eq_ignore_ascii_case(b"path"))
}

/// Returns whether this REGISTER comes directly from a user agent that registers its flow as one of
/// several (RFC 5626): its Contact has a `reg-id` together with an instance ID (§6).
///
/// RFC 5626 §5.1: "In addition, the first node MUST include an "ob" URI parameter in its Path
/// header field value." "If the edge proxy is not the first SIP node after the UAC it MUST NOT
/// place an "ob" URI parameter in a Path header field value."
fn is_first_hop_of_flow(message: &Message<'_>) -> bool {
    message.lower_vias().next().is_none()
        && message.contacts().filter_map(Result::ok).any(|contact| {
            contact.params.get("reg-id").is_some() && contact.params.get("+sip.instance").is_some()
        })
}
