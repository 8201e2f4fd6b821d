//! The target of the responses to a request. The MAC in our branch covers this target.

use std::iter;
use std::net::SocketAddr;

use tidegate_sip::{Via, connection_target, listener_target, reply_target, response_target};
use tidegate_world::Flow;

use crate::rejection::Rejection;

/// Returns the target of responses to a request with this top Via that was received on `flow`.
///
/// For a request on a stream, this is the address to which a new connection would be opened, not
/// the source address. The reason is that a CANCEL needs the same branch as its INVITE, and comes
/// from another port if the sender has lost the connection of the INVITE.
pub(crate) fn way_back(via: &Via<'_>, flow: &Flow) -> SocketAddr {
    match flow.transport.is_reliable() {
        true => listener_target(via, flow.remote),
        false => reply_target(via, flow.remote),
    }
}

/// Checks that the responses to a request with this top Via that was received on `flow` can be
/// sent. No datagram can be sent to port 0. If such a request were forwarded, this proxy could not
/// pass on the responses, and the back end would seem silent. The responses to a request on a
/// stream go back on its connection, even if its Via has port 0.
pub(crate) fn check_way_back(via: &Via<'_>, flow: &Flow) -> Result<(), Rejection> {
    match way_back(via, flow).port() {
        0 => Err(Rejection::usual(400, "responses cannot be sent to port 0")),
        _ => Ok(()),
    }
}

/// Returns the possible results of [`way_back`] for a request whose transport is not known. `via`
/// is the top Via of the request, with the source address that this proxy has written into it
/// (`received`, `rport`). The first address is the result for a datagram. The second is the result
/// for a stream, if the proxy `has_streams` and this result differs from the first.
pub(crate) fn ways_back(via: &Via<'_>, has_streams: bool) -> impl Iterator<Item = SocketAddr> {
    let datagram = response_target(via);
    let stream = move || {
        let target = has_streams.then(|| connection_target(via)).flatten();
        target.filter(|target| datagram != Some(*target))
    };
    datagram.into_iter().chain(iter::once_with(stream).flatten())
}
