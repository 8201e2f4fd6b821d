//! What happens to a request that is not forwarded.

use tidegate_balance::Unassigned;
use tidegate_sip::Malformed;

use crate::counters::DropReason;

/// What happens to a request that is not forwarded.
pub(crate) enum Instead {
    /// A response with this status, and why.
    Reply(u16, &'static str),
    /// 420 to a Proxy-Require.
    BadExtension,
    /// 200 to an OPTIONS for ourselves.
    Capabilities,
    /// Nothing.
    Drop(DropReason),
    /// A refusal: all back ends that it could go to are at their limits.
    PoolFull,
    /// Another shard knows more.
    Cross(u16),
}

impl From<Malformed> for Instead {
    fn from(malformed: Malformed) -> Self {
        Self::Reply(status_of(malformed), "malformed")
    }
}

impl From<Unassigned> for Instead {
    fn from(why: Unassigned) -> Self {
        match why {
            Unassigned::Down => Self::Reply(503, "no back end is up"),
            Unassigned::Full => Self::PoolFull,
        }
    }
}

/// The status that answers a malformed request.
pub(crate) fn status_of(malformed: Malformed) -> u16 {
    match malformed {
        // RFC 3261 §21.5.6.
        Malformed::Version => 505,
        _ => 400,
    }
}
