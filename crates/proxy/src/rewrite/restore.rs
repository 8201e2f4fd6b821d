//! Restores the Request-URI of a request that has passed a strict router, and removes our maddr
//! from a Request-URI.

use tidegate_world::Flow;

use crate::message::request::{Request, check_hop, check_uri};
use crate::message::request_uri::cleaned;
use crate::message::token::RouteToken;
use crate::rejection::Rejection;
use crate::snapshot::Snapshot;

/// Restores the Request-URI as RFC 3261 §16.4 requires.
///
/// "If the Request-URI of the request contains a value this proxy previously placed into a
/// Record-Route header field (see Section 16.6 item 4), the proxy MUST replace the Request-URI in
/// the request with the last value from the Route header field, and remove that value from the
/// Route header field." A strict router before us has moved our value into the Request-URI.
///
/// RFC 3261 §16.4: "The proxy MUST inspect the Request-URI of the request." "The proxy MUST then
/// proceed as if it received this modified request."
pub(crate) fn restore(
    snapshot: &Snapshot,
    request: &mut Request<'_>,
    flow: &Flow,
) -> Result<(), Rejection> {
    let user = request.uri.user.unwrap_or_default();
    let token = RouteToken::decode(user, &snapshot.keys, request.essentials.call_id);
    if token.is_some()
        && snapshot.addresses.is_own_route(&request.uri, flow)
        && let Some(last) = request.message.routes().last().transpose()?
    {
        request.uri_text = last.uri;
        request.uri = last.parse_uri()?;
        check_uri(&request.uri)?;
        check_hop(&request.uri, flow)?;
        (request.token, request.restored) = (token, 1);
    }
    if !request.uri.params.text().is_empty() {
        clean(snapshot, request, flow);
    }
    Ok(())
}

/// Removes from the Request-URI the parts that RFC 3261 §16.4 forbids.
fn clean(snapshot: &Snapshot, request: &mut Request<'_>, flow: &Flow) {
    let is_own_maddr = snapshot.addresses.is_own_maddr(&request.uri, flow);
    request.cleaned = cleaned(&request.uri, is_own_maddr).map(Into::into);
    if is_own_maddr {
        // RFC 3261 §16.4: "and continue processing as if those values had not been present in
        // the request."
        request.uri = request.uri.without_params();
    }
}
