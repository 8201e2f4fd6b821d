//! The settings of [`Upstreams`](super::Upstreams), and the overload-control parameters of a
//! request.

use std::time::Duration;

use super::{Algorithm, Algorithms, VALIDITY_DEFAULT};

/// A tick: the time between two measurements of the load that the peers send.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// The rule by which the capacity of this server is divided among the peers, the servers that send
/// requests to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamFairness {
    /// The same capacity for each peer (paper 002 §6.1, provider-centric).
    Provider,
    /// Capacity in proportion to the original load, which the peer would send without feedback. So
    /// each caller has the same chance (paper 002 §6.1, user-centric).
    User,
    /// Capacity in proportion to the configured weight of the peer.
    Weighted,
}

/// The settings of a server that limits its peers, the servers that send requests to it, by
/// feedback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpstreamSettings {
    /// The algorithms that this server may choose for a peer.
    pub accepted: Algorithms,
    /// The algorithm that is chosen if the peer offers it. Otherwise `loss` is chosen if the peer
    /// offers it, then `rate`.
    pub preferred: Algorithm,
    /// The rule by which the capacity is divided among the peers.
    pub fairness: UpstreamFairness,
    /// Maximum number of peers that are distinguished at the same time.
    pub peers_max: usize,
    /// The largest part of the sum of all weights that one peer may have under
    /// [user-centric](UpstreamFairness::User) fairness, 0 to 1. It limits the gain of a peer that
    /// claims a larger load than it has.
    pub share_max: f64,
    /// Time for which a feedback value holds.
    pub validity: Duration,
    /// Time from 1970 to the start of the driver's clock ([`Timestamp::ZERO`]). It is the base of
    /// the sequence numbers of feedback values.
    ///
    /// [`Timestamp::ZERO`]: tidegate_world::Timestamp::ZERO
    pub started: Duration,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            accepted: Algorithms::ALL,
            // A percentage still fits after the sender's load has changed. A rate fits only the
            // load for which it was computed.
            preferred: Algorithm::Loss,
            fairness: UpstreamFairness::Provider,
            peers_max: 4096,
            share_max: 0.75,
            validity: VALIDITY_DEFAULT,
            started: Duration::ZERO,
        }
    }
}

/// The overload-control parameters of a request, which describe the server that sends it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Offer {
    /// The algorithms that the sender supports, or `None` if it takes no part in overload control.
    pub algorithms: Option<Algorithms>,
    /// The calls a second that the sender claims it would send without feedback. Only set for peers
    /// whose claims are believed.
    pub original_cps: Option<f64>,
    /// The weight of the sender under [weighted](UpstreamFairness::Weighted) fairness, at least 1.
    pub weight: u32,
    /// The host of the sender. All peers of a host get one share together. If it is `None`, the
    /// sender gets a share of its own.
    pub host: Option<u128>,
}

impl Offer {
    /// The [host](Self::host) of all senders that may not take part in overload control.
    pub const STRANGERS: u128 = u128::MAX;
}
