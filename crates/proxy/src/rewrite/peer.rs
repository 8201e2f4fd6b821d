//! Finds the flow of the dialog party that is not a back end. The route token in our Record-Route
//! contains this flow.

use tidegate_sip::listener_target;
use tidegate_world::Flow;

use super::{Edits, ForwardPlan};
use crate::message::request::Request;
use crate::message::token::PeerFlow;
use crate::message::way_back::way_back;
use crate::network::{canonical, is_inside};
use crate::snapshot::Snapshot;
use crate::target::Target;

/// Returns the flow of the party of a dialog that is neither a back end nor a user of ours. This
/// party is the sender of the request. If a back end or a user of ours sends the request, or if the
/// target is a registered phone, the party is the target.
pub(super) fn peer_of(
    snapshot: &Snapshot,
    from: &Flow,
    request: &Request<'_>,
    plan: &ForwardPlan,
) -> PeerFlow {
    let ForwardPlan { egress, target, edits: Edits { ingress, .. }, .. } = *plan;
    if !plan.edits.toward_backend {
        let Target { connection, local, is_registered, .. } = target;
        return PeerFlow {
            listener: egress,
            remote: canonical(target.address),
            connection,
            is_elsewhere: false,
            local,
            is_translated: false,
            has_other_port: false,
            is_registered,
        };
    }
    let (via, source) = (&request.essentials.via, from.remote);
    let source_ip = source.ip().to_canonical();
    // RFC 3261 §18.2.1: if the Via names another IP address than the source, a NAT may lie between.
    // But a trunk may also send from one address and receive at another. RFC 3581 §3: the client
    // that asks for `rport` receives at its source address. An address inside the network of the
    // client is of no use for us.
    let is_translated = via.host.ip().map(|ip| ip.to_canonical()).is_some_and(|ip| {
        ip != source_ip && (via.params.get("rport").is_some() || is_inside(ip, source_ip))
    });
    let (remote, connection) = (way_back(via, from), from.connection);
    let local = snapshot.addresses.listener(ingress.into()).and_then(|own| own.asked(from));
    PeerFlow {
        listener: ingress,
        remote,
        connection,
        is_elsewhere: false,
        local,
        is_translated,
        has_other_port: remote != listener_target(via, source),
        is_registered: false,
    }
}
