//! The target of the responses to a request, in the form that the MAC of its branch covers.

use std::net::SocketAddr;

use tidegate_sip::{Via, listener_target, reply_target};
use tidegate_world::Flow;

/// Returns the target of responses to a request with this top Via that was received on `flow`.
///
/// On a stream this is the address to which a new connection would be opened. The sender of a
/// CANCEL may have lost the connection of its INVITE, and with it the source port. But the CANCEL
/// needs the same branch as the INVITE.
pub(crate) fn way_back(via: &Via<'_>, flow: &Flow) -> SocketAddr {
    match flow.transport.is_reliable() {
        true => listener_target(via, flow.remote),
        false => reply_target(via, flow.remote),
    }
}
