//! Settings of overload feedback to upstream peers.

use ipnet::IpNet;
use tidegate_control::feedback::UpstreamSettings;

/// The overload feedback (RFC 7339) that this proxy gives to upstream peers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackSettings {
    /// The feedback algorithms, and the fairness between peers. Without algorithms, no peer gets
    /// feedback.
    pub upstream: UpstreamSettings,
    /// Networks whose peers get feedback, in addition to back ends and trusted sources.
    pub peers: Vec<IpNet>,
    /// True if all peers on one host together get a single share of the capacity.
    pub shares_by_host: bool,
}
