//! The server role in overload control (RFC 7339): which upstream peers take part in the feedback,
//! how much each may send, and the feedback values for each.
//!
//! A peer takes part in the feedback if its requests, or its probes alone, offer overload control in
//! their topmost Via, and if the peer is a back end, a trusted source or in a configured network.
//! Each response to the peer's address, including a retransmitted response, has the current value
//! in its topmost Via. Other peers get no values. While no peer takes part, the only cost is to
//! examine the topmost Via of new work.
//!
//! When the proxy forwards a request, it removes the peer's offer, so a response does not show
//! whether the peer takes part. The address to which the response goes identifies the peer. On a
//! connection this is the IP address of the other end with the port in the topmost Via, so all
//! connections of one server are one peer. The source port of a connection does not identify a
//! server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use arrayvec::ArrayVec;
use hashbrown::HashMap;
use tidegate_control::Gate;
use tidegate_control::feedback::{
    Algorithms, Arrival, Category, Offer, UpstreamSettings, Upstreams,
};
use tidegate_sip::{OverloadControl, top_via};
use tidegate_world::{Buffer, Flow, Received, Seed, Timestamp, Transmit};

use crate::keys::Keys;
use crate::message::way_back::way_back;
use crate::network::{canonical, source_of};
use crate::observe::upstream::UpstreamView;
use crate::pushback::wire::{self, FEEDBACK_MAX};
use crate::settings::feedback::FeedbackSettings;
use crate::snapshot::Snapshot;
use crate::transport::addresses::Origin;

/// The upstream peers of a shard that take part in overload feedback, with their shares.
pub(crate) struct UpstreamPeers {
    upstreams: Upstreams,
    settings: FeedbackSettings,
    /// The peers that take part in overload feedback, by the key of the peer: the peer's address,
    /// and the flow of the peer's last request that offered overload control.
    addresses: HashMap<u128, (SocketAddr, Flow)>,
}

impl UpstreamPeers {
    /// Creates the table of peers for the shard with the number `element`. The clock of the shard
    /// started at the Unix time `start`.
    pub(crate) fn new(
        settings: &FeedbackSettings,
        start: Duration,
        seed: Seed,
        element: u32,
    ) -> Self {
        let upstream = UpstreamSettings { started: start, ..settings.upstream };
        Self {
            upstreams: Upstreams::new(&upstream, seed, element),
            settings: settings.clone(),
            addresses: HashMap::new(),
        }
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Returns whether overload feedback may now ask the sender of a message to send fewer
    /// requests.
    #[inline]
    pub(crate) fn may_restrict(&self, snapshot: &Snapshot, flow: &Flow) -> bool {
        self.is_active() && self.upstreams.is_overloaded() && self.may_take_part(snapshot, flow)
    }

    /// Counts a request that claims to belong to a session, although no such session exists.
    pub(crate) fn on_stray(&mut self, now: Timestamp, received: &Received, snapshot: &Snapshot) {
        if self.may_restrict(snapshot, &received.flow)
            && let Some(via) = top_via(&received.bytes)
        {
            let address = canonical(way_back(&via, &received.flow));
            self.upstreams.on_stray(now, key_of(&snapshot.keys, address));
        }
    }

    /// Decides on a request before the gate does. The request must not be a retransmission. The
    /// `weight` of its sender matters only if fairness is weighted.
    pub(crate) fn on_request(
        &mut self,
        now: Timestamp,
        received: &Received,
        category: Category,
        weight: u32,
        snapshot: &Snapshot,
    ) -> Arrival {
        let flow = &received.flow;
        let Some(via) = top_via(&received.bytes) else { return Arrival::Judge };
        let is_peer = self.may_take_part(snapshot, flow);
        let (offered, original_cps) =
            if is_peer { self.offered(via.element) } else { (None, None) };
        let key = if is_peer {
            let address = canonical(way_back(&via, flow));
            let key = key_of(&snapshot.keys, address);
            if offered.is_some() && self.has_room() {
                self.addresses.insert(key, (address, *flow));
            }
            key
        } else {
            source_of(flow.remote.ip())
        };
        if !self.is_active() {
            return Arrival::Judge;
        }
        let host = match is_peer {
            true => self.settings.shares_by_host.then(|| source_of(flow.remote.ip())),
            false => Some(Offer::STRANGERS),
        };
        let offer = Offer { algorithms: offered, original_cps, weight, host };
        self.upstreams.on_request(now, key, category, &offer)
    }

    /// Forgets the peers that may no longer take part in overload feedback, because they are no
    /// longer back ends. To be called after a reload, and when a back end gets a new address.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot) {
        let mut addresses = std::mem::take(&mut self.addresses);
        addresses.retain(|_, (_, flow)| self.may_take_part(snapshot, flow));
        self.addresses = addresses;
    }

    /// Returns whether the sender of a request may take part in overload feedback.
    ///
    /// RFC 7339 §5.2: "To limit the knowledge that the server supports overload control, a server can
    /// adopt a policy of inserting overload control parameters in only those requests received over
    /// trusted links such that these parameters are only visible to trusted neighbors."
    fn may_take_part(&self, snapshot: &Snapshot, flow: &Flow) -> bool {
        if self.settings.upstream.accepted == Algorithms::NONE {
            return false;
        }
        let ip = canonical(flow.remote).ip();
        snapshot.addresses.origin(flow) != Origin::Stranger
            || self.settings.peers.iter().any(|network| network.contains(&ip))
    }

    /// Returns the overload control algorithms that a peer offers and we accept, and the original
    /// load (before any reduction) that the peer states, in requests per second.
    fn offered(&self, via: &[u8]) -> (Option<Algorithms>, Option<f64>) {
        let Some(via) = OverloadControl::in_via(via) else { return (None, None) };
        let common =
            wire::offered(&via).map(|offered| offered.common(self.settings.upstream.accepted));
        (common.filter(|common| !common.is_empty()), wire::original_cps(&via))
    }

    fn has_room(&self) -> bool {
        self.addresses.len() < self.settings.upstream.peers_max
    }

    /// Writes the current feedback value into a response to a peer that takes part in overload
    /// feedback. Does not change any other message.
    ///
    /// RFC 7339 §4.1 asks for a value "in the response going upstream to a client that included the
    /// "oc" parameter in the request". Only clients that may take part get a value.
    ///
    /// RFC 7339 §5.2: "When a SIP server retransmits a response, it SHOULD use the "oc" and "oc-validity"
    /// parameter values consistent with the overload state at the time the retransmitted response was
    /// sent."
    ///
    /// RFC 7415 §3.4: "Upon detection of overload and the determination to invoke overload
    /// controls, the server MUST follow the specifications in \[RFC7339\] to notify its clients of
    /// the allocated target SIP request rate and to notify them that rate-based control is in
    /// effect."
    ///
    /// RFC 7339 §5.11: "For this reason, implementations that insert overload control information in the
    /// 100 Trying MUST re-insert the same (or updated) overload control information in the first non-100
    /// Trying response being sent to the upstream SIP client."
    pub(crate) fn answer(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        transmit: Transmit,
    ) -> Transmit {
        if !self.is_active() || !transmit.bytes.starts_with(b"SIP/2.0 ") {
            return transmit;
        }
        let Some(feedback) = self.feedback_to(now, snapshot, &transmit) else {
            return transmit;
        };
        let mut bytes: Buffer = snapshot.buffers.take();
        match tidegate_sip::write_overload_control(&transmit.bytes, 0, &feedback, &mut bytes) {
            // A Via that violates the grammar is copied unchanged. It has no overload parameters of
            // other elements, unless the response is a reply to a malformed request.
            Ok(_are_valid) => Transmit { bytes, ..transmit },
            // The message has no room for the value within the maximum length of a datagram.
            Err(_) => transmit,
        }
    }

    fn feedback_to(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        response: &Transmit,
    ) -> Option<ArrayVec<u8, FEEDBACK_MAX>> {
        let flow = &response.flow;
        let address = match flow.transport.is_reliable() {
            true => way_back(&top_via(&response.bytes)?, flow),
            false => flow.remote,
        };
        let key = key_of(&snapshot.keys, canonical(address));
        self.addresses.get(&key)?;
        let feedback = self.upstreams.feedback(now, key)?;
        Some(wire::text_of(&feedback, self.upstreams.wants_loads()))
    }

    /// If a measurement of the peers is due, updates the feedback values for the peers, and forgets
    /// peers that no longer take part. Returns whether a measurement was due.
    pub(crate) fn handle_timeout(&mut self, now: Timestamp, gate: &Gate) -> bool {
        if self.upstreams.poll_timeout().is_none_or(|due| now < due) {
            return false;
        }
        self.upstreams.handle_timeout(now, gate);
        let Self { upstreams, addresses, .. } = self;
        let takes_part = |key: &u128| {
            let peer = upstreams.peer(*key);
            peer.is_some_and(|peer| peer.algorithm.is_some())
        };
        addresses.retain(|key, _| takes_part(key));
        true
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next due.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.upstreams.poll_timeout()
    }

    /// Returns how often a peer got no entry of its own because the table of peers was full.
    pub(crate) fn overflowed(&self) -> u64 {
        self.upstreams.overflowed()
    }

    /// Returns the peers that take part in overload feedback, in the order of their addresses.
    pub(crate) fn views(&self) -> Vec<UpstreamView> {
        let view = |(key, &(address, _)): (&u128, &(SocketAddr, Flow))| {
            Some(UpstreamView { address, peer: self.upstreams.peer(*key)? })
        };
        let mut views: Vec<_> = self.addresses.iter().filter_map(view).collect();
        views.sort_unstable_by_key(|view| view.address);
        views
    }
}

/// Returns the key of a peer in the table of peers. The key differs from those of all other peers
/// and of all sources. A peer with many IPv6 addresses cannot choose an address that has the key of
/// another peer.
fn key_of(keys: &Keys, address: SocketAddr) -> u128 {
    let port = address.port();
    let key = match address.ip() {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) | u128::from(port) << 64,
        // An IPv6 address and a port together have more than 128 bits.
        IpAddr::V6(ip) => {
            let mut bytes = [0; 18];
            bytes[..16].copy_from_slice(&ip.octets());
            bytes[16..].copy_from_slice(&port.to_be_bytes());
            keys.source.fingerprint(&bytes)
        }
    };
    key | 1 << 127
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[test]
    fn no_peer_of_ipv6_has_the_key_of_another() {
        let keys = Keys::new(&Secret::of([1; 32]), 1);
        let key = |text: &str| key_of(&keys, text.parse().unwrap());
        // The network and the port differ in the same bits.
        assert_ne!(key("[2001:db8:0:1::7]:5060"), key("[2001:db8:0:2::7]:5063"));
        assert_ne!(key("192.0.2.1:5060"), key("192.0.2.1:5061"));
        assert_ne!(key("192.0.2.1:5060"), key("192.0.2.2:5060"));
        assert_eq!(key("[2001:db8::7]:5060"), key("[2001:db8:0::7]:5060"));
    }
}
