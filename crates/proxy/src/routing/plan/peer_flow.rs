//! The flow to the other party of a dialog in which a back end sends a request, and the requests
//! that must use it.

use std::net::SocketAddr;

use tidegate_sip::Uri;
use tidegate_world::Transport;

use super::PlanInput;
use crate::message::token::PeerFlow;
use crate::network::{canonical, is_inside, may_be_sent_to};
use crate::rejection::Rejection;
use crate::snapshot::Snapshot;
use crate::target::Target;
use crate::transport::addresses::Origin;

/// Returns the flow to the other party of a dialog, for a request that a back end sends in the
/// dialog. Returns `None` if the route token does not show that the dialog belongs to that back
/// end.
pub(super) fn peer_of_sender(input: &PlanInput<'_, '_>) -> Option<PeerFlow> {
    let &PlanInput { snapshot, received, request, ref routes, origin, is_removed, .. } = input;
    request.essentials.to_tag?;
    let token = routes.token?;
    let remote = canonical(received.flow.remote);
    let is_own = match origin {
        Origin::Backend(backend_ref) => {
            token.backend == remote
                || snapshot.addresses.backend_ref(token.backend) == Some(backend_ref)
                || received.flow.transport.is_reliable() && token.backend.ip() == remote.ip()
        }
        Origin::Trusted => is_removed,
        Origin::Stranger => false,
    };
    // Both parties may be back ends. Then a request from the other party must not go to that party
    // itself.
    token.peer.filter(|peer| is_own && peer.remote != remote)
}

/// Returns whether a request must use the flow to the other party of its dialog, because the
/// Contact in the Request-URI does not lead to that party. The Contact may be a name, an address
/// that this network does not route, or the address of a phone behind address translation.
///
/// RFC 5626 §5.3.1: "the proxy removes the Route header field value and forwards the request over
/// the 'logical flow' identified by the flow token, that is known to deliver data to the specific
/// target UA instance."
pub(super) fn needs_flow(snapshot: &Snapshot, contact: &Uri<'_>, peer: &PeerFlow) -> bool {
    // RFC 5626 §5.3.2: "the edge proxy can use the presence of the "ob" URI parameter in the UAC's
    // Contact URI (or topmost Route header field) to determine if the edge proxy needs to assist in
    // mid-dialog request routing."
    if peer.is_registered || contact.params.get("ob").is_some() {
        return true;
    }
    // A browser accepts no connections, and the host in its Contact is invented (RFC 7118 §8.1).
    if snapshot.addresses.transport(peer.listener.into()).is_websocket() {
        return true;
    }
    let Some(named) = snapshot.addresses.target_of(contact) else { return true };
    let contact = canonical(named.address);
    match contact.ip() == peer.remote.ip() {
        // RFC 3261 §18.1.1: "it is RECOMMENDED that this connection be used". A phone seldom
        // accepts connections. RFC 3581 §3: a client that asks for responses at its source port
        // receives there. If its Via names another port, it may be behind address translation.
        true => {
            // The connection to another process counts if nothing else leads to the party.
            let is_connected = match peer.is_elsewhere {
                true => snapshot.is_bound(peer) || named.transport.is_secure(),
                false => peer.connection.is_some(),
            };
            is_connected || peer.has_other_port || contact.port() == 0
        }
        false => peer.is_translated || leads_nowhere(contact, peer),
    }
}

/// Returns the target for a request that must use the flow to the other party of its dialog. If
/// this flow is a connection over TCP, and the party could be reached at its Contact without the
/// connection, the request may use another connection to the Contact. A trunk or an SBC closes idle
/// connections, and accepts new ones.
///
/// RFC 3261 §12.2.1.1: "Once the request has been constructed, the address of the server is
/// computed and the request is sent, using the same procedures for requests outside of a dialog
/// (Section 8.1.2)."
///
/// RFC 3261 §18.1.1 only recommends the open connection. The Contact must have the IP address of
/// the party. So the request goes to no third party, and not into the network behind a NAT. Over
/// TLS, nothing would name the host that the certificate has to prove.
///
/// # Errors
/// Returns an error if the flow is a connection of another process, and the party is
/// [bound](Snapshot::is_bound) to it or has asked for its use by `ob`.
pub(super) fn on_flow(
    snapshot: &Snapshot,
    contact: &Uri<'_>,
    peer: &PeerFlow,
) -> Result<Target, Rejection> {
    if peer.is_elsewhere && contact.params.get("ob").is_some() {
        return Err(Rejection::FLOW_GONE);
    }
    let unconnected = PeerFlow { connection: None, ..*peer };
    let is_free = peer.connection.is_some()
        && !snapshot.is_bound(peer)
        && !needs_flow(snapshot, contact, &unconnected);
    let named = snapshot.addresses.target_of(contact).filter(|named| {
        is_free
            && named.transport == Transport::Tcp
            && canonical(named.address).ip() == peer.remote.ip()
    });
    let target = snapshot.target_of(peer)?;
    Ok(match named {
        Some(Target { address, .. }) => Target { address, may_reconnect: true, ..target },
        None => target,
    })
}

/// Returns whether the other party of a dialog cannot be reached at the address `named` that it has
/// given. The address may belong to no single host, have no port, or be in a private network or on
/// this machine although the party is not.
pub(super) fn leads_nowhere(named: SocketAddr, peer: &PeerFlow) -> bool {
    !may_be_sent_to(named) || is_inside(named.ip().to_canonical(), peer.remote.ip())
}
