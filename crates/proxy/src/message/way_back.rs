//! Where the responses to a request go, as its branch covers it.

use std::net::SocketAddr;

use tidegate_sip::{Via, listener_target, reply_target};
use tidegate_world::Flow;

/// Returns where responses to a request with this top Via go that came on `flow`.
///
/// On a stream that is where a connection would be opened: the sender of a CANCEL may have lost the
/// connection of its INVITE, and its source port with it, and the CANCEL needs the same branch.
pub(crate) fn way_back(via: &Via<'_>, flow: &Flow) -> SocketAddr {
    match flow.transport.is_reliable() {
        true => listener_target(via, flow.remote),
        false => reply_target(via, flow.remote),
    }
}
