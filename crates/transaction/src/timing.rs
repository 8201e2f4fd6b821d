//! How long the timers run.

use std::time::Duration;

/// The base values of the timers, RFC 3261 §17.1.1.1 and table 4, and what the transport
/// makes of them. Neither `t1` nor `t2` may be zero: repetitions would have no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// An estimate of the round-trip time. Default 500 ms.
    pub t1: Duration,
    /// The longest interval between repetitions of a request other than INVITE, and of a
    /// final response to INVITE. Default 4 s.
    pub t2: Duration,
    /// How long a message stays in the network. Default 5 s.
    pub t4: Duration,
    /// Whether the transport delivers by itself, so that nothing is repeated.
    pub reliable: bool,
}

impl Timing {
    /// 64·T1: timers B, F, H, J over an unreliable transport, L and M.
    pub fn patience(&self) -> Duration {
        self.t1 * 64
    }

    /// What an unreliable transport makes of a wait for messages that are still under way.
    pub(crate) fn linger(&self, unreliable: Duration) -> Duration {
        if self.reliable { Duration::ZERO } else { unreliable }
    }
}

impl Default for Timing {
    /// RFC 3261, table 4, over an unreliable transport.
    fn default() -> Self {
        Self {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
            reliable: false,
        }
    }
}
