//! The upstream peers that take part in overload feedback, for operators.

use std::net::SocketAddr;

use tidegate_control::feedback::PeerView;

/// An upstream peer that takes part in overload feedback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpstreamView {
    /// The address of the peer.
    pub address: SocketAddr,
    /// The state of the peer: its share, and the feedback value that we last sent to it.
    pub peer: PeerView,
}
