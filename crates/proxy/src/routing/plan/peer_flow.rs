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
/// this flow is a connection over TCP that has ended, and the party is not
/// [bound](Snapshot::is_bound) to it, the request may use another connection: to the Contact if it
/// names TCP and the IP address of the party, or else to the address in the Via of the party. A
/// trunk or an SBC closes idle connections, and accepts new ones.
///
/// RFC 3261 §12.2.1.1: "Once the request has been constructed, the address of the server is
/// computed and the request is sent, using the same procedures for requests outside of a dialog
/// (Section 8.1.2)."
///
/// RFC 3261 §18.1.1 only recommends the open connection. Both addresses have the IP address of the
/// party. So the request goes to no third party, and not into the network behind a NAT. Over TLS,
/// nothing would name the host that the certificate has to prove.
///
/// # Errors
/// Returns an error if the flow is a connection of another process, and the party is
/// [bound](Snapshot::is_bound) to it or has asked for its use by `ob`.
pub(super) fn on_flow(
    snapshot: &Snapshot,
    contact: &Uri<'_>,
    peer: &PeerFlow,
) -> Result<Target, Rejection> {
    let target = on_connection(snapshot, contact, peer)?;
    let named = usable_contact(snapshot, contact, peer);
    let named = named.filter(|named| named.transport == Transport::Tcp);
    let address = named.map_or(target.address, |named| named.address);
    Ok(Target { address, ..target })
}

/// Returns the target for a request to the other party of its dialog, whose Contact is `contact`.
///
/// # Errors
/// Returns an error under the same conditions as [`on_flow`]. RFC 5626 §5.3.1: "If the flow no
/// longer exists, the proxy SHOULD send a 430 (Flow Failed) response to the request."
pub(super) fn on_connection(
    snapshot: &Snapshot,
    contact: &Uri<'_>,
    peer: &PeerFlow,
) -> Result<Target, Rejection> {
    let has_asked = contact.params.get("ob").is_some();
    if peer.is_elsewhere && has_asked {
        return Err(Rejection::FLOW_GONE);
    }
    let target = snapshot.target_of(peer)?;
    Ok(Target { may_reconnect: target.may_reconnect && !has_asked, ..target })
}

/// Returns the Contact of the other party of a dialog, if the Contact names UDP, and a request may
/// go there when the connection of the party has ended. A phone over UDP sends a large INVITE over
/// TCP (RFC 3261 §18.1.1), but may accept no connections.
///
/// RFC 3261 §12.2.1.1: "Once the request has been constructed, the address of the server is
/// computed and the request is sent, using the same procedures for requests outside of a dialog
/// (Section 8.1.2)."
pub(super) fn contact_by_udp(input: &PlanInput<'_, '_>, peer: &PeerFlow) -> Option<Target> {
    let &PlanInput { snapshot, received, request, ref routes, is_ours, .. } = input;
    let contact = usable_contact(snapshot, &request.uri, peer)?;
    let is_own = snapshot.addresses.is_own_socket(contact.address, received.flow.local);
    let is_it = contact.transport == Transport::Udp && routes.is_end() && !is_ours && !is_own;
    is_it.then_some(contact)
}

/// Returns the target that the Contact of the other party of a dialog names, if the party has a
/// connection over TCP, and could be reached at the Contact without this connection. The Contact
/// must have the IP address of the party.
fn usable_contact(snapshot: &Snapshot, contact: &Uri<'_>, peer: &PeerFlow) -> Option<Target> {
    let unconnected = PeerFlow { connection: None, ..*peer };
    let is_free = peer.connection.is_some()
        && !snapshot.is_bound(peer)
        && !needs_flow(snapshot, contact, &unconnected);
    let named = snapshot.addresses.target_of(contact).filter(|_| is_free)?;
    (canonical(named.address).ip() == peer.remote.ip()).then_some(named)
}

/// Returns whether the other party of a dialog cannot be reached at the address `named` that it has
/// given. The address may belong to no single host, have no port, or be in a private network or on
/// this machine although the party is not.
pub(super) fn leads_nowhere(named: SocketAddr, peer: &PeerFlow) -> bool {
    !may_be_sent_to(named) || is_inside(named.ip().to_canonical(), peer.remote.ip())
}
