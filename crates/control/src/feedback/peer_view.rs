//! The state of a server that sends requests to this one (a peer), for status and metrics.

use tidegate_world::unit_enum;

use super::Algorithm;

unit_enum! {
    /// The participation of a peer in overload control. Metrics use these names.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Standing {
        /// The peer takes no part in overload control.
        #[default]
        Apart = "apart",
        /// The peer takes part in overload control and obeys the feedback.
        Obeys = "obeys",
        /// The peer takes part in overload control, but sends more than the feedback allows.
        Disobeys = "disobeys",
    }
}

/// The state of a peer: a server that sends requests to this one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerView {
    /// The key of the peer, or `None` for the joint entry of all peers for which the table had no
    /// room.
    pub key: Option<u128>,
    /// The peer's participation in overload control, and its obedience to the feedback.
    pub standing: Standing,
    /// The algorithm agreed with the peer, or `None` if the peer takes no part in overload control.
    pub algorithm: Option<Algorithm>,
    /// The last feedback value that was sent to the peer, or zero if none was sent. Without an
    /// overload, the value is zero.
    pub value: u32,
    /// Calls a second that the peer would send without feedback, or zero if it sent none recently.
    pub original_cps: f64,
    /// Calls a second that the peer claims it would send without feedback, or `None` if it claims
    /// nothing.
    pub claimed_cps: Option<f64>,
    /// True if, within the last minute, the peer has claimed a larger load than it would send.
    pub is_doubted: bool,
    /// Calls a second that the peer may send, or infinity without an overload.
    pub granted_cps: f64,
    /// Requests of the peer that were rejected because its share was used up.
    pub rejected: u64,
}
