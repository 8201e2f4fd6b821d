//! Requests that are too long for a datagram: RFC 3261 §18.1.1.
//!
//! A request for a back end over UDP leaves over TCP if it is longer than [`LENGTH_MAX`] and the
//! configuration of its pool enables this. The request keeps its transaction, its back end and its
//! Record-Route. Only the Via and the connection change to TCP. If the request cannot be sent over
//! TCP, for example because the back end refuses the connection, it is sent by UDP.

use std::time::Duration;

use tidegate_world::Transport;

use crate::network::canonical;
use crate::routing::next_hop::NextHop;
use crate::snapshot::Snapshot;
use crate::step::Step;
use crate::target::Target;

/// The length in bytes up to which a request is sent by UDP. The path MTU is not known.
const LENGTH_MAX: usize = 1300;

/// The time for which large requests to a back end leave by UDP, after a connection to it could not
/// be opened.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Returns whether a request is so long that it has to leave over TCP if possible. `length` is the
/// length in bytes that the request would have over UDP for this hop. Such a request needs a
/// transaction, because the proxy may have to send it again by UDP.
pub(crate) fn is_large(snapshot: &Snapshot, hop: &NextHop, length: usize) -> bool {
    let to = hop.backend_ref.filter(|_| hop.toward_backend);
    length > LENGTH_MAX
        && hop.target.transport == Transport::Udp
        && to.is_some_and(|backend_ref| snapshot.pool(backend_ref.pool).large_over_tcp)
}

/// Returns the target and the listener for a request that has to leave over TCP. Returns `None` if
/// the request leaves by UDP. `length` and `egress` are the length and the listener that the
/// request would have over UDP for this hop.
///
/// RFC 3261 §18.1.1: "If a request is within 200 bytes of the path MTU, or if it is larger than
/// 1300 bytes and the path MTU is unknown, the request MUST be sent using an RFC 2914 \[43\]
/// congestion controlled transport protocol, such as TCP."
///
/// The listener is one for TCP, and our Via names it. RFC 3261 §18.1.1: "If this causes a change in
/// the transport protocol from the one indicated in the top Via, the value in the top Via MUST be
/// changed." "To handle this case, the transport layer MUST also be prepared to receive an incoming
/// connection on the source IP address from which the request was sent and port number in the
/// "sent-by" field." The listener for TCP has the IP address of `egress`, so that the request
/// leaves by the same interface. If there is no such listener, or a connection to the back end
/// could not be opened in the last minute, the request leaves by UDP.
///
/// RFC 3261 §18: "It has arisen out of the need to handle larger messages, which MUST use TCP, as
/// discussed below."
pub(super) fn over_tcp(
    step: &Step<'_>,
    hop: &NextHop,
    egress: u8,
    length: usize,
) -> Option<(Target, u8)> {
    if !is_large(step.snapshot, hop, length) {
        return None;
    }
    let target = Target { transport: Transport::Tcp, ..hop.target };
    let known = Target { address: canonical(target.address), ..target };
    if step.peers.is_unreachable_within(step.now, &known, REFUSED_FOR) {
        return None;
    }
    let egress = step.snapshot.addresses.beside(egress.into(), &target)?;
    Some((target, egress as u8))
}
