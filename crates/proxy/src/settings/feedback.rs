//! Settings of feedback to upstream peers.

use ipnet::IpNet;
use tidegate_control::feedback::UpstreamSettings;

/// The feedback that this proxy gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackSettings {
    /// The algorithms and the fairness. Without algorithms, no peer gets feedback.
    pub upstream: UpstreamSettings,
    /// Networks whose peers get feedback, in addition to back ends and trusted sources.
    pub peers: Vec<IpNet>,
    /// True if all peers of one host get one share together.
    pub shares_by_host: bool,
}
