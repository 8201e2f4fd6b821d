//! A server that sends requests to this one, as status and metrics show it.

use super::Algorithm;

/// The behaviour of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// The peer takes no part in overload control.
    #[default]
    Apart,
    /// The peer takes part in overload control, and obeys.
    Obeys,
    /// The peer offered to take part, but sends more than it was told.
    Disobeys,
}

impl Standing {
    /// All standings.
    pub const ALL: [Self; 3] = [Self::Apart, Self::Obeys, Self::Disobeys];

    /// Returns the name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apart => "apart",
            Self::Obeys => "obeys",
            Self::Disobeys => "disobeys",
        }
    }
}

/// The state of a peer, for status and metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerView {
    /// The key of the peer, or `None` for all peers together that did not fit into the table.
    pub key: Option<u128>,
    /// The participation of the peer in overload control, and its obedience.
    pub standing: Standing,
    /// The algorithm agreed with the peer, or `None` if the peer takes no part in overload control.
    pub algorithm: Option<Algorithm>,
    /// The last value that the peer was told, or zero if it was told none. Without an overload, a
    /// peer is told zero.
    pub value: u32,
    /// Calls a second that the peer would send without feedback, or zero if it sent none recently.
    pub original_cps: f64,
    /// Calls a second that the peer claims it would send without feedback, or `None` if it claims
    /// nothing.
    pub claimed_cps: Option<f64>,
    /// True if, within the last minute, the peer has claimed more than it would send.
    pub is_doubted: bool,
    /// Calls a second that the peer may send, or infinity without an overload.
    pub granted_cps: f64,
    /// Requests of the peer that were rejected because its share was used up.
    pub rejected: u64,
}
