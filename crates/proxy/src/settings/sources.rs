//! Parameters that distinguish, limit and ban sources.

use std::time::Duration;

use ipnet::IpNet;
use tidegate_control::{Decision, Limit, Per};

use crate::message::priority::Priority;

/// Settings that distinguish, limit and ban the sources of messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Sources {
    /// Calls that take precedence over others.
    pub priority: Option<Priority>,
    /// Limits on the new work of sources. The first limit that matches a source applies.
    pub limits: Vec<SourceLimit>,
    /// Weights of sources in fair shares, in overload feedback and in the detection of floods. The
    /// first weight that matches a source applies.
    pub weights: Vec<SourceWeight>,
    /// The definition of a flood, and the ban of its source. If `None`, floods do not cause bans.
    pub flood: Option<Flood>,
    /// Sources that only an operator may ban. Back ends are never banned.
    pub never_ban: Vec<IpNet>,
    /// Maximum number of sources that the process bans at the same time.
    pub bans_max: usize,
}

impl Default for Sources {
    /// Returns settings that treat all sources in the same way.
    fn default() -> Self {
        Self {
            priority: None,
            limits: Vec::new(),
            weights: Vec::new(),
            flood: None,
            never_ban: Vec::new(),
            bans_max: BANS_MAX,
        }
    }
}

/// The lowest rate at which a source is banned automatically, in messages per second. At a lower
/// rate the harm is too small to justify a ban, because the source address may be forged.
pub const HARM_CPS: u32 = 100;

/// The default of [`Sources::bans_max`].
pub const BANS_MAX: usize = 1024;

/// A limit on the new work of the sources in a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceLimit {
    /// The network of the sources.
    pub from: IpNet,
    /// Maximum number of calls and of requests outside calls, taken together, per second.
    pub rate_cps: f64,
    /// Maximum number of requests that may arrive at once.
    pub burst: u32,
    /// The unit of the limit: each source, or all sources together.
    pub per: Per,
    /// The treatment of requests above the limit.
    pub then: Excess,
}

/// The weight of each source of a network: the number of sources that it counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceWeight {
    /// The network of the sources.
    pub from: IpNet,
    /// The number of sources that each source counts as.
    pub weight: u32,
}

/// The weight of back ends, trusted sources and sources that get overload feedback in fair shares,
/// if no weight is configured.
pub(crate) const KNOWN_WEIGHT: u32 = 1000;

/// The treatment of requests above a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Work beyond the limit is rejected or dropped in the same way as other work that is not
    /// admitted.
    Reject,
    /// Work beyond the limit is dropped silently.
    Drop,
    /// Work beyond the limit is dropped, and so are its retransmissions. A source is banned for the
    /// given time if it sends a shard [`HARM_CPS`] requests beyond the limit in a second. For a
    /// source with a weight, this number is multiplied by the weight. Retransmissions do not count.
    Ban(Duration),
}

/// The definition of a flood, and its ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    /// Rate in messages per second above which the messages of a source are a flood. Only messages
    /// that ask for new work, are malformed, or falsely claim to be in-dialog are counted.
    pub above_cps: u32,
    /// Number of consecutive seconds above the rate `above_cps` after which the source is banned.
    pub after_s: u32,
    /// Duration of the ban.
    pub ban: Duration,
}

impl Sources {
    /// Returns whether any source can be banned automatically.
    pub fn may_ban(&self) -> bool {
        let bans = |limit: &SourceLimit| matches!(limit.then, Excess::Ban(_));
        self.flood.is_some() || self.limits.iter().any(bans)
    }
}

impl SourceLimit {
    /// Returns the limit in the form that the gate uses.
    pub(crate) fn limit(&self) -> Limit {
        let Self { rate_cps: rate, burst, per, then, .. } = *self;
        // Copies of one request must not cause a ban: over UDP, a request without a response is sent
        // up to eleven times (RFC 3261 §17.1.2.2).
        let remembered = match then {
            Excess::Reject => Some(Decision::Rejected),
            Excess::Drop => None,
            Excess::Ban(_) => Some(Decision::Dropped),
        };
        Limit { rate, burst, per, remembered }
    }
}
