//! Parameters of a pool's health checks.

use std::time::Duration;

/// The usual maximum time for which a Retry-After is obeyed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The health checks of a pool's back ends, and their consequences.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// The probes, or `None` if back ends are not probed.
    pub probe: Option<Probe>,
    /// Consecutive unanswered requests after which a back end is probed ahead of schedule, 1 to
    /// [`COUNT_MAX`](tidegate_balance::COUNT_MAX).
    pub error_limit: u32,
    /// Maximum fraction of the back ends of a pool that may be excluded because of failed requests
    /// (503s, missing responses, ICMP errors, refused connections), 0 to 1. Failed probes may
    /// exclude all back ends.
    pub eject_max: f64,
    /// Maximum time for which the Retry-After of a 503 is obeyed. A longer Retry-After is shortened
    /// to this time. If zero, Retry-After is ignored. `None`: 60 seconds, or zero for a back end
    /// whose rate is learned.
    pub retry_after_max: Option<Duration>,
    /// Time after the return of a back end during which its weight grows to the full value. If
    /// zero, the back end has its full weight at once.
    pub slow_start: Duration,
}

impl Health {
    /// Returns the maximum time for which the Retry-After of a back end is obeyed. `learns` is true
    /// if the rate of the back end is learned from its rejections.
    ///
    /// RFC 5390 §5.3: "The mechanism is an all-or-nothing technique." A learned rate makes the pause
    /// after a Retry-After unnecessary. A back end has one health and one learned rate in all its
    /// pools, so the settings for learning of the request's own pool do not matter.
    pub(crate) fn retry_after_max(&self, learns: bool) -> Duration {
        let usual = if learns { Duration::ZERO } else { RETRY_AFTER_MAX };
        self.retry_after_max.unwrap_or(usual)
    }
}

/// Probes of back ends with OPTIONS (RFC 3261 §11).
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The time between probes.
    pub interval: Duration,
    /// The time to wait for a response.
    pub timeout: Duration,
    /// Maximum random change of an interval, up or down, as a fraction of the interval: 0 to 1.
    pub jitter: f64,
    /// Consecutive unanswered probes after which a back end is down, 1 to
    /// [`COUNT_MAX`](tidegate_balance::COUNT_MAX).
    pub fall: u32,
    /// Consecutive answered probes after which the back end is up again, 1 to
    /// [`COUNT_MAX`](tidegate_balance::COUNT_MAX).
    pub rise: u32,
    /// The responses that count as success.
    pub accept: Accept,
    /// The URI in From. If `None`, it is `sip:tidegate@` with our own address.
    pub from: Option<String>,
}

/// The final responses to a probe that show that a back end can take calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Any response except a 503. A server that does not support OPTIONS (405, 501) or knows no
    /// such user (404) is up.
    Any,
    /// Only responses with these statuses.
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
            retry_after_max: None,
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
