//! How the health of back ends is learned: parameters of a pool.

use std::time::Duration;

/// How the health of a pool's back ends is learnt, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// If they are asked.
    pub probe: Option<Probe>,
    /// Requests in a row that a back end leaves unanswered until it is asked out of turn whether it
    /// is there, 1 to [`COUNT_MAX`](tidegate_balance::COUNT_MAX).
    pub error_limit: u32,
    /// The share of a pool's back ends that requests alone (503s, silence, ICMP) exclude at the
    /// most, 0 to 1. Probes that fail may exclude all.
    pub eject_max: f64,
    /// The longest Retry-After of a 503 that is honoured; what asks for more gets this. Zero: none.
    pub retry_after_max: Duration,
    /// For how long the weight of a back end that has returned grows; zero: it is whole at once.
    pub slow_start: Duration,
}

/// How back ends are asked whether they are there: by OPTIONS (RFC 3261 §11).
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// From one to the next.
    pub interval: Duration,
    /// For how long an answer is awaited.
    pub timeout: Duration,
    /// By which share of itself an interval may be shorter or longer, 0 to 1.
    pub jitter: f64,
    /// Unanswered probes in a row until a back end is down, from 1 as above.
    pub fall: u32,
    /// Answered ones in a row until it is up again, likewise.
    pub rise: u32,
    /// Which answers count.
    pub accept: Accept,
    /// The URI that stands in From; `None`: `sip:tidegate@` and our own address.
    pub from: Option<String>,
}

/// Which final answers to a probe say that a back end can take calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Any but 503: a server that knows no OPTIONS (405, 501) or no such user (404) is there.
    Any,
    /// These.
    Only(Vec<u16>),
}

impl Accept {
    pub(crate) fn holds(&self, status: u16) -> bool {
        match self {
            Self::Any => status != 503,
            Self::Only(list) => list.contains(&status),
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self {
            probe: None,
            error_limit: 1,
            eject_max: 0.5,
            retry_after_max: Duration::from_secs(60),
            slow_start: Duration::ZERO,
        }
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            jitter: 0.1,
            fall: 3,
            rise: 2,
            accept: Accept::Any,
            from: None,
        }
    }
}
