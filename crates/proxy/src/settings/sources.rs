//! How sources are distinguished, limited and banned: parameters.

use std::time::Duration;

use ipnet::IpNet;
use tidegate_control::{Limit, Per};

use crate::message::priority::Priority;

/// How sources are told apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Sources {
    /// Calls that go before others.
    pub priority: Option<Priority>,
    /// Limits; the first that is for a source holds.
    pub limits: Vec<SourceLimit>,
    /// Sources that count as several; the first that is for a source holds.
    pub weights: Vec<SourceWeight>,
    /// Who floods is banned.
    pub flood: Option<Flood>,
    /// Who is never banned, but by an operator. Back ends never are.
    pub never_ban: Vec<IpNet>,
    /// Sources of the whole process that may be banned at the same time.
    pub bans_max: usize,
}

impl Default for Sources {
    /// They are not.
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

/// The least rate for which a source is banned by itself, in messages a second: less does no harm
/// that a ban would mend, and could be anybody's who writes the address of another.
pub const HARM_CPS: u32 = 100;

/// Sources that may be banned at the same time, unless configured otherwise.
pub const BANS_MAX: usize = 1024;

/// A limit on the new work of the sources in a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceLimit {
    /// The network.
    pub from: IpNet,
    /// Calls, and requests that stand alone, in a second.
    pub rate_cps: f64,
    /// At once.
    pub burst: u32,
    /// Whether each source may send as much, or all together.
    pub per: Per,
    /// What becomes of what is beyond.
    pub then: Excess,
}

/// As how many sources each source of a network counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceWeight {
    /// The network.
    pub from: IpNet,
    /// As how many.
    pub weight: u32,
}

/// What becomes of what goes beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// It is disposed of as what a law does not admit.
    Refuse,
    /// It is dropped in silence.
    Drop,
    /// Likewise; if there are [`HARM_CPS`] of it in a second, its source is banned for so long.
    Ban(Duration),
}

/// What a flood is, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    /// Messages a second that ask for new work, make no sense, or claim to belong to calls and do
    /// not: more is a flood.
    pub above_cps: u32,
    /// In so many seconds in a row.
    pub after_s: u32,
    /// Its source is banned for so long.
    pub ban: Duration,
}

impl Sources {
    /// Whether anybody may come to be banned.
    pub fn may_ban(&self) -> bool {
        let bans = |limit: &SourceLimit| matches!(limit.then, Excess::Ban(_));
        self.flood.is_some() || self.limits.iter().any(bans)
    }
}

impl SourceLimit {
    /// As the gate has it.
    pub(crate) fn limit(&self) -> Limit {
        let Self { rate_cps: rate, burst, per, then, .. } = *self;
        Limit { rate, burst, per, sticky: then == Excess::Refuse }
    }
}
